package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/internal/proc"
	"paddock/spool"
	"paddock/test/harness"
)

// active is the directory of a job that is not over.
func (h *holder) active(job int) spool.Dir {
	return spool.OpenDir(filepath.Join(api.DevPlaces(h.dir).Spool, spool.DirActive, fmt.Sprint(job)+".1"))
}

// lease returns when the lease of a job ends, by the uptime of the host.
func (h *holder) lease(job int) time.Duration {
	h.t.Helper()
	l, err := h.active(job).Lease()
	if err != nil {
		h.t.Fatalf("%v\n%s", err, h.Log())
	}
	return l.End
}

// lapses waits until the shepherd of a directory has ended, which it is not to do before a
// lease is over, and returns its verdict.
func (h *holder) lapses(d spool.Dir, end time.Duration) (status int) {
	h.t.Helper()
	if err := harness.WaitFor(patience, "the end of the lease", func() (bool, error) {
		var err error
		if status, err = d.ExitStatus(); errors.Is(err, spool.ErrNoStatus) {
			return false, nil
		}
		return err == nil, err
	}); err != nil {
		h.t.Fatal(err)
	}
	if left := end - proc.Uptime(); left > 0 {
		h.t.Errorf("it has ended %v before its lease was over", left)
	}
	return status
}

// CLAIM-LEASE-HOLDS, CLAIM-RENEW: a lease is one also while execd is dead. A restart leaves it as it
// is, a renewal moves its end, and what runs under the claim, a visitor with it, ends when it
// is over, with nobody there but the shepherds. The next execd finds claim and job over, for
// that reason.
func TestLeaseWithoutExecd(t *testing.T) {
	t.Parallel()
	h := newHolder(t, "")
	c := h.claim(api.ClaimRequest{Lease: 30})
	job := h.start(c, "touch up; exec sleep 1000")
	h.file("up")
	visitor := h.desk.command("qrsh", "-into", fmt.Sprint(job), "touch in; exec sleep 1000")
	if err := visitor.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = visitor.Process.Kill(); _ = visitor.Wait() })
	h.file("in")
	first := h.lease(job)
	h.Daemon.Kill()
	h.begin()
	h.until(1, "Claimed/Busy")
	if again := h.lease(job); again != first {
		t.Errorf("the lease ends at %v after the restart, and was to end at %v", again, first)
	}
	c = h.Client.ClaimOf(c.Reply.ID)
	if _, err := c.Renew(h.ctx); err != nil {
		t.Fatalf("%v\n%s", err, h.Log())
	}
	end := h.lease(job)
	if end <= first {
		t.Errorf("the lease ends at %v when it was renewed, and was to end at %v", end, first)
	}
	h.Daemon.Kill()
	if status := h.lapses(h.active(job), end); status != spool.FailedLease {
		t.Errorf("the shepherd's verdict is %d; want %d", status, spool.FailedLease)
	}
	into, err := filepath.Glob(h.active(job).Path("*", spool.FileExitStatus))
	if err != nil || len(into) != 1 {
		t.Fatalf("visitors are %v, %v; want one", into, err)
	}
	h.lapses(spool.OpenDir(filepath.Dir(into[0])), end) // by its own shepherd, or by that of the job
	h.begin()
	h.until(1, "Claimed/Idle queue")
	if _, err := h.Client.ClaimOf(c.Reply.ID).Renew(h.ctx); api.RefusalOf(err) != api.RefusedUnknown {
		t.Errorf("a claim whose lease is over: %v; want it refused", err)
	}
	if out, err := h.command("qwait", fmt.Sprint(job)); err == nil {
		t.Errorf("qwait: %s; want a job that failed", out)
	}
	if out, err := h.command("qacct", "-j", fmt.Sprint(job)); err != nil || !strings.Contains(out, spool.LeaseOver) || !strings.Contains(out, "112") {
		t.Errorf("qacct: %v\n%s\nwant the reason %q", err, out, spool.LeaseOver)
	}
}

// The user of a job sees nothing of its lease, and cannot change it.
func TestRootLeaseIsNotTheJobs(t *testing.T) {
	parallel(t)
	if second == nil {
		t.Skip("a job of another user needs root")
	}
	h := newRootHolder(t, "CLAIM_USERS = "+second.Name+"\n")
	const script = `cd u
set -- "$SGE_JOB_SPOOL_DIR"
tried() { "$@" 2>/dev/null && echo "$*" >>bad; }
tried cat "$1/lease"
tried sh -c 'echo x >"$0"' "$1/lease"
tried sh -c 'echo x >>"$0"' "$1/lease"
tried rm "$1/lease"
tried mv "$1/lease" here
tried ln "$1/lease" here
tried touch "$1/new"
touch up
exec sleep 1000`
	var c *api.Claim
	var reply api.ActivateReply
	h.second(func() {
		var err error
		if c, err = h.Client.Claim(h.ctx, api.ClaimRequest{}); err == nil {
			reply, err = c.Activate(h.ctx, api.ActivateRequest{Request: h.sh(script)})
		}
		if err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		return
	}
	h.file("u/up")
	if bad, err := os.ReadFile(filepath.Join(h.dir, "u/bad")); err == nil {
		t.Errorf("the job could do\n%s", bad)
	}
	if left := h.lease(reply.Job) - proc.Uptime(); left <= 0 {
		t.Errorf("%v of the lease are left", left)
	}
	h.second(func() {
		if err := c.Release(h.ctx); err != nil {
			t.Error(err)
		}
	})
}
