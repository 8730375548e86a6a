package main

import (
	"fmt"
	"os"
)

// stolen returns how much processor time the hypervisor gave to others since this machine
// started, and how much there was, in ticks: the line of all processors in proc_stat(5).
func stolen() (steal, all float64, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	var user, nice, system, idle, iowait, irq, softirq float64
	_, err = fmt.Sscanf(string(text), "cpu %f %f %f %f %f %f %f %f", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal)
	if err != nil {
		return 0, 0, fmt.Errorf("cannot read /proc/stat: %w", err)
	}
	return steal, user + nice + system + idle + iowait + irq + softirq + steal, nil
}

// noticeable is the share of the processors from which it is told that they were not ours: less
// is in every run on a virtual machine.
const noticeable = 0.05

// tellSteal runs what measures, and tells if the hypervisor took a noticeable part of the processors
// away meanwhile: what has missed its target then may meet it on a quiet machine.
func tellSteal(name string, measure func() error) error {
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
