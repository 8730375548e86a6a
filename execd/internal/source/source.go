// Package source has who jobs come from: the queue, which has them of qsub, what is
// fetched by hooks, and the programs that claim slots. Each is told what becomes of
// its jobs and claims, as far as nobody else would do something about it. A new one
// implements Source, and daemon enters it in the Sources.
//
// It imports ad, claim and job. Stage and queue tell the sources, and daemon has them all.
package source

import (
	"paddock/execd/internal/claim"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
)

// Source is who jobs come from. All but Over and Abandoned may block.
type Source interface {
	// Queued reports whether jobs wait in the queue, which starts them: for the first
	// time, to run again, or in error. Else a job that is not run is over.
	Queued() bool
	// Over tells that a run has ended, and its exit hook with it, before its slot is free;
	// and whether that was told that it is to be done again.
	Over(j *job.Job, again bool)
	// Abandoned tells that a job is not run, before its slot is free, and why: with the
	// code of a hold where it would wait in error in a queue.
	Abandoned(j *job.Job, why slot.Hold)
	// Unstarted tells that a job is not run, and waits for nothing: it could not be
	// started when the slot that was promised was its own, or it was deleted.
	Unstarted(j *job.Job, reason string)
	// Deleting tells that a job is about to be deleted that waits. What it returns takes
	// that back, since the job stays after all.
	Deleting(j *job.Job) (undo func())
	// Stray tells of a job that waits, and is not the queue's to start: its run has come
	// to nothing, or an earlier execd has not started it.
	Stray(j *job.Job)
	// Evicted tells that a claim is over.
	Evicted(e claim.Eviction)
}

// Sources are those of a host, by who holds the claims of their jobs. They are there
// before the first job is.
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
