package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"paddock/execd/api"
	"paddock/test/harness"
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

// REQ-FLOW-1, REQ-FLOW-2, REQ-FLOW-3: what waits is offered with the ad that it has then,
// with references to slots as they stand, and what was said of an earlier one is no reason.
func TestAwayOffer(t *testing.T) {
	parallel(t)
	// The node looks at the job as it waits, 2 at home, and as it is to be started, 1 there.
	a := newAway(t, "STARTD_ATTRS = Colour\nColour = \"blue\"\nSTART = TARGET.Rack == 4 && TARGET.On == ifThenElse(TARGET.ClusterId == 2, strcat(\"$\", \"$\", \"(Colour)\"), \"blue\")\n")
	a.as("qdel", strconv.Itoa(a.submit("true", "-h")))
	job := a.submit(adOf, "-attr", `On="$$(Colour)"`, "-attr", "Rack=3")
	number := strconv.Itoa(job)
	if err := harness.WaitFor(patience, "node not to take it", func() (bool, error) {
		return strings.Contains(a.as("qstat", "-j", number), "not on another host: node: START is false"), nil
	}); err != nil {
		t.Fatalf("%v: %s\n%s", err, a.as("qstat", "-j", number), a.login.Log())
	}
	a.as("qalter", "-attr", "Rack=4", number)
	if ad := a.wrote("ad"); !strings.Contains(ad, "On = \"blue\"\n") || !strings.Contains(ad, "Rack = 4\n") {
		t.Errorf("the ad on node is\n%s", ad)
	}
	if l := a.qacct(job, 1); l[0]["hostname"] != "node" || l[0]["exit_status"] != "0" {
		t.Errorf("qacct: %q", l)
	}
}

// REQ-FLOW-4, REQ-FLOW-5, REQ-FLOW-9, REQ-FLOW-10, REQ-FLOW-37, REQ-FLOW-38: what a job refers
// to of its slot is expanded when that is known, and the ad that the other host has before the
// job starts is the whole of it, expanded. Where it was submitted the job is as it was, with what its
// references have become beside it, also for the next execd.
func TestAwayExpand(t *testing.T) {
	parallel(t)
	a := newAway(t, "STARTD_ATTRS = Colour\nColour = \"blue\"\n")
	job := a.submit(adOf+`echo $0 >args; until [ -e go ]; do sleep 0.4; done; : $$(Colour) $$(Shape:round)`,
		"-attr", `On="$$(Colour) $$([Rack * 2])"`, "-attr", "Rack=3")
	ad := a.wrote("ad")
	for _, name := range []string{"ClusterId", "ProcId", "Owner", "Cmd", "Iwd", "In", "Out", "JobBatchName", "QDate", "MyType"} {
		if !strings.Contains("\n"+ad, "\n"+name+" = ") {
			t.Errorf("the ad on node has no %s", name)
		}
	}
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
}

// slotHas waits until the ads of the slots of node have lines, and others not.
func (a *elsewhere) slotHas(lines ...string) {
	a.t.Helper()
	var text string
	if err := harness.WaitFor(patience, fmt.Sprintf("the ads of slots to have %q", lines), func() (bool, error) {
		var reply api.SlotsReply
		if err := a.node.Client.Call(a.ctx, api.VerbSlots, &api.SlotsRequest{Ads: true}, &reply); err != nil {
			return false, err
		}
		text = "\n"
		for _, s := range reply.Slots {
			text += s.Ad
		}
		for _, line := range lines {
			if absent, not := strings.CutPrefix(line, "!"); strings.Contains(text, "\n"+absent) == not {
				return false, nil
			}
		}
		return true, nil
	}); err != nil {
		a.t.Fatalf("%v:%s\n%s\n%s", err, text, a.login.Log(), a.node.Log())
	}
}

// REQ-FLOW-7, REQ-FLOW-34, REQ-FLOW-35, REQ-FLOW-105: qalter -attr changes the job where it
// was submitted first, as a whole or not at all; the copy of its ad on the host where it runs
// follows, also when either execd was away, and the policies there see it.
func TestAwayAlter(t *testing.T) {
	parallel(t)
	a := newAway(t, "STARTD_ATTRS = Colour\nColour = \"blue\"\nSTARTD_JOB_ATTRS = On Rack Site\nPREEMPT = TARGET.Bad ?: false\nWANT_HOLD = true\nWANT_HOLD_REASON = \"bad\"\n")
	job := a.submit("echo on >>ran; exec sleep 1000", "-r", "y", "-attr", `On="$$(Colour)"`, "-attr", "Rack=3")
	number := strconv.Itoa(job)
	a.wrote("ran")
	a.shown(job, "r")
	a.slotHas(`On = "blue"`, "Rack = 3", "!Site = ")

	// Nothing of what is refused in part is done, nor told.
	for name, why := range map[string]string{
		"Owner": "execd itself says it", "ClusterId": "execd itself says it", "ProcId": "execd itself says it", "MyType": "execd itself says it",
		"TargetType": "execd itself says it", "JobStatus": "execd itself says it", "Requirements": "-l and -q", "MATCH_EXP_On": "it says what references have become",
	} {
		out, err := a.login.command("qalter", "-attr", "Rack=9", "-attr", name+"=1", "-A", "other", number).CombinedOutput()
		if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "-attr "+name+": ") || !strings.Contains(string(out), why) {
			t.Errorf("qalter -attr %s=1: %v: %s", name, err, out)
		}
	}
	if out, err := a.login.command("qalter", "-verify", "-attr", "Rack=9", "-attr", "Owner=1", number).CombinedOutput(); err == nil || !strings.Contains(string(out), "-attr Owner: ") {
		t.Errorf("qalter -verify: %v: %s", err, out)
	}
	if out := a.as("qalter", "-verify", "-attr", "Rack=9", number); !strings.Contains(out, "Rack=9\n") {
		t.Errorf("qalter -verify: %s", out)
	}
	if d := a.detail(job); !slices.Equal(d.Request.Attributes, []string{`On="$$(Colour)"`, "Rack=3"}) || d.Request.Account != "" {
		t.Errorf("the job has become %q %q", d.Request.Attributes, d.Request.Account)
	}

	// One is changed, one is new, and one is taken away.
	alter := func(attributes ...string) {
		t.Helper()
		args := []string{number}
		for _, x := range attributes {
			args = append(args, "-attr", x)
		}
		a.as("qalter", args...)
	}
	alter("Rack=4", `Site="x"`)
	if d := a.detail(job); !slices.Equal(d.Request.Attributes, []string{`On="$$(Colour)"`, "Rack=4", `Site="x"`}) {
		t.Errorf("the job has become %q", d.Request.Attributes)
	}
	a.slotHas(`On = "blue"`, "Rack = 4", `Site = "x"`)
	alter("Rack=undefined", `Site="y"`)
	a.slotHas(`On = "blue"`, "!Rack = ", `Site = "y"`)
	if is := a.expanded(job); !slices.Equal(is, []string{`MATCH_EXP_On="blue"`}) {
		t.Errorf("what its references have become: %q", is)
	}

	// Only the host that has had it started may do so on node.
	record := read(t, a.login.dir+"/spool/jobs/"+number)
	_, id, found := strings.Cut(record, `"remote":{"host":"node","sandbox":"`)
	id, _, _ = strings.Cut(id, `"`)
	if err := a.node.Client.AlterRun(a.ctx, api.AlterRunRequest{Sandbox: api.SandboxID(id), Attributes: []string{"Rack=7"}}); !found || api.RefusalOf(err) != api.RefusedUnknown {
		t.Errorf("alter-run of activation %q of another: %v", id, err)
	}

	// What the other host did not hear of when it was altered it hears of later.
	a.node.Daemon.Kill()
	a.state(api.PeerDown, "")
	alter("Rack=5")
	a.node.begin()
	a.slotHas(`On = "blue"`, "Rack = 5", `Site = "y"`)
	a.node.Daemon.Kill()
	alter("Rack=6")
	a.login.Daemon.Kill()
	a.node.begin()
	a.login.begin()
	a.slotHas(`On = "blue"`, "Rack = 6", `Site = "y"`)

	// A policy of the other host acts on it.
	alter("Bad=true")
	if l := a.qacct(job, 1); l[0]["hostname"] != "node" {
		t.Errorf("qacct: %q", l)
	}
	alter("Bad=undefined")
	a.lines("ran", 2)
	a.slotHas("Rack = 6")
	a.as("qdel", number)
	a.qacct(job, 2)
}
