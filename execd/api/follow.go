package api

// Verbs of qwait, qlog and qtop.
const (
	VerbFind   = "find"   // FindRequest -> FindReply
	VerbEnds   = "ends"   // EndsRequest -> EndsReply
	VerbOutput = "output" // OutputRequest -> OutputReply
	VerbTop    = "top"    // TopRequest -> TopReply
)

// Limits of these verbs.
const (
	MaxWaited  = 1000 // jobs that a client waits for at once
	MaxOutputs = 100  // tasks whose output is told at once
	MaxTop     = 1000 // running tasks, and as many lines of those that wait
)

// FindRequest asks which unfinished jobs words mean: numbers, numbers with
// tasks, names and patterns, as those of DeleteRequest. Names mean only jobs of
// the caller's.
type FindRequest struct {
	Jobs []string `json:"jobs"`
}

// FindReply has the jobs in the order of the words.
type FindReply struct {
	Found   []Found  `json:"found,omitempty"`
	Missing []string `json:"missing,omitempty"` // words that mean no unfinished job
	Last    int      `json:"last"`              // the highest number given out
	User    string   `json:"user"`              // the caller
	// Cursor is where to begin an EndsRequest for the jobs that were found:
	// nothing of them is accounted before. Empty: at the beginning of the file.
	Cursor string `json:"cursor"`
}

// Found is an unfinished job, or some tasks of it, which the numbers then count.
type Found struct {
	Job     int    `json:"job"`
	Name    string `json:"name"`
	Owner   string `json:"owner"`
	Tasks   Tasks  `json:"tasks,omitzero"` // that the word named; zero: all
	Array   bool   `json:"array,omitempty"`
	Count   int    `json:"count"` // of all tasks that are meant, also those that are over
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
	Over   []int     `json:"over,omitempty"`  // the places in Jobs of which nothing is left
	Stuck  []Stuck   `json:"stuck,omitempty"` // those of which only what needs somebody is left
}

// Stuck is why a job that is waited for does not end by itself.
type Stuck struct {
	Place  int    `json:"place"` // in Jobs
	Reason string `json:"reason"`
	// Vain says that it waits for the success of what has not succeeded; else it is in
	// error.
	Vain bool `json:"vain,omitempty"`
}

// OutputRequest asks where a job writes its output.
type OutputRequest struct {
	Job string `json:"job"` // number, number with tasks, or name: the youngest of the caller's
}

// OutputReply is what execd knows of it: it never opens these files.
type OutputReply struct {
	Job      int      `json:"job"`
	Name     string   `json:"name"`
	Owner    string   `json:"owner"`
	Array    bool     `json:"array,omitempty"`
	Finished bool     `json:"finished,omitempty"` // the job as a whole
	Outputs  []Output `json:"outputs"`            // of the tasks that were named, else of those that run; at most MaxOutputs
	More     bool     `json:"more,omitempty"`     // there are further ones
}

// Output is where one task writes.
type Output struct {
	Task   int    `json:"task"`            // 0 for a job that is no array
	State  string `json:"state,omitempty"` // as in JobStatus; empty: it is over
	Stdout File   `json:"stdout"`
	Stderr File   `json:"stderr"`
	Merged bool   `json:"merged,omitempty"` // standard error goes to Stdout
}

// File is the path of a stream. Where that is a directory, which only its owner
// may look at, Name in it is meant.
type File struct {
	Path Text `json:"path"`
	Name Text `json:"name"`
}

// TopRequest asks for what runs and what the host does.
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
	Failed     int      `json:"failed"` // tasks that ran and did not succeed, of the jobs that finished_jobs has remembered
	Drain      *Drain   `json:"drain,omitempty"`
	Jobs       []TopJob `json:"jobs"`           // as in JobsReply
	More       bool     `json:"more,omitempty"` // there are more than MaxTop of a kind
}

// TopJob is a running task with what it uses, or the pending tasks of a job.
type TopJob struct {
	JobStatus
	Usage *Usage `json:"usage,omitempty"`
}
