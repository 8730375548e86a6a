package daemon

import (
	"os"

	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/job"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/source/fetch"
	"paddock/execd/internal/user"
)

// fetchSlots are the slots as package fetch wants them.
type fetchSlots struct {
	*queue.Queue
	claims *claim.Table
}

// List implements fetch.Slots.
func (s fetchSlots) List() ([]slot.ID, <-chan struct{}) { return s.claims.List() }

// Changed implements fetch.Slots.
func (s fetchSlots) Changed(id slot.ID) <-chan struct{} { return s.claims.Changed(id) }

// Fetched implements fetch.Slots.
func (s fetchSlots) Fetched() map[string]slot.ID { return s.claims.Fetched() }

// buildFetch makes what fetches work. Nothing is fetched yet.
func (d *daemon) buildFetch(claims *claim.Table) {
	self := -1
	if !d.opts.RootMode {
		self = os.Geteuid()
	}
	d.fetch = fetch.New(fetch.Options{
		Slots: fetchSlots{d.queue, claims}, Store: d.store, Root: d.root, Hooks: d.calls, Host: d.host, Log: d.log, Config: d.config.Current,
		Owners: fetch.Owners{Users: d.users, Self: self, MinUID: func() int { return d.config.Current().Global.MinUID }},
		Check:  func(owner *user.User, req *api.SubmitRequest) error { return d.server.CheckWork(owner, req) },
		Limits: func() job.Limits {
			g := &d.config.Current().Global
			return job.Limits{Jobs: g.MaxJobs, UserJobs: g.MaxUserJobs}
		},
	}, d.fetchSettings())
}

// fetchSettings are what the configuration in force says of fetching.
func (d *daemon) fetchSettings() fetch.Settings {
	return fetch.Settings{Knobs: d.config.Current().Knobs, Hooks: d.hooks.Load()}
}
