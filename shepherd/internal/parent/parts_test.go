package parent

import (
	"bytes"
	endian "encoding/binary"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
	"paddock/test/props"
)

// script makes a script that adds "name arguments" to the log and then does
// what body says; it returns the path.
func (r *rig) script(name, body string) string {
	r.t.Helper()
	path := r.base + "/bin/" + name
	text := "#!/bin/sh\necho " + name + ` "$@" >>` + r.base + "/out/log\n" + body
	if err := props.WriteExecutable(path, text); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// log returns what the scripts have logged, lines joined by "; ".
func (r *rig) log() string {
	r.t.Helper()
	b, err := os.ReadFile(r.base + "/out/log")
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimSuffix(string(b), "\n"), "\n", "; ")
}

// all gives the rig all four procedures; bodies are by name.
func (r *rig) all(bodies map[string]string) *rig {
	r.t.Helper()
	r.set("pe=mpi", "pe_slots=3", "pe_hostfile="+r.base+"/job/pe_hostfile",
		"pe_stdout_path="+r.base+"/out/po", "pe_stderr_path="+r.base+"/out/pe")
	for _, name := range []string{"prolog", "pe_start", "pe_stop", "epilog"} {
		args := " $job_id"
		if strings.HasPrefix(name, "pe_") {
			args = " $pe $pe_slots"
		}
		r.set(name + "=" + r.script(name, bodies[name]) + args)
	}
	return r
}

// errors returns the texts in error, joined by "; ".
func (r *rig) errors() string {
	var texts []string
	for line := range strings.Lines(r.read(spool.FileError)) {
		if _, text, ok := strings.Cut(strings.TrimSpace(line), "]: "); ok {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

// waitTrace waits until the trace says something.
func (r *rig) waitTrace(what string) {
	r.t.Helper()
	r.waitTraces(1, what)
}

// waitTraces waits until the trace says something n times.
func (r *rig) waitTraces(n int, what string) {
	r.t.Helper()
	until := time.Now().Add(time.Minute)
	for strings.Count(r.read(spool.FileTrace), what) < n {
		if time.Now().After(until) {
			r.t.Fatalf("no %q in\n%s", what, r.read(spool.FileTrace))
		}
		time.Sleep(time.Millisecond)
	}
}

func TestProcedures(t *testing.T) {
	t.Parallel()
	const whole = "prolog 1; pe_start mpi 3; job; pe_stop mpi 3; epilog 1"
	for _, c := range []struct {
		name   string
		bodies map[string]string
		set    []string
		job    string // body
		log    string
		status string // of the file
		usage  int    // exit status, -1 for none
		error  string
	}{
		{name: "fine", log: whole, status: "0\n"},
		{name: "job fails", job: "exit 3", log: whole, status: "0\n", usage: 3},
		{
			name: "prolog fails", bodies: map[string]string{"prolog": "exit 1"},
			log: "prolog 1; epilog 1", status: "8\n", usage: -1, error: "exit_status of prolog = 1",
		},
		{
			name: "prolog reschedules", bodies: map[string]string{"prolog": "exit 99"}, set: []string{"forbid_reschedule=1"},
			log: "prolog 1; epilog 1", status: "25\n", usage: -1, error: "exit_status of prolog = 99",
		},
		{
			name: "prolog dies", bodies: map[string]string{"prolog": "kill -TERM $$"},
			log: "prolog 1; epilog 1", status: "8\n", usage: -1, error: "exit_status of prolog = 143",
		},
		{
			name: "prolog is missing", set: []string{"prolog=/no/such"},
			status: "7\n", usage: -1, error: `unable to find prolog file "/no/such"`,
		},
		{
			name: "prolog with an unknown variable", set: []string{"prolog=/bin/echo $nonsense"},
			status: "7\n", usage: -1, error: `unknown variable "nonsense"`,
		},
		{
			name: "pe_start fails", bodies: map[string]string{"pe_start": "exit 3", "pe_stop": "exit 4", "epilog": "exit 5"},
			log: "prolog 1; pe_start mpi 3; pe_stop mpi 3; epilog 1", status: "10\n13\n15\n", usage: -1,
			error: "exit_status of pe_start = 3; exit_status of pe_stop = 4; exit_status of epilog = 5",
		},
		{
			name: "pe_start is missing", set: []string{"pe_start=/no/such"},
			log: "prolog 1; epilog 1", status: "9\n", usage: -1, error: `unable to find pe_start file "/no/such"`,
		},
		{
			name: "the job is missing", set: []string{"script_file=/no/such", "shell_start_mode=unix_behavior"},
			log: "prolog 1; pe_start mpi 3; pe_stop mpi 3; epilog 1", status: "11\n", usage: -1,
			error: `unable to find job file "/no/such"`,
		},
		{
			name: "pe_stop fails", bodies: map[string]string{"pe_stop": "exit 1"},
			log: whole, status: "13\n", error: "exit_status of pe_stop = 1",
		},
		{
			name: "pe_stop is missing", set: []string{"pe_stop=/no/such"},
			log: "prolog 1; pe_start mpi 3; job; epilog 1", status: "12\n", error: `unable to find pe_stop file "/no/such"`,
		},
		{
			name: "epilog fails", bodies: map[string]string{"epilog": "exit 1"},
			log: whole, status: "15\n", error: "exit_status of epilog = 1",
		},
		{
			name: "job reschedules, epilog reports an error", job: "exit 99", bodies: map[string]string{"epilog": "exit 100"},
			log: whole, status: "25\n30\n", usage: 99, error: "exit_status of job start = 99; exit_status of epilog = 100",
		},
		{
			name: "no job", set: []string{"script_file=none"},
			log: "prolog 1; pe_start mpi 3; pe_stop mpi 3; epilog 1", status: "0\n", usage: -1,
		},
		{
			name: "no parallel environment", set: []string{"pe=none"},
			log: "prolog 1; job; epilog 1", status: "0\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "")
			job := r.script("job", c.job)
			r.set("script_file="+job, "job_id=1").all(c.bodies).set(c.set...)
			code := r.run()
			first, _, _ := strings.Cut(c.status, "\n")
			want, err := strconv.Atoi(first)
			if err != nil {
				t.Fatal(err)
			}
			r.ended(code, want, c.usage)
			if got := r.read(spool.FileExitStatus); got != c.status {
				t.Errorf("exit_status %q; want %q", got, c.status)
			}
			if got := r.log(); got != c.log {
				t.Errorf("what ran: %q; want %q\n%s", got, c.log, r.read(spool.FileTrace))
			}
			if got := r.errors(); got != c.error && !strings.Contains(got, c.error) || c.error == "" && got != "" {
				t.Errorf("error %q; want %q", got, c.error)
			}
		})
	}
}

// TestJobExitStat sees what the parts after the job are told of it.
func TestJobExitStat(t *testing.T) {
	t.Parallel()
	for job, want := range map[string]string{"exit 7": "[7]\n", "kill -TERM $$": "[143]\n"} {
		r := newRig(t, job)
		epilog := r.script("epilog", `echo "[$SGE_JOBEXIT_STAT]"`)
		r.set("epilog=" + epilog)
		r.run()
		if got := r.output("o"); got != want {
			t.Errorf("%s: the epilog saw %q; want %q", job, got, want)
		}
	}
	r := newRig(t, "echo not me").set("job_id=1").all(map[string]string{
		"prolog": `echo "[$SGE_JOBEXIT_STAT]"; exit 1`, "epilog": `echo "[${SGE_JOBEXIT_STAT-none}]"`,
	})
	r.run()
	if got := r.output("o"); got != "[]\n[none]\n" {
		t.Errorf("without a job: %q", got)
	}
}

// TestKillProcedures asks for the job's end while a procedure hangs.
func TestKillProcedures(t *testing.T) {
	t.Parallel()
	const hang = `echo hangs; sleep 1000 & wait`
	for _, c := range []struct {
		name    string
		hang    string
		foreign bool
		log     string
		status  int
		usage   int
	}{
		{name: "prolog", hang: "prolog", log: "prolog 1; epilog 1", usage: -1},
		{name: "pe_start", hang: "pe_start", log: "prolog 1; pe_start mpi 3; pe_stop mpi 3; epilog 1", usage: -1},
		{name: "pe_stop", hang: "pe_stop", log: "prolog 1; pe_start mpi 3; pe_stop mpi 3; epilog 1", status: 13},
		{name: "epilog", hang: "epilog", log: "prolog 1; pe_start mpi 3; pe_stop mpi 3; epilog 1", status: 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "exit 0").set("job_id=1").all(map[string]string{c.hang: hang})
			next := r.pipe()
			r.set("pe_stdout_path=" + r.base + "/out/pipe")
			p := r.start()
			if got := next(); got != "hangs" {
				t.Fatal(got)
			}
			if err := p.cmd.Process.Signal(syscall.SIGTSTP); err != nil {
				t.Fatal(err)
			}
			r.ended(p.wait(), c.status, c.usage)
			if got := r.log(); got != c.log {
				t.Errorf("what ran: %q; want %q", got, c.log)
			}
		})
	}
}

// TestKillIgnoredAfterJob sees that a foreign execd, which repeats its kill by
// the clock, does not end an epilog.
func TestKillIgnoredAfterJob(t *testing.T) {
	t.Parallel()
	r := newRig(t, "exit 0")
	gate := r.base + "/out/gate"
	if err := unix.Mkfifo(gate, 0o666); err != nil {
		t.Fatal(err)
	}
	r.set("epilog=" + r.script("epilog", "read x <"+gate)).foreign()
	p := r.startForeign(nil)
	open, err := os.OpenFile(gate, os.O_WRONLY, 0) // until the epilog reads
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := p.cmd.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	r.waitTrace("ignored signal KILL: epilog runs to its end")
	if _, err := open.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	r.ended(p.wait(), 0, 0)
}

// TestScriptTimeout has procedures that hang, one that heeds TERM and one that
// does not.
func TestScriptTimeout(t *testing.T) {
	t.Parallel()
	for name, trap := range map[string]string{"heeds": "", "ignores": "trap '' TERM; "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "echo never").set("script_timeout=10")
			next := r.pipe()
			r.set("prolog=" + r.script("prolog", trap+stubborn+"while :; do wait; done"))
			p := r.start()
			pids := []string{next(), next(), next()}
			r.ended(p.wait(), 8, -1)
			if got, want := r.errors(), "prolog was ended: it took longer than script_timeout, 10 s"; got != want {
				t.Errorf("error %q; want %q", got, want)
			}
			gone(t, pids...)
		})
	}
}

// TestElders lets pe_start leave a daemon for pe_stop to end. The sweep after
// the job must spare it, and kill what the job left.
func TestElders(t *testing.T) {
	t.Parallel()
	r := newRig(t, "setsid sh -c 'echo $$; exec sleep 1000' & wait_for=x; exit 0")
	next := r.pipe()
	r.set("job_id=1").all(map[string]string{
		"pe_start": `setsid sh -c 'echo $$ >` + r.base + `/out/daemon; exec sleep 1000' </dev/null >/dev/null 2>&1 &
while [ ! -s ` + r.base + `/out/daemon ]; do :; done`,
		"pe_stop": `kill $(cat ` + r.base + `/out/daemon) && echo alive`,
	})
	r.set("pe_stdout_path=" + r.base + "/out/pipe")
	p := r.start()
	if got := next(); got != "alive" {
		// The job's process may have said its number before it was killed.
		if got = next(); got != "alive" {
			t.Errorf("pe_stop said %q", got)
		}
	}
	r.ended(p.wait(), 0, 0)
}

// TestStartedAsAdmin starts the shepherd as sge_execd does: root's real user,
// the admin user's effective one.
func TestStartedAsAdmin(t *testing.T) {
	t.Parallel()
	needRoot(t, "becomes another user")
	r := newRig(t, "id -u; id -ru; echo $GOTRACEBACK").set(other...).set("admin_user=daemon", "job_owner=nobody").foreign()
	r.fill()
	if err := os.Chown(r.dir.Path(), 1, 1); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("perl", "-e", `$> = 1; exec { $ARGV[0] } "sge_shepherd-1", "-bg"; die "$!"`, binary)
	cmd.Dir = r.dir.Path()
	cmd.Env = []string{"PATH=/bin:/usr/bin"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s%s", err, out, r.read(spool.FileTrace))
	}
	r.ended(0, 0, 0)
	if got := r.output("o"); got != "65534\n65534\n\n" {
		t.Errorf("the job saw the users %q", got)
	}
	if st, err := os.Stat(r.dir.Path(spool.FileUsage)); err != nil || st.Sys().(*syscall.Stat_t).Uid != 1 {
		t.Errorf("usage: %v, %v; want it to be the admin user's", st, err)
	}
}

// TestTask runs a task of a parallel job: without procedures and PE_HOSTFILE,
// and its end is announced before it is told.
func TestTask(t *testing.T) {
	t.Parallel()
	r := newRig(t, `echo "job [$PE_HOSTFILE] [$PE]" >>log; exit 4`)
	r.all(nil)
	r.set("pe_task_id=1.node7", "job_name=petask", "stdout_path="+r.base+"/out")
	r.env = append(r.env, "PE_HOSTFILE=/hosts", "PE=tight")
	writes := r.watch()
	r.ended(r.run(), 0, 4)
	if got, want := r.log(), "job [] [tight]"; got != want {
		t.Errorf("log %q; want %q", got, want)
	}
	if _, err := os.Stat(r.base + "/out/petask.o1"); err != nil {
		t.Error(err)
	}
	order := writes()
	last := order[max(len(order)-3, 0):]
	if want := []string{spool.FileUsage, spool.FileAboutToExit, spool.FileExitStatus}; !slices.Equal(last, want) {
		t.Errorf("files were written in the order %q; want %q last", order, want)
	}
}

// TestAnnounceClient announces the end of what a client waits for, after the
// epilog.
func TestAnnounceClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, "exit 0").set("qrsh_control_port=node7:1")
	file := r.dir.Path(spool.FileAboutToExit)
	r.all(map[string]string{"epilog": "[ ! -e " + file + " ]"})
	r.ended(r.run(), 0, 0)
	if b, err := os.ReadFile(file); err != nil || len(b) != 0 {
		t.Errorf("%s: %q, %v; want it empty", file, b, err)
	}
}

// watch returns a function that returns the names of the job's files that are
// written from now on, without trace, each where it was written last.
func (r *rig) watch() func() []string {
	r.t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, r.dir.Path(), unix.IN_CREATE|unix.IN_MODIFY|unix.IN_MOVED_TO); err != nil {
		r.t.Fatal(err)
	}
	return func() []string {
		var names []string
		b := make([]byte, 64<<10)
		for {
			n, err := unix.Read(fd, b)
			if err != nil || n <= 0 {
				return names
			}
			for e := b[:n]; len(e) >= unix.SizeofInotifyEvent; {
				size := unix.SizeofInotifyEvent + int(endian.NativeEndian.Uint32(e[12:]))
				name := string(bytes.TrimRight(e[unix.SizeofInotifyEvent:size], "\x00"))
				e = e[size:]
				if name != spool.FileTrace {
					names = append(slices.DeleteFunc(names, func(s string) bool { return s == name }), name)
				}
			}
		}
	}
}

// TestDetail traces every step where that is asked for, and no secret.
func TestDetail(t *testing.T) {
	needRoot(t, "becomes another user")
	for name, start := range map[string]func(*rig) int{
		"config": func(r *rig) int { return r.set("paddock_trace=detail").run() },
		"option": func(r *rig) int { return r.foreign().startForeign([]string{"INHERITED=hidden"}, "-detail").wait() },
		"none":   (*rig).run,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "sleep 0 & wait").set("job_owner=nobody", "paddock_uid=65534", "paddock_gid=65534", "inherit_env=1", "priority=3")
			r.set("prolog=root@" + r.script("prolog", ""))
			r.env = append(r.env, "PASSWORD=hidden")
			r.ended(start(r), 0, 0)
			trace := r.read(spool.FileTrace)
			if name == "none" {
				if strings.Contains(trace, "detail:") {
					t.Errorf("the trace is detailed:\n%s", trace)
				}
				return
			}
			for _, want := range []string{
				"born with SigIgn", "before the switch of users: uid 0 0 0", "after the switch of users: uid 0 65534 0, gid 65534 65534 65534, groups 65534, nice 3",
				"umask was 022, is 022", ": setresuid(0, 65534), or fails with 11", ": setresuid(4294967295, 0, 4294967295) must fail, or fails with 11", "RLIMIT_CPU was: (soft ", "directory " + r.base + "/out", "descriptor 1: " + r.base + "/out/o, flags", "PASSWORD",
				"starting, executed: note, then running", "ended with status 0, utime ",
			} {
				if !strings.Contains(trace, want) {
					t.Errorf("%q is not in the trace:\n%s", want, trace)
				}
			}
			if strings.Contains(trace, "hidden") {
				t.Errorf("the trace tells values of variables:\n%s", trace)
			}
		})
	}
}

// TestUnheeded names what config asks for in vain.
func TestUnheeded(t *testing.T) {
	r := newRig(t, "exit 0").set("enable_systemd=1", "systemd_scope=ocs.1.scope", "some_new_key=1", "x=2")
	r.ended(r.run(), 0, 0)
	trace := r.read(spool.FileTrace)
	for _, want := range []string{`does not make "ocs.1.scope" (enable_systemd)`, "not known here: some_new_key x\n"} {
		if !strings.Contains(trace, want) {
			t.Errorf("%q is not in the trace:\n%s", want, trace)
		}
	}
}
