// Package drain remembers that the host is being emptied: running jobs go on,
// and no other is started until the administrator says so. The file drain in
// the spool is the truth, so that a restart or a reboot does not end it. The
// daemon builds it, the server changes it and the queue asks it; it imports
// spool alone.
package drain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"paddock/spool"
	"paddock/spool/atomicfile"
)

// Drain is on or off. Its methods may be called from several goroutines.
type Drain struct {
	path string

	mu      sync.Mutex
	state   State         // guarded by mu
	changed chan struct{} // guarded by mu; closed and replaced by Set
}

// State says since when nothing is started, and who wanted that.
type State struct {
	On    bool
	Since time.Time
	By    string // user; empty: not known
}

// Open reads the state of a spool. A file that cannot be read means on: to
// start jobs on a host that may be about to be taken away is worse than to
// wait for a word of its administrator.
func Open(root *spool.Root) (*Drain, error) {
	d := &Drain{path: root.Path(spool.FileDrain), changed: make(chan struct{})}
	text, err := os.ReadFile(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read whether the host is drained: %w", err)
	}
	d.state.On = true
	since, by, ok := strings.Cut(strings.TrimSuffix(string(text), "\n"), " ")
	if t, err := time.Parse(time.RFC3339, since); err == nil && ok {
		d.state.Since, d.state.By = t, by
	} else if info, err := os.Stat(d.path); err == nil {
		d.state.Since = info.ModTime()
	}
	return d, nil
}

// On reports whether no task may be started.
func (d *Drain) On() bool { return d.State().On }

// State returns the state.
func (d *Drain) State() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

// Changed returns a channel that is closed when the state changes.
func (d *Drain) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// Set changes the state for a user, and reports whether it was another. When
// it returns, the state is on disk for good. Who wanted it first is remembered.
func (d *Drain) Set(on bool, by string, now time.Time) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state.On == on {
		return false, nil
	}
	state := State{}
	var err error
	if on {
		state = State{On: true, Since: now.Truncate(time.Second), By: by}
		err = atomicfile.WriteDurable(d.path, []byte(state.Since.UTC().Format(time.RFC3339)+" "+by+"\n"), spool.ModeOf(spool.FileDrain))
	} else if err = atomicfile.Remove(d.path); err == nil {
		err = atomicfile.SyncDir(filepath.Dir(d.path))
	}
	if err != nil {
		return false, err
	}
	d.state = state
	close(d.changed)
	d.changed = make(chan struct{})
	return true, nil
}
