package spool

import (
	"bytes"
	"errors"
	"strings"
)

// StandbyOption has a shepherd be on standby: it was started before there was a job for it,
// so that the next job does not wait for its start. It has StandbyArgs, and a socket of the
// kind SOCK_SEQPACKET as descriptor 3. The one message that it reads there is an Assignment,
// which comes with the lock of the directory, and it closes the socket when the run has
// settled: another start would take processors from its own before that. It ends when execd
// closes the socket, or when it gets a signal, before there is an Assignment.
const StandbyOption = "-standby"

// StandbyArgs returns the arguments of a shepherd on standby, the first its name. The last is
// room in the list of processes for the name that comes with the job.
func StandbyArgs() []string { return []string{"shepherd", StandbyOption, strings.Repeat(" ", 96)} }

// MaxAssignment is the most that an Assignment may have, in bytes.
const MaxAssignment = 8 << 10

// Assignment gives a shepherd on standby a job.
type Assignment struct {
	Name string // what the shepherd is called in the list of processes
	Dir  string // of the job
}

var errAssignment = errors.New("bad assignment")

// Append appends it to b as it is sent.
func (a *Assignment) Append(b []byte) []byte {
	b = append(b, a.Name...)
	b = append(b, 0)
	return append(b, a.Dir...)
}

// ParseAssignment parses what Append has written.
func ParseAssignment(b []byte) (a Assignment, err error) {
	name, dir, ok := bytes.Cut(b, []byte{0})
	if !ok || len(dir) == 0 || dir[0] != '/' || bytes.IndexByte(dir, 0) >= 0 {
		return a, errAssignment
	}
	return Assignment{Name: string(name), Dir: string(dir)}, nil
}
