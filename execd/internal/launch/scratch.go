package launch

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/conf"
	"paddock/execd/internal/quota"
	"paddock/spool"
)

// ScratchLimit is the name of the attribute, MEMORY, by which a job says how many
// bytes it may have in TMPDIR, where the administrator has defined it.
const ScratchLimit = "scratch_limit"

// scratch is what limits the TMPDIR of a run.
type scratch struct {
	limit   uint64 // bytes; 0: nothing does
	project uint32 // the project that has it; 0: it is a file system in memory
}

// Means are those by which a scratch directory is limited.
type Means string

// The means there are.
const (
	ByQuota Means = "project quotas"
	ByTmpfs Means = "tmpfs"
)

// ScratchMeans returns how what is in a directory can be limited; the error says
// why it cannot.
func ScratchMeans(g *conf.Global, dir string, privileged bool) (Means, error) {
	if !privileged {
		return "", errors.New("execd runs the jobs of one user, without root's rights")
	}
	why := errors.New("neither SCRATCH_PROJECTS nor SCRATCH_TMPFS is set")
	if len(g.ScratchIDs) > 0 {
		err := quota.Available(dir)
		if err == nil {
			return ByQuota, nil
		}
		why = fmt.Errorf("%s: %w", dir, err)
	}
	if g.ScratchTmpfs {
		return ByTmpfs, nil
	}
	return "", why
}

// ScratchReport says for each parent of scratch directories how these are
// limited, or why they are not. There is none where nothing asks for it.
func ScratchReport(c *conf.Config, privileged bool) (active, without []string) {
	a := c.Attribute(ScratchLimit)
	if c.Global.ScratchLimit == 0 && (a == nil || a.Name != ScratchLimit || a.Kind != conf.KindMemory) {
		return nil, nil
	}
	var seen []string
	for i := range c.Queues {
		dir := c.Queues[i].Tmpdir
		if slices.Contains(seen, dir) {
			continue
		}
		seen = append(seen, dir)
		if means, why := ScratchMeans(&c.Global, dir, privileged); why != nil {
			without = append(without, fmt.Sprintf("scratch directories in %s are not limited: %v", dir, why))
		} else {
			active = append(active, fmt.Sprintf("scratch directories in %s are limited by %s", dir, means))
		}
	}
	return active, without
}

// SandboxLimit returns how many bytes a run may have in its sandbox: what it has asked for,
// what its slot was made for, or what every job may have; 0: any number.
func (o *Order) SandboxLimit() uint64 {
	var carved int64 // KiB
	for i := range o.Task.Start.Carved {
		carved += o.Task.Start.Carved[i].Disk
	}
	limit := cmp.Or(o.ScratchLimit, uint64(max(carved, 0))<<10, o.Global.ScratchLimit)
	if limit > 0 {
		limit = min(max(limit, conf.MinScratch), conf.MaxScratch)
	}
	return limit
}

// chooseScratch decides what will limit the TMPDIR of a run. One that asked for it
// does not run without.
func (t *tmpdirs) chooseScratch(o *Order, parent *os.File) error {
	limit := o.Global.ScratchLimit
	if o.ScratchLimit > 0 {
		limit = max(o.ScratchLimit, conf.MinScratch)
	}
	if limit == 0 {
		return nil
	}
	means, why := ScratchMeans(o.Global, o.Queue.Tmpdir, t.Privileged)
	switch {
	case why != nil && o.ScratchLimit > 0:
		return &Unfit{"cannot limit TMPDIR: " + why.Error()}
	case why != nil:
		return nil // as the log has said
	}
	o.scratch.limit = min(limit, conf.MaxScratch)
	if means != ByQuota {
		return nil
	}
	var err error
	if o.scratch.project, err = t.TakeProject(o.Global.ScratchIDs, parent); err != nil {
		return fmt.Errorf("cannot limit TMPDIR: %w", err)
	}
	if err := quota.Limit(parent, o.scratch.project, o.scratch.limit); err != nil {
		t.GiveProject(o.scratch.project)
		o.scratch = scratch{}
		return err
	}
	return nil
}

// confine has a directory that was just made, and is still root's, limited. It
// returns what is in its place then, and closes the directory if it fails.
func (t *tmpdirs) confine(o *Order, parent, dir *os.File) (*os.File, error) {
	s := &o.scratch
	if s.limit == 0 {
		return dir, nil
	}
	var err error
	if s.project > 0 {
		err = quota.Assign(dir, s.project)
	} else {
		// The number of files is limited, too: the kernel has memory for each.
		options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=0700", s.limit, s.limit>>12+16)
		at := "/proc/self/fd/" + strconv.Itoa(int(dir.Fd()))
		err = unix.Mount(t.mountSource(), at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
	}
	if err == nil && s.project > 0 {
		return dir, nil
	}
	dir.Close()
	if err != nil {
		return nil, err
	}
	return openOwn(parent, filepath.Base(o.chosen)) // the root of what was mounted
}

// mountSource is what mount(8) shows of our file systems, and we know them by.
func (t *tmpdirs) mountSource() string { return "paddock:" + t.Root.Path() }

// record has config name what limits TMPDIR.
func (s *scratch) record(w *writer) {
	switch {
	case s.limit == 0:
		return
	case s.project > 0:
		w.text(spool.KeyScratchProject, strconv.FormatUint(uint64(s.project), 10))
	default:
		w.flag(spool.KeyScratchTmpfs, true)
	}
	w.text(spool.KeyScratchLimit, strconv.FormatUint(s.limit, 10))
}

// scratchOf reads what limits the TMPDIR of a run.
func scratchOf(c *spool.Config) (s scratch) {
	text, _ := c.Lookup(spool.KeyScratchLimit)
	s.limit, _ = strconv.ParseUint(text, 10, 64)
	text, _ = c.Lookup(spool.KeyScratchProject)
	n, _ := strconv.ParseUint(text, 10, 32)
	s.project = uint32(n)
	return s
}

// tmpfs reports whether TMPDIR is a file system in memory.
func (s scratch) tmpfs() bool { return s.limit > 0 && s.project == 0 }

// unmount takes away the file system that TMPDIR is, with all that is in it.
// After a reboot there is none.
func unmount(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot unmount TMPDIR %s: %w", path, err)
	}
	return nil
}

// free ends the limit of a TMPDIR that is gone, and was in a directory.
func (t *tmpdirs) free(s scratch, place string) error {
	if s.project == 0 {
		return nil
	}
	parent, err := os.Open(place)
	if err != nil {
		return fmt.Errorf("cannot free project %d: %w", s.project, err)
	}
	defer parent.Close()
	if quota.Available(place) == nil { // it may have been mounted anew without
		err = quota.Limit(parent, s.project, 0)
	}
	t.GiveProject(s.project)
	return err
}

// abandon undoes what was made of a TMPDIR that nobody has used.
func (t *tmpdirs) abandon(o *Order) {
	if o.chosen != "" {
		if o.scratch.tmpfs() {
			_ = unmount(o.chosen)
		}
		_ = unix.Rmdir(o.chosen)
	}
	if err := t.free(o.scratch, o.Queue.Tmpdir); err != nil {
		t.Log.Warn(err.Error())
	}
}

// ScratchFull says how full the TMPDIR of a run that has ended is, if it is so
// full that the job may have met its limit.
func (r *Runs) ScratchFull(run spool.RunID) string {
	c, err := r.Root.Finished(run).Config()
	if err != nil {
		return ""
	}
	s := scratchOf(c)
	path, _ := c.Lookup(spool.KeyTmpdir)
	if s.limit == 0 || !filepath.IsAbs(path) {
		return ""
	}
	var used uint64
	if s.project > 0 {
		var parent *os.File
		if parent, err = os.Open(filepath.Dir(path)); err == nil {
			used, err = quota.Used(parent, s.project)
			parent.Close()
		}
	} else {
		var st unix.Statfs_t
		if err = unix.Statfs(path, &st); err == nil && st.Type != unix.TMPFS_MAGIC {
			return ""
		}
		used = (st.Blocks - st.Bfree) * uint64(st.Bsize)
	}
	// A large write is refused before the last block is in use.
	if err != nil || used < s.limit-s.limit/64 {
		return ""
	}
	return fmt.Sprintf("TMPDIR was full: %.1f of %.1f MB", float64(used)/(1<<20), float64(s.limit)/(1<<20))
}

// projects are the numbers that runs have, of their TMPDIR and of their sandboxes.
type projects struct {
	mu    sync.Mutex
	used  map[uint32]bool      // guarded by mu; nil: not known yet
	alien map[uint32]time.Time // guarded by mu; since when files have one that no run has; zero: the log has it
}

// TakeProject finds a number that no run has, and no file in the file system of a directory.
func (t *tmpdirs) TakeProject(ranges []conf.Range, parent *os.File) (uint32, error) {
	p := &t.projects
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used == nil {
		used, err := t.usedProjects()
		if err != nil {
			return 0, err
		}
		p.used, p.alien = used, map[uint32]time.Time{}
	}
	for _, r := range ranges {
		for n := r.First; n <= r.Last; n++ {
			id := uint32(n)
			if p.used[id] {
				continue
			}
			bytes, err := quota.Used(parent, id)
			if err != nil {
				return 0, err
			}
			if bytes > 0 {
				since, seen := p.alien[id]
				switch {
				case !seen: // XFS counts what a run has left a little later
					p.alien[id] = time.Now()
				case !since.IsZero() && time.Since(since) > time.Minute:
					p.alien[id] = time.Time{}
					t.Log.Warn(fmt.Sprintf("project %d of SCRATCH_PROJECTS is passed over: there are files of it in %s already", id, parent.Name()))
				}
				continue
			}
			delete(p.alien, id)
			p.used[id] = true
			return id, nil
		}
	}
	return 0, errors.New("all of SCRATCH_PROJECTS are in use")
}

// GiveProject gives a number back.
func (t *tmpdirs) GiveProject(id uint32) {
	t.projects.mu.Lock()
	defer t.projects.mu.Unlock()
	delete(t.projects.used, id)
}

// usedProjects returns the numbers that the directories of runs and their records name.
func (t *tmpdirs) usedProjects() (map[uint32]bool, error) {
	used := map[uint32]bool{}
	err := t.configs(func(c *spool.Config) {
		if s := scratchOf(c); s.project > 0 {
			used[s.project] = true
		}
	})
	if t.SandboxProjects != nil {
		for _, id := range t.SandboxProjects() {
			used[id] = true
		}
	}
	return used, err
}

// configs calls do for the config of each run that may have something.
func (r *Runs) configs(do func(*spool.Config)) error {
	active, err1 := r.Root.ListActive()
	finished, err2 := r.Root.ListFinished()
	staging, err3 := r.Root.ListStaging()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	look := func(d spool.Dir) {
		if kept, _ := d.Has(spool.FileKept); kept {
			return
		}
		if c, err := d.Config(); err == nil {
			do(c)
		}
	}
	for _, name := range active {
		if id, err := spool.ParseID(name); err == nil {
			look(r.Root.Active(id))
		}
	}
	for i, name := range slices.Concat(finished, staging) {
		if run, err := spool.ParseRunID(name); err == nil && i < len(finished) {
			look(r.Root.Finished(run))
		} else if err == nil {
			look(r.Root.Staging(run))
		}
	}
	return nil
}

// Sweep removes what no run has of what is made in the scratch directories' parents:
// execd was killed before it noted what it had made, or the host went down before
// that was on its disk. Call it before anything is started.
func (t *tmpdirs) Sweep(queues []conf.Queue) error {
	used, here := map[string]bool{}, map[string]bool{}
	err := t.configs(func(c *spool.Config) {
		for _, key := range []string{spool.KeyTmpdir, spool.KeyPrivateTmp} {
			path, _ := c.Lookup(key)
			used[path] = true
			if at, err := filepath.EvalSymlinks(path); err == nil {
				here[at] = true
			}
		}
	})
	if err != nil {
		return err
	}
	errs := []error{t.sweepMounts(here)}
	for i := range queues {
		errs = append(errs, t.sweepTmpdirs(&queues[i], used))
	}
	return errors.Join(errs...)
}

// sweepMounts unmounts the scratch directories in memory that are not in use.
func (t *tmpdirs) sweepMounts(used map[string]bool) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("cannot find mounts of an earlier execd: %w", err)
	}
	var errs []error
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		f, kind := strings.Fields(before), strings.Fields(after)
		if len(f) <= 4 || len(kind) <= 1 || kind[0] != "tmpfs" || kind[1] != t.mountSource() || used[f[4]] {
			continue
		}
		err := unmount(f[4])
		if err == nil {
			if err = unix.Rmdir(f[4]); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sweepTmpdirs removes the scratch directories of a queue that are not in use. Others
// may have theirs beside them, under the same names: what is removed was never given
// to anybody, or is as old as an earlier life of the host.
func (t *tmpdirs) sweepTmpdirs(q *conf.Queue, used map[string]bool) error {
	parent, err := t.openParent(q.Tmpdir)
	if err != nil {
		return nil //nolint:nilerr // it may be mounted later, and each job of the queue says so
	}
	defer parent.Close()
	names, err := parent.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("cannot look for scratch directories: %w", err)
	}
	booted := t.bootTime()
	var errs []error
	for _, name := range names {
		path := filepath.Join(q.Tmpdir, name)
		if used[path] || !isTmpdir(name, q.Name) {
			continue
		}
		if strings.Contains(name, t.privateSuffix()) {
			if err := t.removeClosed(path, 0); err != nil {
				errs = append(errs, fmt.Errorf("cannot remove private /tmp %s: %w", path, err))
			}
			continue
		}
		var st unix.Stat_t
		switch err := unix.Fstatat(int(parent.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); {
		case err != nil: // it has gone
		case isClosed(&st):
			_ = unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR) // unless there is something in it
		case isOlder(&st, booted) && (t.Privileged || int(st.Uid) == os.Geteuid()):
			errs = append(errs, t.clearTmpdir(path, int(st.Uid), int(st.Gid), strconv.Itoa(int(st.Gid))))
		}
	}
	return errors.Join(errs...)
}

// isTmpdir reports whether a name is one that makeTmpdir or makePrivateTmp gives in
// a queue.
func isTmpdir(name, queue string) bool {
	job, rest, _ := strings.Cut(name, ".")
	task, rest, _ := strings.Cut(rest, ".")
	if _, err := spool.ParseID(job + "." + task); err != nil {
		return false
	}
	more, ok := strings.CutPrefix(rest, queue)
	return ok && (more == "" || more[0] == '.')
}
