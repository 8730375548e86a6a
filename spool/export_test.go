package spool

import (
	"bytes"
	"strconv"
)

// Exited reports whether the process exited by itself.
func (w WaitStatus) Exited() bool { return w&waitExited != 0 }

// ExitStatus returns the exit code of a process that exited.
func (w WaitStatus) ExitStatus() int { return int(w >> 4 & 0xff) }

// String returns the limit in a form that ParseLimit parses.
func (l Limit) String() string {
	switch l {
	case Infinity:
		return "INFINITY"
	case Undefined:
		return "UNDEFINED"
	}
	return strconv.FormatUint(uint64(l), 10)
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
