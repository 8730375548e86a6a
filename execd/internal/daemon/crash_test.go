package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/cgroup"
	"paddock/execd/internal/daemon"
	"paddock/spool/atomicfile"
	"paddock/test/harness"
	"paddock/test/props"
)

// The test binary is execd itself when this variable is set: its value is the
// directory, and crashVariable the number of the step of writing to the disk
// before which it dies as by a power cut of its own.
const (
	execdVariable = "PADDOCK_TEST_EXECD"
	crashVariable = "PADDOCK_TEST_CRASH_AT"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(execdVariable); dir != "" {
		os.Exit(beExecd(dir))
	}
	os.Exit(m.Run())
}

func beExecd(dir string) int {
	if at, err := strconv.ParseInt(os.Getenv(crashVariable), 10, 64); err == nil && at > 0 {
		var n atomic.Int64
		atomicfile.Inject(func(atomicfile.Op, string) error {
			if n.Add(1) == at {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {} // not one step further
			}
			return nil
		})
	}
	err := daemon.Run(context.Background(), daemon.Options{
		Places: api.DevPlaces(dir), Version: "test", Foreground: true,
		Shepherd: filepath.Join(filepath.Dir(dir), "shepherd"),
	})
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// build puts real programs into a directory.
func build(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := props.Build(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// process is an execd under test.
type process struct {
	cmd    *exec.Cmd
	dead   chan struct{}
	lives  context.Context // until it is dead
	log    *props.Log
	client *api.Client
}

func startExecd(t *testing.T, dir string, crashAt int) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lives, die := context.WithCancel(t.Context())
	p := &process{cmd: exec.Command(exe), dead: make(chan struct{}), lives: lives, log: new(props.Log)}
	p.cmd.Env = append(os.Environ(), execdVariable+"="+dir, crashVariable+"="+strconv.Itoa(crashAt))
	p.cmd.Stderr = p.log
	// A shepherd must not hold up Wait with the log's pipe: it gets none.
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		die()
		close(p.dead)
	}()
	p.client = api.NewClient(api.DevPlaces(dir).Socket)
	t.Cleanup(func() { p.removeGroups(t) })
	return p
}

// removeGroups removes the control groups that an execd has left that was
// killed.
func (p *process) removeGroups(t *testing.T) {
	p.kill()
	m := regexp.MustCompile(`control groups: \S+ at \S+/(\S+) \(`).FindStringSubmatch(p.log.String())
	if m == nil {
		return
	}
	tree, err := cgroup.Open(m[1], "/bin/true")
	if err == nil {
		err = tree.Sweep(func(string) bool { return false })
		tree.Leave()
	}
	if err != nil {
		t.Error(err)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.dead
}

// call repeats a request while execd is not listening yet. It reports false
// when execd died.
func (p *process) call(t *testing.T, verb string, request, reply any) bool {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		// A client would wait for the next execd, which is started here once this one is dead.
		err := p.client.Call(p.lives, verb, request, reply)
		switch {
		case err == nil:
			return true
		case p.lives.Err() != nil:
			return false
		case !errors.Is(err, api.ErrUnreachable):
			t.Fatalf("%s: %v", verb, err)
		}
		select {
		case <-p.dead:
			return false
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: execd does not answer: %v\n%s", verb, err, p.log)
		}
	}
}

// wait waits for the end of a job, and reports false when execd died.
func (p *process) wait(t *testing.T, number int) bool {
	t.Helper()
	req := api.WaitRequest{Job: number}
	for {
		var reply api.WaitReply
		if !p.call(t, api.VerbWait, req, &reply) {
			return false
		}
		if reply.Error != "" {
			t.Fatalf("job %d is in error: %s\n%s", number, reply.Error, p.log)
		}
		if reply.Done {
			return true
		}
		req.Cursor = reply.Cursor
	}
}

// A crash before each step of a job's life, from submission to the
// last unlink, ends in one run and one accounting line, or, when qsub was told
// nothing, in none at all or in one.
//
// REQ-XFER-40, REQ-XFER-70: so does one with a sandbox, whose output arrives as the job
// has left it, and of which nothing else is left.
func TestFaultCrashAtEveryStep(t *testing.T) {
	every := 2 // execd is started for each of a hundred
	switch {
	case harness.Soak:
		every = 1
	case testing.Short():
		every = 5
	}
	base := t.TempDir()
	build(t, base, "shepherd", "execd-transfer")
	for _, boxed := range []bool{false, true} {
		t.Run(fmt.Sprintf("sandbox %v", boxed), func(t *testing.T) {
			every := every
			if boxed && !harness.Soak {
				every *= 3 // each crash is followed by workers and their programs, too
			}
			// From a step on that is drawn: a few runs try them all.
			for at := 1 + rand.IntN(every); ; at += every {
				if at > 500 {
					t.Fatal("a job's life has more than 500 steps")
				}
				if crashOnce(t, filepath.Join(base, "pd"), at, boxed) {
					t.Logf("%d steps", at-1)
					if at < 20 {
						t.Errorf("only %d steps of writing seen", at-1)
					}
					return
				}
			}
		})
	}
}

// crashOnce takes one job through a crash at one step. It reports whether the
// life was over before that step came.
func crashOnce(t *testing.T, dir string, at int, boxed bool) (over bool) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	runs := filepath.Join(dir, "runs")
	p := startExecd(t, dir, at)
	var submitted api.SubmitReply
	request := api.SubmitRequest{
		Name: "crash", Command: "crash.sh", Cwd: dir, Stdout: "/dev/null", Merge: true,
		Script: []byte("echo ran >>" + runs + "\nexit 7\n"),
	}
	if boxed {
		box(t, &request, filepath.Join(dir, "box"))
	}
	told := p.call(t, api.VerbSubmit, request, &submitted)
	left := func() string {
		if !boxed || !told && lines(t, runs, "") == 0 {
			return ""
		}
		return unboxed(filepath.Join(dir, "box"), api.DevPlaces(dir).Spool)
	}
	finished := false
	if told {
		finished = p.wait(t, submitted.Job)
	}
	if finished {
		// The last steps come after the client was told: they are over when
		// the spool is empty, or execd has died in them.
		for !emptySpool(dir) {
			select {
			case <-p.dead:
				finished = false
			case <-time.After(2 * time.Millisecond):
				continue
			}
			break
		}
	}
	if finished {
		p.kill()
	} else {
		<-p.dead
		p = startExecd(t, dir, 0)
		if told {
			p.wait(t, submitted.Job)
		} else {
			// Whatever was accepted without anybody being told is number 1.
			p.wait(t, 1)
		}
		deadline := time.Now().Add(time.Minute)
		for !emptySpool(dir) || left() != "" {
			if time.Now().After(deadline) {
				t.Fatalf("crash at step %d: the spool is not empty: %s\n%s\n%s", at, left(), tree(dir), p.log)
			}
			time.Sleep(2 * time.Millisecond)
		}
		p.kill()
	}
	if left, err := os.ReadDir(api.DevPlaces(dir).Tmp); err != nil || len(left) > 0 {
		t.Fatalf("crash at step %d: scratch directories: %v, %v; want none\n%s", at, left, err, p.log)
	}
	if why := left(); why != "" {
		t.Fatalf("crash at step %d: %s\n%s", at, why, p.log)
	}
	ran := lines(t, runs, "")
	accounted := lines(t, api.DevPlaces(dir).Accounting, ":crash:")
	if ran != accounted || ran > 1 || told && ran != 1 {
		t.Fatalf("crash at step %d: told=%v, the job ran %d times and has %d accounting lines; want one of each\n%s", at, told, ran, accounted, p.log)
	}
	return finished
}

// box gives a job a sandbox, with an input of which it makes an output that goes to dir.
func box(t *testing.T, r *api.SubmitRequest, dir string) {
	t.Helper()
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "in"), []byte("text\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Sandbox, r.StageOutTo = api.SandboxYes, dir
	r.StageIn = []api.Staged{{Place: api.Text(filepath.Join(dir, "in"))}}
	r.Script = append([]byte("mkdir d && cat in in >d/out\n"), r.Script...)
}

// unboxed says what is not as it is to be after a job with a sandbox; "": nothing.
func unboxed(dir, spool string) string {
	if out, err := os.ReadFile(filepath.Join(dir, "d/out")); string(out) != "text\ntext\n" {
		return fmt.Sprintf("output %q, %v", out, err)
	}
	for place, want := range map[string]int{dir: 2, filepath.Join(spool, "sandboxes"): 1} {
		if left, err := os.ReadDir(place); len(left) != want {
			return fmt.Sprintf("in %s there are %v, %v; want %d names", place, left, err, want)
		}
	}
	return ""
}

// lines counts the lines of a file that contain a text.
func lines(t *testing.T, path, text string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// emptySpool reports whether nothing of any job is left in the spool.
func emptySpool(dir string) bool {
	spool := api.DevPlaces(dir).Spool
	for _, place := range []string{"staging", "active_jobs", "finished", "corrupt", "jobs", "job_scripts"} {
		entries, err := os.ReadDir(filepath.Join(spool, place))
		if err != nil {
			return false
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") { // spares
				return false
			}
		}
	}
	return true
}

func tree(dir string) string {
	out, _ := exec.Command("find", api.DevPlaces(dir).Spool, "-ls").Output()
	return string(out)
}
