package hook

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"paddock/execd/internal/user"
	"paddock/test/harness"
)

// serving is a bed with a hook server, whose answers a script gives: it is called for each
// frame, with the words of the frame as frame, n, hook, size and args, and the input as input.
func serving(t testing.TB, script string) *bed {
	t.Helper()
	b := keptBed(t)
	b.r.Spool = b.dir
	b.server(`read -r hello version
test "$hello $version" = "HELLO 1" || exit 9
done_() { printf 'DONE %s %s %s\n%s' $1 $2 ${#3} "$3"; }
printf 'HELLO 1\n'
while read -r frame n hook size args; do
	input=
	test $frame = CANCEL || test $size = 0 || input=$(head -c $size)
	` + script + `
done`)
	return b
}

// server replaces the program of the server.
func (b *bed) server(text string) {
	b.t.Helper()
	path := filepath.Join(b.dir, "server")
	if err := harness.WriteExecutable(path, "#!/bin/sh\ncd "+b.home+"\n"+text+"\n"); err != nil {
		b.t.Fatal(err)
	}
	b.r.Serve(&Table{servers: map[string]*Hook{"SITE": {Keyword: "SITE", Name: Server, Path: path}}})
}

// ask asks the server.
func (b *bed) ask(name Name, limit time.Duration, input string, args ...string) Result {
	h := &Hook{Keyword: "SITE", Name: name, Path: filepath.Join(b.dir, "server"), Limit: limit, MaxOutput: 100, Served: true}
	return b.r.Run(context.Background(), Call{Hook: h, Stdin: []byte(input), Args: args, Label: "slot 1"})
}

func (b *bed) awaitLog(text string) {
	b.t.Helper()
	if err := harness.WaitFor(harness.Patience, "the log to have "+text, func() (bool, error) {
		return strings.Contains(b.log.String(), text), nil
	}); err != nil {
		b.t.Fatal(err)
	}
}

// quiet waits for the end of the server.
func (b *bed) quiet() {
	b.t.Helper()
	b.r.Serve(&Table{})
	if err := harness.WaitFor(harness.Patience, "the server to end", func() (bool, error) {
		return len(withMark("PADDOCK_HOOK_SERVER=SITE@"+b.dir)) == 0, nil
	}); err != nil {
		b.t.Error(err)
	}
}

// TestServed has one process answer all calls, with the rights and the environment of a hook
// of execd.
func TestServed(t *testing.T) {
	t.Parallel()
	b := serving(t, `done_ $n $size "$(id -u) $PPID $$ $hook $args <$input>"`)
	first := b.ask(FetchWork, long, "x = 1\n")
	uid := os.Getuid()
	if b.r.Privileged {
		uid = testUID
	}
	head, rest, _ := strings.Cut(string(first.Stdout), " FETCH_WORK ")
	if first.Err != nil || first.Status != 6 || !strings.HasPrefix(head, strconv.Itoa(uid)+" ") || rest != " <x = 1>" {
		t.Errorf("%+v %q", first, first.Stdout)
	}
	second := b.ask(ReplyFetch, long, "", "accept")
	if second.Status != 0 || string(second.Stdout) != head+" REPLY_FETCH accept <>" {
		t.Errorf("then %+v %q; want the same process", second, second.Stdout)
	}
	b.quiet()
	if got := b.ask(FetchWork, long, ""); got.Err == nil || !strings.Contains(got.Err.Error(), "there is none") {
		t.Errorf("without a server: %+v", got)
	}
	b.awaitLog("hook SITE_HOOK_SERVER: stopped")
	if log := b.log.String(); strings.Contains(log, "WARN") {
		t.Errorf("log:\n%s", log)
	}
}

// A server that has not said hello after 30 seconds is killed, and who waits for it is told.
func TestServedHello(t *testing.T) {
	for name, says := range map[string]string{"silent": "", "late": "HELLO 1\n", "in time": "HELLO 1\n"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLink(&Hook{Path: "/no/server"})
				out, in := io.Pipe()
				l.awaitHello()
				go func() { _ = l.read(bufio.NewReader(out)) }()
				wait := 30*time.Second - 1
				if name == "late" {
					wait += 2
				}
				time.Sleep(wait)
				if got, _ := l.standing(); got || l.ctx.Err() != nil && name != "late" {
					t.Errorf("before: ready %v, %v", got, context.Cause(l.ctx))
				}
				_, _ = io.WriteString(in, says)
				time.Sleep(time.Hour)
				const want = "it has not said hello for 30s"
				_, why := l.unanswered()
				if name == "in time" {
					if ready, last := l.standing(); !ready || last || l.ctx.Err() != nil {
						t.Errorf("ready %v, last %v, %v; want it to go on", ready, last, why)
					}
				} else if why == nil || why.Error() != want || context.Cause(l.ctx) == nil || context.Cause(l.ctx).Error() != want {
					t.Errorf("%v, killed by %v; want both to be that %s", why, context.Cause(l.ctx), want)
				}
				select {
				case <-l.ready:
				default:
					t.Error("who waits for hello is not told")
				}
				in.Close()
			})
		})
	}
}

// TestServedOrder has calls answered in another order than they came in, and many at once.
func TestServedOrder(t *testing.T) {
	t.Parallel()
	b := serving(t, `case $hook in
	FETCH_WORK) held="$held $n"; echo >held ;;
	*) for h in $held; do done_ $h 0 "held $h"; done; held=; done_ $n 0 "$n" ;;
	esac`)
	held := make(chan Result)
	go func() { held <- b.ask(FetchWork, long, "") }()
	b.await("held")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got := b.ask(RenewClaim, long, "x"); got.Status != 0 || got.Err != nil {
				t.Errorf("%+v", got)
			}
		})
	}
	if got := <-held; string(got.Stdout) != "held 1" {
		t.Errorf("what was held: %+v %q", got, got.Stdout)
	}
	all.Wait()
	b.quiet()
}

// TestServerKilled kills the server while it has a call, which the next one answers.
// REQ-HOOK-121.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	b := serving(t, `echo $$ >>runs
	test $(wc -l <runs) = 1 || done_ $n 0 again`)
	got := make(chan Result)
	go func() { got <- b.ask(RenewClaim, long, "") }()
	pid, err := strconv.Atoi(b.await("runs"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if res := <-got; string(res.Stdout) != "again" {
		t.Errorf("%+v", res)
	}
	b.awaitLog("hook SITE_HOOK_SERVER: killed by signal KILL")
	b.awaitLog("calls=1 not answered, started again after 1s at the earliest")
	b.quiet()
}

// TestServerBreaks has servers that do not keep to the protocol: they are ended, their calls
// fail, and the log says why.
func TestServerBreaks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, log string }{
		"at once":        {"exit 3", "exit status 3"},
		"another hello":  {"echo HELLO 2; sleep 1000", "it breaks the protocol: it does not begin with HELLO 1"},
		"a word":         {"echo HELLO 1; read -r x; read -r x; echo 'Cmd = \"secret\"'; sleep 1000", "it breaks the protocol: a line is no frame DONE with three numbers"},
		"unasked":        {"echo HELLO 1; read -r x; read -r x; echo DONE 2 0 0; sleep 1000", "it breaks the protocol: it answers call 2, which it does not have"},
		"a long line":    {"echo HELLO 1; read -r x; read -r x; head -c 100000 /dev/zero; sleep 1000", "it breaks the protocol: a line has more than 64 bytes"},
		"a huge frame":   {"echo HELLO 1; read -r x; read -r x; echo DONE 1 0 99999999999; sleep 1000", "it breaks the protocol: number 3 of a frame DONE is not one from 0 to 1073741824"},
		"within a frame": {"echo HELLO 1; read -r x; read -r x; printf 'DONE 1 0 50\nabc'; exit 4", "exit status 4"},
		"closed output":  {"echo HELLO 1; read -r x; exec >&-; sleep 1000", "its output has ended"},
		"a family":       {"trap '' TERM; setsid sleep 1000 & echo HELLO 1; read -r x; read -r x; echo x; sleep 1000", "it breaks the protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := keptBed(t)
			b.r.Spool = b.dir
			b.server(c.script)
			asked := make(chan Result)
			go func() { asked <- b.ask(FetchWork, long, "") }()
			b.awaitLog("execd: hook SITE_HOOK_SERVER: ")
			b.awaitLog(c.log)
			b.quiet()
			if got := <-asked; got.Err == nil || got.Status != noStatus {
				t.Errorf("%+v", got)
			}
			if strings.Contains(b.log.String(), "secret") {
				t.Errorf("log:\n%s", b.log)
			}
		})
	}
}

// TestServerTogether has servers that take several reports in a call, and one each.
func TestServerTogether(t *testing.T) {
	t.Parallel()
	for hello, want := range map[string]bool{"HELLO 1": false, "HELLO 1 REPORTS": true} {
		t.Run(hello, func(t *testing.T) {
			t.Parallel()
			b := keptBed(t)
			b.r.Spool = b.dir
			b.server("echo " + hello + `; read -r x; while read -r frame n hook bytes words; do head -c $bytes >/dev/null; echo DONE $n 0 ${#words}; printf %s "$words"; done`)
			h := &Hook{Keyword: "SITE", Name: ReportWork, Limit: long, MaxOutput: 100, Served: true}
			if b.r.Together(h) {
				t.Error("several reports before the server runs")
			}
			b.ask(RenewClaim, long, "")
			if got := b.r.Together(h); got != want {
				t.Errorf("several reports: %t; want %t", got, want)
			}
			res := b.ask(ReportWork, long, "ads", "exit", "evict")
			if got := string(res.Stdout); (got == "exit evict") != want || (res.Err == nil) != want {
				t.Errorf("two reports: %q, %v", got, res.Err)
			}
		})
	}
}

// TestServedLimits has bounds of single calls, which do not harm the others.
// REQ-HOOK-120.
func TestServedLimits(t *testing.T) {
	t.Parallel()
	b := serving(t, `case $frame$hook in
	CALLFETCH_WORK) slow=$n ;;
	CANCEL) echo $n >cancelled; done_ $slow 0 late ;;
	CALLEVICT_CLAIM) done_ $n 0 "$(head -c 5000 /dev/zero | tr '\0' x)" ;;
	*) done_ $n 0 $$ ;;
	esac`)
	pid := b.ask(RenewClaim, long, "")
	if got := b.ask(FetchWork, short, ""); !got.TimedOut || got.Status != noStatus || got.Err != nil {
		t.Errorf("beyond its limit: %+v", got)
	}
	if got := b.await("cancelled"); got != "2" {
		t.Errorf("call %s was cancelled; want 2", got)
	}
	if got := b.ask(EvictClaim, long, ""); !got.TooLong || len(got.Stdout) > 0 || got.OK() {
		t.Errorf("too much output: %+v", got)
	}
	if got := b.ask(RenewClaim, long, ""); string(got.Stdout) != string(pid.Stdout) {
		t.Errorf("after it process %s answers; want %s", got.Stdout, pid.Stdout)
	}
	b.quiet()
}

// TestServedCrossing has work that is answered while its question is cancelled.
func TestServedCrossing(t *testing.T) {
	t.Parallel()
	b := serving(t, `case $frame$hook in
	CALLFETCH_WORK) asked=$n; echo $n >asked ;;
	CANCEL) done_ $asked 0 work ;;
	esac`)
	h := &Hook{Keyword: "SITE", Name: FetchWork, Path: filepath.Join(b.dir, "server"), Limit: long, MaxOutput: 100, Served: true}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answer := make(chan Result)
	go func() { answer <- b.r.Run(ctx, Call{Hook: h, Label: "slot 1"}) }()
	b.await("asked")
	cancel()
	if got := <-answer; got.Err != nil || string(got.Stdout) != "work" {
		t.Errorf("%+v %q", got, got.Stdout)
	}
	b.quiet()
}

// TestServerHangs has a server that does not even answer what was cancelled.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	b := serving(t, "test $hook = RENEW_CLAIM || sleep 1000; done_ $n 0 x")
	b.ask(RenewClaim, long, "") // it is there
	if got := b.ask(FetchWork, short, ""); !got.TimedOut {
		t.Errorf("%+v", got)
	}
	b.awaitLog("it has not answered call 2, 10s after that was cancelled")
	b.quiet()
}

// TestServerInput has a server that reads nothing: what is to be written to it holds up nobody.
func TestServerInput(t *testing.T) {
	t.Parallel()
	b := keptBed(t)
	b.r.Spool = b.dir
	b.server("echo HELLO 1; sleep 1000")
	big := strings.Repeat("x", 1<<20)
	for range 3 {
		if got := b.ask(FetchWork, short, big); !got.TimedOut && got.Err == nil {
			t.Errorf("%+v", got)
		}
	}
	b.quiet()
}

// TestServerChanged replaces the program of a server: it may answer what it has, and the next
// call is the new one's.
func TestServerChanged(t *testing.T) {
	t.Parallel()
	const old = `held=$n; done_ $held 0 old`
	b := serving(t, old)
	if got := b.ask(RenewClaim, long, ""); string(got.Stdout) != "old" {
		t.Fatalf("%+v", got)
	}
	path := filepath.Join(b.dir, "server")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fresh := strings.Replace(string(text), "$held 0 old", "$held 0 new", 1)
	if err := harness.WriteExecutable(path+".new", fresh); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Minute)
	if err := errors.Join(os.Chtimes(path+".new", later, later), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	if got := b.ask(RenewClaim, long, ""); string(got.Stdout) != "new" {
		t.Errorf("%+v %q", got, got.Stdout)
	}
	b.quiet()
	if strings.Contains(b.log.String(), "WARN") {
		t.Errorf("log:\n%s", b.log)
	}
}

// TestServerStop has execd end while calls are open.
func TestServerStop(t *testing.T) {
	t.Parallel()
	b := serving(t, "trap 'echo >asked; exit' TERM; echo >begun; sleep 1000 & wait")
	got := make(chan Result)
	go func() { got <- b.ask(FetchWork, long, "") }()
	b.await("begun")
	if left := b.r.Stop(long); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if res := <-got; !errors.Is(res.Err, ErrStopped) {
		t.Errorf("%+v", res)
	}
	b.await("asked")
	if res := b.ask(FetchWork, long, ""); !errors.Is(res.Err, ErrStopped) {
		t.Errorf("after the end: %+v", res)
	}
}

// TestServerBehind has processes of others that look like those of an execd that was killed: a
// server does not wait for them.
func TestServerBehind(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	t.Parallel()
	b := serving(t, "done_ $n 0 x")
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{"PADDOCK_HOOK_SERVER=SITE@" + b.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID + 1, Gid: testGID}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := b.ask(FetchWork, long, ""); string(got.Stdout) != "x" {
		t.Errorf("%+v", got)
	}
	if err := syscall.Kill(cmd.Process.Pid, 0); err != nil || strings.Contains(b.log.String(), "WARN") {
		t.Errorf("the other process: %v\n%s", err, b.log)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	b.quiet()
}

// TestServerLog has a server write more to its standard error than the log takes.
func TestServerLog(t *testing.T) {
	t.Parallel()
	b := serving(t, `test $n != 1 || seq 1 3000 >&2; echo more >&2; done_ $n 0 x`)
	if err := harness.WaitFor(harness.Patience, "the log to take one more line", func() (bool, error) {
		b.ask(FetchWork, long, "")
		return strings.Contains(b.log.String(), "not logged: too many"), nil
	}); err != nil {
		t.Error(err)
	}
	b.quiet()
	if n := strings.Count(b.log.String(), "stderr: "); n < lineBurst || n > 2*lineBurst {
		t.Errorf("%d lines are in the log", n)
	}
}

// TestServerAccount sees that a server is never root.
func TestServerAccount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root could run a server as root")
	}
	t.Parallel()
	b := serving(t, "done_ $n 0 x")
	b.r.Users = &one{user.User{Name: "toor", Home: "/"}}
	go b.ask(FetchWork, short, "")
	b.awaitLog("hooks do not run as root")
}

// TestServerExample runs the example of hook_server(7) as it is printed.
func TestServerExample(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../man/man7/hook_server.7")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), ".Bd -literal -offset 4n\n#!/bin/sh\ncd /var/lib/units\n")
	text, _, ok := strings.Cut(text, "\n.Ed\n")
	if !ok {
		t.Fatal("the page has no such example")
	}
	b := keptBed(t)
	b.r.Spool = b.dir
	b.server(strings.NewReplacer(`\e`, `\`, `\&`, "").Replace(text))
	for _, name := range []string{"todo", "given", "todo/a"} {
		path := filepath.Join(b.home, name)
		if filepath.Base(name) == "a" {
			err = os.WriteFile(path, []byte("Cmd = \"/bin/true\"\n"), 0o666)
		} else {
			err = os.Mkdir(path, 0o777)
		}
		if err == nil && b.r.Privileged {
			err = os.Chown(path, testUID, testGID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const ad = "Cmd = \"/bin/true\"\nGlobalJobId = \"a\""
	if got := b.ask(FetchWork, long, ""); string(got.Stdout) != ad || !got.OK() {
		t.Errorf("%+v %q; want %q", got, got.Stdout, ad)
	}
	if got := b.ask(ReplyFetch, long, ad+"\n", "accept"); !got.OK() || len(got.Stdout) > 0 {
		t.Errorf("%+v", got)
	}
	if got := b.ask(ReportWork, long, ad+"\n", "exit"); !got.OK() || b.await("ended") != "a exit" {
		t.Errorf("%+v", got)
	}
	if got := b.ask(FetchWork, long, ""); len(got.Stdout) > 0 || !got.OK() {
		t.Errorf("without work: %+v", got)
	}
	b.quiet()
}

// echoName is the name by which the test's binary is a hook server that answers with nothing.
const echoName = "hook-server-of-a-benchmark"

func init() {
	if filepath.Base(os.Args[0]) == echoName {
		if err := harness.ServeHooks(os.Stdin, os.Stdout, func(string, string, []byte) (int, []byte) { return 0, nil }); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// BenchmarkServed measures what one call of a hook server costs that does nothing with the ad
// of a slot.
func BenchmarkServed(bench *testing.B) {
	b := keptBed(bench)
	b.r.Spool = b.dir
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		bench.Fatal(err)
	}
	if err := harness.WriteExecutable(filepath.Join(b.dir, echoName), string(program)); err != nil {
		bench.Fatal(err)
	}
	b.server("exec " + filepath.Join(b.dir, echoName))
	ad := strings.Repeat("Attribute = \"of a slot\"\n", 200)
	if got := b.ask(FetchWork, long, ad); !got.OK() {
		bench.Fatalf("%+v", got)
	}
	var took []time.Duration
	for bench.Loop() {
		got := b.ask(FetchWork, long, ad)
		if !got.OK() {
			bench.Fatalf("%+v", got)
		}
		took = append(took, got.Took)
	}
	reportMedian(bench, took)
}

// reportMedian reports the median of what calls took, which make bench reads.
func reportMedian(bench *testing.B, took []time.Duration) {
	slices.Sort(took)
	bench.ReportMetric(float64(took[len(took)/2])/float64(time.Millisecond), "median-ms")
}
