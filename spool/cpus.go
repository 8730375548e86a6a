package spool

import (
	"errors"
	"strconv"
	"strings"
)

// MaxCPUs is more processors than any Linux is built for.
const MaxCPUs = 8192

// ParseCPU parses the number of a processor, core or socket.
func ParseCPU(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n >= MaxCPUs {
		return 0, errors.New(strconv.Quote(s) + " is not a number below " + strconv.Itoa(MaxCPUs))
	}
	return int(n), nil
}

// ParseCPUs parses a list of processors as the kernel writes it, 0-3,8. The numbers
// are in order, each once.
func ParseCPUs(s string) (cpus []int, err error) {
	var in [MaxCPUs]bool
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := ParseCPU(first)
		if err != nil {
			return nil, err
		}
		to, err := ParseCPU(last)
		if err != nil {
			return nil, err
		}
		if from > to {
			return nil, errors.New(strconv.Quote(part) + " is not a range of processors")
		}
		for cpu := from; cpu <= to; cpu++ {
			in[cpu] = true
		}
	}
	for cpu, ok := range in {
		if ok {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}
