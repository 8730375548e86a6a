package parent

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/phase"
	"paddock/shepherd/internal/reap"
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
	p.useGroup(path, v1)
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

// useGroups opens the control groups that config names. Without them the run
// goes on as on a host that has none.
func (p *parent) useGroups(c *spool.Config) {
	if path, ok := c.Lookup(spool.KeyCgroup); ok {
		p.useGroup(path, false)
	} else if path, ok := c.Lookup(spool.KeyCgroupFreezer); ok {
		p.useGroup(path, true)
	}
	path, ok := c.Lookup(spool.KeyCgroupMemory)
	if !ok || p.group.job == nil {
		return
	}
	var err error
	if p.loop.Memory, err = p.group.job.WatchMemory(path); err != nil {
		p.log.Line(err.Error())
	}
}

// useGroup opens one that holds the run.
func (p *parent) useGroup(path string, v1 bool) {
	if path == p.group.path {
		return
	}
	p.group = group{path: path}
	job, err := control.OpenGroup(path, v1)
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
	if in = p.fd(where); in < 0 {
		stage, err = starter.Launch(p.inherited, -1, false)
		return stage, in, err
	}
	if !p.group.job.V1 {
		stage, err = starter.Launch(p.inherited, in, true)
	} else if stage, err = starter.Launch(p.inherited, -1, true); err == nil {
		if err = control.Take(in, stage.PID); err != nil {
			stage.Dismiss()
		}
	}
	if err == nil {
		return stage, in, nil
	}
	p.log.Line("cannot start in the control group, going on without: " + err.Error())
	p.group.failed[where] = true
	stage, err = starter.Launch(p.inherited, -1, false)
	return stage, -1, err
}

// launch starts a starter stage, unless one is waiting already in that place.
func (p *parent) launch(where leaf) (err error) {
	p.endAhead()
	if p.stage != nil && p.stageIn != p.fd(where) {
		p.dismiss()
	}
	if p.stage == nil {
		p.stage, p.stageIn, err = p.begin(where)
	}
	return err
}

// launchAhead starts the stage of a job that is to come later. If it cannot, or
// the stage dies meanwhile, it is started when its time comes.
func (p *parent) launchAhead() {
	if p.launch(jobLeaf) == nil {
		p.ahead = &reap.Child{PID: p.stage.PID, FD: p.stage.PIDFD}
		p.watchBeside()
	}
}

// endAhead ends the watch over a stage that was started ahead.
func (p *parent) endAhead() {
	if p.ahead == nil {
		return
	}
	if p.ahead.Ended {
		p.stage.Close()
		p.stage = nil
	}
	p.ahead = nil
	p.watchBeside()
}

// takeStage starts a stage for what runs beside the job, or gives it the one that
// waits in that place.
func (p *parent) takeStage(where leaf) (*starter.Stage, error) {
	err := p.launch(where)
	stage := p.stage
	p.stage = nil
	return stage, err
}

// memoryRanOut is called when the kernel says that the memory of a group of
// version 1 has run out. It does so before it kills a process of the job, which
// may take a moment and, if there is memory again, never comes. The rest of the
// job is ours to kill: half of it is worth nothing, and would have no reason to
// end.
func (p *parent) memoryRanOut() {
	p.memoryChecks = memoryChecks
	p.checkMemory()
}

func (p *parent) checkMemory() {
	killed, _ := p.group.job.Killed() // takes the event, too
	switch {
	case p.state != phase.Running || p.starved:
	case killed > 0:
		p.starved = true
		p.log.Line("the job is out of memory")
		p.job.Signal(unix.SIGKILL)
	case p.memoryChecks > 0:
		p.memoryChecks--
		p.timers.after(timerMemory, memoryEvery)
	}
}

// How long a process is waited for that the kernel is to kill.
const (
	memoryEvery  = 10 * time.Millisecond
	memoryChecks = 100
)

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
