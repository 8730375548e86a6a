package daemon

import (
	"context"
	"fmt"

	"paddock/execd/internal/conf"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/usage"
)

// buildLoad makes what measures the load of the host, and the table of its
// cores.
func (d *daemon) buildLoad() *queue.Cores {
	d.load = &usage.Load{
		Host: d.host, Log: d.log,
		Parse: func(name, text string) conf.Value {
			if a := d.config.Current().Attribute(name); a != nil {
				if v, err := conf.ParseValue(a.Kind, text); err == nil {
					return v
				}
			}
			return conf.Value{Text: text}
		},
	}
	if d.opts.RootMode {
		as, err := usage.SensorUser(context.Background(), d.users)
		if err != nil {
			d.log.Warn(fmt.Sprintf("execd: no load sensor is run: %v", err))
		}
		d.load.SensorUser = as
	}
	topology := d.load.Values()["m_topology"].Text
	cores := queue.NewCores(topology)
	d.load.Bound = func() []usage.Core {
		var bound []usage.Core
		for _, c := range cores.Bound() {
			bound = append(bound, usage.Core(c))
		}
		return bound
	}
	d.gauge = &usage.Gauge{Load: d.load, Dir: d.opts.Places.Tmp, Log: d.log}
	d.gauge.Look()
	return cores
}

// configureLoad tells how often the load is to be looked at: not at all when no
// threshold, no sensor and no job that waits needs it.
func (d *daemon) configureLoad() {
	d.loading.Lock() // or what was found out first could be told last
	defer d.loading.Unlock()
	c := d.config.Current()
	needed := d.queue.NeedsLoad() || len(c.Global.LoadSensors) > 0
	for i := range c.Queues {
		needed = needed || len(c.Queues[i].LoadThresholds) > 0 || len(c.Queues[i].SuspendThresholds) > 0
	}
	sensors := c.Global.LoadSensors
	if d.opts.RootMode && d.load.SensorUser == nil {
		sensors = nil
	}
	d.load.Configure(c.Global.LoadReportTime, needed, sensors)
}
