package hook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/user"
	"paddock/test/harness"
)

// one is an account that is everybody's.
type one struct{ user.User }

func (o *one) ByName(context.Context, string) (*user.User, error) { u := o.User; return &u, nil }
func (o *one) ByID(context.Context, int) (*user.User, error)      { u := o.User; return &u, nil }

// keptBed is a bed whose hooks are the daemon's own.
func keptBed(t testing.TB) *bed {
	b := newBed(t)
	u := user.User{Name: "tester", UID: os.Getuid(), GID: os.Getgid(), Home: b.home}
	if b.as != nil {
		u = *b.as
	}
	b.r.Users, b.as = &one{u}, nil
	t.Cleanup(func() { b.r.Stop(0) })
	return b
}

// parentOf runs a hook that begins by printing its parent's pid, and returns that.
func (b *bed) parentOf(text string) (string, Result) {
	b.t.Helper()
	res := b.run(b.call(b.hook("echo $PPID\n" + text)))
	pid, _, _ := strings.Cut(string(res.Stdout), "\n")
	if pid == "" {
		b.t.Fatalf("%s: it was not run: %v", text, &res)
	}
	return pid, res
}

// open returns a pidfd of a process, which becomes readable when the process ends.
func (b *bed) open(pid string) int {
	b.t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		b.t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(n, 0)
	if err != nil {
		b.t.Fatalf("process %d: %v", n, err)
	}
	b.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// kept returns the parent of a hook, which waits for another, and its pidfd. That it waits is
// no promise: with tests beside this one that use up processors and memory one may be lost.
func (b *bed) kept() (parent string, fd int) {
	b.t.Helper()
	for range 3 {
		parent, _ = b.parentOf("exit 0")
		if n, err := strconv.Atoi(parent); err != nil || unix.Kill(n, 0) == nil {
			break
		}
	}
	return parent, b.open(parent)
}

// ended waits for the end of a process.
func (b *bed) ended(fd int) {
	b.t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(harness.Patience.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 {
			b.t.Errorf("the parent has not ended: %v", err)
		}
		return
	}
}

// One parent sees to one hook after another, as long as they end as they should.
func TestKept(t *testing.T) {
	t.Parallel()
	b := keptBed(t)
	first, _ := b.parentOf("exit 0")
	for _, text := range []string{"exit 3", "kill -9 $$", "echo >&2; cat", "sleep 0.05 & wait"} {
		if pid, res := b.parentOf(text); pid != first || res.Err != nil {
			t.Errorf("%s: parent %s after %s: %v", text, pid, first, &res)
		}
	}
	limit := func(c *Call) { c.Hook.Limit = short }
	for i, test := range []struct {
		text   string
		change func(*Call)
	}{
		{"setsid sleep 1000 & exit 0", nil},
		{"kill -9 $PPID; exit 0", nil},
		{"trap '' TERM; kill -HUP $PPID; sleep 0.05; exit 0", nil},
		{"kill -STOP $PPID; sleep 1000", limit},
		{"exec sleep 1000", limit},
		{"exec cat /dev/zero", func(c *Call) { c.Hook.MaxOutput = 100 }},
		{"while :; do sleep 1000 & done", func(c *Call) { c.Hook.MaxProcesses = 5 }},
		{"exec /none", func(c *Call) { c.Dir = "/none" }},
	} {
		before, fd := b.kept()
		c := b.call(b.hook(fmt.Sprintf("echo %d >>ran; %s", i, test.text)))
		if test.change != nil {
			test.change(&c)
		}
		res := b.run(c)
		b.ended(fd)
		after, again := b.parentOf("exit 0")
		if after == before || !again.OK() {
			t.Errorf("%s (%v): parent %s, and for the next hook %s: %v", test.text, &res, before, after, &again)
		}
		// None is run again, and the last one never is. A limit may come before the hook
		// has begun.
		ran, err := os.ReadFile(filepath.Join(b.home, "ran"))
		n := strings.Count(string(ran), fmt.Sprintln(i))
		want := 1
		if c.Dir == "/none" || n == 0 && res.TimedOut {
			want = 0
		}
		if err != nil || n != want {
			t.Errorf("%s (%v): it ran %d times, %v; want %d", test.text, &res, n, err, want)
		}
	}
}

// A hook whose rights are not the daemon's, or that belongs into a control group,
// has a parent of its own.
func TestNotKept(t *testing.T) {
	b := newBed(t)
	t.Cleanup(func() { b.r.Stop(0) })
	for name, c := range map[string]Call{"group": {Group: "/x"}, "user": {As: &user.User{UID: 1}}} {
		if (&Runner{Privileged: true}).keeps(&c) {
			t.Errorf("%s: its parent is kept", name)
		}
	}
	if b.as == nil {
		return // he has the rights of his execd
	}
	first, _ := b.parentOf("exit 0")
	if second, _ := b.parentOf("exit 0"); second == first {
		t.Errorf("two hooks of a job had the parent %s", first)
	}
}

// What a hook changes of itself and of its parent the next one does not find.
func TestNothingStays(t *testing.T) {
	b := keptBed(t)
	const look = `umask; pwd; ulimit -a; ulimit -H -a; env | grep -v PADDOCK_HOOK_RUN | sort; ls /proc/self/fd | wc -l
cat /proc/self/oom_score_adj /proc/self/cgroup; cut -d' ' -f18,19,40,41 /proc/self/stat
grep -E '^(Sig[BIC]|Cap|NoNewPrivs|Seccomp|Cpus_allowed|Groups|Uid|Gid)' /proc/self/status
read -r pid name state ppid pgrp sid rest </proc/$$/stat; echo $((pgrp - $$)) $((sid - $$))`
	state := func() string {
		t.Helper()
		res := b.run(b.call(b.hook(look)))
		if res.Err != nil {
			t.Fatal(res.Err)
		}
		return string(res.Stdout)
	}
	want := state()
	for _, text := range []string{
		`umask 0; cd /; ulimit -c 0; ulimit -n 20; export LEAK=1 PATH=/; trap '' HUP TERM INT; renice -n 5 $$ >/dev/null; exec 9</dev/null`,
		"prlimit --pid $PPID --nofile=64:64 --core=0:0 || :",
		"renice -n 10 $PPID >/dev/null",
		"taskset -p 1 $PPID >/dev/null; chrt -b -p 0 $PPID || :; ionice -c 3 -p $PPID || :",
	} {
		b.run(b.call(b.hook(text)))
		if diff := cmp.Diff(want, state()); diff != "" {
			t.Errorf("after %s (-first +now):\n%s", text, diff)
		}
	}
}

// A parent that ends or hangs while it waits costs no hook anything.
func TestAttacked(t *testing.T) {
	t.Parallel()
	b := keptBed(t)
	for _, sig := range []unix.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGSTOP} {
		before, _ := b.parentOf("exit 0")
		fd := b.open(before)
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
			t.Fatal(err)
		}
		after, res := b.parentOf("cat; exit 4")
		if after == before || res.Status != 4 || res.Err != nil {
			t.Errorf("%v: parent %s after %s: %v", sig, after, before, &res)
		}
		b.ended(fd)
	}
}

// Parents end when they have nothing to do for a time, when the account of hooks is
// another, and with execd.
func TestIdleEnds(t *testing.T) {
	t.Parallel()
	b := keptBed(t)
	keep := func(d time.Duration) {
		b.r.parents.mu.Lock()
		defer b.r.parents.mu.Unlock()
		b.r.parents.keep = d
	}
	// It is kept for so short a time that it is looked at while its hook runs.
	keep(short)
	done := make(chan Result, 1)
	b.beside(context.Background(), b.call(b.hook("echo $PPID >parent; until test -e go; do sleep 0.4; done")), done)
	brief := b.open(b.await("parent"))
	if err := os.WriteFile(filepath.Join(b.home, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if res := <-done; !res.OK() {
		t.Errorf("result %+v", res)
	}
	b.ended(brief)

	keep(long)
	pid, _ := b.parentOf("exit 0")
	fd := b.open(pid)
	if b.r.Privileged {
		b.r.Users.(*one).Groups = []int{testGID}
		if other, _ := b.parentOf("id -G"); other == pid {
			t.Errorf("parent %s has the rights of two accounts", pid)
		}
		b.ended(fd)
		pid, _ = b.parentOf("exit 0")
		fd = b.open(pid)
	}
	b.r.Stop(time.Minute)
	if _, err := os.Stat("/proc/" + pid); err == nil {
		t.Errorf("parent %s is there after the end, and its control group with it", pid)
	}
	b.ended(fd)
	b.r.parents.mu.Lock()
	defer b.r.parents.mu.Unlock()
	if n := len(b.r.parents.idle); n > 0 {
		t.Errorf("%d parents are kept after the end", n)
	}
}

// Many hooks at once leave a few parents, and no descriptors.
func TestKeptMany(t *testing.T) {
	b := keptBed(t)
	h := b.hook("cat; echo $PPID >&2")
	many := func(n int) {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				c := b.call(h)
				c.Stdin = []byte(strconv.Itoa(i))
				if res := b.r.Run(context.Background(), c); !res.OK() || string(res.Stdout) != strconv.Itoa(i) {
					t.Errorf("%d: %v %q", i, &res, res.Stdout)
				}
			})
		}
		wg.Wait()
	}
	many(3 * keepParents)
	b.r.parents.mu.Lock()
	if n := len(b.r.parents.idle); n < 1 || n > keepParents {
		t.Errorf("%d parents are kept", n)
	}
	b.r.parents.mu.Unlock()
	count := func(dir string) int {
		list, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrPermission) {
			t.Fatal(err)
		}
		return len(list)
	}
	res := b.run(b.call(h))
	theirs := "/proc/" + strings.TrimSpace(res.Stderr) + "/fd" // for root
	ours, before := count("/proc/self/fd"), count(theirs)
	for range 20 {
		many(1)
	}
	// A parent closes those of its last hook when that is over for us.
	if err := harness.WaitFor(harness.Patience, "no more descriptors than before", func() (bool, error) {
		return count("/proc/self/fd") <= ours && count(theirs) <= before, nil
	}); err != nil {
		t.Errorf("%v: %d after %d, of the parent %d after %d", err, count("/proc/self/fd"), ours, count(theirs), before)
	}
}

// TestExecdKilledIdle kills an execd that has a parent of hooks waiting.
func TestExecdKilledIdle(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	h := b.hook("echo $PPID")
	cmd := exec.Command(os.Args[0], idleWord, shepherd, h.Path, b.mark)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid string
	if _, err := fmt.Fscanln(out, &pid); err != nil {
		t.Error(err)
	}
	fd := b.open(pid)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	b.ended(fd)
}

// idleWord makes of this binary an execd that has run a hook of its own.
const idleWord = "execd-after-a-hook"

func beIdle() {
	u := user.User{Name: "tester", UID: os.Getuid(), GID: os.Getgid()}
	r := &Runner{Starter: &asuser.Starter{Shepherd: os.Args[2]}, Users: &one{u}}
	res := r.Run(context.Background(), Call{
		Hook: &Hook{Keyword: "SITE", Name: FetchWork, Path: os.Args[3], Limit: long}, Env: []string{"PATH=/usr/bin:/bin", os.Args[4]},
	})
	os.Stdout.Write(res.Stdout)
	time.Sleep(long)
	os.Exit(1)
}

// BenchmarkKept measures what one hook of the daemon's costs that does nothing.
func BenchmarkKept(bench *testing.B) { measure(bench, keptBed(bench)) }
