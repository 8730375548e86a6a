package stage

import (
	"errors"
	"testing"
	"time"

	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/exit"
)

// REQ-FLOW-22, REQ-FLOW-108: the slot hears once of the end of a run, and has when the call
// returns.
//
// REQ-XFER-7, REQ-XFER-11, REQ-XFER-12, REQ-XFER-29, REQ-XFER-74: a slot is free before
// output of its job is on its way, which counts from then on until it has arrived. Where
// slots are kept it is free when the output has arrived, when somebody has to look first,
// and when it is wanted at once.
func TestSlotWhileOutputTravels(t *testing.T) {
	type world struct {
		*scene
		o *sender
	}
	stuck := []error{&exit.Permanent{Err: errors.New("no such directory")}}
	for _, tt := range []struct {
		name    string
		keeps   bool
		fails   []error
		free    bool // while it travels, or waits
		then    func(*testing.T, *world)
		arrived bool // at the end
	}{
		{"asynchronous", false, nil, true, func(_ *testing.T, w *world) { close(w.o.waits) }, true},
		{"kept", true, nil, false, func(_ *testing.T, w *world) { close(w.o.waits) }, true},
		{"kept, and wanted at once", true, nil, false, func(_ *testing.T, w *world) { w.r.Kill(w.l.task) }, false},
		{"kept, and stuck", true, stuck, true, func(*testing.T, *world) {}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(t, nil)
			s.mend()
			w := &world{s, &sender{memory: s.memory, keeps: tt.keeps, fails: tt.fails, waits: make(chan struct{})}}
			s.r.Output = w.o
			s.l.end.Slots = s.r.Queue.Adopt(s.l.task, time.Now())
			busy := func() bool { return s.r.Queue.Running("all.q") == 1 }
			if !busy() {
				t.Fatal("it has no slot")
			}
			s.r.advance(s.l, nil)
			eventually(t, "over", func() bool { return s.r.Store.State(s.l.task) == job.Over })
			if tt.fails != nil {
				eventually(t, "stuck", func() bool { return s.r.Store.Stuck(s.l.task) != nil })
				eventually(t, "free", func() bool { return !busy() })
			}
			if busy() == tt.free {
				t.Errorf("busy: %t", busy())
			}
			if w.o.frozen.Load() != 1 || w.o.arrived.Load() != 0 {
				t.Errorf("it was told %d times that output leaves, and %d times that it has arrived", w.o.frozen.Load(), w.o.arrived.Load())
			}
			tt.then(t, w)
			eventually(t, "free", func() bool { return !busy() })
			if tt.arrived {
				eventually(t, "gone", func() bool { return s.r.Store.State(s.l.task) == job.Gone })
			}
			if got := w.o.arrived.Load() > 0; got != tt.arrived {
				t.Errorf("it has arrived: %t; want %t", got, tt.arrived)
			}
		})
	}
}

// What a queue suspends runs no more: its output goes on its way.
func TestSuspendedWhileOutputTravels(t *testing.T) {
	s := newScene(t, nil)
	s.mend()
	s.r.Output = &sender{memory: s.memory, keeps: true, fails: []error{&exit.Permanent{Err: errors.New("gone")}}}
	s.r.advance(s.l, nil)
	eventually(t, "stuck", func() bool { return s.r.Store.Stuck(s.l.task) != nil })
	s.r.Suspend(s.l.task, "S")
	if s.r.Store.WantStopped(s.l.task) {
		t.Error("it is suspended")
	}
}
