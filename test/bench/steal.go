package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Fields of the line of all processors in /proc/stat, see proc_stat(5).
const (
	cpuSteal = 8 // that the hypervisor gave to others
	cpuAll   = 9 // with it; what follows is of guests, which is part of user time
)

// stolen returns how much processor time the hypervisor gave to others since this machine
// started, and how much there was.
func stolen() (steal, all float64, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < cpuAll || fields[0] != "cpu" {
		return 0, 0, fmt.Errorf("cannot read /proc/stat: %q", line)
	}
	for i, f := range fields[1:cpuAll] {
		ticks, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("cannot read /proc/stat: %w", err)
		}
		if all += ticks; i+1 == cpuSteal {
			steal = ticks
		}
	}
	return steal, all, nil
}

// noticeable is the share of the processors from which it is told that they were not ours: less
// is in every run on a virtual machine.
const noticeable = 0.05

// quiet runs what measures, and tells if the hypervisor took a noticeable part of the processors
// away meanwhile: what has missed its target then may meet it on a quiet machine.
func quiet(name string, measure func() error) error {
	before, since, err := stolen()
	if err != nil {
		return err
	}
	if err := measure(); err != nil {
		return err
	}
	after, until, err := stolen()
	if err != nil {
		return err
	}
	if share := (after - before) / max(until-since, 1); share >= noticeable {
		fmt.Printf("  %s: the hypervisor took %.0f %% of the processors away\n", name, 100*share)
	}
	return nil
}
