// Package spooltest helps tests of whatever works in a spool: it makes disks
// fail and processes crash at a chosen step, and builds job directories. It is
// imported by tests only. The faults are the process's, so tests that use them
// do not run in parallel with others.
package spooltest

import (
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"paddock/spool/atomicfile"
)

// A Fault is an injected failure.
type Fault struct {
	mu      sync.Mutex
	steps   int    // guarded by mu
	hit     bool   // guarded by mu
	last    string // guarded by mu
	restore func()
}

// Steps returns how many steps were announced.
func (f *Fault) Steps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.steps
}

// Hit reports whether the fault took place.
func (f *Fault) Hit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hit
}

// Where describes the step at which the fault took place first.
func (f *Fault) Where() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// Restore ends the fault before the test ends.
func (f *Fault) Restore() { f.restore() }

// arm makes step n, and those behind it if all is set, end as act says.
func arm(t testing.TB, n int, all bool, act func() error) *Fault {
	t.Helper()
	f := &Fault{}
	var once sync.Once
	undo := atomicfile.Inject(func(op atomicfile.Op, path string) error {
		f.mu.Lock()
		f.steps++
		now := f.steps == n || all && f.steps > n
		if now && !f.hit {
			f.hit = true
			f.last = "step " + strconv.Itoa(n) + ": " + string(op) + " " + path
		}
		f.mu.Unlock()
		if now {
			return act()
		}
		return nil
	})
	f.restore = func() { once.Do(undo) }
	t.Cleanup(f.restore)
	return f
}

// Count counts steps and lets them pass.
func Count(t testing.TB) *Fault {
	t.Helper()
	return arm(t, 0, false, nil)
}

// InjectAt makes the n-th step from now, counted from 1, fail with err.
func InjectAt(t testing.TB, n int, err error) *Fault {
	t.Helper()
	return arm(t, n, false, func() error { return err })
}

// InjectFrom makes the n-th step and all behind it fail with err, as a full or
// dying disk does.
func InjectFrom(t testing.TB, n int, err error) *Fault {
	t.Helper()
	return arm(t, n, true, func() error { return err })
}

// FailReads makes reads of files fail whose path ends in suffix. restore ends the
// fault before the test ends.
func FailReads(t testing.TB, suffix string, err error) (restore func()) {
	t.Helper()
	restore = sync.OnceFunc(atomicfile.InjectRead(func(path string) error {
		if strings.HasSuffix(path, suffix) {
			return err
		}
		return nil
	}))
	t.Cleanup(restore)
	return restore
}

// crash is what a crash panics with.
type crash struct{}

// CrashAt ends whoever does the n-th step, or one behind it, with a panic that
// Crashed catches: nothing is changed on disk from there on.
func CrashAt(t testing.TB, n int) *Fault {
	t.Helper()
	return arm(t, n, true, func() error { panic(crash{}) })
}

// Crashed calls f and reports whether an injected crash ended it.
func Crashed(f func()) (crashed bool) {
	defer func() {
		switch p := recover(); p.(type) {
		case nil:
		case crash:
			crashed = true
		default:
			panic(p)
		}
	}()
	f()
	return false
}

// EachCrash calls life again and again, each time with a fresh state from setup:
// with a crash at its first step, at its second and so on, the last time without
// one. After each, check looks at what is left.
func EachCrash[S any](t *testing.T, setup func(t *testing.T) S, life func(t *testing.T, s S), check func(t *testing.T, s S, crashed bool)) {
	t.Helper()
	for n := 1; ; n++ {
		crashed := false
		t.Run("crash at "+strconv.Itoa(n), func(t *testing.T) {
			s := setup(t)
			f := CrashAt(t, n)
			crashed = Crashed(func() { life(t, s) })
			f.Restore()
			if crashed {
				t.Log(f.Where())
			}
			check(t, s, crashed)
		})
		if !crashed || t.Failed() {
			return
		}
	}
}

// EachFault is EachCrash with steps that fail with err instead: alone, and
// with all behind them. life returns its error; check is told it.
func EachFault[S any](t *testing.T, err error, setup func(t *testing.T) S, life func(t *testing.T, s S) error, check func(t *testing.T, s S, got error)) {
	t.Helper()
	for n := 1; ; n++ {
		hit := false
		for _, all := range []bool{false, true} {
			name := "fault at "
			if all {
				name = "faults from "
			}
			t.Run(name+strconv.Itoa(n), func(t *testing.T) {
				s := setup(t)
				f := arm(t, n, all, func() error { return err })
				got := life(t, s)
				f.Restore()
				hit = f.Hit()
				if hit {
					t.Log(f.Where())
				}
				check(t, s, got)
			})
		}
		if !hit || t.Failed() {
			return
		}
	}
}

// Hang makes every step on files of a name wait, as on a disk that does not answer.
// hangs is closed when the first step waits. All go on after goOn, or when the test
// ends.
func Hang(t testing.TB, name string) (hangs <-chan struct{}, goOn func()) {
	t.Helper()
	waits, answer := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(waits) })
	undo := atomicfile.Inject(func(_ atomicfile.Op, path string) error {
		if filepath.Base(path) == name {
			first()
			<-answer
		}
		return nil
	})
	goOn = sync.OnceFunc(func() { undo(); close(answer) })
	t.Cleanup(goOn)
	return waits, goOn
}
