// Package base has what stage and the packages below it share: what a run needs of execd,
// from what its directory is made, and where the work on it is done. Only they, shadow and
// the daemon use it.
package base

import (
	"context"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/account"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/history"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/mail"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/source"
	"paddock/execd/internal/timeline"
	"paddock/execd/internal/usage"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// Host is what all runs need of execd. The fields are set before first use.
type Host struct {
	Name     string
	Boot     string // id of this boot
	Store    *job.Store
	Launcher *launch.Launcher
	Queue    *queue.Queue
	GIDs     *queue.GIDs
	Book     *account.Book
	Users    *user.Directory
	Config   func() *conf.Config
	Usage    *usage.Sampler
	Mail     *mail.Sender
	Counts   *metrics.Counts
	Timeline *timeline.Timeline // nil: nobody looks at what runs did
	Sources  source.Sources
	Log      *slog.Logger

	// What jobs may have beside themselves; nil: none has.
	Hooks     Caller             // runs hooks, and the scripts of fetched work
	HookTable func() *hook.Table // the hooks of the present configuration
	Input     Input
	Output    Output
	Sandboxes Sandboxes // where runs plan and remove theirs
	// Patience is for how long output that could not be delivered is tried again before it
	// waits for somebody to look.
	Patience func() time.Duration
	// Keep is for how long it waits then before it is given up; 0: for ever.
	Keep func() time.Duration

	Followers Followers // nil: nobody follows a job

	History *history.File // of jobs that leave the queue; nil: there is none
	Runs    *history.File // of runs that leave their slots; nil: there is none

	// Judges reports whether a policy of slots may look at jobs that run; nil: none does.
	Judges func() bool
	// SlotOf finds the slot that a task runs on, the first where it has several: its
	// number, 0 if it is not known, and with ads its ad.
	SlotOf func(t *job.Task, ads bool) (id slot.ID, ad *classad.Ad)
	// JobAd returns the ad of the job of a task as slots see it.
	JobAd func(t *job.Task) *classad.Ad

	Pool
}

// Caller runs hooks; a *hook.Runner does.
type Caller interface {
	Run(ctx context.Context, c hook.Call) hook.Result
}

// Input takes the files of a job to where it runs, before it does.
type Input interface {
	// Has reports whether a run has files to be transferred, or a place for them.
	Has(t *job.Task) bool
	// Fetch does so, as Send does its part.
	Fetch(ctx context.Context, t *job.Task, report func(Progress)) error
}

// Output takes the files of a job to where they belong, when it has ended.
type Output interface {
	// Leaves returns after which ends of its job the files of a run that is over are
	// transferred, whether there are any, and whether it has written to standard streams that
	// are transferred by themselves, when its files are not wanted.
	Leaves(t *job.Task) (when api.WhenOut, files, streams bool)
	// Async reports whether the slots of a run are free while that is done.
	Async(t *job.Task) bool
	// Freeze notes that the files of a run are on their way, before its slots are free, the
	// first of which has a number in its queue. Arrived notes that they are not any more. Each
	// may be called again.
	Freeze(t *job.Task, slot int)
	Arrived(t *job.Task)
	// Send does so, and returns at the end. It may be called again for what it has
	// done or begun, also by the next execd. A *exit.Permanent says that no other
	// attempt would mend it; all else may pass. It returns soon when ctx is
	// cancelled, with the cause ErrStopped when execd stops: then nothing is given
	// up, and what can go on without execd may do so. Report is called now and then.
	Send(ctx context.Context, t *job.Task, report func(Progress)) error
	// Size returns how many bytes they have; 0: it is not known.
	Size(s *job.Sandbox) int64
	// Sync returns when the files of a run that has ended are on disk, so that Send may
	// go on with them after a power cut. It returns soon when ctx is cancelled.
	Sync(ctx context.Context, t *job.Task) error
	// Discard removes what of them has arrived where they belong and is not whole, since
	// nobody wants them any more.
	Discard(ctx context.Context, t *job.Task) error
}

// Followers are told what becomes of jobs that they follow. No method blocks.
type Followers interface {
	// Tell tells of an event, of which the numbers are not set yet.
	Tell(j *job.Job, e api.ActivationEvent)
	// Acknowledged reports whether nobody waits for the end of a job any more. If not, again
	// is called when that is so.
	Acknowledged(j *job.Job, again func()) bool
}

// Progress is how far a transfer has come. Total is 0 as long as it is not known.
type Progress = order.Progress

// Sandboxes has the directories of their own in which runs work that ask for one.
type Sandboxes interface {
	// Plan notes that of a run which is to be started, and may have so many bytes in it; 0:
	// any number. Nothing is made yet. Slot is the first slot of the run, by its number in
	// the queue.
	Plan(t *job.Task, request *api.SubmitRequest, slot int, limit uint64) error
	// Full says that it was full; empty: it was not.
	Full(t *job.Task) string
	// Keeps reports whether the next run goes on in it when the job has to leave its slot.
	Keeps(t *job.Task) bool
	// Remove removes it, now or later. There may be none any more, or never was one.
	Remove(t *job.Task)
}

// From returns who the job of a task came from.
func (h *Host) From(t *job.Task) source.Source { return h.Sources.Of(t.Job.Source) }

// Followed reports whether somebody is told what becomes of a task.
func (h *Host) Followed(t *job.Task) bool { return h.Followers != nil && t.Job.Activation != nil }

// FromHome is what a line of the log says of the job of another host of which a task is a
// run, with a blank before it; empty: it is of none.
func FromHome(t *job.Task) string {
	if a := t.Job.Activation; a != nil && a.Home != nil {
		return fmt.Sprintf(" from=%q", a.Home)
	}
	return ""
}

// Signal asks the shepherd of a run to give its job a signal.
func (h *Host) Signal(run spool.RunID, sig syscall.Signal) {
	if err := h.Launcher.Signal(run, sig); err != nil {
		h.Log.Debug(err.Error()) // gone, and its end is on its way; or not found again yet
	}
}

// Found logs a run that an earlier execd has started, and starts to measure its usage.
func (h *Host) Found(run spool.RunID, started time.Time) {
	h.Log.Info(fmt.Sprintf("job %v: found after the restart: runs", run.ID()))
	m, err := h.Launcher.MeasuredAgain(run, started)
	if err != nil {
		h.Log.Warn(fmt.Sprintf("job %v: its usage is not looked at: %v", run.ID(), err))
		return
	}
	h.Usage.Add(run, m)
}
