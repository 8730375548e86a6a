package outcome

import (
	"testing"

	"paddock/execd/internal/job"
	"paddock/execd/internal/metrics"
	"paddock/spool"
)

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
