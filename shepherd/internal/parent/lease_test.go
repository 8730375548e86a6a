package parent

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/proc"
	"paddock/spool"
)

// lend writes a lease of the job, which lasts from now on, and returns its end. Where the
// shepherd is told of it, which may have been started without one, nothing depends on how
// long that took.
func (r *rig) lend(d time.Duration) time.Duration {
	r.t.Helper()
	boot, err := spool.BootID()
	if err != nil {
		r.t.Fatal(err)
	}
	l := spool.Lease{Boot: boot, End: (proc.Uptime() + d).Truncate(spool.LeaseTick)}
	r.writeLease(string(l.Append(nil)))
	return l.End
}

func (r *rig) writeLease(text string) {
	r.t.Helper()
	if err := r.dir.Write(spool.FileLease, []byte(text)); err != nil {
		r.t.Fatal(err)
	}
}

// lendNow has a shepherd that runs go by a lease.
func (p *running) lendNow(d time.Duration) (end time.Duration) {
	p.t.Helper()
	end = p.lend(d)
	p.poke(syscall.SIGTTIN)
	return end
}

// lapsed checks that the shepherd has ended a job with its lease, and not before it was over.
func (p *running) lapsed(end time.Duration, job int) {
	p.t.Helper()
	p.ended(p.wait(), spool.FailedLease, job)
	if now := proc.Uptime(); now < end {
		p.t.Errorf("ended %v before the lease was over", end-now)
	}
	if got := p.errors(); got != spool.LeaseOver {
		p.t.Errorf("error %q; want %q\n%s", got, spool.LeaseOver, p.read(spool.FileTrace))
	}
}

// traced waits for a line of the trace.
func (p *running) traced(line string) {
	p.t.Helper()
	until := time.Now().Add(time.Minute)
	for !strings.Contains(p.read(spool.FileTrace), line) {
		if time.Now().After(until) {
			p.t.Fatalf("no %q in the trace\n%s", line, p.read(spool.FileTrace))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// CLAIM-LEASE-HOLDS: a job ends when its lease is over, though nobody asks for it: also one that is stopped,
// or that is warned first.
func TestLease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		set  []string
		stop bool
		says string // the job, before it ends
	}{
		{name: "runs"},
		{name: "stopped", stop: true},
		{name: "warned", set: []string{"notify=3"}, says: "USR2"},
		{name: "asked by its terminate_method", set: []string{"terminate_method=SIGTERM", "notify=0"}, says: "TERM"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, strings.Replace(listening, "while", `trap "echo TERM; exit 0" TERM; while`, 1)).set(c.set...)
			next := r.pipe()
			p := r.start()
			expect(t, next, "ready")
			if c.stop {
				p.write(unix.SIGSTOP, 1)
			}
			end := p.lendNow(time.Second)
			want := 128 + 9
			if c.says == "TERM" {
				want = 0
			}
			if c.says != "" {
				expect(t, next, c.says)
			}
			p.lapsed(end, want)
		})
	}
}

// What counts is what the file says when the lease was to be over.
func TestLeaseRenewed(t *testing.T) {
	t.Parallel()
	r := newRig(t, "exec sleep 1000")
	r.lend(5 * time.Second)
	p := r.start()
	p.lapsed(p.lend(10*time.Second), 128+9)
}

// A lease is lifted by taking its file away, and a job gets one by a new file, of which the
// shepherd is told.
func TestLeaseLifted(t *testing.T) {
	t.Parallel()
	r := newRig(t, listening)
	next := r.pipe()
	p := r.start()
	expect(t, next, "ready")
	p.lend(3 * time.Second)
	p.write(unix.SIGCONT, 1)
	expect(t, next, "CONT")
	if err := os.Remove(p.dir.Path(spool.FileLease)); err != nil {
		t.Fatal(err)
	}
	p.traced("the lease was lifted")
	p.lapsed(p.lendNow(time.Second), 128+9)
}

// A lease may be over when a job that runs gets to know of it.
func TestLeaseFoundOver(t *testing.T) {
	t.Parallel()
	p := newRig(t, "exec sleep 1000").start()
	p.traced("parent: job-pid")
	p.lapsed(p.lendNow(-time.Minute), 128+9)
}

// Of a lease that cannot be read nobody can say that it was renewed.
func TestLeaseUnreadable(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"never\n", "00000000-0000-0000-0000-000000000000 2147483647.00\n"} {
		r := newRig(t, "exec sleep 1000")
		end := r.lend(5 * time.Second)
		p := r.start()
		p.traced("parent: job-pid")
		p.writeLease(text)
		p.lapsed(end, 128+9)
	}
}

// What has no lease any more is not begun, and nothing is run around it.
func TestLeaseOverBefore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lease        string
		status       int
		reason, runs string
	}{
		{"", spool.FailedLease, spool.LeaseOver, ""},
		{"00000000-0000-0000-0000-000000000000 2147483647.00\n", spool.FailedLease, spool.LeaseOver, ""},
		{"never\n", spool.FailedReadConfig, "cannot read \"./lease\": cannot parse lease: want the id of a boot and seconds with two decimals, got \"never\\n\"", ""},
	} {
		r := newRig(t, "echo ran >o").all(nil)
		r.lend(-time.Second)
		if c.lease != "" {
			r.writeLease(c.lease)
		}
		r.ended(r.run(), c.status, -1)
		if got := r.errors(); got != c.reason || r.log() != c.runs {
			t.Errorf("lease %q: error %q, scripts %q; want %q, %q", c.lease, got, r.log(), c.reason, c.runs)
		}
	}
}

// A lease that is over in the prolog ends that, and the job is not begun. In the epilog there
// is nothing to end.
func TestLeaseAroundTheJob(t *testing.T) {
	t.Parallel()
	r := newRig(t, "echo ran >o").all(map[string]string{"prolog": "exec sleep 1000"})
	p := r.start()
	p.logged("prolog 1")
	p.lapsed(p.lendNow(time.Second), -1)
	if got := r.log(); got != "prolog 1; epilog 1" {
		t.Errorf("scripts %q; want what the prolog has begun undone", got)
	}
	r = newRig(t, "exit 3")
	r.all(map[string]string{"epilog": "until test -e " + r.base + "/out/go; do sleep 0.4; done"})
	r.lend(time.Hour)
	p = r.start()
	p.logged("prolog 1; pe_start mpi 3; pe_stop mpi 3; epilog 1")
	p.lend(-time.Second)
	p.write(unix.SIGCONT, 1)
	p.traced("queued signal CONT")
	if err := os.WriteFile(r.base+"/out/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.ended(p.wait(), 0, 3)
	if got := r.errors(); got != "" {
		t.Errorf("error %q of a job that had ended before", got)
	}
}

// logged waits until the scripts have logged something.
func (p *running) logged(want string) {
	p.t.Helper()
	for until := time.Now().Add(time.Minute); p.log() != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			p.t.Fatalf("scripts %q; want %q", p.log(), want)
		}
	}
}

// A task has the lease of its job.
func TestLeaseOfTask(t *testing.T) {
	t.Parallel()
	r := newRig(t, listening).set("pe_task_id=1.node")
	job := *r
	if err := os.Mkdir(job.dir.Path("1.node"), 0o711); err != nil {
		t.Fatal(err)
	}
	r.dir = spool.OpenDir(job.dir.Path("1.node"))
	next := r.pipe()
	p := r.start()
	expect(t, next, "ready")
	end := job.lend(time.Second)
	p.poke(syscall.SIGTTIN)
	p.lapsed(end, 128+9)
}

// A job that is being ended for another reason when its lease is over has ended for that.
func TestLeaseOverAtTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, listening).set("notify=15")
	next := r.pipe()
	p := r.start()
	expect(t, next, "ready")
	p.poke(syscall.SIGTSTP)
	expect(t, next, "USR2")
	p.lendNow(-time.Minute)
	p.traced(spool.LeaseOver)
	p.ended(p.wait(), 0, 128+9)
}

// Nobody of a foreign execd knows of leases.
func TestForeignLease(t *testing.T) {
	t.Parallel()
	r := newRig(t, "exit 3").foreign()
	r.writeLease("never\n")
	r.ended(r.run(), 0, 3)
}

// The same when it is told to look.
func TestForeignLeaseFound(t *testing.T) {
	t.Parallel()
	p := newRig(t, "exec sleep 1000").foreign().start()
	p.traced("parent: job-pid")
	p.writeLease("never\n")
	p.poke(syscall.SIGTTIN)
	p.traced("error reading signal file")
	if trace := p.read(spool.FileTrace); strings.Contains(trace, "lease") {
		t.Errorf("it has looked for a lease:\n%s", trace)
	}
	p.poke(syscall.SIGTSTP)
	p.ended(p.wait(), 0, 128+9)
}
