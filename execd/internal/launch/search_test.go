package launch

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// Runs that have ended at the same time share searches, and each of them learns of what it
// has left, which is killed: what carries the mark of its directory or its group. Nothing
// of the others is touched.
func TestKillRest(t *testing.T) {
	l := New(Runs{Root: newRoot(t), Log: slog.New(slog.DiscardHandler)})
	const runs, gid = 20, 65123
	runOf := func(i int) spool.RunID { return spool.RunID{Job: i + 1, Task: 1} }
	left := map[int]*exec.Cmd{}
	leave := func(i int, env []string, sys *syscall.SysProcAttr) {
		cmd := exec.Command("sleep", "1000")
		cmd.Env, cmd.SysProcAttr = env, sys
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		left[i] = cmd
	}
	leave(3, []string{spoolDirMark + l.Root.Active(runOf(3).ID()).Path()}, nil)
	leave(runs, []string{spoolDirMark + l.Root.Active(runOf(runs).ID()).Path()}, nil) // nobody asks for it
	if os.Geteuid() == 0 {
		leave(5, []string{}, &syscall.SysProcAttr{Credential: &syscall.Credential{Groups: []uint32{gid}}})
	}
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() {
			of := 0
			if i == 5 {
				of = gid
			}
			if got, want := l.KillRest(runOf(i), of), left[i] != nil; got != want {
				t.Errorf("run %d has left something: %v; want %v", i, got, want)
			}
		})
	}
	all.Wait()
	for i, cmd := range left {
		if i == runs {
			if err := cmd.Process.Signal(unix.Signal(0)); err != nil {
				t.Errorf("what is not its own was hit: %v", err)
			}
			continue
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("run %d: %v; want that it was killed", i, err)
		}
	}
	if l.KillRest(runOf(3), 0) {
		t.Error("something is left that was killed")
	}
}
