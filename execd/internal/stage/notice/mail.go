package notice

import (
	"context"
	"fmt"

	"paddock/execd/internal/mail"
	"paddock/execd/internal/stage/outcome"
	"paddock/spool"
)

// Wants reports whether the owner asked for a mail with qsub -m.
func (n *Notices) Wants(event mail.Event) bool {
	// An owner who asked for the end of a job wants to know of every end.
	options := n.of.Job.Terms().Mail
	return event.Wanted(options) || event == mail.Aborted && mail.Complete.Wanted(options)
}

// Mail sends the mail about a run that its owner asked for with qsub -m, and reports
// whether he did. Facts are those of its end; nil: it goes on.
func (n *Notices) Mail(event mail.Event, f *outcome.Facts) bool {
	if !n.Wants(event) {
		return false
	}
	j := n.about()
	if f != nil {
		j.End, j.Exit, j.Reason, j.Usage = f.Ended, f.End.Exit, f.End.Reason, f.Ran()
		j.Wallclock, j.CPU, j.MaxVMem = f.Total.Wallclock, f.Total.CPU, f.Total.MaxVMem
	}
	n.send(event, j)
	return true
}

// MailEnd is Mail for the end of a run.
func (n *Notices) MailEnd(f *outcome.Facts) bool {
	if f.End.Failed != spool.FailedNone {
		return n.Mail(mail.Aborted, f)
	}
	return n.Mail(mail.Complete, f)
}

// MailLater is Mail for callers that may not wait for the name services, about a run that
// goes on. Its mails leave in order.
func (n *Notices) MailLater(event mail.Event) {
	if n.Wants(event) {
		_ = n.letters.AddBelow(maxWaiting, func() { n.send(event, n.about()) })
	}
}

// about is what all mails about a run say.
func (n *Notices) about() mail.Job {
	t := n.of
	j := mail.Job{
		Number: t.Job.Number, Name: t.Job.Terms().Name, Owner: t.Job.Owner, Queue: t.Start.Queue + "@" + t.On(n.host.Name), Start: t.Started,
	}
	if t.Job.Tasks.IsArray() {
		j.Task = t.Number
	}
	return j
}

// send sends a mail about a run. It waits for the name services.
func (n *Notices) send(event mail.Event, j mail.Job) {
	h, t := n.host, n.of
	request, err := h.Store.Request(t.Job)
	if err != nil {
		h.Log.Warn(fmt.Sprintf("job %v: no mail is sent: %v", t, err))
		return
	}
	owner, err := h.Users.ByID(context.Background(), t.Job.UID)
	if err != nil {
		h.Log.Warn(fmt.Sprintf("job %v: no mail is sent: %v", t, err))
		return
	}
	if j.Usage && t.Start.Remote == nil {
		paths := h.Launcher.StderrPaths(t.RunID())
		j.StderrPath = paths[0]
		j.Stderr = func(ctx context.Context) (tail []byte, err error) {
			for _, path := range paths {
				if tail, err = h.Launcher.AsUser.Tail(ctx, owner, path, mail.TailSize); err == nil {
					return tail, nil
				}
			}
			return nil, err
		}
	}
	h.Mail.Tell(event, owner, request.MailTo, j)
}
