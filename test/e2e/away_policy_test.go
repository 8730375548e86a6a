package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"paddock/execd/api"
	"paddock/test/harness"
)

const often = "STARTER_INITIAL_UPDATE_INTERVAL = 1\nSTARTER_UPDATE_INTERVAL = 1\n"

// comes waits until something is so, and shows both logs if that does not come.
func (a *elsewhere) comes(what string, so func() (bool, error)) {
	a.t.Helper()
	if err := harness.WaitFor(patience, what, so); err != nil {
		a.t.Fatalf("%v\n%s\n%s", err, a.login.Log(), a.node.Log())
	}
}

// REQ-FLOW-6: the host where a job was submitted looks at its policy, and the one where it runs
// does not.
func TestAwayPolicy(t *testing.T) {
	parallel(t)
	a := newAwayFrom(t, "PERIODIC_EXPR_INTERVAL = 1\n", often)
	detail := func(job int, text string) {
		t.Helper()
		if out := a.as("qstat", "-j", strconv.Itoa(job)); !strings.Contains(out, text) {
			t.Errorf("qstat -j: no %q in\n%s", text, out)
		}
	}
	// By what the other host tells of the run; until it is released.
	job := a.submit("echo on >>held; exec sleep 1000", "-N", "held", "-attr", "PeriodicHold = NumPids >= 1", "-attr", `PeriodicHoldReason="too many"`)
	a.shown(job, "Eqw")
	detail(job, "too many")
	if out := a.as("qstat", "-s", "h"); !strings.Contains(out, " held ") {
		t.Errorf("qstat -s h:\n%s", out)
	}
	if l := a.qacct(job, 1); l[0]["hostname"] != "node" || !strings.Contains(l[0]["reason"], "held by PeriodicHold (too many)") {
		t.Errorf("qacct: %q", l)
	}
	a.as("qalter", "-attr", "PeriodicHold = NumPids > 1000", strconv.Itoa(job))
	a.as("qmod", "-cj", strconv.Itoa(job))
	a.lines("held", 2)
	a.shown(job, "Rr")
	a.as("qdel", strconv.Itoa(job))
	a.qacct(job, 2)
	// By the time, and what it has used.
	job = a.submit("exec sleep 1000", "-attr", "AllowedExecuteDuration=1")
	a.shown(job, "Eqw")
	detail(job, "AllowedExecuteDuration: it has run for 1s")
	a.as("qdel", strconv.Itoa(job))
	job = a.submit("while :; do :; done", "-attr", "PeriodicRemove = RemoteUserCpu > 0.1")
	if l := a.qacct(job, 1); l[0]["hostname"] != "node" || !strings.HasPrefix(l[0]["reason"], "deleted by PeriodicRemove") {
		t.Errorf("qacct: %q", l)
	}
	// By its end.
	job = a.submit("echo on >>again; test $(wc -l <again) -ge 3", "-r", "n", "-attr", "OnExitRemove = ExitCode == 0")
	for i, l := range a.qacct(job, 3) {
		if want := []string{"25", "25", "0"}[i]; l["hostname"] != "node" || !strings.HasPrefix(l["failed"], want) {
			t.Errorf("run %d: %q", i, l)
		}
	}
	job = a.submit("exit 7", "-attr", "OnExitHold = ExitCode == 7")
	a.shown(job, "Eqw")
	detail(job, "OnExitHold is true: ExitCode == 7")
	// The queue looks at what waits, and another start of execd does as well.
	a.login.Daemon.Kill()
	a.login.begin()
	a.as("qalter", "-attr", "PeriodicRemove = JobStatus == 5", strconv.Itoa(job))
	a.comes("the job to be deleted", func() (bool, error) {
		jobs, err := a.login.Jobs()
		return len(jobs) == 0, err
	})
	if log := a.node.Log(); strings.Contains(log, "is held by") || strings.Contains(log, "is deleted by") || strings.Contains(log, "released by") {
		t.Errorf("node looks at policies, too:\n%s", log)
	}
}

// REQ-FLOW-15, REQ-FLOW-16, REQ-FLOW-110: an update that the submit host does not hear is the
// disconnect, which the ad of the slot tells; the run goes on, and what it is to hear it hears
// when it is back.
//
// REQ-FLOW-23, REQ-FLOW-103: what is known of a run stands in the record of the job.
func TestAwayUpdates(t *testing.T) {
	t.Parallel()
	a := newAwayFrom(t, "SHADOW_QUEUE_UPDATE_INTERVAL = 1\nSHADOW_LAZY_QUEUE_UPDATE = false\n", often)
	job := a.submit("echo on >ran; until [ -e go ]; do sleep 0.4; done")
	a.wrote("ran")
	recorded := func(text string) {
		t.Helper()
		a.comes(text+" to be recorded", func() (bool, error) {
			data, err := os.ReadFile(fmt.Sprintf("%s/spool/jobs/%d", a.login.dir, job))
			return strings.Contains(string(data), text), err
		})
	}
	recorded(`"NumJobStarts":"1"`)
	recorded(`"NumPids":"`)
	flagged := func(want bool) {
		t.Helper()
		a.comes(fmt.Sprintf("STARTER_DISCONNECTED_FROM_SUBMIT_NODE to be %v", want), func() (bool, error) {
			return strings.Contains(a.node.run("qhost", "-slotad"), "STARTER_DISCONNECTED_FROM_SUBMIT_NODE = true") == want, nil
		})
	}
	flagged(false)
	a.login.Daemon.Kill()
	flagged(true)
	a.login.begin()
	flagged(false)
	a.shown(job, "r")
	// It is the node that is away, and comes back.
	a.node.Daemon.Kill()
	a.state(api.PeerDown, "")
	a.node.begin()
	recorded(`"NumJobReconnects":"1"`)
	a.login.open(a.login.dir + "/u/go")
	if l := a.qacct(job, 1); len(l) != 1 || l[0]["exit_status"] != "0" {
		t.Errorf("qacct: %q", l)
	}
}
