package schedule

import (
	"fmt"
	"slices"
	"time"

	"paddock/execd/internal/conf"
)

// violation is a threshold that is exceeded.
type violation struct {
	attribute *conf.Attribute
	offer     offer
	known     bool // whether there is a value at all
	limit     string
}

// words describes the threshold as schedd_job_info does.
func (v *violation) words() string {
	if !v.known {
		return fmt.Sprintf("no value for %q", v.attribute.Name)
	}
	return fmt.Sprintf("%s=%s %s %s", v.attribute.Name, v.offer.text(v.attribute), v.attribute.Relop, v.limit)
}

// explain describes the threshold as qstat -explain does, for thresholds of a kind.
func (v *violation) explain(kind string) string {
	if !v.known {
		return fmt.Sprintf("alarm: no value for %q %s-threshold=%s", v.attribute.Name, kind, v.limit)
	}
	return fmt.Sprintf("alarm %s %s-threshold=%s", v.offer.describe(v.attribute), kind, v.limit)
}

// exceeded returns the first threshold that is exceeded, or nil. One whose value is not
// known is exceeded.
func (s *books) exceeded(q *queue, thresholds []conf.Threshold) *violation {
	for _, t := range thresholds {
		o, known := s.offer(q, t.Attribute, s.used)
		if !known || satisfies(s.host.conf, t.Attribute, o.value, t.Value) {
			return &violation{t.Attribute, o, known, t.Value.Text}
		}
	}
	return nil
}

// alarm returns the load_threshold of a queue that is exceeded, or nil.
func (s *books) alarm(q *queue) *violation {
	if len(q.LoadThresholds) == 0 {
		return nil
	}
	if q.alarmOf != s.changes {
		q.alarm, q.alarmOf = s.exceeded(q, q.LoadThresholds), s.changes
	}
	return q.alarm
}

// suspendedBy returns the queue that has so many slots in use that this queue,
// subordinate to it, is suspended, or nil.
func (q *queue) suspendedBy(used ledger) *superior {
	for i := range q.superiors {
		if s := &q.superiors[i]; used[s.slots] >= float64(s.threshold) {
			return s
		}
	}
	return nil
}

func (s *superior) words() string {
	return fmt.Sprintf("%d slots of queue %q are in use", s.threshold, s.Name)
}

// Suspension is a task to be suspended, and the letter that qstat shows for it: S when
// another queue is the reason, T when a threshold is.
type Suspension struct {
	TaskID
	Letter string
}

// Suspensions returns which tasks to suspend and to resume on behalf of
// suspend_thresholds and subordinate queues, and takes that as done. Above a threshold,
// nsuspend tasks are suspended in each suspend_interval, the youngest first; below it
// as many are resumed, the oldest first. It is called when tasks start and end, when
// load is set, and at next, unless that is zero.
func (s *Scheduler) Suspensions(now time.Time) (suspend []Suspension, resume []TaskID, next time.Time) {
	if !s.suspends() {
		return nil, nil, time.Time{}
	}
	running := slices.DeleteFunc(s.holders(), func(r *run) bool { return r.entry != nil || r.Kept || r.Away })
	in := map[string][]*run{} // by the queue of the master
	for _, r := range running {
		in[r.Grant.Queues[0].Queue] = append(in[r.Grant.Queues[0].Queue], r)
	}
	for name, list := range in {
		at := s.step(s.host.byName[name], list, now)
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, r := range running {
		stop := r.tooMuch || slices.ContainsFunc(r.Grant.Queues, func(qs QueueSlots) bool {
			q := s.host.byName[qs.Queue]
			return q != nil && q.suspendedBy(s.used) != nil
		})
		switch id := (TaskID{r.Job, r.Task}); {
		case stop && !r.stopped:
			letter := "S"
			if r.tooMuch {
				letter = "T"
			}
			suspend = append(suspend, Suspension{id, letter})
		case !stop && r.stopped:
			resume = append(resume, id)
		}
		r.stopped = stop
	}
	return suspend, resume, next
}

// suspends reports whether a task is or could be suspended. That is cheap to know, and
// most hosts suspend nothing.
func (s *Scheduler) suspends() bool {
	if slices.ContainsFunc(s.host.queues, func(q *queue) bool { return len(q.SuspendThresholds) > 0 || len(q.superiors) > 0 }) {
		return true
	}
	for _, r := range s.tasks {
		if r.stopped || r.tooMuch {
			return true
		}
	}
	return false
}

// step does one step towards what suspend_thresholds ask for, if one is due, and
// returns when the next is due. The queue may be gone.
func (s *Scheduler) step(q *queue, list []*run, now time.Time) time.Time {
	if q == nil || len(q.SuspendThresholds) == 0 {
		for _, r := range list {
			r.tooMuch = false
		}
		return time.Time{}
	}
	tooMuch := s.exceeded(q, q.SuspendThresholds) != nil
	due := s.steps[q.Name].Add(q.SuspendInterval)
	n := max(1, q.Suspend)
	if now.Before(due) {
		n = 0
	}
	if tooMuch {
		slices.Reverse(list) // the youngest first
	}
	left := false
	for _, r := range list {
		switch {
		case r.tooMuch == tooMuch:
		case n > 0:
			r.tooMuch = tooMuch
			n--
			s.steps[q.Name] = now
		default:
			left = true
		}
	}
	if !left {
		return time.Time{}
	}
	return s.steps[q.Name].Add(q.SuspendInterval)
}
