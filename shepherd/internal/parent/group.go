package parent

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/starter"
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
	path   string // as config says
	job    *control.Group
	leaves [leafCount]int  // descriptors, where they are open
	open   [leafCount]bool // whether they are
	failed [leafCount]bool // it was tried in vain
}

// peek looks at the head of config for a control group: the first stage is
// started before the file is read as a whole, and it is to be born in the right
// place. What is missed here costs but another stage. It returns the leaf that
// the first part will most likely want.
func (p *parent) peek() leaf {
	fd, err := unix.Open(spool.FileConfig, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return jobLeaf
	}
	defer unix.Close(fd)
	b := make([]byte, 1<<10)
	n, _ := unix.Read(fd, b)
	b = b[:max(n, 0)]
	const key = "\n" + spool.KeyCgroup + "="
	i := bytes.Index(b, []byte(key))
	// Ours stand first: what does not begin with one has none.
	if i < 0 || !bytes.HasPrefix(b, []byte(spool.KeyFormat)) {
		return jobLeaf
	}
	path, _, whole := bytes.Cut(b[i+len(key):], []byte{'\n'})
	if !whole {
		return jobLeaf
	}
	p.useGroup(string(path))
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

// useGroup opens the control group that config names. Without it the run goes
// on as on a host that has none.
func (p *parent) useGroup(path string) {
	if path == p.group.path {
		return
	}
	p.group = group{path: path}
	job, err := control.OpenGroup(path)
	if err != nil {
		p.log.Line(err.Error())
		return
	}
	p.group.job = job
	p.group.leaves[jobLeaf], p.group.open[jobLeaf] = job.FD, true
}

// fd returns the descriptor of a leaf, -1 if there is none to be used.
func (p *parent) fd(where leaf) int {
	g := &p.group
	if g.job == nil || g.failed[where] {
		return -1
	}
	if !g.open[where] {
		fd, err := g.job.Procedures()
		if err != nil {
			p.log.Line(err.Error())
			g.failed[where] = true
			return -1
		}
		g.leaves[where], g.open[where] = fd, true
	}
	return g.leaves[where]
}

// begin starts a stage in a leaf or, where that cannot be, outside of it; in
// says where it is, -1 for outside.
func (p *parent) begin(where leaf) (stage *starter.Stage, in int, err error) {
	in = p.fd(where)
	stage, err = starter.Launch(p.inherited, in)
	if err != nil && in >= 0 {
		p.log.Line("cannot start in the control group, going on without: " + err.Error())
		p.group.failed[where] = true
		in = -1
		stage, err = starter.Launch(p.inherited, in)
	}
	return stage, in, err
}

// launch starts a starter stage, unless one is waiting already in that place.
func (p *parent) launch(where leaf) (err error) {
	if p.stage != nil && p.stageIn != p.fd(where) {
		p.dismiss()
	}
	if p.stage == nil {
		p.stage, p.stageIn, err = p.begin(where)
	}
	return err
}

// outOfMemory returns why the kernel ended the job if it did so for want of
// memory.
func (p *parent) outOfMemory(c *spool.Config) string {
	if p.job.Leaf == nil {
		return ""
	}
	killed, limit := p.job.Leaf.Killed()
	if killed == 0 {
		return ""
	}
	text := "job was killed: the host is out of memory"
	if limit > 0 {
		v, _ := c.Lookup(spool.KeyHVmem)
		text = "job was killed: out of memory, limit " + spool.KeyHVmem + " " + v
	}
	if peak := p.job.Leaf.Peak(); peak > 0 {
		text += " (peak " + size(peak) + ")"
	}
	return text
}

// size writes a number of bytes with one decimal and the letter that limits
// have.
func size(n uint64) string {
	const units = "KMGT"
	i, tenths := -1, n*10
	for tenths >= 10240 && i < len(units)-1 {
		tenths = (tenths + 512) / 1024
		i++
	}
	if i < 0 {
		return strconv.FormatUint(n, 10)
	}
	return strconv.FormatUint(tenths/10, 10) + "." + strconv.FormatUint(tenths%10, 10) + units[i:i+1]
}

// empty kills what is left of the run, that of procedures included: after the
// last of them nobody has a use for it.
func (g *group) empty() error {
	if g.job == nil {
		return nil
	}
	return g.job.KillAll()
}
