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

// ParsePEHosts parses pe_hostfile.
func ParsePEHosts(b []byte) ([]PEHost, error) {
	var list []PEHost
	for n := 1; len(b) > 0; n++ {
		line, rest, ok := cutLine(b)
		if !ok {
			return nil, syntax(FilePEHostfile, n, "no newline at the end")
		}
		b = rest
		h, ok := parsePEHost(line)
		if !ok {
			return nil, syntax(FilePEHostfile, n, "want host, slots, queue instance and processors, got "+short(line))
		}
		list = append(list, h)
	}
	return list, nil
}

func parsePEHost(line []byte) (PEHost, bool) {
	var field [4]string
	for i := range field {
		word, rest, more := bytes.Cut(line, []byte{' '})
		if len(word) == 0 || more != (i < 3) {
			return PEHost{}, false
		}
		for _, c := range word {
			if c <= ' ' || c == 0x7f {
				return PEHost{}, false
			}
		}
		field[i], line = string(word), rest
	}
	slots, ok := decimal(field[1], maxID)
	return PEHost{Host: field[0], Slots: int(slots), Instance: field[2], Processors: field[3]}, ok
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
