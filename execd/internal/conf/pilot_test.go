package conf

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/execd/internal/conf/knob/knobtest"
)

// TestPilot reads what package pilot writes.
func TestPilot(t *testing.T) {
	for text, want := range map[string]*api.Pilot{
		"MEMORY = 5\n": nil,
		"PilotScheduler = \"none\"\nPilotJobId = \"\"\n":                                    {Scheduler: "none"},
		"PilotScheduler = \"ge\"\nPilotJobId = \"17.3\"\n":                                  {Scheduler: "ge", Job: "17.3"},
		"PilotScheduler = \"slurm\"\nPilotJobId = \"5\"\nDaemonStopTime = 1795194000\n":     {Scheduler: "slurm", Job: "5", Ends: time.Unix(1795194000, 0)},
		"PilotScheduler = strcat(1)\nPilotJobId = undefined\nDaemonStopTime = 1795194000\n": {Ends: time.Unix(1795194000, 0)},
	} {
		c := &Config{Knobs: knobtest.Parse(t, text)}
		if got := c.Pilot(); !cmp.Equal(got, want) {
			t.Errorf("%q: %s", text, cmp.Diff(want, got))
		}
	}
}
