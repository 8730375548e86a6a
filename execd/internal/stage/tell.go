package stage

import (
	"context"
	"fmt"
	"time"

	"paddock/execd/internal/job"
	"paddock/execd/internal/mail"
	"paddock/execd/internal/stage/outcome"
	"paddock/spool"
)

// wanted reports whether the owner of a job asked for a mail with qsub -m.
func wanted(t *job.Task, event mail.Event) bool {
	// Who asked for the end of a job wants to know of every end.
	options := t.Job.Terms().Mail
	return event.Wanted(options) || event == mail.Aborted && mail.Complete.Wanted(options)
}

// tell sends the mail about a run that its owner asked for with qsub -m, and reports
// whether he did. l.mu is held.
func (r *Runner) tell(l *life, event mail.Event) bool {
	t := l.task
	if !wanted(t, event) {
		return false
	}
	j := r.about(t)
	if l.End != nil {
		j.End, j.Exit, j.Reason = l.Ended, l.End.Exit, l.End.Reason
		j.Usage = l.Ran()
		j.Wallclock, j.CPU, j.MaxVMem = l.Total.Wallclock, l.Total.CPU, l.Total.MaxVMem
	}
	r.send(t, event, j)
	return true
}

// tellLater is tell for who may not wait for the name services, about a run that goes
// on: its mails leave in order.
func (r *Runner) tellLater(l *life, event mail.Event) {
	if t := l.task; wanted(t, event) {
		_ = l.letters.put(func() { r.send(t, event, r.about(t)) }, true)
	}
}

// about is what all mails about a run say.
func (r *Runner) about(t *job.Task) mail.Job {
	j := mail.Job{
		Number: t.Job.Number, Name: t.Job.Terms().Name, Owner: t.Job.Owner, Queue: t.Start.Queue + "@" + r.Host, Start: t.Started,
	}
	if t.Job.Tasks.IsArray() {
		j.Task = t.Number
	}
	return j
}

// send sends a mail about a run. It waits for the name services.
func (r *Runner) send(t *job.Task, event mail.Event, j mail.Job) {
	request, err := r.Store.Request(t.Job)
	if err != nil {
		r.Log.Warn(fmt.Sprintf("job %v: no mail is sent: %v", t, err))
		return
	}
	owner, err := r.Users.ByID(context.Background(), t.Job.UID)
	if err != nil {
		r.Log.Warn(fmt.Sprintf("job %v: no mail is sent: %v", t, err))
		return
	}
	if j.Usage {
		paths := r.Launcher.StderrPaths(t.RunID())
		j.StderrPath = paths[0]
		j.Stderr = func(ctx context.Context) (tail []byte, err error) {
			for _, path := range paths {
				if tail, err = r.Launcher.AsUser.Tail(ctx, owner, path, mail.TailSize); err == nil {
					return tail, nil
				}
			}
			return nil, err
		}
	}
	r.Mail.Tell(event, owner, request.MailTo, j)
}

// ending is the event of an end.
func (l *life) ending() mail.Event {
	if l.End.Failed != spool.FailedNone {
		return mail.Aborted
	}
	return mail.Complete
}

// count counts the end of a run.
func (r *Runner) count(l *life) {
	r.Counts.End(outcome.Counted(l.End))
	if !l.Started.IsZero() && !l.Ended.IsZero() {
		r.Counts.Stages(l.Started.Sub(l.taken), l.Ended.Sub(l.Started), time.Since(l.Ended))
	}
}
