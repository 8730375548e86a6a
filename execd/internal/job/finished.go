package job

import (
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/schedule"
)

// recent is the last jobs of which something has ended, for qstat -s z. It is
// lost with execd: the accounting file has the truth, and qacct shows it. The
// zero value remembers nothing. It is guarded by the Store's mutex.
type recent struct {
	limit int
	jobs  map[int]*finished
	order []int // their numbers, in the order in which they first had an end
}

// finished is what is kept of a job: a few hundred bytes, and shared what others
// have asked for too.
type finished struct {
	uid       int
	name      string
	owner     string
	submitted time.Time
	slots     int
	ended     Tasks
	failed    int // tasks that ran and did not succeed
	account   string
	priority  int // -p
	needs     Needs
	words     *Predecessors

	// Of the last task that ran; zero when none did.
	prior float64
	parts schedule.Parts
}

// maxEndedRanges bounds the ranges of tasks that are kept of one job: somebody
// could delete every second one of ten million.
const maxEndedRanges = 1000

// Keep sets how many jobs are remembered after their end, for qstat -s z, and of how many
// the files are kept, so that they can be submitted again.
func (s *Store) Keep(remembered, ended int) {
	s.mu.Lock()
	s.finished.limit = remembered
	s.finished.forget()
	s.mu.Unlock()
	s.ended.atMost(ended)
}

// ran notes the end of a task that ran.
func (r *recent) ran(t *Task) {
	f := r.of(t.Job)
	if f == nil {
		return
	}
	f.add(t.Number)
	if t.Job.failed.Has(t.Number) {
		f.failed++
	}
	f.prior, f.parts = t.Start.Priority, t.Start.Parts
}

// deleted notes tasks that were deleted before they ran.
func (r *recent) deleted(j *Job, tasks *Tasks) {
	if tasks.Len() == 0 {
		return
	}
	f := r.of(j)
	if f == nil {
		return
	}
	if f.ended.Len() == 0 && len(tasks.runs) <= maxEndedRanges {
		f.ended = tasks.clone()
		return
	}
	for number := range tasks.All {
		f.add(number)
	}
}

// add notes the end of a task.
func (f *finished) add(number int) {
	if len(f.ended.runs) < maxEndedRanges {
		f.ended.Add(number)
	}
}

// of returns what is kept of a job; nil: nothing is to be kept.
func (r *recent) of(j *Job) *finished {
	if r.limit <= 0 {
		return nil
	}
	f := r.jobs[j.Number]
	if f == nil {
		terms := j.Terms()
		f = &finished{
			uid: j.UID, name: terms.Name, owner: j.Owner, submitted: j.Submitted, slots: terms.Slots, ended: NoTasks(j.Tasks),
			account: terms.Account, priority: terms.Priority, needs: terms.Needs, words: terms.Predecessors,
		}
		if r.jobs == nil {
			r.jobs = map[int]*finished{}
		}
		r.jobs[j.Number] = f
		r.order = append(r.order, j.Number)
		r.forget()
	}
	return f
}

// forget drops the oldest of those that are too many.
func (r *recent) forget() {
	n := max(len(r.order)-max(r.limit, 0), 0)
	for _, number := range r.order[:n] {
		delete(r.jobs, number)
	}
	r.order = r.order[n:] // append makes another array, as small, when this one is at its end
	if len(r.order) == 0 {
		r.order, r.jobs = nil, nil
	}
}

// finished returns the lines of finished jobs.
func (m *describer) finished(users []string, caller Caller) []api.JobStatus {
	var list []api.JobStatus
	wanted := owners(users, caller)
	for _, number := range m.jobs.finished.order {
		f := m.jobs.finished.jobs[number]
		if !wanted(f.owner, f.uid) {
			continue
		}
		line := api.JobStatus{
			Job: number, Name: f.name, Owner: f.owner, Slots: f.slots, Time: f.submitted, State: "z",
			Priority: f.prior, Tasks: f.ended.String(),
		}
		if m.wanted {
			line.More = m.requested(f.needs, f.words)
			line.More.Submitted, line.More.Priority, line.More.Account = f.submitted, f.priority, accountOf(f.account)
			SetParts(line.More, f.parts)
		}
		list = append(list, line)
	}
	return list
}
