package shadow

import "time"

// These make up for how long after the last request a host may still have a job run.
const (
	// renewPatience is how long a renewal is waited for.
	renewPatience = 10 * time.Second
	// killing is how long a host may take to end a job when its lease is over.
	killing = 30 * time.Second
)

// lease is that of a claim, or of the sandbox of a run whose claim is gone, as the host sees it
// that holds it. What counts is when it was tried to renew it last: if the answer was lost, the
// other host has renewed it.
type lease struct {
	length  time.Duration
	tried   time.Time // the last attempt to renew it was begun
	renewed time.Time // the last attempt that was answered was begun
	asked   time.Time // the last attempt was begun, though it may not have been sent

	renewing bool // an attempt is under way
	failures int  // attempts that failed since the last that was answered
}

// foundLease is a lease that an earlier execd has left. That may have renewed it until it ended,
// and may have been unable to for long: it is soon renewed.
func foundLease(length time.Duration, now time.Time) lease {
	return lease{length: length, tried: now, renewed: now, failures: 1}
}

// due is when it is to be renewed next.
func (l *lease) due() time.Time {
	third := l.length / 3
	if l.failures > 0 {
		third = min(third, retries.After(l.failures))
	}
	at := l.tried
	if l.asked.After(at) {
		at = l.asked
	}
	return at.Add(third)
}

// hopeless reports whether it is not to be renewed any more, since it is over at the other
// host unless an attempt without an answer has renewed it: from then on it is waited until
// that, too, is over.
func (l *lease) hopeless(now time.Time) bool { return now.After(l.renewed.Add(l.length)) }

// lost is when nothing runs under the claim any more, whatever has become of the attempts
// to renew it, if no more are made: the clocks of two hosts differ by 1 % at most.
func (l *lease) lost() time.Time {
	return l.tried.Add(renewPatience + l.length + l.length/100 + killing)
}

// ends is when the lease ends by the last answer, for people.
func (l *lease) ends() time.Time { return l.renewed.Add(l.length) }
