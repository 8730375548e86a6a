package parent

import (
	"bufio"
	"bytes"
	"cmp"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/control"
	"paddock/spool"
	"paddock/spool/spooltest"
	"paddock/test/props"
)

// binary is the real shepherd, built once: the starter needs a binary
// that is one.
var binary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	// Those that run beside each other wait most of the time.
	if runtime.GOMAXPROCS(0) < 8 {
		if err := flag.Set("test.parallel", "8"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	dir, err := os.MkdirTemp("", "shepherd")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "shepherd")
	if err := props.Build(binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// A rig is a job directory with what a test needs to run it.
type rig struct {
	t      *testing.T
	base   string // passable by every user
	dir    spool.Dir
	config *spool.Config
	env    []string
	raw    []byte // instead of config, if not nil

	program string // instead of the shepherd, if not empty
	fault   string // of the shepherd, see faultArg
}

// newRig returns a rig whose job is the body of a /bin/sh script.
func newRig(t *testing.T, script string) *rig {
	t.Helper()
	base, err := os.MkdirTemp("", "rig") //nolint:usetesting // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	for _, d := range []string{"job", "out", "bin"} {
		if err := os.Mkdir(base+"/"+d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]os.FileMode{base: 0o711, base + "/out": 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(base+"/script", []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, base: base, dir: spool.OpenDir(base + "/job")}
	r.config = spooltest.Config(t, spooltest.Job{
		Script: base + "/script", Cwd: base + "/out", Stdout: base + "/out/o", Stderr: base + "/out/e",
	})
	r.env = []string{"PATH=/usr/bin:/bin", "SGE_JOB_SPOOL_DIR=" + r.dir.Path()}
	return r
}

// set sets keys, given as NAME=value.
func (r *rig) set(pairs ...string) *rig {
	r.t.Helper()
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		if err := r.config.Set(k, v); err != nil {
			r.t.Fatal(err)
		}
	}
	return r
}

// foreign makes the directory one of Grid Engine's execd: no key of ours.
func (r *rig) foreign() *rig {
	var b []byte
	for _, e := range r.config.Entries() {
		if !strings.HasPrefix(e.Key, "paddock_") {
			b = append(b, e.Key+"="+e.Value+"\n"...)
		}
	}
	r.raw = b
	return r
}

func (r *rig) fill() {
	r.t.Helper()
	if err := spooltest.Fill(r.dir, r.config, r.env); err != nil {
		r.t.Fatal(err)
	}
	if r.raw != nil {
		if err := r.dir.Write(spool.FileConfig, r.raw); err != nil {
			r.t.Fatal(err)
		}
	}
}

// A running is a started shepherd.
type running struct {
	*rig
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

// start starts the shepherd as our execd does: nothing but Environment, the
// signals blocked, the lock as descriptor 3.
func (r *rig) start() *running {
	r.t.Helper()
	r.fill()
	lock, err := r.dir.Lock()
	if err != nil {
		r.t.Fatal(err)
	}
	defer lock.Close()
	return r.startWith(lock, r.dir.Path())
}

// startWith starts it in a directory with that descriptor 3.
func (r *rig) startWith(third *os.File, dir string, args ...string) *running {
	r.t.Helper()
	p := &running{rig: r, cmd: exec.Command(cmp.Or(r.program, binary), args...)}
	if r.fault != "" {
		p.cmd.Path, p.cmd.Args[0] = "/proc/self/exe", faultArg+r.fault
	}
	p.cmd.Dir = dir
	p.cmd.Env = spool.StartEnvironment
	p.cmd.ExtraFiles = []*os.File{third}
	p.cmd.Stderr = &p.stderr
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mask := control.Mask()
	var old unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &mask, &old); err != nil {
		r.t.Fatal(err)
	}
	err := p.cmd.Start()
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil); err != nil {
		r.t.Fatal(err)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { // a test that failed leaves nothing running either
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Signal(syscall.SIGTSTP)
			_ = p.cmd.Wait()
		}
	})
	return p
}

// startForeign starts the shepherd as anybody else may.
func (r *rig) startForeign(env []string, args ...string) *running {
	r.t.Helper()
	r.fill()
	p := &running{rig: r, cmd: exec.Command(binary, args...)}
	p.cmd.Dir = r.dir.Path()
	p.cmd.Env = env
	p.cmd.Stderr = &p.stderr
	if err := p.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Signal(syscall.SIGTSTP)
			_ = p.cmd.Wait()
		}
	})
	return p
}

// wait waits for the shepherd's end and returns its exit code.
func (p *running) wait() int {
	p.t.Helper()
	// Some jobs end when they have had the processor for two seconds.
	timer := time.AfterFunc(5*time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// run runs a job to its end.
func (r *rig) run() int {
	r.t.Helper()
	return r.start().wait()
}

// ended checks exit code, exit_status and, if the job ran, its own exit code.
func (r *rig) ended(code, status, job int) {
	r.t.Helper()
	o, err := r.dir.Outcome()
	if err != nil {
		r.t.Fatalf("Outcome: %v\n%s", err, r.read(spool.FileTrace))
	}
	got, err := r.dir.ExitStatus()
	if err != nil || got != status || code != status {
		r.t.Errorf("shepherd exited %d with exit_status %d (%v), error %q; want %d\n%s", code, got, err, o.Reason, status, r.read(spool.FileTrace))
	}
	switch {
	case job < 0 && o.Usage != nil:
		r.t.Errorf("usage of a job that was not to run: %+v", o.Usage)
	case job >= 0 && o.Usage == nil:
		r.t.Errorf("no usage; want exit status %d", job)
	case job >= 0 && o.Usage.ExitStatus != job:
		r.t.Errorf("job's exit status %d; want %d", o.Usage.ExitStatus, job)
	}
}

func (r *rig) read(name string) string {
	b, err := os.ReadFile(r.dir.Path(name))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (r *rig) output(name string) string {
	r.t.Helper()
	b, err := os.ReadFile(r.base + "/out/" + name)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

func needRoot(t *testing.T, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it " + why)
	}
}

// other are ids that no user of the machine has.
var other = []string{"paddock_uid=54321", "paddock_gid=54322", "paddock_groups=54322,54323,54324"}

// pipe makes the job's stdout a pipe and returns a function that reads its
// next line: what the test waits for is said by the job.
func (r *rig) pipe() func() string {
	r.t.Helper()
	path := r.base + "/out/pipe"
	if err := unix.Mkfifo(path, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		r.t.Fatal(err)
	}
	// For writing, too: no end of file between two writers.
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { f.Close() })
	r.set("stdout_path=" + path)
	in := bufio.NewReader(f)
	return func() string {
		r.t.Helper()
		_ = f.SetReadDeadline(time.Now().Add(time.Minute))
		line, err := in.ReadString('\n')
		if err != nil {
			r.t.Fatalf("no line from the job: %v\n%s%s", err, r.read(spool.FileTrace), r.read(spool.FileError))
		}
		return strings.TrimSuffix(line, "\n")
	}
}

func TestJob(t *testing.T) {
	r := newRig(t, `echo "$#:$1:$2"; echo to stderr >&2; exit 3`).set("njob_args=2", "job_arg1=a", "job_arg2=b c")
	r.ended(r.run(), 0, 3)
	if got, want := r.output("o"), "2:a:b c\n"; got != want {
		t.Errorf("stdout %q; want %q", got, want)
	}
	if got, want := r.output("e"), "to stderr\n"; got != want {
		t.Errorf("stderr %q; want %q", got, want)
	}
	if got := r.read(spool.FileExitStatus); got != "0\n" {
		t.Errorf("exit_status %q; want one line", got)
	}
	if got := r.read(spool.FileError); got != "" {
		t.Errorf("error %q; want it empty", got)
	}
	for _, name := range []string{
		spool.FilePID, spool.FileJobPID, spool.FileAddGrpID, spool.FileTrace, spool.FileError,
		spool.FileExitStatus, spool.FileUsage,
	} {
		st, err := os.Stat(r.dir.Path(name))
		if err != nil {
			t.Error(err)
			continue
		}
		if st.Mode() != 0o644 || int(st.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			t.Errorf("%s: mode %v, uid %d; want 0644 and ours", name, st.Mode(), st.Sys().(*syscall.Stat_t).Uid)
		}
	}
	if held, err := r.dir.Held(); held || err != nil {
		t.Errorf("lock held after the end: %v, %v", held, err)
	}
	pid, jobPID := r.read(spool.FilePID), r.read(spool.FileJobPID)
	pid, jobPID = strings.TrimSpace(pid), strings.TrimSpace(jobPID)
	trace := r.read(spool.FileTrace)
	for _, want := range []string{
		"shepherd called with uid = " + strconv.Itoa(os.Getuid()),
		"starting up ",
		"no prolog script to start",
		`parent: forked "job" with pid ` + jobPID,
		"parent: job-pid: " + jobPID,
		"child: starting son(job, " + r.base + "/script, 0, 4096);",
		"pid=" + jobPID + " pgrp=" + jobPID + " sid=" + jobPID + " old pgrp=" + pid + " getlogin()=<no login set>",
		"setting environment",
		"RLIMIT_CPU setting: (soft INFINITY hard INFINITY) resulting: (soft ",
		"now running with uid=",
		`execvlp(/bin/sh, "sh" "` + r.base + `/script" "a" "b c")`,
		"wait3 returned " + jobPID + " (status: 768; WIFSIGNALED: 0,  WIFEXITED: 1, WEXITSTATUS: 3)",
		`reaped "job" with pid ` + jobPID,
		"job exited with status 3",
		`writing usage file to "usage"`,
		"no epilog script to start",
	} {
		if !strings.Contains(trace, want) {
			t.Errorf("trace lacks %q:\n%s", want, trace)
		}
	}
	for line := range strings.Lines(trace) {
		if _, err := spool.ParseTraceLine([]byte(line)); err != nil {
			t.Error(err)
		}
	}
}

// TestLongTrace gives the job a limit on files that the trace exceeds.
func TestLongTrace(t *testing.T) {
	r := newRig(t, `echo ${#1}`).set("njob_args=1", "job_arg1="+strings.Repeat("x", 60000), "h_fsize=1", "s_fsize=1")
	r.ended(r.run(), 0, 0)
	if got := r.output("o"); got != "60000\n" {
		t.Errorf("stdout %q", got)
	}
	r = newRig(t, "").set("njob_args=1", "job_arg1="+strings.Repeat("x", 60000), "h_fsize=1", "s_fsize=1",
		"handle_as_binary=1", "no_shell=1", "script_file=/no/such/file")
	r.ended(r.run(), 27, -1)
}

// TestSmallAddressSpace gives the job less than Go takes at its start.
func TestSmallAddressSpace(t *testing.T) {
	r := newRig(t, "ulimit -v; ulimit -d").set("h_vmem=40M", "h_data=20M", "njob_args=1", "job_arg1="+strings.Repeat("x", 90000))
	for i := range 20 { // an environment that makes Go's heap grow
		r.env = append(r.env, "V"+strconv.Itoa(i)+"="+strings.Repeat("y", 50000))
	}
	r.ended(r.run(), 0, 0)
	if got := r.output("o"); got != "40960\n20480\n" {
		t.Errorf("limits %q", got)
	}
	r.set("handle_as_binary=1", "no_shell=1", "script_file=no-such-file")
	for _, name := range []string{spool.FileConfig, spool.FileEnvironment, spool.FilePEHostfile, spool.FileExitStatus} {
		if err := os.Remove(r.dir.Path(name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.run(); got != 27 {
		t.Errorf("exit code %d; want 27", got)
	}
}

func TestNothingToRun(t *testing.T) {
	r := newRig(t, "").set("script_file=none")
	r.ended(r.run(), 0, -1)
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		code   int
		set    string
		status int
	}{
		{99, "forbid_reschedule=0", 25},
		{99, "forbid_reschedule=1", 0},
		{100, "forbid_apperror=0", 30},
		{100, "forbid_apperror=1", 0},
		{127, "notify=0", 0},
	} {
		t.Run(strconv.Itoa(c.code)+" "+c.set, func(t *testing.T) {
			r := newRig(t, "exit "+strconv.Itoa(c.code)).set(c.set)
			r.ended(r.run(), c.status, c.code)
			_, reason, _ := r.dir.ErrorText()
			if want := "exit_status of job start = " + strconv.Itoa(c.code); (c.status != 0) != (reason == want) {
				t.Errorf("reason %q with exit_status %d", reason, c.status)
			}
		})
	}
}

func TestShellRules(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    []string
		want   string // of stdout
		status int
		reason string
	}{
		{"posix", nil, "SCRIPT 1 x", 0, ""},
		{"unix", []string{"shell_start_mode=unix_behavior", "shell_path=/no/shell"}, "SCRIPT 1 x", 0, ""},
		{"stdin", []string{"shell_start_mode=script_from_stdin"}, "sh 1 x", 0, ""},
		{"login", []string{"shell_start_mode=script_from_stdin", "use_login_shell=1"}, "-sh 1 x", 0, ""},
		{"binary", []string{"handle_as_binary=1", "script_file=echo hi;echo"}, "hi\nx", 0, ""},
		{"binary in the job's path", []string{"handle_as_binary=1", "no_shell=1", "script_file=only-here"}, "found x", 0, ""},
		{"binary missing", []string{"handle_as_binary=1", "no_shell=1", "script_file=/no/bin"}, "", 27, `execvlp(/no/bin, "/no/bin" "x") failed: No such file or directory`},
		{"shell missing", []string{"shell_path=/no/shell"}, "", 27, `unable to find shell "/no/shell"`},
		{"script missing", []string{"script_file=/no/script"}, "", 11, `unable to find job file "/no/script"`},
		{"stdin script missing", []string{"script_file=/no/script", "shell_start_mode=script_from_stdin"}, "", 11, `error: can't open job script file "/no/script": No such file or directory`},
		{"starter", []string{"starter_method=BASE/starter"}, "starter /bin/sh posix_compliant false SCRIPT x", 0, ""},
		{"no interpreter line", []string{"script_file=BASE/plain", "shell_start_mode=unix_behavior"}, "plain BASE/plain x", 0, ""},
		{"not executable, to be read", []string{"script_file=BASE/data"}, "", 11, `job file "BASE/data" is not executable`},
		{"not executable", []string{"script_file=BASE/data", "shell_start_mode=unix_behavior"}, "", 11, `job file "BASE/data" is not executable`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, `echo "$0 $# $1"`).set("njob_args=1", "job_arg1=x")
			fix := func(s string) string {
				return strings.ReplaceAll(strings.ReplaceAll(s, "SCRIPT", r.base+"/script"), "BASE", r.base)
			}
			for name, body := range map[string]string{
				"starter":   "#!/bin/sh\necho starter $SGE_STARTER_SHELL_PATH $SGE_STARTER_SHELL_START_MODE $SGE_STARTER_USE_LOGIN_SHELL \"$@\"\n",
				"plain":     "echo plain $0 $1\n",
				"only-here": "#!/bin/sh\necho found $1\n",
				"data":      "",
			} {
				mode := os.FileMode(0o755)
				if name == "data" {
					mode = 0o644
				}
				if err := os.WriteFile(r.base+"/"+name, []byte(body), mode); err != nil {
					t.Fatal(err)
				}
			}
			r.env = append(r.env[1:], "PATH=/no/dir:"+r.base+":/usr/bin:/bin")
			for _, kv := range c.set {
				r.set(fix(kv))
			}
			job := 0
			if c.status != 0 {
				job = -1
			}
			r.ended(r.run(), c.status, job)
			if c.status == 0 {
				if got, want := r.output("o"), fix(c.want)+"\n"; got != want {
					t.Errorf("stdout %q; want %q\n%s", got, want, r.output("e"))
				}
			}
			if _, reason, _ := r.dir.ErrorText(); reason != fix(c.reason) {
				t.Errorf("reason %q; want %q", reason, fix(c.reason))
			}
		})
	}
}

// TestTextBusy runs a program that is still being written, which is what a
// script looks like while its writer forks.
func TestTextBusy(t *testing.T) {
	r := newRig(t, "exit 4").set("shell_start_mode=unix_behavior")
	f, err := os.OpenFile(r.base+"/script", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := r.start()
	until := time.Now().Add(time.Minute)
	for !strings.Contains(r.read(spool.FileTrace), "execvlp(") {
		if time.Now().After(until) {
			t.Fatalf("no exec:\n%s", r.read(spool.FileTrace))
		}
		runtime.Gosched()
	}
	f.Close()
	r.ended(p.wait(), 0, 4)
}

func TestStreams(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    []string
		files  []string // that must be there afterwards
		status int
		reason string
	}{
		{"directory", []string{"stdout_path=OUT", "stderr_path=OUT", "job_name=n", "job_id=7"}, []string{"n.o7", "n.e7"}, 0, ""},
		{"array", []string{"stdout_path=OUT/", "stderr_path=OUT", "job_name=n", "job_id=7", "ja_task_id=3"}, []string{"n.o7.3", "n.e7.3"}, 0, ""},
		{"merged", []string{"stdout_path=OUT", "stderr_path=/no/where", "merge_stderr=1", "job_name=n"}, []string{"n.o1"}, 0, ""},
		{"no stdout", []string{"stdout_path=/no/dir/o"}, nil, 26, `error: can't open output file "/no/dir/o": No such file or directory`},
		{"no stdin", []string{"stdin_path=/no/in"}, nil, 26, `error: can't open /no/in as dummy input file: No such file or directory`},
		{"stdin a directory", []string{"stdin_path=OUT"}, nil, 26, `"OUT" is a directory not a file`},
		{"no directory", []string{"cwd=/no/dir"}, nil, 28, `error: can't chdir to /no/dir: No such file or directory`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, `echo "$SGE_STDOUT_PATH $SGE_STDERR_PATH $SGE_STDIN_PATH $SGE_CWD_PATH"; exit 0`)
			fix := func(s string) string { return strings.ReplaceAll(s, "OUT", r.base+"/out") }
			for _, kv := range c.set {
				r.set(fix(kv))
			}
			job := 0
			if c.status != 0 {
				job = -1
			}
			r.ended(r.run(), c.status, job)
			for _, f := range c.files {
				if _, err := os.Stat(r.base + "/out/" + f); err != nil {
					t.Error(err)
				}
			}
			if len(c.files) > 0 {
				out, err := r.base+"/out/"+c.files[0], r.base+"/out/"+c.files[len(c.files)-1]
				if got, want := r.output(c.files[0]), out+" "+err+" /dev/null "+r.base+"/out\n"; got != want {
					t.Errorf("job saw %q; want %q", got, want)
				}
			}
			if _, reason, _ := r.dir.ErrorText(); reason != fix(c.reason) {
				t.Errorf("reason %q; want %q", reason, fix(c.reason))
			}
		})
	}
}

// TestAppend sees that output is added to what is there.
func TestAppend(t *testing.T) {
	r := newRig(t, "echo new")
	if err := os.WriteFile(r.base+"/out/o", []byte("old\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	r.ended(r.run(), 0, 0)
	if got, want := r.output("o"), "old\nnew\n"; got != want {
		t.Errorf("stdout %q; want %q", got, want)
	}
}

func TestUnsupported(t *testing.T) {
	for _, c := range []struct {
		kv     string
		status int
	}{
		{"script_file=QRSH", 30},
		{"script_file=qlogin", 30},
		{"script_file=QRLOGIN", 30},
		{"script_file=INTERACTIVE", 30},
		{"devices_allow=/dev/null:rw", 30},
		{"paddock_format=2", 5},
	} {
		t.Run(c.kv, func(t *testing.T) {
			r := newRig(t, "echo ran").set(c.kv)
			r.ended(r.run(), c.status, -1)
			key, _, _ := strings.Cut(c.kv, "=")
			reason := r.read(spool.FileError)
			if !strings.Contains(reason, strings.TrimPrefix(key, "paddock_")) || strings.Count(reason, "\n") != 1 {
				t.Errorf("error %q; want one line with %s", reason, key)
			}
			if _, err := os.Stat(r.base + "/out/o"); err == nil {
				t.Error("the job ran")
			}
			if _, err := r.dir.PID(); err != nil {
				t.Errorf("no pid, so that sge_execd would overlook the status: %v", err)
			}
		})
	}
}

func TestBadConfig(t *testing.T) {
	without := func(key string) func(*rig) {
		return func(r *rig) {
			var b []byte
			for line := range bytes.Lines(r.config.Append(nil)) {
				if !bytes.HasPrefix(line, []byte(key+"=")) {
					b = append(b, line...)
				}
			}
			r.raw = b
		}
	}
	for _, c := range []struct {
		name   string
		make   func(*rig)
		status int
		reason string
	}{
		{"no config", func(r *rig) { r.raw = []byte{} }, 7, `cannot read "./config": no such file or directory`},
		{"a config of nothing", func(r *rig) { r.raw = []byte("a=b\n") }, 7, `can't get configuration value for "admin_user"`},
		{"two values", func(r *rig) { r.raw = append(r.config.Append(nil), "epilog=/bin/evil\n"...) }, 26, `two values for "epilog"`},
		{"two values from Grid Engine", func(r *rig) { r.foreign(); r.raw = append(r.raw, "job_owner=root2\n"...) }, 26, `two values for "job_owner"`},
		{"a torn line", func(r *rig) { r.raw = append(r.config.Append(nil), "epilog"...) }, 5, "no newline"},
		{"a line from Grid Engine that is none", func(r *rig) { r.foreign(); r.raw = append(r.raw, "garbage\n"...) }, 26, "name=value"},
		{"no script", without("script_file"), 7, `can't get configuration value for "script_file"`},
		{"no shell", without("shell_path"), 11, `can't get configuration value for "shell_path"`},
		{"no limit", without("h_vmem"), 11, `can't get configuration value for "h_vmem"`},
		{"no arguments", without("njob_args"), 11, `can't get configuration value for "njob_args"`},
		{"no owner", without("job_owner"), 11, `can't get configuration value for "job_owner"`},
		{"no gid", without("paddock_gid"), 11, `can't get configuration value for "paddock_gid"`},
		{"an id out of range", func(r *rig) { r.set("paddock_uid=4294967295") }, 11, "bad id"},
		{"uid too small", func(r *rig) { r.set("min_uid=2000000000") }, 11, "less than minimum allowed in conf (2000000000)"},
		{"gid too small", func(r *rig) { r.set("min_gid=2000000000") }, 11, "gid of user"},
		{"bad group", func(r *rig) { r.set("add_grp_id=x") }, 38, "add_grp_id"},
		{"unknown owner", func(r *rig) { r.set("job_owner=no-such-user"); r.foreign() }, 11, `can't get passwd entry for user "no-such-user"`},
		{"bad environment", func(r *rig) { r.env = []string{"A=b"} }, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, "echo ran")
			c.make(r)
			job := -1
			if c.status == 0 {
				job = 0
			}
			r.ended(r.run(), c.status, job)
			_, reason, _ := r.dir.ErrorText()
			if !strings.Contains(reason, c.reason) || (c.reason == "") != (reason == "") {
				t.Errorf("reason %q; want %q in it\n%s\n%s", reason, c.reason, r.read(spool.FileError), r.read(spool.FileTrace))
			}
		})
	}
}

// TestMissingFiles takes away what execd writes.
func TestMissingFiles(t *testing.T) {
	for name, status := range map[string]int{spool.FileConfig: 7, spool.FileEnvironment: 11} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "echo ran")
			r.fill()
			if err := os.Remove(r.dir.Path(name)); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(binary, "-bg", r.dir.Path())
			_ = cmd.Run()
			r.ended(cmd.ProcessState.ExitCode(), status, -1)
			if _, reason, _ := r.dir.ErrorText(); !strings.Contains(reason, name) {
				t.Errorf("reason %q; want %s in it", reason, name)
			}
		})
	}
}

func TestArgsFile(t *testing.T) {
	r := newRig(t, `printf '%s|' "$@"`)
	args, err := r.config.SetArguments([]string{"a\nepilog=/bin/evil", "", "b"})
	if err != nil || args == nil {
		t.Fatalf("SetArguments: %q, %v", args, err)
	}
	if err := r.dir.WriteNew(spool.FileArgs, args); err != nil {
		t.Fatal(err)
	}
	r.ended(r.run(), 0, 0)
	if got, want := r.output("o"), "a\nepilog=/bin/evil||b|"; got != want {
		t.Errorf("arguments %q; want %q", got, want)
	}
}

func TestLock(t *testing.T) {
	r := newRig(t, "read x").set("stdin_path=/dev/null")
	r.fill()
	lock, err := r.dir.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	cmd := exec.Command(binary, r.dir.Path())
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != ExitNotStarted {
		t.Errorf("exit code %d; want %d", got, ExitNotStarted)
	}
	if want := "shepherd: cannot work in " + strconv.Quote(r.dir.Path()) + ": another shepherd does\n"; string(out) != want {
		t.Errorf("said %q; want %q", out, want)
	}
	for _, name := range []string{spool.FileTrace, spool.FilePID, spool.FileExitStatus, spool.FileError} {
		if has, err := r.dir.Has(name); has || err != nil {
			t.Errorf("%s was touched (%v)", name, err)
		}
	}
}

// TestNoJob calls the shepherd where there is no job, as somebody may by mistake.
func TestNoJob(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{nil, {dir}} {
		cmd := exec.Command(binary, args...)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != ExitNotStarted {
			t.Errorf("%q: exit code %d; want %d", args, got, ExitNotStarted)
		}
		if !strings.Contains(string(out), "it is no job's directory: there is no config and no environment") {
			t.Errorf("%q: said %q", args, out)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("the shepherd has left %v, %v", left, err)
	}
}

func TestEndedAlready(t *testing.T) {
	r := newRig(t, "exit 0")
	if err := r.dir.WriteNew(spool.FileExitStatus, []byte("8\n")); err != nil {
		t.Fatal(err)
	}
	p := r.start()
	if got := p.wait(); got != ExitNotStarted {
		t.Errorf("exit code %d; want %d", got, ExitNotStarted)
	}
	if !strings.Contains(p.stderr.String(), "has ended already") || r.read(spool.FileExitStatus) != "8\n" {
		t.Errorf("said %q, exit_status %q", p.stderr.String(), r.read(spool.FileExitStatus))
	}
}

// TestForeign runs a directory of Grid Engine's as its execd starts it.
func TestForeign(t *testing.T) {
	r := newRig(t, `echo "$KEPT|$GOMAXPROCS|$MINE"; read x; exit 5`).set("inherit_env=1")
	next := r.pipe()
	r.env = append(r.env, "MINE=1")
	gate := r.base + "/out/gate"
	if err := unix.Mkfifo(gate, 0o666); err != nil {
		t.Fatal(err)
	}
	open, err := os.OpenFile(gate, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	r.set("stdin_path=" + gate).foreign()
	for _, name := range []string{spool.FileTrace, spool.FileError, spool.FileExitStatus} { // as sge_execd leaves them
		if err := os.WriteFile(r.dir.Path(name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	p := r.startForeign([]string{"KEPT=a b", "PATH=/bin"}, "-bg")
	if got, want := next(), "a b||1"; got != want {
		t.Errorf("environment %q; want %q", got, want)
	}
	comm, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/comm")
	if string(comm) != "sge_shepherd\n" {
		t.Errorf("command name %q (%v); want sge_shepherd", comm, err)
	}
	if held, err := r.dir.Held(); !held || err != nil {
		t.Errorf("lock not held while the job runs (%v)", err)
	}
	if _, err := open.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	r.ended(p.wait(), 0, 5)
}

func TestInheritNothing(t *testing.T) {
	r := newRig(t, `echo "[$KEPT]"`).set("inherit_env=0")
	p := r.startForeign([]string{"KEPT=a", "PATH=/bin"})
	r.ended(p.wait(), 0, 0)
	if got := r.output("o"); got != "[]\n" {
		t.Errorf("the job saw %q", got)
	}
}

func TestAdminOwns(t *testing.T) {
	needRoot(t, "becomes another user")
	r := newRig(t, "exit 0").set("admin_user=daemon", "job_owner=nobody")
	r.foreign()
	r.ended(r.startForeign(nil, "-bg").wait(), 0, 0)
	for _, name := range []string{spool.FileTrace, spool.FileError, spool.FileExitStatus, spool.FileUsage, spool.FilePID, spool.FileJobPID, spool.FileAddGrpID} {
		st, err := os.Stat(r.dir.Path(name))
		if err != nil {
			t.Fatal(err)
		}
		if uid := st.Sys().(*syscall.Stat_t).Uid; uid != 1 || st.Mode() != 0o644 {
			t.Errorf("%s: uid %d, mode %v; want daemon's, 0644", name, uid, st.Mode())
		}
	}
}

// TestRights looks at a job of another user from inside.
func TestRights(t *testing.T) {
	needRoot(t, "becomes another user")
	r := newRig(t, "cat /proc/self/status; umask; ls /proc/self/fd; cat /proc/self/timerslack_ns /proc/self/limits; cut -d' ' -f19 /proc/self/stat; cat").set(other...)
	r.set("add_grp_id=54399", "h_descriptors=300", "s_descriptors=200", "h_vmem=100M", "h_core=0", "s_core=0", "h_stack=2M",
		"h_cpu=1:0:0", "priority=5", "host_slots=2", "h_data=64M", "h_data_is_consumable_job=1", "h_maxproc=30",
		"paddock_home=/nowhere", "stdin_path=/dev/null", "job_owner=somebody")
	// The shepherd's own starter may be careless: ignored signals, an open file.
	leak, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	r.fill()
	cmd := exec.Command("/bin/sh", "-c", `trap '' HUP INT PIPE USR1 TTOU TERM; ulimit -Sn 1000; exec "$0" "$1" 7<&3`, binary, r.dir.Path())
	cmd.ExtraFiles = []*os.File{leak}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, r.read(spool.FileTrace))
	}
	r.ended(0, 0, 0)
	got := r.output("o")
	for _, want := range []string{
		"Uid:\t54321\t54321\t54321\t54321\n", "Gid:\t54322\t54322\t54322\t54322\n",
		"Groups:\t54322 54323 54324 54399 \n",
		"SigBlk:\t0000000000000000\n", "SigIgn:\t0000000000000000\n", "SigPnd:\t0000000000000000\n",
		"CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "CapAmb:\t0000000000000000\n",
		"\n0022\n", "\n50000\n", "\n0\n1\n2\n3\n", // 3 is the directory that ls reads
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the job's view lacks %q", want)
		}
	}
	if strings.Contains(got, "\n4\n") {
		t.Error("a descriptor was left open in the job")
	}
	fields := map[string][]string{}
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, "Max ") {
			fields[strings.TrimSpace(line[:26])] = strings.Fields(line[26:])
		}
	}
	for name, want := range map[string]string{
		"Max open files": "400 600", "Max address space": "209715200 209715200", "Max core file size": "0 0",
		"Max stack size": "4194304 4194304", "Max cpu time": "7200 7200", "Max data size": "67108864 67108864",
		"Max processes": "60 60",
	} {
		if have := strings.Join(fields[name][:2], " "); have != want {
			t.Errorf("%s: %s; want %s", name, have, want)
		}
	}
	if !strings.Contains(got, "\n5\n") {
		t.Error("nice value is not 5")
	}
	jobPID, err := r.dir.JobPID()
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("pid=%d pgrp=%d sid=%d", jobPID, jobPID, jobPID); !strings.Contains(r.read(spool.FileTrace), want) {
		t.Errorf("trace lacks %q", want)
	}
	if got := r.read(spool.FileAddGrpID); got != "54399\n" {
		t.Errorf("addgrpid %q", got)
	}
	if st, err := os.Stat(r.base + "/out/o"); err != nil || st.Sys().(*syscall.Stat_t).Uid != 54321 || st.Mode() != 0o644 {
		t.Errorf("stdout's file: %v, %v; want the user's, 0644", st, err)
	}
	t.Log(r.read(spool.FileTrace))
}

// TestDescriptors sees that a job without a limit of its own gets the soft
// limit the shepherd was started with, and not the one Go has raised.
func TestDescriptors(t *testing.T) {
	r := newRig(t, "ulimit -Sn")
	r.fill()
	cmd := exec.Command("/bin/sh", "-c", `ulimit -Sn 777; exec "$0" "$1"`, binary, r.dir.Path())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := r.output("o"); got != "777\n" {
		t.Errorf("soft limit %q; want 777", got)
	}
}

// TestStreamsAsOwner sees that the user's files are opened with the user's
// rights, and that the job cannot write the results.
func TestStreamsAsOwner(t *testing.T) {
	needRoot(t, "becomes another user")
	r := newRig(t, `echo 25 >"$SGE_JOB_SPOOL_DIR/exit_status"; echo x >>"$SGE_JOB_SPOOL_DIR/error"; cat "$SGE_JOB_SPOOL_DIR/config" >/dev/null; exit 0`).set(other...)
	r.ended(r.run(), 0, 0)
	if n := strings.Count(strings.ToLower(r.output("e")), "denied") + strings.Count(r.output("e"), "cannot create"); n < 3 {
		t.Errorf("the job could write results or read config: %s", r.output("e"))
	}
	r = newRig(t, "exit 0").set(other...).set("stdout_path=/etc/paddock-test-output")
	r.ended(r.run(), 26, -1)
	if _, reason, _ := r.dir.ErrorText(); reason != `error: can't open output file "/etc/paddock-test-output": Permission denied` {
		t.Errorf("reason %q", reason)
	}
	r = newRig(t, "exit 0").set(other...)
	if err := os.Chmod(r.base+"/script", 0o700); err != nil {
		t.Fatal(err)
	}
	r.set("shell_start_mode=unix_behavior")
	r.ended(r.run(), 11, -1)
}

// TestUserMode runs everything as an ordinary user.
func TestUserMode(t *testing.T) {
	needRoot(t, "becomes another user")
	for _, c := range []struct {
		name   string
		uid    string
		status int
		job    int
	}{{"own job", "54321", 0, 0}, {"another's job", "54329", 11, -1}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, "id -u").set(other...).set("paddock_uid="+c.uid, "add_grp_id=54399", "job_owner=me")
			r.fill()
			for _, name := range []string{"", spool.FileConfig, spool.FileEnvironment} {
				if err := os.Chown(r.dir.Path(name), 54321, 54322); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(binary, r.dir.Path())
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54322}}
			out, _ := cmd.CombinedOutput()
			r.ended(cmd.ProcessState.ExitCode(), c.status, c.job)
			if c.status == 0 {
				if got := r.output("o"); got != "54321\n" {
					t.Errorf("ran as %q (%s)", got, out)
				}
			} else if _, reason, _ := r.dir.ErrorText(); !strings.Contains(reason, "not as root") {
				t.Errorf("reason %q", reason)
			}
		})
	}
}

// gone waits until the processes are.
func gone(t *testing.T, pids ...string) {
	t.Helper()
	for _, pid := range pids {
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatalf("no pid: %q", pid)
		}
		until := time.Now().Add(time.Minute)
		for !errors.Is(unix.Kill(n, 0), unix.ESRCH) {
			if time.Now().After(until) {
				t.Errorf("process %s is still there", pid)
				_ = unix.Kill(n, unix.SIGKILL)
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// stubborn is a job whose processes go out of each other's way: a child that
// ignores everything, one in a session of its own, one whose parent is gone.
const stubborn = `
trap '' TERM HUP INT
sh -c 'trap "" TERM HUP; echo $$; while :; do sleep 1000; done' &
setsid sh -c 'trap "" TERM HUP; echo $$; while :; do sleep 1000; done' &
(setsid setsid sh -c 'echo $$; exec sleep 1000' &)
`

func TestKill(t *testing.T) {
	r := newRig(t, stubborn+"while :; do wait; done")
	next := r.pipe()
	p := r.start()
	pids := []string{next(), next(), next()}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGALRM} {
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatalf("%v ended the shepherd: %v", sig, err)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	r.ended(p.wait(), 0, 128+9)
	gone(t, append(pids, strings.TrimSpace(r.read(spool.FileJobPID)))...)
	trace := r.read(spool.FileTrace)
	for _, want := range []string{
		"forward_signal_to_job(): mapping signal 20 TSTP", "mapped signal TSTP to signal KILL", "queued signal KILL",
		"kill(-", "now sending signal KILL to pid -", "job exited due to signal", "job signaled: 9",
	} {
		if !strings.Contains(trace, want) {
			t.Errorf("trace lacks %q", want)
		}
	}
}

// TestLeftovers ends a job that leaves processes behind.
func TestLeftovers(t *testing.T) {
	for _, as := range [][]string{nil, append([]string{"add_grp_id=54399"}, other...)} {
		t.Run(strconv.Itoa(len(as)), func(t *testing.T) {
			if as != nil {
				needRoot(t, "becomes another user")
			}
			r := newRig(t, stubborn+"read x").set(as...)
			gate := r.base + "/out/gate"
			if err := unix.Mkfifo(gate, 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(gate, 0o666); err != nil {
				t.Fatal(err)
			}
			open, err := os.OpenFile(gate, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer open.Close()
			r.set("stdin_path=" + gate)
			next := r.pipe()
			p := r.start()
			pids := []string{next(), next(), next()}
			if _, err := io.WriteString(open, "\n"); err != nil {
				t.Fatal(err)
			}
			r.ended(p.wait(), 0, 0)
			gone(t, pids...)
		})
	}
}

// TestOrphans sees that a child without a parent is taken while the job runs,
// and not kept as a zombie.
func TestOrphans(t *testing.T) {
	r := newRig(t, `(sh -c 'echo $$' &); sh -c 'exec sleep 1000'`)
	next := r.pipe()
	p := r.start()
	pid, err := strconv.Atoi(next())
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(time.Minute)
	for !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		if time.Now().After(until) {
			t.Fatalf("process %d is a zombie", pid)
		}
		runtime.Gosched()
	}
	if err := p.cmd.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	r.ended(p.wait(), 0, 128+9)
}

// TestKillWhileOpening kills a job that hangs before it has begun.
func TestKillWhileOpening(t *testing.T) {
	r := newRig(t, "exit 0")
	if err := unix.Mkfifo(r.base+"/out/nobody-reads", 0o666); err != nil {
		t.Fatal(err)
	}
	r.set("stdout_path=" + r.base + "/out/nobody-reads")
	p := r.start()
	until := time.Now().Add(time.Minute)
	for !strings.Contains(r.read(spool.FileTrace), "further messages") {
		if time.Now().After(until) {
			t.Fatal("the starter does not get there")
		}
		runtime.Gosched()
	}
	if err := p.cmd.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	r.ended(p.wait(), 0, 128+9)
	u, err := r.dir.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if got, known := u.Asked(); got != 9 || !known {
		t.Errorf("it was asked by %d, %v; want 9: it has not come to its own end", got, known)
	}
}

// TestSignals sends a burst through signals: each arrives, and once.
func TestSignals(t *testing.T) {
	r := newRig(t, `
trap 'echo usr1' USR1; trap 'echo xcpu' XCPU; trap 'echo winch' WINCH; trap 'echo cont' CONT; trap 'exit 7' USR2
echo ready
while :; do sleep 1000 & wait $!; done`)
	next := r.pipe()
	p := r.start()
	if got := next(); got != "ready" {
		t.Fatal(got)
	}
	send := func(list ...spool.Signal) {
		if err := r.dir.Append(spool.FileSignals, spool.AppendSignals(nil, list)); err != nil {
			t.Fatal(err)
		}
	}
	poke := func(sig syscall.Signal) {
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	send(spool.Signal{Signal: int(unix.SIGXCPU), Seq: 1}, spool.Signal{Signal: int(unix.SIGWINCH), Seq: 2}, spool.Signal{Signal: int(unix.SIGUSR1), Seq: 3})
	for range 5 {
		poke(syscall.SIGTTIN)
	}
	got := []string{next(), next(), next()}
	slices.Sort(got)
	if want := []string{"usr1", "winch", "xcpu"}; !slices.Equal(got, want) {
		t.Errorf("burst gave %q; want %q", got, want)
	}
	poke(syscall.SIGUSR2) // a carrier: XCPU
	if got := next(); got != "xcpu" {
		t.Errorf("SIGUSR2 gave %q; want xcpu", got)
	}
	poke(syscall.SIGUSR1)
	if got := next(); got != "usr1" {
		t.Errorf("SIGUSR1 gave %q", got)
	}
	poke(syscall.SIGWINCH)
	if got := next(); got != "winch" {
		t.Errorf("SIGWINCH gave %q", got)
	}
	// STOP, and CONT to wake it again: both by file, in one poke.
	send(spool.Signal{Signal: int(unix.SIGSTOP), Seq: 4}, spool.Signal{Signal: int(unix.SIGCONT), Seq: 5})
	poke(syscall.SIGTTIN)
	if got := next(); got != "cont" {
		t.Errorf("CONT gave %q", got)
	}
	send(spool.Signal{Signal: int(unix.SIGUSR2), Seq: 6})
	poke(syscall.SIGTTIN)
	r.ended(p.wait(), 0, 7)
}

// TestAsked tells a job that ended since it was asked to from one that would have
// anyway, whatever both exit with.
func TestAsked(t *testing.T) {
	trap := func(sig string) string {
		return "trap 'exit 0' " + sig + "\necho ready\nwhile :; do sleep 1000 & wait $!; done"
	}
	for _, tt := range []struct {
		script  string
		set     []string
		sig     unix.Signal    // in the file; 0: none
		carrier syscall.Signal // to the shepherd; 0: none
		want    int
	}{
		{trap("TERM"), nil, unix.SIGTERM, syscall.SIGTTIN, 15},
		{trap("USR1"), nil, unix.SIGUSR1, syscall.SIGTTIN, 0},
		{trap("USR1"), []string{spool.KeyEndSignal + "=10"}, unix.SIGUSR1, syscall.SIGTTIN, 10},
		{"echo ready", nil, 0, 0, 0},
		{trap("XCPU"), nil, unix.SIGXCPU, syscall.SIGTTIN, 0},
		{trap("XCPU"), nil, 0, syscall.SIGUSR2, 24},
	} {
		r := newRig(t, tt.script).set(tt.set...)
		next := r.pipe()
		p := r.start()
		if got := next(); got != "ready" {
			t.Fatal(got)
		}
		if tt.sig != 0 {
			if err := r.dir.Append(spool.FileSignals, spool.AppendSignals(nil, []spool.Signal{{Signal: int(tt.sig), Seq: 1}})); err != nil {
				t.Fatal(err)
			}
		}
		if tt.carrier != 0 {
			if err := p.cmd.Process.Signal(tt.carrier); err != nil {
				t.Fatal(err)
			}
		}
		r.ended(p.wait(), 0, 0)
		u, err := r.dir.Usage()
		if err != nil {
			t.Fatal(err)
		}
		if got, known := u.Asked(); got != tt.want || !known {
			t.Errorf("signal %v by %v: asked by %d, %v; want %d", tt.sig, tt.carrier, got, known, tt.want)
		}
	}
}

// TestFell tells a job that ended while systemd, process 1, shut the host down from others.
func TestFell(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("makes a namespace of processes: needs root")
	}
	systemd := filepath.Join(t.TempDir(), "systemd-shutdown")
	if out, err := exec.Command("cp", "-L", "/bin/sh", systemd).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, stops := range []bool{true, false} {
		r := newRig(t, "exit 3")
		if stops {
			r.program = r.script("program", "exec unshare --pid --fork --mount-proc "+systemd+" -c '"+binary+"; exit $?'")
		}
		r.ended(r.run(), 0, 3)
		u, err := r.dir.Usage()
		if err != nil {
			t.Fatal(err)
		}
		if asked, _ := u.Asked(); asked != 0 || u.FellWithHost() != stops {
			t.Errorf("asked by %d, fell with the host: %v; want %v", asked, u.FellWithHost(), stops)
		}
	}
}

// TestStop stops a job for good and kills it then.
func TestStop(t *testing.T) {
	r := newRig(t, "echo ready; while :; do sleep 1000 & wait; done")
	next := r.pipe()
	p := r.start()
	next()
	if err := r.dir.Write(spool.FileSignal, spool.AppendSignal(nil, int(unix.SIGSTOP), 1)); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTTIN); err != nil {
		t.Fatal(err)
	}
	stat := "/proc/" + strings.TrimSpace(r.read(spool.FileJobPID)) + "/stat"
	until := time.Now().Add(time.Minute)
	for {
		b, err := os.ReadFile(stat)
		if err != nil {
			t.Fatal(err)
		}
		if f := strings.Fields(string(b)); f[2] == "T" {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("not stopped: %s", b)
		}
		runtime.Gosched()
	}
	if err := p.cmd.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	r.ended(p.wait(), 0, 128+9)
}

// TestFullDisk fills the spool's file system while the job runs.
func TestFullDisk(t *testing.T) {
	needRoot(t, "mounts a file system")
	r := newRig(t, "echo ready; read x; exit 6")
	if err := unix.Mount("tmpfs", r.dir.Path(), "tmpfs", 0, "size=128k,mode=0711"); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(r.dir.Path(), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	gate := r.base + "/out/gate"
	if err := unix.Mkfifo(gate, 0o666); err != nil {
		t.Fatal(err)
	}
	open, err := os.OpenFile(gate, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	r.set("stdin_path=" + gate)
	next := r.pipe()
	p := r.start()
	next()
	filler := r.dir.Path("filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
	if _, err := open.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	// The trace fits no more, so that the job's end is seen by its process.
	pid, err := r.dir.JobPID()
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(time.Minute)
	for !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		if time.Now().After(until) {
			t.Fatal("the job does not end")
		}
		runtime.Gosched()
	}
	if _, err := r.dir.ExitStatus(); !errors.Is(err, spool.ErrNoStatus) {
		t.Errorf("exit_status on a full disk: %v; want ErrNoStatus", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	r.ended(p.wait(), 0, 6)
}

// TestNoRoom starts a shepherd where nothing can be written.
func TestNoRoom(t *testing.T) {
	needRoot(t, "mounts a file system")
	r := newRig(t, "echo ran")
	if err := unix.Mount("tmpfs", r.dir.Path(), "tmpfs", 0, "size=32k,nr_inodes=5,mode=0711"); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(r.dir.Path(), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	p := r.start() // four files and the root: not one more
	if got := p.wait(); got == 0 {
		t.Error("exit code 0 for a job that could not be started")
	}
	if _, err := r.dir.ExitStatus(); !errors.Is(err, spool.ErrNoStatus) {
		t.Errorf("exit_status: %v; want ErrNoStatus", err)
	}
	if _, err := os.Stat(r.base + "/out/o"); err == nil {
		t.Error("the job ran")
	}
}

// version returns the version that the shepherd was built with.
func version(t *testing.T) string {
	t.Helper()
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range info.Settings {
		if _, v, ok := strings.Cut(s.Value, "main.version="); ok && s.Key == "-ldflags" {
			return strings.Fields(v)[0]
		}
	}
	return "devel"
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-help"}, 0, "usage: shepherd [-bg] [-detail] [DIR]"},
		{[]string{"-version"}, 0, "shepherd (Paddock) " + version(t) + "\n"},
		{[]string{"-nonsense"}, 64, "unknown option -nonsense"},
		{[]string{"a", "b"}, 64, "more than one directory"},
		{[]string{"/no/dir"}, ExitNotStarted, `cannot work in "/no/dir"`},
		{[]string{"-as-user", "1", "1"}, 64, "-as-user wants"},
		{[]string{"-as-user", "1", "1", "1", "-append"}, 64, "-as-user wants"},
		{[]string{"-as-user", "-1", "1", "1", "-remove", "/x"}, 64, "bad id"},
		{[]string{"-as-user", "1", "1", "1", "-tail", "x", "/x"}, 64, "-tail wants a number of bytes"},
		{[]string{"-as-user", "1", "1", "1", "-hook", "/"}, 64, "-as-user wants"},
		{[]string{"-as-user", "1", "x", "1", "-hook"}, 64, "bad id"},
		{[]string{"-as-user", "1", "1", "1", "-hook"}, 64, "descriptor 3 is no socket"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			cmd := exec.Command(binary, c.args...)
			out, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != c.code || !strings.Contains(string(out), c.want) {
				t.Errorf("exit code %d, output %q; want %d, %q", got, out, c.code, c.want)
			}
		})
	}
}

func TestAsUser(t *testing.T) {
	needRoot(t, "becomes another user")
	base, err := os.MkdirTemp("", "asuser") //nolint:usetesting // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	if err := os.Chmod(base, 0o711); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"tmp/a/b", "kept"} {
		if err := os.MkdirAll(base+"/"+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"tmp/f", "tmp/a/f", "kept/f"} {
		if err := os.WriteFile(base+"/"+f, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(base+"/kept", base+"/tmp/a/link"); err != nil {
		t.Fatal(err)
	}
	err = filepath.Walk(base, func(path string, _ os.FileInfo, err error) error {
		if err != nil || path == base {
			return err
		}
		return os.Lchown(path, 54321, 54322)
	})
	if err != nil {
		t.Fatal(err)
	}
	run := func(uid string) (string, int) {
		cmd := exec.Command(binary, "-as-user", uid, "54322", "54322,54323", "-remove", base+"/tmp")
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := run("54329"); code == 0 || !strings.Contains(out, "permission denied") {
		t.Errorf("another user: exit code %d, %q; want a refusal", code, out)
	}
	if out, code := run("54321"); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	if left, err := os.ReadDir(base + "/tmp"); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v; want the empty directory", left, err)
	}
	if _, err := os.Stat(base + "/kept/f"); err != nil {
		t.Errorf("followed a link: %v", err)
	}
}
