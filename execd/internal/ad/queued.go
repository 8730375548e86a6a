package ad

import (
	"strconv"
	"time"

	"paddock/classad"
)

// Queued is how a task stands in the queue.
type Queued struct {
	Job, Task  int
	Host       string // of the queue
	Submitted  time.Time
	Status     JobStatus
	Entered    time.Time
	Starts     int
	Started    time.Time // zero: it waits
	Queue      string
	RemoteHost string
	HoldReason string
}

// ofTask are the attributes that the tasks of a job do not share.
var ofTask = []string{
	"ProcId", "JobId", "GlobalJobId", "JobStatus", "EnteredCurrentStatus", "NumJobStarts", "JobStartDate", "JobCurrentStartDate",
	"Queue", "RemoteHost", "SlotID",
}

// Proc returns what the ad of a task has beside that of its job.
func Proc(q Queued) *classad.Ad {
	var b builder
	id := strconv.Itoa(q.Job) + "." + strconv.Itoa(q.Task)
	b.integer("ProcId", int64(q.Task))
	b.text("JobId", id)
	b.text("GlobalJobId", GlobalID(q.Host, id, q.Submitted))
	b.integer("JobStatus", int64(q.Status))
	b.at("EnteredCurrentStatus", q.Entered)
	b.integer("NumJobStarts", int64(q.Starts))
	b.at("JobStartDate", q.Started)
	b.at("JobCurrentStartDate", q.Started)
	b.text("Queue", q.Queue)
	b.text("RemoteHost", q.RemoteHost)
	b.text("HoldReason", q.HoldReason)
	return b.over(nil)
}

// Cluster returns what the tasks of a job share of its ad.
func Cluster(job *classad.Ad) *classad.Ad { return Public(job).Without(ofTask...) }

// Waiting returns what the ad of an array says of the tasks that wait, and of those of them
// that are held: such tasks have no ads of their own.
func Waiting(total int, pending, held string, idle int) *classad.Ad {
	var b builder
	b.integer("TotalSubmitProcs", int64(total))
	b.integer("JobsIdle", int64(idle))
	if pending != "" {
		b.long("PendingTaskIds", pending)
	}
	if held != "" {
		b.long("HeldTaskIds", held)
	}
	return b.over(nil)
}
