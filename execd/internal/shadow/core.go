package shadow

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/output"
	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/notice"
	"paddock/internal/backoff"
	"paddock/internal/hint"
	"paddock/spool"
)

// callLimit is how long an answer is waited for that waits for no event.
const callLimit = 30 * time.Second

// retries are the pauses after which a host that did not answer is asked again.
var retries = backoff.Doubling{First: time.Second, Most: 30 * time.Second}

// Execd is what is needed of the execd of this host. The fields are set before first use.
type Execd struct {
	Host    *base.Host // what the ends of runs need
	Root    *spool.Root
	Journal notice.Journal // writes what owners want to know; nil: nobody does
	// Streams remembers where jobs write.
	Streams *output.Index
	// Files has files travel where hosts share none.
	Files Files
	// On returns a client of another host for one of this host's users; empty: for this
	// host itself.
	On func(host, user string) *api.Client
	// Peers returns how the hosts are that execute.
	Peers func() []api.PeerStatus
	// Foremost returns the first jobs that wait for a slot here, in the order of their turn.
	Foremost func(most int) []schedule.Waiting
	// Depart enters a run among those of its user, or reports that he may have no more; with
	// runs it has begun already. Back is its end, with what it has used.
	Depart func(t *job.Task, runs bool) bool
	Back   func(t *job.Task, used schedule.Used)
	// Queues is told that other hosts have queues which they had not.
	Queues func()
	// Changed is told that the tasks of a job that wait have become others.
	Changed func(*job.Job)
	// JobAd returns the ad of a job as slots see it, and Domain the FILESYSTEM_DOMAIN of this
	// host; empty: it shares no file system.
	JobAd  func(*job.Job) *classad.Ad
	Domain func() string
}

// Files has the files of a run travel whose host shares none with this one. A Manager of
// package sandbox does.
type Files interface {
	// Plan gives a run that asks for it a sandbox here, in which what comes back may lie.
	Plan(t *job.Task, r *api.SubmitRequest, slot int, limit uint64) error
	// Pushes reports whether the run needs files before it starts. PushAway writes a part of
	// them behind what the other host has. Stop has a write return soon;
	// with zstd they are compressed.
	Pushes(t *job.Task, r *api.SubmitRequest) bool
	PushAway(ctx context.Context, t *job.Task, part api.StagePart, have string, zstd bool, to io.Writer, stop func(), report func(order.Progress)) error
	// PullAway has come what the run has left, and returns its root, when all of it is on
	// disk. Open has the other host send it, behind what there is; it is not called if all is
	// there. What of it is wanted is in the End of the run.
	PullAway(ctx context.Context, t *job.Task, open func(ctx context.Context, have string, read func(io.Reader) error) error, report func(order.Progress)) (root string, err error)
	// LandAway takes to where it belongs what has come. It may be repeated.
	LandAway(ctx context.Context, t *job.Task, report func(order.Progress)) error
	// DiscardAway removes what has come, since nobody wants it any more.
	DiscardAway(ctx context.Context, t *job.Task) error
	// Remove removes the sandbox of a run, and Unbox one that was kept for it.
	Remove(t *job.Task)
	Unbox(s *job.Sandbox)
}

// core is what the types of this package share: execd, the lock, and the goroutines that wait for
// hosts and disks.
type core struct {
	Execd

	work  sync.WaitGroup
	wake  hint.Chan // there may be something to be done
	renew hint.Chan // there may be another lease to be renewed

	mu  sync.Mutex
	ctx context.Context // guarded by mu; of all that is under way; nil: nothing is done yet
}

// Wake notes that there may be something to be done: a job waits, or the slots of another
// host have changed.
func (c *core) Wake() { c.wake.Give() }

// renewSoon has the leases looked at.
func (c *core) renewSoon() { c.renew.Give() }

// do does something in a goroutine of its own, until execd stops. c.mu is held.
func (c *core) do(f func(ctx context.Context)) {
	if ctx := c.ctx; ctx != nil && ctx.Err() == nil { // else the next execd finds it on disk
		c.work.Go(func() { f(ctx) })
	}
}

func (c *core) debugf(format string, args ...any) { c.Host.Log.Debug(fmt.Sprintf(format, args...)) }
func (c *core) logf(format string, args ...any)   { c.Host.Log.Info(fmt.Sprintf(format, args...)) }
func (c *core) warnf(format string, args ...any)  { c.Host.Log.Warn(fmt.Sprintf(format, args...)) }

// again tries something until it is done or ctx is, with a pause after each attempt. They are
// counted from 1.
func again(ctx context.Context, pause func(attempt int) time.Duration, try func(attempt int) (done bool)) error {
	for attempt := 1; !try(attempt); attempt++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause(attempt)):
		}
	}
	return nil
}
