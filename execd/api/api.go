// Package api is the protocol between execd and its clients: requests and
// replies, their version, the error codes, the places of the socket and the
// accounting file, and the client. Everybody may import it; it imports nothing
// else of the project, and never package spool.
//
// A program that brings work of its own, without a queue, claims slots with
// Client.Claim, and runs one job after the other there with Claim.Activate: see
// the example. A refusal is an Error with a Refusal.
//
// The transport is HTTP with JSON bodies; files travel as streams, see stage.go. Every verb
// is a POST to /v1/<verb>. On a Unix socket execd asks the kernel who calls (SO_PEERCRED),
// between the hosts of a pool the certificate says which host does, which names its user:
// what a message says of it is never believed.
package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Version is the version of the API, the first element of every path.
const Version = "v1"

// Verbs, as they stand in the path.
const (
	VerbSubmit = "submit" // SubmitRequest -> SubmitReply
	VerbAd     = "ad"     // SubmitRequest -> AdReply
	VerbJobs   = "jobs"   // JobsRequest -> JobsReply
	VerbDetail = "detail" // DetailRequest -> DetailReply
	VerbDelete = "delete" // DeleteRequest -> DeleteReply
	VerbWait   = "wait"   // WaitRequest -> WaitReply
	VerbStatus = "status" // StatusRequest -> StatusReply
	VerbModify = "modify" // ModifyRequest -> ModifyReply
	VerbHost   = "host"   // HostRequest -> HostReply
	VerbBoxes  = "boxes"  // SandboxesRequest -> SandboxesReply
	VerbShow   = "show"   // ShowRequest -> ShowReply
	VerbReload = "reload" // ReloadRequest -> ReloadReply
	VerbAttach = "attach" // AttachRequest -> AttachReply
)

// Limits of a submission. Execd checks them, and a client may check them
// sooner to spare the transfer.
const (
	MaxScript   = 64 << 20  // bytes of a job script
	MaxName     = 511       // bytes of a job name
	MaxPath     = 4095      // bytes of a path (PATH_MAX less the NUL)
	MaxVariable = 128 << 10 // bytes of one NAME=value with its NUL (the kernel's MAX_ARG_STRLEN)
	MaxEnv      = 1 << 20   // bytes of the whole environment: exec must have room for it beside the arguments
	MaxArgs     = 1 << 20   // bytes of all arguments
	MaxTask     = 10_000_000
	MaxSlots    = 9_999_999 // of one job, and what "4-" means
	MinPriority = -1023
	MaxPriority = 1024
	MaxWords    = 1000 // resources, queues, predecessors, addresses, of each

	// Attributes are kept in memory while a job waits.
	MaxAttributes     = 100
	MaxAttributeBytes = 8 << 10 // of all attributes of a job
)

// Code says who is to blame for an error, so that a client can choose its
// exit status without reading the text.
type Code string

// The codes.
const (
	CodeBadRequest Code = "bad_request" // the request is not valid
	CodeRejected   Code = "rejected"    // the request is valid and refused
	CodeLimit      Code = "limit"       // a limit on the number of jobs is reached (qsub exits 25)
	CodeBusy       Code = "busy"        // a job of -now y cannot start now, and was not submitted
	CodeDenied     Code = "denied"      // the caller may not do that
	CodeForeign    Code = "foreign"     // the job is somebody else's
	CodeNotFound   Code = "not_found"   // no such job
	CodeTryAgain   Code = "try_again"   // nothing was read: the caller has too many connections open, or execd stops
	CodeInternal   Code = "internal"    // execd has failed; its log says more
)

// Error is the body of every reply with another status than 200.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"text"` // as it should be shown: one line, or for -w v and p a line for each queue too
	// Refusal is the reason of a refused claim or activation; 0 for any other error.
	Refusal Refusal `json:"refusal,omitempty"`
}

func (e *Error) Error() string { return e.Text }

// Errorf returns an *Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Tasks is the task range of an array job, `-t first-last:step`. The zero
// value is a job that is not an array.
type Tasks struct {
	First int `json:"first"`
	Last  int `json:"last"`
	Step  int `json:"step"`
}

// IsArray reports whether the job is an array job.
func (t Tasks) IsArray() bool { return t.First > 0 }

// Count returns the number of tasks: 1 for a job that is not an array.
func (t Tasks) Count() int {
	if !t.IsArray() {
		return 1
	}
	return (t.Last-t.First)/t.Step + 1
}

// Has reports whether the range has a task of that number.
func (t Tasks) Has(number int) bool {
	return number >= t.First && number <= t.Last && (number-t.First)%t.Step == 0
}

// String returns the range as Grid Engine writes it, "3-7:2".
func (t Tasks) String() string { return fmt.Sprintf("%d-%d:%d", t.First, t.Last, t.Step) }

// ParseTasks reads "3", "3-7" or "3-7:2".
func ParseTasks(text string) (Tasks, error) {
	bad := fmt.Errorf("%q is not a range of tasks", text)
	span, step, hasStep := strings.Cut(text, ":")
	low, high, isRange := strings.Cut(span, "-")
	t := Tasks{Step: 1}
	var err error
	if t.First, err = strconv.Atoi(low); err != nil {
		return Tasks{}, bad
	}
	t.Last = t.First
	if isRange {
		if t.Last, err = strconv.Atoi(high); err != nil {
			return Tasks{}, bad
		}
	}
	if hasStep {
		if t.Step, err = strconv.Atoi(step); err != nil {
			return Tasks{}, bad
		}
	}
	if t.First < 1 || t.Last < t.First || t.Step < 1 || t.Last > MaxTask {
		return Tasks{}, bad
	}
	return t, nil
}

// Ranges returns the tasks of an array as ranges: those of only, as in
// SubmitRequest.Only, or of itself if only is empty.
func Ranges(of Tasks, only string) []Tasks {
	if only == "" {
		return []Tasks{of}
	}
	var ranges []Tasks
	for word := range strings.SplitSeq(only, ",") {
		t, _ := ParseTasks(word) // execd has written it
		ranges = append(ranges, t)
	}
	return ranges
}

// Listener is where a client listens for the job's side of a session, and by
// what the two recognise each other; see package qrsh/wire. The token is a
// secret between the client and execd.
type Listener struct {
	Address     string `json:"address"`     // host:port, or @ and the name of an abstract Unix socket
	Fingerprint string `json:"fingerprint"` // SHA-256 of the client's certificate, in hexadecimal; none of a Unix socket
	Token       string `json:"token"`       // 32 bytes in hexadecimal, used once
}

// AttachRequest connects a client to a running interactive job, in place of the
// one that it had.
type AttachRequest struct {
	Job    int      `json:"job"`
	Client Listener `json:"client"`
}

// AttachReply is sent when the job's side knows of the client.
type AttachReply struct {
	Terminal bool   `json:"terminal"`
	Cursor   string `json:"cursor"` // where to begin a WaitRequest for the job
}

// SubmitReply is sent once the job is safely on disk.
type SubmitReply struct {
	Job   int      `json:"job"` // 0: only verified
	Tasks Tasks    `json:"tasks,omitzero"`
	Only  string   `json:"only,omitempty"` // as in SubmitRequest
	Name  string   `json:"name"`
	Lines []string `json:"lines,omitempty"` // what -w found, to be printed first
	// Warnings are for standard error: what the user would otherwise learn too late.
	Warnings []string `json:"warnings,omitempty"`
	// Cursor is where to begin a WaitRequest for this job: nothing of it is
	// accounted before.
	Cursor string `json:"cursor"`
	// Program is the command line with which the client of an interactive job
	// connects to it; "" if it connects by qrsh-session.
	Program string `json:"program,omitempty"`
}

// AdReply is a submission as the ad of work that it would be.
type AdReply struct {
	Ad    Text     `json:"ad"` // in old syntax; of an array without ArrayTask
	Tasks Tasks    `json:"tasks,omitzero"`
	Only  string   `json:"only,omitempty"`  // as in SubmitRequest
	Lines []string `json:"lines,omitempty"` // what -w found, to be printed first; without an ad it is all
}

// Count returns how many tasks the job has: 1 for a job that is not an array.
func (r *SubmitReply) Count() int {
	n := 0
	for _, t := range Ranges(r.Tasks, r.Only) {
		n += t.Count()
	}
	return n
}

// JobsRequest asks for the unfinished jobs, and with Finished for the last
// finished ones.
type JobsRequest struct {
	Users    []string `json:"users,omitempty"`    // patterns as of -u; empty: the caller's own
	States   string   `json:"states,omitempty"`   // "p" pending, "r" running, "s" suspended, "z" none of them; empty: all
	Finished bool     `json:"finished,omitempty"` // and those that have finished, as far as they are remembered
	// Queues are names of queues: only such pending jobs are listed whose
	// requests allow one of them. Empty: all are.
	Queues []string `json:"queues,omitempty"`
	More   bool     `json:"more,omitempty"` // with JobStatus.More
	// Reasons asks for JobStatus.Reason of pending jobs without a hold, in
	// words that many jobs have in common.
	Reasons bool `json:"reasons,omitempty"`
}

// StateSending ends the state of a task that has ended and whose output is on its way to
// where it belongs: to, or Eto when that cannot be delivered until somebody has looked.
const StateSending = "to"

// JobStatus is one line of qstat: one running task, or the pending tasks of
// one job together.
type JobStatus struct {
	Job      int       `json:"job"`
	Priority float64   `json:"priority"` // normalised, 0 to 1
	Name     string    `json:"name"`
	Owner    string    `json:"owner"`
	State    string    `json:"state"`           // Grid Engine's letters: qw, hqw, t, r, dr, Eqw; z: finished; or see StateSending
	Time     time.Time `json:"time"`            // start time when running, else submission time
	Queue    string    `json:"queue,omitempty"` // queue instance, "all.q@host", when running
	Slots    int       `json:"slots"`
	Tasks    string    `json:"tasks,omitempty"`  // "5", or "6-10:2,13"; empty for a job that is not an array
	Reason   string    `json:"reason,omitempty"` // why it is in error, or why it is not starting
	Holds    string    `json:"holds,omitempty"`  // as in Detail; t: its time (-a) has not come; p: a policy holds it
	From     string    `json:"from,omitempty"`   // the submit host and its numbers, login1 12.1; empty: this host
	// Granted are the queues of a job that runs in several; the first is that
	// of the master task, which is Queue.
	Granted []Granted `json:"granted,omitempty"`
	More    *JobMore  `json:"more,omitempty"` // nil: not asked for
}

// Task returns the number of the task of a line with a single task: 1 for a job
// that is not an array.
func (j *JobStatus) Task() int {
	if n, err := strconv.Atoi(j.Tasks); err == nil {
		return n
	}
	return 1
}

// JobMore is what qstat shows of a job with -r, -ext, -pri, -urg, -t and -g t.
type JobMore struct {
	Submitted time.Time `json:"submitted"`
	Started   time.Time `json:"started,omitzero"` // zero: it does not run
	// Restarts is how often the task was started before.
	Restarts int `json:"restarts,omitempty"`

	Priority   int    `json:"priority,omitempty"` // -p
	Account    string `json:"account"`
	Project    string `json:"project,omitempty"`
	Department string `json:"department"`
	Reserve    bool   `json:"reserve,omitempty"`
	Checkpoint string `json:"checkpoint,omitempty"` // -ckpt
	Binding    string `json:"binding,omitempty"`    // as requested

	Hard         []Requested `json:"hard,omitempty"`
	Soft         []Resource  `json:"soft,omitempty"`
	Queues       []string    `json:"queues,omitempty"`
	SoftQueues   []string    `json:"soft_queues,omitempty"`
	MasterQueues []string    `json:"master_queues,omitempty"`
	PE           string      `json:"pe,omitempty"`    // as requested, name or pattern
	Slots        []Slots     `json:"slots,omitempty"` // of -pe

	HoldJobs      []string `json:"hold_jobs,omitempty"`       // words of -hold_jid
	HoldArray     []string `json:"hold_array,omitempty"`      // words of -hold_jid_ad
	WaitsFor      []int    `json:"waits_for,omitempty"`       // jobs of -hold_jid that are not over
	WaitsForTasks []int    `json:"waits_for_tasks,omitempty"` // and of -hold_jid_ad

	GrantedPE string    `json:"granted_pe,omitempty"`
	Granted   []Granted `json:"granted,omitempty"` // of a running task; the first is that of the master task
	// MasterApart says that the job itself takes none of the slots, since its
	// PE has job_is_first_task FALSE.
	MasterApart bool   `json:"master_apart,omitempty"`
	Usage       *Usage `json:"usage,omitempty"` // without its tasks; nil: it does not run, or is not known yet
	// Subtasks are the tasks that were started in the job and have not ended,
	// the oldest first. PastUsage is the usage of those that have ended; nil if
	// there are none.
	Subtasks  []Subtask `json:"subtasks,omitempty"`
	PastUsage *Usage    `json:"past_usage,omitempty"`

	Urgency Urgency `json:"urgency"`
	// The parts of the priority, each normalised to 0..1, before they are
	// weighed: what -p says, the urgency, and the share of the owner (where
	// Grid Engine has tickets).
	NormalPriority float64 `json:"normal_priority"`
	NormalUrgency  float64 `json:"normal_urgency"`
	NormalTickets  float64 `json:"normal_tickets"`
}

// Requested is a hard request, and what it contributes to the urgency.
type Requested struct {
	Resource
	Urgency float64 `json:"urgency"`
}

// Granted is a number of slots of a queue instance.
type Granted struct {
	Queue string `json:"queue"` // "all.q@host"
	Slots int    `json:"slots"`
}

// Urgency is what makes a job urgent: the resources that it asks for, slots
// above all, and the time that it has waited.
type Urgency struct {
	Total     float64 `json:"total"`
	Resources float64 `json:"resources"`
	Waiting   float64 `json:"waiting"`
}

// JobsReply lists running tasks first, then pending jobs, each by job number,
// then the finished ones, in the order in which they ended.
type JobsReply struct {
	Jobs []JobStatus `json:"jobs"`
}

// DetailRequest asks for everything about jobs by number or name pattern.
type DetailRequest struct {
	Jobs []string `json:"jobs"`
}

// Detail is what qstat -j shows of one job.
type Detail struct {
	Job        int           `json:"job"`
	Owner      string        `json:"owner"`
	UID        int           `json:"uid"`
	Group      string        `json:"group"`
	GID        int           `json:"gid"`
	Submitted  time.Time     `json:"submitted"`
	ScriptFile string        `json:"script_file"`       // job_scripts/<n>; empty for -b y
	Request    SubmitRequest `json:"request"`           // without the script's bytes
	Tasks      []TaskDetail  `json:"tasks,omitempty"`   // the running ones, and those in error; at most 1000
	Pending    string        `json:"pending,omitempty"` // the tasks not started, as in JobStatus.Tasks
	Finished   int           `json:"finished"`          // number of tasks that ended
	Reasons    []string      `json:"reasons,omitempty"` // why it is not starting
	Holds      string        `json:"holds,omitempty"`   // letters of u, o, s, and j or a for jobs it waits for
	WaitsFor   []int         `json:"waits_for,omitempty"`
	// Followers and ArrayFollowers are the jobs that wait for this one by
	// -hold_jid and by -hold_jid_ad.
	Followers      []int `json:"followers,omitempty"`
	ArrayFollowers []int `json:"array_followers,omitempty"`
	// WaitsForTasks are those of WaitsFor that come from -hold_jid_ad. They
	// stand last there.
	WaitsForTasks []int `json:"waits_for_tasks,omitempty"`
	// Parts of the priority, as in JobMore: of a pending job as of now, else as
	// of the start of its first task.
	NormalUrgency float64 `json:"normal_urgency,omitempty"`
	NormalTickets float64 `json:"normal_tickets,omitempty"`
}

// TaskDetail is a task that runs or is in error.
type TaskDetail struct {
	Task    int       `json:"task"` // 1 for a job that is not an array
	State   string    `json:"state"`
	Queue   string    `json:"queue,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Run     int       `json:"run"` // how often it was started before
	Reason  string    `json:"reason,omitempty"`
	// ErrorTime says since when the task is in error, for Reason.
	ErrorTime time.Time `json:"error_time,omitzero"`
	// Suspended is why the task is suspended, unless a user has suspended it.
	Suspended string `json:"suspended,omitempty"`
	// Silent says that the other host on which the task runs does not answer, and since when.
	Silent  string `json:"silent,omitempty"`
	Binding string `json:"binding,omitempty"` // the topology with its cores in small letters; empty: not bound
	// MatchExp is what references of the job to its slot were expanded to, each
	// MATCH_EXP_NAME=EXPRESSION; the request has them as they were.
	MatchExp []Text `json:"match_exp,omitempty"`
	Usage    *Usage `json:"usage,omitempty"` // nil: not running, or not known yet
	// Started beside the job, by qrsh -inherit and -into.
	Subtasks []Subtask `json:"subtasks,omitempty"`
	// Transfer is how the files of the task's sandbox travel; nil: none do.
	Transfer *Transfer `json:"transfer,omitempty"`
	// Hooks are the site's hooks that were called for the task, in order.
	Hooks []HookRun `json:"hooks,omitempty"`
}

// Transfer is how files travel into the sandbox of a task, or out of it.
type Transfer struct {
	Output  bool      `json:"output"` // out of it
	Bytes   int64     `json:"bytes"`
	Before  int64     `json:"before,omitempty"`  // of Bytes, those that were carried before the present attempt
	Total   int64     `json:"total,omitempty"`   // 0: not known yet
	Files   int       `json:"files,omitempty"`   // that are through
	Since   time.Time `json:"since,omitzero"`    // of the present attempt; zero: none is under way
	Queued  bool      `json:"queued,omitempty"`  // the present attempt waits for its turn
	Attempt int       `json:"attempt"`           // the present one, or the last
	Failure string    `json:"failure,omitempty"` // of the last that has failed
	Done    bool      `json:"done,omitempty"`    // all has arrived
	Left    string    `json:"left,omitempty"`    // but for what was left out: how much, and the first names
	Peer    string    `json:"peer,omitempty"`    // the host at the other end; empty: this one
	Away    bool      `json:"away,omitempty"`    // that is where the job runs
}

// HookRun is a hook that was called for a task, or a script of its own.
type HookRun struct {
	Keyword string    `json:"keyword"` // of its set of hooks
	Hook    string    `json:"hook"`
	Started time.Time `json:"started"`
	Took    float64   `json:"took"` // seconds; of a running hook those so far
	Running bool      `json:"running,omitempty"`
	Result  string    `json:"result,omitempty"`  // in words
	Count   int       `json:"count,omitempty"`   // how often it ran, if it is called periodically; the last run is described
	Skipped int       `json:"skipped,omitempty"` // how often it was not called because it still ran
}

// Subtask is a task that was started in a running job.
type Subtask struct {
	ID      string    `json:"id"` // "3.host", or "into.1"
	Queue   string    `json:"queue"`
	Started time.Time `json:"started"`
	Usage   *Usage    `json:"usage,omitempty"` // nil: not known yet
}

// DetailReply has the jobs found, and the words of the request that matched nothing.
type DetailReply struct {
	Jobs    []Detail `json:"jobs"`
	Missing []string `json:"missing,omitempty"`
}

// DeleteRequest is qdel. Jobs are "42", "42.3", "42.3-7:2", names or patterns.
type DeleteRequest struct {
	Jobs  []string `json:"jobs,omitempty"`
	Users []string `json:"users,omitempty"` // -u
	Force bool     `json:"force,omitempty"`
}

// Action is what qhold, qrls and qmod ask for.
type Action string

// The actions: on jobs and tasks, and where Queues are named on queues.
const (
	ActionHold       Action = "hold"       // qhold: Hold says which holds are set
	ActionRelease    Action = "release"    // qrls: and which are taken away
	ActionSuspend    Action = "suspend"    // qmod -sj, -sq
	ActionResume     Action = "resume"     // qmod -usj, -usq
	ActionClear      Action = "clear"      // qmod -cj, -cq: the error state
	ActionReschedule Action = "reschedule" // qmod -rj, -rq
	ActionDisable    Action = "disable"    // qmod -d
	ActionEnable     Action = "enable"     // qmod -e
)

// ModifyRequest asks for an action on jobs, named as in DeleteRequest, or on queues.
type ModifyRequest struct {
	Action Action   `json:"action"`
	Jobs   []string `json:"jobs,omitempty"`
	Users  []string `json:"users,omitempty"`  // -u
	Queues []string `json:"queues,omitempty"` // patterns, of names or of queue@host
	Hold   string   `json:"hold,omitempty"`   // letters of u, o, s
	Force  bool     `json:"force,omitempty"`
}

// ModifyReply has a line for each job or queue, as the command prints it.
type ModifyReply struct {
	Lines []Line `json:"lines"`
}

// HostRequest asks for this host and its queues: for all, or for those whose
// configuration offers what is asked for, whatever is in use.
type HostRequest struct {
	Resources []Resource `json:"resources,omitempty"` // the queue has them; load counts where it is a property of the host
	PEs       []string   `json:"pes,omitempty"`       // the queue has one of these
	Users     []string   `json:"users,omitempty"`     // all of them may use the queue
	Now       []Resource `json:"now,omitempty"`       // the host has them, as of now: else the reply is Excluded
}

// HostReply is what qhost and qstat -f show.
type HostReply struct {
	Host   string `json:"host"`
	Arch   string `json:"arch"`
	Groups string `json:"groups"` // control groups: v2, hybrid, v1, or why there are none
	// HostGroups are the names of the groups that the host is in, with their @.
	HostGroups []string    `json:"host_groups,omitempty"`
	Values     []HostValue `json:"values"` // all of the host, in Grid Engine's order
	// Global are the values of the host "global", which stands for all hosts.
	Global []HostValue   `json:"global,omitempty"`
	Queues []QueueStatus `json:"queues"`
	// BrokenHooks are the programs of hooks.conf that cannot be called, a line each
	// with file and line.
	BrokenHooks []string `json:"broken_hooks,omitempty"`
	Drain       *Drain   `json:"drain,omitempty"` // nil: tasks are started
	// Excluded says that the host does not have what was asked for.
	Excluded bool `json:"excluded,omitempty"`
	// Others are the other hosts that may run work of this one, if nothing is asked for that
	// is known of this host alone.
	Others []PeerStatus `json:"others,omitempty"`
}

// Instance returns the name of the instance of a queue on the host, "all.q@host".
func (r *HostReply) Instance(q *QueueStatus) string {
	if strings.Contains(q.Name, "@") {
		return q.Name
	}
	return q.Name + "@" + r.Host
}

// HostValue is the value of an attribute, as qhost -F and qstat -F show it.
type HostValue struct {
	Source string `json:"source"` // hl, hc, hf, gl, gc, gf, qc, qf: level and origin as of qhost(1)
	Name   string `json:"name"`
	Type   string `json:"type"`  // of the complex: INT, MEMORY, STRING and so on
	Value  string `json:"value"` // a size with the unit that fits, a time as hours, minutes and seconds
}

// Decimal returns the value as Grid Engine prints it: a boolean as a number
// with six decimals, and with whole an integer as well.
func (v *HostValue) Decimal(whole bool) string {
	switch v.Type {
	case "BOOL":
		n, _ := strconv.ParseBool(v.Value)
		if n {
			return "1.000000"
		}
		return "0.000000"
	case "INT", "RSMAP":
		if _, err := strconv.ParseInt(v.Value, 10, 64); whole && err == nil {
			return v.Value + ".000000"
		}
	}
	return v.Value
}

// QueueStatus is a queue of this host, as qstat -f shows it.
type QueueStatus struct {
	Name     string      `json:"name"`
	Type     string      `json:"type"` // letters of B, I, P, C
	Reserved int         `json:"reserved"`
	Used     int         `json:"used"`
	Total    int         `json:"total"`
	Load     float64     `json:"load"`              // load_avg; negative: not known
	States   string      `json:"states,omitempty"`  // letters of a, A, d, s, S, E, o
	Reasons  []string    `json:"reasons,omitempty"` // why, one or two lines for each letter, in their order; empty: not known
	Values   []HostValue `json:"values,omitempty"`  // its own, and those that differ from the host's of the same name
}

// ShowRequest asks for a part of the configuration as it is in force, in the
// format of its file.
type ShowRequest struct {
	Kind string `json:"kind"` // queue, pe, ckpt, complex, conf, sched, userlist, hostgroup, host, manager, operator, knob
	Name string `json:"name,omitempty"`
	List bool   `json:"list,omitempty"` // the names of all of the kind
	// Saved asks for the text of the file as it is now, to be changed. It is
	// for managers.
	Saved bool `json:"saved,omitempty"`
	// Template asks for the default values of a new object.
	Template bool `json:"template,omitempty"`
	// Tree and Resolved are other views of a hostgroup: the hosts it has, below
	// their groups, or in one line.
	Tree     bool `json:"tree,omitempty"`
	Resolved bool `json:"resolved,omitempty"`
	// Having lists the objects that have a value: of the kind queue, or of
	// queue_domain, queue_instance and host.
	Having *Having `json:"having,omitempty"`
}

// Having has patterns for the name of a parameter and for a word of its value.
type Having struct {
	Parameter string `json:"parameter"`
	Value     string `json:"value"`
}

// ShowReply is ready to be printed.
type ShowReply struct {
	Text string `json:"text"`
}

// ReloadRequest makes execd read its configuration again.
type ReloadRequest struct{}

// ReloadReply has the mistakes that were found. If there are any, nothing has changed.
type ReloadReply struct {
	Problems []string `json:"problems,omitempty"`
	Changed  []string `json:"changed"` // one line each
	// BrokenHooks are as of HostReply: the configuration is in force without them.
	BrokenHooks []string `json:"broken_hooks,omitempty"`
}

// Usage is what a task consumes, or has consumed.
type Usage struct {
	Wallclock  float64 `json:"wallclock"` // seconds
	CPU        float64 `json:"cpu"`       // seconds
	SysCPU     float64 `json:"-"`         // of them in the kernel; not sent
	Cores      float64 `json:"-"`         // it has kept busy of late; not sent
	Mem        float64 `json:"mem"`       // GB seconds
	IO         float64 `json:"io"`        // GB
	IOWait     float64 `json:"iow"`       // seconds
	VMem       float64 `json:"vmem"`      // bytes, as all that follow
	MaxVMem    float64 `json:"maxvmem"`
	RSS        float64 `json:"rss"`
	MaxRSS     float64 `json:"maxrss"`
	PIDs       int     `json:"pids"`
	MemLimit   float64 `json:"mem_limit,omitempty"`   // 0: none
	CPULimit   float64 `json:"cpu_limit,omitempty"`   // seconds; 0: none
	TimeLimit  float64 `json:"time_limit,omitempty"`  // seconds of wall clock; 0: none
	PIDsLimit  int     `json:"pids_limit,omitempty"`  // 0: none
	LimitsFrom string  `json:"limits_from,omitempty"` // "cgroup" or "rlimit": what holds the memory limit
}

// DeleteReply has a line for each job, as qdel prints it.
type DeleteReply struct {
	Lines []Line `json:"lines"`
}

// Line is a line to print. Failed says that it reports a failure.
type Line struct {
	Text   string `json:"text"`
	Failed bool   `json:"failed,omitempty"`
	Code   Code   `json:"code,omitempty"` // of a failure of qhold and qrls: CodeNotFound (they exit 3) or CodeDenied (10)
}

// WaitRequest waits until tasks of a job have ended. A client repeats it, with
// the cursor of the last reply, until Done; also when the connection broke,
// since execd may be restarted under it.
//
// With Start it waits for the first task to start, too: until then nobody knows
// whether one will.
type WaitRequest struct {
	Job    int    `json:"job"`
	Cursor string `json:"cursor,omitempty"`
	Start  bool   `json:"start,omitempty"`
}

// TaskEnd is how one task ended, as the accounting file has it.
type TaskEnd struct {
	Job    int    `json:"job"`
	Task   int    `json:"task"` // 0 for a job that is not an array
	Failed int    `json:"failed"`
	Exit   int    `json:"exit"`             // exit code, or 128+n
	Signal string `json:"signal,omitempty"` // "SIGKILL" when a signal ended it
	Ran    bool   `json:"ran"`              // whether the job itself was started
	Reason string `json:"reason,omitempty"` // in words, when failed
}

// WaitReply holds what ended since the cursor. It may be empty: then nothing
// happened for a while, and the client asks again.
type WaitReply struct {
	Ended  []TaskEnd `json:"ended,omitempty"`
	Cursor string    `json:"cursor"`
	// Started says that a task has started, if the request has Start; a task
	// that has also ended may be among Ended instead.
	Started bool   `json:"started,omitempty"`
	Done    bool   `json:"done"`            // no task is left
	Error   string `json:"error,omitempty"` // the job does not end by itself: why
	Vain    bool   `json:"vain,omitempty"`  // as in Stuck
}

// StatusRequest asks for the state of execd.
type StatusRequest struct{}

// StatusReply is what `execd -status` prints. The numbers are of tasks.
type StatusReply struct {
	Version   string `json:"version"`
	Host      string `json:"host"`
	Slots     int    `json:"slots"`
	Running   int    `json:"running"`
	Suspended int    `json:"suspended"` // of those that run
	Pending   int    `json:"pending"`
	Held      int    `json:"held"` // of those that are pending
	// Transferring is how many are over and have output on its way, Stuck how many have
	// output that is not delivered until somebody has looked.
	Transferring int `json:"transferring"`
	Stuck        int `json:"stuck"`
	Errored      int `json:"error"` // wait in error
	// Groups is the kind of control groups that jobs are in: none, v2, hybrid
	// or v1, with the controllers that limit them in brackets.
	Groups string `json:"groups"`
	Drain  *Drain `json:"drain,omitempty"` // nil: tasks are started
	// Started is when execd was started.
	Started time.Time `json:"started"`
	// Problems are for the administrator, the critical ones first.
	Problems []Alert `json:"problems"`
}

// An Alert is something that somebody should look at.
type Alert struct {
	// Critical says that jobs do not start, or soon cannot.
	Critical bool   `json:"critical"`
	Text     string `json:"text"` // one line
}
