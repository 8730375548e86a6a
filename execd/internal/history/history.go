// Package history writes the ads of jobs into files of the administrator that other programs
// read, in HTCondor's formats: histories of what is over (File), and the log by which the
// queue can be followed (Log). They are off unless a knob names them. What cannot be written
// is dropped and counted: no job waits for it.
//
// Daemon makes them, and package stage and the store of jobs tell them.
package history

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"paddock/classad"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/metrics"
	"paddock/spool/atomicfile"
)

// The knobs of hooks.conf.
const (
	KnobHistory = "HISTORY"
	KnobStartd  = "STARTD_HISTORY"
	KnobQueue   = "JOB_QUEUE_LOG"

	knobMost = "MAX_HISTORY_LOG"
	knobKept = "MAX_HISTORY_ROTATIONS"
)

const (
	defaultMost = 20 << 20 // bytes of a history
	defaultKept = 2        // histories beside it
)

// File is a history: the ads of jobs one after the other, each with a line behind it that
// says whose it is. The exported fields are set before use.
type File struct {
	Knob   string // that has its path
	Knobs  func() *knob.Set
	Arrow  metrics.Arrow // as which it counts what is dropped
	Counts *metrics.Counts
	Log    *slog.Logger

	mu      sync.Mutex // held while the file is written
	left    place      // guarded by mu; how the file was left
	failing bool       // guarded by mu; the last write has failed
}

// place is how a file was left: the file itself, its size, and where its last banner begins.
type place struct {
	inode        uint64
	size, banner int64
}

// On reports whether there is such a history.
func (f *File) On() bool { return f != nil && path(f.Knobs(), f.Knob) != "" }

// path returns the path in a knob; empty: it is not set.
func path(k *knob.Set, name string) string {
	p, _ := k.Lookup(name)
	return p
}

// Write appends the ad of a job without what its owner and root alone may know.
func (f *File) Write(of *classad.Ad) {
	k := f.Knobs()
	to := path(k, f.Knob)
	if to == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.append(to, ad.Public(of), int64(k.Int(knobMost, defaultMost)), k.Int(knobKept, defaultKept))
	if err != nil {
		f.Counts.Drop(f.Arrow)
	}
	report(f.Log, f.Knob, err, &f.failing)
}

// report tells the log of the first of several failures, and of their end.
func report(log *slog.Logger, knob string, err error, failing *bool) {
	switch {
	case err != nil && !*failing:
		log.Warn(fmt.Sprintf("execd: %s: %v: what would be written is dropped until it can be", knob, err))
	case err == nil && *failing:
		log.Info(fmt.Sprintf("execd: %s: it is written again", knob))
	}
	*failing = err != nil
}

// maxRecord bounds a record of a history, in bytes.
const maxRecord = 1 << 20

// append writes an ad, of which others are kept in so many files of so many bytes. f.mu is
// held.
func (f *File) append(to string, of *classad.Ad, most int64, kept int) error {
	body := of.OldString()
	if len(body) > maxRecord {
		return fmt.Errorf("an ad has %d bytes, at most %d are possible", len(body), maxRecord)
	}
	file, at, err := f.open(to)
	if err != nil {
		return err
	}
	if at.size > 0 && at.size+int64(len(body)) > most {
		file.Close()
		if err := rotate(to, kept, time.Now()); err != nil {
			return err
		}
		if file, at, err = f.open(to); err != nil {
			return err
		}
	}
	defer file.Close()
	record := append([]byte(body), banner(of, at.banner, time.Now())...)
	if err := atomicfile.AppendTo(file, record); err != nil {
		return fmt.Errorf("cannot write %s: %w", to, err)
	}
	f.left = place{at.inode, at.size + int64(len(record)), at.size + int64(len(body))}
	return nil
}

// banner is the line behind a record: it is found from the next by its offset, and says
// whose the record is. A value that the ad lacks is -1.
func banner(of *classad.Ad, before int64, now time.Time) string {
	env := &classad.Env{My: of, Now: now}
	number := func(name string) int64 {
		if n, ok := env.Attr(name).Int(); ok {
			return n
		}
		return -1
	}
	owner, _ := env.Attr("Owner").Str()
	return fmt.Sprintf("*** Offset = %d ClusterId = %d ProcId = %d Owner = %s CompletionDate = %d CurrentTime = %d\n",
		before, number("ClusterId"), number("ProcId"), classad.String(cmp.Or(owner, "?")).Expr().OldString(), number("CompletionDate"), now.Unix())
}

// open opens the history, and returns how it is: half a record at its end, from a power cut
// or a full disk, is taken away.
func (f *File) open(to string) (*os.File, place, error) {
	file, info, err := openOurs(to, 0o644)
	if err != nil {
		return nil, place{}, err
	}
	at := place{inode: info.Ino, size: info.Size}
	switch {
	case at.size == 0:
	case at.inode == f.left.inode && at.size == f.left.size:
		at = f.left
	default:
		var whole int64
		if at.banner, whole, err = lastBanner(to, at.inode, at.size); err == nil && whole < at.size {
			err = file.Truncate(whole)
			at.size = whole
		}
	}
	if err != nil {
		file.Close()
		return nil, place{}, fmt.Errorf("cannot write %s: %w", to, err)
	}
	return file, at, nil
}

// lastBanner returns where the last banner of a history begins, and how much of the file is
// whole: up to its end. A file that has none is no history.
func lastBanner(of string, inode uint64, size int64) (begin, whole int64, err error) {
	f, err := os.OpenFile(of, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil || st.Ino != inode {
		return 0, 0, cmp.Or(err, errors.New("it was replaced meanwhile"))
	}
	from := max(size-2*maxRecord, 0)
	tail, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
	if err != nil {
		return 0, 0, err
	}
	for end := bytes.LastIndexByte(tail, '\n') + 1; end > 0; {
		line := bytes.LastIndexByte(tail[:end-1], '\n') + 1
		if bytes.HasPrefix(tail[line:end], []byte("***")) && (line > 0 || from == 0) {
			return from + int64(line), from + int64(end), nil
		}
		end = line
	}
	return 0, 0, errors.New("it is there, and is no history")
}

// openOurs opens a file for appending that nobody else may write or replace, or creates it.
func openOurs(to string, perm fs.FileMode) (*os.File, *syscall.Stat_t, error) {
	if err := safeDir(filepath.Dir(to)); err != nil {
		return nil, nil, fmt.Errorf("cannot write %s: %w", to, err)
	}
	f, err := atomicfile.OpenAppend(to, perm)
	if err != nil {
		return nil, nil, err
	}
	st, err := stat(f)
	if err == nil && (int(st.Uid) != os.Geteuid() || st.Nlink != 1) {
		err = fmt.Errorf("cannot write %s: it belongs to another, or has another name as well", to)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, st, nil
}

func stat(f *os.File) (*syscall.Stat_t, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, errors.New("no inode is known")
	}
	return st, nil
}

// safeDir refuses a directory in which others could replace a file.
func safeDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return errors.Unwrap(err) // its path is said
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode(); {
	case !mode.IsDir():
		return fmt.Errorf("%s is no directory", dir)
	case mode.Perm()&0o002 != 0:
		return fmt.Errorf("mode %04o lets everybody write to %s", mode.Perm(), dir)
	case ok && st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", dir)
	}
	return nil
}

// stamp is how the time of a rotation stands behind the name of a history.
const stamp = "20060102T150405"

// rotate gives a history that is full another name, by the time, and removes the oldest but
// for those that are kept.
func rotate(to string, kept int, now time.Time) error {
	wrap := func(err error) error { return fmt.Errorf("cannot rotate %s: %w", to, err) }
	old, err := rotated(to)
	if err != nil {
		return wrap(err)
	}
	name := now.Format(stamp)
	if len(old) > 0 { // there may be several in a second, or the clock was set back
		if last := strings.TrimPrefix(old[len(old)-1], to+"."); name <= last {
			at, _ := time.Parse(stamp, last) // it is one
			name = at.Add(time.Second).Format(stamp)
		}
	}
	for ; len(old) >= max(kept, 1); old = old[1:] {
		if err := atomicfile.Remove(old[0]); err != nil {
			return wrap(err)
		}
	}
	return atomicfile.RenameNew(to, to+"."+name)
}

// rotated returns the paths of earlier histories, the oldest first.
func rotated(to string) (list []string, err error) {
	entries, err := os.ReadDir(filepath.Dir(to))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		when, ok := strings.CutPrefix(e.Name(), filepath.Base(to)+".")
		if _, err := time.Parse(stamp, when); ok && err == nil && e.Type().IsRegular() {
			list = append(list, to+"."+when)
		}
	}
	slices.Sort(list)
	return list, nil
}

// Problems returns why files that knobs name would not be written.
func Problems(k *knob.Set) (list []knob.Problem) {
	names := map[string]string{} // of knobs, by path
	for _, name := range []string{KnobHistory, KnobStartd, KnobQueue} {
		to := path(k, name)
		if to == "" {
			continue
		}
		tell := func(warning bool, text string) {
			where := k.Get(name)
			list = append(list, knob.Problem{File: where.File, Line: where.Line, Text: name + ": " + text, Warning: warning})
		}
		info, err := os.Lstat(to)
		dirErr := safeDir(filepath.Dir(to))
		switch other := names[filepath.Clean(to)]; {
		case !filepath.IsAbs(to):
			tell(false, fmt.Sprintf("%q is no absolute path", to))
		case other != "":
			tell(false, fmt.Sprintf("it is the file of %s", other))
		case dirErr != nil:
			tell(true, fmt.Sprintf("cannot write %s: %v", to, dirErr))
		case err == nil && !info.Mode().IsRegular():
			tell(true, fmt.Sprintf("cannot write %s: not a regular file", to))
		}
		names[filepath.Clean(to)] = name
	}
	return list
}
