package spool

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// Package fmt is left out: its start-up would be paid by every job. These few
// helpers write the errors of the package in the usual form.

// opError reads `cannot verb "object": cause`.
type opError struct {
	verb, object string
	err          error
}

func (e *opError) Error() string {
	return "cannot " + e.verb + " " + strconv.Quote(e.object) + ": " + e.err.Error()
}

func (e *opError) Unwrap() error { return e.err }

func cannot(verb, object string, err error) error {
	return &opError{verb: verb, object: object, err: err}
}

// ErrSyntax is matched by every error about the content of a file.
var ErrSyntax = errors.New("bad content")

// A SyntaxError tells what is wrong with the content of a file.
type SyntaxError struct {
	File string
	Line int // counted from 1; 0 if the file as a whole is meant
	Text string
}

func (e *SyntaxError) Error() string {
	s := "cannot parse " + e.File + ": "
	if e.Line > 0 {
		s += "line " + strconv.Itoa(e.Line) + ": "
	}
	return s + e.Text
}

// Is reports that the error is ErrSyntax.
func (e *SyntaxError) Is(target error) bool { return target == ErrSyntax }

// Unread reports whether an error of reading says nothing of what is there: the
// system could not read it, and may be able to later. Such a file is neither damaged
// nor gone, and must stay where it is.
func Unread(err error) bool {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case unix.ENOENT, unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.ENXIO: // something else is there, or nothing
		return false
	}
	return true
}

// Scarce reports whether an error says that the host lacks descriptors, memory or
// processes for the moment: nobody's mistake, and worth to be tried again.
func Scarce(err error) bool {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN:
		return true
	}
	return false
}

func syntax(file string, line int, text string) error {
	return &SyntaxError{File: file, Line: line, Text: text}
}

// short quotes text from a file for a message, cut to a readable length.
func short(b []byte) string {
	if len(b) > 60 {
		return strconv.Quote(string(b[:60])) + "..."
	}
	return strconv.Quote(string(b))
}
