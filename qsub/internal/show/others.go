package show

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
)

// Of the certificate of another host is told when so little of its time is left.
const expiresSoon = 30 * 24 * time.Hour

// otherHost returns another host as that of its queues. Nothing runs there that its submit
// host could see, but what it says of them.
func otherHost(p *api.PeerStatus) *api.HostReply {
	h := &api.HostReply{Host: p.Name, Arch: p.Arch, Queues: slices.Clone(p.Queues)}
	if p.State != api.PeerUp {
		for i := range h.Queues {
			h.Queues[i].States += "u"
		}
	}
	return h
}

// hostsIn returns a host and the others that it knows.
func hostsIn(host *api.HostReply) []*api.HostReply {
	list := []*api.HostReply{host}
	for i := range host.Others {
		list = append(list, otherHost(&host.Others[i]))
	}
	return list
}

// condition says how another host is.
func condition(p *api.PeerStatus, now time.Time) string {
	text := fmt.Sprintf("up: %d of %d slots are free", p.Free, p.Slots)
	switch {
	case p.State == api.PeerUnknown:
		text = "it has not answered yet"
	case p.State != api.PeerUp:
		text = fmt.Sprintf("down since %s: %s", stamp(p.Since), api.Visible(p.Error))
	case p.Draining:
		text = "it is being drained: takes no jobs"
	}
	if !p.Until.IsZero() && p.Until.Sub(now) < expiresSoon {
		text += "; its certificate is valid until " + day(p.Until)
	}
	return text
}

// on returns the jobs that run on a host.
func on(host string, jobs []api.JobStatus) (list []api.JobStatus) {
	for i := range jobs {
		if strings.HasSuffix(jobs[i].Queue, "@"+host) {
			list = append(list, jobs[i])
		}
	}
	return list
}

// otherHosts prints the lines of the other hosts for qhost, of all or of those that are named.
func otherHosts(inv *command.Invocation, hosts []api.PeerStatus, running []api.JobStatus, v *hostView) {
	for i := range hosts {
		p := &hosts[i]
		h := otherHost(p)
		hostLine(inv, append([]string{h.Host}, hostCells(h)...), v.short)
		fmt.Fprintf(inv.Out, "    %s\n", condition(p, time.Now()))
		hostJobs(inv, h, on(h.Host, running), v.queues)
	}
}
