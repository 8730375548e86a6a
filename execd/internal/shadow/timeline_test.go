package shadow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"paddock/execd/api"
)

// timeline returns what the timeline has, a line for each run with its spans by their kinds.
func (h *home) timeline() string {
	h.t.Helper()
	synctest.Wait()
	runs, _, _ := h.s.Host.Timeline.Since("")
	slices.SortStableFunc(runs, func(a, b api.TimelineRun) int { return cmp.Compare(a.Job, b.Job) })
	var lines []string
	for _, r := range runs {
		text := fmt.Sprintf("%d.%d %s/%s/%s", r.Job, r.Run, r.Host, r.Queue, r.Slots)
		slices.SortStableFunc(r.Spans, func(a, b api.Span) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
		for _, s := range r.Spans {
			text += " " + string(s.Kind)
			if s.Bytes > 0 {
				text += "+" // something has travelled
			}
			if s.End == 0 {
				text += "…"
			}
		}
		if r.Over {
			text += fmt.Sprintf(" over %d %d", r.Failed, r.Exit)
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "; ")
}

// wantTimeline checks what the timeline has.
func (h *home) wantTimeline(when, want string) {
	h.t.Helper()
	if got := h.timeline(); got != want {
		h.t.Errorf("%s: %q; want %q", when, got, want)
	}
}

// TestTimeline has a run on the node with all that it may have: its input goes there, it runs and is
// suspended, and its output comes back beside the next run in its slot.
func TestTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.s.Domain = func() string { return "" }
		h.files.input = true
		h.submit(sandboxed(1))
		h.wantTimeline("it runs", "1.0 node/all.q/1 in+ run… slot…") // this node does not wait for input
		h.event(api.ActivationEvent{Kind: api.ActivationUpdate})
		h.event(api.ActivationEvent{Kind: api.ActivationSuspended})
		h.event(api.ActivationEvent{Kind: api.ActivationUpdate})
		h.wantTimeline("it is suspended", "1.0 node/all.q/1 in+ run… slot… suspended…")
		h.event(api.ActivationEvent{Kind: api.ActivationResumed})
		h.wantTimeline("it goes on", "1.0 node/all.q/1 in+ run… slot… suspended")
		h.files.input = false
		first := h.boxed()[0]
		h.submit(sandboxed(1))
		h.endAll(3)
		h.wantTimeline("the next has its slot", "1.0 node/all.q/1 in+ out… run slot suspended; 2.0 node/all.q/1 run… slot…")
		h.send(first)
		h.wantTimeline("it is over", "1.0 node/all.q/1 in+ out+ run slot suspended over 0 3; 2.0 node/all.q/1 run… slot…")
		runs, _, _ := h.s.Host.Timeline.Since("")
		for _, s := range runs[len(runs)-1].Spans { // of the one that has changed last
			if s.Kind == api.SpanRun && (s.Begin/1000 != 1000 || s.End/1000 != 1005) {
				t.Errorf("it ran %+v; want what the node has accounted", s)
			}
		}
	})
}

// A start that comes to nothing is over, and the next, which has its number, has a line of its own.
func TestTimelineWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.change(func(n *node) { n.fails = api.Refusef(api.RefusedRequirements, "not that job") })
		h.submit(api.SubmitRequest{})
		h.wantTimeline("it is refused", "1.0 node/all.q/1 slot over -1 -1")
		h.change(func(n *node) { n.fails = nil })
		time.Sleep(2 * time.Hour)
		h.wantTimeline("it is begun again", "1.0 node/all.q/1 slot over -1 -1; 1.0 node/all.q/2 run… slot…")
		h.endAll(0)
		h.wantTimeline("it is over", "1.0 node/all.q/1 slot over -1 -1; 1.0 node/all.q/2 run slot over 0 0")
	})
}

// What goes on is told anew after a restart, with its slot; of what is over, and whose output is
// still there, the slot is another's.
func TestTimelineAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.s.Domain = func() string { return "" }
		h.submit(sandboxed(1))
		h.event(api.ActivationEvent{Kind: api.ActivationStarted})
		h.stop()
		h.begin()
		h.event(api.ActivationEvent{Kind: api.ActivationUpdate})
		h.wantTimeline("it runs on", "1.0 node/all.q/1 run… slot…")
		h.endAll(0)
		h.stop()
		h.begin()
		h.wantTimeline("its output comes", "1.0 node/all.q/1 out…")
		h.send(h.boxed()[0])
		h.wantTimeline("it is over", "1.0 node/all.q/1 out+ run over 0 0")
	})
}
