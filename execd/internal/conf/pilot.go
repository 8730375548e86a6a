package conf

import (
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf/knob"
)

// Pilot returns of which job of a batch system execd is the pilot; nil: it is none.
func (c *Config) Pilot() *api.Pilot {
	text := func(name string) (s string) {
		if e, ok := c.Knobs.Expr(name); ok {
			if v, ok := e.Constant(); ok {
				s, _ = v.Str()
			}
		}
		return s
	}
	if _, ok := c.Knobs.Lookup(knob.Pilot); !ok {
		return nil
	}
	p := &api.Pilot{Scheduler: text(knob.Pilot), Job: text(knob.PilotJob)}
	if end := c.Knobs.Int(knob.PilotEnd, 0); end > 0 {
		p.Ends = time.Unix(int64(end), 0)
	}
	return p
}
