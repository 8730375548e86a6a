package shadow

import (
	"context"
	"fmt"
	"time"

	"paddock/classad"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/mail"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/notice"
)

// notices are what the owner of a run was told of it. The goroutine of the run alone uses them.
type notices struct {
	notice.Notices
	run       *run
	written   chan func() // what follows a write for the owner
	began     bool        // it executes
	suspended bool
	silent    bool
	size      int64 // KiB
}

// tell tells the owner of a run in his event log what has happened to it since.
func (n *notices) tell() {
	r := n.run
	r.mu.Lock()
	since, there, status := r.host.silent, r.there, r.status
	r.mu.Unlock()
	if !there {
		return
	}
	if !n.began {
		n.began = true
		if !r.found { // else the execd before has done it
			n.Mail(mail.Started, nil)
			n.Happened(notice.Event{Kind: notice.Executing})
			r.Host.Counts.Start(r.task.Started.Sub(r.task.Job.Submitted))
		}
	}
	if !n.On() {
		return
	}
	if silent := !since.IsZero(); silent != n.silent {
		n.silent = silent
		e := notice.Event{Kind: notice.Reconnected}
		if silent {
			e = notice.Event{Kind: notice.Disconnected, Text: fmt.Sprintf("%s has not answered since %s", r.host.name, since.Format(time.DateTime))}
		}
		n.Happened(e)
	}
	if status.ImageSize > n.size {
		n.size = status.ImageSize
		n.Happened(notice.Event{Kind: notice.Grown, Ad: ad.Running(classad.New(), status)})
	}
	if status.Suspended != n.suspended {
		n.suspended = status.Suspended
		e := notice.Event{Kind: notice.Resumed}
		if status.Suspended {
			e.Kind = notice.Suspended
		}
		n.Happened(e)
	}
}

// record tells the owner of the run of its end in his files, and waits until that is done. One
// that an earlier execd has recorded it has told.
func (n *notices) record(ctx context.Context) error {
	r := n.run
	if !n.On() || r.found && r.Host.Store.Recorded(r.task) {
		return nil
	}
	if n.silent {
		e := notice.Event{Kind: notice.ReconnectFailed, Text: r.tail.End.Reason}
		r.mu.Lock()
		if r.final != nil {
			e = notice.Event{Kind: notice.Reconnected}
		}
		r.mu.Unlock()
		n.Happened(e)
	}
	for {
		var result exit.Result
		err := r.retry(ctx, func() (err error) {
			result, err = r.tail.Record()
			return err
		})
		if err != nil || result.Over() {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f := <-n.written:
			f()
		}
	}
}
