package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/test/harness"
)

// patience is how long what must happen may take on a busy host.
const patience = harness.Patience

// holder is a program that claims slots.
type holder struct {
	*desk
	ctx context.Context
}

// newHolder has an execd of two slots with these knobs.
func newHolder(t *testing.T, knobs string) *holder {
	t.Helper()
	dir := place(t, "claim")
	if err := os.MkdirAll(dir+"/etc/queues", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"queues/all.q": "qname all.q\nslots 2\nrerun TRUE\n", "hooks.conf": knobs} {
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	return &holder{deskIn(t, dir, "-dev"), ctx}
}

// claim claims a slot.
func (h *holder) claim(r api.ClaimRequest) *api.Claim {
	h.t.Helper()
	c, err := h.Client.Claim(h.ctx, r)
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

// sh is a job that runs a shell command.
func (h *holder) sh(command string) *api.SubmitRequest {
	return &api.SubmitRequest{
		Name: "held", Binary: true, NoShell: true, Command: "/bin/sh", Args: []string{"-c", command}, Cwd: h.dir, Stdout: "/dev/null", Stderr: "/dev/null",
	}
}

// start has a shell command run under a claim.
func (h *holder) start(c *api.Claim, command string) int {
	h.t.Helper()
	reply, err := c.Activate(h.ctx, api.ActivateRequest{Request: h.sh(command)})
	if err != nil {
		h.t.Fatal(err)
	}
	return reply.Job
}

// slot returns what a slot is like, as "State/Activity holder job".
func (h *holder) slot(number int) string {
	h.t.Helper()
	var reply api.SlotsReply
	if err := h.Client.Call(h.ctx, api.VerbSlots, &api.SlotsRequest{Slot: api.SlotID(strconv.Itoa(number))}, &reply); err != nil {
		h.t.Fatal(err)
	}
	s := reply.Slots[0]
	return strings.TrimSpace(fmt.Sprintf("%s/%s %s %s", s.State, s.Activity, s.Holder, s.Job))
}

// until waits until a slot is as it should be.
func (h *holder) until(number int, want string) {
	h.t.Helper()
	var last string
	if err := harness.WaitFor(patience, "slot to be "+want, func() (bool, error) {
		last = h.slot(number)
		return strings.HasPrefix(last, want), nil
	}); err != nil {
		h.t.Fatalf("%v: it is %s\n%s", err, last, h.Log())
	}
}

// file waits until a file is there.
func (h *holder) file(name string) {
	h.t.Helper()
	if err := harness.WaitFor(patience, name, func() (bool, error) {
		_, err := os.Stat(filepath.Join(h.dir, name))
		return err == nil, nil
	}); err != nil {
		h.t.Fatalf("%v\n%s", err, h.Log())
	}
}

// submit submits a job to the queue.
func (h *holder) submit(command string) int {
	h.t.Helper()
	var reply api.SubmitReply
	if err := h.Client.Call(h.ctx, api.VerbSubmit, h.sh(command), &reply); err != nil {
		h.t.Fatal(err)
	}
	return reply.Job
}

// CLAIM-REQUEST, CLAIM-ACTIVATE, CLAIM-DEACTIVATE, CLAIM-CHECK, CLAIM-RELEASE: job
// after job under one claim, beside those of the queue, which has the other slot.
func TestClaimRunsJobs(t *testing.T) {
	parallel(t)
	h := newHolder(t, "")
	c := h.claim(api.ClaimRequest{Slot: "2"})
	if c.Reply.Slot != "2" || c.Reply.Lease != 1800 || strings.Contains(fmt.Sprintf("%v %+v", c.Reply.ID, c.Reply), string(c.Reply.ID)) {
		t.Errorf("claimed %+v; want slot 2 for 1800 s, without the secret", c.Reply)
	}
	job := h.start(c, "touch ran")
	h.file("ran")
	if permit, err := c.Deactivate(h.ctx, api.JobDone); err != nil || !permit.Start {
		t.Errorf("permit %+v, %v; want another start", permit, err)
	}
	if err := h.WaitJob(job); err != nil {
		t.Fatal(err)
	}
	ends, err := harness.Accounting(h.dir)
	if err != nil || len(ends) == 0 {
		t.Errorf("accounting %v, %v; want job %d in it", ends, err, job)
	}

	// Work may be an ad as well.
	reply, err := c.Activate(h.ctx, api.ActivateRequest{Ad: fmt.Sprintf("Cmd = \"/usr/bin/touch\"\nArguments = \"by-ad\"\nIwd = %q\nGlobalJobId = \"mine#1\"\n", h.dir)})
	if err != nil {
		t.Fatal(err)
	}
	h.file("by-ad")
	if _, err := c.Deactivate(h.ctx, api.JobDone); err != nil {
		t.Fatal(err)
	}
	if err := h.WaitJob(reply.Job); err != nil {
		t.Fatal(err)
	}
	// Without Iwd it runs in its scratch directory.
	if _, err = c.Activate(h.ctx, api.ActivateRequest{Ad: fmt.Sprintf("Cmd = \"/bin/sh\"\nArguments = \"-c 'test $PWD = $TMPDIR && touch %s/in-scratch'\"\n", h.dir)}); err != nil {
		t.Fatal(err)
	}
	h.file("in-scratch")
	if _, err := c.Deactivate(h.ctx, api.JobDone); err != nil {
		t.Fatal(err)
	}
	_, err = c.Activate(h.ctx, api.ActivateRequest{Ad: "Cmd = \"/bin/true\"\nRequirements = TARGET.SlotID == 77\n"})
	if got := api.RefusalOf(err); got != api.RefusedRequirements {
		t.Errorf("a job whose Requirements are not met: %v (%d); want %d", err, got, api.RefusedRequirements)
	}
	attributed := h.sh("true")
	attributed.Attributes = []string{`UserLog="log"`}
	_, err = c.Activate(h.ctx, api.ActivateRequest{Request: attributed})
	if got := api.RefusalOf(err); got != api.RefusedRequirements {
		t.Errorf("a request with attributes: %v (%d); want %d", err, got, api.RefusedRequirements)
	}

	// The queue has the other slot alone.
	first, second := h.submit("touch first; while test ! -e go; do sleep 0.4; done"), h.submit("true")
	h.file("first")
	out, err := h.command("qhost", "-slots")
	if err != nil || !strings.Contains(out, "Claimed") || !strings.Contains(out, fmt.Sprintf("%d.1", first)) {
		t.Errorf("qhost -slots: %v\n%s", err, out)
	}
	out, err = h.command("qhost", "-slotad", "2")
	if err != nil || !strings.Contains(out, `State = "Claimed"`) || strings.Contains(out, string(c.Reply.ID)) {
		t.Errorf("qhost -slotad: %v\n%s", err, out)
	}
	h.start(c, "touch again; while test ! -e go; do sleep 0.4; done")
	h.file("again")
	jobs, err := h.Jobs()
	if err != nil {
		t.Fatal(err)
	}
	states := map[int]string{}
	for _, j := range jobs {
		states[j.Job] = j.State
	}
	if states[first] != "r" || states[second] != "qw" {
		t.Errorf("states %v; want %d to run and %d to wait", states, first, second)
	}
	_, err = c.Activate(h.ctx, api.ActivateRequest{Request: h.sh("true")})
	if got := api.RefusalOf(err); got != api.RefusedBusy {
		t.Errorf("a second activation: %v (%d); want it refused with %d", err, got, api.RefusedBusy)
	}
	if err := c.Release(h.ctx); err != nil {
		t.Fatal(err)
	}
	h.until(2, "Claimed/Idle queue")
	if _, err := c.Check(h.ctx); api.RefusalOf(err) != api.RefusedUnknown {
		t.Errorf("a released id: %v; want it unknown", err)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, number := range []int{first, second} {
		if err := h.WaitJob(number); err != nil {
			t.Fatal(err)
		}
	}
}

// command runs one of the commands.
func (h *holder) command(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(h.ctx, filepath.Join(bin, name), args...)
	cmd.Env = plainEnv(h.dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// CLAIM-LEASE, CLAIM-ID: a claim and what runs under it survive the death of execd,
// and the program goes on with the id that it has.
func TestClaimSurvivesExecd(t *testing.T) {
	parallel(t)
	h := newHolder(t, "")
	idle, c := h.claim(api.ClaimRequest{}), h.claim(api.ClaimRequest{})
	job := h.start(c, "touch up; while test ! -e go; do sleep 0.4; done; touch done")
	h.file("up")
	h.Daemon.Kill()
	h.begin()
	h.until(2, "Claimed/Busy")
	c, idle = h.Client.ClaimOf(c.Reply.ID), h.Client.ClaimOf(idle.Reply.ID)
	if state, err := c.Renew(h.ctx); err != nil || state.Job != job || state.Lease < 1700 {
		t.Errorf("renewed: %+v, %v; want job %d and a whole lease", state, err, job)
	}
	if _, err := c.Suspend(h.ctx); err != nil {
		t.Fatal(err)
	}
	h.until(2, "Claimed/Suspended")
	if _, err := c.Continue(h.ctx); err != nil {
		t.Fatal(err)
	}
	h.until(2, "Claimed/Busy")
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Deactivate(h.ctx, api.JobDone); err != nil {
		t.Fatal(err)
	}
	h.file("done")
	h.until(2, "Claimed/Idle")
	h.start(idle, "touch other")
	h.file("other")
	for _, c := range []*api.Claim{c, idle} {
		if err := c.Release(h.ctx); err != nil {
			t.Fatal(err)
		}
	}
	h.until(1, "Claimed/Idle queue")
	h.until(2, "Claimed/Idle queue")
}

// CLAIM-REQUEST-CLAIMED, CLAIM-VACATE, CLAIM-DRAIN: who is of a higher priority has
// the slot of a job of the queue, which runs again when the slot is free; and
// administrators take slots from everybody.
func TestClaimPreempts(t *testing.T) {
	parallel(t)
	h := newHolder(t, "")
	job := h.submit("touch up1$(ls | grep -c ^up); exec sleep 1000")
	h.file("up10")
	other := h.claim(api.ClaimRequest{Slot: "2"})
	_, err := h.Client.Claim(h.ctx, api.ClaimRequest{Slot: "1"})
	if got := api.RefusalOf(err); got != api.RefusedRank {
		t.Errorf("a slot in use: %v (%d); want it refused with %d", err, got, api.RefusedRank)
	}
	c := h.claim(api.ClaimRequest{Slot: "1", Priority: 1})
	h.start(c, "touch mine; exec sleep 1000")
	h.file("mine")
	if _, err := c.Deactivate(h.ctx, api.Forcible); err != nil {
		t.Fatal(err)
	}
	h.until(1, "Claimed/Idle")
	if err := c.Release(h.ctx); err != nil {
		t.Fatal(err)
	}
	h.file("up11") // the job of the queue, again
	var reply api.VacateReply
	if err := h.Client.Call(h.ctx, api.VerbVacate, &api.VacateRequest{Slots: []api.SlotID{"2"}}, &reply); err != nil || reply.Vacated != 1 {
		t.Errorf("vacated %+v, %v; want slot 2", reply, err)
	}
	if _, err := other.Check(h.ctx); api.RefusalOf(err) != api.RefusedUnknown {
		t.Errorf("a vacated claim: %v; want it unknown", err)
	}
	if out, err := h.command("execd", "-dev", h.dir, "-drain", "-speed", "fast", "-wait"); err != nil {
		t.Errorf("execd -drain: %v\n%s", err, out)
	}
	h.until(1, "Drained/")
	if _, err := h.Client.Claim(h.ctx, api.ClaimRequest{}); api.RefusalOf(err) != api.RefusedShutdown {
		t.Errorf("a slot of a drained host: %v; want it refused", err)
	}
	if out, err := h.command("execd", "-dev", h.dir, "-drain", "-off"); err != nil {
		t.Errorf("execd -drain -off: %v\n%s", err, out)
	}
	h.file("up12")
	if out, err := h.command("qdel", fmt.Sprint(job)); err != nil {
		t.Errorf("qdel: %v\n%s", err, out)
	}
	if err := h.WaitJob(job); err != nil {
		t.Fatal(err)
	}
}

// POLICY-START, POLICY-SUSPEND, POLICY-CONTINUE, POLICY-PREEMPT: policies govern the
// jobs of the queue too, and qstat -j names the expression that refuses one.
func TestPolicyOfSlots(t *testing.T) {
	parallel(t)
	h := newHolder(t, "START = TARGET.JobBatchName =!= \"held\" || SlotID == 2\n")
	first, second := h.submit("touch up; while test ! -e go; do sleep 0.4; done"), h.submit("true")
	h.file("up")
	if got, want := h.slot(2), fmt.Sprintf("Claimed/Busy queue %d.1", first); got != want {
		t.Errorf("slot 2 is %s; want %s", got, want)
	}
	out, err := h.command("qstat", "-j", fmt.Sprint(second))
	if err != nil || !strings.Contains(out, "START of slot1 is false") {
		t.Errorf("qstat -j: %v\n%s", err, out)
	}
	knobs := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(h.dir, "etc/hooks.conf"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if reloaded, err := h.command("qconf", "-reload"); err != nil {
			t.Fatalf("qconf -reload: %v\n%s", err, reloaded)
		}
	}
	knobs("WANT_SUSPEND = true\nSUSPEND = true\nCONTINUE = false\nPOLLING_INTERVAL = 1\nSTARTD_JOB_ATTRS = JobBatchName, Environment\n")
	h.until(2, "Claimed/Suspended")
	out, err = h.command("qhost", "-slotad", "2")
	if err != nil || !regexp.MustCompile(`(?m)^JobBatchName = `).MatchString(out) || strings.Contains(out, "Environment") {
		t.Errorf("qhost -slotad with STARTD_JOB_ATTRS: %v\n%s", err, out)
	}
	knobs("CONTINUE = true\nPOLLING_INTERVAL = 1\n")
	h.until(2, "Claimed/Busy")
	knobs("")
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, job := range []int{first, second} {
		if err := h.WaitJob(job); err != nil {
			t.Fatal(err)
		}
	}
	h.until(1, "Claimed/Idle queue")
	h.until(2, "Claimed/Idle queue")
}

// PSLOT: who has a slot carved for him may claim what is left as well. Then nobody but
// he has more carved, until he gives it back; and he may give up what he has for
// something larger.
func TestClaimLeftOvers(t *testing.T) {
	parallel(t)
	h := newHolder(t, "PARTITIONABLE_QUEUES = all.q\n")
	one := "RequestCpus = 1\nRequestMemory = 64\nRequestDisk = 1\n"
	first := h.claim(api.ClaimRequest{Slot: "1", Ad: one, LeftOvers: true, Lease: 1200})
	left := first.LeftOvers()
	if first.Reply.Slot != "1_1" || left == nil || left.Reply.Slot != "1" || left.Reply.Lease > 3600 {
		t.Fatalf("claimed %+v with %+v; want slot 1_1, and the left-overs of slot 1", first.Reply, first.Reply.LeftOvers)
	}
	if !strings.Contains(left.Reply.Ad, "\nCpus = 1\n") || !strings.Contains(first.Reply.Ad, "\nMemory = 128\n") {
		t.Errorf("the left-overs are\n%s\nof\n%s", left.Reply.Ad, first.Reply.Ad)
	}
	_, err := left.Activate(h.ctx, api.ActivateRequest{Request: h.sh("true")})
	if api.RefusalOf(err) == 0 {
		t.Errorf("a job in the left-overs: %v; want it refused", err)
	}
	queued := h.submit("touch queued")
	if err := harness.WaitFor(patience, "job to be refused", func() (bool, error) {
		out, err := h.command("qstat", "-j", strconv.Itoa(queued))
		return strings.Contains(out, "slot1 is claimed by "), err
	}); err != nil {
		t.Fatal(err)
	}

	second := h.claim(api.ClaimRequest{Slot: "1", Ad: one})
	if second.Reply.Slot != "1_2" {
		t.Errorf("claimed slot %s; want 1_2", second.Reply.Slot)
	}
	both := api.ClaimRequest{Slot: "1", Ad: strings.Replace(one, "Cpus = 1", "Cpus = 2", 1)}
	if _, err := h.Client.Claim(h.ctx, both); api.RefusalOf(err) != api.RefusedRequirements {
		t.Errorf("a claim for more than is left: %v; want it refused", err)
	}
	both.Preempt = []api.ClaimID{first.Reply.ID, second.Reply.ID}
	large := h.claim(both)
	if !strings.Contains(large.Reply.Ad, "\nCpus = 2\n") {
		t.Errorf("in the place of both there is\n%s", large.Reply.Ad)
	}
	if _, err := first.Check(h.ctx); api.RefusalOf(err) != api.RefusedUnknown {
		t.Errorf("a claim that was given up: %v; want it unknown", err)
	}
	h.start(large, "touch large; sleep 1000")
	h.file("large")
	if err := large.Release(h.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "queued")); err == nil {
		t.Error("the queue has carved what somebody else has claimed")
	}
	if err := left.Release(h.ctx); err != nil {
		t.Fatal(err)
	}
	h.file("queued")
}
