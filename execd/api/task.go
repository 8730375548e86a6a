package api

// Verbs of tasks that are started in a running job.
const (
	VerbTask    = "task"    // TaskRequest -> TaskReply
	VerbTaskEnd = "taskend" // TaskEndRequest -> TaskEndReply
)

// CodeElsewhere says that a task was asked for on another host than this.
const CodeElsewhere Code = "elsewhere"

// CodeNoTasks says that a job never has tasks beside it.
const CodeNoTasks Code = "no-tasks"

// TaskRequest starts something in a running job: a task of a parallel job, or
// with Into a shell or command for a user. The owner of the job may do so, and
// with Into administrators, too.
type TaskRequest struct {
	Job  int    `json:"job"`
	Task int    `json:"task,omitempty"` // of an array; 0: the only running task
	Into bool   `json:"into,omitempty"`
	Host string `json:"host,omitempty"` // where the task is to run; empty: here
	Home string `json:"home,omitempty"` // SGE_O_HOST of the job; it may be another host, whose number Job is then

	Command string   `json:"command,omitempty"` // empty with Interactive.Login
	Args    []string `json:"args,omitempty"`
	NoShell bool     `json:"no_shell,omitempty"`
	Cwd     string   `json:"cwd,omitempty"` // empty: the job's
	// Env and Origin are as in SubmitRequest; with Into they are added to the job's.
	Env    []string `json:"env,omitempty"`
	Origin []string `json:"origin,omitempty"`

	Interactive Interactive `json:"interactive"`
}

// TaskReply names the task that was started. Without an ID none was: the job
// has its slot but is still being prepared, and the client asks again.
type TaskReply struct {
	Task int    `json:"task"` // of the job: 1 when it is not an array
	ID   string `json:"id"`   // "3.host", or "into.1"
	Host string `json:"host"` // as execd calls itself
	// Cursor is where to look for the end of the task, see TaskEndRequest.
	Cursor string `json:"cursor"`
}

// TaskEndRequest waits for the end of a task that was started in a job.
type TaskEndRequest struct {
	Job  int    `json:"job"`
	Task int    `json:"task"`
	ID   string `json:"id"`
	// Cursor is that of the TaskReply. With it the end is known when the job has ended as well.
	Cursor string `json:"cursor,omitempty"`
}

// TaskEndReply has the end. With neither field set nothing has happened for a
// while, and the client asks again.
type TaskEndReply struct {
	Ended *TaskEnd `json:"ended,omitempty"`
	Gone  bool     `json:"gone,omitempty"` // it has ended, and its exit status is not known any more
}
