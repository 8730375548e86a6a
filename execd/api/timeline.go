package api

// VerbTimeline asks what the runs of the host's jobs did lately: TimelineRequest -> TimelineReply.
const VerbTimeline = "timeline"

// TimelineRequest asks for what has changed since an earlier reply. With Wait the reply comes
// when there is something, and never sooner than a quarter of a second after that, so that what
// happens at once is told at once; or empty after a minute.
type TimelineRequest struct {
	Since string `json:"since,omitempty"` // Cursor of that reply; empty: all that is remembered
	Wait  bool   `json:"wait,omitempty"`
}

// TimelineReply has the runs that have changed, the oldest change first.
type TimelineReply struct {
	Cursor string `json:"cursor"`
	// Whole says that there are all, since the cursor is none of this execd: what the caller
	// has is to be forgotten.
	Whole  bool            `json:"whole,omitempty"`
	Now    int64           `json:"now"` // milliseconds since the epoch, as all times of spans
	Runs   []TimelineRun   `json:"runs"`
	Queues []TimelineQueue `json:"queues"`
}

// TimelineQueue is a queue with its number of slots.
type TimelineQueue struct {
	Name  string `json:"name"`
	Slots int    `json:"slots"`
}

// TimelineRun is one run of a task with all that is remembered of it.
type TimelineRun struct {
	Job   int    `json:"job"`
	Task  int    `json:"task,omitempty"` // 0 for a job that is not an array
	Run   int    `json:"run,omitempty"`  // how often it was started before
	Owner string `json:"owner"`
	Name  string `json:"name"`
	Host  string `json:"host,omitempty"` // another one, on which it is; empty: this one
	Queue string `json:"queue"`
	// Slots are those that it has, as 1,7, and 1_2 of one that was carved; of another host that
	// is its slot by the number that it has there. Empty: it is not known which they are.
	Slots     string `json:"slots,omitempty"`
	Submitted int64  `json:"submitted"` // as times of spans
	Over      bool   `json:"over,omitempty"`
	Failed    int    `json:"failed,omitempty"` // of one that is over, as in the accounting file; -1: it has none there
	Exit      int    `json:"exit,omitempty"`   // the same
	Spans     []Span `json:"spans"`
}

// SpanKind says what a Span is.
type SpanKind string

// The kinds.
const (
	SpanSlot      SpanKind = "slot" // the run has its slots: what no other span covers is idle
	SpanHook      SpanKind = "hook"
	SpanIn        SpanKind = "in"
	SpanRun       SpanKind = "run"
	SpanSuspended SpanKind = "suspended" // within SpanRun
	SpanOut       SpanKind = "out"
)

// Span is a stretch of time of a run, in milliseconds since the epoch.
type Span struct {
	Kind   SpanKind `json:"kind"`
	Begin  int64    `json:"begin"`
	End    int64    `json:"end,omitempty"` // 0: it goes on
	Bytes  int64    `json:"bytes,omitempty"`
	Failed bool     `json:"failed,omitempty"`
}
