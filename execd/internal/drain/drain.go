// Package drain remembers that the host is being drained: running jobs go on, and no
// other is started until the administrator says so. The file drain in the spool is the
// truth, so that a restart or a reboot does not end it. The daemon builds it, the
// server changes it and the queue asks it; it imports spool alone.
package drain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/spool"
	"paddock/spool/atomicfile"
)

// Drain is on or off. Its methods may be called from several goroutines.
type Drain struct {
	path string

	setting sync.Mutex // held over a change until it is on disk; taken before mu

	mu      sync.Mutex
	state   State         // guarded by mu
	changed chan struct{} // guarded by mu; closed and replaced by Set
}

// State says since when no task is started, and who asked for that.
type State struct {
	On    bool
	Since time.Time
	By    string // user; empty: not known
	Speed string // how jobs that run are ended, one of speeds; empty: they may finish
}

// speeds are the names that the API has.
var speeds = []string{"graceful", "quick", "fast"}

// Open reads the state of a spool. A file that cannot be read means on: to start jobs
// on a host that may be about to be taken away is worse than to wait for its
// administrator.
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
		if i := strings.LastIndexByte(by, ' '); i > 0 && slices.Contains(speeds, by[i+1:]) {
			d.state.By, d.state.Speed = by[:i], by[i+1:]
		}
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

// Set changes the state for a user, and reports whether it was turned on or off. When
// it returns, the state is on disk. The user who turned it on is kept, and the speed
// until another is given or it is turned off.
func (d *Drain) Set(on bool, speed, by string, now time.Time) (bool, error) {
	d.setting.Lock()
	defer d.setting.Unlock()
	was := d.State()
	if was.On == on && (speed == "" || speed == was.Speed) {
		return false, nil
	}
	state := State{}
	var err error
	if on {
		state = State{On: true, Since: now.Truncate(time.Second), By: by}
		if was.On {
			state = was
		}
		state.Speed = speed
		err = d.write(&state)
	} else if err = atomicfile.Remove(d.path); err == nil {
		err = atomicfile.SyncDir(filepath.Dir(d.path))
	}
	if err != nil {
		return false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state = state
	close(d.changed)
	d.changed = make(chan struct{})
	return was.On != on, nil
}

func (d *Drain) write(s *State) error {
	line := s.Since.UTC().Format(time.RFC3339) + " " + s.By
	if s.Speed != "" {
		line += " " + s.Speed
	}
	return atomicfile.WriteDurable(d.path, []byte(line+"\n"), spool.ModeOf(spool.FileDrain))
}
