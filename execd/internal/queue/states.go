package queue

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/aside"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// States is what administrators have done to the queues: it survives a restart,
// in the file queues of the spool.
type States struct {
	path string

	by atomic.Pointer[map[string]state] // by name of the queue; replaced as a whole, with writing held

	writing  sync.Mutex         // held during a change, until it is on disk
	suspects map[string]suspect // guarded by writing; by name of the queue
}

// suspect is somebody whose job has failed in a queue, perhaps by his own doing.
type suspect struct {
	owner string
	until time.Time
}

// suspicion is how long a failure is held against its owner alone.
const suspicion = time.Hour

// state is that of one queue.
type state struct {
	Disabled  *mark `json:"disabled,omitempty"`
	Suspended *mark `json:"suspended,omitempty"`
	Error     *mark `json:"error,omitempty"`
}

// mark says who did something, when and why.
type mark struct {
	By     string    `json:"by,omitempty"`
	Time   time.Time `json:"time"`
	Reason string    `json:"reason,omitempty"`
	Job    int       `json:"job,omitempty"` // that failed
}

func (m *mark) String() string {
	s := m.Time.Format(time.DateTime)
	if m.By != "" {
		s = "by " + m.By + " on " + s
	}
	if m.Reason != "" {
		s += ": " + m.Reason
	}
	return s
}

// maxStates bounds what is read of them.
const maxStates = 64 << 20

// OpenStates reads the states. Queues with an initial_state are put into it. A file that
// makes no sense is moved to corrupt/ with a line in the log: then no queue is disabled.
func OpenStates(root *spool.Root, queues []conf.Queue, log *slog.Logger) (*States, error) {
	s := &States{path: root.Path(spool.FileQueues), suspects: map[string]suspect{}}
	by, err := aside.Read[map[string]state](root, log, s.path, maxStates, "all queues begin as they are configured")
	if err != nil {
		return nil, fmt.Errorf("cannot read states of queues: %w", err)
	}
	if by == nil {
		by = map[string]state{}
	}
	for i := range queues {
		q := &queues[i]
		st := by[q.Name]
		switch {
		case q.InitiallyDisabled:
			st.Disabled = &mark{Time: time.Now(), Reason: "initial_state disabled"}
		case q.InitiallyEnabled:
			st.Disabled = nil
		default:
			continue
		}
		by[q.Name] = st
	}
	s.by.Store(&by)
	return s, nil
}

// of returns the state of a queue.
func (s *States) of(queue string) state { return (*s.by.Load())[queue] }

// Closed says why a queue takes nothing, as the end of a sentence with "it is";
// empty: it is open.
func (s *States) Closed(queue string) string {
	st := s.of(queue)
	switch {
	case st.Disabled != nil:
		return "disabled " + st.Disabled.String()
	case st.Suspended != nil:
		return "suspended " + st.Suspended.String()
	case st.Error != nil:
		return "in error state since " + st.Error.String()
	}
	return ""
}

// InError says since when a queue is in error, by which job and why; empty: it is not.
func (s *States) InError(queue string) string {
	m := s.of(queue).Error
	switch {
	case m == nil:
		return ""
	case m.Job > 0:
		return fmt.Sprintf("%s, by job %d", m, m.Job)
	}
	return m.String()
}

func (s *States) suspended(queue string) bool { return s.of(queue).Suspended != nil }

func (s *States) anySuspended() bool {
	for _, st := range *s.by.Load() {
		if st.Suspended != nil {
			return true
		}
	}
	return false
}

// Letters returns the letters of a queue's states, d, s and E, and a line for
// each that says why; for E one in Grid Engine's words, and one of ours below.
func (s *States) Letters(queue, host string) (letters string, reasons []string) {
	st := s.of(queue)
	for _, m := range []struct {
		letter, text string
		mark         *mark
	}{{"d", "disabled ", st.Disabled}, {"s", "suspended ", st.Suspended}, {"E", "in error since ", st.Error}} {
		if m.mark == nil {
			continue
		}
		reason := m.text + m.mark.String()
		if m.mark.Job > 0 {
			reason = fmt.Sprintf("queue %s marked QERROR as result of job %d's failure at host %s\n%s", queue, m.mark.Job, host, reason)
		}
		letters += m.letter
		reasons = append(reasons, reason)
	}
	return letters, reasons
}

// changes are the actions on a queue: what each sets, and how it is told.
var changes = map[api.Action]struct {
	mark func(*state) **mark
	on   bool
	word string
}{
	api.ActionDisable: {func(s *state) **mark { return &s.Disabled }, true, "disabled"},
	api.ActionEnable:  {func(s *state) **mark { return &s.Disabled }, false, "enabled"},
	api.ActionSuspend: {func(s *state) **mark { return &s.Suspended }, true, "suspended"},
	api.ActionResume:  {func(s *state) **mark { return &s.Suspended }, false, "unsuspended"},
	api.ActionClear:   {func(s *state) **mark { return &s.Error }, false, "no error"},
}

// change does an action and reports whether it changed anything. What it did is
// on disk.
func (s *States) change(action api.Action, queue, by string) (changed bool, err error) {
	c, ok := changes[action]
	if !ok {
		return false, api.Errorf(api.CodeBadRequest, "%q is no action on queues", action)
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	st := s.of(queue)
	at := c.mark(&st)
	switch {
	case c.on == (*at != nil):
		return false, nil
	case c.on:
		*at = &mark{By: by, Time: time.Now()}
	default:
		*at = nil
	}
	states := s.with(queue, st)
	if err := s.write(states); err != nil {
		return false, err
	}
	s.by.Store(&states)
	return true, nil
}

// with returns the states with another one of a queue. writing is held.
func (s *States) with(queue string, st state) map[string]state {
	by := map[string]state{}
	maps.Copy(by, *s.by.Load())
	by[queue] = st
	return by
}

func (s *States) write(by map[string]state) error {
	data, err := json.MarshalIndent(by, "", "\t")
	if err != nil {
		return fmt.Errorf("internal error: cannot encode states of queues: %w", err)
	}
	if err := atomicfile.WriteDurable(s.path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("cannot store states of queues: %w", err)
	}
	return nil
}

// fault notes a job that failed for a reason that may lie with the queue. It puts the
// queue in error if that is sure, or if the jobs of two owners have failed, and reports
// whether the queue is in error.
func (s *States) fault(queue string, j *job.Job, reason string, sure bool) (bool, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	now := time.Now()
	before := s.suspects[queue]
	if !sure && (now.After(before.until) || before.owner == j.Owner) {
		s.suspects[queue] = suspect{j.Owner, now.Add(suspicion)}
		return false, nil
	}
	delete(s.suspects, queue)
	st := s.of(queue)
	if st.Error == nil {
		st.Error = &mark{Time: now, Reason: reason, Job: j.Number}
	}
	states := s.with(queue, st)
	s.by.Store(&states) // also where it cannot be written
	return true, s.write(states)
}
