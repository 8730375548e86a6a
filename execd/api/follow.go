package api

import "time"

// Verbs of qwait, qlog and qtop.
const (
	VerbFind   = "find"   // FindRequest -> FindReply
	VerbEnds   = "ends"   // EndsRequest -> EndsReply
	VerbOutput = "output" // OutputRequest -> OutputReply
	VerbTop    = "top"    // TopRequest -> TopReply
)

// Limits of these verbs.
const (
	MaxWaited  = 1000 // jobs of one EndsRequest
	MaxOutputs = 100  // tasks of one OutputReply
	MaxTop     = 1000 // running tasks, and as many lines of those that wait
)

// FindRequest asks which unfinished jobs words name. Words are numbers, numbers
// with tasks, names and patterns, as in DeleteRequest. Names are those of the
// caller's jobs only.
type FindRequest struct {
	Jobs []string `json:"jobs"`
}

// FindReply has the jobs in the order of the words.
type FindReply struct {
	Found   []Found  `json:"found,omitempty"`
	Missing []string `json:"missing,omitempty"` // words that name no unfinished job
	Last    int      `json:"last"`              // the highest number given out
	User    string   `json:"user"`              // the caller
	// Cursor is where to begin an EndsRequest for the jobs that were found:
	// their records stand behind it. Empty: at the beginning of the file.
	Cursor string `json:"cursor"`
}

// Found is an unfinished job, or some of its tasks; then the numbers count these.
type Found struct {
	Job     int    `json:"job"`
	Name    string `json:"name"`
	Owner   string `json:"owner"`
	Tasks   Tasks  `json:"tasks,omitzero"` // as the word names them; zero: all
	Array   bool   `json:"array,omitempty"`
	Count   int    `json:"count"` // all these tasks, with those that are over
	Pending int    `json:"pending,omitempty"`
	Running int    `json:"running,omitempty"`
	InError int    `json:"in_error,omitempty"`
}

// Waited is a job that is waited for, or some tasks of it.
type Waited struct {
	Job   int   `json:"job"`
	Tasks Tasks `json:"tasks,omitzero"` // zero: all
}

// EndsRequest waits until tasks of some jobs have ended. A client repeats it,
// with the cursor of the last reply and without the jobs that are over, also
// when the connection broke, since execd may be restarted under it.
type EndsRequest struct {
	Jobs   []Waited `json:"jobs"` // at most MaxWaited
	Cursor string   `json:"cursor,omitempty"`
}

// EndsReply holds what ended since the cursor. It may be empty: then nothing
// happened for a while, and the client asks again. A task that ran again has
// more than one end, and the last one counts.
type EndsReply struct {
	Ended  []TaskEnd `json:"ended,omitempty"`
	Cursor string    `json:"cursor"`
	Over   []int     `json:"over,omitempty"`  // the indices in Jobs of those that are over
	Stuck  []Stuck   `json:"stuck,omitempty"` // those that do not end by themselves
}

// Stuck says why a job that is waited for does not end by itself.
type Stuck struct {
	Place  int    `json:"place"` // index in Jobs
	Reason string `json:"reason"`
	// Vain says that it waits for the success of a job that has failed; else it
	// is in error.
	Vain bool `json:"vain,omitempty"`
}

// OutputRequest asks where a job writes its output.
type OutputRequest struct {
	Job string `json:"job"` // number, number with tasks, or name of the caller's latest job
}

// OutputReply says where the output is. Execd never opens these files.
type OutputReply struct {
	Job      int      `json:"job"`
	Name     string   `json:"name"`
	Owner    string   `json:"owner"`
	Array    bool     `json:"array,omitempty"`
	Finished bool     `json:"finished,omitempty"` // the job as a whole
	Outputs  []Output `json:"outputs"`            // of the tasks that the request names, else of those that run; at most MaxOutputs
	More     bool     `json:"more,omitempty"`     // there are more tasks than that
}

// Output is where one task writes.
type Output struct {
	Task   int    `json:"task"`            // 0 for a job that is not an array
	State  string `json:"state,omitempty"` // as in JobStatus; empty: it is over
	Stdout File   `json:"stdout"`
	Stderr File   `json:"stderr"`
	Merged bool   `json:"merged,omitempty"` // standard error goes to Stdout
}

// File is the path of a stream. If the path is a directory, the file is Name in
// it; only the owner may look which it is.
type File struct {
	Path Text `json:"path"`
	Name Text `json:"name"`
}

// TopRequest asks for the running tasks and the load of the host.
type TopRequest struct {
	Users []string `json:"users,omitempty"` // patterns of owners; empty: everybody
}

// TopReply is what qtop shows.
type TopReply struct {
	Host       string   `json:"host"`
	Load       string   `json:"load,omitempty"` // of 1, 5 and 15 minutes; empty: not known
	Processors int      `json:"processors"`
	Memory     float64  `json:"memory"`      // bytes
	MemoryUsed float64  `json:"memory_used"` // bytes
	Slots      int      `json:"slots"`
	Used       int      `json:"used"`
	Running    int      `json:"running"` // tasks, of everybody, as those that follow
	Suspended  int      `json:"suspended"`
	Pending    int      `json:"pending"`
	Held       int      `json:"held"`
	InError    int      `json:"in_error"`
	Sending    int      `json:"sending"` // have ended, and their output is on its way
	Stuck      int      `json:"stuck"`   // the same, and it cannot be delivered until somebody has looked
	Failed     int      `json:"failed"`  // tasks that ran and did not succeed, of the jobs that finished_jobs has remembered
	Drain      *Drain   `json:"drain,omitempty"`
	Pilot      *Pilot   `json:"pilot,omitempty"` // nil: it is none
	Jobs       []TopJob `json:"jobs"`            // as in JobsReply
	More       bool     `json:"more,omitempty"`  // there are more than MaxTop of a kind
}

// Pilot is the job of a batch system as which execd runs.
type Pilot struct {
	Scheduler string    `json:"scheduler"`     // slurm, ge, or none
	Job       string    `json:"job,omitempty"` // as that calls it
	Ends      time.Time `json:"ends,omitzero"` // when it leaves; zero: it has no time for that
}

// TopJob is a running task with what it uses, or the pending tasks of a job.
type TopJob struct {
	JobStatus
	Usage    *Usage    `json:"usage,omitempty"`
	Transfer *Transfer `json:"transfer,omitempty"` // of its files, before it runs and when it has ended
}
