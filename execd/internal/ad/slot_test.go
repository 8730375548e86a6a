package ad

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/classad"
)

// fullSlots are a static slot, a partitionable one and one carved out of it, of
// which everything is known.
func fullSlots() []SlotInfo {
	static := SlotInfo{
		ID: 3, Host: "h.example", Queue: "all.q", Address: "h.example:7", Version: "1.2", Started: time.Unix(100, 0),
		Now:      time.Date(2026, 11, 22, 9, 5, 59, 0, time.UTC), // a Sunday
		Platform: ThisPlatform("NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"13\"\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n# x\n"),
		State:    "Claimed", Activity: "Busy", EnteredState: time.Unix(200, 0), EnteredActivity: time.Unix(300, 0),
		Dropped: Dropped{Updates: 4, History: 1, Startd: 2, Log: 3},
		Spent:   []Spent{{"Claimed", "Busy", 90 * time.Second}, {"Owner", "Idle", time.Second}},
		Cpus:    1, Memory: 1000, Disk: 2000, TotalCpus: 8, TotalMemory: 8000, TotalDisk: 16000, TotalSlotCpus: 2, TotalSlotMemory: 3000,
		TotalSlotDisk: 4000, Pending: []Pending{{"a", 10}, {"b", 20}}, DetectedCpus: 16, DetectedMemory: 9000, TotalSlots: 5,
		Load: SlotLoad{LoadAvg: 1.5, OwnLoadAvg: 1, KeyboardIdle: 60 * time.Second, ConsoleIdle: 61 * time.Second, CpusUsage: 0.5, VirtualMemory: 77},
		Policy: []classad.Attr{
			{Name: "Start", Expr: mustParse("TARGET.Owner == \"u\"")},
			{Name: "Rank", Expr: mustParse("TARGET.JobPrio")},
			{Name: "MaxJobRetirementTime", Expr: mustParse("600")},
			{Name: "MachineMaxVacateTime", Expr: mustParse("10")},
		},
		RetirementTimeRemaining: 30, CurrentRank: 2, Draining: true,
		BrokenReason: "a process cannot be killed",
		Claim: &Claim{
			Public: "<h>#1#2", Owner: "u", User: "u@d", Holder: "fetch",
			Run: time.Minute, Suspended: time.Second,
		},
		Job: &SlotJob{
			ID: "4.1", GlobalID: "g", Universe: 5, Started: time.Unix(600, 0), Processes: 2, ImageSize: 10, ResidentSetSize: 5,
			Run: time.Minute, Suspended: time.Second,
		},
	}
	parts := static
	parts.Partitionable, parts.Job, parts.Claim, parts.TotalSlotGPUs = true, nil, nil, 3
	parts.Children = []Child{{2, "Claimed", 1, 64, 5, 3}, {4, "Preempting", 2, 128, 6, 0}}
	dynamic := static
	dynamic.Dynamic, dynamic.GPUs, dynamic.TotalSlotGPUs = 2, 3, 3
	return []SlotInfo{static, parts, dynamic}
}

func TestSlot(t *testing.T) {
	list := fullSlots()
	in := list[0]
	in.Platform = Platform{Arch: "X86_64", OpSys: "LINUX"}
	want := map[string]string{
		"MyType": `"Machine"`, "TargetType": `"Job"`, "Name": `"slot3@h.example"`, "Machine": `"h.example"`, "SlotID": "3",
		"SlotType": `"Static"`, "Queue": `"all.q"`, "StartdIpAddr": `"h.example:7"`, "MyAddress": `"h.example:7"`, "Arch": `"X86_64"`,
		"OpSys": `"LINUX"`, "CondorVersion": `"1.2"`, "DaemonStartTime": "100", "State": `"Claimed"`, "Activity": `"Busy"`,
		"FileSystemDomain": `"h.example"`, "EnteredCurrentState": "200", "EnteredCurrentActivity": "300", "MyCurrentTime": "1795338359",
		"TotalTimeClaimedBusy": "90", "TotalTimeOwnerIdle": "1", "Cpus": "1", "Memory": "1000", "Disk": "2000", "TotalCpus": "8",
		"TotalMemory": "8000", "TotalDisk": "16000", "TotalSlotCpus": "2", "TotalSlotMemory": "3000", "TotalSlotDisk": "4000", "PendingSandboxes": "2", "PendingSandboxDisk": "30", "PendingSandboxIds": `{ "a","b" }`,
		"DetectedCpus": "16", "DetectedMemory": "9000", "TotalSlots": "5", "LoadAvg": "1.5", "CondorLoadAvg": "1.0", "KeyboardIdle": "60",
		"ConsoleIdle": "61", "ClockMin": "545", "ClockDay": "0", "CpusUsage": "0.5", "VirtualMemory": "77",
		"Start": `TARGET.Owner == "u"`, "Rank": "TARGET.JobPrio", "Requirements": "START && WithinResourceLimits",
		"WithinResourceLimits": "TARGET.RequestCpus <= MY.Cpus && TARGET.RequestMemory <= MY.Memory && TARGET.RequestDisk <= MY.Disk",
		"MaxJobRetirementTime": "600", "MachineMaxVacateTime": "10", "RetirementTimeRemaining": "30", "CurrentRank": "2.0",
		"Draining": "true", "SlotBrokenReason": `"a process cannot be killed"`,
		"RemoteOwner": `"u"`, "RemoteUser": `"u@d"`, "RemoteScheddName": `"fetch"`,
		"PublicClaimId": `"<h>#1#2"`, "TotalClaimRunTime": "60", "TotalClaimSuspendTime": "1",
		"JobUpdatesDropped": "4", "HistoryDropped": "1", "StartdHistoryDropped": "2", "JobQueueLogDropped": "3",
		"JobId": `"4.1"`, "GlobalJobId": `"g"`,
		"JobUniverse": "5", "JobStart": "600", "NumPids": "2", "ImageSize": "10", "ResidentSetSize": "5", "MemoryUsage": "1", "TotalJobRunTime": "60",
		"TotalJobSuspendTime": "1",
	}
	if diff := cmp.Diff(want, attrs(Slot(in))); diff != "" {
		t.Errorf("slot (-want +got):\n%s", diff)
	}
	got := attrs(Slot(list[1]))
	for name, want := range map[string]string{
		"SlotType": `"Partitionable"`, "PartitionableSlot": "true", "NumDynamicSlots": "2", "ChildCpus": "{ 1, 2 }", "ChildMemory": "{ 64, 128 }",
		"ChildState": `{ "Claimed", "Preempting" }`, "ChildDSlotID": "{ 2, 4 }", "ChildDisk": "{ 5, 6 }", "ChildGPUs": "{ 3, 0 }",
		"GPUs": "0", "TotalSlotGPUs": "3", "DSlotID": "", "OpSysAndVer": `"Debian13"`, "OpSysMajorVer": "13", "RetirementTimeRemaining": "", "RemoteOwner": "", "JobId": "",
	} {
		if strings.ReplaceAll(got[name], " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("partitionable: %s = %s; want %s", name, got[name], want)
		}
	}
	got = attrs(Slot(list[2]))
	for name, want := range map[string]string{
		"SlotType": `"Dynamic"`, "DynamicSlot": "true", "DSlotID": "2", "Name": `"slot3_2@h.example"`, "ParentSlotName": `"slot3@h.example"`,
		"GPUs": "3", "TotalSlotGPUs": "3", "ChildState": "", "NumDynamicSlots": "",
	} {
		if got[name] != want {
			t.Errorf("dynamic: %s = %s; want %s", name, got[name], want)
		}
	}
	// One of which little is known.
	got = attrs(Slot(SlotInfo{ID: 1, Host: "h", Load: SlotLoad{KeyboardIdle: -1, ConsoleIdle: -1}}))
	for _, name := range []string{"MyAddress", "KeyboardIdle", "ConsoleIdle", "ClockMin", "MyCurrentTime", "DaemonStartTime", "JobId", "SlotBrokenReason", "TotalCpus"} {
		if v, ok := got[name]; ok {
			t.Errorf("%s = %s; want none", name, v)
		}
	}
}

// What STARTD_ATTRS adds is there, and hides nothing of the slot.
func TestSlotExtra(t *testing.T) {
	in := fullSlots()[0]
	in.Extra = []classad.Attr{{Name: "Site", Expr: mustParse(`"north"`)}, {Name: "SLOTID", Expr: mustParse("99")}, {Name: "state", Expr: mustParse(`"mine"`)}, {Name: "my-disk", Expr: mustParse("4")}}
	in.Claim.Secret = "<h>#1#2#secret"
	ad := Slot(in)
	env := &classad.Env{My: ad}
	for name, want := range map[string]string{
		"State": `"Claimed"`, "SlotID": "3", "Site": `"north"`, "my-disk": "4",
	} {
		if got := env.Attr(name).String(); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s = %s; want %s", name, got, want)
		}
	}
	if strings.Contains(ad.OldString()+ad.String(), "secret") || !strings.Contains(ad.SecretString(), "secret") {
		t.Errorf("the id of the claim is not only where it is asked for:\n%s", ad.OldString())
	}
	again, err := classad.ParseOld(ad.OldString())
	if err != nil || !again.Equal(ad.Without("ClaimId")) {
		t.Errorf("the ad read again differs: %v", err)
	}
}

// What a slot asks of a job, and a job of a slot, is decided by the ads alone.
func TestSlotAndJobMatch(t *testing.T) {
	slot := fullSlots()[0]
	job := full()
	job.Slots = 1
	for _, tt := range []struct {
		name   string
		change func(*SlotInfo, *JobInfo)
		want   bool
	}{
		{"as it is", func(s *SlotInfo, _ *JobInfo) { s.Memory = 1024; s.Disk = 2 }, true},
		{"too little memory", func(s *SlotInfo, _ *JobInfo) { s.Memory = 1023 }, false},
		{"another owner", func(s *SlotInfo, j *JobInfo) { s.Memory = 1024; j.Owner = "v" }, false},
		{"too many slots", func(s *SlotInfo, j *JobInfo) { s.Memory = 99999; j.Slots = 2 }, false},
	} {
		s, j := slot, job
		tt.change(&s, &j)
		env := classad.Env{My: Slot(s), Target: Job(j)}
		if got := env.Match(); got != tt.want {
			t.Errorf("%s: match %v; want %v", tt.name, got, tt.want)
		}
	}
}
