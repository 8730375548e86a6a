package report

import (
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/spool"
)

// What was used is never less than nothing, whatever a host says.
func TestEnd(t *testing.T) {
	good := accounting.Record{QName: "q", Hostname: "h", Owner: "o", Group: "g", JobName: "n", Account: "a", Project: "NONE", Department: "d", GrantedPE: "NONE", Category: "NONE", PETaskID: "NONE", StartTime: 1000, EndTime: 1005, RuWallclock: 5, RuUTime: 2}
	for _, tt := range []struct {
		what   string
		change func(*accounting.Record)
		used   bool
		utime  time.Duration
	}{
		{"good", func(*accounting.Record) {}, true, 2 * time.Second},
		{"longer than a time can be", func(r *accounting.Record) { r.RuUTime = 1e17 }, true, maxRun},
		{"less than nothing", func(r *accounting.Record) { r.RuUTime = -1 }, false, 0},
		{"over before it began", func(r *accounting.Record) { r.EndTime = 999 }, false, 0},
	} {
		rec := good
		tt.change(&rec)
		line, err := accounting.Append(nil, rec)
		if err != nil {
			t.Fatal(err)
		}
		end := EndOf(&api.ActivationEnd{Accounting: strings.TrimSuffix(string(line), "\n")})
		if used := end.Used != nil; used != tt.used {
			t.Errorf("%s: it is believed: %t", tt.what, used)
		}
		if out := end.Outcome(); (out.Usage != nil) != tt.used || tt.used && out.Usage.UTime != tt.utime {
			t.Errorf("%s: %+v", tt.what, out.Usage)
		}
	}
	for _, bad := range []api.ActivationEnd{{Exit: -1}, {Exit: 1 << 40}, {Failed: -1}, {Failed: maxFailed + 1}} {
		end := EndOf(&bad)
		if out := end.Outcome(); out.Failed != spool.FailedUnexpectedError {
			t.Errorf("%+v is %+v", bad, out)
		}
	}
}

func FuzzStatusOf(f *testing.F) {
	f.Add("JobState = \"Suspended\"\nNumPids = 3\nRemoteUserCpu = 1e300\nJobStartDate = -1\nJobInfoMaxInterval = 60\n")
	f.Add("ImageSize = 1.0 / 0.0\nResidentSetSize = \"x\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, most := StatusOf(text)
		if s != nil && (s.Processes < 0 || s.SysCPU < 0 || s.UserCPU < 0 || s.ImageSize < 0 || s.ResidentSetSize < 0) || most < 0 {
			t.Errorf("%q: %+v, %v", text, s, most)
		}
	})
}
