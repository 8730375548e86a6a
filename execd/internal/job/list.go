package job

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/schedule"
)

// Listing is qstat's lines. The priorities of what waits, and what hard
// requests contribute to the urgency, only the queue knows; lines of jobs with
// the same requests share their Hard.
type Listing struct {
	Running  []api.JobStatus // by job and task
	Waiting  []api.JobStatus // pending or in error, by job
	Finished []api.JobStatus // as they ended

	needs []Needs // of Waiting
}

// Keep drops what waits and is not wanted, by what it asks for.
func (l *Listing) Keep(wanted func(Needs) bool) {
	known := map[Needs]bool{}
	kept := l.Waiting[:0]
	for i, needs := range l.needs {
		keep, ok := known[needs]
		if !ok {
			keep = wanted(needs)
			known[needs] = keep
		}
		if keep {
			kept = append(kept, l.Waiting[i])
		}
	}
	l.Waiting, l.needs = kept, nil
}

// List returns the lines that somebody asks for. Once it has most lines of what waits it
// adds no more.
func (s *jobSet) List(req *api.JobsRequest, caller Caller, host string, most int) Listing {
	var l Listing
	m := &describer{jobs: s, host: host, wanted: req.More, hard: map[Needs][]api.Requested{}}
	now := time.Now()
	wanted := owners(req.Users, caller)
	jobs := s.chosen(func(j *Job) bool { return wanted(j.Owner, j.UID) })
	l.Waiting = make([]api.JobStatus, 0, min(len(jobs), most)) // often all wait, and a line is large
	l.needs = make([]Needs, 0, cap(l.Waiting))
	s.eachOf(jobs, func(j *Job) {
		l.Running = m.running(l.Running, j)
		if len(l.Waiting) < most {
			l.Waiting = m.waiting(l.Waiting, j, now)
		}
		for len(l.needs) < len(l.Waiting) {
			l.needs = append(l.needs, j.Terms().Needs)
		}
	})
	if req.Finished {
		s.mu.Lock()
		l.Finished = m.finished(req.Users, caller)
		s.mu.Unlock()
	}
	switch req.States {
	case "r":
		l.Waiting, l.needs = nil, nil
	case "p":
		l.Running = nil
	case "s":
		l.Running = slices.DeleteFunc(l.Running, func(l api.JobStatus) bool { return !strings.ContainsAny(l.State, "sST") })
		l.Waiting, l.needs = nil, nil
	case "z":
		l.Running, l.Waiting, l.needs = nil, nil, nil
	}
	return l
}

// describer writes lines of jobs. The Store's mutex is held.
type describer struct {
	jobs   *jobSet
	host   string
	wanted bool // whether lines have More
	hard   map[Needs][]api.Requested
}

// status returns what all lines of a job have in common.
func (j *Job) status() api.JobStatus {
	terms := j.Terms()
	return api.JobStatus{Job: j.Number, Name: terms.Name, Owner: j.Owner, Slots: terms.Slots, Time: j.Submitted, From: j.from()}
}

// from returns of which job of another host a job is a run; empty: of none.
func (j *Job) from() string {
	if j.Activation == nil || j.Activation.Home == nil {
		return ""
	}
	return j.Activation.Home.String()
}

// From returns of which job of another host the job with a number is a run; empty: of none.
func (s *jobSet) From(number int) string {
	if j := s.Get(number); j != nil {
		return j.from()
	}
	return ""
}

// IsFrom reports whether a user has a run here of the job with a number of another host.
func (s *jobSet) IsFrom(host string, number, uid int) bool {
	return host != "" && len(s.chosen(func(j *Job) bool {
		return j.UID == uid && j.Activation != nil && j.Activation.Home != nil && j.Activation.Home.Host == host && j.Activation.Home.Job == number
	})) > 0
}

// running adds a line for each task of a job that runs.
func (m *describer) running(list []api.JobStatus, j *Job) []api.JobStatus {
	if j.started == 0 && len(j.active) == 0 {
		return list
	}
	for _, t := range j.tasksInOrder() {
		if t.State == Errored || t.State == Ended && j.Activation != nil { // its end waits to be acknowledged
			continue
		}
		line := j.status()
		line.State, line.Holds, line.Reason, line.Tasks = t.letters(), t.holds(), t.why(), t.index()
		line.Time, line.Queue, line.Slots = t.Started, t.Start.Queue+"@"+t.On(m.host), t.Slots()
		line.Priority = t.Start.Priority
		if g := t.Start.Grant; g != nil && len(g.Queues) > 1 {
			line.Granted = m.granted(g)
		}
		if line.More = m.more(j, t.Needs); line.More != nil {
			m.describe(line.More, t)
		}
		list = append(list, line)
	}
	return list
}

// waiting adds lines for the tasks of a job that are in error, and one for those
// that wait, or two when only some are held.
func (m *describer) waiting(list []api.JobStatus, j *Job, now time.Time) []api.JobStatus {
	if len(j.active) > j.started {
		list = m.errored(list, j)
	}
	if j.pending.Len() == 0 {
		return list
	}
	free := m.jobs.graph.free(j)
	held := NoTasks(j.Tasks)
	switch free.Len() {
	case j.pending.Len():
	case 0:
		held = j.pending // to be read only, as free
	default:
		held = j.pending.clone()
		held.Subtract(&free)
	}
	for _, part := range []struct {
		state string
		tasks *Tasks
	}{{"qw", &free}, {"hqw", &held}} {
		if part.tasks.Len() == 0 {
			continue
		}
		line := j.status()
		line.State, line.Tasks, line.More = part.state, part.tasks.String(), m.more(j, j.Terms().Needs)
		if part.state == "hqw" {
			line.Holds = m.jobs.graph.holds(j)
		}
		if j.Terms().After.After(now) {
			line.Holds += "t"
		}
		list = append(list, line)
	}
	return list
}

// errored adds a line for the tasks of a job that are in error, or two when only
// some are held, each with the reason of its first.
func (m *describer) errored(list []api.JobStatus, j *Job) []api.JobStatus {
	var sets []Tasks
	first := len(list)
	for _, t := range j.tasksInOrder() {
		if t.State != Errored {
			continue
		}
		state := t.letters()
		i := slices.IndexFunc(list[first:], func(l api.JobStatus) bool { return l.State == state })
		if i < 0 {
			line := j.status()
			line.State, line.Holds, line.Reason, line.More = state, t.errorHolds(), t.Reason, m.more(j, j.Terms().Needs)
			i = len(sets)
			list, sets = append(list, line), append(sets, NoTasks(j.Tasks))
		}
		sets[i].Add(t.Number)
	}
	for i := range sets {
		list[first+i].Tasks = sets[i].String()
	}
	return list
}

// index returns the number of a task of an array job as qstat shows it, "" for
// a job that is none.
func (t *Task) index() string {
	if !t.Job.Tasks.IsArray() {
		return ""
	}
	return strconv.Itoa(t.Number)
}

// more returns what more there is to say of a job, nil if nobody asks. What it
// points to is shared, and not to be changed. needs are those of the job, or of
// its run.
func (m *describer) more(j *Job, needs Needs) *api.JobMore {
	if !m.wanted {
		return nil
	}
	terms := j.Terms()
	more := m.requested(needs, terms.Predecessors)
	more.Submitted, more.Priority, more.Account = j.Submitted, terms.Priority, accountOf(terms.Account)
	if len(j.waitsFor) > 0 {
		more.WaitsFor = slices.Sorted(maps.Keys(j.waitsFor))
	}
	for _, p := range m.jobs.graph.unfinished(j) {
		more.WaitsForTasks = append(more.WaitsForTasks, p.Number)
	}
	return more
}

// requested returns what a job has asked for.
func (m *describer) requested(needs Needs, words *Predecessors) *api.JobMore {
	r := needs.Request()
	hard, ok := m.hard[needs]
	if !ok {
		for _, resource := range r.Hard {
			hard = append(hard, api.Requested{Resource: resource})
		}
		m.hard[needs] = hard
	}
	more := &api.JobMore{
		Project: r.Project, Department: Department, Reserve: r.Reserve, Checkpoint: r.Checkpoint, Binding: r.Binding,
		Hard: hard, Soft: r.Soft, Queues: r.Queues, SoftQueues: r.SoftQueues, MasterQueues: r.MasterQueues,
		PE: r.PE, Slots: r.Slots,
	}
	if words != nil {
		more.HoldJobs, more.HoldArray = words.Jobs, words.Array
	}
	return more
}

// Department is everybody's: departments are not configured here.
const Department = "defaultdepartment"

// accountOf returns the account string of a job.
func accountOf(account string) string {
	if account == "" {
		return "sge"
	}
	return account
}

// describe adds what there is to say of a task that runs.
func (m *describer) describe(more *api.JobMore, t *Task) {
	more.Started, more.Restarts = t.Started, t.Run
	more.Granted = []api.Granted{{Queue: t.Start.Queue + "@" + t.On(m.host), Slots: t.Slots()}}
	if g := t.Start.Grant; g != nil {
		more.GrantedPE, more.Granted = g.PE, m.granted(g)
	}
	SetParts(more, t.Start.Parts)
}

// granted returns the queues of a grant as qstat names them.
func (m *describer) granted(g *schedule.Grant) []api.Granted {
	list := make([]api.Granted, len(g.Queues))
	for i, q := range g.Queues {
		list[i] = api.Granted{Queue: q.Queue + "@" + m.host, Slots: q.Slots}
	}
	return list
}

// SetParts tells what the priority of a job is made of.
func SetParts(more *api.JobMore, p schedule.Parts) {
	more.NormalPriority, more.NormalUrgency, more.NormalTickets = p.Priority, p.Urgency, p.Share
	more.Urgency = api.Urgency{Total: p.Resources + p.Waiting, Resources: p.Resources, Waiting: p.Waiting}
}
