package outcome

import (
	"syscall"
	"testing"

	"paddock/execd/internal/job"
	"paddock/spool"
)

// What a batch system ends with its pilot had to leave, so that it is done elsewhere; what has
// ended of itself, or was ended here, has not.
func TestHosted(t *testing.T) {
	died := func(s syscall.Signal) *spool.Usage { return &spool.Usage{Signal: int(s), ExitStatus: 128 + int(s)} }
	asked := func(s, by syscall.Signal) *spool.Usage {
		u := died(s)
		u.Ask(int(by))
		return u
	}
	for name, tt := range map[string]struct {
		hosted bool
		want   *job.Want
		out    spool.Outcome
		cause  spool.Cause
		reason string
	}{
		"TERM":                      {true, nil, spool.Outcome{Usage: died(syscall.SIGTERM)}, spool.CauseEvicted, "evicted by the batch system: killed by signal TERM (15)"},
		"USR2":                      {true, nil, spool.Outcome{Usage: died(syscall.SIGUSR2)}, spool.CauseEvicted, "evicted by the batch system: killed by signal USR2 (12)"},
		"USR2 of its shepherd":      {true, nil, spool.Outcome{Usage: asked(syscall.SIGXCPU, syscall.SIGXCPU)}, spool.CauseEvicted, "evicted by the batch system: killed by signal XCPU (24)"},
		"USR2 of both":              {true, nil, spool.Outcome{Usage: asked(syscall.SIGUSR2, syscall.SIGXCPU)}, spool.CauseEvicted, "evicted by the batch system: killed by signal USR2 (12)"},
		"XCPU of its own":           {true, nil, spool.Outcome{Usage: asked(syscall.SIGXCPU, 0)}, "", "killed by signal XCPU (24)"},
		"asked to end":              {true, nil, spool.Outcome{Usage: asked(syscall.SIGTERM, syscall.SIGTERM)}, "", "killed by signal TERM (15)"},
		"no pilot":                  {false, nil, spool.Outcome{Usage: died(syscall.SIGTERM)}, "", "killed by signal TERM (15)"},
		"a fault":                   {true, nil, spool.Outcome{Usage: died(syscall.SIGSEGV)}, "", "killed by signal SEGV (11)"},
		"its own end":               {true, nil, spool.Outcome{Usage: &spool.Usage{ExitStatus: 143}}, "", ""},
		"before it began":           {true, nil, spool.Outcome{}, "", "ended before the job started"},
		"as its slot is to be left": {true, &job.Want{Slot: true}, spool.Outcome{Usage: died(syscall.SIGTERM)}, spool.CauseEvicted, "evicted by the batch system: killed by signal TERM (15)"},
		"deleted":                   {true, &job.Want{By: "ann"}, spool.Outcome{Usage: died(syscall.SIGTERM)}, spool.CauseDeleted, "deleted by ann"},
	} {
		r := Run{Hosted: tt.hosted, Want: tt.want}
		was := (&Run{Want: tt.want})
		e, _ := r.Conclude(&tt.out)
		cause := tt.cause
		if cause == "" { // as it is without a pilot
			other, _ := was.Conclude(&tt.out)
			cause = other.Cause
		}
		if e.Cause != cause || e.Reason != tt.reason || e.Fate != job.FateDone {
			t.Errorf("%s: %q, %q, %v; want %q, %q", name, e.Cause, e.Reason, e.Fate, cause, tt.reason)
		}
	}

	warned := Run{Hosted: true, Warned: true} // execd has sent it
	if e, _ := warned.Conclude(&spool.Outcome{Usage: asked(syscall.SIGXCPU, syscall.SIGXCPU)}); e.Cause == spool.CauseEvicted {
		t.Errorf("a soft limit: %q", e.Reason)
	}
}
