package finish

import (
	"testing"

	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/outcome"
	"paddock/spool"
)

// TestTold has runs end of which who has brought the work is told another word than the hooks of the job: nobody is to take one for
// done that was never started.
func TestTold(t *testing.T) {
	for _, tt := range []struct {
		name string
		out  *spool.Outcome
		end  *job.End
		want exit.Word
	}{
		{"ended", &spool.Outcome{Usage: &spool.Usage{}}, nil, exit.WordExit},
		{"no program of that name", &spool.Outcome{Failed: spool.FailedSearchingShell}, nil, exit.WordHold},
		{"no directory of that name", &spool.Outcome{Failed: spool.FailedChangingDir}, nil, exit.WordHold},
		{"the prolog failed", &spool.Outcome{Failed: spool.FailedProlog}, nil, exit.WordEvict},
		{"the epilog failed", &spool.Outcome{Failed: spool.FailedEpilog, Usage: &spool.Usage{}}, nil, exit.WordExit},
		{"lost", &spool.Outcome{Failed: spool.FailedNoExitStatus}, nil, exit.WordEvict},
		{"recorded by another execd", nil, &job.End{Cause: spool.CauseFailed}, exit.WordExit},
	} {
		if tt.end == nil {
			tt.end = outcome.Of(tt.out)
		}
		f := &End{}
		f.Outcome, f.End = tt.out, tt.end
		if got := f.told(); got != tt.want {
			t.Errorf("%s: %q is told; want %q", tt.name, got, tt.want)
		}
	}
}
