package spool_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"paddock/spool"
)

func TestParseCPUs(t *testing.T) {
	for v, want := range map[string][]int{"0": {0}, "0-3,8": {0, 1, 2, 3, 8}, "3,1,1": {1, 3}, "8191": {8191}, "2-2": {2}} {
		if got, err := spool.ParseCPUs(v); err != nil || !slices.Equal(got, want) {
			t.Errorf("ParseCPUs(%q) = %v, %v; want %v", v, got, err, want)
		}
	}
	for _, v := range []string{"", ",", "1,", "0,,1", "3-1", "0-", "-1", "0-8192", "0-99999999", "0x1", "1 2", "0-1-2", "all"} {
		if got, err := spool.ParseCPUs(v); err == nil {
			t.Errorf("ParseCPUs(%q) = %v; want an error", v, got)
		}
	}
}

// FuzzParseCPUs sees that the numbers are in order, each once, and that they are
// read back from a list of them.
func FuzzParseCPUs(f *testing.F) {
	for _, v := range []string{"0", "0-3,8", "1,2", "3,1-2,1", "8191", "0-8191,0-8191", "-", "1-", "007"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		cpus, err := spool.ParseCPUs(v)
		if err != nil {
			return
		}
		words := make([]string, len(cpus))
		for i, cpu := range cpus {
			words[i] = strconv.Itoa(cpu)
		}
		again, err := spool.ParseCPUs(strings.Join(words, ","))
		if err != nil || !slices.Equal(cpus, again) || !slices.IsSorted(cpus) || len(slices.Compact(cpus)) != len(again) || len(cpus) == 0 {
			t.Errorf("ParseCPUs(%q) = %v, and again %v, %v", v, cpus, again, err)
		}
	})
}
