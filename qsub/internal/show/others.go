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

// chosen returns whether the words of -h name this host, and which of the others they name; without
// any it is all of them.
func chosen(words []string, here string, all []api.PeerStatus) (home bool, others []api.PeerStatus, err error) {
	if len(words) == 0 {
		return true, all, nil
	}
	others = []api.PeerStatus{} // an empty list in JSON, and not null
	for _, word := range words {
		k := slices.IndexFunc(all, func(p api.PeerStatus) bool { return isHost(word, p.Name) })
		switch {
		case isHost(word, here) || word == "localhost":
			home = true
		case k < 0:
			return false, nil, command.Failf("error: can't resolve hostname \"%s\"", api.Visible(word))
		case !slices.ContainsFunc(others, func(p api.PeerStatus) bool { return p.Name == all[k].Name }):
			others = append(others, all[k])
		}
	}
	return home, others, nil
}

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
