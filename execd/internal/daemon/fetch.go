package daemon

import (
	"os"

	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/fetch"
	"paddock/execd/internal/job"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/user"
)

// fetchSlots are the slots as package fetch wants them.
type fetchSlots struct {
	queue  *queue.Queue
	claims *claim.Table
}

// List implements fetch.Slots.
func (s fetchSlots) List() []slot.ID {
	list, _ := s.claims.List()
	return list
}

// ListChanged implements fetch.Slots.
func (s fetchSlots) ListChanged() <-chan struct{} {
	_, changed := s.claims.List()
	return changed
}

// Snapshot implements fetch.Slots.
func (s fetchSlots) Snapshot(id slot.ID) (fetch.Slot, bool) {
	v, ok := s.queue.Snapshot(id)
	if !ok {
		return fetch.Slot{}, false
	}
	return fetch.Slot{
		ID: v.Slot, State: v.State, Activity: v.Activity, Ad: v.Ad, Job: v.Job,
		Fetched: v.Kind == claim.KindFetch, Claim: v.ID.String(), Promised: v.Promised, Ending: v.Ending, Closed: v.Closed,
	}, true
}

// Changed implements fetch.Slots.
func (s fetchSlots) Changed(id slot.ID) <-chan struct{} { return s.claims.Changed(id) }

// Asking implements fetch.Slots.
func (s fetchSlots) Asking(id slot.ID, asks bool) { s.queue.Asking(id, asks) }

// Offer implements fetch.Slots.
func (s fetchSlots) Offer(id slot.ID, w *fetch.Work) (claim.Granted, error) {
	return s.queue.Offer(id, w.Ad)
}

// Start implements fetch.Slots.
func (s fetchSlots) Start(id slot.ID, j *job.Job) error { return s.queue.Begin(id, j) }

// Withdraw implements fetch.Slots.
func (s fetchSlots) Withdraw(claim, reason string) bool {
	return s.queue.Withdraw(claim, false, reason)
}

// Expire implements fetch.Slots.
func (s fetchSlots) Expire(claim, reason string) { s.queue.Withdraw(claim, true, reason) }

// Claims implements fetch.Slots.
func (s fetchSlots) Claims() map[string]slot.ID { return s.claims.Fetched() }

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
	d.sources[slot.FetchHolder] = d.fetch
}

// fetchSettings are what the configuration in force says of fetching.
func (d *daemon) fetchSettings() fetch.Settings {
	return fetch.Settings{Knobs: d.config.Current().Knobs, Hooks: d.hooks.Load()}
}
