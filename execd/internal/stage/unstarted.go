package stage

import (
	"fmt"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/source"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/jobhook"
	"paddock/execd/internal/stage/notice"
)

// pause is how long nothing is started after the host could not start a job.
const pause = 10 * time.Second

// refuse ends a life before anything ran: the task waits in error when the job is to
// blame, else it goes back to the queue, which pauses.
func (r *Runner) refuse(l *life, cause error, jobToBlame bool) error {
	if !jobToBlame {
		r.Queue.Pause(fmt.Sprintf("cannot start jobs: %v", cause), pause)
		r.Log.Error(fmt.Sprintf("job %v: cannot start: %v", l.task, cause))
	}
	l.notices.Find(r.Journal)
	l.unstarted = &jobhook.Unprepared{Hold: jobToBlame, Host: !jobToBlame, Text: cause.Error()}
	return r.putBack(l)
}

// putBack takes back the start of a run: its task waits in error, to be tried again later or
// for its turn, or is over where nobody would start it again. The host may lack for this
// what it lacked to start the job: then putBack is entered again, and nothing else of the
// life.
func (r *Runner) putBack(l *life) error {
	t, u := l.task, l.unstarted
	if l.at == begins && u.Host {
		r.untake(l)
		return errOver
	}
	var err error
	if l.at > begins {
		err = r.Launcher.Discard(t.RunID())
	} else if err = r.Store.Begin(t); err == nil { // what is wrong must stand behind the start
		l.at = prepares
	}
	if err == nil {
		err = r.recordUnstarted(l)
	}
	if err != nil {
		return fmt.Errorf("cannot give it back: %w", err)
	}
	r.giveBack(l)
	return errOver
}

// recordUnstarted records what becomes of a task whose run has no directory any more, and
// reports it once.
func (r *Runner) recordUnstarted(l *life) error {
	t, u := l.task, l.unstarted
	if u.Late && !u.Hold && r.Store.Late(t) > 0 {
		u.Hold, u.Code = true, exit.HoldHook
		u.Text += " (for the second time on this host)"
	}
	told := u.Told
	a := notice.Event{Kind: notice.Postponed, Text: u.Text, Code: u.Code, Subcode: u.Subcode}
	switch from := r.From(t); {
	case u.Host || r.Store.Want(t) != nil: // it is to begin anew, or was deleted
		if r.Store.Unwanted(t) {
			return r.withdrawUnwanted(t, from)
		}
		return r.Store.Withdraw(t)
	case !from.Queued(): // it has no queue in which it would be held
		u.Told = true
		if !told {
			l.notices.Happened(a)
			from.Abandoned(t.Job, slot.Hold{Code: u.Code, Subcode: u.Subcode, Text: u.Text})
			r.Log.Error(fmt.Sprintf("job %v: not started: %s", t, u.Text))
		}
		return r.Store.Abandon(t)
	case u.Hold:
		u.Told = true
		if !told {
			a.Kind = notice.Held
			l.notices.Happened(a)
			r.Log.Error(fmt.Sprintf("job %v: cannot start: %s", t, u.Text))
		}
		return r.Store.Fail(t, u.Text)
	}
	until, err := r.Store.Postpone(t, u.Text, u.Late)
	if err == nil && !until.IsZero() {
		l.notices.Happened(a)
		r.Log.Error(fmt.Sprintf("job %v: cannot start: %s (tried again in %v)", t, u.Text, time.Until(until).Round(time.Second)))
	}
	return err
}

// withdrawUnwanted records that a task is over that was deleted while it was prepared. Who brought
// its job is told, as of any run that has ended.
func (r *Runner) withdrawUnwanted(t *job.Task, from source.Source) error {
	const text = "deleted while it was prepared"
	r.Log.Info(fmt.Sprintf("job %v: %s", t, text))
	if r.Followed(t) {
		r.Followers.Tell(t.Job, api.ActivationEvent{Kind: api.ActivationGone, Time: time.Now(), Reason: text})
	}
	err := from.Report(t.Job, string(exit.WordEvict), func(work *classad.Ad) *classad.Ad {
		return work.With(classad.Attr{Name: "VacateReason", Expr: classad.String(text).Expr()})
	})
	if err == nil {
		err = r.Store.Withdraw(t)
	}
	if err == nil {
		from.Recorded(t.Job)
	}
	return err
}

// untake gives back a task whose start is not recorded.
func (r *Runner) untake(l *life) {
	r.Store.Untake(l.task)
	r.giveBack(l)
}

// giveBack frees what a task held that is not started after all.
func (r *Runner) giveBack(l *life) {
	if t := l.task; t.Start.Sandbox != nil && !t.Start.Sandbox.Kept {
		r.Go(func() { r.Sandboxes.Remove(t) }) // the next has another
	}
	r.GIDs.Give(l.task.Start.AddGID)
	r.Queue.Ended(l.task, l.end.Slots, schedule.Used{})
}
