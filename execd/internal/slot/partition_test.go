package slot

import (
	"strings"
	"testing"
	"time"

	"paddock/classad"
)

func adOf(t testing.TB, text string) *classad.Ad {
	t.Helper()
	ad, err := classad.ParseAd("[" + text + "]")
	if err != nil {
		t.Fatal(err)
	}
	return ad
}

// TestPartitionRequest: PSLOT: requests are rounded up, missing ones have
// defaults, and REQ-HOOK-106: fetched work must name its own.
func TestPartitionRequest(t *testing.T) {
	slot := adOf(t, "Memory = 16000; Cpus = 8; TotalSlotMemory = 16000; TotalSlotCpus = 8")
	for _, test := range []struct {
		knobs   testKnobs
		job     string
		fetched bool
		want    Resources
		err     string
	}{
		{nil, "", false, Resources{1, 128, 1024, 0}, ""},
		{nil, "RequestCpus = 3; RequestMemory = 129; RequestDisk = 1025; RequestGPUs = 2", true, Resources{3, 256, 2048, 2}, ""},
		{nil, "RequestCpus = 1.5; RequestMemory = 128; RequestDisk = 1024", true, Resources{2, 128, 1024, 0}, ""},
		{nil, "RequestCpus = 0; RequestMemory = 0", false, Resources{1, 128, 1024, 0}, ""},
		{nil, "RequestMemory = TARGET.TotalSlotMemory / 2", false, Resources{1, 8064, 1024, 0}, ""},
		{testKnobs{"MODIFY_REQUEST_EXPR_REQUESTMEMORY": "max({2000, RequestMemory})"}, "RequestMemory = 7", false, Resources{1, 2000, 1024, 0}, ""},
		{testKnobs{"MODIFY_REQUEST_EXPR_REQUESTCPUS": "TARGET.Cpus", "MODIFY_REQUEST_EXPR_REQUESTDISK": "7"}, "", false, Resources{8, 128, 7, 0}, ""},
		{testKnobs{"MODIFY_REQUEST_EXPR_REQUESTCPUS": "0"}, "", false, Resources{}, "RequestCpus is 0, which is none of 1 to"},
		{nil, "RequestCpus = -1", false, Resources{}, "RequestCpus is -1"},
		{nil, `RequestMemory = "lots"`, false, Resources{}, "RequestMemory is an error: string is no number"},
		{nil, "RequestDisk = 1.0e300", false, Resources{}, "RequestDisk is "},
		{nil, "RequestGPUs = undefined", false, Resources{}, "RequestGPUs is undefined"},
		{nil, "RequestCpus = 1; RequestMemory = 1", true, Resources{}, "the work has no RequestDisk"},
	} {
		p := NewPartitionable(NewPolicy(test.knobs), Resources{8, 16000, 1 << 20, 0})
		got, err := p.Request(adOf(t, test.job), slot, test.fetched)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v", test.job, err)
			}
			continue
		}
		if err != nil || got != test.want {
			t.Errorf("%v %s: %+v, %v; want %+v", test.knobs, test.job, got, err, test.want)
		}
	}
	if p := NewPartitionable(NewPolicy(nil), Resources{}); p.Left() != (Resources{}) {
		t.Error("something is left of nothing")
	}
}

// TestPartition: PSLOT: slots are carved as long as something is left, which comes
// back with them; only who has claimed the slot may carve.
func TestPartition(t *testing.T) {
	total := Resources{4, 1000, 5000, 1}
	p := NewPartitionable(NewPolicy(nil), total)
	carve := func(r Resources, want string) Dynamic {
		t.Helper()
		d, err := p.Carve(epoch, "cat", r)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Fatalf("%+v: %v; want %s", r, err, want)
		}
		return d
	}
	a := carve(Resources{1, 300, 1000, 0}, "")
	b := carve(Resources{2, 300, 1000, 1}, "")
	if a.Number != 1 || b.Number != 2 || p.Left() != (Resources{1, 400, 3000, 0}) || p.Dynamic() != 2 {
		t.Errorf("%+v %+v left %+v", a, b, p.Left())
	}
	carve(Resources{2, 1, 1, 0}, "too little Cpus is left")
	carve(Resources{1, 401, 1, 0}, "too little Memory is left")
	carve(Resources{1, 1, 3001, 0}, "too little Disk is left")
	carve(Resources{1, 1, 1, 1}, "too little GPUs is left")
	carve(Resources{0, 1, 1, 0}, "0 Cpus are requested")
	carve(Resources{1, -1, 1, 0}, "-1 Memory are requested")
	if p.Left() != (Resources{1, 400, 3000, 0}) {
		t.Errorf("a refusal leaves %+v", p.Left())
	}
	if !p.Return(1) || p.Return(1) || p.Return(9) {
		t.Error("returned twice")
	}
	if c := carve(Resources{1, 1, 1, 0}, ""); c.Number != 1 {
		t.Errorf("%+v is the next", c)
	}
	if !p.Return(1) || !p.Return(2) || p.Left() != total {
		t.Errorf("%+v is left in the end", p.Left())
	}

	// The slot itself is claimed.
	if !p.Claim(epoch, "dog", 5*PartitionableLease) || p.Claim(epoch, "cat", time.Hour) || !p.Claim(epoch, "dog", 0) {
		t.Error("the claim is not one holder's")
	}
	carve(Resources{1, 1, 1, 0}, "it is claimed by dog")
	if _, err := p.Carve(epoch.Add(PartitionableLease), "cat", Resources{1, 1, 1, 0}); err != nil {
		t.Error(err)
	}
	p.Release("cat")
	carve(Resources{1, 1, 1, 0}, "it is claimed by dog")
	p.Release("dog")
	carve(Resources{1, 1, 1, 0}, "")

	// After a restart with less.
	p = NewPartitionable(NewPolicy(nil), total)
	if err := p.Restore(Dynamic{Number: 2, Resources: Resources{3, 900, 1, 0}}); err != nil {
		t.Error(err)
	}
	if err := p.Restore(Dynamic{Number: 2}); err == nil {
		t.Error("restored twice")
	}
	p.Resize(Resources{2, 1000, 5000, 1}, maxAmount)
	if p.Left() != (Resources{0, 100, 4999, 1}) || p.total.Cpus != 2 {
		t.Errorf("%+v is left", p.Left())
	}
	carve(Resources{1, 1, 1, 0}, "too little Cpus is left")
	p.Return(2)
	if p.Left() != (Resources{2, 1000, 5000, 1}) {
		t.Errorf("%+v is left", p.Left())
	}
}
