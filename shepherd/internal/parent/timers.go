package parent

import "time"

// timer is something the shepherd waits for by the clock.
type timer uint8

// The timers. An idle shepherd has none but those that end the job.
const (
	timerQuiet      timer = iota // the job has run for a moment: make ready for a long wait
	timerSweep                   // look again at what does not die
	timerHeld                    // the job has had time to get ready for signals
	timerLate                    // the procedure has used up its time
	timerKill                    // the procedure did not heed TERM
	timerNotify                  // the time between the warning and the signal is over
	timerSoft                    // s_rt
	timerHard                    // h_rt
	timerCheckpoint              // the next checkpoint is due
	timerHangup                  // the job has had time to heed the loss of its client
	timerMemory                  // the kernel has had time to kill a process
	timerLease                   // the job has had time to end with its lease
	timerCount
)

// timers are points in time by the monotonic clock, zero for none.
type timers [timerCount]time.Time

// after sets a timer; one that is set already is set anew.
func (t *timers) after(which timer, d time.Duration) { t[which] = time.Now().Add(d) }

func (t *timers) stop(which timer) { t[which] = time.Time{} }

func (t *timers) running(which timer) bool { return !t[which].IsZero() }

// patience returns how long the next wait may last, negative for ever: an
// idle shepherd is never woken by a clock.
func (t *timers) patience() time.Duration {
	var first time.Time
	for _, at := range t {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if first.IsZero() {
		return -1
	}
	return max(time.Until(first), 0)
}

// due returns and stops a timer whose time has come.
func (t *timers) due(now time.Time) (timer, bool) {
	for which, at := range t {
		if !at.IsZero() && !at.After(now) {
			t[which] = time.Time{}
			return timer(which), true
		}
	}
	return 0, false
}
