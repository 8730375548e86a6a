package match

import (
	"strings"
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/conf"
)

func search(t *testing.T, text string, steps int) *Search {
	t.Helper()
	ad, err := classad.ParseOld(text)
	if err != nil {
		t.Fatal(err)
	}
	return &Search{Config: &conf.Config{}, Request: &api.SubmitRequest{}, Ad: ad, Domain: "cluster", Now: time.Unix(1000, 0), Steps: &steps}
}

// A slot is found where both ads agree, and else it is said what they do not agree on.
func TestBest(t *testing.T) {
	const good = "Start = TARGET.RequestCpus < 9\nFileSystemDomain = \"cluster\"\nCpus = 4\n"
	for _, tt := range []struct {
		what  string
		ad    string
		why   string
		state bool // it is for what the slot has by now
	}{
		{what: "both agree", ad: good},
		{what: "START", ad: strings.Replace(good, "9", "2", 1), why: "START is false"},
		{what: "another file system", ad: strings.Replace(good, "cluster", "other", 1), why: "FILESYSTEM_DOMAIN is another one"},
		{what: "Requirements", ad: good + "Arch = \"arm\"\n", why: "the job's Requirements are not met"},
		{what: "enough is left", ad: good + "PartitionableSlot = true\n"},
		{what: "too little is left", ad: strings.Replace(good, "4", "1", 1) + "PartitionableSlot = true\n", why: "too little Cpus is left", state: true},
		{what: "no ad", ad: "["},
		{what: "too large", ad: good + strings.Repeat("A = 1\n", maxAd/6)},
	} {
		reply := api.SlotsReply{Slots: []api.SlotStatus{{Slot: "1", Queue: "all.q", State: "Unclaimed", Activity: "Idle", Ad: tt.ad}}}
		slots, queues := Slots(&reply)
		best, why, state := search(t, "RequestCpus = 2\nRequirements = TARGET.Arch =!= \"arm\"\n", 1000).Best("node", slots)
		if found := best != nil; found != (len(slots) == 1 && tt.why == "") || why != tt.why || state != tt.state || found && queues[best.Name] != "all.q" {
			t.Errorf("%s: %v, %q, %t of %d slots in %q", tt.what, best, why, state, len(slots), queues)
		}
	}
}

// What is carved for one job is not there for the next, and what no expression says is not there.
func TestCarve(t *testing.T) {
	left, n := LeftOvers("Start = true\nFileSystemDomain = \"cluster\"\nPartitionableSlot = true\nCpus = 5\n"), 0
	for s := search(t, "RequestCpus = 2\nRequirements = true\n", 1000); ; n++ {
		next := s.Carve(left)
		if next == nil {
			break
		}
		left = next
	}
	if has, _ := (&classad.Env{My: left}).Attr("Cpus").Number(); n != 2 || has != 1 {
		t.Errorf("%d slots are carved, and %v processors are left", n, has)
	}
	for _, bad := range []string{"[", strings.Repeat("A = 1\n", maxAd)} {
		if s := search(t, "RequestCpus = 0\nRequirements = true\n", 1000); s.Carve(LeftOvers(bad)) != nil {
			t.Errorf("a slot is carved out of %.10q", bad)
		}
	}
}

// An expression that costs more than is left matches nothing.
func TestSteps(t *testing.T) {
	slots := []Slot{{ad: LeftOvers("Start = true\nFileSystemDomain = \"cluster\"\n")}}
	s := search(t, "Requirements = TARGET.A + TARGET.A + TARGET.A + TARGET.A is undefined\n", 5)
	if best, why, _ := s.Best("node", slots); best != nil || *s.Steps > 0 {
		t.Errorf("%v, %q, %d steps are left", best, why, *s.Steps)
	}
}
