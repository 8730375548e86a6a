package proc

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// An ExecWait is the wait between looks at the environments of processes: one that is in
// the middle of exec has none for an instant, which is long on a busy host.
type ExecWait struct{ last time.Duration }

// Again reports, after a pause, whether another look is needed to see what those so far
// have missed: a second one is, and more while processes are in the middle of exec. One
// that stays there is not waited for longer than a second.
func (w *ExecWait) Again(execs bool) bool {
	if w.last > 0 && !execs || w.last >= 400*time.Millisecond {
		return false
	}
	w.last = max(10*time.Millisecond, 2*w.last)
	time.Sleep(w.last)
	return true
}

// Kill kills the processes that owns picks and all below them, whatever became of
// those, and returns how many that were. It fails if some do not die in time, or
// may not be killed. The process that asks and the first one are never picked.
func Kill(limit time.Duration, owns func(Process) bool) (killed int, err error) {
	var refused error
	seen, end := map[ID]bool{}, time.Now().Add(limit)
	for wait := (ExecWait{}); ; {
		found, execs, err := stop(end, owns)
		if err != nil {
			return len(seen), err
		}
		var dying []Process
		for _, p := range found {
			if there, err := p.Signal(unix.SIGKILL); err != nil {
				// What was started has rights that we lack (su in user mode).
				refused = fmt.Errorf("cannot kill process %d: %w", p.PID, err)
			} else if seen[p.ID] = true; there {
				dying = append(dying, p)
			}
		}
		if len(dying) == 0 {
			if !wait.Again(execs) {
				return len(seen), refused
			}
			continue
		}
		// Each is waited for: the next look does not find what is in the middle of its end.
		for i, p := range dying {
			if !p.Ends(time.Until(end)) {
				return len(seen), fmt.Errorf("cannot kill what is left: %d processes do not die", len(dying)-i)
			}
		}
		wait = ExecWait{}
	}
}

// stop stops the processes that owns picks, and those below them, until a look finds
// no new ones, and returns them all, and whether others are in the middle of exec. A
// stopped process does not fork, so that no child is lost by the death of its parent, by
// which alone some children are found.
func stop(end time.Time, owns func(Process) bool) (stopped map[ID]Process, execs bool, err error) {
	stopped = map[ID]Process{}
	for {
		all, err := All()
		if err != nil {
			return nil, false, fmt.Errorf("cannot look for processes: %w", err)
		}
		all = slices.DeleteFunc(all, func(p Process) bool { return p.PID == unix.Getpid() || p.PID == 1 })
		var roots []int
		for _, p := range all {
			if owns(p) {
				roots = append(roots, p.PID)
			}
		}
		below, fresh := Descendants(all, roots...), false
		execs = false
		for _, p := range all {
			execs = execs || p.Execs && !below[p.PID]
			if _, known := stopped[p.ID]; below[p.PID] && !known {
				stopped[p.ID], fresh = p, true
				_, _ = p.Signal(unix.SIGSTOP) // the kill will say why
			}
		}
		// All of them: a child is not found again whose parent has just ended.
		if !fresh || time.Now().After(end) {
			return stopped, execs, nil
		}
	}
}
