package job

import (
	"path/filepath"
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
}

// Files returns the directory in which the run works.
func (s *Sandbox) Files() string { return filepath.Join(s.Dir, order.DirFiles) }

// Box notes the sandbox of a task which was taken, before Begin.
func (s *jobSet) Box(t *Task, b *Sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Start.Sandbox = b
}
