package spool_test

import (
	"syscall"
	"testing"
	"time"

	"paddock/spool"
)

// Each end has one cause, whichever shepherd reports it, and keeps it in the file.
func TestCause(t *testing.T) {
	usage := func(ws syscall.WaitStatus, c spool.Cause) *spool.Usage {
		u := spool.NewUsage(ws, time.Unix(1, 0), time.Unix(2, 0), &syscall.Rusage{})
		if c != "" {
			u.Because(c)
		}
		back, err := spool.ParseUsage(u.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		return back
	}
	for _, tt := range []struct {
		out  spool.Outcome
		want spool.Cause
	}{
		{spool.Outcome{Usage: usage(0, "")}, spool.CauseExit},
		{spool.Outcome{Usage: usage(3<<8, "")}, spool.CauseExit},
		{spool.Outcome{Usage: usage(9, ""), Failed: spool.FailedAfterJob}, spool.CauseSignal},
		{spool.Outcome{Usage: usage(9, spool.CauseResource), Failed: spool.FailedAfterJob}, spool.CauseResource},
		{spool.Outcome{Usage: usage(9, spool.CauseDeleted)}, spool.CauseSignal}, // no shepherd knows
		{spool.Outcome{Usage: usage(9, ""), Failed: spool.FailedEnforcedLimit}, spool.CauseLimit},
		{spool.Outcome{Usage: usage(9, ""), Failed: spool.FailedLease}, spool.CauseLease},
		{spool.Outcome{Failed: spool.FailedLease}, spool.CauseLease},
		{spool.Outcome{Usage: usage(99<<8, ""), Failed: spool.FailedRescheduling}, spool.CauseAgain},
		{spool.Outcome{Usage: usage(9, ""), Failed: spool.FailedMigrating}, spool.CauseMigrated},
		{spool.Outcome{Usage: usage(0, ""), Failed: spool.FailedEpilog}, spool.CauseFailed},
		{spool.Outcome{Failed: spool.FailedProlog}, spool.CauseFailed},
		{spool.ShepherdDied(true, nil), spool.CauseLost},
		{spool.ShepherdDied(false, nil), spool.CauseLost},
		{spool.ShepherdDied(true, usage(0, "")), spool.CauseLost},
	} {
		if got := tt.out.Cause(); got != tt.want {
			t.Errorf("%+v: %s; want %s", tt.out, got, tt.want)
		}
	}
}
