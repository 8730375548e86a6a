// Package schedule decides which task starts next, and on which slots: it knows what
// waits, what runs, what the host has, and the time it is given. It has no clock, no
// file, no goroutine and no lock of its own, so that a test can play any day in a
// moment; package queue calls it, one call at a time. It imports conf, and api for the
// requests of users and the values that qhost shows.
//
// The order depends on -p, the user's share (the user who used less of late comes
// first), the time waited and the urgency of the requests, each normalised to 0..1 and
// weighted by sched_conf(5). Among equals the job that was submitted first comes first.
package schedule

import (
	"time"

	"paddock/execd/internal/conf"
)

// Job is what the Scheduler knows of a job with tasks to start. It must not change
// after Add.
type Job struct {
	Number    int
	User      string
	Groups    []string  // of the user, for user lists
	Submitted time.Time // or when it was put back; the waiting time counts from here
	Priority  int       // -p
	Reserve   bool      // -R y
	Now       bool      // -now y: it needs a queue of type INTERACTIVE
	Tasks     int       // tasks that may start now: pending and allowed by -tc
	First     int       // the lowest number of them, which starts first

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
	Queues []QueueSlots `json:"queues"` // the first is the master's; each queue stands once
	// Debits are the consumables that the task holds, on each level where they are
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

// Debit is an amount of a consumable; 1 of an exclusive attribute.
type Debit struct {
	Name   string   `json:"name"`            // of the attribute
	Queue  string   `json:"queue,omitempty"` // the queue that counts it; empty: the host
	Amount float64  `json:"amount"`
	IDs    []string `json:"ids,omitempty"` // of a RSMAP: which units
}

// TaskID names a task; Task is 1 for a job that is no array.
type TaskID struct{ Job, Task int }

// Standing is what the priority of a task depends on, beside the share of its user.
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
	Duration  time.Duration // by h_rt; 0: not known
	Grant     *Grant
	Standing  *Standing // nil: the task is not compared with others
	// Kept marks a grant that is no task: a claim has the slots, whose holder may start
	// a job there at any time. No user is charged for it.
	Kept bool
	Why  string // of Kept, what is said of it to those who wait; empty: nothing
	// Away says that the task runs on another host: it counts among those of its user, and
	// its Grant has nothing.
	Away bool
}

// Gate returns how many slots of a queue, counted up to most, are willing to run a job
// now and, if none is, why, as the end of a sentence with "because". same reports that
// all jobs of its user with the same requests and priority get this answer.
type Gate func(job int, queue string, most int) (willing int, why string, same bool)

// Parts is what a priority is made of: three numbers of 0 to 1 before they are
// weighted, and the two whose sum is the urgency before it is normalised.
type Parts struct {
	Priority  float64 `json:"priority"`
	Urgency   float64 `json:"urgency"`
	Share     float64 `json:"share"`
	Resources float64 `json:"resources,omitempty"`
	Waiting   float64 `json:"waiting,omitempty"`
}

// Used is the usage of a task that is added to the share of its user.
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

// Share is the usage of a user when it was last changed.
type Share struct {
	Usage float64   `json:"usage"` // weighted by usage_weight_list
	Time  time.Time `json:"time"`
}
