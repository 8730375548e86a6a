package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"paddock/execd/api"
	"paddock/internal/proc"
	"paddock/spool"
	"paddock/test/harness"
)

// duo is two hosts of a pool, each with so many slots. Jobs are submitted to the first, and have
// leases of so many seconds on the other.
type duo struct {
	slots, lease int
	knobs        string        // beside those that a pool needs
	line         *harness.Line // to the other; nil: as quick as it can be
}

// lasting is the lease of jobs that are not to end with it.
const lasting = 1800

// onPool has something measured on two hosts below a directory.
func (b *bench) onPool(dir string, of duo, measure func(*harness.Network) error) (err error) {
	n, err := harness.NewNetwork(b.bin, dir, []string{"login", "node"})
	if err != nil {
		return err
	}
	defer n.Close()
	for _, h := range n.Hosts {
		err = errors.Join(err,
			h.Write("queues/all.q", fmt.Sprintf("qname all.q\nslots %d\n", of.slots)),
			h.Write("hooks.conf", fmt.Sprintf("ADDRESS = :6445\nFILESYSTEM_DOMAIN = cluster\nREMOTE_OWNERS = *\nALIVE_INTERVAL = %d\nMAX_CLAIM_ALIVES_MISSED = 1\n%s", of.lease, of.knobs)),
			h.Write("sge_conf", "min_uid 100\nmin_gid 0\n"))
	}
	if of.line != nil {
		err = errors.Join(err, n.Hosts[1].Lengthen(*of.line))
	}
	if err := errors.Join(err, n.Share()); err != nil {
		return err
	}
	for _, h := range n.Hosts {
		if err := h.Start(); err != nil {
			return err
		}
	}
	if err := n.Up(); err != nil {
		return err
	}
	return measure(n)
}

// hostsTime measures what it costs to have jobs run on another host instead of here. Both
// hosts are this machine, and share its processors. They would share a disk, too, where the
// spools of two hosts are on two: for the rate these are in memory.
func (b *bench) hostsTime() (err error) {
	memory, err := os.MkdirTemp("/dev/shm", "paddock-bench-")
	if err != nil {
		return err
	}
	defer func() {
		harness.KillLeft(memory)
		err = errors.Join(err, os.RemoveAll(memory))
	}()
	slots := b.size(50, 10)
	return errors.Join(os.Chmod(memory, 0o755),
		b.onPool(filepath.Join(b.base, "hosts"), duo{slots: slots, lease: lasting}, b.startElsewhere),
		b.onPool(filepath.Join(memory, "rate"), duo{slots: slots, lease: lasting}, b.rateElsewhere),
		b.onPool(filepath.Join(memory, "lease"), duo{slots: slots, lease: api.MinLease}, b.leaseElsewhere))
}

// here has the first host start jobs itself, or only have others start them.
func (b *bench) here(n *harness.Network, yes bool) error {
	return b.asRoot(n.Hosts[0].Dir, "qmod", map[bool]string{true: "-e", false: "-d"}[yes], "all.q")
}

// startElsewhere measures the time from the submission of a job to its start on two hosts
// that have nothing else to do, and hold no claims.
func (b *bench) startElsewhere(n *harness.Network) error {
	base := filepath.Join(b.base, "stamps")
	if err := b.mine(base); err != nil {
		return err
	}
	stamp := filepath.Join(base, "stamp")
	if err := os.WriteFile(stamp, []byte("#!/bin/bash\necho $EPOCHREALTIME >>"+base+"/times\n"), 0o755); err != nil {
		return err
	}
	login := n.Hosts[0]
	var took [2][]time.Duration // here, elsewhere
	for range b.size(12, 2) {
		for i := range took {
			if err := b.here(n, i == 0); err != nil {
				return err
			}
			if err := os.Remove(filepath.Join(base, "times")); err != nil && !os.IsNotExist(err) {
				return err
			}
			begin := time.Now()
			if out, err := b.ours(login.Daemon, "qsub", "-sync", "y", "-o", "/dev/null", "-j", "y", "-b", "y", "-shell", "n", stamp).CombinedOutput(); err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			text, err := os.ReadFile(filepath.Join(base, "times"))
			if err != nil {
				return err
			}
			began, err := instant(string(text[:len(text)-1]))
			if err != nil {
				return err
			}
			took[i] = append(took[i], began.Sub(begin))
		}
		if err := harness.WaitFor(harness.Patience, "no claims to be left", func() (bool, error) {
			names, err := os.ReadDir(filepath.Join(login.Dir, "spool", "remote"))
			return len(names) == 0, err
		}); err != nil {
			return err
		}
	}
	here, there := median(took[0]), median(took[1])
	b.report(row{what: "start of a job on an idle host, beside the same here", unit: "ms", theirs: milliseconds(here), ours: milliseconds(there), absolute: true, limit: milliseconds(here) + 15})
	return nil
}

// rateElsewhere runs an array of trivial tasks here, and on the other host.
func (b *bench) rateElsewhere(n *harness.Network) error {
	tasks := b.size(2000, 50)
	var each [2][]time.Duration
	for range b.size(3, 1) {
		for i := range each {
			if err := b.here(n, i == 0); err != nil {
				return err
			}
			begin := time.Now()
			if err := b.runArray(n.Hosts[0].Daemon, tasks); err != nil {
				return err
			}
			each[i] = append(each[i], time.Since(begin)/time.Duration(tasks))
		}
	}
	b.report(row{
		what: "array tasks a second on another host, beside here", unit: "/s", atLeast: true, limit: 0.6,
		theirs: 1 / median(each[0]).Seconds(), ours: 1 / median(each[1]).Seconds(),
	})
	return nil
}

// leaseElsewhere measures how long after the ends of their leases jobs end on a host whose
// execd was killed.
func (b *bench) leaseElsewhere(n *harness.Network) error {
	login, node := n.Hosts[0], n.Hosts[1]
	if err := b.here(n, false); err != nil {
		return err
	}
	jobs := b.size(10, 2)
	if _, err := b.sleep(login.Daemon, jobs); err != nil {
		return err
	}
	var pids []string // files that are there when a job runs
	if err := harness.WaitFor(harness.Patience, "the jobs to run", func() (_ bool, err error) {
		pids, err = filepath.Glob(filepath.Join(api.DevPlaces(node.Dir).Spool, spool.DirActive, "[0-9]*", spool.FileJobPID))
		return len(pids) == jobs, err
	}); err != nil {
		return err
	}
	node.Daemon.Kill()
	late := make(map[string]time.Duration)
	if err := harness.WaitFor(harness.Patience, "the jobs to end with their leases", func() (bool, error) {
		for _, pid := range pids {
			run := filepath.Dir(pid)
			dir := spool.OpenDir(run)
			lease, err := dir.Lease()
			if err != nil {
				return false, err
			}
			if _, err := dir.ExitStatus(); err == nil && late[run] == 0 {
				late[run] = proc.Uptime() - lease.End
			}
		}
		return len(late) == jobs, nil
	}); err != nil {
		return err
	}
	latest := slices.Max(slices.Collect(maps.Values(late)))
	if earliest := slices.Min(slices.Collect(maps.Values(late))); earliest < 0 {
		return fmt.Errorf("a job has ended %v before its lease", -earliest)
	}
	b.report(row{what: "end of a job with its lease, execd of its host dead", unit: "ms", ours: milliseconds(latest), alone: true, limit: 2000})
	return nil
}
