package stage

import (
	"sync/atomic"
	"testing"

	"paddock/execd/internal/source"
	"paddock/spool"
)

// asked is the queue as a source, and calls a function when it is asked what it is.
type asked struct {
	source.Queue
	call func()
}

// Queued implements source.Source.
func (a asked) Queued() bool {
	a.call()
	return true
}

// A task of a run that has ended while there was no execd is collected while the run is found
// again. Its end does not lead the run on before the list of its processes is made.
func TestRecoverWithEndedTask(t *testing.T) {
	s := newScene(t, nil)
	run := s.l.task.RunID()
	delete(s.r.lives, run) // the execd that knew it is gone
	task := run
	task.PETask = spool.IntoTask(1)
	root := s.r.Launcher.Root
	if _, err := root.StageTask(task); err != nil {
		t.Fatal(err)
	}
	if _, err := root.ActivateTask(task); err != nil {
		t.Fatal(err)
	}
	for _, d := range []spool.Dir{root.Active(run.ID()), root.Active(task.ID())} {
		if err := d.WriteNew(spool.FileExitStatus, []byte("0\n")); err != nil {
			t.Fatal(err)
		}
	}
	var made atomic.Bool
	s.r.Sources[""] = asked{call: func() {
		l := s.r.life(run)
		if l == nil || made.Swap(true) {
			return // before, and after
		}
		if l.mu.TryLock() {
			l.mu.Unlock()
			t.Error("an event leads on a run whose list is not made")
		}
	}}
	if err := s.r.Recover(); err != nil {
		t.Fatal(err)
	}
	if !made.Load() {
		t.Error("the list was not made")
	}
}
