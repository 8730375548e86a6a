package proc

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newGroup makes files such as the kernel makes for a control group, and returns
// its directory.
func newGroup(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// sleeper starts a process that waits, and returns it and its number as the kernel
// lists it.
func sleeper(t *testing.T) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, strconv.Itoa(cmd.Process.Pid) + "\n"
}

// wasKilled waits for the end of a process.
func wasKilled(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if p, ok := Get(cmd.Process.Pid); ok && !p.Ends(20*time.Second) {
		t.Error("a process was not killed")
	}
}

func holds(t *testing.T, path, want string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("%s is %q, %v; want %q", filepath.Base(path), b, err, want)
	}
}

func TestKillGroup(t *testing.T) {
	dir := newGroup(t, map[string]string{"cgroup.kill": "", "cgroup.freeze": "0", "inner/cgroup.kill": ""})
	if err := KillGroup(unix.AT_FDCWD, dir, false); err != nil {
		t.Fatal(err)
	}
	holds(t, dir+"/cgroup.kill", "1")
	holds(t, dir+"/inner/cgroup.kill", "")
	holds(t, dir+"/cgroup.freeze", "0")
	if err := KillGroup(unix.AT_FDCWD, dir+"/gone", false); err != nil {
		t.Error(err)
	}
}

// Before Linux 5.14 what is in a group, and in groups that a job has made below it,
// is frozen, killed one by one and thawed, those below as well.
func TestKillGroupOfOldKernel(t *testing.T) {
	child, pid := sleeper(t)
	inner, innerPID := sleeper(t)
	dir := newGroup(t, map[string]string{
		"cgroup.events": "populated 1\nfrozen 1\n", "cgroup.freeze": "0", "cgroup.procs": "0\n" + pid,
		"inner/cgroup.freeze": "1", "inner/cgroup.procs": innerPID,
	})
	if err := KillGroup(unix.AT_FDCWD, dir, false); err != nil {
		t.Fatal(err)
	}
	wasKilled(t, child)
	wasKilled(t, inner)
	holds(t, dir+"/cgroup.freeze", "0")
	holds(t, dir+"/inner/cgroup.freeze", "0")
}

// The processes are killed when the kernel says that they are frozen and not when
// it was asked: until then they fork.
func TestKillGroupWaitsForFrozen(t *testing.T) {
	child, pid := sleeper(t)
	dir := newGroup(t, map[string]string{"cgroup.procs": ""})
	state := dir + "/freezer.state"
	if err := unix.Mkfifo(state, 0o600); err != nil {
		t.Fatal(err)
	}
	killed := make(chan error, 1)
	go func() { killed <- KillGroup(unix.AT_FDCWD, dir, true) }()
	asked := make(chan string, 1)
	go func() {
		b, _ := os.ReadFile(state)
		asked <- string(b)
		looks, err := os.OpenFile(state, os.O_WRONLY, 0) // to be read to its end: not yet
		if err != nil {
			return
		}
		_ = os.WriteFile(dir+"/cgroup.procs", []byte(pid), 0o644) // that was forked just now
		_ = os.WriteFile(state+".frozen", []byte("FROZEN\n"), 0o644)
		_ = os.Rename(state+".frozen", state)
		looks.Close()
	}()
	select {
	case err := <-killed:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the group was not looked at before it was killed")
	}
	if got := <-asked; got != "FROZEN" {
		t.Errorf("the kernel was told %q", got)
	}
	holds(t, state, "THAWED\n")
	wasKilled(t, child)
}

// What cannot be frozen is killed, and said to be so: it may have forked away.
func TestKillGroupNotFrozen(t *testing.T) {
	for _, tt := range []struct {
		v1    bool
		files map[string]string
	}{
		{true, map[string]string{"freezer.state": ""}}, // the file says what was written, without the newline of the kernel's
		{false, map[string]string{"cgroup.events": "populated 1\n"}},
	} {
		child, pid := sleeper(t)
		tt.files["cgroup.procs"] = pid
		dir := newGroup(t, tt.files)
		if err := KillGroup(unix.AT_FDCWD, dir, tt.v1); !errors.Is(err, ErrNotFrozen) {
			t.Errorf("v1 %t: %v", tt.v1, err)
		}
		wasKilled(t, child)
		if tt.v1 {
			holds(t, dir+"/freezer.state", "THAWED")
		}
	}
}
