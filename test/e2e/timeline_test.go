package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/test/harness"
)

// timeline asks what a job's runs did, and returns the last of them.
func (d *desk) timeline(job string) (run api.TimelineRun, ok bool) {
	d.t.Helper()
	var reply api.TimelineReply
	if err := d.Client.Call(d.t.Context(), api.VerbTimeline, &api.TimelineRequest{}, &reply); err != nil {
		d.t.Fatal(err)
	}
	for _, r := range reply.Runs {
		if strconv.Itoa(r.Job) == job {
			run, ok = r, true
		}
	}
	return run, ok
}

// shows waits until a job's run is so in the timeline.
func (d *desk) shows(what, job string, is func(*api.TimelineRun) bool) api.TimelineRun {
	d.t.Helper()
	var last api.TimelineRun
	if err := harness.WaitFor(patience, what, func() (bool, error) {
		run, ok := d.timeline(job)
		last = run
		return ok && is(&run), nil
	}); err != nil {
		d.t.Fatalf("%v: it is %+v\n%s", err, last, d.Log())
	}
	return last
}

// spanOf returns the span of a kind.
func spanOf(r *api.TimelineRun, kind api.SpanKind) (span api.Span, ok bool) {
	for _, s := range r.Spans {
		if s.Kind == kind {
			return s, true
		}
	}
	return span, false
}

// accounted waits until a job is over, and returns the times that qacct has of it.
func (d *desk) accounted(job string) (times map[string]int64) {
	d.t.Helper()
	times = map[string]int64{}
	n, err := strconv.Atoi(job)
	if err == nil {
		err = d.WaitJob(n)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	out := d.run("qacct", "-j", job)
	for _, name := range []string{"qsub_time", "start_time", "end_time"} {
		m := regexp.MustCompile(`(?m)^` + name + ` +(.*?) *$`).FindStringSubmatch(out)
		if m == nil {
			d.t.Fatalf("qacct has no %s\n%s", name, out)
		}
		at, err := time.ParseInLocation("Mon Jan 2 15:04:05 2006", m[1], time.Local)
		if err != nil {
			d.t.Fatal(err)
		}
		times[name] = at.Unix()
	}
	return times
}

// gate has a job wait for a file of its name with .go behind it.
const gate = `while [ ! -e "$DIR/$JOB_NAME.go" ]; do sleep 0.4; done`

func (d *desk) pass(name string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, name+".go"), nil, 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// TestTimeline has a job with all stages: it waits, its files come, it runs and is suspended, and its
// files go. All of it is in the timeline, in order, and with the times that qacct has.
func TestTimeline(t *testing.T) {
	parallel(t)
	d := newDeskWith(t, 1, "-dev")
	write(t, d.dir+"/data", strings.Repeat("x", 5000), 0o644)
	submit := func(name, script string, options ...string) string {
		write(t, d.dir+"/"+name+".sh", "#!/bin/sh\n"+script+"\n", 0o755)
		args := append([]string{"-terse", "-wd", d.dir, "-v", "DIR=" + d.dir, "-N", name}, options...)
		return strings.TrimSpace(d.run("qsub", append(args, d.dir+"/"+name+".sh")...))
	}
	before := submit("before", gate)
	job := submit("life", gate+"; cp data made; exit 3", "-stagein", d.dir+"/data", "-stageout", "made")
	d.shows("the job before to run", before, func(r *api.TimelineRun) bool { s, ok := spanOf(r, api.SpanRun); return ok && s.End == 0 })
	if r, ok := d.timeline(job); ok {
		t.Errorf("what waits is in the timeline: %+v", r)
	}
	d.pass("before")
	d.shows("the job to run", job, func(r *api.TimelineRun) bool { _, ok := spanOf(r, api.SpanRun); return ok })
	d.run("qmod", "-sj", job)
	d.shows("it to be suspended", job, func(r *api.TimelineRun) bool { s, ok := spanOf(r, api.SpanSuspended); return ok && s.End == 0 })
	d.run("qmod", "-usj", job)
	d.pass("life")
	r := d.shows("it to be over", job, func(r *api.TimelineRun) bool { return r.Over })
	times, who := d.accounted(job), fmt.Sprintf("%+v", r)
	if r.Name != "life" || r.Queue != "all.q" || r.Slots != "1" || r.Exit != 3 || r.Failed != 0 {
		t.Errorf("it is %s", who)
	}
	var last int64
	for _, kind := range []api.SpanKind{api.SpanSlot, api.SpanIn, api.SpanRun, api.SpanSuspended, api.SpanOut} {
		s, ok := spanOf(&r, kind)
		if !ok || s.Failed || s.Begin < last || s.End < s.Begin || s.End == 0 {
			t.Errorf("%s is %+v, %v, of %s", kind, s, ok, who)
		}
		last = s.Begin
		if (kind == api.SpanIn || kind == api.SpanOut) && s.Bytes != 5000 {
			t.Errorf("%s has %d bytes", kind, s.Bytes)
		}
	}
	ran, _ := spanOf(&r, api.SpanRun)
	if got := map[string]int64{"qsub_time": r.Submitted / 1000, "start_time": ran.Begin / 1000, "end_time": ran.End / 1000}; fmt.Sprint(got) != fmt.Sprint(times) {
		t.Errorf("the timeline has %v; qacct has %v", got, times)
	}
	if b, _ := d.timeline(before); b.Submitted == 0 || !b.Over || b.Exit != 0 {
		t.Errorf("the job before is %+v", b)
	}
}

// TestTimelineAfterRestart has execd killed: who was over is known from the accounting file, who runs
// goes on, and who waited for changes is told all anew.
func TestTimelineAfterRestart(t *testing.T) {
	parallel(t)
	d := newDeskWith(t, 2, "-dev")
	submit := func(name string) string {
		write(t, d.dir+"/"+name+".sh", "#!/bin/sh\n"+gate+"\n", 0o755)
		return strings.TrimSpace(d.run("qsub", "-terse", "-wd", d.dir, "-v", "DIR="+d.dir, "-N", name, d.dir+"/"+name+".sh"))
	}
	past, present := submit("past"), submit("present")
	d.pass("past")
	times := d.accounted(past)
	d.shows("the other to run", present, func(r *api.TimelineRun) bool { _, ok := spanOf(r, api.SpanRun); return ok })
	was, _ := d.timeline(present)
	var reply api.TimelineReply
	if err := d.Client.Call(t.Context(), api.VerbTimeline, &api.TimelineRequest{}, &reply); err != nil {
		t.Fatal(err)
	}
	d.Kill()
	// What ends within the second in which execd is started may be told of by both.
	if err := harness.WaitFor(patience, "that second to pass", func() (bool, error) { return time.Now().Unix() > times["end_time"], nil }); err != nil {
		t.Fatal(err)
	}
	d.begin()
	cursor := reply.Cursor
	reply = api.TimelineReply{}
	if err := d.Client.Call(t.Context(), api.VerbTimeline, &api.TimelineRequest{Since: cursor, Wait: true}, &reply); err != nil || !reply.Whole || len(reply.Runs) == 0 {
		t.Errorf("who has a cursor of the execd before is told %+v, %v", reply, err)
	}
	r := d.shows("the past to be known", past, func(r *api.TimelineRun) bool { return r.Over })
	ran, _ := spanOf(&r, api.SpanRun)
	if r.Name != "past" || r.Submitted/1000 != times["qsub_time"] || ran.Begin/1000 != times["start_time"] || ran.End/1000 != times["end_time"] {
		t.Errorf("it is %+v; qacct has %v", r, times)
	}
	r = d.shows("the other to run on", present, func(r *api.TimelineRun) bool { s, ok := spanOf(r, api.SpanRun); return ok && s.End == 0 })
	if r.Slots == "" || r.Submitted != was.Submitted || r.Over {
		t.Errorf("it was %+v and is %+v", was, r)
	}
	d.pass("present")
	d.shows("it to be over", present, func(r *api.TimelineRun) bool { return r.Over })
}

// TestTimelineAcross has a job of this host on another, with all stages: its files travel there, it runs
// and is suspended, and what it leaves comes back when its slot is another's. All of it is in the timeline
// of this host, with the slot that it has there and the times that qacct has; also after a restart.
func TestTimelineAcross(t *testing.T) {
	parallel(t)
	a := newAcross(t, "", "")
	d := a.login
	a.mine("data", strings.Repeat("x", 5000))
	n := a.submit(fmt.Sprintf("until test -e %s/u/go; do sleep 0.4; done; cp data made; exit 3", d.dir), "-N", "life", "-sandbox", "y", "-stagein", "data", "-stageout", "made")
	job := strconv.Itoa(n)
	d.shows("the job to run", job, func(r *api.TimelineRun) bool { s, ok := spanOf(r, api.SpanRun); return ok && s.End == 0 })
	a.as("qmod", "-sj", job)
	d.shows("it to be suspended", job, func(r *api.TimelineRun) bool { s, ok := spanOf(r, api.SpanSuspended); return ok && s.End == 0 })
	a.as("qmod", "-usj", job)
	d.shows("it to go on", job, func(r *api.TimelineRun) bool { s, ok := spanOf(r, api.SpanSuspended); return ok && s.End > 0 })
	d.open(d.dir + "/u/go")
	times := d.accounted(job)
	r := d.shows("it to be over", job, func(r *api.TimelineRun) bool { return r.Over })
	who := fmt.Sprintf("%+v", r)
	if r.Name != "life" || r.Host != "node" || r.Queue != "all.q" || r.Slots != "1" || r.Exit != 3 || r.Failed != 0 {
		t.Errorf("it is %s", who)
	}
	var last int64
	for _, kind := range []api.SpanKind{api.SpanSlot, api.SpanIn, api.SpanRun, api.SpanSuspended, api.SpanOut} {
		s, ok := spanOf(&r, kind)
		if !ok || s.Failed || s.Begin < last || s.End < s.Begin || s.End == 0 {
			t.Errorf("%s is %+v, %v, of %s", kind, s, ok, who)
		}
		last = s.Begin
		if (kind == api.SpanIn || kind == api.SpanOut) && s.Bytes < 5000 {
			t.Errorf("%s has %d bytes", kind, s.Bytes)
		}
	}
	slot, _ := spanOf(&r, api.SpanSlot)
	if out, _ := spanOf(&r, api.SpanOut); slot.End > out.Begin {
		t.Errorf("its output comes before its slot is another's: %s", who)
	}
	check := func(r *api.TimelineRun) {
		t.Helper()
		ran, _ := spanOf(r, api.SpanRun)
		if got := map[string]int64{"qsub_time": r.Submitted / 1000, "start_time": ran.Begin / 1000, "end_time": ran.End / 1000}; fmt.Sprint(got) != fmt.Sprint(times) || r.Host != "node" {
			t.Errorf("the timeline has %v, on %q; qacct has %v", got, r.Host, times)
		}
	}
	check(&r)
	d.Kill()
	// What ends within the second in which execd is started it does not take for the past.
	if err := harness.WaitFor(patience, "that second to pass", func() (bool, error) { return time.Now().Unix() > times["end_time"], nil }); err != nil {
		t.Fatal(err)
	}
	d.begin()
	a.state(api.PeerUp, "")
	r = d.shows("the past to be known", job, func(r *api.TimelineRun) bool { return r.Over })
	check(&r)
}
