package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/proc"
	"paddock/spool"
	"paddock/spool/spooltest"
	"paddock/test/harness"
)

// ourShepherd is the path of our shepherd.
var ourShepherd string

func TestMain(m *testing.M) { os.Exit(harness.RunWithShepherd(m, &ourShepherd)) }

// starts is a forker that serves, with directories of jobs.
type starts struct {
	*testing.T
	forker
	path string // of the shepherd
}

func newStarts(t *testing.T) *starts {
	t.Helper()
	s := &starts{T: t, forker: newForker(), path: ourShepherd}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { s.run(stop); close(done) }()
	t.Cleanup(func() {
		close(stop)
		<-done
		if left := onStandby(t); len(left) > 0 {
			t.Errorf("it has left %v on standby", left)
		}
	})
	return s
}

// onStandby returns the processes of this one that are.
func onStandby(t *testing.T) (pids []int) {
	t.Helper()
	all, err := proc.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if words := arguments(p.PID); p.Parent == os.Getpid() && len(words) > 1 && words[1] == spool.StandbyOption {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// arguments are those of a process.
func arguments(pid int) []string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(string(line), "\x00")
}

// job starts a shepherd for a job that does not end, and returns how to end it.
func (s *starts) job() (pid int, end func()) {
	s.Helper()
	dir := spool.OpenDir(s.TempDir())
	config := spooltest.Config(s.T, spooltest.Job{Binary: "/bin/sleep", Args: []string{"1000"}})
	if err := spooltest.Fill(dir, config, []string{"PATH=/bin"}); err != nil {
		s.Fatal(err)
	}
	lock, err := dir.Lock()
	if err != nil {
		s.Fatal(err)
	}
	pid, pidfd, err := s.start(&fork{path: s.path, name: "shepherd-test", dir: dir.Path(), lock: lock, own: true})
	if err = errors.Join(err, lock.Close()); err != nil {
		s.Fatal(err)
	}
	return pid, func() {
		s.Helper()
		err := harness.WaitFor(time.Minute, "the job", func() (bool, error) {
			_, err := dir.JobPID()
			return err == nil, nil
		})
		if words := arguments(pid); words[0] != "shepherd-test" || words[1] != "-bg" {
			s.Errorf("shepherd %d is called %q", pid, words)
		}
		if err = errors.Join(err, unix.PidfdSendSignal(pidfd, unix.SIGTSTP, nil, 0)); err != nil {
			s.Error(err)
		}
		reap(pidfd, 0)
		unix.Close(pidfd)
		if n, err := dir.ExitStatus(); err != nil || n != 0 {
			s.Errorf("exit status %d, %v", n, err)
		}
	}
}

// wantJob starts one for a job, which is to be the one on standby, or must not be it.
func (s *starts) wantJob(what string, standby int, is bool) (end func()) {
	s.Helper()
	pid, end := s.job()
	if (pid == standby) != is {
		s.Errorf("%s job: shepherd %d has it; on standby was %d", what, pid, standby)
	}
	return end
}

// await returns the one that is on standby, when there is one.
func (s *starts) await() (pid int) {
	s.Helper()
	err := harness.WaitFor(time.Minute, "a shepherd on standby", func() (bool, error) {
		pids := onStandby(s.T)
		if len(pids) == 1 {
			pid = pids[0]
		}
		return pid != 0, nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return pid
}

// One is on standby from the first job on, but never while a run has not settled.
func TestStandby(t *testing.T) {
	s := newStarts(t)
	_, first := s.job()
	pid := s.await()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil { // its run does not settle
		t.Fatal(err)
	}
	second := s.wantJob("second", pid, true)
	third := s.wantJob("third", pid, false)
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	first()
	second()
	third()
	s.wantJob("fourth", s.await(), true)()
}

// One that has ended, or that is of a program that was replaced, gets no job.
func TestStandbyLost(t *testing.T) {
	for what, lose := range map[string]func(s *starts, pid int) error{
		"killed": func(_ *starts, pid int) error {
			pidfd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return err
			}
			defer unix.Close(pidfd)
			if err := unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0); err != nil {
				return err
			}
			reap(pidfd, unix.WNOWAIT) // its end of the socket is open until all of it is gone
			return nil
		},
		"replaced": func(s *starts, _ int) error { return install(s.path) },
	} {
		t.Run(what, func(t *testing.T) {
			s := newStarts(t)
			s.path = filepath.Join(t.TempDir(), "shepherd")
			if err := install(s.path); err != nil {
				t.Fatal(err)
			}
			_, first := s.job()
			first()
			pid := s.await()
			if err := lose(s, pid); err != nil {
				t.Fatal(err)
			}
			s.wantJob("second", pid, false)()
			if now := s.await(); now == pid {
				t.Errorf("%d is still on standby", pid)
			}
		})
	}
}

// install puts a copy of the shepherd in a place, in one step.
func install(path string) error {
	b, err := os.ReadFile(ourShepherd)
	if err != nil {
		return err
	}
	return errors.Join(harness.WriteExecutable(path+".new", string(b)), os.Rename(path+".new", path))
}
