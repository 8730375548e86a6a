package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"paddock/test/harness"
)

// scenario is one job directory for both shepherds. In all its texts stand
//
//	@DIR@     the directory of the scenario
//	@JOB@     the job directory in it
//	@HOME@    a directory of the job owner's in it
//	@EVENTS@  a directory in it that all may write to; its file log is compared
//	@LOG@     that file
//	@NOTE@    a command that logs its arguments, and as whom, where and with
//	          which environment it runs
//	@USER@    the job owner
//	@GROUP@   the number of one of the owner's supplementary groups
type scenario struct {
	name    string
	script  string            // the job; #! /bin/sh is put before it
	scripts map[string]string // further scripts in @DIR@, by name
	files   map[string]string // files in @DIR@, by name
	set     []string          // config keys, replaced or added
	drop    []string          // config keys that are left out
	raw     string            // text that is added to config as it is
	env     string            // text that is added to environment
	inherit []string          // variables that the shepherd is started with
	session bool              // the log says in whose session something runs
	steps   []step            // what is done while the shepherd runs
	trace   bool              // the traces are compared, too
	code    int               // what Grid Engine's shepherd exits with; -1 when a signal ends it
	leaves  leaver            // whose processes outlive the shepherd
	differ  meant
}

// leaver says whose processes outlive the shepherd.
type leaver int

const (
	nobody leaver = iota
	onlyTheirs
	both
)

// meant are the parts of the result that differ because they are to.
type meant map[string]*difference

// A step is done, or waited for, while the shepherd runs. The ones that wait
// give up when the shepherd ends.
type step func(r *running) error

// running is a shepherd at work.
type running struct {
	dir     string // of the scenario
	process *os.Process
	ended   chan struct{}
}

// wait waits until the log has the text, n times when n is given.
func wait(text string, n ...int) step {
	count := 1
	if len(n) > 0 {
		count = n[0]
	}
	return func(r *running) error {
		return r.until(fmt.Sprintf("%q in the log", text), func() bool {
			return strings.Count(r.read("events/log"), text) >= count
		})
	}
}

// traced waits until the trace has the text.
func traced(text string) step {
	return func(r *running) error {
		return r.until(fmt.Sprintf("%q in the trace", text), func() bool { return strings.Contains(r.read("job/trace"), text) })
	}
}

// send sends the shepherd a signal, a carrier mostly. Grid Engine's forgets one
// that comes while it does something else than wait.
func send(s syscall.Signal) step {
	return func(r *running) error {
		err := r.until("the shepherd to sleep", func() bool { return inProcessState(r.process.Pid, "S") })
		if _, ok := errors.AsType[errEnded](err); err != nil && !ok {
			return err
		}
		err = r.process.Signal(s)
		if errors.Is(err, os.ErrProcessDone) {
			return nil // a difference is seen in the result
		}
		return err
	}
}

// sendNumber asks for a signal as execd does for all that have no carrier: by
// number in the file.
func sendNumber(number string) step {
	return func(r *running) error {
		if err := os.WriteFile(filepath.Join(r.dir, "job", "signal"), []byte(number+"\n"), 0o644); err != nil {
			return err
		}
		return send(unix.SIGTTIN)(r)
	}
}

// touch makes a file in @EVENTS@ that a script waits for.
func touch(name string) step {
	return func(r *running) error { return os.WriteFile(filepath.Join(r.dir, "events", name), nil, 0o666) }
}

// inState waits until the job's first process is in a state, as in
// /proc/PID/stat: T is stopped.
func inState(state string) step {
	return func(r *running) error {
		return r.until("the job in state "+state, func() bool {
			pid, err := strconv.Atoi(strings.TrimSpace(r.read("job/job_pid")))
			return err == nil && inProcessState(pid, state)
		})
	}
}

func inProcessState(pid int, state string) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(text, []byte(") "))
	return err == nil && bytes.HasPrefix(rest, []byte(state))
}

func (r *running) until(what string, ok func() bool) error {
	var over bool
	err := harness.WaitFor(patience, what, func() (bool, error) {
		select {
		case <-r.ended:
			over = true
		default:
		}
		return ok() || over, nil
	})
	if err == nil && over && !ok() {
		return errEnded{what}
	}
	return err
}

// errEnded says that the shepherd ended first.
type errEnded struct{ what string }

func (e errEnded) Error() string { return "ended before " + e.what }

func (r *running) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(r.dir, name)) // empty while it is not there
	return string(text)
}

// note is @NOTE@. It is run by a script and tells about that. Only the signals
// are its own, inherited: a shell blocks them while it starts a process.
const note = `#!/bin/sh
dir=${0%/*}
read -r me name state parent group session rest </proc/$PPID/stat
read -r shepherd <$dir/job/pid
read -r a b c d shepherdgroup shepherdsession rest </proc/$shepherd/stat
while read -r key value; do
  case $key in SigBlk:) blocked=$value ;; SigIgn:) ignored=$value ;; esac
done </proc/$$/status
case $session in "$group") session=own ;; "$shepherdsession") session=shepherd ;; esac
[ -e $dir/session ] || session=
case $group in "$shepherdgroup") group=shepherd ;; *) group=own ;; esac
env | sort >$dir/events/env.$1
echo "$* | $(id -u) $(id -g) groups=$(id -G | tr ' ' ,) cwd=$(pwd) ${session:+session=$session }group=$group in=$(readlink /proc/$PPID/fd/0) out=$(readlink /proc/$PPID/fd/1) err=$(readlink /proc/$PPID/fd/2) blocked=$blocked ignored=$ignored umask=$(umask) nice=$(nice)" >>$dir/events/log
`

// signalledProgram is what the script signalled turns into. It is not a shell,
// which starts processes all the time, and it forgets no signal.
const signalledProgram = `
my ($log, $go, $code, $stay) = @ARGV;
sub note { open(my $f, ">>", $log) or die; syswrite($f, "$_[0]\n") }
for my $s (qw(USR1 USR2 TERM CONT XCPU WINCH)) { $SIG{$s} = sub { note("got $s") } }
note("ready");
until (-e $go) { select(undef, undef, undef, 0.02) }
my $end = time + ($stay || 0);
while (time < $end) { select(undef, undef, undef, 0.02) }
note("done");
exit($code || 0);
`

// result is what a shepherd left.
type result struct {
	Steps        string // the step that was waited for in vain
	Code         int
	ExitStatus   string            // the file
	Error        []string          // the texts of the file
	Files        []string          // in the job directory
	Checkpointed string            // the file
	UsageKeys    []string          // in their order
	Usage        map[string]string // the values that must be the same
	Output       map[string]string // what was written to @HOME@, by file
	Log          []string
	Environment  map[string][]string // of each kind that was noted
	Left         []string            // processes that outlived the shepherd
	Trace        []string            // where the scenario compares it
	usage        map[string]string   // all of it
	trace        string
}

func TestShepherds(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for i, sc := range scenarios {
		if names[sc.name] {
			t.Errorf("there are two scenarios %q", sc.name)
		}
		names[sc.name] = true
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(base, fmt.Sprintf("shepherd%d", i))
			theirs := runShepherd(t, sc, dir, harness.GEShepherd)
			ours := runShepherd(t, sc, dir, filepath.Join(bin, "shepherd"))
			found := sc.compare(t, theirs, ours)
			if len(found) > 0 && !t.Failed() {
				// Grid Engine's has races: ours must do as it does either time.
				t.Logf("the first time:\n%s", strings.Join(found, "\n"))
				theirs = runShepherd(t, sc, dir, harness.GEShepherd)
				found = sc.compare(t, theirs, ours)
			}
			for _, text := range found {
				t.Error(text)
			}
			if t.Failed() || os.Getenv("PADDOCK_TRACES") != "" {
				t.Logf("Grid Engine's trace:\n%s\nours:\n%s", theirs.trace, ours.trace)
			}
		})
	}
	if len(scenarios) < 60 {
		t.Errorf("got %d scenarios; want at least 60", len(scenarios))
	}
}

// blockedByExecd are the signals that sge_execd leaves blocked in the shepherd
// that it starts.
const blockedByExecd = "--block-signal=HUP,USR1,USR2,STKFLT,CONT,TSTP,TTIN,TTOU,XCPU,XFSZ,WINCH,PWR,SYS"

// runShepherd makes the directory of the scenario, always at the same path,
// has a shepherd run it as sge_execd would, and takes away what that left.
func runShepherd(t *testing.T, sc scenario, dir, shepherd string) result {
	t.Helper()
	if err := makeScenario(sc, dir); err != nil {
		t.Fatal(err)
	}
	// A step may take all of one patience.
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "env", blockedByExecd, shepherd)
	cmd.Dir = filepath.Join(dir, "job")
	cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "SGE_ROOT=/var/lib/gridengine", "SGE_CELL=default"}, sc.inherit...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &running{dir: dir, process: cmd.Process, ended: make(chan struct{})}
	go func() {
		// How it ended is in ProcessState.
		_ = cmd.Wait()
		close(r.ended)
	}()
	var steps string
	for i, s := range sc.steps {
		err := s(r)
		if _, ok := errors.AsType[errEnded](err); ok {
			steps = err.Error()
			break
		}
		if err != nil {
			cancel()
			t.Errorf("%s: step %d: %v", shepherd, i, err)
			break
		}
	}
	<-r.ended
	if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s has not ended", shepherd)
	}
	left := leftBy(t, dir, sc.leaves == both || sc.leaves == onlyTheirs && shepherd == harness.GEShepherd)
	res := collect(t, dir, sc.trace)
	res.Steps, res.Left, res.Code = steps, left, cmd.ProcessState.ExitCode()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	return res
}

func makeScenario(sc scenario, dir string) error {
	home, events, job := filepath.Join(dir, "home"), filepath.Join(dir, "events"), filepath.Join(dir, "job")
	replace := strings.NewReplacer("@DIR@", dir, "@JOB@", job, "@HOME@", home, "@EVENTS@", events,
		"@LOG@", filepath.Join(events, "log"), "@NOTE@", filepath.Join(dir, "note"), "@USER@", user.Name, "@GROUP@", group).Replace
	for _, d := range []string{home, events, job} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	files := map[string]string{"in": "read this\n", "events/log": "", "signalled": signalledProgram}
	for name, text := range sc.files {
		files[name] = replace(text)
	}
	if sc.session {
		files["session"] = ""
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	scripts := map[string]string{"note": note, "job.sh": "#!/bin/sh\n" + replace(sc.script)}
	for name, text := range sc.scripts {
		scripts[name] = "#!/bin/sh\n" + replace(text)
	}
	for name, text := range scripts {
		if err := harness.WriteExecutable(filepath.Join(dir, name), text); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Chown(home, user.UID, user.GID), os.Chmod(events, 0o777), os.Chmod(filepath.Join(events, "log"), 0o666)); err != nil {
		return err
	}
	set := []string{"cwd=" + home, "stdout_path=" + home + "/out", "stderr_path=" + home + "/out"}
	for _, kv := range sc.set {
		set = append(set, replace(kv))
	}
	if err := harness.JobDirectory(job, filepath.Join(dir, "job.sh"), user.Name, set...); err != nil {
		return err
	}
	config, err := os.ReadFile(filepath.Join(job, "config"))
	if err != nil {
		return err
	}
	lines := slices.Collect(strings.Lines(string(config)))
	lines = slices.DeleteFunc(lines, func(l string) bool {
		key, _, _ := strings.Cut(l, "=")
		return slices.Contains(sc.drop, key)
	})
	// Where Open Cluster Scheduler has them: ours trusts no other place.
	slices.SortStableFunc(lines, func(a, b string) int {
		first := func(l string) bool { return strings.HasPrefix(l, "sge_root=") || strings.HasPrefix(l, "sge_cell=") }
		switch {
		case first(a) == first(b):
			return 0
		case first(a):
			return -1
		}
		return 1
	})
	if err := os.WriteFile(filepath.Join(job, "config"), []byte(strings.Join(lines, "")+replace(sc.raw)), 0o644); err != nil {
		return err
	}
	environment, err := os.ReadFile(filepath.Join(job, "environment"))
	if err != nil {
		return err
	}
	// Of what the shepherd is started with these are in each job's own.
	environment = append(environment, "SGE_ROOT=/var/lib/gridengine\nSGE_CELL=default\n"+replace(sc.env)...)
	return os.WriteFile(filepath.Join(job, "environment"), environment, 0o644)
}

// leftBy lists the processes that a shepherd left behind, and ends them. What
// it has killed may need a while to go on a busy host; only where some are to
// stay they are not waited for.
func leftBy(t *testing.T, dir string, some bool) []string {
	t.Helper()
	var left []string
	gone := func() (bool, error) {
		processes, err := harness.Processes(dir)
		left = nil
		for _, p := range processes {
			left = append(left, p.Args)
		}
		return len(left) == 0, err
	}
	limit := patience
	if some {
		limit = 3 * time.Second
	}
	if harness.WaitFor(limit, "", gone) == nil {
		return nil
	}
	slices.Sort(left)
	found := slices.Compact(left)
	harness.KillLeft(dir)
	if err := harness.WaitFor(patience, "what was left to end", gone); err != nil {
		t.Errorf("%v: %q", err, left)
	}
	return found
}

// collect reads what a shepherd has left in the directory of the scenario.
func collect(t *testing.T, dir string, withTrace bool) result {
	t.Helper()
	job, events, home := filepath.Join(dir, "job"), filepath.Join(dir, "events"), filepath.Join(dir, "home")
	r := result{
		ExitStatus:   read(t, filepath.Join(job, "exit_status")),
		Checkpointed: read(t, filepath.Join(job, "checkpointed")),
		trace:        read(t, filepath.Join(job, "trace")),
		Output:       map[string]string{},
		Usage:        map[string]string{},
		Environment:  map[string][]string{},
		usage:        map[string]string{},
	}
	// Numbers of processes are different in each run; ids of users may look
	// the same.
	var numbers []string
	for name, word := range map[string]string{"job_pid": "JOBPID", "pid": "SHEPHERDPID"} {
		if number := strings.TrimSpace(read(t, filepath.Join(job, name))); number != "" {
			numbers = append(numbers, number, word)
		}
	}
	withoutNumbers := func(s string) string {
		return number.ReplaceAllStringFunc(s, func(n string) string {
			if i := slices.Index(numbers, n); i >= 0 && i%2 == 0 {
				return numbers[i+1]
			}
			return n
		})
	}
	for line := range strings.Lines(read(t, filepath.Join(job, "error"))) {
		if _, text, ok := strings.Cut(line, "]: "); ok {
			line = text
		}
		r.Error = append(r.Error, strings.TrimSuffix(line, "\n"))
	}
	for _, name := range list(t, job) {
		// The first two are ours alone, the last one the test has written.
		if !slices.Contains([]string{"lock", "signals", "signal"}, name) {
			r.Files = append(r.Files, name)
		}
	}
	for line := range strings.Lines(read(t, filepath.Join(job, "usage"))) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		r.UsageKeys = append(r.UsageKeys, key)
		r.usage[key] = value
	}
	for _, key := range []string{"wait_status", "exit_status", "signal"} {
		r.Usage[key] = r.usage[key]
	}
	for _, name := range list(t, home) {
		if info, err := os.Stat(filepath.Join(home, name)); err == nil && info.Mode().IsRegular() {
			r.Output[name] = read(t, filepath.Join(home, name))
		}
	}
	for line := range strings.Lines(read(t, filepath.Join(events, "log"))) {
		what, who, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " | ")
		if who != "" {
			who = " | " + who
		}
		r.Log = append(r.Log, withoutNumbers(what)+who)
	}
	for _, name := range list(t, events) {
		if kind, ok := strings.CutPrefix(name, "env."); ok {
			r.Environment[kind] = strings.Split(read(t, filepath.Join(events, name)), "\n")
		}
	}
	if withTrace {
		r.Trace = traceLines(r.trace)
	}
	return r
}

// list returns the names in a directory, none when it is not there.
func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// read returns a file's text, empty when there is none.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// compare returns what of two results is not as the scenario says.
func (sc *scenario) compare(t *testing.T, theirs, ours result) (found []string) {
	t.Helper()
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	differ := sc.differ
	if theirs.Code != sc.code {
		say("Grid Engine's shepherd exited with %d; the scenario says %d", theirs.Code, sc.code)
	}
	missing := slices.DeleteFunc(theirs.Trace, func(line string) bool {
		return traceMeant(line) || slices.Contains(ours.Trace, line)
	})
	for _, part := range []struct {
		name         string
		theirs, ours any
	}{
		{"Steps", theirs.Steps, ours.Steps},
		{"Code", theirs.Code, ours.Code},
		{"ExitStatus", theirs.ExitStatus, ours.ExitStatus},
		{"Error", theirs.Error, ours.Error},
		{"Files", theirs.Files, ours.Files},
		{"Checkpointed", theirs.Checkpointed, ours.Checkpointed},
		{"UsageKeys", theirs.UsageKeys, ours.UsageKeys},
		{"Usage", theirs.Usage, ours.Usage},
		{"Output", theirs.Output, ours.Output},
		{"Log", theirs.Log, ours.Log},
		{"Environment", theirs.Environment, ours.Environment},
		{"Left", theirs.Left, ours.Left},
		{"Trace", missing, []string{}},
	} {
		diff := cmp.Diff(part.theirs, part.ours, cmpopts())
		if a, ok := part.theirs.([]string); ok && diff != "" {
			// cmp would shorten long lines.
			diff = "-" + strings.Join(a, "\n-") + "\n+" + strings.Join(part.ours.([]string), "\n+") + "\n"
		}
		d := differ[part.name]
		switch {
		case diff != "" && d == nil:
			say("%s differs (-theirs +ours):\n%s", part.name, diff)
		case diff == "" && d != nil && !d.sometimes:
			say("%s is the same, but listed as a difference: %s", part.name, d.page)
		case diff != "" && testing.Verbose():
			t.Logf("%s differs, as listed (-theirs +ours):\n%s", part.name, diff)
		}
	}
	for key, tolerance := range map[string]float64{
		// A job that computes may have to wait for a processor, and where that is
		// stolen from a virtual machine the time may be on the job's account. A
		// wrong unit or a child that is not counted makes more.
		"ru_wallclock": 30, "ru_utime": 10, "ru_stime": 10, "ru_maxrss": 16384, "ru_nswap": 0, "ru_ixrss": 0,
	} {
		if theirs.usage[key] == "" || ours.usage[key] == "" || differ["Usage"] != nil {
			continue // no usage file: UsageKeys has said so
		}
		a, err1 := strconv.ParseFloat(theirs.usage[key], 64)
		b, err2 := strconv.ParseFloat(ours.usage[key], 64)
		if differ["Wallclock"] != nil && key == "ru_wallclock" {
			continue // how long either takes is nothing to fail by
		}
		if err1 != nil || err2 != nil || a-b > tolerance || b-a > tolerance {
			say("usage %s: Grid Engine %s, ours %s; want a difference of at most %g", key, theirs.usage[key], ours.usage[key], tolerance)
		}
	}
	return found
}

// cmpopts makes no difference between nothing and an empty list.
func cmpopts() cmp.Option {
	return cmp.FilterValues(func(a, b []string) bool { return len(a) == 0 && len(b) == 0 }, cmp.Ignore())
}

// traceDiffers are lines of Grid Engine's trace that ours does not have, as
// regular expressions, numbers replaced by N, and why.
var traceDiffers = listed{
	`starting up N\.N\.N`:                                                                              "the version is ours",
	`do_core_binding: .*|bind_process_to_mask: .*`:                                                     "functions of its source; binding is traced where it is done",
	`setting limits|RLIMIT_.*|now running with uid=N, euid=N`:                                          "limits are set last, so that a failure before is without them",
	`start_as_command: .*`:                                                                             "its source's variables; the command is in the lines beside",
	`should map unmapable signal`:                                                                      "said of a signal that is passed on unchanged",
	`pdc_kill_addgrpid: N N|killing pid N/N`:                                                           "what is outside of the process group is found and signalled otherwise",
	`ignored signal KILL to pid -N`:                                                                    "a kill is not left out",
	`keep (RESCHEDULE|APPERROR)_EXIT_STATUS`:                                                           "said again by the line after it",
	`no postponed signal|SIGALRM without timeout|waitN returned -N`:                                    "an alarm is not a signal in ours",
	`parent: job-pid: N - ckpt_pid: N - ckpt_interval: N - ckpt_signal N`:                              "ours has the job's number as in any job",
	`.*/ckpt (ckpt|migrate|clean) .*`:                                                                  "the commands are traced when they are run",
	`if jobs and shepherd do not exit there is some error in the migrate command`:                      "it is said before it can be known",
	`child: starting son\(prolog, .*@.*`:                                                               "ours is without the user, who is in the line below",
	`write_(exit_code_)?to_qrsh.*|error connecting stream socket: .*|writing exit code to qrsh failed`: "a client waits for interactive jobs alone, which are handed over",
	`reading passwd information for user 'paddock-interop'|setosjobid: uid = N, euid = N`:              "ours looks the user up once",
}

// traceMeant reports whether a line of Grid Engine's trace may be missing.
func traceMeant(line string) bool {
	for pattern := range traceDiffers {
		if regexp.MustCompile("^(" + pattern + ")$").MatchString(line) {
			return true
		}
	}
	return false
}

var number = regexp.MustCompile(`[0-9]+`)

// traceLines returns the texts of a trace without stamps, numbers replaced.
// People and tools grep in traces; ours has every line of Grid Engine's, in
// whatever order.
func traceLines(trace string) []string {
	var lines []string
	for line := range strings.Lines(trace) {
		if _, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "]: "); ok {
			lines = append(lines, number.ReplaceAllString(text, "N"))
		}
	}
	return lines
}
