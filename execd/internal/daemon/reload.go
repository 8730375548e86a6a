package daemon

import (
	"context"
	"fmt"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/hook"
)

// reload reads the configuration again, and tells all managers. If something is wrong
// with it, the old one stays.
func (d *daemon) reload() (changed []string, err error) {
	changed, err = d.config.Reload()
	d.reloaded(changed, err)
	d.reloadPeers()
	return changed, err
}

// change changes the configuration on behalf of user@host, and tells all managers.
func (d *daemon) change(req *api.ConfigureRequest, by string) (api.ConfigureReply, error) {
	reply, err := d.config.Change(req, by)
	if err != nil || req.Dry || len(reply.Problems) > 0 {
		return reply, err
	}
	for _, line := range reply.Lines {
		if !line.Failed {
			// The log names the user for each change.
			d.log.Info(fmt.Sprintf("execd: qconf: %s %s", by, strings.TrimPrefix(line.Text, by+" ")))
		}
	}
	d.reloaded(reply.Changed, nil)
	return reply, nil
}

// reloaded handles the result of reading the configuration again.
func (d *daemon) reloaded(changed []string, err error) {
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			d.log.Error("execd: configuration: " + strings.TrimSpace(line))
		}
		d.log.Error("execd: the configuration stays as it was")
		return
	}
	for _, line := range changed {
		d.log.Info("execd: configuration: " + line)
	}
	// Another reload may tell the managers at the same time.
	d.config.Tell(func(c *conf.Config) {
		d.keep(c)
		hooks := hook.NewTable(c.Knobs)
		d.calls.Serve(hooks)
		d.hooks.Store(hooks)
		d.reportWarnings(c)
		d.reportHooks()
		d.sandboxes.Configure()
		d.reportService(c)
		d.logs.configure(c)
		d.queue.Configure(c)
		d.setPolicy(c)
		d.fetch.Configure()
		d.store.Keep(c.Global.FinishedJobs, c.Global.EndedJobs)
		d.usage.SetInterval(c.Global.UsageInterval)
		d.report()
		d.configureLoad()
		d.queueLog.Wake()
	})
}

// hangUps reads the configuration again on each SIGHUP, until ctx is done.
func (d *daemon) hangUps(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.opts.HangUp:
			_, _ = d.reload() // reload has logged the error
		}
	}
}
