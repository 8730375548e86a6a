// Package usage measures what running jobs use, and how loaded the host is, load
// sensors included. It rarely looks at what does not change, and does not look when
// nobody needs it. Only the daemon's packages import it; it acts on nothing and keeps
// nothing on disk.
package usage

import (
	"fmt"
	"time"

	"paddock/execd/api"
	"paddock/spool"
)

// Job is a running job for the Sampler. A job with neither a group nor processes has
// only wall clock time.
type Job struct {
	Started time.Time
	// Group is the job's control group.
	Group Group
	// AddGID is the additional group id that marks the job's processes.
	AddGID int
	// PID returns the process that the shepherd started for the job, 0 before that.
	// Without an AddGID, the processes of the job are that process, its session, and the
	// tree below it.
	PID    func() int
	Limits Limits
}

// Limits are those that only the Sampler enforces for the job as a whole. Zero is no
// limit. A limit of memory is compared with the largest use so far.
type Limits struct {
	SoftCPU, HardCPU   float64 // seconds
	SoftVMem, HardVMem float64 // bytes
}

// Group is a control group.
type Group interface {
	Usage() (GroupUsage, error)
}

// GroupUsage is what all processes that are or were in a group have used. Zero is not
// known: the kernel may lack the controller.
type GroupUsage struct {
	CPU        time.Duration
	SysCPU     time.Duration // the part of CPU in the kernel
	IO         uint64        // bytes to and from disks
	Memory     uint64        // bytes, resident and swap, without the page cache
	MemoryPeak uint64        // bytes, at most so far
}

// Excess is a limit that a job has exceeded.
type Excess struct {
	Limit     string // s_cpu, h_cpu, s_vmem, h_vmem
	Hard      bool
	Used, Max float64
}

// Line describes the excess as Grid Engine's execd does in its log.
func (e Excess) Line(id spool.ID, queue string) string {
	kind, signal := "soft", "SIGXCPU"
	if e.Hard {
		kind, signal = "hard", "SIGKILL"
	}
	return fmt.Sprintf("job %v exceeds job %s limit %q of queue %q (%8.5f > limit:%8.5f) - sending %s",
		id, kind, e.Limit, queue, e.Used, e.Max, signal)
}

// Reason says which limit was exceeded.
func (e Excess) Reason() string {
	if e.Limit == "h_cpu" {
		return fmt.Sprintf("job was killed: it used %.0f s of processor time, its limit h_cpu is %.0f s", e.Used, e.Max)
	}
	return fmt.Sprintf("job was killed: it used %.0f MB of memory, its limit h_vmem is %.0f MB", e.Used/(1<<20), e.Max/(1<<20))
}

// compare returns the values of a job beside its limits. The hard limit of a resource
// comes first, since it makes the soft one needless.
func (l *Limits) compare(cpu, vmem float64) [4]Excess {
	return [4]Excess{
		{"h_cpu", true, cpu, l.HardCPU},
		{"s_cpu", false, cpu, l.SoftCPU},
		{"h_vmem", true, vmem, l.HardVMem},
		{"s_vmem", false, vmem, l.SoftVMem},
	}
}

// gib is the unit of mem and io.
const gib = 1 << 30

// Final returns what a run has used, from the samples (zero: there are none) and from
// what its shepherd reported (nil: nothing). CPU is the larger of the two: samples miss
// what came after the last, and the shepherd what nobody waited for. Memory is taken to
// have stayed as in the last sample. A job too short for samples has the memory of its
// largest process.
func Final(sampled api.Usage, ran *spool.Usage) api.Usage {
	u := sampled
	if ran == nil {
		return u
	}
	u.Wallclock = float64(ran.Wallclock)
	u.CPU = max(sampled.CPU, (ran.UTime + ran.STime).Seconds())
	u.Mem += (u.CPU - sampled.CPU) * sampled.VMem / gib
	u.MaxRSS = max(sampled.MaxRSS, float64(ran.MaxRSS<<10))
	u.MaxVMem = max(sampled.MaxVMem, u.MaxRSS)
	return u
}

// Reserve replaces the usage of a run by what was reserved for it, as
// ACCT_RESERVED_USAGE asks for: slots, and memory if it was limited. The limit is in
// bytes for all slots together; 0: none.
func Reserve(u *api.Usage, slots int, memory float64) {
	u.CPU = u.Wallclock * float64(slots)
	if memory > 0 {
		u.Mem = u.Wallclock * memory / gib
	}
}
