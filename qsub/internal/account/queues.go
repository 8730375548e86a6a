package account

import (
	"context"
	"strings"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
)

// offers are the queue instances of the host; the value says whether one has
// the resources of -l.
type offers map[string]bool

// askQueues asks execd which queues have the resources of -l, and which are on
// the hosts of a host group of -q.
func askQueues(ctx context.Context, inv *command.Invocation, r *report) error {
	if len(r.resources) > 0 {
		if err := askOffers(ctx, inv, r); err != nil {
			return err
		}
	}
	for i := range r.columns {
		if p := r.columns[i].pattern; p != nil && strings.HasPrefix(p.host, "@") {
			if err := askGroup(ctx, inv, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func askOffers(ctx context.Context, inv *command.Invocation, r *report) error {
	all, err := inv.Host(ctx, &api.HostRequest{})
	if err != nil {
		return err
	}
	having, err := inv.Host(ctx, &api.HostRequest{Resources: r.resources})
	if err != nil {
		return err
	}
	r.offers = offers{}
	for i := range all.Queues {
		r.offers[all.Instance(&all.Queues[i])] = false
	}
	for i := range having.Queues {
		r.offers[having.Instance(&having.Queues[i])] = true
	}
	return nil
}

// askGroup sets the queue instances that a pattern queue@@hostgroup matches.
func askGroup(ctx context.Context, inv *command.Invocation, p *queuePattern) error {
	host, err := inv.Host(ctx, &api.HostRequest{})
	if err != nil {
		return err
	}
	p.instances = map[string]bool{}
	for i := range host.Queues {
		if q := &host.Queues[i]; argument.MatchQueue(p.queue+"@"+p.host, host, q) {
			p.instances[host.Instance(q)] = true
		}
	}
	if len(p.instances) == 0 {
		return command.Failf("No queues remaining after -q queue selection")
	}
	return nil
}

func instanceOf(f *accounting.Fields) string {
	return string(f.Text(accounting.FieldQName)) + "@" + string(f.Text(accounting.FieldHostname))
}
