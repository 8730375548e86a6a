package launch

import (
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/cgroup"
	"paddock/execd/internal/usage"
	"paddock/spool"
)

// Measured describes a run to who measures what it consumes: from the config
// that was written for it, so that an execd that is started later sees the same.
func (l *Launcher) Measured(run spool.RunID, c *spool.Config, started time.Time) usage.Job {
	d := l.Root.Active(run.ID())
	j := usage.Job{
		Started: started,
		PID: func() int {
			pid, err := d.JobPID()
			if err != nil {
				return 0 // not started yet, or ended
			}
			return pid
		},
		Limits: usage.Limits{
			SoftCPU: jobLimit(c, "s_cpu"), HardCPU: jobLimit(c, "h_cpu"),
			SoftVMem: jobLimit(c, "s_vmem"), HardVMem: jobLimit(c, spool.KeyHVmem),
		},
	}
	if g := cgroup.Of(c); len(g) > 0 {
		j.Group = &measuredGroup{l.Groups, g}
	}
	j.AddGID, _ = c.Int(spool.KeyAddGrpID) // without one the tree of processes serves
	if v, _ := c.Lookup(spool.KeyVmem); v == spool.VmemGroup {
		j.Limits.HardVMem = 0 // the kernel sees to it
	}
	return j
}

// MeasuredAgain is Measured for a run that an earlier execd has started.
func (l *Launcher) MeasuredAgain(run spool.RunID, started time.Time) (usage.Job, error) {
	c, err := l.Root.Active(run.ID()).Config()
	if err != nil {
		return usage.Job{}, err
	}
	return l.Measured(run, c, started), nil
}

// Limits fills in the limits of a run, from its config.
func (r *Runs) Limits(run spool.RunID, u *api.Usage) {
	c, err := r.Root.Active(run.ID()).Config()
	if err != nil {
		return // it has just ended
	}
	u.CPULimit, u.MemLimit = jobLimit(c, "h_cpu"), jobLimit(c, spool.KeyHVmem)
	if u.MemLimit > 0 {
		u.LimitsFrom = "rlimit"
		if v, _ := c.Lookup(spool.KeyVmem); v == spool.VmemGroup {
			u.LimitsFrom = "cgroup"
		}
	}
	for _, key := range []string{spool.KeyHRT, spool.KeyForeignHRT} {
		if n, err := c.Int(key); err == nil {
			u.TimeLimit = float64(n)
		}
	}
}

// measuredGroup are the control groups of a run, as measurements need them.
type measuredGroup struct {
	tree  *cgroup.Tree
	group cgroup.Group
}

func (m *measuredGroup) Usage() (usage.GroupUsage, error) {
	u, err := m.tree.Usage(m.group)
	g := usage.GroupUsage{CPU: u.User + u.System, SysCPU: u.System, IO: u.Read + u.Written, Memory: u.Memory}
	if u.OOMKills > 0 {
		// Before it kills, the kernel gives up what is cached of files, of which a
		// peak is full otherwise.
		g.MemoryPeak = u.Peak
	}
	return g, err
}

// jobLimit returns a limit of the job as a whole; 0: none.
func jobLimit(c *spool.Config, key string) float64 { return float64(groupLimit(c, key, 0)) }
