package job

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/spool"
)

// Caller is the user of a connection, as the kernel names him, or another host whose user
// he is.
type Caller struct {
	UID      int    // here; negative: another host, for none of its users
	Host     string // that has named him; empty: the kernel of this one
	GID      int    // of the process that asks, which may be any of the user's groups
	Name     string
	Unsure   bool // he had that name within the hour; it gives him no rights
	Manager  bool // may do everything to everybody's jobs
	Operator bool // may hold, suspend and reschedule everybody's jobs, and disable queues
}

// State returns the state of a task.
func (s *jobSet) State(t *Task) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.State
}

// RunningTask returns a task of a job that runs; with 0 the only one. Where
// several do there is none such, and more says so.
func (s *jobSet) RunningTask(j *Job, number int) (t *Task, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number > 0 {
		if t = j.active[number]; t != nil && t.State == Started {
			return t, false
		}
		return nil, false
	}
	for _, other := range j.active {
		if other.State != Started {
			continue
		}
		if t != nil {
			return nil, true
		}
		t = other
	}
	return t, false
}

// Recorded reports whether the end of a task is on disk.
func (s *jobSet) Recorded(t *Task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.recorded
}

// Want returns what somebody asked of a task, or nil.
func (s *jobSet) Want(t *Task) *Want {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.Want
}

// Changed returns a channel that is closed when another end of the job is in the
// accounting file, and whether the job is over, or why it does not end by itself, as of
// now. With tasks it is so for these alone: they are over when they are accounted and do
// not run again, however much of their job is left.
func (s *jobSet) Changed(j *Job, tasks api.Tasks) (changed <-chan struct{}, over bool, stuck api.Stuck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.changed == nil {
		j.own().changed = make(chan struct{})
	}
	if s.jobs[j.Number] != j {
		return j.changed, true, stuck
	}
	some := tasks.IsArray()
	pending, vain := j.pending.clone(), s.graph.inVain(j)
	if some {
		pending = pending.Cut(tasks)
	}
	if pending.Len() > 0 && vain.root != "" {
		stuck = api.Stuck{Reason: vain.texts[0], Vain: true}
		pending.Subtract(&vain.tasks)
	}
	// Only when nothing else of them goes on are they stuck.
	waits := pending.Len() > 0
	for _, t := range slices.Backward(j.tasksInOrder()) {
		switch {
		case some && !tasks.Has(t.Number):
		case t.State == Errored:
			stuck = api.Stuck{Reason: t.Reason}
		case t.Stuck != nil && t.Want == t.WantBefore: // one that was deleted goes
			stuck = api.Stuck{Reason: t.Stuck.Text}
		case some && t.State == Ended && t.counted && t.End.Fate == FateDone:
		default:
			waits = true
		}
	}
	if waits {
		return j.changed, false, api.Stuck{}
	}
	return j.changed, some && stuck == api.Stuck{}, stuck
}

// Starts returns a channel that is closed when more is known of whether a job starts;
// and whether a task of it has started, or none will as long as nobody does anything:
// it is over, in error, or waits in vain.
func (s *jobSet) Starts(j *Job) (changed <-chan struct{}, started, never bool) {
	changed, over, stuck := s.Changed(j, api.Tasks{})
	s.mu.Lock()
	defer s.mu.Unlock()
	j.startAwaited = true
	for _, t := range j.active {
		if t.hasBegun() {
			return changed, true, false
		}
	}
	return changed, false, over || stuck.Reason != ""
}

// hasBegun reports whether the start of a task is recorded. The Store's mutex is held.
func (t *Task) hasBegun() bool {
	if t.State != Started && t.State != Over && t.State != Ended {
		return false // also one whose start was given up
	}
	select {
	case <-t.begun:
		return true
	default:
		return false
	}
}

// letters returns the state of a task that is not pending as Grid Engine
// abbreviates it, in its order. The Store's mutex is held.
func (t *Task) letters() string {
	held := ""
	if t.holds() != "" {
		held = "h"
	}
	if t.State == Errored {
		return "E" + held + "qw"
	}
	state := ""
	if t.Want != nil {
		state = "d"
	}
	state += held
	if t.Run > 0 {
		state += "R"
	}
	switch {
	case t.Stuck != nil:
		return "E" + state + api.StateSending
	case t.State == Over:
		return state + api.StateSending
	case t.Suspended:
		return state + "s"
	case t.Stopped != "":
		return state + t.Stopped
	}
	return state + "r"
}

// why returns why the task waits for somebody to look; empty: it does not. The Store's
// mutex is held.
func (t *Task) why() string {
	if t.Stuck != nil {
		return t.Stuck.Text
	}
	return t.Reason
}

// holds returns the letters of the holds that are set on a task, which count
// when it is to start again. The Store's mutex is held.
func (t *Task) holds() string {
	var b strings.Builder
	for _, letter := range Holds {
		if held, ok := t.Job.held[letter]; ok && held.Has(t.Number) {
			b.WriteRune(letter)
		}
	}
	if len(t.Job.waitsFor) > 0 {
		b.WriteByte('j')
	}
	return b.String()
}

// errorHolds returns holds of a task in error, which may be one itself: by a policy.
func (t *Task) errorHolds() string {
	if t.Why != nil {
		return t.holds() + "p"
	}
	return t.holds()
}

// SetStopped notes why execd has stopped a task, for those who look.
func (s *jobSet) SetStopped(t *Task, letters string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Stopped = letters
	s.became(t.Job)
}

// Miss suspends an interactive job that has lost its client, for a reason, or
// with none lets it go on if nobody else has suspended it, and reports whether
// that has changed anything.
func (s *Store) Miss(t *Task, why string) (bool, error) {
	l := line{Event: EventSuspended, Tasks: strconv.Itoa(t.Number), Time: time.Now(), Reason: why}
	if why == "" {
		l.Event = EventResumed
	}
	s.mu.Lock()
	changes := t.State == Started && (why != "" && !t.Suspended || why == "" && t.Missing != "")
	s.mu.Unlock()
	if !changes {
		return false, nil
	}
	return true, s.commit(t.Job, durable, nil, &l)
}

// WantStopped reports whether somebody has suspended a task, or execd has
// stopped it.
func (s *jobSet) WantStopped(t *Task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.Suspended || t.Stopped != ""
}

// maxDetailTasks bounds the tasks that one detail shows.
const maxDetailTasks = 1000

// Detail returns everything about a job; false: it is over. Environments are shown to
// owners and managers only.
func (s *Store) Detail(j *Job, caller Caller, host string, reasons func(*Job) []string) (api.Detail, bool) {
	request, err := s.Request(j)
	if err != nil {
		if s.Get(j.Number) == nil {
			return api.Detail{}, false // it ended while we looked
		}
		request = &api.SubmitRequest{Name: j.Terms().Name, Tasks: j.Tasks}
	}
	why := reasons(j) // asks the queue, which asks the Store: never under the lock
	s.mu.Lock()
	defer s.mu.Unlock()
	d := api.Detail{
		Job: j.Number, Owner: j.Owner, UID: j.UID, Group: j.Group, GID: j.GID, Submitted: j.Submitted,
		Request: *request, Pending: j.pending.String(), Finished: j.finished,
	}
	if j.HasScript {
		d.ScriptFile = spool.DirScripts + "/" + strconv.Itoa(j.Number)
	}
	if caller.UID != j.UID && !caller.Manager {
		d.Request.Env = nil
		if w := request.Work; w != nil { // its ad has an environment too
			public := *w
			public.Ad = ""
			if a := w.Activation; a != nil {
				public.Activation = &api.Activation{Host: a.Host, User: a.User, Home: a.Home}
			}
			d.Request.Work = &public
		}
	}
	if i := request.Interactive; i != nil { // by its token one could be taken for the job
		d.Request.Interactive = &api.Interactive{
			Login: i.Login, Terminal: i.Terminal, Lost: i.Lost, Qlogin: i.Qlogin, Display: i.Display, Daemon: i.Daemon,
		}
	}
	for i, t := range j.tasksInOrder() {
		if i == maxDetailTasks {
			break
		}
		td := api.TaskDetail{Task: t.Number, State: t.letters(), Run: t.Run, Reason: t.why(), Suspended: t.Missing}
		if t.State == Errored {
			td.ErrorTime = t.ErroredAt
		} else {
			td.Queue, td.Started, td.MatchExp = t.Start.Queue+"@"+t.On(host), t.Started, t.Start.MatchExp
			td.Binding = t.Start.Binding[strings.LastIndexByte(t.Start.Binding, ':')+1:]
		}
		d.Tasks = append(d.Tasks, td)
	}
	if j.pending.Len() > 0 {
		if !j.Tasks.IsArray() {
			d.Pending = "1"
		}
		d.Reasons, d.Holds = why, s.graph.holds(j)
		d.WaitsFor = slices.Sorted(maps.Keys(j.waitsFor))
		for _, p := range s.graph.unfinished(j) {
			d.WaitsFor = append(d.WaitsFor, p.Number)
			d.WaitsForTasks = append(d.WaitsForTasks, p.Number)
		}
		if free := s.graph.free(j); free.Len() == 0 {
			d.Reasons = []string{j.heldBecause(d.Holds, d.WaitsFor)}
		}
		if texts := s.graph.inVain(j).texts; len(texts) > 0 {
			d.Reasons = texts
		}
		if at, delayed := j.earliest(); delayed != "" && at.After(time.Now()) {
			d.Reasons = []string{fmt.Sprintf("not started again before %s: %s", at.Format(time.DateTime), delayed)}
		}
		if most := j.Terms().MaxRun; most > 0 && j.started >= most {
			d.Reasons = []string{fmt.Sprintf("%d tasks of the job run, and -tc %d allows no more", j.started, most)}
		}
	}
	d.Followers, d.ArrayFollowers = s.graph.followedBy(j.Number)
	// The request stays in memory only while the job is being started.
	if j.started == 0 {
		j.request = nil
	}
	return d, true
}

// heldBecause says what holds all pending tasks of a job back.
func (j *Job) heldBecause(holds string, waitsFor []int) string {
	var why []string
	for _, h := range []struct{ letter, text string }{{"u", "a user hold"}, {"o", "an operator hold"}, {"s", "a system hold"}} {
		if strings.Contains(holds, h.letter) {
			why = append(why, h.text)
		}
	}
	if len(waitsFor) > 0 {
		why = append(why, "jobs that it waits for: "+strings.Trim(fmt.Sprint(waitsFor), "[]"))
	}
	return "held back by " + strings.Join(why, ", ")
}

// Unfinished returns the tasks that were started or have ended, by job and
// task: those that a start of execd has to find again.
func (s *jobSet) Unfinished() []*Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tasks []*Task
	for _, j := range s.sorted(func(j *Job) bool { return len(j.active) > 0 }) {
		for _, t := range j.tasksInOrder() {
			if t.State == Started || t.State == Over || t.State == Ended {
				tasks = append(tasks, t)
			}
		}
	}
	return tasks
}

// Tally is how many tasks are in which state.
type Tally struct {
	Pending, Held, Running, Suspended, Errored int
	// Sending is how many are over and have output on its way, Stuck how many have output
	// that is not delivered until somebody has looked.
	Sending, Stuck int
	// Failed is how many ran and did not succeed, of the jobs that are remembered as
	// finished.
	Failed int
}

// Waiting returns how many tasks have no slot and are not in error.
func (t Tally) Waiting() int { return t.Pending + t.Held }

// Started returns how many tasks have a slot.
func (t Tally) Started() int { return t.Running + t.Suspended }

// Tally counts the tasks of all jobs.
func (s *jobSet) Tally() Tally {
	var n Tally
	s.each(func(j *Job) {
		free := s.graph.free(j)
		n.Pending += free.Len()
		n.Held += j.pending.Len() - free.Len()
		for _, t := range j.active {
			switch {
			case t.State == Errored:
				n.Errored++
			case t.Stuck != nil:
				n.Stuck++
			case t.State == Over:
				n.Sending++
			case t.State != Started:
			case t.Suspended || t.Stopped != "":
				n.Suspended++
			default:
				n.Running++
			}
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.finished.jobs {
		n.Failed += f.failed
	}
	return n
}

// Shown is a task that runs, for those who watch.
type Shown struct {
	Run          spool.RunID
	Array        bool
	Owner, Queue string
	Slots        int
}

// Shown returns the tasks that run, by job and task.
func (s *jobSet) Shown() []Shown {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Shown
	for _, j := range s.jobs {
		for _, t := range j.active {
			if t.State == Started {
				list = append(list, Shown{t.RunID(), j.Tasks.IsArray(), j.Owner, t.Start.Queue, t.Slots()})
			}
		}
	}
	slices.SortFunc(list, func(a, b Shown) int {
		return cmp.Or(cmp.Compare(a.Run.Job, b.Run.Job), cmp.Compare(a.Run.Task, b.Run.Task))
	})
	return list
}
