package show

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
)

// ganttNow is when the tests are, in milliseconds.
const ganttNow = 1_700_000_000_000

// ganttSpan is a span between two moments, in seconds before then; to 0: it goes on.
func ganttSpan(kind api.SpanKind, from, to int64) api.Span {
	s := api.Span{Kind: kind, Begin: ganttNow - from*1000}
	if to > 0 {
		s.End = ganttNow - to*1000
	}
	return s
}

// TestGantt draws a minute of four slots: runs with all that they may have, output that travels beside
// the next run, one that was carved, and one of which the slot is not known. Below are slots of other
// hosts, as far as there was something in them.
func TestGantt(t *testing.T) {
	g := &gantt{}
	g.take(&api.TimelineReply{
		Whole: true, Now: ganttNow, Cursor: "e.1", Queues: []api.TimelineQueue{{Name: "all.q", Slots: 2}, {Name: "long-name.q", Slots: 2}},
		Runs: []api.TimelineRun{
			{Job: 1, Queue: "all.q", Slots: "1", Over: true, Exit: 1, Spans: []api.Span{
				ganttSpan(api.SpanSlot, 60, 30), ganttSpan(api.SpanIn, 58, 54), ganttSpan(api.SpanRun, 52, 32), ganttSpan(api.SpanSuspended, 46, 40), ganttSpan(api.SpanOut, 30, 14),
			}},
			{Job: 2, Queue: "all.q", Slots: "1", Spans: []api.Span{ganttSpan(api.SpanSlot, 22, 0), ganttSpan(api.SpanHook, 22, 20), ganttSpan(api.SpanRun, 20, 0)}},
			{Job: 333, Queue: "all.q", Over: true, Spans: []api.Span{ganttSpan(api.SpanRun, 40, 10)}},
			{Job: 4, Task: 7, Queue: "long-name.q", Slots: "1_2", Spans: []api.Span{ganttSpan(api.SpanRun, 600, 0)}},
			{Job: 5, Queue: "all.q", Slots: "2", Over: true, Spans: []api.Span{ganttSpan(api.SpanRun, 600, 500)}},
			{Job: 6, Host: "node7", Queue: "all.q", Slots: "10", Spans: []api.Span{ganttSpan(api.SpanSlot, 40, 0), ganttSpan(api.SpanIn, 38, 30), ganttSpan(api.SpanRun, 30, 0)}},
			{Job: 7, Host: "node7", Queue: "all.q", Slots: "1_2", Over: true, Spans: []api.Span{ganttSpan(api.SpanSlot, 50, 30), ganttSpan(api.SpanRun, 50, 30), ganttSpan(api.SpanOut, 30, 10)}},
			{Job: 8, Host: "node7", Queue: "all.q", Slots: "9", Over: true, Spans: []api.Span{ganttSpan(api.SpanRun, 600, 500)}},
			{Job: 9, Host: "a-long-host", Queue: "zz.q", Over: true, Spans: []api.Span{ganttSpan(api.SpanRun, 40, 10)}},
			{Job: 10, Host: "a-long-host", Queue: "zz.q", Over: true, Spans: []api.Span{ganttSpan(api.SpanRun, 30, 20)}},
			{Job: 11, Host: "a-long-host", Queue: "zz.q", Over: true, Spans: []api.Span{ganttSpan(api.SpanRun, 9, 4)}},
		},
	})
	got := g.lines(44, time.Minute)
	if want := []string{
		"all.q       1 .<<.1==sss===x.>>>>h2=========",
		"            2           333============",
		"long-n+   1.2 4=============================",
		"            2",
		"@a-lon+     ?           9=================",
		"            ?                10===",
		"@node7    1.2      7=========>>>>>>>>>>",
		"           10           .<<<<6==============",
	}; !cmp.Equal(got[1:], want) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got[1:]))
	}
	if len(strings.Fields(got[0])) != 2 {
		t.Errorf("the times are %q", got[0])
	}
	for _, width := range ganttWidths {
		for _, line := range append(g.lines(80, width), ganttLegend, ganttHelp, topHelp) {
			if utf8.RuneCountInString(line) > 80 {
				t.Errorf("%q is wider than a terminal", line)
			}
		}
	}
	// What is too old is forgotten, and what has changed replaces what it was.
	g.take(&api.TimelineReply{Now: ganttNow + (25 * time.Hour).Milliseconds(), Cursor: "e.2", Runs: []api.TimelineRun{{Job: 2, Queue: "all.q", Slots: "1", Name: "new"}}})
	if len(g.runs) != 3 || g.runs[[3]int{2, 0, 0}].Name != "new" || g.cursor != "e.2" {
		t.Errorf("it knows %v", g.runs)
	}
}
