package spool

import (
	"bytes"
	"errors"
	"io"
	"strconv"
)

// Command is the command that was submitted with a job that is a daemon. The
// starter makes it, qrsh-session keeps it, and the program that the daemon starts
// for the client fetches and executes it. None of them is root then.
type Command struct {
	Dir  string
	Argv []string // nil: a login shell, which the daemon starts by itself
	Env  []string
}

// MaxCommand bounds a command with its environment.
const MaxCommand = 16 << 20

var errCommand = errors.New("bad command")

// Append appends the command as it is sent: its length in eight digits of
// hexadecimal, then words, each with a NUL byte at its end: the directory, the
// number of arguments, these and the environment.
func (c *Command) Append(b []byte) []byte {
	head := len(b)
	b = append(b, "00000000"...)
	b = AppendArgs(b, []string{c.Dir, strconv.Itoa(len(c.Argv))})
	b = AppendArgs(AppendArgs(b, c.Argv), c.Env)
	size := strconv.FormatInt(int64(len(b)-head-commandHead), 16)
	copy(b[head+commandHead-len(size):], size)
	return b
}

const commandHead = 8

// ReadCommand reads a command.
func ReadCommand(r io.Reader) (Command, error) {
	var head [commandHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Command{}, err
	}
	size, err := strconv.ParseUint(string(head[:]), 16, 32)
	if err != nil || size > MaxCommand {
		return Command{}, errCommand
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return Command{}, err
	}
	return parseCommand(b)
}

func parseCommand(b []byte) (Command, error) {
	b, whole := bytes.CutSuffix(b, []byte{0})
	words := bytes.Split(b, []byte{0})
	if !whole || len(words) < 2 {
		return Command{}, errCommand
	}
	text := make([]string, len(words))
	for i, w := range words {
		text[i] = string(w)
	}
	n, ok := decimal(text[1], uint64(len(words)-2))
	if !ok {
		return Command{}, errCommand
	}
	c := Command{Dir: text[0], Env: text[2+n:]}
	if n > 0 {
		c.Argv = text[2 : 2+n]
	}
	return c, nil
}
