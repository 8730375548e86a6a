package parent

import (
	"bytes"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/trace"
	"paddock/spool"
)

// leaf is one of the two below the run's control group.
type leaf uint8

const (
	jobLeaf leaf = iota
	procedureLeaf
	leafCount
)

// group is the control group of the run, if it has one.
type group struct {
	log    *trace.Log
	path   string // as config says
	job    *control.Group
	leaves [leafCount]int  // descriptors, where they are open
	open   [leafCount]bool // whether they are
	failed [leafCount]bool // it was tried in vain
}

// peek looks at the head of config for a control group: the first starter is
// started before the file is read as a whole, and it is to be born in the right
// place. What is missed here costs but another starter. It returns the leaf that
// the first part will most likely want.
func (g *group) peek() leaf {
	fd, err := unix.Open(spool.FileConfig, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return jobLeaf
	}
	defer unix.Close(fd)
	b := make([]byte, 1<<10)
	n, _ := unix.Read(fd, b)
	b = b[:max(n, 0)]
	// Ours stand first: what does not begin with one has none.
	if !bytes.HasPrefix(b, []byte(spool.KeyFormat)) {
		return jobLeaf
	}
	path, whole := value(b, spool.KeyCgroup)
	v1 := path == ""
	if v1 {
		path, whole = value(b, spool.KeyCgroupFreezer)
	}
	if !whole {
		return jobLeaf
	}
	g.use(path, v1)
	if bytes.Contains(b, []byte("\n"+spool.KeySession+"=")) {
		return procedureLeaf
	}
	more := make([]byte, 8<<10)
	n, _ = unix.Read(fd, more)
	b = append(b, more[:max(n, 0)]...)
	for _, none := range []string{"\n" + spool.KeyProlog + "=none\n", "\n" + spool.KeyPE + "=none\n"} {
		if !bytes.Contains(b, []byte(none)) {
			return procedureLeaf
		}
	}
	return jobLeaf
}

// value returns what the head of config says of a key, and whether the line is
// there and whole.
func value(head []byte, key string) (string, bool) {
	_, rest, _ := bytes.Cut(head, []byte("\n"+key+"="))
	line, _, whole := bytes.Cut(rest, []byte{'\n'})
	return string(line), whole
}

// useAll opens the control groups that config names. Without them the run goes on as
// on a host that has none. It returns a descriptor that can be read when the memory of
// the job has run out, -1 if there is none.
func (g *group) useAll(c *spool.Config) (memory int) {
	if path, ok := c.Lookup(spool.KeyCgroup); ok {
		g.use(path, false)
	} else if path, ok := c.Lookup(spool.KeyCgroupFreezer); ok {
		g.use(path, true)
	}
	path, ok := c.Lookup(spool.KeyCgroupMemory)
	if !ok || g.job == nil {
		return -1
	}
	memory, err := g.job.WatchMemory(path)
	if err != nil {
		g.log.Line(err.Error())
	}
	return memory
}

// use opens the group that holds the run.
func (g *group) use(path string, v1 bool) {
	if path == g.path {
		return
	}
	*g = group{log: g.log, path: path}
	job, err := control.OpenGroup(path, v1)
	if err != nil {
		g.log.Line(err.Error())
		return
	}
	g.job = job
	g.leaves[jobLeaf], g.open[jobLeaf] = job.FD, true
}

// fd returns the descriptor of a leaf, -1 if there is none to be used.
func (g *group) fd(where leaf) int {
	if g.job == nil || g.failed[where] {
		return -1
	}
	if !g.open[where] {
		fd, err := g.job.Procedures()
		if err != nil {
			g.log.Line(err.Error())
			g.failed[where] = true
			return -1
		}
		g.leaves[where], g.open[where] = fd, true
	}
	return g.leaves[where]
}

// empty kills what is left of the run, that of procedures included: after the
// last of them nobody has a use for it.
func (g *group) empty() error {
	if g.job == nil {
		return nil
	}
	return g.job.KillAll()
}
