package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"paddock/execd/internal/conf"
)

// books has what the host can give out and which task holds what of it, and finds room
// for more tasks.
type books struct {
	host    *host
	used    ledger
	taken   map[unit]int          // units of RSMAPs in use
	gone    map[string]int        // slots in use of queues that are not configured any more
	load    map[string]conf.Value // scaled
	gate    Gate                  // nil: every free slot takes every job
	changes int                   // counts changes of what is used, of load, of what is open

	tasks   map[TaskID]*run
	granted map[*Grant]*run // given by Next, and not started yet

	order   []*queue // in which queues are tried
	orderOf int      // changes when order was made
	weights []float64
}

// run is a task that holds a grant.
type run struct {
	Running
	owner   *user
	entry   *entry // nil once the task is started
	uses    []use
	stopped bool // suspended by Suspensions
	tooMuch bool // suspended on behalf of suspend_thresholds
}

// hold enters a grant in the books; with sign -1 it takes the grant out.
func (s *books) hold(r *run, sign int) {
	if sign > 0 {
		s.used.debit(r.uses)
	} else {
		s.used.credit(r.uses)
	}
	for _, d := range r.Grant.Debits {
		if i, ok := s.host.consumed[consumer{d.Name, d.Queue}]; ok {
			for _, id := range d.IDs {
				u := unit{i, id}
				if s.taken[u] += sign; s.taken[u] == 0 {
					delete(s.taken, u)
				}
			}
		}
	}
	for _, q := range r.Grant.Queues {
		if s.host.byName[q.Queue] == nil {
			if s.gone[q.Queue] += sign * q.Slots; s.gone[q.Queue] == 0 {
				delete(s.gone, q.Queue)
			}
		}
	}
	s.changes++
}

// holders returns all holders of grants, the one that has held its grant longest first.
func (s *books) holders() []*run {
	var all []*run
	for _, r := range s.tasks {
		all = append(all, r)
	}
	for _, r := range s.granted {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *run) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Task, b.Task))
	})
	return all
}

// anyFree reports whether a queue has a free slot that could be given out.
func (s *books) anyFree() bool {
	h := s.host
	if s.used[h.slots] >= h.accounts[h.slots].limit {
		return false
	}
	return slices.ContainsFunc(h.queues, func(q *queue) bool {
		return q.closed == "" && s.used[q.slots] < h.accounts[q.slots].limit
	})
}

// admitted returns the first job of a bucket that slots are willing to run, and its
// plan; nil: there is none.
func (s *books) admitted(b *bucket, v *view) (*plan, *entry) {
	for _, e := range b.jobs {
		v.job = e.number
		if p := s.allocate(b.class, v); p != nil {
			return p, e
		}
		if !v.varies {
			break // the other jobs ask for the same, and get the same answer
		}
	}
	return nil, nil
}

// Place returns a grant of one slot of a queue for a job that does not wait, if the job
// fits there; Started follows. It ignores reservations.
func (s *books) Place(j *Job, queue string, now time.Time) (*Grant, error) {
	q := s.host.byName[queue]
	if q == nil {
		return nil, Unsuitable{fmt.Sprintf("queue %q does not exist any more", queue)}
	}
	c := &class{want: *j, lists: s.host.membership(j.User, j.Groups)}
	s.compile(c)
	v := &view{used: s.used, at: now}
	if n, o := s.inQueue(c, q, v); n == 0 {
		return nil, Unsuitable{s.host.words(c, q, o)}
	}
	length := c.places[q.index].duration
	if n, o := s.onHost(c, v, length); n == 0 {
		return nil, Unsuitable{s.host.words(c, nil, o)}
	}
	g, ok := s.grant(c, &plan{queues: []planned{{q, 1}}, length: length})
	if !ok {
		return nil, Unsuitable{"not enough units of a resource map are free"}
	}
	return g, nil
}
