package shadow

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
)

// REQ-FLOW-35: a shadow that is woken reads itself what has become of its job, and the other
// host has that in the end, however often either was away; without a change nothing is sent.
func TestAlter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		j := h.submit(api.SubmitRequest{Attributes: []string{"A=1", "B=2"}})
		alter := func(attributes ...string) {
			t.Helper()
			req := &api.AlterRequest{Jobs: []string{fmt.Sprint(j.Number)}, Fields: []api.Field{api.FieldAttributes}, To: api.SubmitRequest{Attributes: attributes}}
			hooks := job.AlterHooks{
				Check:   func(*job.Job, []api.Field, *api.SubmitRequest) ([]api.Line, bool, error) { return nil, false, nil },
				Changed: h.s.Look,
			}
			if _, err := h.store.Alter(t.Context(), req, job.Caller{UID: 1001, Name: "anna"}, hooks); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		has := func(requests int, want ...string) {
			t.Helper()
			h.node.mu.Lock()
			defer h.node.mu.Unlock()
			n := 0
			for _, verb := range h.node.log {
				if verb == api.VerbAlterRun {
					n++
				}
			}
			for _, a := range h.node.begun {
				if !slices.Equal(a.Request.Attributes, want) || n != requests {
					t.Errorf("after %d requests the node has %q; want %d, %q", n, a.Request.Attributes, requests, want)
				}
			}
			if len(h.node.begun) != 1 {
				t.Fatalf("%d run", len(h.node.begun))
			}
		}
		task, _ := h.store.RunningTask(j, 0)
		has(0, "A=1", "B=2")
		for range 3 {
			h.s.Look(task)
			synctest.Wait()
		}
		has(0, "A=1", "B=2")
		alter("A=3", "b=undefined", "C=4")
		has(1, "A=3", "C=4")
		alter("A=3")
		has(1, "A=3", "C=4")

		// While the node is away it hears of nothing, and then of what it is by then.
		h.change(func(n *node) { n.down = true })
		alter("A=5")
		alter("A=6")
		has(1, "A=3", "C=4")
		h.change(func(n *node) { n.down = false })
		time.Sleep(retries.Most)
		synctest.Wait()
		has(2, "A=6", "C=4")

		// The next execd cannot know what the last one has told.
		h.stop()
		alter("C=undefined")
		h.begin()
		synctest.Wait()
		has(3, "A=6")
		time.Sleep(time.Hour)
		synctest.Wait()
		has(3, "A=6")
	})
}
