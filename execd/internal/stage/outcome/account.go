package outcome

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/spool"
)

// Record is what an accounting line says beside what was used.
func Record(t *job.Task, e *job.End, host string, q *conf.Queue) accounting.Record {
	terms := t.Job.Terms()
	rec := accounting.Record{
		QName: t.Start.Queue, Hostname: host, Group: plain(t.Job.Group), Owner: t.Job.Owner,
		JobName: terms.Name, JobNumber: t.Job.Number, Account: terms.Account,
		SubmissionTime: t.Job.Submitted.Unix(), Failed: e.Failed, ExitStatus: e.Exit,
		Project: cmp.Or(t.Needs.Request().Project, accounting.None), Department: job.Department, GrantedPE: accounting.None,
		Slots: t.Slots(), Category: accounting.None, PETaskID: accounting.None, Reason: e.Reason,
	}
	if rec.Account == "" {
		rec.Account = "sge"
	}
	if a := t.Job.Activation; a != nil && a.Home != nil {
		rec.Account = "from=" + a.Home.Host // it has the job's own in the line of the submit host
	}
	if t.Job.Tasks.IsArray() {
		rec.TaskNumber = t.Number
	}
	if q != nil {
		rec.Priority = q.Priority
	}
	if g := t.Start.Grant; g != nil && g.PE != "" {
		rec.GrantedPE = g.PE
	}
	if category := t.Needs.Category(); category != "" {
		rec.Category = category
	}
	return rec
}

// plain is the name of a group as a line may have it. Others are checked at submission,
// and this comes from outside.
func plain(name string) string {
	return strings.Map(func(c rune) rune {
		if c == ':' || c < ' ' {
			return '_'
		}
		return c
	}, name)
}

// Line is a record as an accounting line, without its end.
func Line(rec accounting.Record, log *slog.Logger) string {
	b, err := accounting.Append(nil, rec)
	if err != nil {
		log.Error(fmt.Sprintf("internal error: job %d: cannot compose accounting line: %v", rec.JobNumber, err))
	}
	return strings.TrimSuffix(string(b), "\n")
}

// Fill copies the resource usage of a run into its accounting record: what the
// shepherd knows of the processes it reaped, and the total, which knows of all.
func Fill(rec *accounting.Record, u *spool.Usage, total *api.Usage) {
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

// AddSum adds what a line says was used. Of peaks the highest counts: tasks may
// have run one after the other.
func AddSum(rec *accounting.Record, line string) {
	sum, err := accounting.Parse([]byte(line))
	if err != nil {
		return // there is none
	}
	rec.RuUTime += sum.RuUTime
	rec.RuSTime += sum.RuSTime
	rec.RuMaxRSS = max(rec.RuMaxRSS, sum.RuMaxRSS)
	rec.RuMinFlt += sum.RuMinFlt
	rec.RuMajFlt += sum.RuMajFlt
	rec.RuNSwap += sum.RuNSwap
	rec.RuInBlock += sum.RuInBlock
	rec.RuOuBlock += sum.RuOuBlock
	rec.RuNVCSw += sum.RuNVCSw
	rec.RuNIVCSw += sum.RuNIVCSw
	rec.CPU += sum.CPU
	rec.Mem += sum.Mem
	rec.IO += sum.IO
	rec.IOW += sum.IOW
	rec.MaxVMem = max(rec.MaxVMem, sum.MaxVMem)
}

// maxTold bounds an accounting line that others are told of, in bytes. The requests of a
// job, which may be longer, who follows it knows.
const maxTold = 16 << 10

// Told is an end as those who follow the job are told of it. Out is what the shepherd has
// left; nil: an earlier execd has seen it.
func Told(e *job.End, out *spool.Outcome, log *slog.Logger) *api.ActivationEnd {
	t := &api.ActivationEnd{
		Failed: e.Failed, Exit: e.Exit, Cause: string(e.Cause), Reason: e.Reason, Fate: string(e.Fate), Accounting: e.Accounting,
	}
	var start, end int64
	if rec, err := accounting.Parse([]byte(e.Accounting)); err == nil {
		start, end = rec.StartTime, rec.EndTime
		if len(t.Accounting) > maxTold {
			rec.Category = accounting.None
			t.Accounting = Line(rec, log)
		}
	} else if out != nil && out.Usage != nil {
		start, end = out.Usage.Start, out.Usage.End
	}
	if start > 0 {
		t.Started, t.Ended = time.Unix(start, 0), time.Unix(end, 0)
	}
	return t
}

// Elsewhere copies into the accounting record of a run what another host says that it has
// used there.
func Elsewhere(rec, used *accounting.Record) {
	all := *used
	all.QName, all.Hostname, all.Group, all.Owner, all.JobName, all.JobNumber = rec.QName, rec.Hostname, rec.Group, rec.Owner, rec.JobName, rec.JobNumber
	all.Account, all.Priority, all.SubmissionTime, all.Failed, all.ExitStatus = rec.Account, rec.Priority, rec.SubmissionTime, rec.Failed, rec.ExitStatus
	all.Project, all.Department, all.GrantedPE, all.Slots, all.TaskNumber = rec.Project, rec.Department, rec.GrantedPE, rec.Slots, rec.TaskNumber
	all.Category, all.PETaskID, all.ARID, all.Reason = rec.Category, rec.PETaskID, rec.ARID, rec.Reason
	*rec = all
}
