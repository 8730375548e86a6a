package starter

import (
	"cmp"
	"errors"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// sysCPU is where the kernel describes the processors.
const sysCPU = "/sys/devices/system/cpu"

// topology is the processors of each core of each socket, by logical numbers:
// those of the system have gaps, and begin where the firmware likes.
type topology [][][]int

// place is where a processor is, by the system's numbers. Those of cores are
// unique in a die only, of which a socket may have several.
type place struct{ socket, die, core int }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.socket, q.socket), cmp.Compare(p.die, q.die), cmp.Compare(p.core, q.core))
}

// readTopology reads the topology of the processors that are on.
func readTopology(root string) (topology, error) {
	text, err := readSmall(root + "/online")
	if err != nil {
		return nil, errors.New("cannot read " + root + "/online: " + errnoText(err))
	}
	online, err := spool.ParseCPUs(text)
	if err != nil {
		return nil, errors.New("cannot read " + root + "/online: " + err.Error())
	}
	at := make(map[place][]int)
	var places []place
	for _, cpu := range online {
		p, err := readPlace(root + "/cpu" + strconv.Itoa(cpu) + "/topology/")
		if err != nil {
			return nil, err
		}
		if at[p] == nil {
			places = append(places, p)
		}
		at[p] = append(at[p], cpu)
	}
	slices.SortFunc(places, place.compare)
	var t topology
	for i, p := range places {
		if i == 0 || p.socket != places[i-1].socket {
			t = append(t, nil)
		}
		t[len(t)-1] = append(t[len(t)-1], at[p])
	}
	return t, nil
}

// readPlace reads where a processor is from its directory.
func readPlace(dir string) (place, error) {
	var p place
	for _, f := range []struct {
		name     string
		number   *int
		optional bool // since Linux 5.2
	}{{"physical_package_id", &p.socket, false}, {"die_id", &p.die, true}, {"core_id", &p.core, false}} {
		text, err := readSmall(dir + f.name)
		if errors.Is(err, unix.ENOENT) && f.optional {
			continue
		}
		if err == nil {
			*f.number, err = strconv.Atoi(text)
		}
		if err != nil {
			return place{}, errors.New("cannot read " + dir + f.name + ": " + errnoText(err))
		}
	}
	return p, nil
}

// processors returns all processors of the given cores.
func (t topology) processors(list []core) ([]int, error) {
	var cpus []int
	for _, c := range list {
		if c.socket >= len(t) || c.core >= len(t[c.socket]) {
			return nil, errors.New("this host has no socket,core " + strconv.Itoa(c.socket) + "," + strconv.Itoa(c.core))
		}
		cpus = append(cpus, t[c.socket][c.core]...)
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}
