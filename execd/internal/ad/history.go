package ad

import (
	"time"

	"paddock/classad"
)

// Past is what a history says of a job that is over beside its end.
type Past struct {
	Removed bool   // somebody has deleted it, or it was ended otherwise; else it has come to its end
	Reason  string // why it was removed
	Tasks   string // of an array, if the record is of several; empty: it is of one
	Host    string // where it ran last; empty: it did not

	// Exit, Draining and Preempted are of a run, for the history of its host.
	Exit                int  // code of the activation; 0: it is none
	Draining, Preempted bool // for what it had to leave its slot
}

// Historic returns the ad of a job as a history has it, which is Ended with more of those
// attributes that readers of histories look for. Without an end the job never ran.
func Historic(job *classad.Ad, e *End, p Past, now time.Time) *classad.Ad {
	var b builder
	status := StatusCompleted
	if p.Removed {
		status = StatusRemoved
		b.text("RemoveReason", p.Reason)
	}
	completed, wallclock := int64(0), 0.0
	if e != nil {
		completed, wallclock = e.Time.Unix(), e.Duration.Seconds()
	} else {
		b.at("EnteredCurrentStatus", now)
	}
	b.integer("JobStatus", int64(status))
	b.integer("CompletionDate", completed)
	b.number("RemoteWallClockTime", wallclock)
	b.text("LastRemoteHost", p.Host)
	b.text("TaskIds", p.Tasks)
	if p.Exit != 0 {
		b.integer("StarterExitStatus", int64(p.Exit))
	}
	if p.Draining {
		b.flag("BadputCausedByDraining", true)
	}
	if p.Preempted {
		b.flag("BadputCausedByPreemption", true)
	}
	return b.over(job)
}
