package e2e

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"paddock/test/harness"
)

var numberOf = regexp.MustCompile(`(?m)^(\d{3}) \(`)

// events waits until an event log has records with these numbers, and returns its text.
func (a *elsewhere) events(name string, want ...string) (text string) {
	a.t.Helper()
	if err := harness.WaitFor(patience, name+" to have "+strings.Join(want, " "), func() (bool, error) {
		data, err := os.ReadFile(a.login.dir + "/u/" + name)
		text = string(data)
		var got []string
		for _, m := range numberOf.FindAllStringSubmatch(text, -1) {
			if m[1] != "006" { // which comes with updates
				got = append(got, m[1])
			}
		}
		if os.IsNotExist(err) {
			err = nil
		}
		return slices.Equal(got, want), err
	}); err != nil {
		a.t.Fatalf("%v:\n%s\n%s", err, text, a.login.Log())
	}
	return text
}

// The event log of a job is written where it was submitted, wherever it runs.
func TestAwayEventLog(t *testing.T) {
	parallel(t)
	a := newAway(t, often)
	job := a.submit(`echo on >ran; until [ -e go ]; do sleep 0.4; done; exit 7`, "-attr", `UserLog="log"`, "-attr", `OutputAd="ad"`)
	a.wrote("ran")
	text := a.events("log", "000", "001")
	if !strings.Contains(text, "Job executing on host: <node>\n") {
		t.Errorf("the log says\n%s", text)
	}
	if err := harness.WaitFor(patience, "the log to have the size of the job", func() (bool, error) {
		data, err := os.ReadFile(a.login.dir + "/u/log")
		return strings.Contains(string(data), " Image size of job updated: "), err
	}); err != nil {
		t.Fatal(err)
	}
	a.as("qmod", "-sj", strconv.Itoa(job))
	a.events("log", "000", "001", "010")
	a.as("qmod", "-usj", strconv.Itoa(job))
	a.events("log", "000", "001", "010", "011")
	a.node.Daemon.Kill()
	text = a.events("log", "000", "001", "010", "011", "022")
	if !regexp.MustCompile(`Job disconnected, attempting to reconnect\n    node has not answered since .*\n    Trying to reconnect to node <node>\n`).MatchString(text) {
		t.Errorf("the log says\n%s", text)
	}
	a.node.begin()
	a.events("log", "000", "001", "010", "011", "022", "023")
	a.login.Daemon.Kill()
	a.login.begin()
	a.login.open(a.login.dir + "/u/go")
	text = a.events("log", "000", "001", "010", "011", "022", "023", "005")
	if !strings.Contains(text, "(1) Normal termination (return value 7)\n") {
		t.Errorf("the log says\n%s", text)
	}
	if said := a.wrote("ad"); !strings.Contains(said, "ExitCode = 7\n") {
		t.Errorf("the ad is\n%s", said)
	}

	// What is deleted is aborted, and what a lost host has had begins anew.
	job = a.submit(`echo on >>ran2; exec sleep 1000`, "-attr", `UserLog="log2"`)
	a.wrote("ran2")
	a.events("log2", "000", "001")
	a.as("qdel", strconv.Itoa(job))
	a.events("log2", "000", "001", "009")
}

// A job that waits no longer for its host is told so, and that it runs again.
func TestFaultAwayLostEventLog(t *testing.T) {
	t.Parallel()
	a := newAway(t, "ALIVE_INTERVAL = 5\nMAX_CLAIM_ALIVES_MISSED = 2\n")
	job := a.submit(`echo on >>ran; exec sleep 1000`, "-r", "y", "-attr", `UserLog="log"`)
	a.wrote("ran")
	a.events("log", "000", "001")
	a.node.Daemon.Kill()
	a.qacct(job, 1)
	text := a.events("log", "000", "001", "022", "024", "004")
	if !strings.Contains(text, "Can not reconnect to node, rescheduling job\n") {
		t.Errorf("the log says\n%s", text)
	}
	a.node.begin()
	a.lines("ran", 2)
	a.events("log", "000", "001", "022", "024", "004", "001")
}
