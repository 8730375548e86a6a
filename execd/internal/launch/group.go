package launch

import (
	"fmt"

	"paddock/execd/internal/cgroup"
	"paddock/spool"
)

// makeGroup makes the control groups of a run and says so in its config, which
// has its limits. A host that cannot make them runs the job without, under the
// limits that processes have; a foreign shepherd would know nothing of them.
func (l *Launcher) makeGroup(o *Order, c *spool.Config) error {
	if l.Groups == nil || l.Foreign() {
		return nil
	}
	id := o.Task.RunID().ID()
	limits := cgroup.Limits{Memory: groupLimit(c, spool.KeyHVmem, leastMemory), Procs: groupLimit(c, spool.KeyHMaxproc, leastProcs)}
	slots, _ := c.Int(spool.KeyHostSlots)
	if o.Global.CPUQuota {
		limits.CPUs = slots
	}
	if o.Global.CPUWeight {
		limits.Weight = slots
	}
	limits.Devices = l.nodes(o)
	group, err := l.Groups.Make(id.String(), limits)
	if err != nil && len(limits.Devices) > 0 {
		return err // others' devices would be its own
	}
	if err != nil {
		l.Log.Warn(fmt.Sprintf("job %v: %v", id, err))
		return nil
	}
	o.group = group
	if err := group.Record(c); err != nil {
		return err
	}
	if len(limits.Devices) > 0 {
		if err := c.SetInt(spool.KeyDevices, 1); err != nil {
			return err
		}
	}
	if limits.Memory > 0 && l.Groups.Has("memory") {
		return c.Set(spool.KeyVmem, spool.VmemGroup)
	}
	return nil
}

// With less no program starts: the least that the shepherd sets of these limits.
const (
	leastMemory = 10 << 20
	leastProcs  = 20
)

// groupLimit returns a limit times the slots, 0 for none.
func groupLimit(c *spool.Config, key string, least uint64) uint64 {
	text, _ := c.Lookup(key)
	limit, err := spool.ParseLimit(text)
	if err != nil || limit >= spool.Undefined {
		return 0
	}
	slots, err := c.Int(spool.KeyHostSlots)
	if whole, _ := c.Lookup(key + spool.KeyConsumableJob); err != nil || slots < 1 || whole == "1" {
		slots = 1
	}
	if uint64(limit) > uint64(spool.Undefined)/uint64(slots) {
		return 0
	}
	return max(uint64(limit)*uint64(slots), least)
}

// killGroup kills what is left in a run's control groups.
func (l *Launcher) killGroup(d spool.Dir) {
	if config, err := d.Config(); err == nil {
		if err := l.Groups.Kill(cgroup.Of(config)); err != nil {
			l.Log.Warn(err.Error())
		}
	}
}

// removeGroup removes the control groups that a run's config names.
func (l *Launcher) removeGroup(config *spool.Config) {
	if err := l.Groups.Remove(cgroup.Of(config)); err != nil {
		l.Log.Warn(err.Error())
	}
}

// SweepGroups removes the control groups of runs that have no directory. Call
// it before anything is started.
func (l *Launcher) SweepGroups() error {
	if l.Groups == nil {
		return nil
	}
	active, err := l.Root.ListActive()
	if err != nil {
		return err
	}
	finished, err := l.Root.ListFinished() // those are removed with the directory
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, name := range active {
		keep[name] = true
	}
	for _, name := range finished {
		if run, err := spool.ParseRunID(name); err == nil {
			keep[run.ID().String()] = true
		}
	}
	return l.Groups.Sweep(func(name string) bool { return keep[name] })
}
