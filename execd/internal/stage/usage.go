package stage

import (
	"fmt"
	"syscall"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/usage"
	"paddock/spool"
)

// fill copies the resource usage of a run into its accounting record: what the
// shepherd knows of the processes it reaped, and the total, which knows of all.
func fill(rec *accounting.Record, u *spool.Usage, total *api.Usage) {
	rec.StartTime, rec.EndTime, rec.RuWallclock = u.Start, u.End, u.Wallclock
	if rec.EndTime < rec.StartTime { // what another shepherd says after the clock was set back
		rec.RuWallclock = max(rec.RuWallclock, 0)
		rec.EndTime = rec.StartTime + rec.RuWallclock
	}
	rec.RuUTime, rec.RuSTime = u.UTime.Seconds(), u.STime.Seconds()
	rec.CPU, rec.Mem, rec.IO, rec.IOW, rec.MaxVMem = total.CPU, total.Mem, total.IO, total.IOWait, total.MaxVMem
	rec.RuMaxRSS = float64(u.MaxRSS)
	rec.RuIXRSS, rec.RuIDRSS, rec.RuISRSS = u.IXRSS, u.IDRSS, u.ISRSS
	rec.RuMinFlt, rec.RuMajFlt, rec.RuNSwap = u.MinFlt, u.MajFlt, u.NSwap
	rec.RuInBlock, rec.RuOuBlock = float64(u.InBlock), u.OuBlock
	rec.RuMsgSnd, rec.RuMsgRcv, rec.RuNSignals = u.MsgSnd, u.MsgRcv, u.NSignals
	rec.RuNVCSw, rec.RuNIVCSw = u.NVCSw, u.NIVCSw
}

// Exceeded is told of a job that as a whole has exceeded a limit.
func (r *Runner) Exceeded(run spool.RunID, e usage.Excess) {
	l := r.life(run.Within())
	if l == nil {
		return // it has just ended
	}
	if run.PETask != "" {
		r.taskExceeded(l, run, e)
		return
	}
	r.Log.Info(e.Line(run.ID(), l.task.Start.Queue))
	if !e.Hard {
		r.signal(l.task, syscall.SIGXCPU)
		return
	}
	if err := r.Store.Exceed(l.task, excess(e)); err != nil {
		r.Log.Error(err.Error()) // its end may lack the reason, but not be late
	}
	r.Kill(l.task)
}

// excess says in words which limit was exceeded.
func excess(e usage.Excess) string {
	if e.Limit == "h_cpu" {
		return fmt.Sprintf("job was killed: it used %.0f s of processor time, its limit h_cpu is %.0f s", e.Used, e.Max)
	}
	return fmt.Sprintf("job was killed: it used %.0f MB of memory, its limit h_vmem is %.0f MB", e.Used/(1<<20), e.Max/(1<<20))
}
