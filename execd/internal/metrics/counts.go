package metrics

import (
	"sort"
	"sync"
	"time"
)

// Outcome is how a run has ended.
type Outcome int

// The outcomes.
const (
	Done      Outcome = iota // it exited with 0
	Exited                   // with another code
	Signalled                // by a signal that none of the following explains
	Limit                    // a limit ended it
	Deleted                  // somebody deleted it
	Requeued                 // it will run again
	Failed                   // it could not be run: the task is in error, or lost
)

// outcomes are the values of the label outcome.
var outcomes = [...]string{
	Done: "done", Exited: "exited", Signalled: "signalled", Limit: "limit", Deleted: "deleted", Requeued: "requeued", Failed: "failed",
}

// Transfer is how an attempt to transfer the files of a sandbox has ended.
type Transfer int

// The ends.
const (
	Arrived     Transfer = iota
	Again                // it failed, and is tried again by itself
	GivenUp              // it failed, and somebody has to look
	Interrupted          // its job was deleted, or execd stopped
)

// transfers are the values of the label outcome.
var transfers = [...]string{Arrived: "done", Again: "again", GivenUp: "stuck", Interrupted: "canceled"}

// direction is what is known of the transfers in one direction.
type direction struct {
	ended        [len(transfers)]uint64 // by Transfer
	bytes, files uint64                 // that have arrived
	took         durations              // those that have arrived
}

// directions are the values of the label direction: that of input comes first.
var directions = [...]string{"in", "out"}

// Arrow is a way of what is said of a job to those who may miss it.
type Arrow int

// The arrows on which what fails is dropped.
const (
	ToSlot    Arrow = iota // updates of a run to the ad of its slot
	ToHistory              // jobs that leave the queue
	ToStartd               // runs that leave their slots
	ToLog                  // changes of the queue
)

// arrows are the values of the label to.
var arrows = [...]string{ToSlot: "slot", ToHistory: "history", ToStartd: "startd_history", ToLog: "job_queue_log"}

// Fetch is what a call of FETCH_WORK has come to.
type Fetch int

// The results.
const (
	FetchedWork    Fetch = iota // it brought work, which was accepted
	FetchedNone                 // there was none
	FetchedRefused              // it brought work that had no place here, or was here already
	FetchedFailed               // it failed, or its answer made no sense
)

// fetches are the values of the label result.
var fetches = [...]string{FetchedWork: "work", FetchedNone: "none", FetchedRefused: "refused", FetchedFailed: "failed"}

// Counts counts runs since execd was started. The zero value is ready.
type Counts struct {
	mu                                    sync.Mutex
	started                               uint64                // guarded by mu, as all below
	ended                                 [len(outcomes)]uint64 // by Outcome
	waiting, starting, running, returning durations
	idle                                  durations
	transfers                             [len(directions)]direction
	dropped                               [len(arrows)]uint64              // by Arrow
	fetched                               map[string]*[len(fetches)]uint64 // by keyword, of which the configuration has few, and Fetch
	fetching                              durations
}

// Start counts a run that got its slots after waiting for a while.
func (c *Counts) Start(waiting time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started++
	c.waiting.add(waiting)
}

// End counts a run that has ended.
func (c *Counts) End(o Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[o]++
}

// Stages counts the times of a run: from its begin to the start of the shepherd, to the
// end of that, and to the accounting line. A run found after a restart has no known
// times, and is not counted.
func (c *Counts) Stages(starting, running, returning time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starting.add(starting)
	c.running.add(running)
	c.returning.add(returning)
}

// Idle counts how long a claim had nothing to run.
func (c *Counts) Idle(t time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle.add(t)
}

// Drop counts what was dropped on an arrow.
func (c *Counts) Drop(a Arrow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped[a]++
}

// Dropped returns how often something was dropped on an arrow.
func (c *Counts) Dropped(a Arrow) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped[a]
}

// Fetch counts a call of FETCH_WORK of a keyword.
func (c *Counts) Fetch(keyword string, result Fetch, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fetched == nil {
		c.fetched = map[string]*[len(fetches)]uint64{}
	}
	if c.fetched[keyword] == nil {
		c.fetched[keyword] = new([len(fetches)]uint64)
	}
	c.fetched[keyword][result]++
	c.fetching.add(took)
}

// Transfer counts an attempt to transfer files, and when they have arrived how much that
// was and how long the attempt took.
func (c *Counts) Transfer(output bool, end Transfer, bytes int64, files int, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := &c.transfers[0]
	if output {
		d = &c.transfers[1]
	}
	d.ended[end]++
	if end == Arrived {
		d.bytes += uint64(max(bytes, 0))
		d.files += uint64(max(files, 0))
		d.took.add(took)
	}
}

// buckets are the upper bounds of histograms, in seconds: from milliseconds, as a start
// takes, to a week.
var buckets = [...]float64{0.005, 0.01, 0.015, 0.02, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600}

// durations is a histogram.
type durations struct {
	counts [len(buckets) + 1]uint64 // of each bucket by itself; the last one has what is larger than all bounds
	sum    float64                  // seconds
}

func (d *durations) add(t time.Duration) {
	s := max(0, t.Seconds()) // the clock may have been set back
	d.counts[sort.SearchFloat64s(buckets[:], s)]++
	d.sum += s
}
