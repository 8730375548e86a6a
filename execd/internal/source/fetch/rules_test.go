package fetch

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob"
)

func mustAd(t *testing.T, text string) *classad.Ad {
	t.Helper()
	ad, err := classad.ParseOld(text)
	if err != nil {
		t.Fatal(err)
	}
	return ad
}

func mustKnobs(t *testing.T, text string) *knob.Set {
	t.Helper()
	set, problems := knob.Parse("hooks.conf", text)
	if slices.ContainsFunc(problems, func(p knob.Problem) bool { return !p.Warning }) {
		t.Fatal(problems)
	}
	return set
}

// Who fetched work may be.
func TestOwners(t *testing.T) {
	tests := []struct {
		self   int
		owners string
		ad     string
		want   string // name, or part of the error
	}{
		{1000, "", ``, "me"},
		{1000, "", `Owner = "me"`, "me"},
		{1000, "*", `Owner = "other"`, "me"}, // who is named counts as root alone
		{1000, "*", `Owner = "root"`, "me"},
		{1000, "", `Owner = 5`, "me"},
		{-1, "*", `Owner = 5`, "no string"},
		{0, "", ``, "root"}, // execd -dev of root is root's own
		{-1, "", `Owner = "me"`, "none of FETCH_OWNERS"},
		{-1, "me", ``, "no Owner"},
		{-1, "me", `Owner = "me"`, "me"},
		{-1, "m*, oth?r", `Owner = "other"`, "other"},
		{-1, "m*", `Owner = "other"`, "none of FETCH_OWNERS"},
		{-1, "*", `Owner = "root"`, "is root"},
		{-1, "*", `Owner = "toor"`, "is root"},
		{-1, "*", `Owner = "paddock"`, "is the account of hooks"},
		{-1, "*", `Owner = "low"`, "at least 100 is needed"},
		{-1, "*", `Owner = "nobody-at-all"`, "unknown user"},
		{-1, "*", `Owner = "../me"`, "none of FETCH_OWNERS"},
		{-1, "*", `Owner = ""`, "unknown user"},
		// A configuration with such a pattern is refused; none of its own names anybody.
		{-1, "[", `Owner = "me"`, "none of FETCH_OWNERS"},
		{-1, "[me", `Owner = "[me"`, "none of FETCH_OWNERS"},
		{-1, "*[", `Owner = "me"`, "none of FETCH_OWNERS"},
	}
	for _, tt := range tests {
		o := Owners{Users: users, Self: tt.self}
		knobs, _ := knob.Parse("hooks.conf", "FETCH_OWNERS = "+tt.owners)
		for range 5 { // a map of users has two of uid 0
			u, err := o.of(context.Background(), mustAd(t, tt.ad), &conf.Config{Knobs: knobs, Global: conf.Global{MinUID: 100}})
			switch {
			case err != nil && !strings.Contains(err.Error(), tt.want):
				t.Errorf("%+v: %v", tt, err)
			case err == nil && u.Name != tt.want && u.UID != tt.self:
				t.Errorf("%+v: user %s", tt, u.Name)
			}
		}
	}
}

// POLICY-FetchWorkDelay, REQ-HOOK-71, REQ-HOOK-72, REQ-HOOK-73, REQ-HOOK-75: what
// FetchWorkDelay means.
func TestDelay(t *testing.T) {
	slot, running := "State = \"Claimed\"\nActivity = \"Busy\"\n", "JobPause = 7\n"
	tests := []struct {
		knob     string
		job      string
		want     time.Duration
		changing bool
		problem  bool
	}{
		{"", "", 300 * time.Second, false, false},
		{"0", "", 0, false, false},
		{"-5", "", 0, false, false},
		{"120", "", 120 * time.Second, false, false},
		{"2.5", "", 300 * time.Second, false, true},
		{`"10"`, "", 300 * time.Second, false, true},
		{"true", "", 300 * time.Second, false, true},
		{"1/0", "", 300 * time.Second, false, true},
		{"undefined", "", 300 * time.Second, false, false},
		{`State == "Claimed" && Activity == "Idle" ? 0 : 300`, "", 300 * time.Second, false, false},
		{"TARGET.JobPause", running, 7 * time.Second, false, false},
		{"TARGET.JobPause", "", 300 * time.Second, false, false},
		{`MY.State == "Claimed" ? 5 : 9`, running, 5 * time.Second, false, false},
		{"9223372036854775807", "", maxDelay, false, false},
		{"time() % 1 + 4", "", 4 * time.Second, true, false},
		{"LoadAvg > 1 ? 5 : 6", "", 300 * time.Second, true, false},
		{"ClockMin > 0 ? 5 : 6", "", 300 * time.Second, true, false},
	}
	for _, tt := range tests {
		knobs := ""
		if tt.knob != "" {
			knobs = "FetchWorkDelay = " + tt.knob + "\n"
		}
		var job *classad.Ad
		if tt.job != "" {
			job = mustAd(t, tt.job)
		}
		got, changing, problem := delay(mustKnobs(t, knobs), mustAd(t, slot), job, time.Unix(1e9, 0))
		if got != tt.want || changing != tt.changing || (problem != "") != tt.problem {
			t.Errorf("%+v: %v, changing %v, %q", tt, got, changing, problem)
		}
	}
}

// An answer is an ad, nothing or worthless, whatever it is; the log gets one short
// line of it.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "\n", "A = 1\n", "A = 1\nB", "A = \"\x00\"", "A = \xff", "# x", "A = 1\r\nB = 2\r\n", strings.Repeat("(", 10000), "A =\nB = 2", "Script = \"exit\"", "script=eval(\"\\\"a\\n\\\"\")\nA = 1", "Script == 1", "Script = x\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		ad, script, err := parse(text)
		if err != nil && (ad != nil || len(err.Error()) > 300 || strings.ContainsAny(err.Error(), "\n\r\x00")) {
			t.Errorf("%q: %v, %q", text, ad, err)
		}
		if script != nil && (len(script) == 0 || ad == nil) {
			t.Errorf("%q: script %q with the ad %v", text, script, ad)
		}
		if ad != nil && ad.Len() == 0 && script == nil {
			t.Errorf("%q: an empty ad", text)
		}
	})
}

// What is wrong with an answer is told to everybody; what stands in it is not.
func TestAnswersAreNotRepeated(t *testing.T) {
	for _, text := range []string{"Environment = = \"PASSWORD=hunter2\"", "A = hunter2 hunter2", "A = 1 'hunter2'", "Script = hunter2"} {
		_, _, err := parse([]byte("Cmd = \"/bin/true\"\n" + text))
		if err == nil || strings.Contains(err.Error(), "hunter") || !strings.Contains(err.Error(), "line 2: ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
