// Package source has who jobs come from: the queue, which has them of qsub, what is
// fetched by hooks, and the programs that claim slots. Each is told what becomes of
// its jobs and claims, as far as nobody else would do something about it. A new one
// implements Source, and daemon enters it in the Sources.
//
// It imports ad, claim, job and classad. Stage and queue tell the sources, and daemon has them all.
package source

import (
	"paddock/classad"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
)

// Source is where jobs come from. All methods but Over and Abandoned may block.
type Source interface {
	// Queued reports whether jobs wait in the queue, which starts them: for the first
	// time, to run again, or in error. Otherwise a job that is not run is over.
	Queued() bool
	// Over is called when a run and its exit hook have ended, before the slot is free.
	// Again says that the hook was told that the work is to be done again.
	Over(j *job.Job, again bool)
	// Report is called before the end of a run is recorded, with the word that hooks are told
	// of it, and what makes of the ad of the work that of work that has ended. After an error it
	// is called again, and the end not recorded before. Recorded is called when it is.
	Report(j *job.Job, word string, ended func(work *classad.Ad) *classad.Ad) error
	Recorded(j *job.Job)
	// Abandoned is called when a job is not run, before the slot is free, with the reason,
	// and with the code of a hold if the job would wait in error in a queue.
	Abandoned(j *job.Job, why slot.Hold)
	// Unstarted is called when a job is not run and does not wait any more: it could not be
	// started when it had the promised slot, or it was deleted.
	Unstarted(j *job.Job, reason string)
	// Deleting is called before a waiting job is deleted. If the job stays after all, undo
	// is called.
	Deleting(j *job.Job) (undo func())
	// Stray is called for a waiting job that the queue does not start: its run has not
	// begun, or an earlier execd has not started it.
	Stray(j *job.Job)
	// Evicted is called when a claim is over.
	Evicted(e claim.Eviction)
}

// Sources are the sources of a host, by the holder of the claims of their jobs. They exist
// before the first job.
type Sources map[string]Source

// Users holds the place of all users in Sources: each holds claims by his own name.
const Users = "*"

// Of returns the source whose claims somebody holds; empty: the queue.
func (s Sources) Of(holder string) Source {
	if from := s[holder]; from != nil {
		return from
	}
	if from := s[Users]; from != nil && holder != "" {
		return from
	}
	return Queue{}
}

// Queue is the source of what came by qsub: the queue itself does what is to be done.
type Queue struct{}

// Queued implements Source.
func (Queue) Queued() bool { return true }

// Over implements Source.
func (Queue) Over(*job.Job, bool) {}

// Report implements Source.
func (Queue) Report(*job.Job, string, func(*classad.Ad) *classad.Ad) error { return nil }

// Recorded implements Source.
func (Queue) Recorded(*job.Job) {}

// Abandoned implements Source.
func (Queue) Abandoned(*job.Job, slot.Hold) {}

// Unstarted implements Source.
func (Queue) Unstarted(*job.Job, string) {}

// Deleting implements Source.
func (Queue) Deleting(*job.Job) (undo func()) { return func() {} }

// Stray implements Source.
func (Queue) Stray(*job.Job) {}

// Evicted implements Source.
func (Queue) Evicted(claim.Eviction) {}
