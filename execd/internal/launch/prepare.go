package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"paddock/execd/internal/cgroup"
	"paddock/execd/internal/job"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// Activate moves the staged directory of a run to active_jobs/ before its shepherd
// is started: what prepares the job works on it there. It may be called again.
func (r *Runs) Activate(run spool.RunID) error {
	_, err := r.Root.Activate(run)
	if errors.Is(err, fs.ErrNotExist) && r.activated(run) {
		return nil
	}
	return err
}

// activated reports whether what stands in active_jobs/ is the run's.
func (r *Runs) activated(run spool.RunID) bool {
	n, err := r.Root.Active(run.ID()).Run()
	return err == nil && n == run.Run
}

// Rebuild writes anew what the shepherd of an active run reads, for an order that
// has changed since Build. What Build has made besides, TMPDIR and control groups,
// stays.
func (l *Launcher) Rebuild(o *Order) error {
	run := o.Task.RunID()
	d := l.Root.Active(run.ID())
	was, err := d.Config()
	if err != nil {
		return err
	}
	if o.chosen, err = was.String(spool.KeyTmpdir); err != nil {
		return err
	}
	o.scratch, o.group = scratchOf(was), cgroup.Of(was)
	o.closed, _ = was.Lookup(spool.KeyPrivateTmp)
	config, args, err := l.config(o)
	if err != nil {
		return &Unfit{fmt.Sprintf("cannot write config: %v", err)}
	}
	if err := o.group.Record(config); err != nil {
		return err
	}
	for _, key := range []string{spool.KeyDevices, spool.KeyVmem} { // as makeGroup found it
		if value, ok := was.Lookup(key); ok {
			if err := config.Set(key, value); err != nil {
				return err
			}
		}
	}
	if args != nil {
		if err := d.Write(spool.FileArgs, args); err != nil {
			return err
		}
	}
	if err := d.Write(spool.FileEnvironment, spool.AppendEnvironment(nil, l.environment(o, d.Path()))); err != nil {
		return err
	}
	return d.Write(spool.FileConfig, config.Append(nil))
}

// Lend writes a file of a run for its job and hooks of it: nobody but the owner of the job
// may read it. The directory is not his, so that it stays what it is.
func (r *Runs) Lend(run spool.RunID, name string, data []byte, u *user.User) error {
	d, _, err := r.Find(run)
	if err != nil {
		return err
	}
	if !r.Privileged {
		err := d.WriteNew(name, data)
		if errors.Is(err, fs.ErrExist) { // it was lent before in this run, and may be read now
			err = d.Write(name, data)
		}
		return err
	}
	f, err := d.Refill(name, data)
	if errors.Is(err, fs.ErrExist) {
		if err = d.Write(name, data); err == nil {
			f, err = os.Open(d.Path(name))
		}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = job.Lend(f, u.UID, u.GID, u.Name, u.Group, spool.ModeOf(name))
	return err
}

// HookGroup returns the control group of version 2 in which hooks of a run are:
// beside the job, under the limits of both; empty: there is none. When the job is
// over its shepherd has killed all in it: then it is made anew, since some kernels
// kill whatever is born in a group in which all were killed before.
func HookGroup(c *spool.Config, over bool) string {
	group, ok := c.Lookup(spool.KeyCgroup)
	if !ok {
		return ""
	}
	leaf := filepath.Join(group, spool.CgroupProcedures)
	if !over {
		return leaf
	}
	if err := os.Remove(leaf); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err := os.Mkdir(leaf, 0o755); err != nil {
		return "" // the group is gone: the host was restarted
	}
	return leaf
}
