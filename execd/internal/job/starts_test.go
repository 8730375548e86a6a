package job

import (
	"testing"
	"time"
)

// Who waits for a job to start is told when its start is recorded, and not by a start
// that came to nothing; and that it will not start.
func TestStarts(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	j := submitArray(t, s, 1)
	look := func(started, never bool) <-chan struct{} {
		t.Helper()
		changed, gotStarted, gotNever := s.Starts(j)
		if gotStarted != started || gotNever != never {
			t.Errorf("started %v, never %v; want %v, %v", gotStarted, gotNever, started, never)
		}
		return changed
	}
	told := func(changed <-chan struct{}, want bool) {
		t.Helper()
		select {
		case <-changed:
			if !want {
				t.Error("told for nothing")
			}
		default:
			if want {
				t.Error("not told")
			}
		}
	}
	changed := look(false, false)
	task := s.Take(j, Start{Queue: "all.q"}, time.Now())
	told(changed, false)
	look(false, false)
	s.Untake(task)
	changed = look(false, false)
	task = s.Take(j, Start{Queue: "all.q"}, time.Now())
	if err := s.Begin(task); err != nil {
		t.Fatal(err)
	}
	told(changed, true)
	changed = look(true, false)
	if err := s.Fail(task, "no directory"); err != nil {
		t.Fatal(err)
	}
	told(changed, true)
	look(false, true)
}
