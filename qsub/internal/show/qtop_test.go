package show

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/qsub/internal/output"
)

func topJob(job int, tasks, queue string, cpu, rss float64) api.TopJob {
	j := api.TopJob{JobStatus: api.JobStatus{
		Job: job, Name: "a-very-long-name", Owner: "somebody-else", State: "r", Queue: queue, Slots: 1, Tasks: tasks,
		Time: time.Unix(int64(1000-job), 0),
	}}
	if queue == "" {
		j.State = "qw"
		return j
	}
	j.Usage = &api.Usage{CPU: cpu, Wallclock: 100, RSS: rss, MaxRSS: 2 * rss}
	return j
}

// Above the table stands whose jobs are in it, also when others were asked for a moment ago.
func TestTopSummaryUsers(t *testing.T) {
	s := &top{view: &topView{users: []string{"later"}}, rates: rates{}}
	for _, users := range [][]string{nil, {"now"}} {
		s.take(&api.TopReply{}, users, time.Unix(1100, 0))
		text := strings.Join(s.summary(), "\n")
		if strings.Contains(text, "later") || strings.Contains(text, "jobs of now") != (users != nil) {
			t.Errorf("with the jobs of %q: %s", users, text)
		}
	}
}

// Of a pilot it is said of which job, and when it ends, beside the slots in 80 columns.
func TestTopPilot(t *testing.T) {
	now := time.Date(2026, 11, 28, 9, 49, 33, 0, time.UTC)
	for want, p := range map[string]*api.Pilot{
		"slots: 12 of 16 used":                     nil,
		"slots: 12 of 16 used; pilot":              {Scheduler: "none"},
		"slots: 12 of 16 used; pilot of ge job 17": {Scheduler: "ge", Job: "17"},
		"slots: 12 of 16 used; pilot of slurm job 17420, ends at 11:49:34, 2h00m left":         {Scheduler: "slurm", Job: "17420", Ends: now.Add(2*time.Hour + time.Second)},
		"slots: 12 of 16 used; pilot of slurm job 17, ends at 2026-11-29 23:49:33, 1d14h left": {Scheduler: "slurm", Job: "17", Ends: now.Add(38 * time.Hour)},
		"slots: 12 of 16 used; pilot of slurm job 17, ends at 09:49:32, 0s left":               {Scheduler: "slurm", Job: "17", Ends: now.Add(-time.Second)},
	} {
		s := &top{view: &topView{}, rates: rates{}}
		s.take(&api.TopReply{Used: 12, Slots: 16, Pilot: p}, nil, now)
		if got := s.summary()[2]; got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}

// The table has its columns in 80, in the order that was asked for, with what
// waits at the end.
func TestTopRows(t *testing.T) {
	reply := api.TopReply{Host: "h", Jobs: []api.TopJob{
		topJob(1, "", "all.q@h", 50, 1<<30), topJob(2, "7", "all.q@h", 150, 1<<20), topJob(3, "12", "all.q@h", 10, 5000), topJob(4, "1-100:3", "", 0, 0),
	}}
	s := &top{view: &topView{by: byCPU}, rates: rates{}}
	s.take(&reply, nil, time.Unix(1100, 0))
	l := s.layout(80)
	want := []string{
		"      2.7 somebod+ a-very-lon r         1  150.0   1.0M   2.0M  1m42s all.q",
		"        1 somebod+ a-very-lon r         1   50.0   1.0G   2.0G  1m41s all.q",
		"     3.12 somebod+ a-very-lon r         1   10.0   4.9K   9.8K  1m43s all.q",
		"4.1-100:3 somebod+ a-very-lon qw        1                       1m44s",
	}
	if diff := cmp.Diff(want, s.rows(l)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Of output that travels the table shows how far it is, how fast and for how long.
	sending := topJob(5, "", "all.q@h", 0, 0)
	sending.State, sending.Usage = "to", nil
	sending.Transfer = &api.Transfer{Output: true, Bytes: 400 << 20, Total: 1000 << 20, Files: 3, Since: time.Unix(1090, 0), Attempt: 1}
	queued, stuck := sending, sending
	queued.Transfer = &api.Transfer{Output: true, Since: time.Unix(1090, 0), Queued: true, Attempt: 2}
	stuck.State, stuck.Transfer = "Eto", &api.Transfer{Output: true, Attempt: 1, Failure: "no"}
	for row, j := range map[string]*api.TopJob{
		"        5 somebod+ a-very-lon to        1      40% 40.0M/s 15s  1m45s all.q": &sending,
		"        5 somebod+ a-very-lon to        1               queued  1m45s all.q": &queued,
		"        5 somebod+ a-very-lon Eto       1                       1m45s all.q": &stuck,
	} {
		if got := s.row(l, j); got != row {
			t.Errorf("%q; want %q", got, row)
		}
	}
	for text, x := range map[string]*api.Transfer{
		"400.0M of 1.0G, 40.0M/s, 15 s left, attempt 1": sending.Transfer, "0, attempt 2, waits for its turn": queued.Transfer, "0, attempt 1, waits, last: no": stuck.Transfer,
	} {
		if got := transferText(x, time.Unix(1100, 0)); got != text {
			t.Errorf("qstat -j: %q; want %q", got, text)
		}
	}
	s.reply.Sending, s.reply.Stuck = 2, 1
	if got := s.summary()[2]; got != "slots: 0 of 0 used; output: 2 on its way, 1 stuck" {
		t.Errorf("%q", got)
	}
	for key, order := range map[topKey]string{byCPU: "2 1 3 4", byMem: "1 2 3 4", byTime: "3 2 1 4", byJob: "1 2 3 4"} {
		for _, reverse := range []bool{false, true} {
			s.view.by, s.view.reverse = key, reverse
			var got []string
			for _, row := range s.rows(l) {
				id, _, _ := strings.Cut(strings.Fields(row)[0], ".")
				got = append(got, id)
			}
			want := strings.Fields(order)
			if reverse {
				want[0], want[2] = want[2], want[0]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("sorted by %c, reverse %v (-want +got):\n%s", key, reverse, diff)
			}
		}
	}
}

// What a terminal is wider than 80 columns goes to what is cut, first to the queue
// and the name.
func TestTopLayout(t *testing.T) {
	reply := api.TopReply{Host: "h", Jobs: []api.TopJob{topJob(1, "", "a-long-queue.q@h", 50, 1<<30), topJob(4, "1-100:3,200", "", 0, 0)}}
	s := &top{view: &topView{by: byCPU}, rates: rates{}}
	s.take(&reply, nil, time.Unix(1100, 0))
	for columns, want := range map[int]string{
		40:  "        1 somebod+ a-very-lon r         1   50.0   1.0G   2.0G  1m41s a-long-queue.q",
		84:  "        1 somebod+ a-very-lon r         1   50.0   1.0G   2.0G  1m41s a-long-queue.q",
		87:  "        1 somebod+ a-very-long-n r         1   50.0   1.0G   2.0G  1m41s a-long-queue.q",
		92:  "        1 somebody-+ a-very-long-name r         1   50.0   1.0G   2.0G  1m41s a-long-queue.q",
		200: "            1 somebody-else a-very-long-name r         1   50.0   1.0G   2.0G  1m41s a-long-queue.q",
	} {
		l := s.layout(columns)
		if diff := cmp.Diff(want, s.rows(l)[0]); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", columns, diff)
		}
		if n := len(want); columns >= 84 && n > columns {
			t.Errorf("%d columns: a row has %d", columns, n)
		}
		if at := strings.Index(l.header(), "STATE"); at != l.state() || want[at] != 'r' {
			t.Errorf("%d columns: the state begins at %d; want %d", columns, at, l.state())
		}
	}
}

// Names that have two cells a character leave every column where it is, and the state its colour.
func TestTopWide(t *testing.T) {
	j := topJob(1, "", "all.q@h", 50, 1<<30)
	j.Owner, j.Name = "日本語日本語", "分子動力学計算"
	s := &top{view: &topView{by: byCPU}, rates: rates{}}
	s.take(&api.TopReply{Host: "h", Jobs: []api.TopJob{j}}, nil, time.Unix(1100, 0))
	for columns, want := range map[int]string{
		80:  "        1 日本語+  分子動力学 r         1   50.0   1.0G   2.0G  1m41s all.q",
		200: "        1 日本語日本語 分子動力学計算 r         1   50.0   1.0G   2.0G  1m41s all.q",
	} {
		l := s.layout(columns)
		row := s.rows(l)[0]
		if row != want || output.Width(row[:strings.Index(row, " r ")+1]) != l.state() {
			t.Errorf("%d columns: %q; want %q, and the state at %d", columns, row, want, l.state())
		}
		if got, want := colourState(row, l.state()), strings.Replace(row, " r ", " "+output.Colour(output.StateColour("r"), "r")+" ", 1); got != want {
			t.Errorf("%d columns: %q; want %q", columns, got, want)
		}
	}
}

// What is shown is the share of the last ten seconds, also when execd has looked
// less often.
func TestRates(t *testing.T) {
	r := rates{}
	at := time.Unix(0, 0)
	look := func(seconds int, cpu float64) float64 {
		j := topJob(1, "", "q@h", cpu, 0)
		r.take(&api.TopReply{Jobs: []api.TopJob{j}}, at.Add(time.Duration(seconds)*time.Second))
		return r.of(&j)
	}
	for _, tt := range []struct {
		seconds   int
		cpu, want float64
	}{{0, 30, 30}, {2, 32, 100}, {4, 32, 50}, {6, 36, 100}, {12, 36, 40}, {30, 36, 0}, {32, 20, 0}} {
		if got := look(tt.seconds, tt.cpu); got != tt.want {
			t.Errorf("after %d s with %v s: %v %%; want %v", tt.seconds, tt.cpu, got, tt.want)
		}
	}
	r.take(&api.TopReply{}, at)
	if len(r) != 0 {
		t.Errorf("%d tasks that are over are remembered", len(r))
	}
}

func TestSizeText(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 999: "999", 1000: "1.0K", 1 << 20: "1.0M", 999 << 20: "999.0M", 1000 << 20: "1.0G", 3 << 40: "3.0T", 1 << 60: "1024.0P"} {
		if got := sizeText(n); got != want {
			t.Errorf("sizeText(%v) = %q; want %q", n, got, want)
		}
	}
}

func TestParseKeys(t *testing.T) {
	for text, want := range map[string][]key{
		"q": {'q'}, "ab": {'a', 'b'}, "\x1b[A": {keyUp}, "\x1bOB": {keyDown}, "\x1b[5~x": {keyPageUp, 'x'}, "\x1b": {keyEscape},
		"\x1b[99;5Rq": {'q'}, "\x1b[1": nil, "\x1bq": {keyEscape, 'q'}, "\r": {keyEnter}, "\x7f": {keyBackspace}, "é": {'é'}, "\xff": nil, "\x01": nil, "": nil,
	} {
		if diff := cmp.Diff(want, parseKeys([]byte(text))); diff != "" {
			t.Errorf("parseKeys(%q) (-want +got):\n%s", text, diff)
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte("\x1b[5~x\x1bO"))
	f.Add([]byte("\x1b[\xff\x1b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if keys := parseKeys(b); len(keys) > len(b) {
			t.Errorf("parseKeys(%q) = %d keys", b, len(keys))
		}
	})
}

// A task on another host has that behind its queue, and one of another host's job says so, within
// what is left of the line.
func TestTopElsewhere(t *testing.T) {
	from := topJob(2, "", "all.q@h", 50, 1<<30)
	from.From = "login1 12.1"
	s := &top{view: &topView{by: byJob}, rates: rates{}}
	s.take(&api.TopReply{Host: "h", Jobs: []api.TopJob{topJob(1, "", "all.q@node17", 50, 1<<30), from}}, nil, time.Unix(1100, 0))
	for columns, want := range map[int][2]string{
		80:  {"all.q@nod+", "login1 #1+"},
		120: {"all.q@node17", "login1 #12.1"},
	} {
		rows := s.rows(s.layout(columns))
		for i, row := range rows {
			if !strings.HasSuffix(row, " "+want[i]) || len(row) > columns {
				t.Errorf("%d columns: %q; want %q", columns, row, want[i])
			}
		}
	}
}
