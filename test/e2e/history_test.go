package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"paddock/classad"
	"paddock/test/harness"
)

// historic waits until a history has so many records, and returns them as ads.
func historic(t *testing.T, path string, n int) (ads []*classad.Env) {
	t.Helper()
	if err := harness.WaitFor(patience, fmt.Sprintf("%d records in %s", n, path), func() (bool, error) {
		data, err := os.ReadFile(path)
		ads = nil
		for rest := string(data); ; {
			record, _, ok := strings.Cut(rest, "*** Offset")
			if !ok {
				break
			}
			_, rest, _ = strings.Cut(rest[len(record):], "\n")
			a, err := classad.ParseOld(record)
			if err != nil {
				return false, err
			}
			ads = append(ads, &classad.Env{My: a})
		}
		return len(ads) >= n, err
	}); err != nil {
		t.Fatal(err)
	}
	return ads
}

func intOf(e *classad.Env, name string) int64 {
	n, ok := e.Attr(name).Int()
	if !ok {
		return -1
	}
	return n
}

// REQ-FLOW-30: a job that has run on another host leaves the queue of this one.
// REQ-FLOW-32: the other host has the run in its own history, with what it knew.
// REQ-FLOW-107: with how it has ended there.
func TestAwayHistory(t *testing.T) {
	parallel(t)
	home, there := filepath.Join(t.TempDir(), "history"), filepath.Join(t.TempDir(), "startd_history")
	a := newAway(t, "STARTD_HISTORY = "+there+"\nHISTORY = "+there+".none\nSTARTD_ATTRS =\n")
	if err := os.WriteFile(a.login.dir+"/etc/hooks.conf", []byte(shares+"HISTORY = "+home+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	a.login.run("qconf", "-reload")
	first := a.submit(`exit 7`)
	a.qacct(first, 1)
	second := a.submit(`echo >ran; exec sleep 1000`)
	a.wrote("ran")
	a.as("qdel", strconv.Itoa(second))
	a.qacct(second, 1)

	left, ran := historic(t, home, 2), historic(t, there, 2)
	for i, want := range []struct {
		job                           int
		status, code, signal, starter int64
	}{
		{first, 4, 7, -1, 100},
		{second, 3, -1, 9, 107}, // its holder has ended it there
	} {
		for _, e := range []*classad.Env{left[i], ran[i]} {
			host, _ := e.Attr("LastRemoteHost").Str()
			if intOf(e, "ClusterId") != int64(want.job) || intOf(e, "JobStatus") != want.status || intOf(e, "ExitCode") != want.code ||
				intOf(e, "ExitSignal") != want.signal || intOf(e, "CompletionDate") < 1e9 || host == "" {
				t.Errorf("job %d:\n%s", want.job, e.My.OldString())
			}
		}
		if intOf(ran[i], "StarterExitStatus") != want.starter || intOf(left[i], "StarterExitStatus") != -1 {
			t.Errorf("job %d:\n%s", want.job, ran[i].My.OldString())
		}
		if pid := intOf(ran[i], "JobPid"); pid <= 0 { // what only the host of the run has known
			t.Errorf("job %d: pid %d there", want.job, pid)
		}
	}
	if _, err := os.Stat(there + ".none"); err == nil {
		t.Error("a job of another host has left this one's queue")
	}
}
