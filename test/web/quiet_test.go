package web

import (
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
)

// TestNothing looks at a host that has never run anything.
func TestNothing(t *testing.T) {
	b := newBrowser(t)
	d := start(t, nil)
	address := newPage(t, d.Dir)
	b.open(address)
	b.until("the page to say that there is nothing", `document.querySelector('#jobs-more').textContent === 'Nothing runs and nothing waits.'`)
	b.until("it to be told more", `performance.getEntriesByName('update').length > 1`)
	b.until("the connection to hold", `document.querySelector('#link').textContent === 'live'`)
	if wrong := b.complaints(address[:strings.Index(address, "#")]); len(wrong) > 0 {
		t.Errorf("the browser has complaints:\n%s", strings.Join(wrong, "\n"))
	}
}

// TestForgets has a run go on for days, before which others are forgotten as ever.
func TestForgets(t *testing.T) {
	b := newBrowser(t)
	now := time.Now()
	run := func(job int, over bool, begin, end time.Duration) api.TimelineRun { // before now
		s := api.Span{Kind: api.SpanRun, Begin: now.Add(-begin).UnixMilli()}
		if over {
			s.End = now.Add(-end).UnixMilli()
		}
		return api.TimelineRun{Job: job, Owner: "alice", Name: "sweep", Queue: "all.q", Slots: "1", Submitted: s.Begin, Over: over, Spans: []api.Span{s}}
	}
	dir := told(t, map[string]any{
		api.VerbStatus: &api.StatusReply{Host: "node3"},
		api.VerbHost:   &api.HostReply{Host: "node3"},
		api.VerbTop:    &api.TopReply{Host: "node3", Slots: 4, Jobs: []api.TopJob{}},
		api.VerbTimeline: &api.TimelineReply{
			Cursor: "e.1", Whole: true, Now: now.UnixMilli(), Queues: []api.TimelineQueue{{Name: "all.q", Slots: 4}},
			Runs: []api.TimelineRun{run(1, false, 72*time.Hour, 0), run(2, true, 26*time.Hour, 25*time.Hour), run(3, true, 2*time.Hour, time.Hour)},
		},
	})
	b.open(newPage(t, dir))
	b.until("runs to be shown", `document.querySelectorAll('#ended tbody button').length > 0`)
	var shown string
	b.eval(`[...document.querySelectorAll('#ended tbody button')].map((e) => e.textContent).join()`, &shown)
	if shown != "3" {
		t.Errorf("runs %s are shown as over; want that of the last day, 3", shown)
	}
}
