package outcome

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"paddock/execd/internal/job"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/stage/exit"
	"paddock/spool"
	"paddock/test/harness"
)

// TestEveryCause holds the causes of package spool against the table.
func TestEveryCause(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(harness.Root(), "spool", "cause.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\t(Cause\w+) +Cause += "(\w+)"`).FindAllStringSubmatch(string(text), -1)
	for _, d := range declared {
		if _, ok := causes[spool.Cause(d[2])]; !ok {
			t.Errorf("causes has no row for %s", d[1])
		}
	}
	if len(declared) != len(causes) {
		t.Errorf("%d causes are declared, the table has %d", len(declared), len(causes))
	}
}

// REQ-EXIT-113, REQ-EXIT-114: the word and the number of an end, by its cause, by whether
// the job was started, and by its core.
func TestCauses(t *testing.T) {
	for _, tt := range []struct {
		cause              spool.Cause
		word               exit.Word
		ran, dumped, never exit.Code
	}{
		{spool.CauseExit, "exit", exit.Exited, exit.CoreDumped, exit.NotStarted},
		{spool.CauseSignal, "exit", exit.Exited, exit.CoreDumped, exit.NotStarted},
		{spool.CauseResource, "exit", exit.Exited, exit.CoreDumped, exit.NotStarted},
		{spool.CauseAgain, "exit", exit.Exited, exit.CoreDumped, exit.NotStarted},
		{spool.CauseLost, "exit", exit.Exited, exit.CoreDumped, exit.NotStarted},
		{spool.CauseFailed, "exit", exit.Exited, exit.CoreDumped, exit.NotStarted},
		{spool.CauseLimit, "remove", exit.Exited, exit.CoreDumped, exit.Killed},
		{spool.CauseDeleted, "remove", exit.Killed, exit.Killed, exit.Killed},
		{spool.CauseHeld, "hold", exit.Killed, exit.Killed, exit.Killed},
		{spool.CauseLease, "evict", exit.Requeue, exit.Requeue, exit.Requeue},
		{spool.CauseEvicted, "evict", exit.Requeue, exit.Requeue, exit.Requeue},
		{spool.CauseMigrated, "evict", exit.Requeue, exit.Requeue, exit.Requeue},
		{spool.CauseRescheduled, "evict", exit.Requeue, exit.Requeue, exit.Requeue},
	} {
		never := Facts{End: &job.End{Cause: tt.cause}}
		ran := Facts{End: never.End, Outcome: &spool.Outcome{Usage: &spool.Usage{}}}
		if never.Word() != tt.word {
			t.Errorf("%s: %s; want %s", tt.cause, never.Word(), tt.word)
		}
		got := []exit.Code{ran.Code(exit.Status{Signal: 9}), ran.Code(exit.Status{Signal: 11, Core: true}), never.Code(exit.Status{})}
		if want := []exit.Code{tt.ran, tt.dumped, tt.never}; !slices.Equal(got, want) {
			t.Errorf("%s: codes %d; want %d", tt.cause, got, want)
		}
	}
	if n := len(causes); n != 13 {
		t.Errorf("%d causes; want those of the test", n)
	}
	f := Facts{End: &job.End{Cause: spool.CauseExit, Fate: job.FateError}}
	if got := f.Code(exit.Status{}); got != exit.Hold {
		t.Errorf("in error: code %d; want %d", got, exit.Hold)
	}
}

// A job in error is held with a code that says what has failed.
func TestHold(t *testing.T) {
	for _, tt := range []struct {
		failed        int
		post          exit.Status
		code, subcode int
	}{
		{failed: spool.FailedSearchingShell, code: 6},
		{failed: spool.FailedBeforeStart, code: 6},
		{failed: spool.FailedOpeningStream, code: 7},
		{failed: spool.FailedChangingDir, code: 14},
		{failed: spool.FailedApplication, code: 3},
		{failed: spool.FailedPEStart, code: 43},
		{failed: spool.FailedReadConfig},
		{post: exit.Status{Code: 4}, code: 44, subcode: 4},
	} {
		f := Facts{End: &job.End{Failed: tt.failed, Fate: job.FateError}}
		if code, subcode := f.Hold(tt.post); code != tt.code || subcode != tt.subcode {
			t.Errorf("%+v: held with %d, %d", tt, code, subcode)
		}
	}
}

// What an end counts as depends on its cause, and not on the words in which it is told.
func TestCountedAs(t *testing.T) {
	for _, tt := range []struct {
		end  job.End
		want metrics.Outcome
	}{
		{job.End{Cause: spool.CauseExit}, metrics.Done},
		{job.End{Cause: spool.CauseExit, Exit: 3}, metrics.Exited},
		{job.End{Cause: spool.CauseSignal, Exit: 139, Failed: 100}, metrics.Signalled},
		{job.End{Cause: spool.CauseResource, Exit: 153, Failed: 100, Reason: "job wrote a file larger than it may: limit h_fsize 20k"}, metrics.Limit},
		{job.End{Cause: spool.CauseLimit, Exit: 137, Failed: 37}, metrics.Limit},
		{job.End{Cause: spool.CauseDeleted}, metrics.Deleted},
		{job.End{Cause: spool.CauseEvicted, Exit: 143, Failed: 100}, metrics.Deleted},
		{job.End{Cause: spool.CauseRescheduled, Fate: job.FateRequeue}, metrics.Requeued},
		{job.End{Cause: spool.CauseFailed, Failed: 8}, metrics.Failed},
		{job.End{Cause: spool.CauseExit, Exit: 100, Failed: 30, Fate: job.FateError}, metrics.Failed},
	} {
		if got := Counted(&tt.end); got != tt.want {
			t.Errorf("%+v counts as %d; want %d", tt.end, got, tt.want)
		}
	}
}
