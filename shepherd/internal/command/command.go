// Package command reads the commands that an administrator configures to run
// around a job or upon it (prolog, epilog, PE procedures, control methods,
// checkpoint commands) and the warning ahead of a signal. It turns the texts of
// config into values, and makes no system calls. Only the shepherd imports it.
package command

import (
	"errors"
	"strconv"
	"strings"

	"paddock/spool"
)

// MaxLength is the length of the longest command in bytes, variables replaced.
const MaxLength = 10000

// Scope is the kind of a command, which decides the variables it may have.
type Scope uint8

// The scopes.
const (
	ForProcedure  Scope = iota // prolog, epilog
	ForPE                      // pe_start, pe_stop
	ForControl                 // suspend_method, resume_method, terminate_method
	ForCheckpoint              // ckpt_command, ckpt_migr_command, ckpt_rest_command, ckpt_clean_command
)

// shell reports whether commands of the scope are given to a shell.
func (s Scope) shell() bool { return s == ForControl || s == ForCheckpoint }

// varJobPID is the variable that is no key of config.
const varJobPID = "job_pid"

// known reports whether a command of a scope may have a variable.
func known(name string, scope Scope) bool {
	switch name {
	case spool.KeyHost, spool.KeyTaskID, spool.KeyJobOwner, spool.KeyJobID, spool.KeyJobName, spool.KeyQueue,
		spool.KeySGERoot, spool.KeySGECell:
		return true
	case spool.KeyProcessors, spool.KeyStdinPath, spool.KeyStdoutPath, spool.KeyStderrPath, spool.KeyMergeStderr,
		spool.KeyFSStdinHost, spool.KeyFSStdinPath, spool.KeyFSStdinTmpPath, spool.KeyFSStdinStaging,
		spool.KeyFSStdoutHost, spool.KeyFSStdoutPath, spool.KeyFSStdoutTmpPath, spool.KeyFSStdoutStaging,
		spool.KeyFSStderrHost, spool.KeyFSStderrPath, spool.KeyFSStderrTmpPath, spool.KeyFSStderrStaging:
		return scope == ForProcedure || scope == ForPE
	case spool.KeyPEHostfile, spool.KeyPE, spool.KeyPESlots:
		return scope == ForPE
	case varJobPID:
		return scope == ForControl || scope == ForCheckpoint
	case spool.KeyCkptDir, spool.KeyCkptSignal:
		return scope == ForCheckpoint
	}
	return false
}

// Expand replaces the variables of a command's text. The process of the job is not in
// config; "" says that it is not known. Errors name the variable; the caller names the
// command.
//
// The values cannot change what a text for a shell means. A value that is empty,
// or has more than letters, digits and _-+=./:,@%, is quoted so that the shell
// takes it as it is, also within the quotes of the text. Such a value is an error
// within backquotes, and behind backquotes whose inside shells read differently.
// A command that has the shell read its words again, as eval does, is not
// protected.
func Expand(text string, scope Scope, c *spool.Config, jobPID string) (string, error) {
	if !plain(text) {
		return "", errors.New("it has a newline or NUL byte")
	}
	var (
		out []byte
		q   quoting
	)
	for {
		before, behind, more := strings.Cut(text, "$")
		out = append(out, before...)
		q.read(before)
		if more {
			var name string
			name, text = cutName(behind)
			if name == "" {
				return "", errors.New(`a "$" without the name of a variable behind it, but ` + short(text))
			}
			if !known(name, scope) {
				return "", errors.New("unknown variable " + strconv.Quote(name))
			}
			v, err := value(name, c, jobPID)
			if err != nil {
				return "", err
			}
			if !scope.shell() {
				out = append(out, v...)
			} else if out, err = q.append(out, v); err != nil {
				return "", cannotReplace(name, err.Error())
			}
		}
		if len(out) > MaxLength {
			return "", errors.New("it is longer than " + strconv.Itoa(MaxLength) + " bytes with its variables replaced")
		}
		if !more {
			return string(out), nil
		}
	}
}

func cannotReplace(name, why string) error { return errors.New("cannot replace $" + name + ": " + why) }

// cutName splits off the name that a text begins with.
func cutName(s string) (name, rest string) {
	i := 0
	for i < len(s) && (letterOrDigit(s[i]) || s[i] == '_') {
		i++
	}
	return s[:i], s[i:]
}

func letterOrDigit(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// plain reports whether a text can be an argument on one line. No value of
// config is otherwise.
func plain(s string) bool { return !strings.ContainsAny(s, "\x00\n") }

// value returns the value of a known variable.
func value(name string, c *spool.Config, jobPID string) (v string, err error) {
	switch name {
	case varJobPID:
		v = jobPID
	case spool.KeySGERoot, spool.KeySGECell:
		v = trusted(name, c)
	default:
		return streamOr(name, c)
	}
	if v == "" { // unlike others these name something that must be there
		return "", cannotReplace(name, "it has no value")
	}
	return v, nil
}

// Staged returns where a stream's file is while prolog and epilog carry it
// between hosts: in the job's TMPDIR, by its own name.
func Staged(tmpdir, path string) string {
	return tmpdir + "/" + path[strings.LastIndexByte(path, '/')+1:]
}

// unstaged is what Grid Engine's shepherd gives for fs_ variables of a stream
// that is not staged.
const unstaged = `""`

// streamOr returns the value of a variable: that of its key in config, or, if it
// is one of a stream, what it is for a stream that is staged or is not.
func streamOr(name string, c *spool.Config) (string, error) {
	key, fs := strings.CutPrefix(name, "fs_")
	which, what, ok := strings.Cut(key, "_")
	path := which + "_path"
	if !ok || what == "file_staging" || path != spool.KeyStdinPath && path != spool.KeyStdoutPath && path != spool.KeyStderrPath {
		return c.String(name)
	}
	staged, _ := c.Lookup("fs_" + which + "_file_staging")
	merged, _ := c.Lookup(spool.KeyMergeStderr)
	if staged != "1" || path == spool.KeyStderrPath && merged == "1" {
		if fs {
			return unstaged, nil
		}
		return c.String(name)
	}
	switch {
	case fs && what == "host", !fs && path == spool.KeyStdinPath:
		return c.String(name)
	case fs && what == "path":
		return c.String(path)
	}
	tmpdir, err1 := c.String(spool.KeyTmpdir)
	at, err2 := c.String(path)
	if err1 != nil {
		return "", err1
	}
	return Staged(tmpdir, at), err2
}

// trusted returns the value of a key that only some execds write; "" if there is none,
// or the job could have written it. Under Grid Engine an argument of the job with a newline
// makes lines of config, but they stand behind those that a newer execd begins
// config with. The path of a procedure that runs as root may depend on the value.
func trusted(key string, c *spool.Config) string {
	v, ok := c.Lookup(key)
	if !ok {
		return ""
	}
	if _, own := c.Lookup(spool.KeyFormat); own {
		return v // our execd writes no newline
	}
	for _, e := range c.Entries() {
		switch e.Key {
		case key:
			return v
		case spool.KeySGERoot, spool.KeySGECell:
		default:
			return ""
		}
	}
	return ""
}

// IsNone reports whether a value means that nothing is set.
func IsNone(v string) bool { return v == "" || strings.EqualFold(v, "none") }

// short quotes a text for a message, cut to a readable length.
func short(s string) string {
	if len(s) > 60 {
		return strconv.Quote(s[:60]) + "..."
	}
	return strconv.Quote(s)
}
