package claim

import (
	"log/slog"
	"time"

	"paddock/classad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/internal/proc"
)

// Options are for managed slots. The functions are called with locks held, and must not
// block or call back.
type Options struct {
	Host  string
	Boot  time.Time // when this execd was started
	Store *Store    // nil: claims do not outlive execd
	Log   *slog.Logger
	Now   func() time.Time // nil: time.Now
	// Uptime is for how long the host has been up, by which leases go; nil: proc.Uptime.
	Uptime func() time.Duration
	BootID string // the kernel's, of this boot
	// Ad returns the ad of a slot; nil: an empty one.
	Ad func(*Info) *classad.Ad
	// JobOf returns, for policies, a running task that was started in a slot while that was
	// plain.
	JobOf func(task string) slot.Job
	// Share returns the resources of a number of slots of a queue; nil: only Cpus are
	// limited.
	Share func(queue string, slots int) slot.Resources
	// Closed says why a queue accepts no jobs, as the end of a sentence with "it is";
	// empty: it is open.
	Closed func(queue string) string
	// Leaving returns the runs that are over and whose output is still in their sandboxes;
	// nil: there is none. When it has changed Traffic is called, or the slots are deactivated
	// after which it has.
	Leaving func() []job.Leaving
	// Most returns how much output may be on its way for each claim, and for each slot of the
	// queue, while another of its jobs runs. 0: jobs keep their slots until it has arrived.
	Most func() int
	// Room returns how many KiB of disk are free for jobs; nil: plenty.
	Room func() int64
	// Idled is called with the time that a claim had no job, when it has one; nil: it is
	// not.
	Idled func(time.Duration)
}

// plenty is how much each slot has of a resource that is not counted.
const plenty = 1 << 40

// complete sets the defaults of options that are nil.
func (o *Options) complete() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Uptime == nil {
		o.Uptime = proc.Uptime
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Ad == nil {
		o.Ad = func(*Info) *classad.Ad { return classad.New() }
	}
	if o.Share == nil {
		o.Share = func(_ string, slots int) slot.Resources {
			return slot.Resources{Cpus: int64(slots), Memory: plenty, Disk: plenty}
		}
	}
	if o.Leaving == nil {
		o.Leaving = func() []job.Leaving { return nil }
	}
	if o.Most == nil {
		o.Most = func() int { return 0 }
	}
	if o.Room == nil {
		o.Room = func() int64 { return plenty }
	}
	if o.Closed == nil {
		o.Closed = func(string) string { return "" }
	}
}

// Info is what the ad of a slot is made from.
type Info struct {
	Slot    slot.ID
	Type    string // Static, Partitionable or Dynamic
	Queue   string
	Slots   int // of the host
	Now     time.Time
	Machine *slot.Machine // to be asked, not to be given events
	Policy  *slot.Policy

	// Has is what is left of Total in a partitionable slot, and what a dynamic slot has;
	// for others both are zero.
	Has, Total slot.Resources
	Children   []Child // of a partitionable slot
	// Leaving are the runs whose sandboxes take room of the slot, while their output leaves
	// them.
	Leaving []job.Leaving

	Holder, User string // of the claim; empty: none
	ID           ID
	Task         string      // that runs
	Job          slot.Job    // the same; nil: none, or not known of a plain slot
	Work         *classad.Ad // that was fetched, and is Task; nil: it came otherwise

	// All returns all slots of the host; it is valid while the ad is made.
	All func() []Neighbour
}

// Neighbour is what the ad of a slot may say about another one.
type Neighbour struct {
	Slot            slot.ID
	State, Activity string
	// Since when; zero of a plain slot.
	EnteredState, EnteredActivity time.Time

	User, Task string // who has a claim on it, and what runs; empty: nobody, nothing
}

// neighbours returns all slots for the ad of one.
func (t *Table) neighbours() []Neighbour {
	var list []Neighbour
	for _, q := range t.order {
		for _, s := range q.all() {
			n := Neighbour{Slot: s.id(), State: slot.Claimed.String(), Activity: s.activity.String(), Task: s.job}
			if m := s.managed; m != nil {
				p := m.machine.Place()
				n.State, n.Activity, n.Task = p.State.String(), p.Activity.String(), m.task
				n.EnteredState, n.EnteredActivity = m.machine.EnteredState(), m.machine.EnteredActivity()
				if c := m.claims[m.machine.Current().Number]; c != nil && !c.waiting {
					n.User = c.by.Name
				}
			}
			list = append(list, n)
		}
	}
	return list
}
