package schedule

import (
	"slices"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
)

// Place is a queue of a host, this one or another.
type Place struct{ Host, Queue string }

// names reports whether a resource is the name of a queue or of a host, and finds its attribute.
func names(c *conf.Config, r *api.Resource) (*conf.Attribute, bool) {
	a := c.Attribute(r.Name)
	return a, a != nil && (a.Name == "qname" || a.Name == "hostname")
}

// Admits reports whether the names of queues and hosts in a request, of -q and -l, let its job
// run at a place, and counts those behind -soft that the place does not have.
func Admits(c *conf.Config, r *api.SubmitRequest, at Place) (ok bool, unfulfilled int) {
	has := func(r *api.Resource) bool {
		a, named := names(c, r)
		if !named {
			return true
		}
		offer := conf.Value{Text: at.Queue}
		if a.Name == "hostname" {
			offer.Text = at.Host
		}
		v, err := conf.ParseValue(a.Kind, r.Value)
		return err == nil && satisfies(c, a, v, offer)
	}
	for i := range r.Soft {
		if !has(&r.Soft[i]) {
			unfulfilled++
		}
	}
	if len(r.SoftQueues) > 0 && !matchesPlace(c, r.SoftQueues, at) {
		unfulfilled++
	}
	if len(r.Queues) > 0 && !matchesPlace(c, r.Queues, at) {
		return false, unfulfilled
	}
	for i := range r.Hard {
		if !has(&r.Hard[i]) {
			return false, unfulfilled
		}
	}
	return true, unfulfilled
}

// Steered reports whether a request names queues or hosts.
func Steered(c *conf.Config, r *api.SubmitRequest) bool {
	named := func(r api.Resource) bool {
		_, ok := names(c, &r)
		return ok
	}
	return len(r.Queues)+len(r.SoftQueues) > 0 || slices.ContainsFunc(r.Hard, named) || slices.ContainsFunc(r.Soft, named)
}

// Unnamed returns requests for resources without the names of queues and hosts.
func Unnamed(c *conf.Config, list []api.Resource) []api.Resource {
	return slices.DeleteFunc(slices.Clone(list), func(r api.Resource) bool {
		_, named := names(c, &r)
		return named
	})
}
