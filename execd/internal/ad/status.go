package ad

import (
	"slices"
	"time"

	"paddock/classad"
)

// Status is what is known of a job while it runs.
type Status struct {
	Suspended bool
	PID       int       // of the process that was started for it; 0: not known
	Processes int       // how many it has now
	Started   time.Time // of this run
	// SysCPU and UserCPU are what all of its processes used, also those that have
	// ended.
	SysCPU, UserCPU time.Duration
	ImageSize       int64 // KiB that its processes have mapped, the most there was
	ResidentSetSize int64 // KiB that they have in memory, the most there was; 0: not known
}

// End is how a run ended.
type End struct {
	Status
	Reason   string        // in words
	Time     time.Time     // zero: not known
	Forced   *Forced       // nil: nothing had it leave its slot
	Signal   int           // that ended it; 0: none did
	ExitCode int           // without Signal
	Core     bool          // it left a core dump
	Duration time.Duration // of this run
}

// Forced is why a run had to leave its slot. Code is that of a slot.Reason or, if the
// job is put on hold, of the hold.
type Forced struct {
	Held          bool
	Reason        string
	Code, Subcode int
}

// ended are the attributes that a job has only once it is over.
var ended = []string{
	"ExitReason", "ExitBySignal", "ExitSignal", "ExitCode", "JobDuration", "JobCoreDumped",
	"VacateReason", "VacateReasonCode", "VacateReasonSubCode", "HoldReason", "HoldReasonCode", "HoldReasonSubCode",
	"TransferOutputSuccess", "TransferOutputBytes", "TransferOutputError",
}

// onceRun are the attributes that a job has once it has run.
var onceRun = []string{
	"JobState", "JobPid", "NumPids", "RemoteSysCpu", "RemoteUserCpu", "ImageSize", "ResidentSetSize", "DiskUsage",
}

// earlier are the attributes that are of an earlier run, or of whoever wrote the ad, if it has them: what is not known of this run is
// not in it, so that who reads it may rely on what it finds.
var earlier = slices.Concat(ended, []string{"JobPid", "ResidentSetSize"})

// Unrun returns the ad of a job that has not run without anything that tells of a run.
func Unrun(job *classad.Ad) *classad.Ad { return job.Without(slices.Concat(ended, onceRun)...) }

// Running returns the ad of a job with what is known of it while it runs.
func Running(job *classad.Ad, s Status) *classad.Ad {
	var b builder
	state, status := "Running", StatusRunning
	if s.Suspended {
		state, status = "Suspended", StatusSuspended
	}
	b.text("JobState", state)
	b.integer("JobStatus", int64(status))
	b.status(&s)
	return b.over(job.Without(earlier...))
}

// Update returns what has changed in the ad of a job that runs, in old syntax, for who is told
// again after most at the latest.
func Update(s Status, most time.Duration) string {
	var b builder
	b.integer("JobInfoMaxInterval", int64(most.Seconds()))
	return Running(b.over(classad.New()), s).OldString()
}

// Ended returns the ad of a job with how it ended. A run that ended by a signal
// has no ExitCode, any other no ExitSignal.
func Ended(job *classad.Ad, e End) *classad.Ad {
	var b builder
	b.text("JobState", "Exited")
	b.integer("JobStatus", int64(StatusCompleted))
	b.status(&e.Status)
	b.text("ExitReason", e.Reason)
	b.flag("ExitBySignal", e.Signal != 0)
	if e.Signal != 0 {
		b.integer("ExitSignal", int64(e.Signal))
	} else {
		b.integer("ExitCode", int64(e.ExitCode))
	}
	b.flag("JobCoreDumped", e.Core)
	b.number("JobDuration", e.Duration.Seconds())
	b.at("EnteredCurrentStatus", e.Time)
	if f := e.Forced; f != nil {
		name := "VacateReason"
		if f.Held {
			name = "HoldReason"
		}
		b.forced(name, f)
	}
	return b.over(job.Without(earlier...))
}

// Delivered returns the ad of a job that has ended with what has become of its output. Why
// it has not arrived is empty if it has.
func Delivered(job *classad.Ad, bytes int64, why string) *classad.Ad {
	var b builder
	b.flag("TransferOutputSuccess", why == "")
	b.integer("TransferOutputBytes", bytes)
	b.text("TransferOutputError", why)
	return b.over(job)
}

func (b *builder) forced(name string, f *Forced) {
	b.text(name, f.Reason)
	if f.Code != 0 {
		b.integer(name+"Code", int64(f.Code))
		b.integer(name+"SubCode", int64(f.Subcode))
	}
}

func (b *builder) status(s *Status) {
	if s.PID != 0 {
		b.integer("JobPid", int64(s.PID))
	}
	b.integer("NumPids", int64(s.Processes))
	b.at("JobStartDate", s.Started)
	b.number("RemoteSysCpu", s.SysCPU.Seconds())
	b.number("RemoteUserCpu", s.UserCPU.Seconds())
	b.integer("ImageSize", s.ImageSize)
	if s.ResidentSetSize > 0 {
		b.integer("ResidentSetSize", s.ResidentSetSize)
	}
}
