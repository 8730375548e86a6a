package ad

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
)

func TestAttributes(t *testing.T) {
	many := make([]string, api.MaxAttributes+1)
	for i := range many {
		many[i] = fmt.Sprintf("A%d=1", i)
	}
	for _, test := range []struct {
		list []string
		want string // of the error
	}{
		{[]string{"Rack=7", "_x2 = TARGET.Memory > 1", `S="a\b"`, `P="x=y"`, "KillSig=\"USR1\"", "PeriodicHold=true", "N=undefined"}, ""},
		{many[:api.MaxAttributes], ""},
		{many, "-attr: 101 attributes, at most 100 are possible"},
		{[]string{"A=\"" + strings.Repeat("x", api.MaxAttributeBytes) + `"`}, "-attr: together the attributes have more than the 8192 bytes that are possible"},
		{[]string{"A=" + strings.Repeat("(", 1000)}, `-attr A: column 401 of "((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((...": nested too deeply`},
		{[]string{"A=1", "a=2"}, "-attr a: it is there twice"},
		{[]string{"A"}, `-attr: "A" is not NAME=EXPRESSION`},
		{[]string{"=1"}, `-attr: "=1" is not NAME=EXPRESSION`},
		{[]string{"a.b=1"}, `-attr: "a.b=1" is not NAME=EXPRESSION`},
		{[]string{"1a=1"}, `-attr: "1a=1" is not NAME=EXPRESSION`},
		{[]string{"a=\"x\ny\""}, `-attr: "a=\"x\ny\"" is not NAME=EXPRESSION`},
		{[]string{"a=\"\u202e\""}, `-attr: "a=\"\u202e\"" is not NAME=EXPRESSION`},
		{[]string{"A="}, `-attr A: column 1 of "": unexpected end`},
		{[]string{"A=1 2"}, `-attr A: column 3 of "1 2": unexpected "2"`},
		{[]string{"rank=1"}, "-attr rank: jobs of qsub are not matched by it: say what the job needs with -l and -q"},
		{[]string{"RequestGPUs=1"}, "-attr RequestGPUs: say what the job needs with -l and -pe"},
		{[]string{"Context_a=1"}, "-attr Context_a: it is what -ac says"},
		{[]string{"ClaimId=1"}, "-attr ClaimId: it is a secret of claims"},
		{[]string{"StarterUserLog=1"}, "-attr StarterUserLog: the event log of a job of qsub is UserLog"},
		{[]string{"Env=1"}, "-attr Env: execd itself says it, of every job"},
	} {
		_, err := Attributes(test.list)
		if err == nil && test.want != "" || err != nil && err.Error() != test.want {
			t.Errorf("%.80q: %v; want %s", test.list, err, test.want)
		}
	}
}

// Nobody says of his job what execd says of it.
func TestAttributesOfOurs(t *testing.T) {
	info := full()
	info.Environment, info.Resources = true, nil
	job := Job(info)
	forced := Ended(job, End{Signal: 9, Reason: "x", Forced: &Forced{Reason: "y"}})
	for name := range Ended(forced, End{Reason: "x", Forced: &Forced{Held: true}}).All() {
		if _, err := Attributes([]string{name + "=1"}); err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
	for name := range Running(job, running).All() {
		if _, err := Attributes([]string{name + "=1"}); err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
}

// OwnExtras are read from the whole ad, with paths relative to the working directory.
func TestOwnExtras(t *testing.T) {
	of := func(attributes ...string) (Extras, error) {
		r := &api.SubmitRequest{Name: "n", Command: "c", Attributes: attributes}
		return OwnExtras(Job(JobInfo{Number: 7, Task: 3, Submitted: time.Unix(1, 0), Request: r, Iwd: "/w"}), time.Unix(1, 0))
	}
	e, err := of(`UserLog=strcat("l.", ClusterId, ".", ProcId)`, "UserLogUseXML=true", `OutputAd="/o"`, `HookKeyword="K"`)
	if err != nil || e.UserLog != "/w/l.7.3" || !e.UserLogXML || e.OutputAd != "/o" || e.HookKeyword != "K" {
		t.Errorf("%+v, %v", e, err)
	}
	for attribute, want := range map[string]string{
		"UserLog=3":            "-attr UserLog: want a string, not the integer 3",
		`UserLog="` + "a\x1bb": `-attr: "UserLog=\"a\x1bb" is not NAME=EXPRESSION`,
		`UserLogUseXML="x"`:    `-attr UserLogUseXML: want true or false, not the string "x"`,
		"HookKeyword=1/0":      "-attr HookKeyword: division by zero",
		`OutputAd="` + strings.Repeat("x", 5000) + `"`: "-attr OutputAd: the path has 5003 bytes, at most 4095 are possible",
	} {
		_, err := of(attribute)
		if strings.Contains(want, "NAME=EXPRESSION") {
			_, err = Attributes([]string{attribute})
		}
		if err == nil || err.Error() != want {
			t.Errorf("%.60q: %v; want %s", attribute, err, want)
		}
	}
}
