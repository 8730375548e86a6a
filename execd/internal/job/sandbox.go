package job

import (
	"maps"
	"path/filepath"
	"slices"
	"time"

	"paddock/execd/internal/sandbox/order"
)

// Sandbox is the directory of its own in which a run works.
type Sandbox struct {
	// ID names it for all who know the claim: the public id of the claim, and a part that
	// cannot be guessed. It is no secret and no key.
	ID      string    `json:"id"`
	Dir     string    `json:"dir"` // absolute; execd's own, the run works below it
	Created time.Time `json:"created"`
	// Kept says that the run before has worked in it, and this one goes on with what it left.
	Kept bool `json:"kept,omitempty"`
	// Slot is the first slot of the run, by its number in the queue; 0: it has none there.
	Slot int `json:"slot,omitempty"`
	// Limit is how many bytes it may have, by the quota of Project; 0: any number.
	Limit   uint64 `json:"limit,omitempty"`
	Project uint32 `json:"project,omitempty"`
}

// Leaving is a run that is over and whose output is still in its sandbox.
type Leaving struct {
	Task, ID string // ID is that of the sandbox
	Claim    string // public id of the claim of the run; empty: the queue's own
	Queue    string
	// Slot is the first slot of the run, by its number in the queue, and Dynamic the second
	// number of one that was carved.
	Slot, Dynamic int
	KiB           int64 // what it takes on disk, as far as that is known
	Travels       bool  // it is on its way; else it has arrived, or waits for somebody to look
}

// Files returns the directory in which the run works.
func (s *Sandbox) Files() string { return filepath.Join(s.Dir, order.DirFiles) }

// Streams returns the files for the standard streams of a run whose output another host pulls.
func (s *Sandbox) Streams() (stdout, stderr string) {
	say := filepath.Join(s.Dir, order.DirSay)
	return filepath.Join(say, order.FileStdout), filepath.Join(say, order.FileStderr)
}

// kept returns the sandbox with which the next run goes on.
func (e *End) kept() *Sandbox {
	if e == nil {
		return nil
	}
	return e.Sandbox
}

// keep keeps the sandbox of a run for the next one of its task; nil: there is none to be
// kept. The Store's mutex is held.
func (j *Job) keep(number int, b *Sandbox) {
	switch {
	case b == nil:
		delete(j.sandboxes, number)
	case j.sandboxes == nil:
		j.own().sandboxes = map[int]*Sandbox{number: b}
	default:
		j.sandboxes[number] = b
	}
}

// unbox has the sandbox be discarded that was kept for a task, which does not run again.
// The Store's mutex is held.
func (j *Job) unbox(number int) {
	if b := j.sandboxes[number]; b != nil {
		delete(j.sandboxes, number)
		j.own().unboxed = append(j.unboxed, b)
	}
}

// OnUnbox sets the function that is told of sandboxes that were kept for runs that will
// not be. It must not block, or call back into the Store.
func (s *Store) OnUnbox(f func(*Sandbox)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onUnbox = f
}

// unboxed tells of them. s.mu is held.
func (s *Store) unboxed(j *Job) {
	if len(j.unboxed) == 0 {
		return
	}
	for _, b := range j.unboxed {
		if s.onUnbox != nil {
			s.onUnbox(b)
		}
	}
	j.own().unboxed = nil
}

// Boxed is a sandbox with who has it.
type Boxed struct {
	*Sandbox
	Job   *Job
	Task  int
	Run   *Task  // that has it; nil: it is kept for the next
	State State  // of the run
	Stuck *Stuck // of its output; nil: it is not stuck
}

// Boxes returns the sandboxes that runs have, or that are kept for the next, by job and task.
func (s *jobSet) Boxes() (all []Boxed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.sorted(func(j *Job) bool { return len(j.active)+len(j.sandboxes) > 0 }) {
		for _, t := range j.tasksInOrder() {
			if b := t.Start.Sandbox; b != nil && t.State != Errored {
				all = append(all, Boxed{Sandbox: b, Job: j, Task: t.Number, Run: t, State: t.State, Stuck: t.Stuck})
			}
		}
		for _, number := range slices.Sorted(maps.Keys(j.sandboxes)) {
			if t := j.active[number]; t == nil || t.State == Errored || t.Start.Sandbox == nil {
				all = append(all, Boxed{Sandbox: j.sandboxes[number], Job: j, Task: number})
			}
		}
	}
	return all
}

// Box notes the sandbox of a task which was taken, before Begin.
func (s *jobSet) Box(t *Task, b *Sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Start.Sandbox = b
}
