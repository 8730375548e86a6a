package spool

// A Cause is why a run has ended. Grid Engine's numbers do not tell all of it, and its
// texts are for people.
type Cause string

// The causes, with the codes of failures that go with them.
const (
	CauseExit        Cause = "exit"        // the job came to its own end; 0
	CauseSignal      Cause = "signal"      // a signal ended it, and nobody said why; 100
	CauseResource    Cause = "resource"    // the kernel ended it: a limit, or no memory; 100
	CauseLimit       Cause = "limit"       // it was ended since it exceeded a limit; 37
	CauseDeleted     Cause = "deleted"     // somebody deleted it
	CauseLease       Cause = "lease"       // nobody has renewed the lease of its claim; 112
	CauseEvicted     Cause = "evicted"     // it had to leave its slot
	CauseHeld        Cause = "held"        // the policy of its slot puts it on hold
	CauseMigrated    Cause = "migrated"    // it goes on elsewhere; 24
	CauseRescheduled Cause = "rescheduled" // somebody had it run again; 25
	CauseAgain       Cause = "again"       // it asked to run again; 25
	CauseLost        Cause = "lost"        // its shepherd died, or the host; 1, 19
	CauseFailed      Cause = "failed"      // what is around it has failed: the other codes
)

// LeaseOver is the reason of a run that was ended with the lease of its claim, whoever of
// execd and shepherd has ended it.
const LeaseOver = "job was ended: the lease of its claim is over"

// keyCause is the key of ours that says why a job has ended.
const keyCause = "cause"

// Because notes why the job has ended, where only who watched it can tell.
func (u *Usage) Because(c Cause) {
	u.Extra = append(u.Extra, Entry{Key: keyCause, Value: string(c)})
}

// Cause returns why the run has ended, as far as its shepherd knows. A foreign one
// leaves codes and a signal alone.
func (o *Outcome) Cause() Cause {
	switch o.Failed {
	case FailedEnforcedLimit:
		return CauseLimit
	case FailedLease:
		return CauseLease
	case FailedMigrating:
		return CauseMigrated
	case FailedRescheduling:
		return CauseAgain
	case FailedBeforeJob, FailedNoExitStatus:
		return CauseLost
	}
	u := o.Usage
	if u == nil {
		return CauseFailed
	}
	for _, e := range u.Extra {
		if e.Key == keyCause && Cause(e.Value) == CauseResource {
			return CauseResource
		}
	}
	switch {
	case u.Signal != 0:
		return CauseSignal
	case o.Failed == FailedNone || u.ExitStatus != 0:
		return CauseExit
	}
	return CauseFailed
}
