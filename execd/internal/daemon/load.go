package daemon

import (
	"context"
	"fmt"
	"os"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/usage"
	"paddock/execd/internal/user"
)

// buildLoad makes what measures the load of the host, and the table of its cores.
func (d *daemon) buildLoad() *queue.Cores {
	d.load = &usage.Load{
		Host: d.host, Starter: d.launch.AsUser, SensorUser: d.service, Log: d.log,
		Parse: func(name, text string) conf.Value {
			if a := d.config.Current().Attribute(name); a != nil {
				if v, err := conf.ParseValue(a.Kind, text); err == nil {
					return v
				}
			}
			return conf.Value{Text: text}
		},
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
	d.gauge = &usage.Gauge{Load: d.load, Dir: func() string { return d.sandboxes.Place() }, Log: d.log}
	return cores
}

// configureLoad sets how often the load is looked at: never if no threshold, no sensor
// and no waiting job needs it.
func (d *daemon) configureLoad() {
	d.loading.Lock() // or an older setting could replace a newer one
	defer d.loading.Unlock()
	c := d.config.Current()
	needed := d.queue.NeedsLoad() || len(c.Global.LoadSensors) > 0
	for i := range c.Queues {
		needed = needed || len(c.Queues[i].LoadThresholds) > 0 || len(c.Queues[i].SuspendThresholds) > 0
	}
	d.load.Configure(c.Global.LoadReportTime, needed, c.Global.LoadSensors)
}

// service returns the user that mailers and load sensors run as.
func (d *daemon) service(ctx context.Context) (*user.User, error) {
	return asuser.Service(ctx, d.users)
}

// reportService logs that mailers and load sensors, if there are any, do not run as the
// account meant for them, once until that changes.
func (d *daemon) reportService(c *conf.Config) {
	// The administrator may not know of a mailer that was found.
	if g := &c.Global; os.Geteuid() != 0 || (g.Mailer == "" || g.Mailer == conf.MailerAuto) && len(g.LoadSensors) == 0 {
		return
	}
	told := ""
	switch u, err := d.service(context.Background()); {
	case err != nil:
		told = fmt.Sprintf("execd: neither mailers nor load sensors run: %v", err)
	case u.Name != asuser.Account:
		told = fmt.Sprintf("execd: this host has no account %s: mailers and load sensors run as %s", asuser.Account, u.Name)
	}
	if old := d.serviceTold.Swap(&told); told != "" && (old == nil || *old != told) {
		d.log.Warn(told)
	}
}
