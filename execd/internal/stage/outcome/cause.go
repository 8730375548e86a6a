package outcome

import (
	"paddock/execd/internal/job"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/stage/exit"
	"paddock/spool"
)

// causes says what a cause is to those who are told of the end: the word for the hook,
// the codes of a job that was started and of one that was not, and what it counts as
// unless the job is run again.
var causes = map[spool.Cause]struct {
	word       exit.Word
	ran, never exit.Code
	counted    metrics.Outcome
}{
	spool.CauseExit:        {exit.WordExit, exit.Exited, exit.NotStarted, metrics.Exited},
	spool.CauseSignal:      {exit.WordExit, exit.Exited, exit.NotStarted, metrics.Signalled},
	spool.CauseResource:    {exit.WordExit, exit.Exited, exit.NotStarted, metrics.Limit},
	spool.CauseLimit:       {exit.WordRemove, exit.Exited, exit.Killed, metrics.Limit}, // nobody has deleted it: it has ended, though not by itself
	spool.CauseDeleted:     {exit.WordRemove, exit.Killed, exit.Killed, metrics.Deleted},
	spool.CauseLease:       {exit.WordEvict, exit.Requeue, exit.Requeue, metrics.Limit},
	spool.CauseEvicted:     {exit.WordEvict, exit.Requeue, exit.Requeue, metrics.Deleted},
	spool.CauseHeld:        {exit.WordHold, exit.Killed, exit.Killed, metrics.Deleted},
	spool.CauseMigrated:    {exit.WordEvict, exit.Requeue, exit.Requeue, metrics.Exited},
	spool.CauseRescheduled: {exit.WordEvict, exit.Requeue, exit.Requeue, metrics.Exited},
	spool.CauseAgain:       {exit.WordExit, exit.Exited, exit.NotStarted, metrics.Exited},
	spool.CauseLost:        {exit.WordExit, exit.Exited, exit.NotStarted, metrics.Failed},
	spool.CauseFailed:      {exit.WordExit, exit.Exited, exit.NotStarted, metrics.Failed},
}

// holds has the code with which a job is held for a failure; those that are not there
// have none, which is 0.
var holds = map[int]int{
	spool.FailedProlog:         exit.HoldPreScript,
	spool.FailedPEStart:        exit.HoldPreScript,
	spool.FailedBeforeStart:    exit.HoldCommand,
	spool.FailedPEStop:         exit.HoldPostScript,
	spool.FailedEpilog:         exit.HoldPostScript,
	spool.FailedOpeningStream:  exit.HoldStream,
	spool.FailedSearchingShell: exit.HoldCommand,
	spool.FailedChangingDir:    exit.HoldDirectory,
	spool.FailedApplication:    exit.HoldByJob,
}

// Word returns what the hook for the end of a job is told.
func (f *Facts) Word() exit.Word { return causes[f.End.Cause].word }

// Code returns how a job has ended whose process had a status.
func (f *Facts) Code(s exit.Status) exit.Code {
	c := causes[f.End.Cause]
	switch {
	case f.End.Fate == job.FateError:
		return exit.Hold
	case !f.Ran():
		return c.never
	case c.ran == exit.Exited && s.Core:
		return exit.CoreDumped
	}
	return c.ran
}

// Hold returns why a job is held that is in error, in HTCondor's numbers: for its policy, for
// the script after it, or for the failure.
func (f *Facts) Hold(post exit.Status) (code, subcode int) {
	switch {
	case f.End.Why != nil:
		return f.End.Why.Code, f.End.Why.Subcode
	case !post.OK():
		return exit.HoldPostScript, post.Code
	}
	return holds[f.End.Failed], 0
}

// Counted is what the end of a run counts as.
func Counted(e *job.End) metrics.Outcome {
	switch {
	case e.Fate == job.FateRequeue:
		return metrics.Requeued
	case e.Fate == job.FateError:
		return metrics.Failed
	case e.Cause == spool.CauseExit && e.Exit == 0:
		return metrics.Done
	}
	if c, ok := causes[e.Cause]; ok { // records of another execd may have others
		return c.counted
	}
	return metrics.Failed
}
