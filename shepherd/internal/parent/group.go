package parent

import (
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
