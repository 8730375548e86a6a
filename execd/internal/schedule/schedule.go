// Package schedule decides which task starts next, and on which slots: it
// knows what waits, what runs, what the host has, and the time it is told. It
// has no clock, no file, no goroutine and no lock of its own, so that a test
// can play any day in a moment; package queue calls it, one call at a time. It
// imports conf, and api for what a user asked and what qhost shows.
//
// The order depends on what -p says, the user's share (who used less of late comes
// first), the time waited and the urgency of what is asked for, each normalised to
// 0..1 and weighed by sched_conf(5). Among equals the job that was submitted first
// is first.
package schedule

import (
	"time"

	"paddock/execd/internal/conf"
)

// Job is what must be known of a job that has tasks to start. It is not
// changed after Add.
type Job struct {
	Number    int
	User      string
	Groups    []string  // of the user, for user lists
	Submitted time.Time // or when it was put back: its turn is counted from here
	Priority  int       // -p
	Reserve   bool      // -R y
	Now       bool      // -now y: it needs a queue of type INTERACTIVE
	Tasks     int       // tasks that may start now: pending, and allowed by -tc
	First     int       // number of the lowest of them: that one starts first

	Hard, Soft                       []Request
	Queues, SoftQueues, MasterQueues []string // patterns
	PE                               string   // name or pattern; empty: a serial job
	Slots                            []Range  // of -pe; empty for a serial job
	Checkpoint                       string
	Project                          string // of -P; empty: none
}

// Request is one element of -l that names an attribute of the complex.
type Request struct {
	Name  string // full name of the attribute
	Value conf.Value
}

// Range is a range of numbers of slots.
type Range struct{ Min, Max, Step int }

// Grant is where a task runs, and with what.
type Grant struct {
	PE     string       `json:"pe,omitempty"`
	Queues []QueueSlots `json:"queues"` // the first is the master's; no queue stands twice
	// Debits are the consumables it holds, on each level where they are
	// counted.
	Debits []Debit `json:"debits,omitempty"`
}

// Slots returns how many slots the grant has.
func (g *Grant) Slots() int {
	n := 0
	for _, q := range g.Queues {
		n += q.Slots
	}
	return n
}

// QueueSlots is a number of slots of a queue.
type QueueSlots struct {
	Queue string `json:"queue"`
	Slots int    `json:"slots"`
}

// Debit is an amount of a consumable. Of an exclusive attribute it is 1.
type Debit struct {
	Name   string   `json:"name"`            // of the attribute
	Queue  string   `json:"queue,omitempty"` // the queue that it is counted in; empty: the host's
	Amount float64  `json:"amount"`
	IDs    []string `json:"ids,omitempty"` // of a RSMAP: which units
}

// TaskID names a task; Task is 1 for a job that is no array.
type TaskID struct{ Job, Task int }

// Standing is what the priority of a task depends on beside its user and all
// others.
type Standing struct {
	Priority  int       // -p
	Submitted time.Time // as that of Job
	Resources float64   // what its requests contribute to its urgency
}

// Running is a task that holds a grant.
type Running struct {
	Job, Task int
	User      string
	Started   time.Time
	Duration  time.Duration // its h_rt; 0: not known
	Grant     *Grant
	Standing  *Standing // nil: it is not compared with others
	// Kept says that this is no task: the slots are somebody else's, who may
	// start something there at any time. Nobody is charged for them.
	Kept bool
}

// Gate says how many slots of a queue are willing to run a job now, counting to
// most, and, if none is, why, as the end of a sentence with "because". The same is
// true if all jobs of its user that ask for the same, with the same priority, get
// this answer.
type Gate func(job int, queue string, most int) (willing int, why string, same bool)

// Parts is what a priority is made of: three numbers of 0 to 1 before they are
// weighed, and the two of which the urgency is the sum before it is normalised.
type Parts struct {
	Priority  float64 `json:"priority"`
	Urgency   float64 `json:"urgency"`
	Share     float64 `json:"share"`
	Resources float64 `json:"resources,omitempty"`
	Waiting   float64 `json:"waiting,omitempty"`
}

// Used is what a task consumed, for the share of its user.
type Used struct {
	CPU float64 // seconds
	Mem float64 // GB seconds
	IO  float64 // GB
}

// QueueState is what qstat -f shows of a queue.
type QueueState struct {
	Name     string
	Used     int
	Reserved int // slots kept free for jobs with -R y
	Total    int
	Letters  string   // of a (load_thresholds), A (suspend_thresholds), S (subordinate), o (not configured any more)
	Reasons  []string // a line for each letter but o
}

// Share is the usage of a user, as it was when it was last added to.
type Share struct {
	Usage float64   `json:"usage"` // weighed by usage_weight_list
	Time  time.Time `json:"time"`
}
