package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
)

// Garbage at every place of the spool: execd starts, sets aside what it cannot
// read, and goes on with the rest. Nothing is deleted.
func TestGarbageEverywhere(t *testing.T) {
	base := t.TempDir()
	build(t, base, "shepherd")
	const (
		head    = `{"format":1,"job":%,"owner":"root","uid":0,"group":"root","gid":0,"submitted":"2026-11-21T08:00:00Z","request":{"name":"j","command":"true","binary":true,"tasks":{"first":1,"last":3,"step":1}}}` + "\n"
		deleted = `{"event":"deleted","tasks":"1-2:1","time":"2026-11-21T08:00:00Z"}` + "\n"
	)
	record := func(number, rest string) string { return strings.ReplaceAll(head, "%", number) + rest }
	for _, tt := range []struct {
		place, text string
		kept        string // name in corrupt/; empty: nothing is set aside
	}{
		{"jobs/garbage", "x", "garbage"},
		{"jobs/07", "x", "07"},
		{"jobs/7", "\x00\xff", "7"},
		{"jobs/8", "", "8"},
		{"jobs/9", record("10", ""), "9"},
		{"jobs/11", record("11", deleted+"garbage\n"), "11"},
		{"jobs/12", record("12", deleted+deleted), ""}, // repeated after a failed sync
		{"jobs/13", record("13", deleted+`{"event":"done","tasks":"3"}`+"\n"), "13"},
		{"jobs/14/file", "a directory", "14"},
		{"job_scripts/999", "a script without a job", ""},
		{"job_seq_num", "many\n", "job_seq_num"},
		{"format", "one\n", "format"},
		{"queues", "disabled\n", "queues"},
		{"shares", "many\n", "shares"},
		{"staging/garbage", "x", "garbage"},
		{"staging/20.1.0/config", "half made", ""},
		{"active_jobs/garbage", "x", "garbage"},
		{"active_jobs/0.1/config", "x", "0.1"},
		{"active_jobs/21.1/config", "of no job", "21.1"},
		{"active_jobs/22.1", "a file", "22.1"},
		{"finished/garbage", "x", "garbage"},
		{"finished/23.1/config", "x", "23.1"},
		{"finished/.half/config", "x", ""},
	} {
		t.Run(strings.ReplaceAll(tt.place, "/", "_"), func(t *testing.T) {
			dir := filepath.Join(base, "pd")
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(api.DevPlaces(dir).Spool, tt.place)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			p := startExecd(t, dir, 0)
			defer p.kill()
			var reply api.SubmitReply
			if !p.call(t, api.VerbSubmit, api.SubmitRequest{Name: "ok", Command: "/bin/true", Binary: true, Stdout: "/dev/null", Merge: true}, &reply) {
				t.Fatalf("execd died:\n%s", p.log)
			}
			if !p.wait(t, reply.Job) || lines(t, api.DevPlaces(dir).Accounting, ":ok:") != 1 {
				t.Errorf("the job did not end well:\n%s", p.log)
			}
			entries, err := os.ReadDir(filepath.Join(api.DevPlaces(dir).Spool, "corrupt"))
			if err != nil {
				t.Fatal(err)
			}
			var kept []string
			for _, e := range entries {
				kept = append(kept, e.Name())
			}
			p.kill() // so that its log is whole
			if got := strings.Join(kept, " "); got != tt.kept {
				t.Errorf("corrupt/ has %q; want %q\n%s", got, tt.kept, p.log)
			}
			log := p.log.String()
			// A busy host may be late with a file system, which is another warning.
			if n := strings.Count(log, " W ") - strings.Count(log, "does not answer: slots tell"); tt.kept != "" && n != 1 {
				t.Errorf("want one warning:\n%s", p.log)
			}
		})
	}
}

// Nobody knows which tasks of a job with a damaged record have run, so none is
// started: they wait for somebody to look.
func TestDamagedRecordStartsNothing(t *testing.T) {
	base := t.TempDir()
	build(t, base, "shepherd")
	dir := filepath.Join(base, "pd")
	file := filepath.Join(api.DevPlaces(dir).Spool, "jobs", "5")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	ran := filepath.Join(dir, "ran")
	text := `{"format":1,"job":5,"owner":"root","uid":0,"group":"root","gid":0,"submitted":"2026-11-21T08:00:00Z","request":{"name":"j","command":"/bin/touch","args":["` + ran + `"],"binary":true,"tasks":{"first":1,"last":3,"step":1}}}` + "\n" +
		`{"event":"deleted","tasks":"1","time":"2026-11-21T08:00:00Z"}` + "\n???\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // and again from the record that was mended
		p := startExecd(t, dir, 0)
		var jobs api.JobsReply
		p.call(t, api.VerbJobs, api.JobsRequest{Users: []string{"*"}}, &jobs)
		if len(jobs.Jobs) != 1 || jobs.Jobs[0].State != "Eqw" || jobs.Jobs[0].Tasks != "2,3" || !strings.Contains(jobs.Jobs[0].Reason, "record of the job was damaged") {
			t.Errorf("jobs = %+v; want tasks 2 and 3 in error", jobs.Jobs)
		}
		p.kill()
	}
	p := startExecd(t, dir, 0)
	defer p.kill()
	var reply api.DeleteReply
	p.call(t, api.VerbDelete, api.DeleteRequest{Jobs: []string{"5"}}, &reply)
	if len(reply.Lines) != 1 || reply.Lines[0].Failed {
		t.Errorf("qdel: %+v; want one line", reply.Lines)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a task of the damaged job was started")
	}
}

// Another format is in order for another version: execd must not start, and
// must not touch it.
func TestOtherFormatIsRefused(t *testing.T) {
	base := t.TempDir()
	build(t, base, "shepherd")
	for place, c := range map[string]struct{ text, want string }{
		"jobs/5":     {`{"format":2,"job":5}` + "\n", "job 5: format not supported: the record has 2, this execd reads 1"},
		"claims/1.1": {`{"format":2,"slots":[1]}` + "\n", "claims/1.1: format not supported: the claim has 2, this execd reads 1"},
		"format":     {"3\n", "format not supported: the spool has 3, this execd uses 2"},
	} {
		dir := filepath.Join(base, filepath.Base(place))
		file := filepath.Join(api.DevPlaces(dir).Spool, place)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		p := startExecd(t, dir, 0)
		select {
		case <-p.dead:
		case <-time.After(time.Minute):
			p.kill()
			t.Fatalf("%s: execd runs", place)
		}
		if !strings.Contains(p.log.String(), c.want) {
			t.Errorf("%s: log: %s; want %q", place, p.log, c.want)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != c.text {
			t.Errorf("%s was touched: %q, %v", place, got, err)
		}
	}
}
