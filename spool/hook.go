package spool

import (
	"errors"
	"io"
	"strconv"
	"strings"
)

// HookSocket is the descriptor by which execd and the shepherd of a hook
// (shepherd -hook) talk, a stream socket. execd sends the hook's environment and
// then nothing: the end of what it sends, by intention or because it is dead, is
// the end of the hook. The shepherd answers with lines, see HookReport.
const HookSocket = 3

// MaxHookEnvironment bounds the environment of a hook, in bytes.
const MaxHookEnvironment = 4 << 20

var errHookEnvironment = errors.New("bad environment of a hook")

// AppendHookEnvironment appends an environment as it is sent: its length in eight
// digits of hexadecimal, then the variables, each with a NUL byte at its end.
// What CheckVariable refuses is left out.
func AppendHookEnvironment(b []byte, env []string) []byte {
	head := len(b)
	b = append(b, "00000000"...)
	for _, v := range env {
		if CheckVariable(v) == nil {
			b = append(append(b, v...), 0)
		}
	}
	size := strconv.FormatInt(int64(len(b)-head-commandHead), 16)
	copy(b[head+commandHead-len(size):], size)
	return b
}

// ReadHookEnvironment reads an environment and not a byte more.
func ReadHookEnvironment(r io.Reader) ([]string, error) {
	var head [commandHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size, err := strconv.ParseUint(string(head[:]), 16, 32)
	if err != nil || size > MaxHookEnvironment {
		return nil, errHookEnvironment
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	env, err := ParseArgs(b)
	if err != nil {
		return nil, errHookEnvironment
	}
	for _, v := range env {
		if CheckVariable(v) != nil {
			return nil, errHookEnvironment
		}
	}
	return env, nil
}

// HookReport is what the shepherd of a hook has told. The zero value is that of
// one that has told nothing.
type HookReport struct {
	PID     int    // of the hook's first process; 0: there was none
	Failed  string // why the hook could not be started
	Stopped string // why the shepherd has ended the hook, "" if it has not
	Left    []int  // processes that could not be killed
	Ended   bool   // Status is how the first process has ended, and the report is whole
	Status  int    // exit status, or -n for signal n
}

// The words that lines of a report begin with. hookStatus is the last line's: a
// shepherd that dies before it has given no verdict.
const (
	hookStarted = "started"
	hookFailed  = "failed"
	hookStopped = "stopped"
	hookLeft    = "left"
	hookStatus  = "status"
)

// AppendStarted appends the line for PID alone, which is sent as soon as it is
// known.
func (r *HookReport) AppendStarted(b []byte) []byte {
	return appendHookLine(b, hookStarted, strconv.Itoa(r.PID))
}

// Append appends the lines for all but PID.
func (r *HookReport) Append(b []byte) []byte {
	if r.Failed != "" {
		b = appendHookLine(b, hookFailed, r.Failed)
	}
	if r.Stopped != "" {
		b = appendHookLine(b, hookStopped, r.Stopped)
	}
	for _, pid := range r.Left {
		b = appendHookLine(b, hookLeft, strconv.Itoa(pid))
	}
	if r.Ended {
		b = appendHookLine(b, hookStatus, strconv.Itoa(r.Status))
	}
	return b
}

// appendHookLine appends one line; a newline in its text becomes a blank.
func appendHookLine(b []byte, word, text string) []byte {
	b = append(append(b, word...), ' ')
	for i := range len(text) {
		c := text[i]
		if c == '\n' {
			c = ' '
		}
		b = append(b, c)
	}
	return append(b, '\n')
}

// Take adds what a line says, given without its newline.
func (r *HookReport) Take(line string) error {
	word, text, _ := strings.Cut(line, " ")
	n, err := 0, error(nil)
	switch word {
	case hookFailed:
		r.Failed = text
		return nil
	case hookStopped:
		r.Stopped = text
		return nil
	case hookStarted, hookLeft, hookStatus:
		if n, err = strconv.Atoi(text); err != nil || r.Ended || word != hookStatus && n < 1 {
			return cannot("read report of a hook", line, errors.New("bad number"))
		}
	default:
		return cannot("read report of a hook", line, errors.New("unknown word"))
	}
	switch word {
	case hookStarted:
		r.PID = n
	case hookLeft:
		r.Left = append(r.Left, n)
	case hookStatus:
		r.Status, r.Ended = n, true
	}
	return nil
}
