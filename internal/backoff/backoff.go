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
