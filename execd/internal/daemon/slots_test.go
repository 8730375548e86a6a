package daemon

import (
	"testing"

	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob"
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
		knobs, problems := knob.Parse("hooks.conf", text)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
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
