// Package match decides which hosts and slots a job of this host may go to, by what is said of
// them: it has no clock, lock or request. What hosts and users say may be anything, and package
// classad bounds what an expression may cost.
//
// Package shadow alone imports it.
package match

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/spool"
)

// Class has jobs alike: what a host says of one of them it would say of the others.
type Class struct {
	Owner       string
	needs       job.Needs
	interactive bool
}

// ClassOf returns the class of a job.
func ClassOf(j *job.Job) Class { return Class{j.Owner, j.Terms().Needs, j.Interactive} }

// Travels reports whether the files of a job travel when it runs on another host.
func Travels(r *api.SubmitRequest) bool { return r.Sandbox == api.SandboxYes }

// Stays says why a job runs on no host but this one, for what it asks for, how it is connected and
// the file systems that this host shares; empty: it may leave. Its files are reached by these, or
// travel into its sandbox and out of it.
func Stays(r *api.SubmitRequest, s *job.Session, domain string) string {
	switch {
	case s != nil && s.Display != "":
		return "jobs of qsh run on this host alone"
	case s != nil && s.Daemon != "":
		return "interactive jobs that are not connected by qrsh itself (sge_conf(5)) run on this host alone"
	case r.PE != "":
		return "parallel jobs run on this host alone"
	case r.Checkpoint != "":
		return "jobs with a checkpointing interface run on this host alone"
	case Travels(r) && s != nil:
		return "interactive jobs with a sandbox run on this host alone"
	case Travels(r) && ad.NamesPlugins(r.Attributes):
		return "jobs with file transfer plugins of their own run on this host alone"
	case ad.NamesHooks(r.Attributes):
		return "jobs with hooks of their own run on this host alone"
	case !Travels(r) && domain == "":
		return "FILESYSTEM_DOMAIN of this host is not set"
	}
	return ""
}

// Unreached says why the session of an interactive job on a host would not find its client;
// empty: it finds it.
func Unreached(s *job.Session, p *api.PeerStatus) string {
	if s == nil || !loopback(s.Client.Address) || loopback(p.Address) {
		return ""
	}
	return "qrsh listens at an address of this host alone (-listen)"
}

// loopback reports whether an address is one that only its own host can reach.
func loopback(address string) bool {
	a, err := netip.ParseAddrPort(address)
	return spool.LocalAddress(address) || err == nil && a.Addr().Unmap().IsLoopback()
}

// Admits reports whether a request leaves room for one of the queues of a host. One that was
// never heard of may have those of home, and those that the request names.
func Admits(c *conf.Config, r *api.SubmitRequest, p *api.PeerStatus) bool {
	if !schedule.Steered(c, r) {
		return true
	}
	has := func(queue string) bool {
		ok, _ := schedule.Admits(c, r, schedule.Place{Host: p.Name, Queue: queue})
		return ok
	}
	if p.Queues != nil {
		return slices.ContainsFunc(p.Queues, func(q api.QueueStatus) bool { return has(q.Name) })
	}
	return slices.ContainsFunc(c.Queues, func(q conf.Queue) bool { return has(q.Name) }) || slices.ContainsFunc(r.Queues, func(pattern string) bool {
		name, _, _ := strings.Cut(pattern, "@")
		return has(name)
	})
}

// Preferred returns the hosts in the order in which a job is offered to them: what it asks for
// behind -soft comes first.
func Preferred(c *conf.Config, r *api.SubmitRequest, peers []api.PeerStatus) []api.PeerStatus {
	if len(r.SoftQueues)+len(r.Soft) == 0 {
		return peers
	}
	order := slices.Clone(peers)
	slices.SortStableFunc(order, func(a, b api.PeerStatus) int { return cmp.Compare(unfulfilled(c, r, &a), unfulfilled(c, r, &b)) })
	return order
}

// unfulfilled counts the names behind -soft that the best queue of a host does not have.
func unfulfilled(c *conf.Config, r *api.SubmitRequest, p *api.PeerStatus) int {
	least := len(r.Soft) + 1
	for i := range p.Queues {
		if ok, n := schedule.Admits(c, r, schedule.Place{Host: p.Name, Queue: p.Queues[i].Name}); ok {
			least = min(least, n)
		}
	}
	return least
}
