package exit

// Why is what was asked of a job before it ended. More than one may be.
type Why struct {
	Hold   bool // somebody holds it, or a policy does
	Remove bool // it is deleted, by somebody or by a policy
	Evict  bool // any other end that was asked for: its slot is needed, its queue suspended, it is to run again
}

// Requested reports whether its end was asked for at all.
func (w Why) Requested() bool { return w.Hold || w.Remove || w.Evict }

// Word returns the argument of the hook for the end of a job.
func (w Why) Word() string {
	switch {
	case w.Hold:
		return "hold"
	case w.Remove:
		return "remove"
	case w.Evict:
		return "evict"
	}
	return "exit"
}

// Code says how an activation ended, in the numbers by which a supervisor tells
// its queue what to do with the job.
type Code int

// The codes.
const (
	Exited     Code = 100
	Killed     Code = 102
	CoreDumped Code = 103
	Requeue    Code = 107
	NotStarted Code = 108
	Hold       Code = 112
)

// CodeOf returns the code of a job's end. Started says whether it ran.
func CodeOf(w Why, started bool, s Status) Code {
	switch {
	case w.Hold || w.Remove:
		return Killed
	case w.Evict:
		return Requeue
	case s.Core:
		return CoreDumped
	case !started:
		return NotStarted
	}
	return Exited
}
