package queue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"paddock/execd/api"
)

// Core is a core of this host by the number of its socket and its own in that
// socket, both from 0.
type Core struct{ Socket, Core int }

// Cores knows which cores jobs are bound to.
type Cores struct {
	topology string // S for a socket, C for a core, T for a thread, as m_topology

	mu    sync.Mutex
	bound [][]bool // guarded by mu; by socket and core
}

// NewCores returns the cores of a host, none of them bound. Without a topology
// there are none, and no job is bound.
func NewCores(topology string) *Cores {
	c := &Cores{topology: topology}
	for _, letter := range topology {
		switch last := len(c.bound) - 1; {
		case letter == 'S':
			c.bound = append(c.bound, nil)
		case letter == 'C' && last >= 0:
			c.bound[last] = append(c.bound[last], false)
		}
	}
	return c
}

// Bound returns the cores that jobs are bound to.
func (c *Cores) Bound() []Core {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []Core
	for s := range c.bound {
		for n, bound := range c.bound[s] {
			if bound {
				list = append(list, Core{s, n})
			}
		}
	}
	return list
}

// marked returns the topology with small letters for the cores that are given,
// or without any for those in use.
func (c *Cores) marked(cores []Core) string {
	text := []byte(c.topology)
	at := Core{-1, -1}
	small := false
	for i, letter := range text {
		switch letter {
		case 'S':
			at, small = Core{at.Socket + 1, -1}, false
		case 'C':
			at.Core++
			if small = slices.Contains(cores, at); cores == nil {
				small = c.bound[at.Socket][at.Core]
			}
		}
		if small {
			text[i] |= 0x20
		}
	}
	return string(text)
}

// binding is what -binding asks for.
type binding struct {
	instance string // set, env or pe
	strategy string // linear, striding or explicit
	amount   int    // 0: as many as the job has slots
	step     int    // of striding
	start    *Core  // nil: wherever there is room
	list     []Core // of explicit
}

// parseBinding reads the value of -binding (qsub(1)).
func parseBinding(text string) (binding, error) {
	b := binding{instance: "set"}
	bad := func() (binding, error) {
		return b, api.Errorf(api.CodeRejected, "job rejected: %q is no value of -binding", text)
	}
	words := strings.Fields(text)
	if len(words) == 2 && slices.Contains([]string{"set", "env", "pe"}, words[0]) {
		b.instance, words = words[0], words[1:]
	}
	if len(words) != 1 {
		return bad()
	}
	parts := strings.Split(words[0], ":")
	b.strategy, parts = parts[0], parts[1:]
	pair := func(text string) (Core, bool) {
		first, second, ok := strings.Cut(text, ",")
		s, err1 := strconv.Atoi(first)
		n, err2 := strconv.Atoi(second)
		return Core{s, n}, ok && err1 == nil && err2 == nil && s >= 0 && n >= 0
	}
	number := func() bool {
		if len(parts) == 0 {
			return true
		}
		if parts[0] != "slots" {
			n, err := strconv.Atoi(parts[0])
			if err != nil || n < 1 {
				return false
			}
			b.amount = n
		}
		parts = parts[1:]
		return true
	}
	switch b.strategy {
	case "linear":
		if !number() {
			return bad()
		}
	case "striding":
		if len(parts) < 2 || !number() {
			return bad()
		}
		n, err := strconv.Atoi(parts[0])
		if err != nil || n < 1 {
			return bad()
		}
		b.step, parts = n, parts[1:]
	case "explicit":
		for ; len(parts) > 0; parts = parts[1:] {
			core, ok := pair(parts[0])
			if !ok || slices.Contains(b.list, core) {
				return bad()
			}
			b.list = append(b.list, core)
		}
		if len(b.list) == 0 {
			return bad()
		}
		return b, nil
	default:
		return bad()
	}
	switch len(parts) {
	case 0:
	case 1:
		core, ok := pair(parts[0])
		if !ok {
			return bad()
		}
		b.start = &core
	default:
		return bad()
	}
	return b, nil
}

// CheckBinding reports whether a value of -binding makes sense.
func CheckBinding(text string) error {
	_, err := parseBinding(text)
	return err
}

// Take binds a job with a number of slots, and returns the value of binding in
// its config; empty when there is no room: then it runs unbound, as in Grid
// Engine.
func (c *Cores) Take(text string, slots int) string {
	b, err := parseBinding(text)
	if err != nil {
		return ""
	}
	if b.amount == 0 {
		b.amount = slots
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	cores := c.choose(b)
	if len(cores) == 0 {
		return ""
	}
	prefix := ""
	if b.instance == "set" {
		c.mark(cores, true) // the others only tell the job
	} else {
		prefix = b.instance + "_"
	}
	var words []string
	for _, core := range cores {
		words = append(words, fmt.Sprintf("%d,%d", core.Socket, core.Core))
	}
	return prefix + "explicit:" + strings.Join(words, ":") + ":" + c.marked(cores)
}

// choose returns the cores for a wish, or none. c.mu is held.
func (c *Cores) choose(b binding) []Core {
	free := func(core Core) bool {
		return core.Socket < len(c.bound) && core.Core < len(c.bound[core.Socket]) && !c.bound[core.Socket][core.Core]
	}
	all := func(list []Core) []Core {
		if len(list) == 0 || slices.ContainsFunc(list, func(core Core) bool { return !free(core) }) {
			return nil
		}
		return list
	}
	var row []Core // all cores of the host in their order
	for s := range c.bound {
		for n := range c.bound[s] {
			row = append(row, Core{s, n})
		}
	}
	strided := func(from, step int) []Core {
		var list []Core
		for i := from; i < len(row) && len(list) < b.amount; i += step {
			list = append(list, row[i])
		}
		if len(list) < b.amount {
			return nil
		}
		return all(list)
	}
	starts := make([]int, 0, len(row))
	for i, core := range row {
		if b.start == nil || *b.start == core {
			starts = append(starts, i)
		}
	}
	step := max(b.step, 1)
	switch {
	case b.strategy == "explicit":
		return all(b.list)
	case b.strategy == "linear" && b.start == nil:
		// Neighbours on one socket if that is possible, else whatever is free.
		for _, i := range starts {
			if list := strided(i, 1); list != nil && list[0].Socket == list[len(list)-1].Socket {
				return list
			}
		}
		row = slices.DeleteFunc(row, func(core Core) bool { return !free(core) })
		return strided(0, 1)
	}
	for _, i := range starts {
		if list := strided(i, step); list != nil {
			return list
		}
	}
	return nil
}

func (c *Cores) mark(cores []Core, bound bool) {
	for _, core := range cores {
		if core.Socket < len(c.bound) && core.Core < len(c.bound[core.Socket]) {
			c.bound[core.Socket][core.Core] = bound
		}
	}
}

// Use tells which cores a job has that runs, by the value of binding in its
// config.
func (c *Cores) Use(value string) { c.set(value, true) }

// Give tells the same of one that has ended.
func (c *Cores) Give(value string) { c.set(value, false) }

func (c *Cores) set(value string, bound bool) {
	list, ok := strings.CutPrefix(value, "explicit:")
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for word := range strings.SplitSeq(list, ":") {
		var core Core
		if n, err := fmt.Sscanf(word, "%d,%d", &core.Socket, &core.Core); n == 2 && err == nil {
			c.mark([]Core{core}, bound)
		}
	}
}
