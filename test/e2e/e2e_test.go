// Package e2e runs the scripts of script/*.txtar against the real binaries:
// each has an execd of its own, below $WORK/pd. Nobody imports it.
//
// Beside testscript's own commands the scripts have those of the table in
// commands, and the conditions of the table in conditions. They run with
// qsub and its links on PATH, $PADDOCK_DIR set, $ME the caller's name ($ME12
// its first twelve bytes), $LIB and
// $EXAMPLES what is installed there, and, as root, a second user $USER2 ($UID2, $GID2,
// $HOME2), and $UIDP, the uid of the account that execd -root has for its hooks.
package e2e

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"paddock/test/harness"
	"paddock/test/structure"
)

var (
	bin     string        // the binaries under test
	work    string        // below which every script works
	second  *harness.User // another user, when we are root
	account *user.User    // who we are
)

func TestMain(m *testing.M) {
	flag.Parse()
	// How many run at once is decided by parallel.
	if err := flag.Set("test.parallel", "1000"); err != nil {
		panic(err)
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintf(os.Stderr, "e2e: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// turns are had by the tests that use the processors, beside the scripts.
var turns = make(chan struct{}, max(6, runtime.GOMAXPROCS(0)))

// parallel has a test run beside others when it is its turn. A test that hardly does anything
// but wait for a long time, for the end of a lease perhaps, has no turn, so that it begins with
// the first; and one whose subtests have turns has none.
func parallel(t *testing.T) {
	t.Helper()
	t.Parallel()
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
}

// place makes a new directory below work, for one run of one test: with -count
// a test runs more than once.
func place(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp(work, name) //nolint:usetesting // the second user must get there
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// run makes what all scripts share, runs them, and fails when anything of it
// is left.
func run(m *testing.M) (code int, err error) {
	base, err := harness.Base("e2e")
	if err != nil {
		return 1, err
	}
	bin, work = filepath.Join(base, "bin"), filepath.Join(base, "work")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return 1, err
	}
	if err := harness.Build(bin); err != nil {
		return 1, err
	}
	if account, err = user.Current(); err != nil {
		return 1, err
	}
	if os.Getuid() == 0 {
		name := harness.OfRun("e2e")
		if second, err = harness.AddUser(name, name+"-a", name+"-b", name+"-gone"); err != nil {
			return 1, err
		}
	}
	code = m.Run()

	left, err := harness.LeftBehind(base)
	if err != nil {
		return code, err
	}
	harness.KillLeft(base)
	if second != nil {
		if err := second.Remove(); err != nil {
			return code, err
		}
	}
	if len(left) > 0 {
		return code, fmt.Errorf("left behind:\n  %s", strings.Join(left, "\n  "))
	}
	if code != 0 && os.Getenv("PADDOCK_KEEP") != "" {
		fmt.Fprintf(os.Stderr, "e2e: kept %s\n", base)
		return code, harness.Keep(base)
	}
	return code, os.RemoveAll(base)
}

// slow are scripts that wait for limits to pass. With -short they are left out.
var slow = []string{
	"wallclock", "wallclock_restart", "wallclock_foreign", "wallclock_foreign_restart", "hooks_prepare", "hooks_run", "root_fetch", "notify", "idle",
}

// waiting are others that wait most of the time.
var waiting = []string{
	"fetch_lease", "submit_refused", "fetch_claim", "attributes", "scarce", "hooks_restart", "fetch_bad", "no_inodes", "status", "fetch_lost", "holds",
	"policy", "thresholds", "hook_server", "pilot",
}

// long are the others that take more than a few seconds.
var long = []string{"root_eventlog", "usage", "root_sqlite", "tasks", "root_directory"}

// scripts returns the files of the scripts in the order in which they begin, so that
// none of the slow and long ones is waited for in the end.
func scripts(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var first []string
	for _, name := range slices.Concat(slow, waiting, long) {
		file := filepath.Join("script", name+".txtar")
		i := slices.Index(files, file)
		if i < 0 {
			t.Fatalf("there is no %s", file)
		}
		first, files = append(first, file), slices.Delete(files, i, i+1)
	}
	if testing.Short() {
		t.Logf("left out, they are slow: %s", strings.Join(slow, " "))
		first = first[len(slow):]
	}
	return append(first, files...)
}

func TestScript(t *testing.T) {
	t.Parallel()
	all := &inOrder{T: t}
	testscript.RunT(all, testscript.Params{
		Files:               scripts(t),
		WorkdirRoot:         place(t, "s"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Condition:           condition,
		Cmds:                commands,
		Deadline:            time.Now().Add(longest),
	})
	all.run()
}

// longest is how long all scripts may take on the slowest machine: one that hangs fails then, with what it has printed,
// and can be tried again by itself before the time of the whole test is over.
const longest = 15 * time.Minute

// atOnce is how many scripts run at once beside those that wait.
const atOnce = 6

// inOrder has scripts begin in the order in which testscript gives them. Tests that
// have called Parallel begin in any order: the package testing promises none.
type inOrder struct {
	*testing.T
	scripts []func()
	waiting sync.WaitGroup
}

// Verbose implements [testscript.T].
func (*inOrder) Verbose() bool { return testing.Verbose() }

// Run implements [testscript.T].
func (o *inOrder) Run(name string, script func(testscript.T)) {
	run := func() { o.T.Run(name, func(t *testing.T) { script(turn{&inOrder{T: t}}) }) }
	if slices.Contains(slow, name) || slices.Contains(waiting, name) {
		o.waiting.Go(run) // it hardly needs a processor
		return
	}
	o.scripts = append(o.scripts, run)
}

// run runs the scripts and returns when all have ended.
func (o *inOrder) run() {
	next := make(chan func())
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for script := range next {
				script()
			}
		})
	}
	for _, script := range o.scripts {
		next <- script
	}
	close(next)
	workers.Wait()
	o.waiting.Wait()
}

// turn is a script that is run when it has its turn, and does not wait for another.
type turn struct{ *inOrder }

// Parallel implements [testscript.T].
func (turn) Parallel() {}

// bedKey is the key of the script's bed in its values.
type bedKey struct{}

// bed is what one script runs on.
type bed struct {
	dir    string // where its execd has everything
	env    []string
	daemon *harness.Daemon
}

func setup(env *testscript.Env) error {
	// The files of the script are written now. A child that another script has just
	// started may hold one open for writing until it executes its program, and nobody
	// could execute that file.
	syscall.ForkLock.Lock()
	syscall.ForkLock.Unlock() //nolint:staticcheck // there is nothing to do in between
	b := &bed{dir: filepath.Join(env.WorkDir, "pd")}
	home := filepath.Join(env.WorkDir, "home")
	if err := os.MkdirAll(home, 0o755); err != nil {
		return err
	}
	env.Setenv("HOME", home)
	env.Setenv("PADDOCK_DIR", b.dir)
	env.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	env.Setenv("LIB", filepath.Join(harness.Root(), "packaging", "lib"))
	env.Setenv("EXAMPLES", filepath.Join(harness.Root(), "packaging", "examples"))
	env.Setenv("ME", account.Username)
	env.Setenv("ME12", account.Username[:min(12, len(account.Username))]) // as qstat has room for
	if second != nil {
		env.Setenv("USER2", second.Name)
		env.Setenv("UID2", strconv.Itoa(second.UID))
		env.Setenv("GID2", strconv.Itoa(second.GID))
		env.Setenv("HOME2", second.Home)
		env.Setenv("UIDP", strconv.Itoa(accountUID()))
	}
	b.env = env.Vars
	env.Values[bedKey{}] = b
	env.Defer(func() {
		failed := env.T().(interface{ Failed() bool }).Failed()
		if failed {
			env.T().Log("its processes:\n" + harness.Standing(b.dir))
		}
		if b.daemon != nil {
			b.daemon.Kill()
		}
		// A script that failed leaves its jobs: end them, so that they are
		// not taken for a leak. A script that passed has none, and the check
		// after the last script would show it.
		if failed {
			if log, err := os.ReadFile(harness.LogName(b.dir)); err == nil {
				env.T().Log("execd's log:\n" + string(log))
			}
			harness.KillLeft(b.dir)
		}
	})
	return nil
}

// conditions are the words for [ ] in scripts, beside testscript's own.
var conditions = map[string]func() bool{
	"root":    func() bool { return os.Getuid() == 0 },
	"user":    func() bool { return os.Getuid() != 0 },
	"home":    hasHome,
	"cgroup2": hasCgroup2,
	"tmp":     func() bool { return strings.HasPrefix(work, "/tmp/") || strings.HasPrefix(work, "/var/tmp/") },
}

func condition(name string) (bool, error) {
	c, ok := conditions[name]
	if !ok {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	return c(), nil
}

// hasHome reports whether the account has a home directory, in which its jobs begin
// that ask for no other one.
func hasHome() bool {
	info, err := os.Stat(account.HomeDir)
	return err == nil && info.IsDir()
}

// needHome skips a test whose jobs begin in the home directory where there is none.
func needHome(t *testing.T) {
	t.Helper()
	if !hasHome() {
		t.Skip("its jobs run in a home directory, which this account has not")
	}
}

// hasCgroup2 reports whether a version 2 hierarchy is mounted, wherever that
// is: on a hybrid host it is not /sys/fs/cgroup.
func hasCgroup2() bool {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(mounts)) {
		if _, fs, ok := strings.Cut(line, " - "); ok && strings.HasPrefix(fs, "cgroup2 ") {
			return true
		}
	}
	return false
}

// commands are what scripts can say, beside testscript's own.
var commands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"execd":         cmdExecd,         // execd [-root|-dev] [-account|-no-account] [ARG ...]: start it and wait until it is ready; with an account for its hooks, or surely none (root)
	"stopexecd":     cmdStop,          // stopexecd: end it with SIGTERM; it must exit 0
	"killexecd":     cmdKill,          // killexecd: end it with SIGKILL
	"waitjob":       cmdWaitJob,       // waitjob JOB ...: until no task is left and it is accounted
	"waitqueue":     cmdWaitQueue,     // waitqueue QUEUE STATES: until qstat -f shows these states of it; - for none
	"waitstate":     cmdWaitState,     // waitstate JOB STATE [COUNT]: until COUNT (1) lines of qstat show it
	"waitdetail":    cmdWaitDetail,    // waitdetail JOB REGEXP: until a line of qstat -j matches
	"waitfile":      cmdWaitFile,      // waitfile FILE ...: until all are there and not empty
	"waitgrep":      cmdWaitGrep,      // waitgrep REGEXP FILE: until a line of it matches
	"accounted":     cmdAccounted,     // accounted JOB.TASK ...: each has exactly one accounting line
	"waitaccounted": cmdWaitAccounted, // waitaccounted JOB.TASK ...: until each has a line
	"status":        cmdStatus,        // status CODE COMMAND [ARG ...]: run it; it must exit so
	"as":            cmdAs,            // as USER COMMAND [ARG ...]: run it as another user (root)
	"tmpfs":         cmdTmpfs,         // tmpfs DIR SIZE[,OPTION]: mount one until the script ends (root)
	"readonly":      cmdReadonly,      // [!] readonly DIR: nothing more can be written below it; !: it can again (root)
	"idle":          cmdIdle,          // idle SECONDS MAX: execd and its shepherds switch at most so often
	"rss":           cmdRSS,           // rss MB: execd holds at most so much memory
	"waitrss":       cmdWaitRSS,       // waitrss MB: wait until it does, as the runtime gives back within minutes what it needs no more
	"checkxml":      cmdCheckXML,      // checkxml FILE: it is XML with the structure of Grid Engine's; FILE may be stdout
	"serve":         cmdServe,         // serve DIR: an HTTP server, which $url leads to, has the files of DIR and takes more
	"untouched":     cmdUntouched,     // untouched: execd still is the process that was started
}

func bedOf(ts *testscript.TestScript) *bed { return ts.Value(bedKey{}).(*bed) }

// running returns the bed's daemon, or fails the script.
func running(ts *testscript.TestScript) *harness.Daemon {
	d := bedOf(ts).daemon
	if d == nil {
		ts.Fatalf("no execd is running: say execd first")
	}
	return d
}

func usage(ts *testscript.TestScript, bad bool, text string) {
	if bad {
		ts.Fatalf("usage: %s", text)
	}
}

func cmdExecd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, "execd [-root|-dev] [-account|-no-account] [ARG ...]")
	b := bedOf(ts)
	if b.daemon != nil && !b.daemon.Exited() {
		ts.Fatalf("execd is running already")
	}
	o := harness.Options{Bin: bin, Dir: b.dir, Env: b.env}
	if len(args) > 0 && (args[0] == "-root" || args[0] == "-dev") {
		o.Mode, args = args[0], args[1:]
	}
	if len(args) > 0 && (args[0] == "-account" || args[0] == "-no-account") {
		var err error
		o.Via, err = hookAccount[args[0] == "-account"]()
		ts.Check(err)
		args = args[1:]
	}
	o.Args = args
	d, err := harness.Start(o)
	ts.Check(err)
	b.daemon = d
}

// accountUID is the uid of the account of hooks: nobody's but this run's.
func accountUID() int { return second.UID + 20000 }

// hookAccount returns how execd is started on a host that has, or has not, the
// account as which hooks of slots run in root mode. The host has another root too,
// by the name of toor. Nobody writes to the copies of /etc, which all tests share.
var hookAccount = map[bool]func() (via []string, err error){
	true: sync.OnceValues(func() ([]string, error) {
		return otherAccounts("account", fmt.Sprintf("paddock:x:%d:%[1]d:hooks of execd:/:/usr/sbin/nologin", accountUID()))
	}),
	false: sync.OnceValues(func() ([]string, error) { return otherAccounts("no-account") }),
}

func otherAccounts(name string, lines ...string) (via []string, err error) {
	lines = append(lines, "toor:x:0:0:another root:/:/bin/sh")
	return harness.OtherAccounts(filepath.Join(work, "etc-"+name), "paddock", lines...)
}

func cmdStop(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) > 0, "stopexecd")
	d := running(ts)
	bedOf(ts).daemon = nil
	ts.Check(d.Stop())
}

func cmdKill(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) > 0, "killexecd")
	running(ts).Kill()
	bedOf(ts).daemon = nil
}

func cmdWaitJob(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) == 0, "waitjob JOB ...")
	d := running(ts)
	for _, a := range args {
		job, err := strconv.Atoi(a)
		ts.Check(err)
		ts.Check(d.WaitJob(job))
	}
}

func cmdWaitState(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) < 2 || len(args) > 3, "waitstate JOB STATE [COUNT]")
	want := 1
	if len(args) == 3 {
		var err error
		want, err = strconv.Atoi(args[2])
		ts.Check(err)
	}
	job, err := strconv.Atoi(args[0])
	ts.Check(err)
	d := running(ts)
	ts.Check(harness.WaitFor(harness.Patience, fmt.Sprintf("job %s to be %s", args[0], args[1]), func() (bool, error) {
		jobs, err := d.Jobs()
		if err != nil {
			return false, err
		}
		n, states := 0, []string{}
		for _, j := range jobs {
			if j.Job != job {
				continue
			}
			states = append(states, j.State)
			if j.State == args[1] {
				n++
			}
		}
		if n != want {
			return false, fmt.Errorf("its tasks are %q, with %d in all of jobs", states, len(jobs))
		}
		return true, nil
	}))
}

func cmdWaitQueue(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 2, "waitqueue QUEUE STATES")
	d := running(ts)
	ts.Check(harness.WaitFor(harness.Patience, fmt.Sprintf("queue %s to be in states %s", args[0], args[1]), func() (bool, error) {
		queues, err := d.Queues()
		if err != nil {
			return false, err
		}
		for _, q := range queues {
			if q.Name == args[0] {
				return q.States == strings.Trim(args[1], "-"), nil
			}
		}
		return false, fmt.Errorf("there is no queue %q", args[0])
	}))
}

func cmdWaitDetail(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 2, "waitdetail JOB REGEXP")
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	running(ts)
	ts.Check(harness.WaitFor(harness.Patience, args[1]+" in qstat -j "+args[0], func() (bool, error) {
		qstat := exec.Command(filepath.Join(bin, "qstat"), "-j", args[0])
		qstat.Env = bedOf(ts).env
		text, err := qstat.Output()
		return want.Match(text), err
	}))
}

func cmdWaitFile(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) == 0, "waitfile FILE ...")
	for _, name := range args {
		ts.Check(harness.WaitFor(harness.Patience, name, func() (bool, error) {
			info, err := os.Stat(ts.MkAbs(name))
			return err == nil && info.Size() > 0, err
		}))
	}
}

func cmdWaitGrep(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 2, "waitgrep REGEXP FILE")
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	ts.Check(harness.WaitFor(harness.Patience, args[0]+" in "+args[1], func() (bool, error) {
		text, err := os.ReadFile(ts.MkAbs(args[1]))
		return want.Match(text), err
	}))
}

func cmdCheckXML(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 1, "checkxml FILE")
	grammar, err := structure.Read(filepath.Join(harness.Root(), "qsub", "internal", "show", "testdata", "xml.txt"))
	ts.Check(err)
	if problems := grammar.Check([]byte(ts.ReadFile(args[0]))); len(problems) > 0 {
		ts.Fatalf("%s", strings.Join(problems, "\n"))
	}
}

func cmdAccounted(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) == 0, "[!] accounted JOB.TASK ...")
	lines, err := harness.Accounting(bedOf(ts).dir)
	ts.Check(err)
	want := 1
	if neg {
		want = 0
	}
	for _, a := range args {
		if got := lines[a]; got != want {
			ts.Fatalf("job %s has %d accounting lines; want %d", a, got, want)
		}
	}
}

func cmdWaitAccounted(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) == 0, "waitaccounted JOB.TASK ...")
	for _, a := range args {
		ts.Check(harness.WaitFor(harness.Patience, "the accounting line of job "+a, func() (bool, error) {
			lines, err := harness.Accounting(bedOf(ts).dir)
			return lines[a] > 0, err
		}))
	}
	cmdAccounted(ts, false, args)
}

func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) < 2, "status CODE COMMAND [ARG ...]")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(interface{ ExitCode() int })
		if !ok {
			ts.Fatalf("cannot run %s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s exited with status %d; want %d", args[1], got, want)
	}
}

func cmdAs(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) < 2, "[!] as USER COMMAND [ARG ...]")
	set := []string{"--reuid", args[0], "--regid", args[0], "--clear-groups"}
	env := []string{"HOME=/", "USER=" + args[0], "LOGNAME=" + args[0]}
	if u, err := user.Lookup(args[0]); err == nil {
		set = []string{"--reuid", u.Uid, "--regid", u.Gid, "--init-groups"}
		env[0] = "HOME=" + u.HomeDir
	}
	command := append(append(append(set, "env"), env...), args[1:]...)
	err := ts.Exec("setpriv", command...)
	if (err != nil) != neg {
		ts.Fatalf("%s as %s: %v", args[1], args[0], err)
	}
}

// cmdServe starts a server of files. Files are fetched by GET and brought by PUT, where
// their directory is; a path that begins with /slow/ is never answered.
func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 1, "serve DIR")
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	get, over := http.FileServer(http.Dir(dir)), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/slow/"):
			<-over
		case r.Method == http.MethodPut:
			text, err := io.ReadAll(r.Body)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, filepath.Clean("/"+r.URL.Path)), text, 0o644)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusConflict)
				return
			}
			w.WriteHeader(http.StatusCreated)
		default:
			get.ServeHTTP(w, r)
		}
	}))
	ts.Defer(func() {
		close(over)
		server.Close()
	})
	ts.Setenv("url", server.URL)
}

func cmdTmpfs(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 2, "tmpfs DIR SIZE[,OPTION]")
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	ts.Check(ts.Exec("mount", "-t", "tmpfs", "-o", "mode=0755,size="+args[1], "paddock-e2e", dir))
	ts.Defer(func() {
		// The daemon has its files open there, and this runs before setup's
		// own deferred function.
		b := bedOf(ts)
		if b.daemon != nil {
			b.daemon.Kill()
			b.daemon = nil
		}
		harness.KillLeft(b.dir)
		ts.Check(harness.WaitFor(harness.Patience, "the unmount of "+dir, func() (bool, error) {
			err := ts.Exec("umount", dir)
			return err == nil, err
		}))
	})
}

// cmdReadonly mounts a directory over itself: a file system that has files open
// for writing cannot be made read-only itself.
func cmdReadonly(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) != 1, "[!] readonly DIR")
	dir := ts.MkAbs(args[0])
	if neg {
		ts.Check(ts.Exec("umount", "--lazy", dir))
		return
	}
	ts.Check(ts.Exec("mount", "--bind", dir, dir))
	ts.Defer(func() {
		if mounts, err := harness.Mounts(dir); err == nil && slices.Contains(mounts, dir) {
			ts.Check(ts.Exec("umount", "--lazy", dir))
		}
	})
	// Execd may just be writing something below it.
	ts.Check(harness.WaitFor(harness.Patience, dir+" to be read-only", func() (bool, error) {
		err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
		return err == nil, err
	}))
}

func cmdIdle(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 2, "idle SECONDS MAX")
	seconds, err := strconv.Atoi(args[0])
	ts.Check(err)
	limit, err := strconv.Atoi(args[1])
	ts.Check(err)
	b := bedOf(ts)
	ts.Check(harness.Settle(bin, b.dir))
	// On a busy host what looks settled may only be late. What wakes up by itself
	// does so every time.
	wrong := ""
	for range 5 {
		wrong = b.restless(ts, running(ts).PID(), seconds, limit)
		if wrong == "" {
			return
		}
	}
	ts.Fatalf("%s", wrong)
}

// restless measures a stretch of time in which nothing is to happen, and tells
// who gave up the processor too often.
func (b *bed) restless(ts *testscript.TestScript, execd, seconds, limit int) string {
	before, err := harness.Switches(bin, b.dir)
	ts.Check(err)
	<-time.After(time.Duration(seconds) * time.Second)
	after, err := harness.Switches(bin, b.dir)
	ts.Check(err)
	if n := after[execd] - before[execd]; n > limit {
		return fmt.Sprintf("idle execd gave up the processor %d times in %d s; want at most %d", n, seconds, limit)
	}
	for pid, n := range after {
		was, ok := before[pid]
		if n -= was; ok && pid != execd && n > 0 {
			return fmt.Sprintf("idle shepherd %d gave up the processor %d times in %d s; want 0", pid, n, seconds)
		}
	}
	return ""
}

func cmdRSS(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 1, "rss MB")
	kb, limit := rss(ts, args[0])
	if kb > limit {
		ts.Fatalf("execd holds %d kB; want at most %s MB", kb, args[0])
	}
}

func cmdWaitRSS(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 1, "waitrss MB")
	ts.Check(harness.WaitFor(harness.Patience, "execd to hold at most "+args[0]+" MB", func() (bool, error) {
		kb, limit := rss(ts, args[0])
		return kb <= limit, nil
	}))
}

// rss returns how much memory execd holds, and what so many MB are, in kB.
func rss(ts *testscript.TestScript, mb string) (kb, limit int) {
	limit, err := strconv.Atoi(mb)
	ts.Check(err)
	kb, err = harness.StatusField(running(ts).PID(), "VmRSS")
	ts.Check(err)
	return kb, limit * 1024
}

func cmdUntouched(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) > 0, "untouched")
	d := running(ts)
	if d.Exited() {
		ts.Fatalf("execd has ended\n%s", d.Log())
	}
	if _, err := d.Jobs(); err != nil {
		ts.Fatalf("execd does not answer: %v\n%s", err, d.Log())
	}
}
