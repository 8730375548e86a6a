package show

import (
	"testing"

	"paddock/execd/api"
	"paddock/qsub/internal/qtest"
)

// qhost -slots shows what is left of a slot that others are carved out of, and below
// it what these have; where there is none, neither.
func TestSlots(t *testing.T) {
	e := qtest.NewExecd(t)
	static := api.SlotStatus{Slot: "3", Name: "slot3@h", Queue: "b.q", State: "Claimed", Activity: "Busy", Holder: "queue", Job: "7.1"}
	e.Replies(api.VerbSlots, api.SlotsReply{Host: "h", Slots: []api.SlotStatus{static}}, api.SlotsReply{Host: "h", Slots: []api.SlotStatus{
		{Slot: "1", Queue: "a.q", State: "Unclaimed", Activity: "Idle", Type: "Partitionable", Cpus: 3, Memory: 900},
		{Slot: "1_2", Queue: "a.q", State: "Claimed", Activity: "Idle", Holder: "fetch", Type: "Dynamic", Cpus: 2, Memory: 128, Job: "8.1"},
		static,
	}})
	qtest.Want(t, qtest.Result{Out: `SLOT QUEUE STATE   ACTIVITY HOLDER JOB
--------------------------------------
3    b.q   Claimed Busy     queue  7.1
`}, call(t, "", "qhost", "-slots"))
	qtest.Want(t, qtest.Result{Out: `SLOT QUEUE STATE     ACTIVITY HOLDER TYPE          CPUS MEMORY JOB
------------------------------------------------------------------
1    a.q   Unclaimed Idle            Partitionable    3   900M
1_2  a.q   Claimed   Idle     fetch  Dynamic          2   128M 8.1
3    b.q   Claimed   Busy     queue  Static                    7.1
`}, call(t, "", "qhost", "-slots"))
}

// A slot is named by its numbers or its name.
func TestSlotNames(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbSlots, api.SlotsReply{Host: "h", Slots: []api.SlotStatus{{Slot: "1_2", Ad: "SlotID = 1\n"}}})
	for name, slot := range map[string]api.SlotID{"3": "3", "slot3": "3", "1_2": "1_2", "slot1_2": "1_2", "slot1_2@h.example": "1_2"} {
		qtest.Want(t, qtest.Result{Out: "SlotID = 1\n"}, call(t, "", "qhost", "-slotad", name))
		if got := qtest.Last[api.SlotsRequest](t, e, api.VerbSlots); got.Slot != slot || !got.Ads {
			t.Errorf("%s: asked for %+v", name, got)
		}
	}
	for _, name := range []string{"0", "x", "slot", "1_", "_1", "1_0", "01", "1_2_3", "-1"} {
		if got := call(t, "", "qhost", "-slotad", name); got.Exit != 1 {
			t.Errorf("%s: %+v; want it refused", name, got)
		}
	}
}
