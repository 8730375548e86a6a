package daemon

import (
	"path/filepath"
	"time"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/sandbox"
	"paddock/execd/internal/sandbox/worker"
)

// knobPatience says for how long output is tried to be delivered, in seconds.
const knobPatience = "TRANSFER_PATIENCE"

// knobKeep says for how long it waits then, in seconds.
const knobKeep = "SANDBOX_KEEP"

// buildSandboxes gives jobs the sandboxes that they ask for.
func (d *daemon) buildSandboxes(boot string) {
	h := &d.stages.Host
	knobs := func() *knob.Set { return d.config.Current().Knobs }
	starter := &asuser.Starter{Shepherd: d.launch.AsUser.Shepherd, Group: d.launch.Groups.OpenTransfers}
	m := &sandbox.Manager{
		Host: d.host, Boot: boot, Root: d.root, Privileged: d.opts.RootMode, Config: d.config.Current, Store: d.store,
		Owner: h.Owner, AsUser: d.launch.AsUser, Aside: h.Aside, Later: h.Later, Service: d.service, Projects: d.launch, Log: d.log,
		Throttle: sandbox.NewThrottle(knobs, d.opts.RootMode),
		Worker: &worker.Runner{
			Starter: starter, Pace: &worker.Pace{Total: func() int64 { return sandbox.Bandwidth(knobs()) }},
			Program: filepath.Join(filepath.Dir(d.launch.Session), worker.Program),
		},
	}
	h.Sandboxes, h.Input, h.Output = m, m, m
	d.store.OnUnbox(m.Unbox)
	m.Configure()
	d.launch.SandboxProjects = m.InProjects
	h.Keep = func() time.Duration {
		return time.Duration(d.config.Current().Knobs.Int(knobKeep, 7*24*60*60)) * time.Second
	}
	h.Patience = func() time.Duration {
		return time.Duration(d.config.Current().Knobs.Int(knobPatience, 24*60*60)) * time.Second
	}
	d.sandboxes = m
	d.gauge.Look() // which asks it where they are
}
