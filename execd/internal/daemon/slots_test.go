package daemon

import (
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/conf/knob/knobtest"
	"paddock/execd/internal/slot"
)

// The terminals are looked at only for an expression that refers to them.
func TestAboutTerminals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"":                                   false,
		"START = LoadAvg < 2":                false,
		"START = KeyboardIdle > 900":         true,
		"SUSPEND_VANILLA = consoleidle < 60": true,
		"STARTD_ATTRS = Away\nAway = MY.KeyboardIdle > 900": true,
		"START = Owner == \"KeyboardIdle\"":                 false,
	} {
		knobs := knobtest.Parse(t, text)
		if got := aboutTerminals(&conf.Config{Knobs: knobs}); got != want {
			t.Errorf("%q: %t; want %t", text, got, want)
		}
	}
}

// The GPUs of a partitionable slot are those that the site counts.
func TestGPUs(t *testing.T) {
	some := func(n float64) conf.Values { return conf.Values{"mem": {Number: 9}, "gpus": {Number: n}} }
	for what, tt := range map[string]struct {
		config conf.Config
		want   int64
	}{
		"none":         {conf.Config{Queues: []conf.Queue{{Name: "a.q"}}}, 0},
		"of the host":  {conf.Config{Host: some(4), AnyHost: some(3)}, 4},
		"of any host":  {conf.Config{AnyHost: conf.Values{"GPUs": {Number: 3}}, Queues: []conf.Queue{{Name: "b.q", Complex: some(2)}}}, 3},
		"of the queue": {conf.Config{Host: some(4), Queues: []conf.Queue{{Name: "a.q", Complex: some(2)}}}, 2},
	} {
		if got := gpus(&tt.config, "a.q"); got != tt.want {
			t.Errorf("%s: %d; want %d", what, got, tt.want)
		}
	}
}

// STARTD_SLOT_ATTRS: what is known of each slot is there under its name, and nothing of
// what is not.
func TestShared(t *testing.T) {
	slots := []claim.Neighbour{
		{Slot: slot.ID{Number: 1}, State: "Claimed", Activity: "Busy", EnteredState: time.Unix(7, 0), EnteredActivity: time.Unix(8, 0), User: "ann", Task: "4.1"},
		{Slot: slot.ID{Number: 2, Dynamic: 3}, State: "Unclaimed", Activity: "Idle"},
	}
	list := []string{"State", "activity", "EnteredCurrentState", "EnteredCurrentActivity", "RemoteUser", "JobId"}
	want := `[ slot1_State = "Claimed"; slot1_activity = "Busy"; slot1_EnteredCurrentState = 7; slot1_EnteredCurrentActivity = 8; slot1_RemoteUser = "ann"; slot1_JobId = "4.1"; ` +
		`slot2_3_State = "Unclaimed"; slot2_3_activity = "Idle" ]`
	if got := classad.New(shared(list, slots)...).String(); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	for _, k := range knob.Table() {
		if k.Name == "STARTD_SLOT_ATTRS" && len(k.Words) != len(list) {
			t.Errorf("STARTD_SLOT_ATTRS may have %v", k.Words)
		}
	}
}
