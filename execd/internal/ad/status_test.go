package ad

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/classad"
)

// attrs returns what an ad says, by name.
func attrs(ad *classad.Ad) map[string]string {
	m := map[string]string{}
	for name, e := range ad.All() {
		m[name] = e.OldString()
	}
	return m
}

var running = Status{
	PID: 4711, Processes: 4, Started: time.Unix(1_700_000_000, 5), SysCPU: 1500 * time.Millisecond, UserCPU: 20 * time.Second,
	ImageSize: 2048, ResidentSetSize: 1024,
}

// REQ-HOOK-40, REQ-HOOK-42, REQ-HOOK-43, REQ-HOOK-44, REQ-HOOK-45, REQ-HOOK-46, REQ-HOOK-47:
// what the ad of a job that runs has more, and REQ-HOOK-54: nothing of its end,
// not even of an earlier run's.
func TestRunning(t *testing.T) {
	job := parse(t, "Cmd = \"/bin/a\"\njobstate = \"Old\"\nExitCode = 3\nexitsignal = 9\nExitReason = \"x\"\nExitBySignal = true\nJobDuration = 2\n")
	want := map[string]string{
		"Cmd": `"/bin/a"`, "jobstate": `"Running"`, "JobStatus": "2", "JobPid": "4711", "NumPids": "4", "JobStartDate": "1700000000",
		"RemoteSysCpu": "1.5", "RemoteUserCpu": "20.0", "ImageSize": "2048", "ResidentSetSize": "1024",
	}
	if diff := cmp.Diff(want, attrs(Running(job, running))); diff != "" {
		t.Errorf("running (-want +got):\n%s", diff)
	}
	suspended := running
	suspended.Suspended = true
	got := attrs(Running(job, suspended))
	if got["jobstate"] != `"Suspended"` || got["JobStatus"] != "7" {
		t.Errorf("suspended: JobState %s, JobStatus %s", got["jobstate"], got["JobStatus"])
	}
	got = attrs(Running(parse(t, "JobPid = 7\nResidentSetSize = \"x\"\n"), Status{}))
	for _, name := range []string{"JobPid", "JobStartDate", "ResidentSetSize"} {
		if v, ok := got[name]; ok {
			t.Errorf("%s = %s of a job of which it is not known", name, v)
		}
	}
}

// REQ-HOOK-50, REQ-HOOK-54, REQ-HOOK-55, REQ-HOOK-56, REQ-HOOK-57, REQ-HOOK-58, REQ-HOOK-59:
// how it ended, with the signal or the exit code and never both.
func TestEnded(t *testing.T) {
	job := parse(t, "Cmd = \"/bin/a\"\nExitCode = 7\nExitSignal = 7\n")
	common := map[string]string{
		"Cmd": `"/bin/a"`, "JobState": `"Exited"`, "JobStatus": "4", "JobPid": "4711", "NumPids": "4", "JobStartDate": "1700000000",
		"RemoteSysCpu": "1.5", "RemoteUserCpu": "20.0", "ImageSize": "2048", "ResidentSetSize": "1024",
		"ExitReason": `"it \"ended\""`, "JobDuration": "2.5",
	}
	for _, tt := range []struct {
		name string
		end  End
		more map[string]string
	}{
		{"exit code", End{ExitCode: 3}, map[string]string{"ExitBySignal": "false", "ExitCode": "3", "JobCoreDumped": "false"}},
		{"well", End{}, map[string]string{"ExitBySignal": "false", "ExitCode": "0", "JobCoreDumped": "false"}},
		{"signal", End{Signal: 9, ExitCode: 137}, map[string]string{"ExitBySignal": "true", "ExitSignal": "9", "JobCoreDumped": "false"}},
		{"core", End{Signal: 11, Core: true}, map[string]string{"ExitBySignal": "true", "ExitSignal": "11", "JobCoreDumped": "true"}},
	} {
		tt.end.Status, tt.end.Reason, tt.end.Duration = running, `it "ended"`, 2500*time.Millisecond
		want := map[string]string{}
		for _, m := range []map[string]string{common, tt.more} {
			maps.Copy(want, m)
		}
		if diff := cmp.Diff(want, attrs(Ended(job, tt.end))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
