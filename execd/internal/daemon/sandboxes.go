package daemon

import (
	"context"
	"path/filepath"

	"paddock/execd/internal/job"
	"paddock/execd/internal/sandbox"
	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/sandbox/worker"
	"paddock/execd/internal/stage/exit"
)

// buildSandboxes gives jobs the sandboxes that they ask for.
func (d *daemon) buildSandboxes(boot string) {
	h := &d.stages.Host
	m := &sandbox.Manager{
		Host: d.host, Boot: boot, Root: d.root, Privileged: d.opts.RootMode, Config: d.config.Current, Store: d.store,
		Owner: h.Owner, AsUser: d.launch.AsUser, Aside: h.Aside, Log: d.log,
		Worker: &worker.Runner{Starter: d.launch.AsUser, Program: filepath.Join(filepath.Dir(d.launch.Session), worker.Program)},
	}
	h.Sandboxes, h.Input, h.Output = m, sandboxInput{m}, sandboxOutput{m}
	d.sandboxes = m
}

// sandboxInput brings the files of runs into their sandboxes.
type sandboxInput struct{ *sandbox.Manager }

func (sandboxInput) Wants(t *job.Task) bool { return t.Start.Sandbox != nil }

func (i sandboxInput) Fetch(t *job.Task, done func(error)) {
	go func() { done(i.Manager.Fetch(context.Background(), t, func(order.Progress) {})) }()
}

// sandboxOutput brings them out again.
type sandboxOutput struct{ *sandbox.Manager }

func (sandboxOutput) Wants(t *job.Task, _ exit.Ending) bool { return t.Start.Sandbox != nil }

func (o sandboxOutput) Send(t *job.Task, done func(error)) {
	go func() { done(o.Manager.Send(context.Background(), t, func(order.Progress) {})) }()
}
