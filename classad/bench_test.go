package classad_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"paddock/classad"
)

// slot is an ad of 142 attributes, as a slot has them.
func slot() string {
	var b strings.Builder
	b.WriteString(`MyType = "Machine"
Name = "slot1_1@node7.example.org"
State = "Claimed"
Activity = "Idle"
Cpus = 4
Memory = 15872
Disk = 187654321
LoadAvg = 0.17
KeyboardIdle = 1873
Owner = "ann"
FriendList = { "bob","Ann","carl" }
Start = (LoadAvg < 0.3 || State =?= "Claimed") && KeyboardIdle > 15 * 60 && TARGET.RequestMemory <= MY.Memory
Requirements = Start && TARGET.RequestCpus <= Cpus && TARGET.RequestDisk <= Disk && (TARGET.Owner =!= "mallory")
Rank = (TARGET.Owner == "ann") * 10 + (TARGET.JobPrio ?: 0)
FetchWorkDelay = ifThenElse(State == "Claimed" && Activity == "Idle", 0, 300)
Suspend = LoadAvg > 1.5 && KeyboardIdle < 60
Continue = LoadAvg < 0.3
Preempt = Activity == "Suspended" && time() - EnteredCurrentActivity > 600
Kill = false
WantSuspend = TARGET.ImageSize < 1024 * 1024 && JobUniverse == 5
WantVacate = true
EnteredCurrentActivity = 999000
JobUniverse = 5
`)
	for i := range 119 {
		switch i % 4 {
		case 0:
			fmt.Fprintf(&b, "TotalTimeClaimedBusy%d = %d\n", i, i*1000)
		case 1:
			fmt.Fprintf(&b, "DetectedOpSysName%d = \"Debian GNU/Linux %d\"\n", i, i)
		case 2:
			fmt.Fprintf(&b, "HasFileTransfer%d = true\n", i)
		case 3:
			fmt.Fprintf(&b, "CondorLoadAvg%d = 0.%d\n", i, i)
		}
	}
	return b.String()
}

const job = `MyType = "Job"
ClusterId = 17
ProcId = 3
Owner = "ann"
Cmd = "/bin/sleep"
Args = "300"
ImageSize = 2500
RequestCpus = 1
RequestMemory = ifThenElse(MemoryUsage =!= undefined, MemoryUsage, (ImageSize + 1023) / 1024)
RequestDisk = 4096
Requirements = TARGET.Memory >= RequestMemory && TARGET.Disk >= RequestDisk && TARGET.Cpus >= RequestCpus && TARGET.MyType == "Machine"
Rank = TARGET.Memory
`

func TestBenchmarkAds(t *testing.T) {
	env := &classad.Env{Now: epoch, My: parseOld(t, slot()), Target: parseOld(t, job)}
	if env.My.Len() != 142 || !env.Match() {
		t.Errorf("a slot of %d attributes matches: %v; want 142, true", env.My.Len(), env.Match())
	}
	if got := env.Attr("Rank").Rank(); got != 10 {
		t.Errorf("Rank = %v; want 10", got)
	}
}

func BenchmarkParse(b *testing.B) {
	text := slot()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := classad.ParseOld(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrint(b *testing.B) {
	ad := parseOld(b, slot())
	b.ReportAllocs()
	for b.Loop() {
		_ = ad.OldString()
	}
}

func BenchmarkEvaluate(b *testing.B) {
	env := &classad.Env{Now: epoch, My: parseOld(b, slot()), Target: parseOld(b, job)}
	for _, name := range []string{"Cpus", "FetchWorkDelay", "Start", "Rank"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				env.Attr(name)
			}
		})
	}
	b.Run("policy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, name := range []string{"Start", "Suspend", "Continue", "Preempt", "Kill", "WantSuspend"} {
				env.Attr(name)
			}
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	env := &classad.Env{Now: epoch, My: parseOld(b, slot()), Target: parseOld(b, job)}
	b.ReportAllocs()
	for b.Loop() {
		if !env.Match() {
			b.Fatal("no match")
		}
	}
}

// BenchmarkResident tells what an ad takes.
func BenchmarkResident(b *testing.B) {
	const many = 200
	text := slot()
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		ads := make([]*classad.Ad, many)
		for i := range ads {
			ads[i] = parseOld(b, strings.Clone(text))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/many, "B/ad")
		runtime.KeepAlive(ads)
	}
}

// BenchmarkHostile tells what the worst of users costs.
func BenchmarkHostile(b *testing.B) {
	for name, text := range hostile {
		ad := parseAd(b, text)
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			env := &classad.Env{My: ad, Now: epoch}
			for b.Loop() {
				env.Attr("x")
			}
		})
	}
}
