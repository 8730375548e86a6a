package outcome

import (
	"time"

	"paddock/classad"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/policy"
	"paddock/spool"
)

// Obey makes of the end of a run to which the job has come by itself what the policy of the
// job wants: it is held, or runs again. The ad is that of the job, which had this status last.
func (f *Facts) Obey(of *classad.Ad, last ad.Status, now time.Time) {
	e := f.End
	switch e.Cause {
	case spool.CauseExit, spool.CauseSignal, spool.CauseResource:
	default:
		return // somebody wanted it, or something has failed
	}
	if e.Fate != job.FateDone || !f.Ran() {
		return
	}
	switch v := policy.Ended(ad.Ended(of, f.Ad(last, nil, now)), now); v.Action {
	case policy.Hold:
		e.Failed, e.Reason, e.Fate = spool.FailedApplication, v.Reason, job.FateError
		e.Why = &job.Why{Code: v.Code, Subcode: v.Subcode}
	case policy.Again:
		e.Failed, e.Reason, e.Fate, e.Cause = spool.FailedRescheduling, v.Reason, job.FateRequeue, spool.CauseAgain
	}
}
