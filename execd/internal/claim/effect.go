package claim

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
)

// Do is the kind of an Effect.
type Do int

// The kinds of effects.
const (
	Suspend    Do = iota // suspend the job
	Resume               // resume it
	Hold                 // put the job in error, for Text, when it ends
	Stop                 // ask the job to end
	Kill                 // kill the job
	KillFamily           // kill it and everything it has started
	Evict                // report the Eviction
	Begin                // start Job under the claim of Slot
	Forget               // remove the file of the claim
	Rewrite              // write it again
	Say                  // write Text to the log, at Level
)

// Effect is something to be done outside of the locks, in this order.
type Effect struct {
	Do       Do
	Slot     slot.ID
	Task     string
	Reason   slot.Reason
	Text     string    // of Say: a line; of Hold: why; of what ends a job: Reason in words, or those of whoever gave the claim back
	Requeue  bool      // the job that ends is to run again
	Until    time.Time // of Stop: when the job is killed
	Subcode  int       // of Hold
	Level    slog.Level
	Eviction Eviction
	Job      *job.Job

	id ID
}

// Effects returns the effects since it was last called.
func (t *Table) Effects() []Effect {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.effects
	t.effects = nil
	return e
}

// say notes a line for the log, which is written without the lock, since a disk may hang.
func (t *Table) say(level slog.Level, format string, args ...any) {
	if t.o.Log.Enabled(context.Background(), level) {
		t.effects = append(t.effects, Effect{Do: Say, Level: level, Text: fmt.Sprintf(format, args...)})
	}
}
