package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"paddock/execd/api"
)

// detail returns what qstat -j of login says of a job.
func (a *elsewhere) detail(job int) api.Detail {
	a.t.Helper()
	var reply api.DetailReply
	out := a.as("qstat", "-j", strconv.Itoa(job), "-json")
	if err := json.Unmarshal([]byte(out), &reply); err != nil || len(reply.Jobs) != 1 {
		a.t.Fatalf("qstat -j %d -json: %v: %s", job, err, out)
	}
	return reply.Jobs[0]
}

// expanded returns what the references of a job that runs have become.
func (a *elsewhere) expanded(job int) (list []string) {
	a.t.Helper()
	for _, t := range a.detail(job).Tasks {
		for _, text := range t.MatchExp {
			list = append(list, string(text))
		}
	}
	return list
}

// adOf is a command that writes the ad which a job was given to a file.
const adOf = `cat "$_CONDOR_JOB_AD" >tmp; echo >>tmp; mv tmp ad; `

// REQ-FLOW-2, REQ-FLOW-5, REQ-FLOW-9, REQ-FLOW-10, REQ-FLOW-37, REQ-FLOW-38: what a job refers
// to of its slot is expanded when that is known, and the ad that the other host has before the
// job starts is the expanded one. Where it was submitted the job is as it was, with what its
// references have become beside it, also for the next execd.
func TestAwayExpand(t *testing.T) {
	t.Parallel()
	a := newAway(t, "STARTD_ATTRS = Colour\nColour = \"blue\"\n")
	job := a.submit(adOf+`echo $0 >args; until [ -e go ]; do sleep 0.05; done; : $$(Colour) $$(Shape:round)`,
		"-attr", `On="$$(Colour) $$([Rack * 2])"`, "-attr", "Rack=3")
	ad := a.wrote("ad")
	for _, line := range []string{"On = \"blue 6\"\n", "Rack = 3\n", "; : blue round'\"\n"} {
		if !strings.Contains(ad, line) || strings.Contains(ad, "$$") {
			t.Errorf("the ad on node lacks %q:\n%s", line, ad)
		}
	}
	want := func() {
		t.Helper()
		is := a.expanded(job)
		if len(is) != 2 || !strings.HasSuffix(is[0], `; : blue round'"`) || is[1] != `MATCH_EXP_On="blue 6"` {
			t.Errorf("what its references have become: %q", is)
		}
	}
	want()
	d := a.detail(job)
	if !slices.Equal(d.Request.Attributes, []string{`On="$$(Colour) $$([Rack * 2])"`, "Rack=3"}) || !strings.Contains(d.Request.Args[1], "$$(Colour) $$(Shape:round)") {
		t.Errorf("the job is %q %q", d.Request.Attributes, d.Request.Args)
	}
	a.login.Daemon.Kill()
	a.login.begin()
	a.state(api.PeerUp, "")
	a.shown(job, "r")
	want()
	a.login.open(a.login.dir + "/u/go")
	a.qacct(job, 1)
	if err := os.Remove(a.login.dir + "/u/ad"); err != nil {
		t.Fatal(err)
	}

	// What the slot does not have has the job wait until somebody has looked. Here and there
	// it is the same.
	for _, enabled := range []string{"-d", "-e"} {
		a.login.run("qmod", enabled, "all.q")
		job = a.submit("true", "-attr", `On="$$(Shape)"`)
		line := a.shown(job, "Eqw")
		if !strings.HasPrefix(line.Reason, "cannot expand $$(Shape): slot") || !strings.HasSuffix(line.Reason, " has no Shape") {
			t.Errorf("reason %q", line.Reason)
		}
		a.as("qmod", "-cj", strconv.Itoa(job))
		a.shown(job, "Eqw")
		a.as("qalter", "-attr", `On="$$(Shape:round)"`, strconv.Itoa(job))
		a.as("qmod", "-cj", strconv.Itoa(job))
		host := a.qacct(job, 1)[0]["hostname"]
		if (host == "node") != (enabled == "-d") {
			t.Errorf("it ran on %s", host)
		}
	}
	names, err := os.ReadDir(filepath.Join(a.login.dir, "spool", "jobs"))
	if err != nil || len(names) > 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}
