package schedule

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
)

// class is what jobs with the same requests have in common: where one of them does not
// fit, none fits.
type class struct {
	want    Job    // only what is requested
	lists   string // membership of their users in user lists
	key     string
	buckets int // number of buckets that refer to it
	urgency float64
	failed  int // the pass in which it did not fit

	compiled bool // the following fields are set; that is done when they are first needed
	hard     []request
	soft     []request
	unknown  []string   // requested names that the complex does not have
	pes      []*conf.PE // that the class may use, by name
	places   []place    // by queue
	each     []use      // of the host, for each slot
	once     []use      // of the host, for the job
	volatile []request  // decided by load values, which change
	consumes []request  // consumables with load values: neither may be exceeded
	alone    []int      // accounts of the host that the class takes exclusively
	shared   []int      // accounts of the host that no job may have exclusively
}

// place is how a class fits into one queue.
type place struct {
	never         obstacle // why the class never fits, or none
	master, slave bool     // whether the queue may have its first slot, the others
	duration      time.Duration
	each, once    []use
	alone, shared []int
	named         bool // whether units of a RSMAP are among each or once
	soft          int  // soft queue requests that are not fulfilled
}

// reason is the kind of an obstacle.
type reason int

const (
	none reason = iota
	notOnList
	noAccess
	noProject
	noSlots
	noPE
	notInteractive
	notBatch
	noCheckpoint
	otherCheckpoint
	forced
	unknown
	offersOnly
	inUse
	closed
	suspended
	overloaded
	full
	reserved
	unwilling
)

// obstacle is why a class cannot run somewhere. It is put into words only when
// somebody asks.
type obstacle struct {
	reason    reason
	attribute *conf.Attribute
	offer     offer
	text      string // name, or words
}

// classOf returns the class of a job, whose user is on these lists.
func (s *pendingJobs) classOf(j *Job, lists string) *class {
	key := s.keyOf(j, lists)
	if c := s.classes[string(key)]; c != nil {
		return c
	}
	c := &class{want: *j, lists: lists, key: string(key)}
	c.want.Number, c.want.User, c.want.Groups, c.want.Submitted = 0, "", nil, time.Time{}
	c.want.Priority, c.want.Tasks, c.want.First, c.want.Reserve = 0, 0, 0, false
	c.urgency = s.host.urgencyOf(&c.want)
	s.classes[c.key] = c
	return c
}

// keyOf writes all that makes a class into a buffer that the next call uses again.
func (s *pendingJobs) keyOf(j *Job, lists string) []byte {
	k := s.key[:0]
	word := func(w string) {
		k = strconv.AppendInt(k, int64(len(w)), 10)
		k = append(k, ':')
		k = append(k, w...)
	}
	words := func(list []string) {
		k = append(strconv.AppendInt(k, int64(len(list)), 10), ';')
		for _, w := range list {
			word(w)
		}
	}
	requests := func(list []Request) {
		k = append(strconv.AppendInt(k, int64(len(list)), 10), ';')
		for _, r := range list {
			word(r.Name)
			word(r.Value.Text)
			k = strconv.AppendUint(k, math.Float64bits(r.Value.Number), 36)
		}
	}
	word(lists)
	requests(j.Hard)
	requests(j.Soft)
	words(j.Queues)
	words(j.SoftQueues)
	words(j.MasterQueues)
	word(j.PE)
	word(j.Checkpoint)
	word(j.Project)
	k = strconv.AppendBool(k, j.Now)
	for _, r := range j.Slots {
		for _, n := range []int{r.Min, r.Max, r.Step} {
			k = append(strconv.AppendInt(k, int64(n), 10), '-')
		}
	}
	s.key = k
	return k
}

// mostUrgent bounds the requests of a user, which may be infinite.
const mostUrgent = 1e15

// urgencyOf is the urgency of the resources that a job asks for (sched_conf(5)).
func (h *host) urgencyOf(j *Job) float64 {
	assumed := h.assumedSlots(j)
	sum := 0.0
	if a := h.attributes[slots]; a != nil {
		sum = a.Urgency * assumed
	}
	for _, r := range j.Hard {
		sum += h.contribution(r, assumed)
	}
	return max(-mostUrgent, min(mostUrgent, sum))
}

// contribution is what one request contributes to the urgency of a job with so many
// slots.
func (h *host) contribution(r Request, assumed float64) float64 {
	a := h.attributes[r.Name]
	switch {
	case a == nil || a.Urgency == 0:
		return 0
	case a.Kind.Number():
		return a.Urgency * min(r.Value.Number, mostUrgent) * assumed
	}
	return a.Urgency
}

// Contributions returns what each hard request contributes to the urgency of a job; 0
// for what the complex does not have.
func (s *books) Contributions(r *api.SubmitRequest) []float64 {
	if len(r.Hard) == 0 {
		return nil
	}
	j := Job{PE: r.PE}
	for _, slots := range r.Slots {
		j.Slots = append(j.Slots, Range(slots))
	}
	assumed := s.host.assumedSlots(&j)
	list := make([]float64, len(r.Hard))
	for i := range r.Hard {
		if found, err := resolve(s.host.conf, r.Hard[i:i+1], false); err == nil && len(found) == 1 {
			list[i] = s.host.contribution(found[0], assumed)
		}
	}
	return list
}

// assumedSlots is how many slots a job is assumed to get, by urgency_slots of its PE.
func (h *host) assumedSlots(j *Job) float64 {
	if len(j.Slots) == 0 {
		return 1
	}
	least, most := j.Slots[0].Min, 0
	total, count := 0.0, 0.0
	rule, limit := "min", math.MaxInt
	if pe := h.conf.PEs[j.PE]; pe != nil {
		rule, limit = pe.UrgencySlots, pe.Slots
	}
	for _, r := range j.Slots {
		least = min(least, r.Min)
		top := max(r.Min, min(r.Max, limit))
		n := float64((top-r.Min)/max(1, r.Step) + 1)
		most = max(most, top)
		total += n * float64(r.Min+top) / 2
		count += n
	}
	switch rule {
	case "max":
		return float64(most)
	case "avg":
		return total / count
	}
	if n, err := strconv.Atoi(rule); err == nil {
		return float64(n)
	}
	return float64(least)
}

// requestsOf finds the attributes of requests, and the names that are no attributes.
func (h *host) requestsOf(list []Request, c *class) []request {
	var found []request
	for _, r := range list {
		if a := h.attributes[r.Name]; a != nil {
			found = append(found, request{a, r.Value})
		} else {
			c.unknown = append(c.unknown, r.Name)
		}
	}
	return found
}

// compile works out the part of a class that depends on the configuration alone.
func (s *books) compile(c *class) {
	if c.compiled {
		return
	}
	h := s.host
	c.compiled = true
	c.hard = s.host.requestsOf(c.want.Hard, c)
	c.soft = s.host.requestsOf(c.want.Soft, c)
	for _, name := range sorted(h.conf.PEs) {
		pe := h.conf.PEs[name]
		if c.want.PE != "" && matches(c.want.PE, name, false) && h.admits(c.lists, pe.UserLists, pe.XUserLists) {
			c.pes = append(c.pes, pe)
		}
	}
	c.each = append(c.each, use{h.slots, 1})
	for _, r := range c.wanted(h) {
		if i, ok := h.consumed[consumer{r.Name, ""}]; ok && consumable(r.Attribute) && r.value.Number > 0 {
			addUse(r, i, &c.each, &c.once)
		}
		if _, ok := s.load[r.Name]; ok {
			if consumable(r.Attribute) {
				c.consumes = append(c.consumes, r)
			} else {
				c.volatile = append(c.volatile, r)
			}
		}
	}
	c.alone, c.shared = c.exclusives(h, h.exclusive)
	c.places = make([]place, len(h.queues))
	for i, q := range h.queues {
		s.compilePlace(c, q, &c.places[i])
	}
}

// wanted returns what a class asks for, and the defaults of consumables that it does
// not ask for.
func (c *class) wanted(h *host) []request {
	all := slices.Clone(c.hard)
	for _, d := range h.defaults {
		if !c.asksFor(d.Name) {
			all = append(all, d)
		}
	}
	return all
}

func (c *class) asksFor(name string) bool {
	return slices.ContainsFunc(c.want.Hard, func(r Request) bool { return r.Name == name })
}

func addUse(r request, account int, each, once *[]use) {
	if r.Consumable == conf.ConsumableJob {
		*once = append(*once, use{account, r.value.Number})
	} else {
		*each = append(*each, use{account, r.value.Number})
	}
}

// exclusives divides exclusive attributes into those that the class takes exclusively
// and those that no other job may have exclusively.
func (c *class) exclusives(h *host, accounts []int) (alone, shared []int) {
	for _, i := range accounts {
		name := h.accounts[i].attribute.Name
		if slices.ContainsFunc(c.want.Hard, func(r Request) bool { return r.Name == name && r.Value.Number != 0 }) {
			alone = append(alone, i)
		} else {
			shared = append(shared, i)
		}
	}
	return alone, shared
}

func (s *books) compilePlace(c *class, q *queue, p *place) {
	h := s.host
	p.slave = len(c.want.Queues) == 0 || matchesQueue(h.conf, c.want.Queues, q.Name)
	p.master = p.slave
	if len(c.want.MasterQueues) > 0 {
		p.master = matchesQueue(h.conf, c.want.MasterQueues, q.Name)
	}
	if len(c.want.SoftQueues) > 0 && !matchesQueue(h.conf, c.want.SoftQueues, q.Name) {
		p.soft++
	}
	p.duration = s.host.durationOf(&c.want, q)
	p.never = s.never(c, q, p)
	p.each = append(p.each, use{q.slots, 1})
	for _, r := range c.wanted(h) {
		if i, ok := h.consumed[consumer{r.Name, q.Name}]; ok && consumable(r.Attribute) && r.value.Number > 0 {
			addUse(r, i, &p.each, &p.once)
			p.named = p.named || len(h.accounts[i].ids) > 0
		}
	}
	p.alone, p.shared = c.exclusives(h, q.exclusive)
}

// durationOf is how long a job may run in a queue: what it asks for, else what the
// queue allows, else default_duration; 0: for ever.
func (h *host) durationOf(j *Job, q *queue) time.Duration {
	if d := Requested(j); d > 0 {
		return d
	}
	if q.HRT > 0 {
		return q.HRT
	}
	return h.conf.Scheduling.DefaultDuration
}

// forever is longer than any job runs, in seconds, and small enough to be added to a
// time.
const forever = 1e9

// Requested returns how long a job asks to run, by the larger of h_rt and s_rt
// (sched_conf(5), max_reservation); 0: it does not ask.
func Requested(j *Job) time.Duration {
	seconds := 0.0
	for _, r := range j.Hard {
		if r.Name == "h_rt" || r.Name == "s_rt" {
			seconds = max(seconds, r.Value.Number)
		}
	}
	return time.Duration(min(seconds, forever)) * time.Second
}

// projectObstacle is Grid Engine's message for a job that is kept out of a place by its
// project.
func projectObstacle(project string, excluded []string, where string) string {
	switch {
	case project == "":
		return "(no project) does not have the correct project to run in " + where
	case slices.Contains(excluded, project):
		return fmt.Sprintf("(project %s) is not allowed to run in %s based on the excluded project list", project, where)
	}
	return fmt.Sprintf("(project %s) does not have the correct project to run in %s", project, where)
}

// never returns why a class can never run in a queue.
func (s *books) never(c *class, q *queue, p *place) obstacle {
	h := s.host
	switch {
	case !p.slave && !p.master:
		return obstacle{reason: notOnList}
	case !h.admits(c.lists, q.UserLists, q.XUserLists):
		return obstacle{reason: noAccess, text: fmt.Sprintf("cluster queue %q", q.Name)}
	case slices.ContainsFunc(h.access(), func(a conf.Access) bool { return !h.admits(c.lists, a.Allowed, a.Denied) }):
		return obstacle{reason: noAccess, text: fmt.Sprintf("host %q", h.conf.Hostname)}
	case !conf.MayProject(c.want.Project, q.Projects, q.XProjects):
		return obstacle{reason: noProject, text: projectObstacle(c.want.Project, q.XProjects, fmt.Sprintf("cluster queue %q", q.Name))}
	case slices.ContainsFunc(h.access(), func(a conf.Access) bool { return !conf.MayProject(c.want.Project, a.Projects, a.XProjects) }):
		return obstacle{reason: noProject, text: projectObstacle(c.want.Project, nil, fmt.Sprintf("host %q", h.conf.Hostname))}
	case q.Slots == 0:
		return obstacle{reason: noSlots}
	case c.want.PE != "" && !slices.ContainsFunc(c.pes, func(pe *conf.PE) bool { return slices.Contains(q.PEs, pe.Name) }):
		return obstacle{reason: noPE, text: c.want.PE}
	case c.want.Now && !q.Interactive:
		return obstacle{reason: notInteractive}
	case !c.want.Now && !q.Batch && c.want.PE == "": // a queue with a PE takes parallel batch jobs
		return obstacle{reason: notBatch}
	case c.want.Checkpoint != "" && len(q.Checkpoints) == 0:
		return obstacle{reason: noCheckpoint}
	case c.want.Checkpoint != "" && !slices.Contains(q.Checkpoints, c.want.Checkpoint):
		return obstacle{reason: otherCheckpoint, text: c.want.Checkpoint}
	case len(c.unknown) > 0:
		return obstacle{reason: unknown, text: c.unknown[0]}
	}
	for _, a := range h.forced {
		if c.asksFor(a.Name) {
			continue
		}
		for i, values := range []conf.Values{h.conf.AnyHost, h.conf.Host, q.Complex} {
			if _, ok := values[a.Name]; ok {
				return obstacle{reason: forced, attribute: a, offer: offer{level: "ghq"[i]}}
			}
		}
	}
	empty := make(ledger, len(h.accounts))
	for _, r := range c.hard {
		o, ok := s.offer(q, r.Attribute, empty)
		if !ok {
			return obstacle{reason: unknown, text: r.Name}
		}
		if exclusive(r.Attribute) {
			if r.value.Number != 0 && o.value.Number == 0 {
				return obstacle{reason: offersOnly, attribute: r.Attribute, offer: o}
			}
			continue
		}
		if consumable(r.Attribute) {
			// A limit of the queue holds for each slot, beside the consumable.
			if v, ok := q.limitOf(r.Attribute, h.conf); ok && !satisfies(h.conf, r.Attribute, r.value, v) {
				return obstacle{reason: offersOnly, attribute: r.Attribute, offer: offer{v, 'q', 'f'}}
			}
			continue
		}
		if _, isLoad := s.load[r.Name]; !isLoad && !satisfies(h.conf, r.Attribute, r.value, o.value) {
			return obstacle{reason: offersOnly, attribute: r.Attribute, offer: o}
		}
	}
	return obstacle{}
}

// words describes an obstacle, for a queue or, without one, the host: in the words of
// Grid Engine's schedd_job_info where it has them.
func (h *host) words(c *class, q *queue, o obstacle) string {
	where := fmt.Sprintf("at host %q", h.conf.Hostname)
	if o.offer.level == 'g' {
		where = "globally"
	}
	if q != nil && o.offer.level != 'h' && o.offer.level != 'g' {
		where = fmt.Sprintf("in queue %q", q.instance)
	}
	instance := ""
	if q != nil {
		instance = q.instance
	}
	switch o.reason {
	case notOnList:
		return fmt.Sprintf("cannot run in queue %q because it is not contained in its hard queue list (-q)", instance)
	case noAccess:
		return "has no permission for " + o.text
	case noProject:
		return o.text
	case noSlots:
		return fmt.Sprintf(`cannot run in queue instance %q because it has "0" slots`, instance)
	case noPE:
		return fmt.Sprintf("cannot run in queue %q because PE %q is not in PE list", instance, o.text)
	case notInteractive:
		return fmt.Sprintf("cannot run in queue %q because it is not of type interactive", instance)
	case notBatch:
		return fmt.Sprintf("cannot run in queue instance %q because it is not of type batch", instance)
	case noCheckpoint:
		return fmt.Sprintf("cannot run in queue instance %q because it is not of type checkpointing", instance)
	case otherCheckpoint:
		return fmt.Sprintf("cannot run in queue instance %q because ckpt object %q is not in ckpt list of queue", instance, o.text)
	case forced:
		switch o.offer.level {
		case 'g':
			return fmt.Sprintf("does not request globally 'forced' resource %q", o.attribute.Name)
		case 'h':
			return fmt.Sprintf("does not request 'forced' resource %q of host %s", o.attribute.Name, h.conf.Hostname)
		}
		return fmt.Sprintf("does not request 'forced' resource %q of queue instance %s", o.attribute.Name, instance)
	case unknown:
		return fmt.Sprintf("%s cannot run %s because job requests unknown resource (%s)", c.requestText(), where, o.text)
	case offersOnly:
		why := "it offers only "
		if !c.asksFor(o.attribute.Name) {
			why = "for default request it offers only "
		}
		return fmt.Sprintf("%s cannot run %s because %s%s%s", c.requestText(), where, why, o.offer.describe(o.attribute), o.text)
	case inUse:
		return fmt.Sprintf("%s cannot run %s because exclusive resource (%s) is already in use", c.requestText(), where, o.attribute.Name)
	case closed, suspended, overloaded:
		return fmt.Sprintf("queue instance %q dropped because it is %s", instance, o.text)
	case full:
		return fmt.Sprintf("queue instance %q dropped because it is full", instance)
	case unwilling:
		return fmt.Sprintf("cannot run in queue %q because %s", instance, o.text)
	case reserved:
		return fmt.Sprintf("cannot run %s because %s", where, o.text)
	}
	panic(fmt.Sprintf("internal error: obstacle %d has no words", o.reason))
}

// requestText writes the requests of a class as its user wrote them.
func (c *class) requestText() string {
	if len(c.want.Hard) == 0 {
		return "(-l NONE)"
	}
	var list []string
	for _, r := range c.want.Hard {
		list = append(list, r.Name+"="+r.Value.Text)
	}
	return "(-l " + strings.Join(list, ",") + ")"
}
