package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"paddock/execd/internal/cgroup"
	"paddock/spool"
)

// Subtask is a task that is started in a run: by the run itself, or by somebody
// who enters it.
type Subtask struct {
	Name  string // of its directory below that of the run
	GID   int    // additional group id; 0: none
	Slots int    // by which its limits are multiplied
}

// StartTask makes the directory of a task below that of the run which it is
// started in, and starts its shepherd.
func (l *Launcher) StartTask(o *Order) (pid int, err error) {
	run := o.run()
	within := l.Root.Active(run.Within().ID())
	of, err := within.Config()
	if err != nil {
		return 0, err
	}
	if o.chosen, err = of.String(spool.KeyTmpdir); err != nil {
		return 0, err
	}
	o.closed, _ = of.Lookup(spool.KeyPrivateTmp)
	d, err := l.Root.StageTask(run)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Root.DiscardTask(run), l.Groups.Remove(o.group))
		}
	}()
	config, args, err := l.config(o)
	if err != nil {
		return 0, &Unfit{fmt.Sprintf("cannot write config: %v", err)}
	}
	if err := l.makeTaskGroup(o, of, config); err != nil {
		return 0, err
	}
	dir := l.Root.Active(run.ID()).Path()
	env := l.environment(o, dir)
	if spool.IsInto(o.Sub.Name) {
		if env, err = enter(within, o, dir); err != nil {
			return 0, err
		}
	}
	if err := l.fill(d, o, config, args, nil, env); err != nil {
		return 0, err
	}
	active, err := l.Root.ActivateTask(run)
	if err != nil {
		return 0, err
	}
	if pid, err = l.fork(run, active); err != nil {
		return 0, errors.Join(err, l.Root.Remove(active))
	}
	return pid, nil
}

// enter returns the environment of a program that enters a run: that of the run, and the
// variables that the user brings.
func enter(run spool.Dir, o *Order, dir string) ([]string, error) {
	own, err := run.Environment()
	if err != nil {
		return nil, err
	}
	e := &env{at: map[string]int{}}
	for _, v := range own {
		e.addVariable(v)
	}
	for _, v := range o.Request.Origin {
		if strings.HasPrefix(v, "TERM=") {
			e.addVariable(v)
		}
	}
	for _, v := range o.Request.Env {
		e.addVariable(v)
	}
	e.set("SGE_JOB_SPOOL_DIR", dir) // by which its processes are known
	return e.list, nil
}

// makeTaskGroup makes the control groups of a task within those of its run. Who
// enters a run shares the run's limits, and has none beside them.
func (l *Launcher) makeTaskGroup(o *Order, of, c *spool.Config) error {
	groups := cgroup.Of(of)
	if l.Groups == nil || len(groups) == 0 {
		return nil
	}
	var limits cgroup.Limits
	into := spool.IsInto(o.Sub.Name)
	if !into {
		limits = cgroup.Limits{Memory: groupLimit(c, spool.KeyHVmem, leastMemory), Procs: groupLimit(c, spool.KeyHMaxproc, leastProcs)}
	}
	group, err := l.Groups.MakeWithin(groups, o.Sub.Name, limits)
	if err != nil {
		if devices, _ := of.Lookup(spool.KeyDevices); devices != "" {
			return err // others' devices would be its own
		}
		l.Log.Warn(fmt.Sprintf("job %v: %v", o.run().ID(), err))
		return nil
	}
	o.group = group
	if err := group.Record(c); err != nil {
		return err
	}
	if v, ok := of.Lookup(spool.KeyDevices); ok {
		if err := c.Set(spool.KeyDevices, v); err != nil {
			return err
		}
	}
	if v, ok := of.Lookup(spool.KeyVmem); ok && (into || limits.Memory > 0) {
		return c.Set(spool.KeyVmem, v)
	}
	return nil
}

// CollectTask reads what the shepherd of a task has left that is gone, and kills
// what it may have left running. Began says that there ever was one.
func (l *Launcher) CollectTask(run spool.RunID, gid int) (out spool.Outcome, began bool, err error) {
	d := l.Root.Active(run.ID())
	if _, err := os.Lstat(d.Path()); errors.Is(err, fs.ErrNotExist) {
		l.KillLeft(run, gid)
		out.Failed, out.Reason = spool.FailedNoExitStatus, "the task's spool directory is gone"
		return out, true, nil
	}
	e, err := lookBack(d)
	if err != nil {
		return out, false, err
	}
	switch v := e.Verdict(); v {
	case Lives:
		return out, true, fmt.Errorf("cannot collect task %v: its shepherd lives", run)
	case NeverStarted:
		return out, false, nil
	case HasEnded:
		if out, err = d.Outcome(); !errors.Is(err, spool.ErrSyntax) {
			return out, true, err
		}
		l.Log.Warn(fmt.Sprintf("job %v: %v", run.ID(), err))
		return spool.ShepherdDied(true, &spool.Usage{}), true, nil
	default:
		l.killGroup(d)
		l.KillLeft(run, gid)
		return abnormal(d, v), true, nil
	}
}

// RemoveTaskGroup removes the control groups of a task.
func (l *Launcher) RemoveTaskGroup(run spool.RunID) {
	if config, err := l.Root.Active(run.ID()).Config(); err == nil {
		l.removeGroup(config)
	}
}

// CleanTask removes the directory of a task, or marks it as kept.
func (r *Runs) CleanTask(run spool.RunID, keep bool) error {
	d := r.Root.Active(run.ID())
	if has, err := d.Has(spool.FileConfig); keep && has {
		return errors.Join(err, d.Write(spool.FileKept, nil))
	}
	return r.Root.Remove(d)
}

// FoundTask is a task that an earlier execd has started.
type FoundTask struct {
	Run   spool.RunID
	GID   int
	Queue string
	Lives bool
}

// FindTasks returns the tasks that have a directory below that of a run, but for
// those that are only kept.
func (r *Runs) FindTasks(run spool.RunID) ([]FoundTask, error) {
	names, err := r.Root.ListTasks(run)
	if err != nil {
		return nil, err
	}
	var found []FoundTask
	for _, name := range names {
		t := FoundTask{Run: run}
		t.Run.PETask = name
		d := r.Root.Active(t.Run.ID())
		if kept, err := d.Has(spool.FileKept); kept || err != nil {
			continue
		}
		e, err := Look(d)
		if err != nil {
			return nil, err
		}
		t.Lives = e.Verdict() == Lives
		if c, err := d.Config(); err == nil {
			t.GID, _ = c.Int(spool.KeyAddGrpID)
			t.Queue, _ = c.Lookup(spool.KeyQueue)
		}
		found = append(found, t)
	}
	return found, nil
}

// HasAnnounced reports whether the shepherd of a task has said that it is about
// to exit: then the next may have the task's slot.
func (r *Runs) HasAnnounced(run spool.RunID) bool {
	has, err := r.Root.Active(run.ID()).Has(spool.FileAboutToExit)
	return err == nil && has
}
