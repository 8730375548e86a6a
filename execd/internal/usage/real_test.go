package usage

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/spool"
	"paddock/test/harness"
	"paddock/test/props"
)

// checkReal starts a job that moves 400 MB through pipes by children that it waits
// for, then burns a processor in a child until its input ends. It compares what
// the Sampler sees with what the kernel says in the end.
func checkReal(t *testing.T, attr *syscall.SysProcAttr, describe func(pid int) Job) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `head -c 200000000 /dev/zero | cat >/dev/null; echo moved
		(while :; do :; done) & read x; kill $!; wait`)
	cmd.Env = []string{"PATH=/usr/bin:/bin", props.Built + "=" + filepath.Dir(shepherd)}
	cmd.SysProcAttr = attr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now() // the job may be far on before we are told
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)

	s := newSampler(nil, time.Second)
	s.Proc = ""
	defer s.table.close()
	job := describe(cmd.Process.Pid)
	job.Started = started
	s.Add(run, job)
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "moved\n" {
		t.Fatalf("the job wrote %q, %v", line, err)
	}
	var u api.Usage
	if err := harness.WaitFor(harness.Patience, "half a second of processor time", func() (bool, error) {
		u, _ = s.Usage(run)
		return u.CPU > 0.5 && u.PIDs >= 2, nil
	}); err != nil {
		t.Fatalf("%v: %+v", err, u)
	}
	// head and cat have each read and written all of it.
	if u.IO < 0.8e9/gib || u.IO > 0.9e9/gib {
		t.Errorf("io is %.3f GB", u.IO)
	}
	if u.RSS < 200<<10 || u.RSS > 1<<30 || u.VMem < u.RSS || u.MaxVMem < u.VMem || u.Mem <= 0 || u.Wallclock < 0.1 {
		t.Errorf("usage is %+v", u)
	}
	stdin.Close()
	_, _ = io.Copy(io.Discard, stdout)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	last, ok := s.Remove(run)
	state := cmd.ProcessState
	ran := spool.NewUsage(0, job.Started, time.Now(), state.SysUsage().(*syscall.Rusage))
	// Of the processes' own times each is rounded to ticks.
	if total := (state.UserTime() + state.SystemTime()).Seconds(); !ok || last.CPU > total+0.1 {
		t.Errorf("sampled %v s (%v), wait4 %v s", last.CPU, ok, total)
	}
	if final := Final(last, ran); final.CPU < u.CPU || final.Mem < last.Mem || final.MaxVMem < u.MaxVMem {
		t.Errorf("final usage is %+v after %+v", final, u)
	}
}

// The job of a user that can mark nothing, whoever that is.
func TestRealTree(t *testing.T) {
	checkReal(t, &syscall.SysProcAttr{Setsid: true}, func(pid int) Job { return Job{PID: func() int { return pid }} })
}

const nobody = 65534

// testGID is of the default gid_range, from its end: nobody's jobs are there, nor, as
// far as can be, those of a second run of this test.
var testGID = 24000 + os.Getpid()%1000

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: cannot become another user")
	}
}

// The job of another user, marked by its group.
func TestRealGroup(t *testing.T) {
	needRoot(t)
	checkReal(t, &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: nobody, Gid: nobody, Groups: []uint32{nobody, uint32(testGID)}}},
		func(int) Job { return Job{AddGID: testGID} })
}

// publicDir makes a directory that other users reach.
func publicDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for up := dir; up != filepath.Clean(os.TempDir()); up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestRealTree without any right.
func TestRealTreeAsUser(t *testing.T) {
	needRoot(t)
	// The compiler's directory is root's.
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(publicDir(t), "test")
	if err := os.WriteFile(name, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), name, "-test.run=^TestRealTree$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin", props.Built + "=" + filepath.Dir(shepherd)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("\n--- PASS: TestRealTree ")) {
		t.Errorf("%v:\n%s", err, out)
	}
}
