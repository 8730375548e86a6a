package e2e

import (
	"os"
	"regexp"
	"testing"

	"paddock/test/harness"
)

// REQ-FLOW-19: SUSPEND sees what the job uses, by its own ad.
// REQ-FLOW-21: with the pace of the updates of jobs, that for jobs which run already.
//
// The job is large only after a while, and before the policy is there.
func TestSlotUpdates(t *testing.T) {
	parallel(t)
	dir := place(t, "updates")
	write(t, dir+"/etc/queues/all.q", "qname all.q\nslots 1\n", 0o644)
	const pace = "STARTER_INITIAL_UPDATE_INTERVAL = 1\nSTARTER_UPDATE_INTERVAL = 1\nPOLLING_INTERVAL = 1\n"
	write(t, dir+"/etc/hooks.conf", pace, 0o644)
	write(t, dir+"/u/.keep", "", 0o644)
	d := deskIn(t, dir, "-dev")
	d.run("qsub", "-terse", "-wd", dir+"/u", "-o", "/dev/null", "-j", "y", "-b", "y", "-shell", "n", "-attr", `UserLog="log"`, "/bin/sh", "-c",
		"until [ -e go ]; do sleep 0.4; done; (head -c 50000000 /dev/zero; exec sleep 1000) | tail -c 50000000 >/dev/null")
	state := func(want string) {
		t.Helper()
		if err := harness.WaitFor(patience, "the job to be "+want, func() (bool, error) {
			jobs, err := d.Jobs()
			return len(jobs) == 1 && jobs[0].State == want, err
		}); err != nil {
			t.Fatalf("%v\n%s", err, d.Log())
		}
	}
	state("r")
	write(t, dir+"/etc/hooks.conf", pace+"WANT_SUSPEND = true\nSUSPEND = TARGET.ImageSize > 40000 && TARGET.JobState == \"Running\"\nCONTINUE = false\n", 0o644)
	d.run("qconf", "-reload")
	d.open(dir + "/u/go")
	state("S")
	// The log is written beside what the policy does.
	size := regexp.MustCompile(`(?m)^006 .* Image size of job updated: [45]\d{4}$`)
	if err := harness.WaitFor(patience, "the event log to have the size", func() (bool, error) {
		log, err := os.ReadFile(dir + "/u/log")
		return size.Match(log), err
	}); err != nil {
		t.Error(err)
	}
}
