package spool

import (
	"errors"
	"io"
	"strconv"
	"strings"
)

// HookSocket is the descriptor of a stream socket by which execd hands hooks to a
// shepherd that is the parent of hooks (shepherd -hook). A call is one byte with
// HookFiles descriptors: the hook's standard streams, and a stream socket for this
// call alone. By that one execd sends a HookCall, and the shepherd answers with lines
// (see HookReport). The hook is ended when execd closes it, or dies. The shepherd runs
// one hook after another, and ends when execd has closed HookSocket, or is dead.
const (
	HookSocket = 3
	HookFiles  = 4
)

// HookCall is a hook that is to be run.
type HookCall struct {
	Processes int      // the hook may have as many at once, itself included; 0: it has no bound
	Dir       string   // where it works
	Argv      []string // the program's path and its arguments
	Env       []string // all of its environment
}

// MaxHookCall bounds a call, in bytes.
const MaxHookCall = 4 << 20

var errHookCall = errors.New("bad call of a hook")

// Append appends a call as it is sent: its length in eight digits of hexadecimal,
// then words, each with a NUL byte at its end: the number of processes, the
// directory, how many arguments there are, these, and the environment. Variables
// that CheckVariable refuses are left out.
func (c *HookCall) Append(b []byte) []byte {
	head := len(b)
	b = append(b, "00000000"...)
	b = AppendArgs(b, []string{strconv.Itoa(c.Processes), c.Dir, strconv.Itoa(len(c.Argv))})
	b = AppendArgs(b, c.Argv)
	for _, v := range c.Env {
		if CheckVariable(v) == nil {
			b = append(append(b, v...), 0)
		}
	}
	size := strconv.FormatInt(int64(len(b)-head-commandHead), 16)
	copy(b[head+commandHead-len(size):], size)
	return b
}

// ReadHookCall reads a call and not a byte more.
func ReadHookCall(r io.Reader) (*HookCall, error) {
	var head [commandHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size, err := strconv.ParseUint(string(head[:]), 16, 32)
	if err != nil || size > MaxHookCall {
		return nil, errHookCall
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	words, err := ParseArgs(b)
	if err != nil || len(words) < 3 {
		return nil, errHookCall
	}
	processes, err := strconv.Atoi(words[0])
	if err != nil || processes < 0 {
		return nil, errHookCall
	}
	n, ok := decimal(words[2], uint64(len(words)-3))
	if !ok || n < 1 || words[3] == "" {
		return nil, errHookCall
	}
	c := &HookCall{Processes: processes, Dir: words[1], Argv: words[3 : 3+n], Env: words[3+n:]}
	for _, v := range c.Env {
		if CheckVariable(v) != nil {
			return nil, errHookCall
		}
	}
	return c, nil
}

// HookReport is what the shepherd of a hook has told. The zero value says that it
// has told nothing.
type HookReport struct {
	Taken   bool   // the shepherd has the call: from here on the hook may have run
	PID     int    // of the hook's first process; 0: there was none
	Failed  string // why the hook could not be started
	Stopped string // why the shepherd has ended the hook, "" if it has not
	Left    []int  // processes that could not be killed
	Waits   bool   // the hook has ended as it should, and the shepherd waits for another
	Ended   bool   // Status is how the first process has ended, and the report is whole
	Status  int    // exit status, or -n for signal n
}

// The words that lines of a report begin with. hookStatus is the last line's: a
// shepherd that dies before it has given no verdict.
const (
	hookTaken   = "taken"
	hookStarted = "started"
	hookFailed  = "failed"
	hookStopped = "stopped"
	hookLeft    = "left"
	hookWaits   = "waits"
	hookStatus  = "status"
)

// AppendTaken appends the line for Taken alone, which is sent before anything is
// started.
func (r *HookReport) AppendTaken(b []byte) []byte { return append(b, hookTaken+"\n"...) }

// AppendStarted appends the line for PID alone, which is sent as soon as it is
// known.
func (r *HookReport) AppendStarted(b []byte) []byte {
	return appendHookLine(b, hookStarted, strconv.Itoa(r.PID))
}

// Append appends the lines for all but Taken and PID.
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
	if r.Waits {
		b = append(b, hookWaits+"\n"...)
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
	case hookTaken, hookWaits:
		if line != word || r.Ended {
			return cannot("read report of a hook", line, errors.New("more than a word"))
		}
		r.Taken = r.Taken || word == hookTaken
		r.Waits = r.Waits || word == hookWaits
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
