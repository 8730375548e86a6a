package web

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
)

// told is an execd that tells what a test says, and where qweb finds it.
func told(t *testing.T, replies map[string]any) (dir string) {
	t.Helper()
	dir = t.TempDir()
	l, err := net.Listen("unix", api.DevPlaces(dir).Socket)
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verb := strings.TrimPrefix(r.URL.Path, "/"+api.Version+"/")
		reply, ok := replies[verb]
		if verb == api.VerbTimeline {
			var req api.TimelineRequest
			_ = json.NewDecoder(r.Body).Decode(&req)
			if req.Since != "" { // nothing is new
				<-r.Context().Done()
				return
			}
		}
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			reply = api.Errorf(api.CodeNotFound, "there is none")
		}
		_ = json.NewEncoder(w).Encode(reply)
	})}
	go func() { _ = h.Serve(l) }()
	t.Cleanup(func() { h.Close() })
	return dir
}

// TestElsewhere has a pilot whose jobs run on another host as well: a lane for each slot that they have
// there, below those of this host, a line at the time when the pilot ends, and in words what it is a
// pilot of.
func TestElsewhere(t *testing.T) {
	b := newBrowser(t)
	now := time.Now()
	span := func(kind api.SpanKind, from, to int) api.Span { // in seconds before now; to 0: it goes on
		s := api.Span{Kind: kind, Begin: now.Add(-time.Duration(from) * time.Second).UnixMilli()}
		if to > 0 {
			s.End = now.Add(-time.Duration(to) * time.Second).UnixMilli()
		}
		return s
	}
	run := func(job int, host, slots string, over bool, spans ...api.Span) api.TimelineRun {
		return api.TimelineRun{Job: job, Owner: "alice", Name: "sweep", Host: host, Queue: "all.q", Slots: slots, Submitted: spans[0].Begin - 20_000, Over: over, Spans: spans}
	}
	place := "all.q@node07"
	dir := told(t, map[string]any{
		api.VerbDetail: &api.DetailReply{}, // of what is over
		api.VerbStatus: &api.StatusReply{Host: "node3"},
		api.VerbHost:   &api.HostReply{Host: "node3", Others: []api.PeerStatus{{Name: "node07", State: api.PeerUp, Free: 1, Slots: 12}}},
		api.VerbTop: &api.TopReply{
			Host: "node3", Slots: 4, Used: 2, Running: 3, Pilot: &api.Pilot{Scheduler: "slurm", Job: "1742", Ends: now.Add(100 * time.Second)},
			Jobs: []api.TopJob{{JobStatus: api.JobStatus{Job: 4, Name: "sweep", Owner: "alice", State: "r", Queue: place, Slots: 1, Time: now.Add(-50 * time.Second)}}},
		},
		api.VerbTimeline: &api.TimelineReply{
			Cursor: "e.1", Whole: true, Now: now.UnixMilli(), Queues: []api.TimelineQueue{{Name: "all.q", Slots: 4}},
			Runs: []api.TimelineRun{
				run(1, "", "1", false, span(api.SpanSlot, 700, 0), span(api.SpanRun, 690, 0)),
				run(2, "", "2", true, span(api.SpanSlot, 600, 90), span(api.SpanIn, 600, 560), span(api.SpanRun, 560, 90), span(api.SpanOut, 90, 40)),
				run(3, "node07", "10", true, span(api.SpanSlot, 640, 290), span(api.SpanIn, 636, 520), span(api.SpanRun, 520, 290), span(api.SpanOut, 289, 120)),
				run(4, "node07", "10", false, span(api.SpanSlot, 285, 0), span(api.SpanIn, 284, 230), span(api.SpanRun, 230, 0), span(api.SpanSuspended, 180, 120)),
				run(5, "node07", "9_2", false, span(api.SpanSlot, 400, 0), span(api.SpanIn, 396, 0)),
				run(6, "gpu1.example.org", "", true, span(api.SpanRun, 500, 200)),
			},
		},
	})
	address := newPage(t, dir)
	axe := axeCore(t)
	for _, scheme := range []string{"light", "dark"} {
		b.view(1400, 800, scheme)
		b.open(address)
		b.until("the page to show all", `document.documentElement.dataset.ready && document.querySelector('#facts').textContent.includes('pilot')`)
		b.until("what it is a pilot of", `/of slurm job 1742, ends at \d+:\d+:\d+, 1:\d\d left/.test(document.querySelector('#facts').textContent)`)
		// Four lanes, and for two hosts a line each with one lane and with two.
		b.until("the lanes", `parseInt(document.querySelector('#chart').style.height) === 22 + (4 + 2 + 3) * 26 + 6`)
		b.until("a line where the pilot ends, to the right of now", `(() => {
			const c = document.querySelector('#chart'), data = c.getContext('2d').getImageData(0, 23, c.width, 1).data;
			const colours = {}, hex = (v) => v.trim().replace('#', '');
			for (const n of ['--bad', '--warn']) colours[n] = hex(getComputedStyle(document.documentElement).getPropertyValue(n));
			const last = (colour) => { for (let x = c.width - 1; x >= 0; x--) if ([0, 1, 2].every((i) => data[4 * x + i] === parseInt(colour.slice(2 * i, 2 * i + 2), 16))) return x; return -1; };
			return last(colours['--bad']) > 0 && last(colours['--warn']) > last(colours['--bad']) + 20;
		})()`)
		b.shoot("elsewhere-" + scheme)
		b.audit(axe)
		b.view(360, 740, scheme)
		b.until("the page to be as wide as the screen", `document.documentElement.scrollWidth <= 360 && innerWidth === 360`)
		b.shoot("elsewhere-small-" + scheme)
		b.audit(axe)
	}
	b.view(1400, 800, "light")
	b.eval(`document.activeElement.blur()`, nil)
	b.press("p")
	b.until("the last run of the last host to be chosen", `document.querySelector('#detail-title').textContent.includes('sweep')`)
	b.eval(`[...document.querySelectorAll('#ended tbody tr')].find((r) => r.cells[1].textContent === '3').querySelector('button').click()`, nil)
	b.until("where it ran", `document.querySelector('#d-facts').textContent.includes('all.q@node07, slot 10') && document.querySelector('#ended').textContent.includes('all.q@gpu1.example.org')`)
	if wrong := b.complaints(address[:strings.Index(address, "#")]); len(wrong) > 0 {
		t.Errorf("the browser has complaints:\n%s", strings.Join(wrong, "\n"))
	}
}
