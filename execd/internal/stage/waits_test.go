package stage

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/mail"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/user"
	"paddock/spool"
	"paddock/spool/spooltest"
	"paddock/test/harness"
)

// answers fails the test if what qstat asks waits for anybody.
func answers(t *testing.T, r *Runner, run spool.RunID) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Queue.Status()
		r.Queue.Verdicts()
		r.Queue.Ranks()(&api.JobStatus{Job: run.Job, Queue: "all.q"})
		r.Subtasks(run)
		r.HookRuns(run)
		r.Launcher.Running()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("qstat waits")
	}
}

// suspended returns a run whose shepherd is a process that sleeps, in a queue that the
// function suspends, or lets go on.
func suspended(t *testing.T) (r *Runner, task *job.Task, suspend func(on bool)) {
	t.Helper()
	r, states, task := startedTask(t, api.SubmitRequest{Mail: "s"}, false)
	mine(task.Job)
	if _, err := r.Launcher.Root.Stage(task.RunID(), -1); err != nil {
		t.Fatal(err)
	}
	d, err := r.Launcher.Root.Activate(task.RunID())
	if err != nil {
		t.Fatal(err)
	}
	lock, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	shepherd := exec.Command("sleep", "1000")
	if err := shepherd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteNew(spool.FilePID, spool.AppendNumber(nil, shepherd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	l := r.Launcher
	l.Log, l.SGERoot = r.Log, t.TempDir()
	gone := make(chan struct{})
	l.Exited = func(spool.RunID) { close(gone) }
	if err := l.Init(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { l.Run(stop) })
	if err := l.Reattach(task.RunID()); err != nil {
		t.Fatal(err)
	}
	config := r.Config()
	r.Queue = queue.New(queue.Options{
		Store: r.Store, Claims: claim.NewTable(config.Queues, queue.Holder), GIDs: queue.NewGIDs(nil), Cores: queue.NewCores(""),
		Config: config, States: states, Log: r.Log, Hold: func() string { return "" }, Suspend: r.Suspend,
	})
	r.Queue.Adopt(task, time.Now())
	life := r.newLife(task)
	life.at = runs
	life.steer.up = true
	r.add(life)
	running.Go(func() { r.Queue.Run(t.Context()) })
	t.Cleanup(func() {
		_ = shepherd.Process.Kill()
		_ = shepherd.Wait()
		<-gone
		close(stop)
		running.Wait()
	})
	return r, task, func(on bool) {
		t.Helper()
		action := api.ActionResume
		if on {
			action = api.ActionSuspend
		}
		if _, err := r.Queue.Modify(&api.ModifyRequest{Action: action, Queues: []string{"all.q"}}, job.Caller{Name: "root", Manager: true}, "h"); err != nil {
			t.Fatal(err)
		}
	}
}

// signals waits until the shepherd of a run was told so many signals, and returns them.
func signals(t *testing.T, l *launch.Launcher, run spool.RunID, n int) (list []unix.Signal) {
	t.Helper()
	eventually(t, "the shepherd is told", func() bool {
		told, _ := l.Root.Active(run.ID()).Signals()
		list = nil
		for _, s := range told {
			list = append(list, unix.Signal(s.Signal))
		}
		return len(list) >= n
	})
	return list
}

// A mail about a suspension waits for the name services: neither qstat nor the
// suspension does.
func TestSuspendWithoutNameServices(t *testing.T) {
	r, task, suspend := suspended(t)
	dir := t.TempDir()
	asked, answer := filepath.Join(dir, "asked"), filepath.Join(dir, "answer")
	if err := errors.Join(unix.Mkfifo(asked, 0o600), unix.Mkfifo(answer, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := harness.WriteExecutable(filepath.Join(dir, "getent"), "#!/bin/sh\necho >"+asked+"\nread line <"+answer+"\n"); err != nil {
		t.Fatal(err)
	}
	var unsent unsent
	r.Users, r.Log = &user.Directory{Path: dir}, slog.New(slog.NewTextHandler(&unsent, nil))
	var log bytes.Buffer
	r.Mail = mail.New(func() *conf.Config { return r.Config() }, "h", slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	suspend(true)
	if _, err := os.ReadFile(asked); err != nil { // the first question
		t.Fatal(err)
	}
	answers(t, r, task.RunID())
	if got := signals(t, r.Launcher, task.RunID(), 1); got[0] != unix.SIGSTOP {
		t.Errorf("told %v; want STOP", got)
	}
	suspend(false)
	if got := signals(t, r.Launcher, task.RunID(), 2); got[1] != unix.SIGCONT {
		t.Errorf("told %v; want STOP and CONT", got)
	}
	if strings.Contains(log.String(), "Job") {
		t.Errorf("a mail left without the name services: %s", log.String())
	}
	// Whoever asks is let go.
	for _, name := range []string{asked, answer} {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(strings.Repeat("\n", 10)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "nobody asks", func() bool { return unsent.Load() == 2 })
}

// unsent counts the mails for which an owner was not found.
type unsent struct{ atomic.Int32 }

func (n *unsent) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "no mail is sent") {
		n.Add(1)
	}
	return len(b), nil
}

// A suspension is written down for the shepherd: where the disk does not answer, qstat
// does.
func TestSuspendOnDiskThatHangs(t *testing.T) {
	r, task, suspend := suspended(t)
	r.Users = &user.Directory{}
	hangs, goOn := spooltest.Hang(t, spool.FileSignals)
	suspend(true)
	<-hangs
	answers(t, r, task.RunID())
	goOn()
	suspend(false)
	if got := signals(t, r.Launcher, task.RunID(), 2); got[0] != unix.SIGSTOP || got[1] != unix.SIGCONT {
		t.Errorf("told %v; want STOP and CONT", got)
	}
}
