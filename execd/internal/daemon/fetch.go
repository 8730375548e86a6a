package daemon

import (
	"errors"

	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/job"
	"paddock/execd/internal/source/fetch"
	"paddock/execd/internal/user"
)

// buildFetch makes the fetcher, which does not fetch yet. only is the only uid that
// may run anything, -1 in root mode; failing is of Options.
func (d *daemon) buildFetch(claims *claim.Table, only int, failing func()) {
	d.fetch = fetch.New(fetch.Options{
		Slots: d.queue, Claims: claims, Store: d.store, Root: d.root, Host: d.host, Log: d.log, Counts: &d.counts, Failing: failing,
		Hooks: d.calls, HookTable: d.hooks.Load, Config: d.config.Current, Owners: fetch.Owners{Users: d.users, Self: only},
		Check: func(owner *user.User, req *api.SubmitRequest) error {
			if why := d.room(); req.Sandbox == api.SandboxYes && why != "" {
				return errors.New(why)
			}
			return d.server.Rules().Work(owner, req)
		},
		Limits: func() job.Limits {
			g := &d.config.Current().Global
			return job.Limits{Jobs: g.MaxJobs, UserJobs: g.MaxUserJobs}
		},
	})
}
