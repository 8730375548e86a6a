package usage

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Core is a processor core by logical numbers, as -binding has them.
type Core struct{ Socket, Core int }

// topology is the number of threads of each core of each socket.
type topology [][]int

// place is where a processor is, by the system's numbers. Those of cores are unique
// only in a die, of which a socket may have several.
type place [3]int // socket, die, core

// readTopology reads the topology of the given processors from
// /sys/devices/system/cpu.
func readTopology(root string, cpus []int) (topology, error) {
	places := make([]place, len(cpus))
	for i, cpu := range cpus {
		for k, name := range [...]string{"physical_package_id", "die_id", "core_id"} {
			file := fmt.Sprintf("%s/cpu%d/topology/%s", root, cpu, name)
			text, err := os.ReadFile(file)
			if err != nil && name == "die_id" {
				continue // die_id exists since Linux 5.2
			}
			if err == nil {
				places[i][k], err = strconv.Atoi(strings.TrimSpace(string(text)))
			}
			if err != nil {
				return nil, fmt.Errorf("cannot read %s: %w", file, err)
			}
		}
	}
	slices.SortFunc(places, func(a, b place) int { return slices.Compare(a[:], b[:]) })
	var t topology
	for i, p := range places {
		if i == 0 || p[0] != places[i-1][0] {
			t = append(t, nil)
		}
		cores := &t[len(t)-1]
		if i == 0 || p != places[i-1] {
			*cores = append(*cores, 0)
		}
		(*cores)[len(*cores)-1]++
	}
	return t, nil
}

// text writes a topology as Grid Engine does: SCTTCTT is a socket with two cores of two
// threads each; a single thread of a core is not written. Cores in use, and their
// threads, are small letters.
func (t topology) text(used []Core) string {
	var b strings.Builder
	for i, cores := range t {
		b.WriteByte('S')
		for k, threads := range cores {
			core := "C"
			if threads > 1 {
				core += strings.Repeat("T", threads)
			}
			if slices.Contains(used, Core{i, k}) {
				core = strings.ToLower(core)
			}
			b.WriteString(core)
		}
	}
	return b.String()
}

// cores returns the number of cores.
func (t topology) cores() int {
	n := 0
	for _, s := range t {
		n += len(s)
	}
	return n
}
