package spool

// How execd starts a shepherd, besides with CaughtSignals blocked; a shepherd
// that was started otherwise starts again in this way.

// StartEnvironment is the whole environment of a shepherd: one processor, since
// there is one goroutine, and each more would cost memory in every running job.
var StartEnvironment = []string{"GOMAXPROCS=1"}

// StartTimerSlack is how late, in nanoseconds, a sleep in a shepherd may end:
// more than usual, so that the Go runtime of a new process does not wake every
// 20 µs to look at itself, a fifth of a short job's cost. The starter takes
// it from the job again.
const StartTimerSlack = 4e6
