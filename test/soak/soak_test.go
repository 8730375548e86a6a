// Package soak holds the long runs: thousands of jobs while execd is killed
// again and again, hundreds of sessions while whatever they need is, output of sandboxes whose way is
// disturbed, jobs on hosts that lose execd, network or trust, also while their files travel, and
// users who want execd for themselves. `make soak`
// runs it at full size; without -scale it is a two-hundredth, so that every
// `go test ./...` has it. Nobody imports it.
package soak

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/test/harness"
)

var (
	scale = flag.Float64("scale", 0.005, "size: 1 means 1,000 single jobs, 10,000 tasks, 20 kills, 200 sessions, 300 jobs with sandboxes and 200 acts against them, 1 GB through an interactive job, 2,000 tasks on four hosts, 200 acts against hosts, as many while files travel between them, and 21,000 connections of hostile users")
	seed  = flag.Uint64("seed", 0, "of the moments at which something is killed; 0 takes one from the clock")
)

// top is the directory below which all is, and built is where the binaries are, which
// are the same for all tests.
var top, built string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if top, err = harness.Base("soak"); err == nil {
		built = filepath.Join(top, "bin")
		err = harness.Build(built)
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if left, _ := filepath.Glob(filepath.Join(top, "[0-9]*")); len(left) > 0 {
		err = errors.Join(err, harness.Keep(top)) // of tests that have failed
	} else {
		err = errors.Join(err, os.RemoveAll(top))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// install has the binaries below the directory of a test, so that what runs from
// there is known for its own.
func (s *soak) install(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", "-l", built, s.bin).CombinedOutput(); err != nil {
		t.Fatalf("cannot link the binaries: %v\n%s", err, out)
	}
	if err := os.Chmod(s.bin, 0o755); err != nil {
		t.Fatal(err)
	}
}

// part returns n at the chosen scale, but at least low.
func part(n, low int) int { return max(low, int(float64(n)*(*scale)+0.5)) }

// drawSeed takes a seed from the clock if none was given.
func drawSeed() {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
}

// TestKills submits jobs one by one and one large array, and kills execd at
// random moments meanwhile. Every task runs once and has one accounting line;
// the jobs that run all the time do not notice.
func TestKills(t *testing.T) {
	drawSeed()
	singles, tasks, kills, sentinels := part(1000, 10), part(10000, 100), part(20, 3), 3
	t.Logf("%d single jobs, an array of %d tasks, %d kills; repeat with -scale %g -seed %d", singles, tasks, kills, *scale, *seed)

	base, err := os.MkdirTemp(top, "") //nolint:usetesting // kept when the test fails
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{base: base, dir: filepath.Join(base, "pd"), bin: filepath.Join(base, "bin")}
	t.Cleanup(func() { s.cleanUp(t) })
	s.prepare(t)
	s.start(t)

	for range sentinels {
		s.submit(t, "-N", "sentinel", filepath.Join(base, "sentinel.sh"))
	}
	if err := harness.WaitFor(harness.Patience, "the sentinels to run", func() (bool, error) {
		return len(s.lines(t, "sentinels")) == sentinels, nil
	}); err != nil {
		t.Fatal(err)
	}

	// The killer works beside the submission and the run of the jobs, and has
	// to be done before they are.
	total := singles + tasks
	begin := time.Now()
	var killer sync.WaitGroup
	killer.Go(func() { s.killAtRandom(t, kills, total, nil) })
	array := s.submit(t, "-N", "array", "-t", fmt.Sprintf("1-%d", tasks), filepath.Join(base, "task.sh"))
	numbers := make([]string, 0, singles)
	for range singles {
		numbers = append(numbers, s.submit(t, "-N", "single", filepath.Join(base, "task.sh")))
	}
	killer.Wait()
	if t.Failed() {
		return
	}

	// Progress is looked at, not only the end: a run that stands still is
	// told from a long one.
	last, at := 0, time.Now()
	if err := harness.WaitFor(25*time.Minute, "all tasks to be accounted", func() (bool, error) {
		n := s.accounted(t)
		if n != last {
			last, at = n, time.Now()
		}
		if time.Since(at) > 3*harness.Patience {
			t.Fatalf("no accounting line in %v: %d of %d\n%s", 3*harness.Patience, n, total, s.daemon.Log())
		}
		// Submissions whose answer was lost come on top of the total.
		return n >= total && s.left(t) == sentinels, nil
	}); err != nil {
		t.Fatal(err)
	}
	elapsed := time.Since(begin)
	if err := os.WriteFile(filepath.Join(base, "release"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := harness.WaitFor(harness.Patience, "the sentinels to end", func() (bool, error) {
		return s.left(t) == 0, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.daemon.Stop(); err != nil {
		t.Error(err)
	}

	s.check(t, array, tasks, numbers)
	for _, line := range s.lines(t, "sentinels") {
		if f := strings.Fields(line); len(f) != 2 {
			t.Errorf("sentinel line %q", line)
		} else if end := s.lines(t, "sentinel."+f[0]); len(end) != 1 || end[0] != f[1] {
			t.Errorf("sentinel job %s started as process %s and ended as %q: it was touched", f[0], f[1], end)
		}
	}
	t.Logf("%d tasks in %.1f s (%.0f a second), execd killed %d times", total, elapsed.Seconds(), float64(total)/elapsed.Seconds(), kills)
}

type soak struct {
	base, dir, bin string
	mode           string     // of execd; empty: -dev
	via            []string   // a command that becomes execd
	mu             sync.Mutex // held while the daemon is replaced
	daemon         *harness.Daemon
	unclear        int // submissions that got no answer
	booked         booked
}

// booked is how far the accounting file has been read.
type booked struct {
	offset int64
	lines  int
}

func (s *soak) prepare(t *testing.T) {
	s.install(t)
	for name, text := range map[string]string{
		"pd/etc/queues/all.q": "qname all.q\nslots 9\n",
		// One write to a file opened for append is whole, however many tasks
		// write at once.
		"task.sh": "echo $JOB_ID.$SGE_TASK_ID >>" + s.base + "/ran\n",
		"sentinel.sh": "echo $JOB_ID $$ >>" + s.base + "/sentinels\n" +
			"while ! test -e " + s.base + "/release; do sleep 0.4; done\n" +
			"echo $$ >>" + s.base + "/sentinel.$JOB_ID\n",
	} {
		path := filepath.Join(s.base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *soak) start(t *testing.T) {
	d, err := harness.Start(harness.Options{Bin: s.bin, Dir: s.dir, Mode: s.mode, Via: s.via})
	if err != nil {
		t.Error(err)
		return
	}
	s.daemon = d
}

// killAtRandom kills execd at moments spread over the first nine tenths of
// the work: after a number of accounting lines drawn in advance, and then
// after a delay of up to 50 ms, so that every step of a job's life can be hit.
// before, if it is not nil, is called before each kill.
func (s *soak) killAtRandom(t *testing.T, kills, total int, before func()) {
	rng := rand.New(rand.NewPCG(*seed, 0))
	for i := range kills {
		from, to := total*9*i/(kills*10), total*9*(i+1)/(kills*10)
		target := from + rng.IntN(max(1, to-from))
		delay := time.Duration(rng.Int64N(int64(50 * time.Millisecond)))
		if err := harness.WaitFor(10*time.Minute, fmt.Sprintf("%d accounting lines before kill %d", target, i+1), func() (bool, error) {
			return s.accounted(t) >= target, nil
		}); err != nil {
			t.Error(err)
			return
		}
		<-time.After(delay)
		if before != nil {
			before()
		}
		s.mu.Lock()
		s.daemon.Kill()
		s.start(t)
		s.mu.Unlock()
		if t.Failed() {
			return
		}
	}
}

// submit submits a job and returns its number. While execd is down qsub
// fails, and is repeated. Execd may have taken a job and been killed before it
// could answer; then the job runs and nobody knows its number, which
// check allows for.
func (s *soak) submit(t *testing.T, args ...string) string {
	for range 1000 {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "qsub"), append([]string{"-terse", "-wd", "/", "-o", "/dev/null", "-j", "y"}, args...)...)
		cmd.Env = append(os.Environ(), "PADDOCK_DIR="+s.dir)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		cancel()
		if err == nil {
			number, _, _ := strings.Cut(strings.TrimSpace(stdout.String()), ".")
			return number
		}
		if t.Failed() {
			break // the killer has given up
		}
		if !strings.Contains(stderr.String(), "execd") {
			t.Fatalf("qsub %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
		}
		s.unclear++
		// Until the daemon is back.
		s.mu.Lock()
		s.mu.Unlock() //nolint:staticcheck // waiting for its holder is all that is wanted
	}
	t.Fatal("qsub fails again and again")
	return ""
}

// lines returns the lines of one of the files that jobs write.
func (s *soak) lines(t *testing.T, name string) []string {
	text, err := os.ReadFile(filepath.Join(s.base, name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// left counts the lines of qstat.
func (s *soak) left(t *testing.T) int {
	jobs, err := s.daemon.Jobs()
	if err != nil {
		t.Error(err)
	}
	return len(jobs)
}

// accounted counts the accounting lines, reading only what is new.
func (s *soak) accounted(t *testing.T) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := os.Open(filepath.Join(s.dir, "accounting"))
	if os.IsNotExist(err) {
		return 0
	}
	if err != nil {
		t.Error(err)
		return s.booked.lines
	}
	defer f.Close()
	if _, err := f.Seek(s.booked.offset, 0); err != nil {
		t.Error(err)
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(f); err != nil {
		t.Error(err)
	}
	whole := text.Bytes()[:bytes.LastIndexByte(text.Bytes(), '\n')+1]
	s.booked.offset += int64(len(whole))
	for line := range bytes.Lines(whole) {
		if !bytes.HasPrefix(line, []byte("#")) {
			s.booked.lines++
		}
	}
	return s.booked.lines
}

// check compares what was submitted, what ran and what was accounted.
func (s *soak) check(t *testing.T, array string, tasks int, singles []string) {
	ran := make(map[string]int)
	for _, line := range s.lines(t, "ran") {
		ran[strings.Replace(line, ".undefined", ".0", 1)]++
	}
	booked, err := harness.Accounting(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	complaints := 0
	complain := func(task, wrong string, got int) {
		if complaints++; complaints <= 20 { // the first few tell enough
			t.Errorf("task %s %s %d times; want once", task, wrong, got)
		}
	}
	expect := func(task string) {
		if n := ran[task]; n != 1 {
			complain(task, "ran", n)
		}
		if n := booked[task]; n != 1 {
			complain(task, "was accounted", n)
		}
		delete(ran, task)
		delete(booked, task)
	}
	for i := range tasks {
		expect(array + "." + strconv.Itoa(i+1))
	}
	for _, n := range singles {
		expect(n + ".0")
	}
	// What is left are the sentinels' lines and those submissions whose
	// answer was lost: each of those ran once too, or not at all.
	unknown := make(map[string]int) // tasks of a job; it may be an array like ours
	for task, n := range ran {
		job, _, _ := strings.Cut(task, ".")
		unknown[job]++
		if n != 1 {
			complain(task, "ran", n)
		}
		if booked[task] != 1 {
			complain(task, "was accounted", booked[task])
		}
	}
	if complaints > 20 {
		t.Errorf("and %d more", complaints-20)
	}
	for job, n := range unknown {
		if n != 1 && n != tasks {
			t.Errorf("%d tasks of job %s ran; want 1 or %d, as were submitted", n, job, tasks)
		}
	}
	if len(unknown) > s.unclear {
		t.Errorf("%d jobs ran that nobody submitted", len(unknown)-s.unclear)
	}
}

func (s *soak) cleanUp(t *testing.T) {
	if s.daemon != nil {
		s.daemon.Kill()
	}
	left, err := harness.LeftBehind(s.base)
	harness.KillLeft(s.base)
	if err != nil {
		t.Error(err)
	}
	if t.Failed() {
		t.Logf("kept %s; the end of the log:\n%s", s.base, s.log())
		return
	}
	if len(left) > 0 {
		t.Errorf("left behind:\n  %s", strings.Join(left, "\n  "))
	}
	if err := os.RemoveAll(s.base); err != nil {
		t.Error(err)
	}
}

func (s *soak) log() string {
	if s.daemon == nil {
		return ""
	}
	return s.daemon.Log()
}
