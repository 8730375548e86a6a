package parent

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// listening is a job that says which signals it gets.
const listening = `
for s in USR1 USR2 TERM XCPU CONT; do trap "echo $s" $s; done
echo ready
while :; do sleep 1000 & wait $!; done`

// poke sends the shepherd a carrier signal.
func (p *running) poke(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// write asks for a signal by way of the file, with the given sequence number.
func (p *running) write(sig unix.Signal, seq int) {
	p.t.Helper()
	if err := p.dir.Write(spool.FileSignal, spool.AppendSignal(nil, int(sig), seq)); err != nil {
		p.t.Fatal(err)
	}
	p.poke(syscall.SIGTTIN)
}

func expect(t *testing.T, next func() string, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := next(); got != w {
			t.Fatalf("got %q; want %q", got, w)
		}
	}
}

func TestMethodSignals(t *testing.T) {
	t.Parallel()
	r := newRig(t, listening).set("suspend_method=SIGUSR1", "resume_method=12", "terminate_method=SIGTERM")
	next := r.pipe()
	p := r.start()
	expect(t, next, "ready")
	p.write(unix.SIGSTOP, 1)
	expect(t, next, "USR1")
	p.poke(syscall.SIGCONT)
	expect(t, next, "USR2")
	p.poke(syscall.SIGTSTP)
	expect(t, next, "TERM")
	p.poke(syscall.SIGTSTP)
	expect(t, next, "TERM")
	p.poke(syscall.SIGTSTP) // the third one is no longer patient
	r.ended(p.wait(), 0, 128+9)
}

func TestMethodCommands(t *testing.T) {
	t.Parallel()
	r := newRig(t, listening).set("job_id=17")
	next := r.pipe()
	say := " >" + r.base + "/out/pipe"
	r.set(
		"suspend_method=/bin/echo suspend $job_id"+say,
		"resume_method=/bin/echo resume $job_owner"+say,
		"terminate_method=/bin/kill -KILL -- -$job_pid",
	)
	owner, _ := r.config.Lookup(spool.KeyJobOwner)
	p := r.start()
	expect(t, next, "ready")
	p.write(unix.SIGSTOP, 1)
	expect(t, next, "suspend 17")
	p.poke(syscall.SIGCONT)
	expect(t, next, "resume "+owner)
	p.poke(syscall.SIGTSTP)
	r.ended(p.wait(), 0, 128+9)
	trace := r.read(spool.FileTrace)
	for _, want := range []string{"-> overrides kill(-", "reaped suspend command", "reaped resume command"} {
		if !strings.Contains(trace, want) {
			t.Errorf("trace lacks %q\n%s", want, trace)
		}
	}
}

// TestMethodOnce sees that a method that runs is not started a second time, and
// that the run's end waits for it.
func TestMethodOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, listening)
	next := r.pipe()
	gate := r.base + "/out/gate"
	if err := unix.Mkfifo(gate, 0o666); err != nil {
		t.Fatal(err)
	}
	r.set("terminate_method=/bin/echo one >"+r.base+"/out/pipe; /bin/kill -KILL -- -$job_pid; read x <"+gate+"; echo two >"+r.base+"/out/two",
		"epilog="+r.script("epilog", "cat "+r.base+"/out/two >>"+r.base+"/out/log"))
	p := r.start()
	expect(t, next, "ready")
	p.poke(syscall.SIGTSTP)
	expect(t, next, "one")
	open, err := os.OpenFile(gate, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if _, err := open.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	r.ended(p.wait(), 0, 128+9)
	if got := r.log(); got != "epilog; two" {
		t.Errorf("log %q", got)
	}
}

func TestBadMethods(t *testing.T) {
	t.Parallel()
	for _, kv := range []string{"suspend_method=SIGFOO", "resume_method=relative/path", "terminate_method=SIGKILL x"} {
		r := newRig(t, "echo ran").set(kv)
		r.ended(r.run(), 7, -1)
		key, value, _ := strings.Cut(kv, "=")
		if want := "cannot convert " + key + " " + strconv.Quote(value) + " into a valid signal number at this machine"; r.errors() != want {
			t.Errorf("error %q; want %q", r.errors(), want)
		}
	}
}

// TestMethodVariable sees that a method that cannot be expanded is not missed:
// the usual signal takes its place.
func TestMethodVariable(t *testing.T) {
	t.Parallel()
	r := newRig(t, listening).set("terminate_method=/bin/echo $nonsense")
	next := r.pipe()
	p := r.start()
	expect(t, next, "ready")
	p.poke(syscall.SIGTSTP)
	r.ended(p.wait(), 0, 128+9)
}

func TestNotify(t *testing.T) {
	t.Parallel()
	r := newRig(t, listening).set("notify=10") // what the steps may take
	next := r.pipe()
	p := r.start()
	expect(t, next, "ready")
	p.write(unix.SIGSTOP, 1)
	expect(t, next, "USR1") // the warning of STOP
	p.poke(syscall.SIGCONT) // takes it back
	expect(t, next, "CONT")
	p.write(unix.SIGSTOP, 2)
	expect(t, next, "USR1")
	begin := time.Now()
	p.poke(syscall.SIGTSTP) // takes its place
	expect(t, next, "USR2")
	p.poke(syscall.SIGTSTP) // says nothing new
	r.ended(p.wait(), 0, 128+9)
	if d := time.Since(begin); d < 9*time.Second {
		t.Errorf("killed after %v; want ten seconds", d)
	}
	if trace := r.read(spool.FileTrace); !strings.Contains(trace, "KILL) -> delivering postponed signal") {
		t.Errorf("trace lacks the postponed signal\n%s", trace)
	}
}

func TestNotifyKinds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set  []string
		want string // what the job hears before it dies
	}{
		{[]string{"notify_kill_type=0", "notify_kill=XCPU"}, "XCPU"},
		{[]string{"notify_kill_type=1", "notify_kill=XCPU"}, "USR2"},
		{[]string{"notify_kill_type=2"}, ""},
	} {
		t.Run(c.set[0], func(t *testing.T) {
			t.Parallel()
			r := newRig(t, listening).set("notify=10").set(c.set...)
			next := r.pipe()
			p := r.start()
			expect(t, next, "ready")
			p.poke(syscall.SIGTSTP)
			if c.want != "" {
				expect(t, next, c.want)
			}
			r.ended(p.wait(), 0, 128+9)
		})
	}
}

func TestTimeLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, listening).set("paddock_s_rt=10", "paddock_h_rt=30")
	next := r.pipe()
	p := r.start()
	expect(t, next, "ready", "USR1")
	r.ended(p.wait(), 37, 128+9)
	if got, want := r.errors(), "job was killed: it ran longer than its limit h_rt, 30 s"; got != want {
		t.Errorf("error %q; want %q", got, want)
	}
}

// TestReason sees that the kernel's limits are named.
func TestReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ job, set, want string }{
		{"while :; do :; done", "s_cpu=0:0:1", "job used up its processor time: limit s_cpu 0:0:1"},
		{"trap '' XCPU; while :; do :; done", "h_cpu=1", "job used up its processor time: limit h_cpu 1"},
		{"exec head -c 100k /dev/zero", "h_fsize=20k", "job wrote a file larger than it may: limit h_fsize 20k"},
		{"exec head -c 100k /dev/zero", "s_fsize=30k", "job wrote a file larger than it may: limit s_fsize 30k"},
		{"kill -XFSZ $$", "h_fsize=INFINITY", ""},
		{"kill -XCPU $$", "s_cpu=INFINITY", ""},
	} {
		t.Run(c.set, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.job).set("s_core=0", "h_core=0", c.set)
			if code := r.run(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if got := r.errors(); got != c.want {
				t.Errorf("error %q; want %q\n%s", got, c.want, r.read(spool.FileTrace))
			}
			cause := spool.CauseSignal
			if c.want != "" {
				cause = spool.CauseResource
			}
			if out, err := r.dir.Outcome(); err != nil || out.Cause() != cause {
				t.Errorf("%+v, %v; want it ended by %s", out, err, cause)
			}
		})
	}
}

func ckpt(kind string, more ...string) []string {
	return append([]string{
		"ckpt_job=1", "ckpt_interface=" + kind, "ckpt_restarted=0", "ckpt_command=none", "ckpt_migr_command=none",
		"ckpt_rest_command=none", "ckpt_clean_command=none", "ckpt_pid=0", "ckpt_osjobid=0", "ckpt_dir=/tmp",
		"ckpt_signal=none", "ckpt_interval=0",
	}, more...)
}

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	t.Run("signal", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, listening).set(ckpt("transparent", "ckpt_signal=USR2", "ckpt_interval=10")...)
		next := r.pipe()
		p := r.start()
		expect(t, next, "ready", "USR2", "USR2")
		p.poke(syscall.SIGTTOU)
		r.migrated(p.wait(), "0\n")
	})
	t.Run("command", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, listening)
		next := r.pipe()
		say := " >" + r.base + "/out/pipe"
		r.set(ckpt("application-level", "ckpt_interval=10",
			"ckpt_command=/bin/echo ckpt $ckpt_dir"+say,
			"ckpt_migr_command=/bin/echo migr $job_pid"+say+"; /bin/kill -KILL -- -$job_pid",
			"ckpt_clean_command=/bin/echo clean"+say)...)
		p := r.start()
		expect(t, next, "ready", "ckpt /tmp", "ckpt /tmp")
		r.waitTraces(2, "checkpoint is in the arena after regular checkpoint")
		p.poke(syscall.SIGTTOU)
		said := next()
		for said == "ckpt /tmp" { // one more, just before
			said = next()
		}
		if want := "migr " + strings.TrimSpace(r.read(spool.FileJobPID)); said != want {
			t.Errorf("got %q; want %q", said, want)
		}
		r.migrated(p.wait(), "1\n")
	})
	t.Run("restart and clean", func(t *testing.T) {
		r := newRig(t, "echo not from the beginning")
		r.set(ckpt("hibernator", "ckpt_restarted=2",
			"ckpt_pid=4711", "ckpt_rest_command=/bin/echo restarted $job_pid in $ckpt_dir; exit 4",
			"ckpt_clean_command="+r.script("clean", "")+" $job_id")...).set("job_id=9")
		r.ended(r.run(), 0, 4)
		if got := r.output("o"); got != "restarted 4711 in /tmp\n" {
			t.Errorf("output %q", got)
		}
		if got := r.log(); got != "clean 9" {
			t.Errorf("log %q", got)
		}
	})
	t.Run("before the job", func(t *testing.T) {
		r := newRig(t, "echo ran").set(ckpt("userdefined")...)
		next := r.pipe()
		r.set("prolog=" + r.script("prolog", "echo hangs; sleep 1000 & wait"))
		p := r.start()
		expect(t, next, "hangs")
		p.poke(syscall.SIGTTOU)
		r.migrated(p.wait(), "0\n")
	})
	t.Run("incomplete", func(t *testing.T) {
		r := newRig(t, "echo ran").set("ckpt_job=1")
		r.ended(r.run(), 7, -1)
		if got, want := r.errors(), "checkpointing with incomplete specification or unknown interface requested"; got != want {
			t.Errorf("error %q; want %q", got, want)
		}
	})
}

func (r *rig) migrated(code int, content string) {
	r.t.Helper()
	if code != 0 {
		r.t.Errorf("exit code %d", code)
	}
	if got := r.read(spool.FileCheckpointed); got != content {
		r.t.Errorf("checkpointed %q; want %q\n%s", got, content, r.read(spool.FileTrace))
	}
	if o, err := r.dir.Outcome(); err != nil || o.Failed != spool.FailedMigrating {
		r.t.Errorf("outcome %+v, %v; want %d", o, err, spool.FailedMigrating)
	}
}
