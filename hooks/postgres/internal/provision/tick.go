package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// After as many failures in a row a pool is paused until somebody has looked.
const (
	maxSubmitFailures = 10
	maxStartFailures  = 3
)

// Memory is what is remembered of a pool from one tick to the next.
type Memory struct {
	Last           int    // pilots that the last tick submitted which submitted any
	SubmitFailures int    // in a row
	StartFailures  int    // pilots in a row that ended and never took part
	Paused         string // why; empty: it is not
}

// Known is what is known of a pilot that was not over at the last tick.
type Known struct {
	Started bool      // it has said hello
	Ends    time.Time // zero: it did not say
	Used    int64     // processors of it that work has
}

// Queue is the database.
type Queue interface {
	// Pool returns what is remembered, and the pilots by their numbers.
	Pool(ctx context.Context, name string) (Memory, map[string]Known, error)
	Demand(ctx context.Context, queues []string) ([]Demand, error)
	Submitted(ctx context.Context, pool, id string) error
	Over(ctx context.Context, pool, id string) error
	Remember(ctx context.Context, pool string, m Memory) error
}

// Tick looks once after a pool, and writes what it does to out. A dry one changes nothing.
func Tick(ctx context.Context, c *Config, s Scheduler, q Queue, dry bool, out io.Writer) error {
	// What runs is asked first, and nothing is done if that is not known.
	states, err := s.States(ctx, c.JobName())
	if err != nil {
		return fmt.Errorf("nothing is submitted, since it is not known what there is: %w", err)
	}
	memory, known, err := q.Pool(ctx, c.Name)
	if err != nil {
		return err
	}
	demand, err := q.Demand(ctx, c.Queues)
	if err != nil {
		return err
	}
	t := &tick{Config: c, scheduler: s, queue: q, dry: dry, out: out, memory: memory}
	err = t.run(ctx, states, known, demand)
	if !dry && t.memory != memory {
		err = errors.Join(err, q.Remember(ctx, c.Name, t.memory))
	}
	return err
}

type tick struct {
	*Config
	scheduler Scheduler
	queue     Queue
	dry       bool
	out       io.Writer
	memory    Memory
}

func (t *tick) say(format string, args ...any) { fmt.Fprintf(t.out, t.Name+": "+format+"\n", args...) }

func (t *tick) run(ctx context.Context, states map[string]State, known map[string]Known, demand []Demand) error {
	if err := t.over(ctx, states, known); err != nil {
		return err
	}
	var pilots []Pilot
	var queued []string
	for _, id := range slices.Sorted(maps.Keys(states)) {
		k := known[id]
		p := Pilot{State: states[id], Ends: k.Ends, Free: t.Size.CPUs - k.Used}
		if p.State == Queued {
			queued = append(queued, id)
		}
		pilots = append(pilots, p)
	}
	d := Decide(&t.Pool, demand, pilots, t.memory.Last, time.Now())
	t.say("%d pilots run, %d are queued; %s", len(pilots)-len(queued), len(queued), d.Why)
	if t.memory.Paused != "" && d.Submit > 0 {
		t.say("paused, nothing is submitted: %s; paddock-pg provision -resume goes on", t.memory.Paused)
		d.Submit = 0
	}
	for _, id := range queued[len(queued)-d.Cancel:] {
		if err := t.cancel(ctx, id); err != nil {
			return err
		}
	}
	return t.submit(ctx, d.Submit)
}

// over notes which pilots are over, and whether they have been of use.
func (t *tick) over(ctx context.Context, states map[string]State, known map[string]Known) error {
	for _, id := range slices.Sorted(maps.Keys(known)) {
		k := known[id]
		if k.Started {
			t.memory.StartFailures = 0
		}
		if states[id] != Over {
			continue
		}
		if !k.Started {
			t.memory.StartFailures++
			t.say("pilot %s is over and never took part", id)
		} else {
			t.say("pilot %s is over", id)
		}
		if t.memory.StartFailures >= maxStartFailures && t.memory.Paused == "" {
			t.memory.Paused = fmt.Sprintf("%d pilots in a row ended and never took part, the last was %s", t.memory.StartFailures, id)
		}
		if !t.dry {
			if err := t.queue.Over(ctx, t.Name, id); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tick) cancel(ctx context.Context, id string) error {
	if t.dry {
		t.say("would cancel pilot %s, which is queued", id)
		return nil
	}
	gone, err := t.scheduler.Cancel(ctx, t.JobName(), id)
	switch {
	case err != nil:
		return fmt.Errorf("cannot cancel pilot %s: %w", id, err)
	case !gone:
		t.say("pilot %s has been started and goes on", id)
		return nil
	}
	t.say("canceled pilot %s, which was queued", id)
	return t.queue.Over(ctx, t.Name, id)
}

func (t *tick) submit(ctx context.Context, n int) error {
	if n > 0 {
		t.memory.Last = n
	}
	for range n {
		if t.dry {
			t.say("would submit a pilot: %q", t.Submit)
			continue
		}
		id, err := t.scheduler.Submit(ctx, t.JobName(), t.Submit)
		if err != nil {
			if t.memory.SubmitFailures++; t.memory.SubmitFailures >= maxSubmitFailures {
				t.memory.Paused = fmt.Sprintf("%d submissions in a row failed, the last: %v", t.memory.SubmitFailures, err)
			}
			return fmt.Errorf("cannot submit a pilot: %w", err)
		}
		t.memory.SubmitFailures = 0
		t.say("submitted pilot %s", id)
		if err := t.queue.Submitted(ctx, t.Name, id); err != nil {
			return err
		}
	}
	return nil
}
