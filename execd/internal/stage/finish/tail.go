package finish

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"paddock/execd/internal/account"
	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/stage/outcome"
	"paddock/spool"
)

// Tail is what follows when the outcome of a run is known, wherever it ran: its end is
// recorded and accounted, those are told who wait, and what becomes of its task is settled.
type Tail struct {
	outcome.Facts
	Taken time.Time  // when the run got its slots
	Marks exit.Marks // of telling of the end

	host    *base.Host
	of      *job.Task
	notices *notice.Notices
	entry   *account.Entry // from Save on, unless that has to be repeated
	left    bool           // the history has it
}

// Init makes it that of a run.
func (f *Tail) Init(h *base.Host, of *job.Task, n *notice.Notices) {
	f.host, f.of, f.notices = h, of, n
}

// Save makes the end durable and writes its accounting line.
func (f *Tail) Save() (exit.Result, error) {
	entry := f.host.Book.Enter(job.Ending{Task: f.of, End: f.End, Time: time.Now()})
	if err := entry.Written(); err != nil {
		return exit.Failed, &exit.Retry{Err: err}
	}
	f.entry = entry
	return exit.Nothing, nil
}

// Tell tells the log and those who wait.
func (f *Tail) Tell() (exit.Result, error) {
	t, e := f.of, f.End
	text := fmt.Sprintf("job %v: ended: failed=%d exit=%d fate=%s%s", t, e.Failed, e.Exit, e.Fate, base.FromHome(t))
	if e.Reason != "" {
		text += fmt.Sprintf(" reason=%q", e.Reason)
	}
	timed := !f.Started.IsZero() && !f.Ended.IsZero()
	// Another host tells whole seconds, by a clock of its own.
	starting, running, returning := max(0, f.Started.Sub(f.Taken)), max(0, f.Ended.Sub(f.Started)), max(0, time.Since(f.Ended))
	if timed {
		text += fmt.Sprintf(" waiting=%.4fs starting=%.4fs running=%.4fs returning=%.4fs",
			f.Taken.Sub(t.Job.Submitted).Seconds(), starting.Seconds(), running.Seconds(), returning.Seconds())
	}
	level := slog.LevelInfo
	if e.Fate == job.FateError || e.Cause == spool.CauseLost {
		level = slog.LevelWarn
	}
	f.host.Log.Log(context.Background(), level, text)
	f.host.Counts.End(outcome.Counted(f.End))
	if timed {
		f.host.Counts.Stages(starting, running, returning)
	}
	f.host.Store.Accounted(t)
	return exit.Nothing, nil
}

// Mail sends the mail about the end that the owner asked for.
func (f *Tail) Mail() (exit.Result, error) {
	if !f.notices.MailEnd(&f.Facts) {
		return exit.Nothing, nil
	}
	return exit.Done, nil
}

// Synced returns when the accounting line is on disk, and the record of the job is not
// needed any more but by the history. After an error Save is to be repeated.
func (f *Tail) Synced() error {
	if err := f.entry.Synced(); err != nil {
		f.entry = nil
		return &exit.Retry{Err: err}
	}
	return nil
}

// Settle records what becomes of the task.
func (f *Tail) Settle() error {
	f.leave()
	return f.host.Store.Settle(f.of)
}
