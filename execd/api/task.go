package api

// Verbs of what is started in a job that runs.
const (
	VerbTask    = "task"    // TaskRequest -> TaskReply
	VerbTaskEnd = "taskend" // TaskEndRequest -> TaskEndReply
)

// CodeElsewhere says that a task was asked for on another host than this.
const CodeElsewhere Code = "elsewhere"

// TaskRequest starts something in a job that runs: a task of a parallel job, or
// with Into a shell or command for people. Who may is the job's owner, with Into
// administrators too.
type TaskRequest struct {
	Job  int    `json:"job"`
	Task int    `json:"task,omitempty"` // of an array; 0: the only one that runs
	Into bool   `json:"into,omitempty"`
	Host string `json:"host,omitempty"` // where the task is to run; empty: here

	Command string   `json:"command,omitempty"` // empty with Interactive.Login
	Args    []string `json:"args,omitempty"`
	NoShell bool     `json:"no_shell,omitempty"`
	Cwd     string   `json:"cwd,omitempty"` // empty: the job's
	// Env and Origin are as in SubmitRequest; with Into beside what the job has.
	Env    []string `json:"env,omitempty"`
	Origin []string `json:"origin,omitempty"`

	Interactive Interactive `json:"interactive"`
}

// TaskReply names what was started. Without an ID nothing was: the job has its slot,
// and is not as far yet; when more is known of it the client is answered so, and asks
// again.
type TaskReply struct {
	Task int    `json:"task"` // of the job: 1 when it is no array
	ID   string `json:"id"`   // "3.host", or "into.1"
	Host string `json:"host"` // as execd calls itself
}

// TaskEndRequest waits for the end of what was started in a job.
type TaskEndRequest struct {
	Job  int    `json:"job"`
	Task int    `json:"task"`
	ID   string `json:"id"`
}

// TaskEndReply tells the end. With neither nothing has happened for a while, and
// the client asks again.
type TaskEndReply struct {
	Ended *TaskEnd `json:"ended,omitempty"`
	Gone  bool     `json:"gone,omitempty"` // it is over, and how is not known any more
}
