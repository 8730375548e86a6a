package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/test/harness"
)

// travels runs a job with a sandbox under a claim, and returns its number, and what lets
// its output go on its way: until then the lock of its sandbox is held.
func (h *holder) travels(c *api.Claim) (number int, let func()) {
	h.t.Helper()
	r := h.sh(fmt.Sprintf("echo $JOB_ID >out.$JOB_ID; touch %[1]s/began.$JOB_ID; until test -e %[1]s/go.$JOB_ID; do sleep 0.4; done", h.dir))
	r.Sandbox = api.SandboxYes
	reply, err := c.Activate(h.ctx, api.ActivateRequest{Request: r})
	if err != nil {
		h.t.Fatal(err)
	}
	number = reply.Job
	h.file(fmt.Sprintf("began.%d", number))
	list, err := filepath.Glob(filepath.Join(h.dir, "spool", "sandboxes", fmt.Sprintf("%d.1.0-*", number)))
	if err != nil || len(list) != 1 {
		h.t.Fatalf("sandboxes %v, %v", list, err)
	}
	lock, err := os.OpenFile(filepath.Join(list[0], "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.dir, fmt.Sprintf("go.%d", number)), nil, 0o644); err != nil {
		h.t.Fatal(err)
	}
	if permit, err := c.Deactivate(h.ctx, api.JobDone); err != nil || !permit.Start {
		h.t.Fatalf("permit %+v, %v; want that the claim may be activated again", permit, err)
	}
	h.until(2, "Claimed/Idle")
	return number, func() { lock.Close() }
}

// REQ-XFER-19, REQ-XFER-29, REQ-XFER-35, REQ-XFER-37, REQ-XFER-38, REQ-XFER-39, REQ-XFER-102: a
// claim is idle while output of its jobs is on its way. The third activation is refused for
// the time being, and is served when some has arrived. The claim may be released meanwhile:
// all output arrives, and no sandbox is left.
func TestClaimWhileOutputTravels(t *testing.T) {
	parallel(t)
	h := newHolder(t, "")
	c := h.claim(api.ClaimRequest{Slot: "2"})
	first, letFirst := h.travels(c)
	second, letSecond := h.travels(c)
	_, err := c.Activate(h.ctx, api.ActivateRequest{Request: h.sh("true")})
	if got := api.RefusalOf(err); got != api.RefusedTryAgain {
		t.Fatalf("the third activation: %v (%d); want %d", err, got, api.RefusedTryAgain)
	}
	if permit, err := c.Check(h.ctx); err != nil || !permit.Start || !permit.Crowded {
		t.Errorf("permit %+v, %v; want another start, later", permit, err)
	}
	served := make(chan error)
	go func() { served <- c.Await(h.ctx) }()
	select {
	case err := <-served:
		t.Fatalf("it is served with two outputs on their way: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	letFirst()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	third, letThird := h.travels(c)
	if err := c.Release(h.ctx); err != nil {
		t.Fatal(err)
	}
	letSecond()
	letThird()
	for _, number := range []int{first, second, third} {
		if err := h.WaitJob(number); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(h.dir, fmt.Sprintf("out.%d", number))
		if text, err := os.ReadFile(name); err != nil || string(text) != fmt.Sprintf("%d\n", number) {
			t.Errorf("output of job %d: %q, %v", number, text, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(h.dir, "spool", "sandboxes", "[0-9]*")); err != nil || left != nil {
		t.Errorf("sandboxes %v are left, %v", left, err)
	}
	ends, err := harness.Accounting(h.dir)
	if err != nil || len(ends) != 3 {
		t.Errorf("accounting %v, %v; want three jobs", ends, err)
	}
}
