package schedule

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
)

// Resolve makes a job of a request. The error is for the user, in Grid Engine's words:
// a resource, queue or PE that does not exist, a value that makes no sense, something
// he may not ask for. The caller sets Number, Submitted, Tasks and First. Elsewhere reports
// whether a pattern of -q may mean a queue of another host; nil: none does.
func Resolve(c *conf.Config, r *api.SubmitRequest, user string, groups []string, elsewhere func(pattern string) bool) (Job, error) {
	reject := func(format string, args ...any) (Job, error) {
		return Job{}, api.Errorf(api.CodeRejected, format, args...)
	}
	if g := &c.Global; !c.MayUse(g.UserLists, g.XUserLists, user, groups...) {
		return reject("job rejected: %s@%s is not allowed to submit jobs", user, c.Hostname)
	}
	j := Job{
		User: user, Groups: groups, Priority: r.Priority, Reserve: r.Reserve && !r.Now, Now: r.Now,
		Queues: r.Queues, SoftQueues: r.SoftQueues, MasterQueues: r.MasterQueues,
		PE: r.PE, Checkpoint: r.Checkpoint, Project: r.Project,
	}
	if r.Priority < api.MinPriority || r.Priority > api.MaxPriority {
		return reject("job rejected: priority %d is not in the range from %d to %d", r.Priority, api.MinPriority, api.MaxPriority)
	}
	var err error
	if j.Hard, err = resolve(c, r.Hard, false); err != nil {
		return Job{}, err
	}
	if j.Soft, err = resolve(c, r.Soft, true); err != nil {
		return Job{}, err
	}
	for _, patterns := range [][]string{r.Queues, r.SoftQueues, r.MasterQueues} {
		if len(patterns) > api.MaxWords {
			return reject("job rejected: it names %d queues, at most %d are possible", len(patterns), api.MaxWords)
		}
		for _, p := range patterns {
			here := slices.ContainsFunc(c.Queues, func(q conf.Queue) bool { return matchesQueue(c, []string{p}, q.Name) })
			here = here || slices.ContainsFunc(c.Elsewhere, func(q string) bool { return matches(p, q, false) })
			if !here && (elsewhere == nil || !elsewhere(p)) {
				return reject("Job was rejected because job requests unknown queue %q", api.Short(p))
			}
		}
	}
	if r.Checkpoint != "" && c.Checkpoints[r.Checkpoint] == nil {
		return reject("job rejected: the requested checkpointing environment %q does not exist", api.Short(r.Checkpoint))
	}
	if r.PE == "" {
		if len(r.Slots) > 0 {
			return reject("job rejected: slots are requested without a parallel environment")
		}
		j.MasterQueues = nil // qalter may set them before -pe; they count for a parallel job
		return j, nil
	}
	if !slices.ContainsFunc(sorted(c.PEs), func(name string) bool { return matches(r.PE, name, false) }) {
		return reject("job rejected: the requested parallel environment %q does not exist", api.Short(r.PE))
	}
	if len(r.Slots) == 0 || len(r.Slots) > api.MaxWords {
		return reject("job rejected: %d ranges of slots for parallel environment %q, from 1 to %d are possible", len(r.Slots), api.Short(r.PE), api.MaxWords)
	}
	for _, s := range r.Slots {
		if s.Min < 1 || s.Max < s.Min || s.Max > api.MaxSlots || s.Step < 1 {
			return reject("job rejected: %d-%d:%d is not a range of slots", s.Min, s.Max, s.Step)
		}
		j.Slots = append(j.Slots, Range(s))
	}
	return j, nil
}

// resolve reads requests; of several for one attribute the last counts.
func resolve(c *conf.Config, list []api.Resource, soft bool) ([]Request, error) {
	if len(list) > api.MaxWords {
		return nil, api.Errorf(api.CodeRejected, "job rejected: it requests %d resources, at most %d are possible", len(list), api.MaxWords)
	}
	var found []Request
	for _, r := range list {
		a := c.Attribute(r.Name)
		if a == nil {
			return nil, api.Errorf(api.CodeRejected, "unknown resource %q%s", api.Short(r.Name), c.LikeAttribute(r.Name))
		}
		v, err := conf.ParseValue(a.Kind, r.Value)
		counted := consumable(a) || exclusive(a)
		switch {
		case a.Name == slots:
			return nil, api.Errorf(api.CodeRejected, `"job" denied: use parallel environments instead of requesting slots explicitly`)
		case a.Requestable == conf.RequestableNo:
			return nil, api.Errorf(api.CodeRejected, "resource %q configured as non requestable", a.Name)
		case soft && counted:
			return nil, api.Errorf(api.CodeRejected, "denied: soft requests on consumables like %q are not supported", a.Name)
		case err != nil && len(r.Value) <= maxExpression && a.Kind == conf.KindMemory:
			return nil, api.Errorf(api.CodeRejected, "attribute %q is not a %s value\n%v", a.Name, kindWord(a.Kind), err)
		case err != nil || len(r.Value) > maxExpression:
			return nil, api.Errorf(api.CodeRejected, "attribute %q is not a %s value", a.Name, kindWord(a.Kind))
		case counted && v.Number < 0:
			return nil, api.Errorf(api.CodeRejected, "attribute %q is consumable but has a negative value", a.Name)
		}
		found = slices.DeleteFunc(found, func(f Request) bool { return f.Name == a.Name })
		found = append(found, Request{Name: a.Name, Value: v})
	}
	return found, nil
}

// Spell returns requests as Grid Engine shows them: attributes by their names, not
// their shortcuts, times in seconds. A request that makes no sense stays as it is.
func Spell(c *conf.Config, list []api.Resource) []api.Resource {
	if len(list) == 0 {
		return list
	}
	spelt := slices.Clone(list)
	for i := range spelt {
		r := &spelt[i]
		a := c.Attribute(r.Name)
		if a == nil {
			continue
		}
		r.Name = a.Name
		if v, err := conf.ParseValue(a.Kind, r.Value); err == nil && a.Kind == conf.KindTime && !math.IsInf(v.Number, 0) {
			r.Value = strconv.FormatFloat(v.Number, 'f', 0, 64)
		}
	}
	return spelt
}

// kindWord is what Grid Engine calls a kind of values in errors.
func kindWord(k conf.Kind) string {
	switch k {
	case conf.KindInt, conf.KindRSMap:
		return "integer"
	case conf.KindBool:
		return "boolean"
	}
	return strings.ToLower(string(k))
}
