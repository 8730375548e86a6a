package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/cgroup"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/user"
	"paddock/internal/proc"
	"paddock/spool"
	"paddock/test/harness"
)

// shepherd is the real one, built once.
var shepherd string

// The test's binary is the execd of one test as well, which is killed.
const execdWord = "execd-of-a-hook"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == execdWord {
		beExecd()
	}
	if len(os.Args) > 1 && os.Args[1] == idleWord {
		beIdle()
	}
	if len(os.Args) > 2 && os.Args[1] == rootWord {
		beRoot(os.Args[2])
	}
	if len(os.Args) > 2 && os.Args[1] == spyWord {
		pid, err := strconv.Atoi(os.Args[2])
		if err != nil {
			os.Exit(3)
		}
		os.Exit(spy(pid))
	}
	// Those that run beside each other wait most of the time.
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(8, runtime.GOMAXPROCS(0)))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(harness.RunWithShepherd(m, &shepherd))
}

// long is a limit that no test comes to. short is one that a test waits for.
const (
	long  = 5 * time.Minute
	short = 500 * time.Millisecond
)

// grace is what the shepherd gives a hook from SIGTERM to SIGKILL.
const grace = 3 * time.Second

// bed is where a test runs hooks. Under root they run as a user that nobody
// else is, otherwise as the one who tests.
type bed struct {
	t    testing.TB
	dir  string // the hooks', which everybody may enter
	home string // the user's
	r    *Runner
	as   *user.User
	mark string // in the environment of all that this test's hooks start
	log  *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

const testUID, testGID, testGroup = 54741, 54742, 54743

func newBed(t testing.TB) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("", "hook") //nolint:usetesting // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, dir: dir, home: filepath.Join(dir, "home"), mark: "HOOK_TEST=" + filepath.Base(dir), log: &syncBuffer{}}
	b.r = &Runner{
		Starter: &asuser.Starter{Shepherd: shepherd}, Privileged: os.Geteuid() == 0, Users: &user.Directory{}, Host: "testhost",
		Log: slog.New(slog.NewTextHandler(b.log, nil)),
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(b.home, 0o700)); err != nil {
		t.Fatal(err)
	}
	if b.r.Privileged {
		b.as = &user.User{Name: "hooktest", UID: testUID, GID: testGID, Groups: []int{testGID, testGroup}, Home: b.home, Shell: "/bin/sh"}
		if err := os.Chown(b.home, testUID, testGID); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if n := killMarked(b.mark); n > 0 {
			t.Errorf("%d processes of hooks were left", n)
		}
		if t.Failed() {
			t.Log(b.log)
		}
		os.RemoveAll(dir)
	})
	return b
}

// hook writes a script and returns it as a hook.
func (b *bed) hook(text string) *Hook {
	b.t.Helper()
	path := filepath.Join(b.dir, "hook")
	if err := harness.WriteExecutable(path, "#!/bin/sh\n"+text+"\n"); err != nil {
		b.t.Fatal(err)
	}
	return &Hook{Keyword: "SITE", Name: PrepareJob, Path: path, Limit: long}
}

// call returns a call of a hook by the test's user.
func (b *bed) call(h *Hook) Call {
	return Call{Hook: h, As: b.as, Dir: b.home, Label: "job 3.1", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", b.mark}}
}

// run runs a hook, and sees that nothing of it is left when Run is back.
func (b *bed) run(c Call) Result {
	b.t.Helper()
	res := b.r.Run(context.Background(), c)
	b.none()
	return res
}

// none sees that no process of the test's hooks is alive.
func (b *bed) none() {
	b.t.Helper()
	if pids := withMark(b.mark); len(pids) > 0 {
		b.t.Errorf("left: processes %v", pids)
	}
}

// withMark returns the processes with a variable in their environment.
func withMark(mark string) []proc.Process {
	all, _ := proc.All()
	return slices.DeleteFunc(all, func(p proc.Process) bool { return !marked(mark)(p) })
}

func (b *bed) await(name string) string {
	b.t.Helper()
	var text []byte
	err := harness.WaitFor(harness.Patience, name+" to be there", func() (bool, error) {
		text, _ = os.ReadFile(filepath.Join(b.home, name))
		return bytes.HasSuffix(text, []byte("\n")), nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.TrimSuffix(string(text), "\n")
}

func (b *bed) awaitNone() {
	b.t.Helper()
	if err := harness.WaitFor(harness.Patience, "the hook's processes to go", func() (bool, error) {
		return len(withMark(b.mark)) == 0, nil
	}); err != nil {
		b.t.Error(err)
	}
}

// REQ-HOOK-103: a hook of a job has the rights of the job's user and no others,
// and exactly the environment that it is given.
// REQ-HOOK-117: it works in the directory that it is given.
func TestRun(t *testing.T) {
	b := newBed(t)
	h := b.hook(`echo "args:$#:$1:$2:$3"
cat
id -u; id -g; id -G
umask
pwd -P
ls /proc/self/fd | tr '\n' ' '; echo
for fd in 0 1 2; do while read -r key value; do test $key = flags: && echo $((value & 04000)); done </proc/$$/fdinfo/$fd; done | tr '\n' ' '; echo
grep -E '^(SigBlk|SigIgn)' /proc/self/status
read -r pid name state ppid pgrp sid rest </proc/self/stat; test $sid != $ppid; echo $(($(cut -d' ' -f6 /proc/$$/stat) - $$))
env | grep -v ^PWD= | grep -v ^_= | grep -v ^OLDPWD= | sort`)
	h.Args = []string{"from conf", "x\ny"}
	c := b.call(h)
	c.Args = []string{"own"}
	c.Stdin = []byte("in\n-----\n")
	c.Env = append(c.Env, "GOMAXPROCS=nonsense", "GODEBUG=x", "LD_LIBRARY_PATH=/nowhere", "TWO=a\nTHREE=b")
	res := b.run(c)
	ids := fmt.Sprintf("%d\n%d\n%d %d\n", testUID, testGID, testGID, testGroup)
	if b.as == nil {
		out, err := exec.Command("sh", "-c", "id -u; id -g; id -G").Output()
		if err != nil {
			t.Fatal(err)
		}
		ids = string(out)
	}
	home, err := filepath.EvalSymlinks(b.home)
	if err != nil {
		t.Fatal(err)
	}
	var rest []string
	text := string(res.Stdout)
	before, env, _ := strings.Cut(text, "\nGODEBUG=")
	for line := range strings.Lines("GODEBUG=" + env) {
		rest = append(rest, strings.TrimSuffix(line, "\n"))
	}
	want := "args:3:own:from conf:x\ny\nin\n-----\n" + ids + "0022\n" + home + "\n0 1 2 3 \n0 0 0 \n" +
		"SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0"
	if diff := cmp.Diff(want, before); diff != "" {
		t.Errorf("the hook found (-want +got):\n%s", diff)
	}
	for i, v := range rest {
		if strings.HasPrefix(v, markName) {
			rest[i] = markName
		}
	}
	wantEnv := []string{"GODEBUG=x", "GOMAXPROCS=nonsense", b.mark, "LD_LIBRARY_PATH=/nowhere", markName, "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "THREE=b", "TWO=a"}
	slices.Sort(rest)
	slices.Sort(wantEnv)
	if diff := cmp.Diff(wantEnv, rest); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if !res.OK() || res.Keyword != "SITE" || res.Hook != PrepareJob || res.Took <= 0 || res.Stderr != "" {
		t.Errorf("result %+v", res)
	}
}

// TestStatus sees every way in which a hook ends by itself: what it has printed
// is there whatever its exit status.
func TestStatus(t *testing.T) {
	b := newBed(t)
	for text, want := range map[string]int{
		"echo ad; exit 0": 0, "echo ad; exit 7": 7, "echo ad; exit 255": 255,
		"echo ad; kill -9 $$": -9, "echo ad; kill -SEGV $$": -11, "echo ad; kill -TERM $$": -15,
	} {
		res := b.run(b.call(b.hook(text)))
		if res.Status != want || res.Err != nil || res.TimedOut || res.TooLong || string(res.Stdout) != "ad\n" || res.OK() != (want == 0) {
			t.Errorf("%s: %+v; want status %d", text, res, want)
		}
	}
}

// REQ-HOOK-101: what is no proper program is not run, and the reason names it.
func TestNotStarted(t *testing.T) {
	b := newBed(t)
	path := func(name, text string, mode os.FileMode) string {
		t.Helper()
		p := filepath.Join(b.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), harness.WriteExecutable(p, text), os.Chmod(p, mode)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	open := path("open/hook", "#!/bin/sh\n", 0o755)
	if err := os.Chmod(filepath.Dir(open), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ path, dir, want string }{
		{filepath.Join(b.dir, "none"), "", "no such file"},
		{b.dir, "", "not a regular file"},
		{path("plain", "#!/bin/sh\n", 0o644), "", "execute"},
		{path("wide", "#!/bin/sh\n", 0o757), "", "everybody write"},
		{open, "", "everybody put another file"},
		{path("script", "#!/no/such/interpreter\n", 0o755), "", "its interpreter is missing"},
		{path("text", "echo hi\n", 0o755), "", "#!"},
		{path("good", "#!/bin/sh\n", 0o755), b.dir + "/gone", "cannot work in"},
		{path("new\nline", "#!/no/such/interpreter\n", 0o755), "", `new\nline": its interpreter is missing`},
	} {
		c := b.call(&Hook{Keyword: "SITE", Name: JobExit, Path: test.path, Limit: long})
		if test.dir != "" {
			c.Dir = test.dir
		}
		res := b.run(c)
		if res.Err == nil || res.OK() || res.TimedOut || !strings.Contains(res.Err.Error(), test.want) {
			t.Errorf("%q: %+v; want an error with %q", test.path, res, test.want)
		}
	}
	if b.as != nil {
		c := b.call(&Hook{Keyword: "SITE", Name: JobExit, Path: path("roots", "#!/bin/sh\n", 0o700), Limit: long})
		if res := b.run(c); res.Err == nil || !strings.Contains(res.Err.Error(), "permission denied") {
			t.Errorf("a program of root's alone: %+v", res)
		}
	}
	c := b.call(&Hook{Keyword: "SITE", Name: JobExit, Path: path("new\nline2", "#!/bin/sh\necho \"$0\"\n", 0o755), Limit: long})
	if res := b.run(c); !res.OK() || string(res.Stdout) != c.Hook.Path+"\n" {
		t.Errorf("a path of two lines: %+v", res)
	}
}

// REQ-HOOK-115: a hook that does not end is ended at its limit with all its
// family, whatever it does about signals.
func TestLimit(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"exec sleep 1000",
		"sleep 1000 & sleep 1000",
		"trap '' TERM HUP INT; sleep 1000 & while :; do sleep 1000; done",
		"kill -STOP $$",
		"exec </dev/null >&- 2>&-; exec sleep 1000",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			h := b.hook("echo begun; echo says >&2; " + text)
			h.Limit = short
			res := b.run(b.call(h))
			if !res.TimedOut || res.Err != nil || res.OK() || res.Took < short || res.Status >= 0 {
				t.Errorf("%+v", res)
			}
		})
	}
	// One that ends at SIGTERM in its own way has timed out as well. It is only killed if
	// it has not begun, or has used up what it is given for that.
	t.Run("exit 0 at SIGTERM", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		h := b.hook("trap 'echo bye; exit 0' TERM; echo begun; while :; do sleep 0.4; done")
		h.Limit = short
		res := b.run(b.call(h))
		killed := res.Status == -9 && (len(res.Stdout) == 0 || res.Took >= short+grace)
		if !res.TimedOut || res.OK() || res.Status != 0 && res.Status != -15 && !killed {
			t.Errorf("%+v", res)
		}
	})
}

// REQ-HOOK-104: what a hook leaves is killed when it ends: children, daemons in
// sessions of their own, what ignores signals, what is stopped.
func TestFamily(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for _, text := range []string{
		"sleep 1000 &",
		"setsid sleep 1000 & sleep 0.05",
		`setsid sh -c 'trap "" TERM HUP; setsid sh -c "trap \"\" TERM; sleep 1000; sleep 1000" & sleep 1000' >/dev/null 2>&1 </dev/null & sleep 0.05`,
		`(setsid sh -c '(kill -STOP $$)' &) ; sleep 0.05`,
		`env -i setsid sh -c '(sleep 1000 & echo $! >daemon)'`,
	} {
		res := b.run(b.call(b.hook(text + "\nexit 3")))
		if res.Status != 3 || res.Err != nil || res.TimedOut {
			t.Errorf("%s: %+v", text, res)
		}
	}
	// That one has no mark.
	pid, err := strconv.Atoi(b.await("daemon"))
	if err != nil {
		t.Fatal(err)
	}
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && string(comm) == "sleep\n" {
		t.Errorf("process %d without our environment is left", pid)
	}
}

// TestProcesses has a hook start more processes than it may, one after another
// and like a bomb, which the limit of its user keeps from being ours.
func TestProcesses(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	// Neither comes to its end before it is counted, as a shell does that cannot fork.
	texts := []string{"for n in $(seq 100); do sleep 1000 & done; exec sleep 1000"}
	if b.as != nil {
		texts = append(texts, "ulimit -p 250 || exit 9\nbomb() { sleep 1000 & bomb & bomb & sleep 1000; }\nbomb 2>/dev/null & exec sleep 1000")
	}
	for _, text := range texts {
		h := b.hook(text)
		h.MaxProcesses = 20
		res := b.run(b.call(h))
		if res.Err == nil || !strings.Contains(res.Err.Error(), "more than 20 processes") || res.OK() {
			t.Errorf("%s: %+v", text, res)
		}
	}
	h := b.hook("for i in 1 2 3 4 5 6; do sleep 0.3 & done; wait; echo all")
	h.MaxProcesses = 8
	if res := b.run(b.call(h)); !res.OK() {
		t.Errorf("as many as it may have: %+v", res)
	}
}

// REQ-HOOK-116: output is bounded, whatever a hook prints, and so is what the log
// gets of its standard error.
func TestOutput(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	h := b.hook("exec cat /dev/zero")
	h.MaxOutput = 100000
	if res := b.run(b.call(h)); !res.TooLong || res.OK() || len(res.Stdout) != 100000 {
		t.Errorf("endless output: %d bytes, %+v", len(res.Stdout), res.String())
	}
	h = b.hook("head -c 100000 /dev/zero")
	h.MaxOutput = 100000
	if res := b.run(b.call(h)); !res.OK() || len(res.Stdout) != 100000 {
		t.Errorf("as much as it may print: %d bytes, %s", len(res.Stdout), res.String())
	}
	// It would go on for ever without anybody to read it.
	h = b.hook("trap '' PIPE TERM; while :; do cat /dev/zero; sleep 0.1; done 2>/dev/null")
	h.MaxOutput = 10
	if res := b.run(b.call(h)); !res.TooLong || len(res.Stdout) != 10 {
		t.Errorf("without SIGPIPE: %d bytes, %s", len(res.Stdout), res.String())
	}
	h = b.hook(`printf 'a\000b\377\n'; printf 'x\000\033[31m\nlast' >&2`)
	res := b.run(b.call(h))
	if string(res.Stdout) != "a\x00b\xff\n" || res.Stderr != "x\x00\x1b[31m\nlast" {
		t.Errorf("garbage: %q, %q", res.Stdout, res.Stderr)
	}
	log := b.log.String()
	for _, text := range []string{`job 3.1: hook SITE_HOOK_PREPARE_JOB: stderr: pid=`, `\\x1b[31m`, `text=\"last\"`} {
		if !strings.Contains(log, text) {
			t.Errorf("the log lacks %s:\n%s", text, log)
		}
	}
	if strings.ContainsAny(log, "\x00\x1b") {
		t.Error("the log has control characters")
	}
	h = b.hook("head -c 50000000 /dev/zero | tr '\\000' x >&2; yes '' | head -n 100000 >&2; yes line | head -n 100000 >&2")
	res = b.run(b.call(h))
	if log = b.log.String(); !res.OK() || len(res.Stderr) != keepTail || len(log) > 100*maxLine || !strings.Contains(log, "not logged: too many") {
		t.Errorf("a lot of errors: %s, log of %d bytes, tail of %d", res.String(), len(log), len(res.Stderr))
	}
}

// What a hook has printed counts also if nobody came to read it in time, but not
// without end.
func TestLateOutput(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if _, err := to.WriteString("late"); err != nil {
		t.Fatal(err)
	}
	p := &process{stdout: from, tooLong: make(chan struct{})}
	if err := from.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if p.readOutput(100); string(p.out) != "late" {
		t.Errorf("it has printed %q; want what was there", p.out)
	}
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = to.ReadFrom(zero) // until there is nobody to read it
		zero.Close()
	}()
	p.out = nil
	p.readOutput(1 << 40)
	from.Close()
	if len(p.out) > 2*pipeSize {
		t.Errorf("somebody who goes on writing was read for %d bytes", len(p.out))
	}
}

// REQ-HOOK-116: a hook need not read its standard input.
func TestInput(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.call(b.hook("echo done"))
	c.Stdin = bytes.Repeat([]byte("x"), 8<<20)
	if res := b.run(c); !res.OK() || string(res.Stdout) != "done\n" {
		t.Errorf("not read: %+v", res)
	}
	c = b.call(b.hook("exec <&-; sleep 0.1; echo done"))
	c.Stdin = bytes.Repeat([]byte("x"), 8<<20)
	if res := b.run(c); !res.OK() || string(res.Stdout) != "done\n" {
		t.Errorf("closed: %+v", res)
	}
	c = b.call(b.hook("wc -c"))
	c.Stdin = bytes.Repeat([]byte("x"), 8<<20)
	if res := b.run(c); !res.OK() || strings.TrimSpace(string(res.Stdout)) != strconv.Itoa(8<<20) {
		t.Errorf("read: %+v", res)
	}
	c = b.call(b.hook("exec sleep 1000"))
	c.Stdin = bytes.Repeat([]byte("x"), 8<<20)
	c.Hook.Limit = short
	if res := b.run(c); !res.TimedOut {
		t.Errorf("never read: %+v", res)
	}
	if res := b.run(b.call(b.hook("cat"))); !res.OK() || len(res.Stdout) != 0 {
		t.Errorf("nothing to read: %+v", res)
	}
}

// TestClosedOutput has a hook close its streams and go on: its end counts.
func TestClosedOutput(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	res := b.run(b.call(b.hook("echo out; exec >&- 2>&- <&-; sleep 0.3; echo x >late; exit 4")))
	if res.Status != 4 || string(res.Stdout) != "out\n" || b.await("late") != "x" {
		t.Errorf("result %+v", res)
	}
}

// beside runs a hook beside the test, which is told of its end.
func (b *bed) beside(ctx context.Context, c Call, done chan<- Result) {
	go func() { done <- b.r.Run(ctx, c) }()
}

// TestCancel ends a hook that nobody wants any more.
func TestCancel(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan Result, 1)
	b.beside(ctx, b.call(b.hook("echo >begun; exec sleep 1000")), done)
	b.await("begun")
	why := errors.New("the job is gone")
	cancel(why)
	if res := <-done; !errors.Is(res.Err, why) || res.OK() {
		t.Errorf("result %+v", res)
	}
	b.none()
	if res := b.r.Run(ctx, b.call(b.hook("echo never"))); !errors.Is(res.Err, why) || len(res.Stdout) > 0 {
		t.Errorf("ended before it began: %+v", res)
	}
}

// TestStop ends what runs with execd, whoever waits for it, and what would begin.
func TestStop(t *testing.T) {
	b := newBed(t)
	if left := (&Runner{}).Stop(time.Hour); left != nil {
		t.Errorf("where nothing runs there is %q left", left)
	}
	done := make(chan Result, 2)
	b.beside(context.Background(), b.call(b.hook("echo >begun; exec sleep 1000")), done)
	b.await("begun")
	go func() { done <- b.r.Run(context.Background(), b.call(b.hook("echo >second; exec sleep 1000"))) }()
	b.await("second")
	if left := b.r.Stop(time.Minute); left != nil {
		t.Errorf("left: %q", left)
	}
	for range 2 {
		if res := <-done; !errors.Is(res.Err, ErrStopped) || res.OK() {
			t.Errorf("result %+v", res)
		}
	}
	b.none()
	if res := b.r.Run(context.Background(), b.call(b.hook("echo never"))); !errors.Is(res.Err, ErrStopped) || len(res.Stdout) > 0 {
		t.Errorf("begun after the end: %+v", res)
	}
}

// What does not end in time is named, and not waited for.
func TestStopLate(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	done := make(chan Result, 1)
	c := b.call(b.hook("trap '' TERM; echo >begun; while :; do sleep 0.4; done"))
	c.Label = "job 7.1"
	b.beside(context.Background(), c, done)
	b.await("begun")
	if left := b.r.Stop(time.Millisecond); !slices.Equal(left, []string{"job 7.1"}) {
		t.Errorf("left: %q", left)
	}
	if res := <-done; !errors.Is(res.Err, ErrStopped) {
		t.Errorf("result %+v", res)
	}
	b.none()
}

// TestParentKilled has a hook end its own parent, which is its user's process: it
// gains nothing but an error, and is killed all the same.
func TestParentKilled(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"kill -9 $PPID; exit 0",
		"setsid sleep 1000 & kill -9 $PPID; sleep 1000",
		// Of these the parent does not die in the instant, as of SIGKILL.
		"kill -SEGV $PPID; sleep 1000",
		"trap '' TERM; kill -TERM $PPID; sleep 2; exit 0",
		"trap 'exit 0' TERM; kill -HUP $PPID; while :; do sleep 0.4; done",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			res := b.run(b.call(b.hook("echo ad; " + text)))
			if res.Err == nil || res.OK() {
				t.Errorf("%+v; want an error", res)
			}
		})
	}
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		h := b.hook("trap '' TERM; kill -STOP $PPID; sleep 1000")
		h.Limit = short
		if res := b.run(b.call(h)); !res.TimedOut {
			t.Errorf("%+v", res)
		}
	})
}

// TestParentClosed sees that a hook cannot look into its parent, which has the
// rights of the same user, or take the descriptor by which results are told, and
// that what is in the hook's environment is not in the parent's.
func TestParentClosed(t *testing.T) {
	b := newBed(t)
	if b.as == nil {
		t.Skip("needs root: root itself may look into everything, and others' environments are closed to a user")
	}
	res := b.run(b.call(b.hook(`P=/proc/$PPID
cat $P/stat >/dev/null || exit 1
cat $P/environ && exit 2
cat $P/maps && exit 3
ls $P/fd && exit 4
(exec 9>$P/fd/3) && exit 5
(exec 9>$P/mem) && exit 6
exit 0`)))
	if !res.OK() {
		t.Errorf("the parent can be looked into: %+v", res)
	}
}

// spyWord makes of this binary what looks for a way into another process.
const spyWord = "spy-on-a-parent"

// spy tries to get into a process and says what it can do; -1 is its parent.
func spy(pid int) int {
	if pid < 0 {
		pid = os.Getppid()
	}
	runtime.LockOSThread()
	code := 0
	try := func(what string, err error) {
		if err == nil {
			fmt.Println("can " + what)
			code = 1
		}
	}
	try("trace", unix.PtraceAttach(pid))
	try("seize", unix.PtraceSeize(pid))
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		fmt.Println("cannot see it:", err)
		return 2
	}
	_, err = unix.PidfdGetfd(fd, spool.HookSocket, 0)
	try("take its descriptor", err)
	var b [8]byte
	_, err = unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
	try("read its memory", err)
	for _, name := range []string{"mem", "environ", "fd/3", "fd/1"} {
		f, err := os.OpenFile(fmt.Sprintf("/proc/%d/%s", pid, name), os.O_RDWR, 0)
		if err == nil {
			f.Close()
		}
		try("open "+name, err)
	}
	return code
}

// TestSpies has the hook itself, and another process of the same user, try to get
// into the hook's parent, and then kill it: what they gain is an error.
func TestSpies(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if b.as == nil {
		t.Skip("needs root: root itself may look into everything, and an execd of the user's is open to him anyway")
	}
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(b.dir, "spy")
	if err := harness.WriteExecutable(path, string(program)); err != nil {
		t.Fatal(err)
	}
	c := b.call(&Hook{Keyword: "SITE", Name: PrepareJob, Path: path, Args: []string{spyWord, "-1"}, Limit: long})
	if res := b.run(c); !res.OK() {
		t.Errorf("the hook: %+v\n%s", res, res.Stdout)
	}
	done := make(chan Result, 1)
	b.beside(context.Background(), b.call(b.hook("trap 'exit 0' TERM; echo $PPID >parent; while :; do sleep 0.4; done")), done)
	pid := b.await("parent")
	as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID, Gid: testGID}}
	other := exec.Command(path, spyWord, pid)
	other.SysProcAttr = as
	if out, err := other.CombinedOutput(); err != nil {
		t.Errorf("another process: %v\n%s", err, out)
	}
	killer := exec.Command("/bin/sh", "-c", "kill -9 "+pid)
	killer.SysProcAttr = as
	if out, err := killer.CombinedOutput(); err != nil {
		t.Errorf("the user cannot kill a process of his: %v\n%s", err, out)
	}
	if res := <-done; res.Err == nil || res.OK() {
		t.Errorf("its parent was killed: %+v", res)
	}
	b.none()
}

// rootWord makes of this binary, with the bit for it, a process that is all
// root's.
const rootWord = "be-root"

func beRoot(ready string) {
	if err := errors.Join(syscall.Setgid(0), syscall.Setuid(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := os.WriteFile(ready, []byte("ready\n"), 0o644); err != nil {
		os.Exit(1)
	}
	time.Sleep(long)
	os.Exit(0)
}

// TestRootLeft has a hook leave a process of root's, which its parent, a process
// of its user's, cannot kill: execd does.
// REQ-HOOK-104: whatever is left of a hook is killed.
func TestRootLeft(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if b.as == nil {
		t.Skip("needs root: it makes a program that gives root's rights")
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(b.dir, &fs); err != nil || fs.Flags&unix.ST_NOSUID != 0 {
		t.Skip("needs a directory for temporary files in which programs can give rights: ", err)
	}
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(b.dir, "root")
	if err := errors.Join(harness.WriteExecutable(path, string(program)), os.Chmod(path, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	res := b.run(b.call(b.hook(fmt.Sprintf("trap '' TERM\n%s %s ready & until test -s ready; do sleep 0.4; done; exit 5", path, rootWord))))
	if res.Status != 5 || res.Err != nil {
		t.Errorf("result %+v", res)
	}
	if log := b.log.String(); !strings.Contains(log, "cannot kill") || !strings.Contains(log, "processes=1 killed") {
		t.Errorf("the log says %s", log)
	}
}

// What is killed on a busy host takes its time to die: it is waited for, and counted
// once.
func TestKillMarkedWaits(t *testing.T) {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !cpus.IsSet(cpu) {
		cpu++
	}
	mark := fmt.Sprintf("HOOK_TEST=kill%d", os.Getpid())
	begin := func(env []string, words ...string) {
		t.Helper()
		cmd := exec.Command("taskset", append([]string{"-c", strconv.Itoa(cpu)}, words...)...)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		if _, err := fmt.Fscanln(out, new(string)); err != nil {
			t.Fatal(err)
		}
	}
	begin([]string{mark}, "nice", "-n", "5", "sh", "-c", "echo begun; exec sleep 1000")
	begin(nil, "sh", "-c", "echo begun; while :; do :; done")
	if n := killMarked(mark); n != 1 {
		t.Errorf("%d processes were killed; want 1", n)
	}
	if pids := withMark(mark); len(pids) > 0 {
		t.Errorf("left: processes %v", pids)
	}
}

// A hook is not begun while one that an execd before has begun for the same job is
// still there, and a wish to end it is heard meanwhile.
func TestBehind(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.call(b.hook("echo >>begun; test -e over || exit 7"))
	c.Behind = fmt.Sprintf("HOOK_TEST=behind%d", os.Getpid())
	begin := func(text string) {
		t.Helper()
		cmd := exec.Command("sh", "-c", "echo begun; "+text)
		cmd.Env, cmd.Dir = append(os.Environ(), c.Behind), b.home
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
		if _, err := fmt.Fscanln(out, new(string)); err != nil {
			t.Fatal(err)
		}
	}
	begin("sleep 1; echo >over")
	if res := b.run(c); !res.OK() {
		t.Errorf("%v; want it to come when the other is gone", &res)
	}
	begin("exec sleep 1000")
	ctx, cancel := context.WithTimeout(context.Background(), short)
	defer cancel()
	res := b.r.Run(ctx, c)
	if begun := b.await("begun"); res.Err == nil || begun != "" {
		t.Errorf("%v, begun %q; want it not to be begun a second time", &res, begun)
	}
}

// TestParentEnvironment looks at the parent's environment, as root can.
func TestParentEnvironment(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if b.as == nil {
		t.Skip("needs root: the parent is closed to others")
	}
	c := b.call(b.hook("echo $PPID >parent; until test -e go; do sleep 0.4; done"))
	c.Env = append(c.Env, "SECRET=s", "GODEBUG=x")
	done := make(chan Result, 1)
	b.beside(context.Background(), c, done)
	pid := b.await("parent")
	env, err := os.ReadFile("/proc/" + pid + "/environ")
	if err != nil || strings.TrimRight(string(env), "\x00") != strings.Join(spool.StartEnvironment, "\x00") {
		t.Errorf("environment of the parent: %q, %v", env, err)
	}
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if want := fmt.Sprintf("\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", testUID); err != nil || !strings.Contains(string(status), want) {
		t.Errorf("the parent is not its user's: %s, %v", status, err)
	}
	if err := os.WriteFile(filepath.Join(b.home, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if res := <-done; !res.OK() {
		t.Errorf("result %+v", res)
	}
	b.none()
}

// TestAccount sees who runs hooks of the daemon.
// REQ-HOOK-103: they have an account of their own, and none is not root.
// REQ-HOOK-117: they work in /.
func TestAccount(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	h := b.hook("id -u; pwd; echo $HOME $LOGNAME $HOSTNAME $TMPDIR $PATH; test -w / && echo writable")
	c := Call{Hook: h, Label: "slot 1"}
	if !b.r.Privileged {
		res := b.run(c)
		if !res.OK() && res.Status != 1 || !strings.HasPrefix(string(res.Stdout), fmt.Sprintf("%d\n/\n", os.Getuid())) {
			t.Errorf("in user mode: %+v %s", res, res.Stdout)
		}
		c.As = &user.User{Name: "other", UID: os.Getuid() + 1, GID: os.Getgid()}
		if res := b.run(c); res.Err == nil || !strings.Contains(res.Err.Error(), "not root") {
			t.Errorf("another user: %+v", res)
		}
		return
	}
	b.r.Account = "no-such-account"
	if res := b.run(c); res.Err == nil || !strings.Contains(res.Err.Error(), `no account "no-such-account"`) {
		t.Errorf("no account: %+v", res)
	}
	b.r.Account = "root"
	if res := b.run(c); res.Err == nil || !strings.Contains(res.Err.Error(), "do not run as root") {
		t.Errorf("root: %+v", res)
	}
	name := fmt.Sprintf("pdkhook%d", os.Getpid())
	u, err := harness.AddUser(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Remove(); err != nil {
			t.Error(err)
		}
	})
	b.r.Account = name
	want := fmt.Sprintf("%d\n/\n%s %s testhost /tmp %s\n", u.UID, u.Home, name, basePath)
	res := b.run(c)
	// A host with much to do may not look up a user within the limit.
	for tries := 2; tries > 0 && errors.Is(res.Err, context.DeadlineExceeded); tries-- {
		res = b.run(c)
	}
	if res.Status != 1 || string(res.Stdout) != want {
		t.Errorf("%+v\n%s; want\n%s", res, res.Stdout, want)
	}
	// Root's own execd that serves root alone runs them as root.
	b.r.Privileged = false
	if res := b.run(c); res.Err != nil || !strings.HasPrefix(string(res.Stdout), "0\n") {
		t.Errorf("root in user mode: %+v", res)
	}
}

// TestExecdKilled kills an execd while its hook runs: the hook does not outlive
// it.
func TestExecdKilled(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	h := b.hook("trap '' TERM; setsid sleep 1000 & echo >begun; while :; do sleep 1000; done")
	cmd := exec.Command(os.Args[0], execdWord, shepherd, h.Path, b.home, b.mark)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.await("begun")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	b.awaitNone()
}

// beExecd runs one hook.
func beExecd() {
	r := &Runner{Starter: &asuser.Starter{Shepherd: os.Args[2]}, Privileged: os.Geteuid() == 0, Users: &user.Directory{}, Log: slog.New(slog.DiscardHandler)}
	c := Call{
		Hook: &Hook{Keyword: "SITE", Name: PrepareJob, Path: os.Args[3], Limit: long}, Dir: os.Args[4],
		Env: []string{"PATH=/usr/bin:/bin", os.Args[5]},
	}
	if r.Privileged {
		c.As = &user.User{Name: "hooktest", UID: testUID, GID: testGID}
	}
	res := r.Run(context.Background(), c)
	fmt.Fprintln(os.Stderr, res.String())
	os.Exit(1)
}

// TestGroup has a hook be born in a control group of its job.
func TestGroup(t *testing.T) {
	b := newBed(t)
	if b.as == nil {
		t.Skip("needs root: it makes control groups")
	}
	tree, err := cgroup.Open(fmt.Sprintf("paddock-hook-%d", os.Getpid()), "/bin/true")
	if err != nil {
		t.Skip("needs the right to make control groups: ", err)
	}
	t.Cleanup(func() {
		if err := tree.Sweep(func(string) bool { return false }); err != nil {
			t.Error(err)
		}
		tree.Leave()
	})
	g, err := tree.Make("3.1", cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if g[spool.KeyCgroup] == "" {
		t.Skip("needs control groups of version 2, has ", tree)
	}
	c := b.call(b.hook("cat /proc/self/cgroup"))
	c.Group = filepath.Join(g[spool.KeyCgroup], spool.CgroupProcedures)
	if res := b.run(c); !res.OK() || !strings.Contains(string(res.Stdout), "/3.1/"+spool.CgroupProcedures+"\n") {
		t.Errorf("%+v\n%s", res, res.Stdout)
	}
	c.Group += "-gone"
	if res := b.run(c); res.Err == nil || !strings.Contains(res.Err.Error(), "cannot enter control group") {
		t.Errorf("no such group: %+v", res)
	}
}

func TestResult(t *testing.T) {
	for _, test := range []struct {
		r    Result
		want string
	}{
		{Result{Took: time.Second}, "exit status 0 after 1s"},
		{Result{Status: 3, Took: time.Millisecond}, "exit status 3 after 1ms"},
		{Result{Status: -15}, "killed by signal TERM after 0s"},
		{Result{Status: -9, TimedOut: true}, "ended at its limit after 0s"},
		{Result{Status: -9, TooLong: true}, "ended after 0s since it printed more than it may"},
		{Result{Status: -9, Err: errors.New("no")}, "no"},
	} {
		r := test.r
		if got := r.String(); got != test.want {
			t.Errorf("%+v: %q; want %q", r, got, test.want)
		}
		r.Keyword, r.Hook, r.Started, r.Stderr = "SITE", JobExit, time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), "e"
		r.Stdout = []byte("out")
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again Result
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		r.Stdout = nil
		if diff := cmp.Diff(r, again, cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestEnvironment(t *testing.T) {
	u := &user.User{Name: "alice", Home: "/home/alice"}
	got := JobEnvironment(u, "h", &Job{
		Env:     []string{"PATH=/a", "JOB_ID=3", "OMP_NUM_THREADS=1", "BATCH_SYSTEM=mine", "noequals", "=x", "A=\x00", "JOB_ID=4"},
		Scratch: "/tmp/3", Iwd: "/w", Slot: "slot2", MachineAd: "/m", JobAd: "/j", Bin: "/b", PIDs: []int{7, 8}, Threads: 4, Starter: 9,
	})
	want := []string{
		"PATH=/a", "HOME=/home/alice", "SHELL=/bin/sh", "USER=alice", "LOGNAME=alice", "TMPDIR=/tmp/3", "HOSTNAME=h", "BATCH_SYSTEM=HTCondor",
		"JOB_ID=4", "OMP_NUM_THREADS=1", "OMP_THREAD_LIMIT=4", "MKL_NUM_THREADS=4", "OPENBLAS_NUM_THREADS=4", "NUMEXPR_NUM_THREADS=4",
		"JULIA_NUM_THREADS=4", "GOMAXPROCS=4", "TEMP=/tmp/3", "TMP=/tmp/3", "_CONDOR_SCRATCH_DIR=/tmp/3", "_CONDOR_SLOT=slot2",
		"_CONDOR_MACHINE_AD=/m", "_CONDOR_JOB_AD=/j", "_CONDOR_JOB_IWD=/w", "_CONDOR_BIN=/b", "_CONDOR_JOB_PIDS=7,8",
		"CONDOR_STARTER_PID=9",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, v := range got {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "_CONDOR_") && !knob.OfJob(name) {
			t.Errorf("%s would be a knob of an execd that a job starts", name)
		}
	}
	if got := JobEnvironment(u, "h", &Job{}); !slices.Equal(got, BaseEnvironment(u, "h")) {
		t.Errorf("with nothing: %q", got)
	}
}

// TestMany runs hooks at once, of which none may hold another's pipes.
func TestMany(t *testing.T) {
	b := newBed(t)
	h := b.hook("cat; echo end")
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			c := b.call(h)
			c.Stdin = []byte(strconv.Itoa(i) + "\n")
			if res := b.r.Run(context.Background(), c); !res.OK() || string(res.Stdout) != fmt.Sprintf("%d\nend\n", i) {
				t.Errorf("%d: %+v %s", i, res, res.Stdout)
			}
		})
	}
	wg.Wait()
	b.none()
}

// BenchmarkRun measures what one hook of a job costs that does nothing.
func BenchmarkRun(bench *testing.B) { measure(bench, newBed(bench)) }

// measure counts the children that were waited for, so that parents are to have
// ended.
func measure(bench *testing.B, b *bed) {
	h := &Hook{Keyword: "SITE", Name: FetchWork, Path: "/usr/bin/true", Limit: long}
	c := b.call(h)
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &before); err != nil {
		bench.Fatal(err)
	}
	var took []time.Duration
	for bench.Loop() {
		res := b.r.Run(context.Background(), c)
		if !res.OK() {
			bench.Fatalf("%+v", res)
		}
		took = append(took, res.Took)
	}
	reportMedian(bench, took)
	kept := slices.Clone(b.r.parents.idle)
	b.r.Stop(0)
	for _, p := range kept {
		<-p.ended
	}
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &after); err != nil {
		bench.Fatal(err)
	}
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	bench.ReportMetric(float64(used)/float64(bench.N)/1e6, "cpu-ms/op")
}

// A program that a user names is looked at with his rights alone: what is said of it
// tells him nothing of where he cannot go, and in what directory he has it is his
// business.
func TestProgramOfTheUsers(t *testing.T) {
	b := newBed(t)
	h := b.hook("echo ran")
	h.Own = true
	open := filepath.Join(b.dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o755), os.Chmod(open, 0o777), os.Rename(h.Path, filepath.Join(open, "hook"))); err != nil {
		t.Fatal(err)
	}
	h.Path = filepath.Join(open, "hook")
	if res := b.run(b.call(h)); !res.OK() || string(res.Stdout) != "ran\n" {
		t.Errorf("in a directory of his choice: %v", &res)
	}
	h.Own = false
	if res := b.run(b.call(h)); res.Err == nil {
		t.Error("a hook that everybody can replace is run")
	}
	if !b.r.Privileged {
		return // there is nothing that he may not see
	}
	hidden := filepath.Join(b.dir, "hidden")
	if err := errors.Join(os.Mkdir(hidden, 0o700), os.WriteFile(filepath.Join(hidden, "secret"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	var said [2]string
	for i, name := range []string{"secret", "nothing"} {
		h := &Hook{Keyword: "job", Name: "PreCmd", Path: filepath.Join(hidden, name), Limit: long, Own: true}
		res := b.run(b.call(h))
		said[i] = strings.ReplaceAll(res.String(), name, "FILE")
	}
	if said[0] != said[1] || !strings.Contains(said[0], "permission denied") {
		t.Errorf("of what is there it is said %q, of what is not %q", said[0], said[1])
	}
}
