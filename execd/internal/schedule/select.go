package schedule

import (
	"slices"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
)

// Account is a user with his groups.
type Account struct {
	User   string
	Groups []string
}

// Select returns the names of the queues whose configuration offers the resources,
// whatever is in use, as qselect -l, -pe and -U choose them. The error is for the user,
// in Grid Engine's words.
func (s *books) Select(resources []api.Resource, pes []string, users []Account) ([]string, error) {
	requests, err := s.host.wished(resources)
	if err != nil {
		return nil, err
	}
	if len(pes) > 0 && !slices.ContainsFunc(pes, func(name string) bool { return s.host.conf.PEs[name] != nil }) {
		return nil, api.Errorf(api.CodeNotFound, "no such parallel environment")
	}
	var names []string
	for _, q := range s.host.queues {
		if !s.has(q, requests) || len(pes) > 0 && !slices.ContainsFunc(pes, func(name string) bool { return slices.Contains(q.PEs, name) }) {
			continue
		}
		if !slices.ContainsFunc(users, func(u Account) bool { return !s.host.lets(q, u) }) {
			names = append(names, q.Name)
		}
	}
	return names, nil
}

// Suits reports whether a job with these requests might run in one of the queues,
// whatever is in use.
func (s *books) Suits(r *api.SubmitRequest, queues []string) bool {
	requests, err := s.host.wished(r.Hard)
	if err != nil {
		return false // the configuration no longer has room for it
	}
	return slices.ContainsFunc(s.host.queues, func(q *queue) bool {
		return slices.Contains(queues, q.Name) && (len(r.Queues) == 0 || matchesQueue(s.host.conf, r.Queues, q.Name)) && s.has(q, requests)
	})
}

// HostHas reports whether the host has the resources, as of now.
func (s *books) HostHas(resources []api.Resource) (bool, error) {
	requests, err := s.host.wished(resources)
	if err != nil {
		return false, err
	}
	for _, r := range requests {
		o, ok := s.offer(nil, r.Attribute, s.used)
		if r.Name == "hostname" {
			o, ok = offer{value: conf.Value{Text: s.host.conf.Hostname}}, true
		}
		if !ok || !satisfies(s.host.conf, r.Attribute, r.value, o.value) {
			return false, nil
		}
	}
	return true, nil
}

// wished finds the attributes that a user wants to see, including those that cannot be
// requested.
func (h *host) wished(list []api.Resource) ([]request, error) {
	if len(list) > api.MaxWords {
		return nil, api.Errorf(api.CodeBadRequest, "%d resources are asked for, at most %d are possible", len(list), api.MaxWords)
	}
	var found []request
	for _, r := range list {
		a := h.conf.Attribute(r.Name)
		if a == nil {
			return nil, api.Errorf(api.CodeNotFound, "unknown resource %q", api.Short(r.Name))
		}
		v, err := conf.ParseValue(a.Kind, r.Value)
		if err != nil || len(r.Value) > maxExpression {
			return nil, api.Errorf(api.CodeBadRequest, "attribute %q is not a %s value", a.Name, kindWord(a.Kind))
		}
		found = append(found, request{a, v})
	}
	return found, nil
}

// has reports whether a queue offers all of these when nothing runs. Load values count
// if they do not change with what runs.
func (s *books) has(q *queue, requests []request) bool {
	empty := make(ledger, len(s.host.accounts))
	for _, r := range requests {
		load := s.load
		if !steady(r.Attribute) {
			load = nil
		}
		o, ok := s.host.offerOf(q, r.Attribute, empty, load)
		if !ok || !satisfies(s.host.conf, r.Attribute, r.value, o.value) {
			return false
		}
	}
	return true
}

// lets reports whether a user may use a queue.
func (h *host) lets(q *queue, u Account) bool {
	lists := h.membership(u.User, u.Groups)
	if !h.admits(lists, q.UserLists, q.XUserLists) {
		return false
	}
	return !slices.ContainsFunc(h.access(), func(a conf.Access) bool { return !h.admits(lists, a.Allowed, a.Denied) })
}
