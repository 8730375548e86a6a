package stage

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/source"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/notice"
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

// REQ-EXIT-111, REQ-EXIT-115: execd is killed at each write of an end whose output cannot
// be delivered at first. The next one goes on with the transfer, the job is accounted once,
// as it has ended, and never runs again.
func TestDeliveryCrashes(t *testing.T) {
	fails := func() []error { return []error{&exit.Permanent{Errno: 13, Err: errors.New("permission denied")}} }
	spooltest.EachFault(t, unix.ENOSPC,
		func(t *testing.T) *scene {
			s := newScene(t, nil)
			s.mend()
			s.r.Output = &sender{memory: s.memory, fails: fails()}
			return s
		},
		func(t *testing.T, s *scene) error {
			s.t = t
			s.r.advance(s.l, nil)
			eventually(t, "stuck or tried again", func() bool { return s.l.end.Output.Standing().Failure != "" || s.r.Store.Stuck(s.l.task) != nil })
			if s.r.Store.Stuck(s.l.task) == nil {
				return errors.New(s.l.end.Output.Standing().Failure)
			}
			return nil
		},
		func(t *testing.T, s *scene, _ error) {
			s.t = t
			s.restart()
			s.r.Output = &sender{memory: s.memory}
			s.until()
			if s.accounting() != 1 || s.r.Store.State(s.l.task) != job.Gone {
				t.Errorf("the task is %v, accounted %d times", s.r.Store.State(s.l.task), s.accounting())
			}
		})
}

// abandoned is a source of work that is not run again; it counts what is not run, and of
// that what was held by a hook with exit status 1.
type abandoned struct {
	source.Queue
	told, held *int
}

// Queued implements source.Source.
func (abandoned) Queued() bool { return false }

// Abandoned implements source.Source.
func (a abandoned) Abandoned(_ *job.Job, why slot.Hold) {
	*a.told++
	if a.held != nil && why.Code == exit.HoldHook && why.Subcode == 1 {
		*a.held++
	}
}

// The disk is full at each write of a preparation that comes to nothing. When there is
// room again it is told once, in the event log and to who sent the job.
func TestUnpreparedFaults(t *testing.T) {
	for _, work := range []*api.Work{nil, {Slot: "1", Holder: "fetch", Ad: "Cmd = \"/bin/true\"\n"}} {
		event := notice.Held
		if work != nil {
			event = notice.Postponed // it has no queue in which it would be held
		}
		told, held := 0, 0
		spooltest.EachFault(t, unix.ENOSPC,
			func(t *testing.T) *scene {
				s := preparing(t)
				if work != nil {
					s.l.task.Job.Origin = &job.Origin{Source: "fetch"}
				}
				told, held = 0, 0
				s.r.Sources = source.Sources{"fetch": abandoned{told: &told, held: &held}}
				s.r.setUp(s.l)
				s.l.hooks.Prepare = &hook.Hook{Keyword: "K", Name: hook.PrepareJob, Path: "/bin/true", Limit: time.Minute}
				s.hooks.run = func(_ context.Context, _ int, c hook.Call) hook.Result {
					return hook.Result{Keyword: "K", Hook: c.Hook.Name, Status: 1}
				}
				s.byHand()
				return s
			},
			func(t *testing.T, s *scene) error {
				s.t = t
				err := s.prepare()
				if errors.Is(err, errOver) {
					return nil
				}
				return err
			},
			func(t *testing.T, s *scene, got error) {
				s.t = t
				for n := 0; n < 5 && got != nil; n++ {
					if got = s.prepare(); errors.Is(got, errOver) {
						got = nil
					}
				}
				if got != nil {
					t.Errorf("not over: %v", got)
				}
				s.flush()
				s.memory.mu.Lock()
				trace := strings.Join(s.memory.trace, ", ")
				s.memory.mu.Unlock()
				if strings.Count(trace, "hook") != 1 || strings.Count(trace, "event "+string(event)) != 1 || work != nil && (told != 1 || held != 1) {
					t.Errorf("trace %q, told %d times, and %d of the hold; want each once", trace, told, held)
				}
			})
	}
}
