// Package report reads what other hosts tell of runs there. They may say anything: what cannot be
// is not taken over.
//
// Package shadow alone imports it.
package report

import (
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/ad"
	"paddock/spool"
)

const (
	// maxLine bounds an accounting line, in bytes.
	maxLine = 64 << 10
	// maxFailed is the largest code of a failure.
	maxFailed = spool.FailedLease
	// maxRun bounds for how long a job may have run.
	maxRun = 100 * 365 * 24 * time.Hour
)

// End is how a run has ended.
type End struct {
	*api.ActivationEnd
	Used *accounting.Record // nil: nothing is known of what it has used
}

// EndOf reads an end with what was used.
func EndOf(e *api.ActivationEnd) End {
	end := End{ActivationEnd: e}
	if rec, err := accounting.Parse([]byte(e.Accounting)); err == nil && len(e.Accounting) <= maxLine && plausible(&rec) {
		end.Used = &rec
	}
	return end
}

// plausible reports whether nothing that a record says was used is less than nothing.
func plausible(rec *accounting.Record) bool {
	for _, n := range []float64{
		rec.RuUTime, rec.RuSTime, rec.RuMaxRSS, rec.RuInBlock, rec.CPU, rec.Mem, rec.IO, rec.IOW, rec.MaxVMem,
		float64(rec.StartTime), float64(rec.EndTime - rec.StartTime), float64(rec.RuWallclock),
	} {
		if !(n >= 0 && n < 1e18) { // nor is it no number
			return false
		}
	}
	return true
}

// Outcome is the end as a shepherd of this host would have told it.
func (e *End) Outcome() spool.Outcome {
	if e.Exit < 0 || e.Exit > 255 || e.Failed < 0 || e.Failed > maxFailed {
		return spool.Outcome{Failed: spool.FailedUnexpectedError, Blame: spool.BlameSystem, Reason: "its host has told of an end that cannot be"}
	}
	out := spool.Outcome{Failed: e.Failed, Blame: spool.BlameOf(e.Failed), Reason: api.Visible(api.Short(e.Reason))}
	if u := e.Used; u == nil && !e.Started.IsZero() && !e.Ended.Before(e.Started) && e.Ended.Sub(e.Started) < maxRun {
		// It has run, and what it has used is told later.
		out.Usage = &spool.Usage{ExitStatus: e.Exit, Start: e.Started.Unix(), End: e.Ended.Unix(), Wallclock: int64(e.Ended.Sub(e.Started) / time.Second)}
	} else if u != nil && u.StartTime > 0 {
		out.Usage = &spool.Usage{ExitStatus: e.Exit, Start: u.StartTime, End: u.EndTime, Wallclock: u.RuWallclock, UTime: seconds(u.RuUTime), STime: seconds(u.RuSTime), MaxRSS: int64(u.RuMaxRSS)}
		if e.Exit > 128 && e.Failed == spool.FailedAfterJob {
			out.Usage.Signal = e.Exit - 128
		}
	}
	return out
}

// StatusOf reads the attributes of a run in an update, or in the record of its job; nil: there are
// none. Most is within what time the next comes.
func StatusOf(text string) (s *ad.Status, most time.Duration) {
	if text == "" || len(text) > api.MaxUpdate {
		return nil, 0
	}
	said, err := classad.ParseOld(text)
	if err != nil {
		return nil, 0
	}
	env := &classad.Env{My: said}
	number := func(name string) float64 {
		n, ok := env.Attr(name).Number()
		if !ok || !(n >= 0 && n < 1e18) {
			return 0
		}
		return n
	}
	state, _ := env.Attr("JobState").Str()
	s = &ad.Status{
		Suspended: state == "Suspended", Processes: int(number("NumPids")), SysCPU: seconds(number("RemoteSysCpu")), UserCPU: seconds(number("RemoteUserCpu")),
		ImageSize: int64(number("ImageSize")), ResidentSetSize: int64(number("ResidentSetSize")),
	}
	if at := number("JobStartDate"); at > 0 {
		s.Started = time.Unix(int64(at), 0)
	}
	return s, seconds(number("JobInfoMaxInterval"))
}

// seconds returns a time of so many seconds, at most that for which a job may have run.
func seconds(n float64) time.Duration {
	return time.Duration(min(n, maxRun.Seconds()) * float64(time.Second))
}
