// Package provision decides how many pilots a cluster is to be asked for, and asks it.
//
// A pilot is an execd that runs as a job of another batch system and takes work from the queue
// while it lasts; see pilot(7). Only the commands of paddock-pg import this package.
package provision

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Size is what a pilot has, or what a job needs.
type Size struct {
	CPUs   int64
	Memory int64 // MB
	GPUs   int64
}

// Demand is jobs that wait and are placed alike.
type Demand struct {
	Ready   int64
	Size    Size
	Seconds int64 // how long each runs; 0: it does not say
}

// Pool is where pilots are to run, and how many of them.
type Pool struct {
	Size      Size          // of each pilot
	Lasts     time.Duration // what each asks its scheduler for
	Grace     time.Duration // of that, what a pilot needs to leave
	MaxPilots int
	MaxQueued int // those that the scheduler has not started yet
}

// Usable is how long a job may run in a new pilot.
func (p *Pool) Usable() time.Duration { return max(p.Lasts-p.Grace, 0) }

// State is what a scheduler says of a pilot.
type State int

// A pilot that a scheduler does not know any more is over.
const (
	Over State = iota
	Queued
	Running
)

// Pilot is one that was submitted and is not over.
type Pilot struct {
	State State
	Ends  time.Time // of a running one: when it has to have left
	Free  int64     // of a running one: processors that no work has
}

// Decision is what a tick does, and why, for people to read.
type Decision struct {
	Submit int
	Cancel int // of those that are queued
	Why    string
}

// Decide returns what to do about a pool. Last is how many pilots the last tick submitted: it is
// at most doubled, since what waits may be gone before the first of them starts.
func Decide(pool *Pool, demand []Demand, pilots []Pilot, last int, now time.Time) Decision {
	need, fits := cores(pool, demand)
	have, queued := int64(0), 0
	for _, p := range pilots {
		switch p.State {
		case Queued:
			queued++
			have += pool.Size.CPUs
		case Running:
			if p.Ends.IsZero() || p.Ends.Sub(now) > pool.Grace {
				have += p.Free
			}
		}
	}
	switch {
	case fits == 0 && queued > 0:
		return Decision{Cancel: queued, Why: "nothing that waits fits a pilot"}
	case fits == 0:
		return Decision{Why: "nothing that waits fits a pilot"}
	case need <= have:
		surplus := min(int((have-need)/pool.Size.CPUs), queued)
		return Decision{Cancel: surplus, Why: fmt.Sprintf("%d processors are needed, and %d are there or asked for", need, have)}
	}
	want := int(min((need-have+pool.Size.CPUs-1)/pool.Size.CPUs, math.MaxInt32))
	why := []string{fmt.Sprintf("%d processors are needed, %d are there or asked for; more pilots wanted: %d", need, have, want)}
	submit := want
	for _, bound := range []struct {
		most int
		text string
	}{
		{pool.MaxPilots - len(pilots), fmt.Sprintf("at most %d pilots", pool.MaxPilots)},
		{pool.MaxQueued - queued, fmt.Sprintf("at most %d queued", pool.MaxQueued)},
		{max(1, 2*last), "at most twice as many as the last time"},
	} {
		if bound.most < submit {
			submit = max(bound.most, 0)
			why = append(why, bound.text)
		}
	}
	return Decision{Submit: submit, Why: strings.Join(why, ", ")}
}

// cores returns how many processors the jobs need that a pilot could run, and how many jobs
// those are. One that says how long it runs leaves room for others behind it.
func cores(pool *Pool, demand []Demand) (need, fits int64) {
	usable := int64(pool.Usable() / time.Second)
	for _, d := range demand {
		size := Size{max(d.Size.CPUs, 1), d.Size.Memory, d.Size.GPUs}
		if d.Ready <= 0 || size.CPUs > pool.Size.CPUs || size.Memory > pool.Size.Memory || size.GPUs > pool.Size.GPUs || d.Seconds > usable {
			continue
		}
		one := int64(1) // jobs that one after another fit into a pilot's time
		if d.Seconds > 0 {
			one = max(usable/d.Seconds, 1)
		}
		// How many of a pilot's processors such a job keeps from others, if memory or GPUs are
		// what runs out first.
		beside := pool.Size.CPUs / size.CPUs
		if size.Memory > 0 {
			beside = min(beside, pool.Size.Memory/size.Memory)
		}
		if size.GPUs > 0 {
			beside = min(beside, pool.Size.GPUs/size.GPUs)
		}
		fits += d.Ready
		places := (d.Ready + one - 1) / one
		need += (places*pool.Size.CPUs + beside - 1) / beside
	}
	return need, fits
}
