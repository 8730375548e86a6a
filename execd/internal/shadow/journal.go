package shadow

import (
	"context"
	"fmt"
	"time"

	"paddock/classad"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/notice"
)

// noted is what the owner of a run was told of it. Its goroutine alone uses it.
type noted struct {
	suspended bool
	silent    bool
	size      int64 // KiB
}

// noteChanges tells the owner of a run in his event log what has happened to it since.
func (r *run) noteChanges() {
	if !r.notices.On() {
		return
	}
	r.mu.Lock()
	since, there, status := r.host.silent, r.there, r.status
	r.mu.Unlock()
	if !there {
		return
	}
	if silent := !since.IsZero(); silent != r.noted.silent {
		r.noted.silent = silent
		e := notice.Event{Kind: notice.Reconnected}
		if silent {
			e = notice.Event{Kind: notice.Disconnected, Text: fmt.Sprintf("%s has not answered since %s", r.host.name, since.Format(time.DateTime))}
		}
		r.notices.Happened(e)
	}
	if status.ImageSize > r.noted.size {
		r.noted.size = status.ImageSize
		r.notices.Happened(notice.Event{Kind: notice.Grown, Ad: ad.Running(classad.New(), status)})
	}
	if status.Suspended != r.noted.suspended {
		r.noted.suspended = status.Suspended
		e := notice.Event{Kind: notice.Resumed}
		if status.Suspended {
			e.Kind = notice.Suspended
		}
		r.notices.Happened(e)
	}
}

// recordEndForOwner tells the owner of a run of its end in his files, and waits until that is done. One
// that an earlier execd has recorded it has told.
func (r *run) recordEndForOwner(ctx context.Context) error {
	if !r.notices.On() || r.found && r.Host.Store.Recorded(r.task) {
		return nil
	}
	if r.noted.silent {
		e := notice.Event{Kind: notice.ReconnectFailed, Text: r.tail.End.Reason}
		r.mu.Lock()
		if r.final != nil {
			e = notice.Event{Kind: notice.Reconnected}
		}
		r.mu.Unlock()
		r.notices.Happened(e)
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
		case f := <-r.written:
			f()
		}
	}
}
