// Package backoff spaces attempts: after each one that fails the next is twice as
// far away, up to a bound. It has no clock; who waits does so with a timer or a
// context of his own. Everybody may import it but packages that stand alone; it
// imports the standard library alone.
package backoff

import "time"

// Doubling is a sequence of pauses, each twice as long as the one before.
type Doubling struct{ First, Most time.Duration }

// Restart has the pauses between the calls of a client while execd is being restarted.
var Restart = Doubling{First: 100 * time.Millisecond, Most: 5 * time.Second}

// Next returns the pause that follows last; after 0 it is the first.
func (d Doubling) Next(last time.Duration) time.Duration {
	return min(max(2*last, d.First), d.Most)
}

// After returns the pause after a number of attempts that failed; after none it is 0.
func (d Doubling) After(failures int) time.Duration {
	var pause time.Duration
	for ; failures > 0 && pause < d.Most; failures-- {
		pause = d.Next(pause)
	}
	return pause
}

// Programs has the pauses between the starts of a program that execd keeps going.
var Programs = Doubling{First: time.Second, Most: 5 * time.Minute}

// Restarts says when such a program may be started again that has ended: after a pause of
// Programs, which is the first again when the program was of use in between. It has no lock.
type Restarts struct {
	pause     time.Duration
	notBefore time.Time
}

// Ended notes that the program has ended, or could not be started, and returns the pause
// before the next start.
func (r *Restarts) Ended(now time.Time) time.Duration {
	r.pause = Programs.Next(r.pause)
	r.notBefore = now.Add(r.pause)
	return r.pause
}

// Useful notes that the program does what it is there for.
func (r *Restarts) Useful() { r.pause = 0 }

// Wait returns how long it is to the next start; not more than 0: it may be now.
func (r *Restarts) Wait(now time.Time) time.Duration { return r.notBefore.Sub(now) }
