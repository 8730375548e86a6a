package job

import (
	"maps"
	"slices"
	"sync"
)

// jobSet has the jobs that are not over in memory, and remembers those that ended of late.
// It reads and writes no file: its lock is held for a moment, and qstat needs it.
type jobSet struct {
	// mu is taken after Store.predecessors and Job.file, and before ended.mu.
	mu       sync.Mutex
	jobs     map[int]*Job // guarded by mu
	next     int          // guarded by mu; number of the next job
	byUser   map[int]int  // guarded by mu; jobs by uid
	graph    graph        // guarded by mu
	fresh    []*Job       // guarded by mu; the last that were submitted, see remember
	finished recent       // guarded by mu

	onChange func(number int) // guarded by mu; told of jobs that have become others; nil: nobody is
}

func newJobSet() jobSet {
	jobs := map[int]*Job{}
	return jobSet{jobs: jobs, byUser: map[int]int{}, graph: newGraph(jobs)}
}

// Get returns the job with a number, or nil.
func (s *jobSet) Get(number int) *Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[number]
}

// Last returns the highest number that was given out.
func (s *jobSet) Last() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next - 1
}

// Len returns the number of jobs.
func (s *jobSet) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.jobs)
}

// sorted returns the jobs that are wanted by number. s.mu is held.
func (s *jobSet) sorted(wanted func(*Job) bool) []*Job {
	var jobs []*Job
	for _, j := range s.jobs {
		if wanted(j) {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, byNumber)
	return jobs
}

func byNumber(a, b *Job) int { return a.Number - b.Number }

// Forget drops the request of a job that is not being started, when somebody
// has only looked at it.
func (s *jobSet) Forget(j *Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.started == 0 {
		j.request = nil
	}
}

// maxFresh is how many new jobs keep their requests in memory until they start, so
// that those which start at once need not be read: environments may be large, and
// jobs that wait many.
const maxFresh = 32

// remember takes note of a new job whose request is in memory, and drops that of the
// oldest. s.mu is held.
func (s *jobSet) remember(j *Job) {
	s.fresh = append(s.fresh, j)
	if len(s.fresh) <= maxFresh {
		return
	}
	if oldest := s.fresh[0]; oldest.started == 0 {
		oldest.request = nil
	}
	s.fresh = slices.Delete(s.fresh, 0, 1)
}

// snapshot returns the jobs as of now, in no order.
func (s *jobSet) snapshot() []*Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.jobs))
}

// chosen returns those of the jobs as of now that are wanted, by number. They are
// looked at without the Store's lock.
func (s *jobSet) chosen(wanted func(*Job) bool) []*Job {
	jobs := slices.DeleteFunc(s.snapshot(), func(j *Job) bool { return !wanted(j) })
	slices.SortFunc(jobs, byNumber)
	return jobs
}

// atOnce is how many of very many jobs are looked at before others get the Store.
const atOnce = 256

// each calls do for each job, with the Store's mutex held but not all the time.
func (s *jobSet) each(do func(*Job)) { s.eachOf(s.snapshot(), do) }

// eachOf is each of some jobs; those that are over meanwhile are left out.
func (s *jobSet) eachOf(jobs []*Job, do func(*Job)) {
	for some := range slices.Chunk(jobs, atOnce) {
		s.mu.Lock()
		for _, j := range some {
			if s.jobs[j.Number] == j {
				do(j)
			}
		}
		s.mu.Unlock()
	}
}
