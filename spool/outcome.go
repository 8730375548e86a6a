package spool

// A Blame says who is to do something about a failure. It decides whether a job
// runs again, and what is put into error state.
type Blame int

// Whom a failure concerns.
const (
	BlameNone   Blame = iota
	BlameJob          // the job or its owner's request
	BlameQueue        // the queue's configuration on this host
	BlameHost         // the host
	BlameSystem       // execd, the shepherd or what they stand on
)

// String returns the word for messages.
func (b Blame) String() string {
	switch b {
	case BlameNone:
		return "none"
	case BlameJob:
		return "job"
	case BlameQueue:
		return "queue"
	case BlameHost:
		return "host"
	case BlameSystem:
		return "system"
	}
	return "unknown"
}

// Codes of failures, as in accounting.
const (
	FailedNone             = 0
	FailedBeforeJob        = 1 // assumedly: no shepherd, or it left no trace of itself
	FailedNoConfig         = 3
	FailedNoPID            = 4
	FailedReadConfig       = 5
	FailedProcessorSet     = 6
	FailedBeforeProlog     = 7
	FailedProlog           = 8
	FailedBeforePEStart    = 9
	FailedPEStart          = 10
	FailedBeforeStart      = 11
	FailedBeforePEStop     = 12
	FailedPEStop           = 13
	FailedBeforeEpilog     = 14
	FailedEpilog           = 15
	FailedReleaseSet       = 16
	FailedThroughSignal    = 17
	FailedShepherd         = 18
	FailedNoExitStatus     = 19 // the shepherd died
	FailedUnexpectedError  = 20
	FailedUnknownJob       = 21
	FailedRemoved          = 22
	FailedMigrating        = 24
	FailedRescheduling     = 25
	FailedOpeningStream    = 26
	FailedSearchingShell   = 27
	FailedChangingDir      = 28
	FailedAFS              = 29
	FailedApplication      = 30
	FailedDaemons          = 36
	FailedEnforcedLimit    = 37
	FailedAddingGroup      = 38
	FailedAfterJob         = 100 // assumedly: the job died of a signal
	FailedLease            = 112 // of ours: the lease of its claim was over
	failedPasswdFile       = 31
	failedNoPasswdEntry    = 32
	failedWrongPassword    = 33
	failedHelperService    = 34
	failedBeforeHelperWork = 35
)

// BlameOf returns whom a failure concerns as far as its number tells. For 11
// and 27 that is the queue, unless the job asked for the shell or program that
// was not found: see BlameWith.
func BlameOf(failed int) Blame { return BlameWith(failed, false) }

// BlameWith is BlameOf, knowing whether the job itself named what failed to
// start: its shell, a binary without shell, or a script run by its first line.
func BlameWith(failed int, named bool) Blame {
	switch failed {
	case FailedNone, FailedRemoved, FailedMigrating, FailedRescheduling, FailedLease:
		return BlameNone
	case FailedBeforeStart, FailedSearchingShell:
		if named {
			return BlameJob
		}
		return BlameQueue
	case FailedThroughSignal, FailedOpeningStream, FailedChangingDir, FailedAFS, FailedApplication,
		failedPasswdFile, failedNoPasswdEntry, failedWrongPassword, failedBeforeHelperWork,
		FailedEnforcedLimit, FailedAddingGroup, FailedAfterJob:
		return BlameJob
	case FailedReadConfig, FailedProcessorSet, FailedProlog, FailedBeforePEStart, FailedPEStart,
		FailedPEStop, FailedEpilog:
		return BlameQueue
	case FailedBeforeProlog, failedHelperService, FailedDaemons:
		return BlameHost
	}
	return BlameSystem
}

// HostFailed reports whether a run has failed before anything of job or queue was
// run, since the host lacked something that it may have later: descriptors, memory, a
// process, a file. A shepherd that died without a word is not known to have lacked
// anything, and would go on dying.
func HostFailed(failed int) bool {
	blame := BlameOf(failed)
	return failed > FailedBeforeJob && failed < FailedProlog && (blame == BlameHost || blame == BlameSystem)
}

// An Outcome is how a run ended.
type Outcome struct {
	Failed int
	Blame  Blame
	Reason string
	Usage  *Usage // nil: the job was never started
	// Checkpoint says that a job that ended to migrate left one to go on from.
	Checkpoint bool
}

// ShepherdDied returns the outcome of a run whose shepherd died without a
// verdict. started says that it had written its pid. With a usage the job
// itself had ended before, so the run counts as one and is not repeated.
func ShepherdDied(started bool, u *Usage) Outcome {
	o := Outcome{Failed: FailedNoExitStatus, Reason: "shepherd died before it wrote exit_status", Usage: u}
	switch {
	case u != nil:
		o.Reason = "shepherd died after the job had ended"
	case !started:
		o.Failed = FailedBeforeJob
		o.Reason = "shepherd died before it wrote its pid"
	}
	o.Blame = BlameOf(o.Failed)
	return o
}
