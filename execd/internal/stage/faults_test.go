package stage

import (
	"context"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/hook"
	"paddock/spool/spooltest"
)

// The disk is full at each write of the end of a run, of one that came by qsub and of
// one that was fetched. When there is room again the end goes on: its hook was called
// once, there is one accounting line, and its event and its ad are there.
func TestEndFaults(t *testing.T) {
	for _, work := range []*api.Work{nil, {Slot: "1", Holder: "fetch", Ad: "Cmd = \"/bin/true\"\n"}} {
		spooltest.EachFault(t, unix.ENOSPC,
			func(t *testing.T) *scene {
				s := newScene(t, work)
				s.mend()
				s.hasHook()
				s.hooks.run = func(_ context.Context, _ int, c hook.Call) hook.Result {
					return hook.Result{Keyword: "K", Hook: c.Hook.Name}
				}
				return s
			},
			func(t *testing.T, s *scene) error {
				s.t = t
				return s.settled()
			},
			func(t *testing.T, s *scene, got error) {
				s.t = t
				if got != nil && s.accounting() > 1 {
					t.Errorf("after %v there are %d accounting lines", got, s.accounting())
				}
				s.until()
				if n := s.accounting(); n != 1 {
					t.Errorf("%d accounting lines; want 1", n)
				}
				s.memory.mu.Lock()
				trace := strings.Join(s.memory.trace, ", ")
				s.memory.mu.Unlock()
				if strings.Count(trace, "hook exit") != 1 || !strings.Contains(trace, "event over") || !strings.HasSuffix(trace, "ad") && work == nil {
					t.Errorf("trace %q; want the hook once, the event and the ad", trace)
				}
			})
	}
}
