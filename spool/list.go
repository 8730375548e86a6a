package spool

import (
	"bytes"
	"strconv"
)

// ParseArgs parses args: arguments, each ended by a NUL byte.
func ParseArgs(b []byte) ([]string, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[len(b)-1] != 0 {
		return nil, syntax(FileArgs, 0, "the last argument does not end")
	}
	args := make([]string, 0, bytes.Count(b, []byte{0}))
	for len(b) > 0 {
		i := bytes.IndexByte(b, 0)
		args = append(args, string(b[:i]))
		b = b[i+1:]
	}
	return args, nil
}

// AppendArgs appends the content of args. An argument ends at its first NUL
// byte, as it would in execve.
func AppendArgs(b []byte, args []string) []byte {
	for _, arg := range args {
		for i := 0; i < len(arg) && arg[i] != 0; i++ {
			b = append(b, arg[i])
		}
		b = append(b, 0)
	}
	return b
}

// A PEHost is a line of pe_hostfile: what a job was granted in one queue
// instance.
type PEHost struct {
	Host       string
	Slots      int
	Instance   string // queue@host
	Processors string // UNDEFINED if empty
}

// AppendPEHosts appends the content of pe_hostfile. A blank or control
// character in a word becomes an underscore, so that nothing adds a word or a
// line.
func AppendPEHosts(b []byte, list []PEHost) []byte {
	for _, h := range list {
		b = appendWord(b, h.Host, "UNKNOWN")
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(h.Slots), 10)
		b = append(b, ' ')
		b = appendWord(b, h.Instance, "UNKNOWN")
		b = append(b, ' ')
		b = appendWord(b, h.Processors, "UNDEFINED")
		b = append(b, '\n')
	}
	return b
}

func appendWord(b []byte, word, empty string) []byte {
	if word == "" {
		return append(b, empty...)
	}
	for i := 0; i < len(word); i++ {
		c := word[i]
		if c <= ' ' || c == 0x7f {
			c = '_'
		}
		b = append(b, c)
	}
	return b
}
