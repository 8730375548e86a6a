package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/schedule"
	"paddock/spool"
)

// Format is the format number of the records this program writes, and the
// only one it reads.
const Format = 1

// A record is the file jobs/<number>: a header line, then a line for each
// event, appended, all JSON. So `cat` shows the biography of a job, damage to
// one file harms one job, and an array of any size costs a line a step.
type header = headerOf[api.SubmitRequest]

// digest is a header as it is read at the start of execd, when there may be a
// hundred thousand: the rest of the request, environments above all, is passed
// over.
type digest = headerOf[kept]

type headerOf[R any] struct {
	Format    int       `json:"format"`
	Job       int       `json:"job"`
	Owner     string    `json:"owner"`
	UID       int       `json:"uid"`
	Group     string    `json:"group"`
	GID       int       `json:"gid"`
	Groups    []string  `json:"groups,omitempty"` // all of the owner's, by name
	SubmitGID int       `json:"submit_gid"`       // of the process that submitted it
	Submitted time.Time `json:"submitted"`
	Request   R         `json:"request"`
	links
}

// links are the jobs that another waits for: what its words meant when it was submitted,
// or altered.
type links struct {
	WaitsFor      []int `json:"waits_for,omitempty"`       // of -hold_jid
	WaitsForTasks []int `json:"waits_for_tasks,omitempty"` // of -hold_jid_ad
	// Success are those of -hold_jid_ok and -hold_jid_ad_ok, which need not be in the
	// other two.
	Success []dependency `json:"success,omitempty"`
	// Unmet are those of Success that had failed before.
	Unmet []unmet `json:"unmet,omitempty"`
}

// digestOf returns what is kept of a header.
func digestOf(h *header) *digest {
	return &digest{
		Format: h.Format, Job: h.Job, Owner: h.Owner, UID: h.UID, Group: h.Group, GID: h.GID, Groups: h.Groups,
		SubmitGID: h.SubmitGID, Submitted: h.Submitted,
		Request: *keptOf(&h.Request), links: h.links,
	}
}

// line is one event of one task, or of several at once.
type line struct {
	Event Event     `json:"event"`
	Tasks string    `json:"tasks"` // as Tasks.format writes them
	Time  time.Time `json:"time"`
	Run   int       `json:"run,omitempty"`

	Start  *Start  `json:"start,omitempty"`  // of EventStarted
	End    *End    `json:"end,omitempty"`    // of EventOver and EventEnded
	Stuck  *Stuck  `json:"stuck,omitempty"`  // of EventStuck
	Want   *Want   `json:"want,omitempty"`   // of EventWant
	State  *state  `json:"state,omitempty"`  // of EventSnapshot
	Reason string  `json:"reason,omitempty"` // of EventErrored; of EventCleared and EventDeleted, if a policy does it
	Why    *Why    `json:"why,omitempty"`    // of EventErrored
	Hold   string  `json:"hold,omitempty"`   // of EventHeld and EventReleased: letters of u, o, s
	Change *change `json:"change,omitempty"` // of EventAltered
	Unmet  *unmet  `json:"unmet,omitempty"`  // of EventUnmet
	Late   bool    `json:"late,omitempty"`   // of EventWithdrawn: it took too long to prepare it
	Update Update  `json:"update,omitempty"` // of EventUpdated
}

// state is what a snapshot says of a job as a whole. The tasks that the lines
// behind it bring further count as pending in it.
type state struct {
	Pending     string       `json:"pending"` // as Tasks.format writes them
	Finished    int          `json:"finished"`
	Deleted     int          `json:"deleted,omitempty"`
	Failed      string       `json:"failed,omitempty"`  // those of Finished and Deleted that did not succeed, as Pending
	Failure     string       `json:"failure,omitempty"` // how the first of them ended
	Runs        map[int]int  `json:"runs,omitempty"`
	Checkpoints map[int]bool `json:"checkpoints,omitempty"`
	PIDs        map[int]int  `json:"pids,omitempty"`
	// Sandboxes has those that the last runs of tasks have left for the next.
	Sandboxes map[int]*Sandbox `json:"sandboxes,omitempty"`
	Late      map[int]int      `json:"late,omitempty"`
	Requeued  time.Time        `json:"requeued,omitzero"`
	Replied   bool             `json:"replied,omitempty"`
	Unmet     []unmet          `json:"unmet,omitempty"`
	// Held has the tasks with a hold, by its letter.
	Held map[string]string `json:"held,omitempty"`
}

// Start is what must be known of a run to find it again.
type Start struct {
	Queue string `json:"queue"` // the master's
	Boot  string `json:"boot"`  // boot id: after a reboot no process of the run is left
	// AddGID is the additional group id of the run; 0: none.
	AddGID int `json:"add_gid,omitempty"`
	// Grant is what the run holds; nil: one slot of Queue.
	Grant *schedule.Grant `json:"grant,omitempty"`
	// Priority is what the job had when its turn came, for those who look.
	Priority float64 `json:"priority,omitempty"`
	// Parts is what that was made of.
	Parts schedule.Parts `json:"parts,omitzero"`
	// Binding has the cores that the run is bound to, as its config.
	Binding string `json:"binding,omitempty"`
	// Claim is the public id of the claim that the run is under; empty: the queue's.
	Claim string `json:"claim,omitempty"`
	// Remote is where on another host the run is; nil: it is on this one.
	Remote *Remote `json:"remote,omitempty"`
	// Carved are the slots of the run that were carved out of others.
	Carved []Carved `json:"carved,omitempty"`
	// Sandbox is the directory of its own that the run works in; nil: it has none.
	Sandbox *Sandbox `json:"sandbox,omitempty"`
	// MatchExp is what references of the job to its slot were expanded to, as ad.Expand has it.
	MatchExp []api.Text `json:"match_exp,omitempty"`
	// Needs are those of the job when the run was started; nil: those it has
	// where the line stands.
	Needs *needs `json:"needs,omitempty"`
}

// Remote is the place of a run on another host, under Claim of its Start, which is that
// host's.
type Remote struct {
	Host string `json:"host"` // by its name in the file peers
	// Sandbox is the id of the run there. No two have the same, and it is not started twice.
	Sandbox string `json:"sandbox"`
	// Key opens its files there, which travel; empty: the hosts share them.
	Key api.SandboxKey `json:"key,omitempty"`
}

// Carved is a slot that was carved for a run.
type Carved struct {
	Queue  string `json:"queue"`
	Slot   int    `json:"slot"` // M of slotN_M
	Cpus   int64  `json:"cpus"`
	Memory int64  `json:"memory"` // MB
	Disk   int64  `json:"disk"`   // KiB
	GPUs   int64  `json:"gpus,omitempty"`
}

// Want is what somebody asked for.
type Want struct {
	Signal int    `json:"signal"`
	By     string `json:"by,omitempty"` // user; empty: execd itself, for a reason
	// Reason is the limit that the task has exceeded.
	Reason string `json:"reason,omitempty"`
	// Requeue says that the task is to run again, whatever its end.
	Requeue bool `json:"requeue,omitempty"`
	// Error, with Requeue, has the task wait in error instead of for a slot, and
	// says why.
	Error string `json:"error,omitempty"`
	// Slot says that its slot has to be left, whatever becomes of it then. Code, with
	// Subcode, says why in HTCondor's numbers: that of a slot.Reason, or of a hold; Cause
	// does in words.
	Slot    bool   `json:"slot,omitempty"`
	Code    int    `json:"code,omitempty"`
	Subcode int    `json:"subcode,omitempty"`
	Cause   string `json:"cause,omitempty"`
	// Vacate is the number of the slot.Reason for which it has to leave. It is Code but
	// for what is held. Until is when it is killed that was only asked to; zero: it is
	// being killed.
	Vacate int       `json:"vacate,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	// UntilUp is for how long the host has been up then. An execd that is started anew
	// counts by it: the clock may have been set.
	UntilUp time.Duration `json:"until_up,omitempty"`
}

// Why is why a task is held, in HTCondor's numbers.
type Why struct {
	Code    int `json:"code"`
	Subcode int `json:"subcode,omitempty"`
}

// Update is what is known of a run on another host: attributes of its ad, as they stand
// there.
type Update map[string]string

// Fate is what becomes of a task whose run has ended.
type Fate string

// The fates.
const (
	FateDone    Fate = "done"
	FateRequeue Fate = "requeue" // runs again
	FateError   Fate = "error"   // waits for somebody to look (Eqw)
)

// End is the outcome of a run, with all that the steps after it need.
type End struct {
	Failed int    `json:"failed"` // as in accounting(5)
	Exit   int    `json:"exit"`
	Reason string `json:"reason,omitempty"`
	// Cause is why it has ended; Reason says so in words.
	Cause spool.Cause `json:"cause,omitempty"`
	Fate  Fate        `json:"fate"`
	// Why is why the task is held with FateError, in numbers; nil: they are not known.
	Why *Why `json:"why,omitempty"`
	// Checkpoint says that the run left a checkpoint from which the next goes on.
	Checkpoint bool `json:"checkpoint,omitempty"`
	// PID is the job's, for the command that restarts it from the checkpoint.
	PID int `json:"pid,omitempty"`
	// Sandbox is the run's, with which the next goes on; nil: it begins with none.
	Sandbox *Sandbox `json:"sandbox,omitempty"`
	// Carries is what another host is to pull of what the run has left.
	Carries Carries `json:"carries,omitempty"`
	// Holds says that the run keeps its claim on another host until that has been pulled.
	Holds bool `json:"holds,omitempty"`
	// Accounting is the line for the accounting file, and Place where it was
	// to be written: when the step is repeated after a crash it looks from
	// there on for that very line.
	Accounting string `json:"accounting"`
	Place      Place  `json:"place"`
}

// Awaited reports whether somebody waits for what another host is to pull: the last run of a job has
// come to its end, and what it has written to standard streams may be all that it was to leave.
func (e *End) Awaited() bool {
	return e.Carries == CarriesOutput || e.Carries == CarriesStreams && e.Fate == FateDone && e.Cause != spool.CauseDeleted
}

// Carries says what another host is to pull of what a run of it has left.
type Carries string

// The kinds.
const (
	CarriesOutput  Carries = ""        // its output, with what it has written to standard streams
	CarriesStreams Carries = "streams" // these alone
	CarriesAll     Carries = "all"     // these, and all that is new: the next run goes on with it
)

// Stuck is why the output of a run is not delivered until somebody has looked.
type Stuck struct {
	Text  string `json:"text"`
	Errno int    `json:"errno,omitempty"` // of the system; 0: the cause is another
	// Since is when it was given up.
	Since time.Time `json:"since"`
	KiB   int64     `json:"kib,omitempty"` // that were to be transferred; 0: not known
}

// Place is a position in a file that may be rotated away under it.
type Place struct {
	Inode  uint64 `json:"inode"`
	Offset int64  `json:"offset"`
}

// decode reads a record and replays it. The error matches spool.ErrFormat for one that was
// written by an execd of another format. A last line without newline is the
// trace of a write that was cut short: it was promised to nobody, and whole
// says how many bytes are good. Any other damage is an error; the job that is
// returned with it knows what could be read.
func decode(data []byte) (j *Job, whole int, err error) { return decodeBy(new(headers), data) }

// decodeBy is decode after others, of whose headers something is known.
func decodeBy(hs *headers, data []byte) (j *Job, whole int, err error) {
	whole = bytes.LastIndexByte(data, '\n') + 1
	first, rest, ok := bytes.Cut(data[:whole], []byte("\n"))
	if !ok {
		return nil, 0, errors.New("the header is cut short")
	}
	h, terms, err := hs.decode(first)
	if err != nil {
		return nil, 0, err
	}
	j = jobOf(h, terms)
	for n := 2; len(rest) > 0; n++ {
		var text []byte
		text, rest, _ = bytes.Cut(rest, []byte("\n"))
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return j, whole, fmt.Errorf("line %d is not an event: %v", n, err)
		}
		if err := j.replay(&l); err != nil {
			return j, whole, fmt.Errorf("line %d: %v", n, err)
		}
	}
	return j, whole, nil
}

// check refuses a header that execd itself would not have written.
func (h *headerOf[R]) check(t api.Tasks) error {
	switch {
	case h.Job < 1:
		return fmt.Errorf("job %d", h.Job)
	case h.Owner == "":
		return errors.New("no owner")
	case t != (api.Tasks{}) && (t.First < 1 || t.Last < t.First || t.Step < 1 || t.Last > api.MaxTask):
		return fmt.Errorf("tasks %v", t)
	}
	return nil
}

// replay applies one line to the job.
func (j *Job) replay(l *line) error {
	if l.Event == EventSnapshot {
		return j.restore(l.State)
	}
	if l.Event == EventAltered {
		return j.alter(l)
	}
	if l.Event == EventUnmet {
		if l.Unmet == nil {
			return errors.New("an unmet dependency without its particulars")
		}
		return j.addUnmet(l.Unmet)
	}
	if l.Event == EventReplied {
		j.replied = true
		return nil
	}
	set, ok := parseTasks(l.Tasks, j.Tasks)
	if !ok {
		return fmt.Errorf("tasks %q are none of the job's", l.Tasks)
	}
	switch l.Event {
	case EventHeld, EventReleased:
		return j.hold(&set, l.Hold, l.Event == EventHeld)
	}
	for number := range set.All {
		if err := j.apply(number, l); err != nil {
			return err
		}
	}
	return nil
}

// restore takes the state of a snapshot for that of the job.
func (j *Job) restore(st *state) error {
	if st == nil {
		return errors.New("a snapshot without a state")
	}
	pending := NoTasks(j.Tasks)
	if st.Pending != "" {
		var ok bool
		if pending, ok = parseTasks(st.Pending, j.Tasks); !ok {
			return fmt.Errorf("tasks %q are none of the job's", st.Pending)
		}
	}
	j.pending, j.active, j.started = pending, nil, 0
	j.finished, j.deleted, j.replied = st.Finished, st.Deleted, st.Replied
	own := j.own()
	own.requeued = st.Requeued
	own.runs, own.checkpoints, own.pids = maps.Clone(st.Runs), maps.Clone(st.Checkpoints), maps.Clone(st.PIDs)
	own.late, own.sandboxes = maps.Clone(st.Late), maps.Clone(st.Sandboxes)
	own.failed, own.failure = NoTasks(j.Tasks), st.Failure
	if st.Failed != "" {
		var ok bool
		if own.failed, ok = parseTasks(st.Failed, j.Tasks); !ok {
			return fmt.Errorf("tasks %q are none of the job's", st.Failed)
		}
	}
	own.unmet = nil
	for i := range st.Unmet {
		if err := j.addUnmet(&st.Unmet[i]); err != nil {
			return err
		}
	}
	own.held = nil
	for letter, tasks := range st.Held {
		set, ok := parseTasks(tasks, j.Tasks)
		if !ok {
			return fmt.Errorf("tasks %q are none of the job's", tasks)
		}
		if err := j.hold(&set, letter, true); err != nil {
			return err
		}
	}
	return nil
}

// lines returns events that lead to the present state of the job.
func (j *Job) lines(now time.Time) []*line {
	st := &state{Finished: j.finished, Deleted: j.deleted, Runs: j.runs, Checkpoints: j.checkpoints, PIDs: j.pids, Sandboxes: j.sandboxes, Late: j.late, Requeued: j.requeued, Replied: j.replied, Failed: j.failed.format(), Failure: j.failure}
	for _, u := range j.unmet {
		st.Unmet = append(st.Unmet, *u)
	}
	for letter, set := range j.held {
		if st.Held == nil {
			st.Held = map[string]string{}
		}
		st.Held[string(letter)] = set.format()
	}
	pending := j.pending.clone()
	list := []*line{{Event: EventSnapshot, Time: now, State: st}}
	tasks := j.tasksInOrder()
	for _, d := range j.deletions {
		pending.AddAll(&d.gone)
		tasks = append(tasks, d.errored...)
	}
	for _, t := range tasks {
		pending.Add(t.Number)
		number := strconv.Itoa(t.Number)
		if t.State == Errored {
			list = append(list, &line{Event: EventErrored, Tasks: number, Time: t.ErroredAt, Run: t.Run, Reason: t.Reason, Why: t.Why})
			continue
		}
		start := t.Start
		if t.Needs != j.Terms().Needs {
			n := needsIn(t.Needs.Request())
			start.Needs = &n
		}
		list = append(list, &line{Event: EventStarted, Tasks: number, Time: t.Started, Run: t.Run, Start: &start})
		if t.Suspended {
			list = append(list, &line{Event: EventSuspended, Tasks: number, Time: now, Reason: t.Missing})
		}
		if len(t.Update) > 0 {
			list = append(list, &line{Event: EventUpdated, Tasks: number, Time: now, Run: t.Run, Update: maps.Clone(t.Update)})
		}
		wanted := func(want *Want) {
			if want != nil {
				list = append(list, &line{Event: EventWant, Tasks: number, Time: now, Want: want})
			}
		}
		if t.State == Over {
			wanted(t.WantBefore)
			list = append(list, &line{Event: EventOver, Tasks: number, Time: now, Run: t.Run, End: t.End})
		}
		if t.State != Over || t.Want != t.WantBefore {
			wanted(t.Want)
		}
		if t.Stuck != nil {
			list = append(list, &line{Event: EventStuck, Tasks: number, Time: now, Run: t.Run, Stuck: t.Stuck})
		}
		if t.State == Ended {
			list = append(list, &line{Event: EventEnded, Tasks: number, Time: now, Run: t.Run, End: t.End})
		}
	}
	if pending.Len() > 0 {
		st.Pending = pending.format()
	}
	return list
}

// apply is the only place where a task changes its state.
func (j *Job) apply(number int, l *line) error {
	t := j.active[number]
	state := Gone
	switch {
	case t != nil:
		state = t.State
	case j.pending.Has(number):
		state = Pending
	}
	to, ok := next[state][l.Event]
	if !ok {
		return fmt.Errorf("task %d is %v and cannot be %v", number, state, l.Event)
	}
	if to == state && !l.Event.changesWithin(state) {
		if (l.Event == EventOver || l.Event == EventEnded) && l.End != nil {
			t.End = l.End
		}
		return nil
	}
	switch l.Event {
	case EventStarted:
		if l.Start == nil {
			return errors.New("a start without its particulars")
		}
		j.pending.Remove(number)
		t = &Task{
			Job: j, Number: number, Run: j.runs[number], Checkpoint: j.checkpoints[number], LastPID: j.pids[number], Kept: j.sandboxes[number],
			Started: l.Time, Start: *l.Start, Needs: j.Terms().Needs, alteration: j.alterations, begun: make(chan struct{}),
		}
		if n := t.Start.Needs; n != nil {
			t.Needs, t.Start.Needs = needsOf(n), nil
		}
		j.activate(t)
	case EventWithdrawn:
		delete(j.active, number)
		j.pending.Add(number)
		if l.Late {
			j.noteLate(number)
		}
	case EventWant:
		if l.Want == nil {
			return errors.New("a want without its particulars")
		}
		t.Want = l.Want
	case EventSuspended, EventResumed:
		t.Suspended, t.Missing = l.Event == EventSuspended, l.Reason
	case EventUpdated:
		if t.Update == nil {
			t.Update = Update{}
		}
		maps.Copy(t.Update, l.Update)
	case EventCleared:
		delete(j.active, number)
		delete(j.late, number)
		j.pending.Add(number)
	case EventOver, EventEnded:
		if l.End == nil {
			return errors.New("an end without its particulars")
		}
		t.End, t.Stuck = l.End, nil
		if l.Event == EventOver {
			t.WantBefore = t.Want
		}
	case EventStuck:
		if l.Stuck == nil {
			return errors.New("output that is stuck without its particulars")
		}
		t.Stuck = l.Stuck
	case EventUnstuck:
		t.Stuck = nil
	case EventDone:
		delete(j.active, number)
		if b := t.End.kept(); b != nil { // it was to run again, and does not
			j.keep(number, b)
		}
		j.forgetRuns(number)
		j.finished++
		if why := t.End.failure(); why != "" {
			j.fail(number, why)
		}
	case EventRequeued:
		delete(j.active, number)
		j.pending.Add(number)
		j.ran(number, t.Run)
		delete(j.checkpoints, number)
		delete(j.pids, number)
		if t.End != nil && t.End.Checkpoint {
			own := j.own()
			if own.checkpoints == nil {
				own.checkpoints, own.pids = map[int]bool{}, map[int]int{}
			}
			own.checkpoints[number], own.pids[number] = true, t.End.PID
		}
		j.keep(number, t.End.kept())
		j.own().requeued = l.Time
	case EventErrored:
		if t != nil && t.State == Ended {
			j.keep(number, t.End.kept())
			if l.Why != nil { // it has run, and runs again when it is released
				j.ran(number, t.Run)
			}
		}
		if t == nil {
			j.pending.Remove(number)
			t = &Task{Job: j, Number: number, Run: j.runs[number], Checkpoint: j.checkpoints[number], LastPID: j.pids[number], begun: make(chan struct{})}
			j.activate(t)
		}
		t.Reason, t.Why, t.ErroredAt, t.Want = l.Reason, l.Why, l.Time, nil
	case EventDeleted:
		j.pending.Remove(number)
		delete(j.active, number)
		j.forgetRuns(number)
		j.deleted++
		j.fail(number, deletedBeforeRun)
	default:
		return fmt.Errorf("unknown event %q", l.Event)
	}
	if to == Started && state != Started {
		j.started++
	}
	if state == Started && to != Started {
		j.started--
	}
	if t != nil {
		t.State = to
	}
	return nil
}

// decodeHeader reads the first line of a record.
func decodeHeader(b []byte) (*header, error) {
	var h header
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, err
	}
	return &h, h.check(h.Request.Tasks)
}

// encode returns v as one line. Without HTML's escapes: people read it.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("internal error: cannot encode record: %w", err)
	}
	return b.Bytes(), nil
}

// Job is one job in memory: what must be at hand. The request with its
// environment is read from the record when it is needed. A hundred thousand may
// wait, so that what few of them have is elsewhere, and what many share is there once.
type Job struct {
	Number int
	*Submitter
	*Origin
	Submitted time.Time
	Tasks     api.Tasks
	only      *Tasks // those of them that it has; nil: all
	HasScript bool
	// Interactive says that it is a job of qrsh: it ends with its first run.
	Interactive bool

	dropped      bool // guarded by the Store's mutex; nothing is left of it, its record goes
	replied      bool // guarded by the Store's mutex; who it came from was told that it was accepted
	startAwaited bool // guarded by the Store's mutex; somebody waits for a task to start, which changed is to tell
	stale        bool // guarded by the Store's mutex; it was altered since somebody asked what is ready

	terms atomic.Pointer[Terms]

	file sync.Mutex // one writer at a time; held before the Store's mutex
	size int64      // guarded by file; of the record
	base int64      // guarded by file; its size when it was new or made anew

	// The rest is guarded by the Store's mutex.
	pending     Tasks
	active      map[int]*Task // started, over, ended or in error; nil: none was yet
	started     int           // tasks in state Started
	finished    int           // tasks that ran to their end
	deleted     int           // tasks deleted before they started
	request     *api.SubmitRequest
	alterations int // how often it was altered
	// particulars are read here, and written by way of own.
	*particulars
}

// Submitter is who has submitted a job. Many jobs share one, which is to be read only.
type Submitter struct {
	Owner     string
	UID       int
	Group     string
	GID       int
	Groups    []string // all of the owner's, by name
	SubmitGID int      // of the process that submitted it
}

// Origin is where a job comes from. It is to be read only.
type Origin struct {
	// Source is who it came from: the holder of the claim that it came under, as in its
	// api.Work; empty: the queue, by qsub. Identity is by what he knows it; empty: by
	// nothing.
	Source   string
	Identity string
	// Activation is who follows it; nil: nobody.
	Activation *api.Activation
}

// fromQsub is the Origin of jobs of the queue.
var fromQsub Origin

// particulars are what few of the jobs that wait have.
type particulars struct {
	deletions     []*deletion      // those that have taken tasks out, which the record does not say yet
	runs          map[int]int      // run numbers of tasks that ran before
	checkpoints   map[int]bool     // those of them whose last run left a checkpoint
	pids          map[int]int      // and the pid that the job had in it
	sandboxes     map[int]*Sandbox // those that the last runs of tasks have left for the next
	unboxed       []*Sandbox       // those of tasks that will not run again, to be told
	late          map[int]int      // how often it took too long to prepare them
	notBefore     time.Time        // when it may be prepared again; lost with execd
	delayed       string           // and why not before
	delays        int              // how often that was
	failed        Tasks            // those that are over and did not succeed
	failure       string           // how the first of them ended
	requeued      time.Time        // when a task was last put back: the job queues behind those that did not have their turn
	changed       chan struct{}    // closed when a task's end is in the accounting file; nil: nobody waits
	held          map[rune]Tasks   // tasks that are not to be started, by the letter of the hold
	waitsFor      map[int]bool     // the jobs of -hold_jid that are not over
	waitsForTasks []int            // the jobs of -hold_jid_ad and -hold_jid_ad_ok
	links         links            // what they came from, with no Unmet
	unmet         []*unmet         // those of links.Success that did not succeed
	blocked       []blockedJob     // of a job that is over: those that will never run, to be told
	freed         []*Job           // of a job that is over: those that waited for it, to be told
}

// noParticulars are those of all jobs that have none of their own.
var noParticulars particulars

// own returns the particulars of the job, to be written.
func (j *Job) own() *particulars {
	if j.particulars == &noParticulars {
		j.particulars = &particulars{failed: NoTasks(j.Tasks)}
	}
	return j.particulars
}

// Task is a task that is not pending any more.
type Task struct {
	Job        *Job
	Number     int      // 1 for a job that is no array
	Run        int      // how often it was started before
	Checkpoint bool     // the run before left one to go on from
	LastPID    int      // of the job in the run before that left it; 0: not known
	Kept       *Sandbox // of the run before, which this one goes on with; nil: none
	State      State
	Started    time.Time
	Start      Start
	Needs      Needs // of the job when the run was started
	Want       *Want
	WantBefore *Want  // what it was when the task was over; another one ends the transfer of its output
	Suspended  bool   // by somebody, as with qmod -sj
	Missing    string // why it is, if it is for want of a client
	Stopped    string // why else it is stopped, S by its queue, T by a threshold; lost with execd
	End        *End   // from Over on, or from Ended where nothing is transferred
	Stuck      *Stuck // why the output is not delivered, in Over; nil: it is on its way
	Update     Update // of a run on another host, as far as it is recorded
	Reason     string // of Errored
	Why        *Why   // of Errored; nil: its numbers are not known
	ErroredAt  time.Time

	alteration int           // the Job's alterations when the run was started
	begun      chan struct{} // closed when the start is recorded, or given up
	recorded   bool          // guarded by the Store's mutex; the end is on disk
	counted    bool          // guarded by the Store's mutex; and in the accounting file
}

// Begun returns a channel that is closed when the start of the task is recorded, or
// given up.
func (t *Task) Begun() <-chan struct{} { return t.begun }

// Slots returns how many slots the task has.
func (t *Task) Slots() int {
	if t.Start.Grant == nil {
		return 1
	}
	return t.Start.Grant.Slots()
}

// On returns the host that the task runs on, which is here unless it is another's.
func (t *Task) On(here string) string {
	if r := t.Start.Remote; r != nil {
		return r.Host
	}
	return here
}

// RunID returns the name of the task's run in the spool.
func (t *Task) RunID() spool.RunID {
	return spool.RunID{Job: t.Job.Number, Task: t.Number, Run: t.Run}
}

func (t *Task) String() string { return fmt.Sprintf("%d.%d", t.Job.Number, t.Number) }

// Home returns the task by the numbers that it sees itself: those of the host where it was
// submitted, which has no name here if it is this one.
func (t *Task) Home() api.Home {
	if a := t.Job.Activation; a != nil && a.Home != nil {
		return *a.Home
	}
	return api.Home{Job: t.Job.Number, Task: t.Number, Run: t.Run, Array: t.Job.Tasks}
}

func newJob(h *digest) *Job { return jobOf(h, h.Request.terms().common()) }

// jobOf returns the job of a header with these terms.
func jobOf(h *digest, terms *Terms) *Job {
	r := &h.Request
	j := &Job{
		Number: h.Job, Submitter: h.submitter(), Origin: &fromQsub, particulars: &noParticulars,
		Submitted: h.Submitted, Tasks: r.Tasks, HasScript: !r.Binary, Interactive: r.Interactive != nil,
	}
	if r.Only != "" {
		only, _ := parseTasks(r.Only, r.Tasks) // it is checked
		j.only = &only
	}
	j.pending = j.all()
	if r.Work != nil {
		j.Origin = &Origin{r.Work.Holder, string(r.Work.Identity), r.Work.Activation}
	}
	j.terms.Store(terms)
	if r.Hold != "" {
		all := j.all()
		_ = j.hold(&all, r.Hold, true) // letters are checked at submission
	}
	_ = j.waitFor(h.links) // what is unmet is checked
	return j
}

// all returns the tasks that the job was submitted with.
func (j *Job) all() Tasks {
	if j.only != nil {
		return j.only.clone()
	}
	return AllTasks(j.Tasks)
}

// count is how many these are.
func (j *Job) count() int {
	if j.only != nil {
		return j.only.Len()
	}
	return j.Tasks.Count()
}

// activate enters a task that is not pending any more.
func (j *Job) activate(t *Task) {
	if j.active == nil {
		j.active = map[int]*Task{}
	}
	j.active[t.Number] = t
}

// ran notes a run of a task that is to run again.
func (j *Job) ran(number, run int) {
	own := j.own()
	if own.runs == nil {
		own.runs = map[int]int{}
	}
	own.runs[number] = run + 1
}

// forgetRuns forgets the earlier runs of a task that does not run again.
func (j *Job) forgetRuns(number int) {
	delete(j.late, number)
	delete(j.runs, number)
	delete(j.checkpoints, number)
	delete(j.pids, number)
	j.unbox(number)
}

// over reports whether nothing of the job is left to do.
func (j *Job) over() bool { return j.pending.Len() == 0 && len(j.active) == 0 }

// tasksInOrder returns the active tasks by number.
func (j *Job) tasksInOrder() []*Task {
	tasks := make([]*Task, 0, len(j.active))
	for _, t := range j.active {
		tasks = append(tasks, t)
	}
	slices.SortFunc(tasks, func(a, b *Task) int { return a.Number - b.Number })
	return tasks
}
