package schedule

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
)

// Reasons says why a job that waits is not starting: a line for each obstacle in a
// queue or on the host, in the words of Grid Engine's schedd_job_info where it has
// them, and last what that means. It is nil for a job that the Scheduler does not have.
func (s *Scheduler) Reasons(job int, now time.Time) []string {
	e := s.jobs[job]
	if e == nil {
		return nil
	}
	c, u := e.bucket.class, e.bucket.who.user
	if s.spare(u) == 0 {
		return []string{
			"job dropped because of user limitations",
			fmt.Sprintf("user %s has %d tasks running, and may have %d (maxujobs)", u.name, u.running, s.host.conf.Scheduling.MaxUserRunning),
		}
	}
	n := s.ahead(e, now)
	ahead := fmt.Sprintf("%d jobs are ahead of it", n)
	if n == 1 {
		ahead = "1 job is ahead of it"
	}
	if e.bucket.reserve && !s.anyFree() {
		s.sweep(now) // Next may not have run since the last change; nothing can start here
	}
	v := &view{used: s.used, at: now, later: s.reserved, job: job}
	if i := slices.IndexFunc(v.later, func(r *reservation) bool { return r.job == job }); i >= 0 {
		// Only earlier reservations are obstacles.
		lines := s.obstacles(c, &view{used: s.used, at: now, later: v.later[:i], job: job})
		return append(lines, fmt.Sprintf("resources are kept free for it: it starts at %s at the latest", v.later[i].from.Format(time.DateTime)))
	}
	if s.allocate(c, v) != nil {
		return []string{"it can start when it is its turn: " + ahead}
	}
	lines := s.obstacles(c, v)
	switch {
	case s.allocate(c, &view{used: make(ledger, len(s.host.accounts)), state: idle}) == nil:
		return append(lines, "no suitable queues: it cannot run here even if nothing else does")
	case !slices.ContainsFunc(s.host.queues, func(q *queue) bool { return s.takes(q) }):
		return append(lines, "All queues dropped because of overload or full; "+ahead)
	case c.want.PE != "":
		return append(lines, "cannot run because resources requested are not available for parallel job; "+ahead)
	}
	return append(lines, "cannot run because resources requested are not available; "+ahead)
}

// Verdicts returns a function that says in a few words why jobs that wait are not
// starting, as of now: jobs of one class for the same reason. It is "" for a job that
// the Scheduler does not have.
func (s *Scheduler) Verdicts(now time.Time) func(job int) string {
	known := map[*class]string{}
	return func(job int) string {
		e := s.jobs[job]
		if e == nil {
			return ""
		}
		if s.spare(e.bucket.who.user) == 0 {
			return "Job dropped because of user limitations"
		}
		c := e.bucket.class
		why, ok := known[c]
		if !ok {
			why = s.verdict(c, now)
			known[c] = why
		}
		if s.gate != nil && why == mayStart && s.allocate(c, &view{used: s.used, at: now, later: s.reserved, job: job}) == nil {
			return "Jobs can not run because no slot is willing to run them"
		}
		return why
	}
}

// Waiting is a job that waits, with so many tasks, and its priority and what that is made of.
type Waiting struct {
	Job, Tasks int
	Priority   float64
	Parts      Parts
}

// Foremost returns the first jobs of those that wait, at most so many, in the order in which
// it would be their turn, with as many of their tasks as their users may still have running.
func (s *Scheduler) Foremost(now time.Time, most int) []Waiting {
	var line turns
	usages := s.usages(now)
	for _, u := range s.users {
		ticket := s.ticket(u, now, usages)
		for _, t := range u.line {
			line = append(line, waiter{s.keyFor(t.bucket, t.bucket.jobs[0], s.ordered) + ticket, ticket, t.bucket.jobs, t.bucket})
		}
	}
	heap.Init(&line)
	var jobs []Waiting
	named := map[*user]int{}
	for len(line) > 0 && len(jobs) < most {
		w := &line[0]
		e := w.jobs[0]
		if n := min(e.tasks, s.spare(w.bucket.who.user)-named[w.bucket.who.user]); n > 0 {
			named[w.bucket.who.user] += n
			parts := s.parts(e, now)
			jobs = append(jobs, Waiting{e.number, n, s.Priority(parts), parts})
		}
		if w.jobs = w.jobs[1:]; len(w.jobs) == 0 {
			heap.Pop(&line)
			continue
		}
		w.priority = s.keyFor(w.bucket, w.jobs[0], s.ordered) + w.ticket
		heap.Fix(&line, 0)
	}
	return jobs
}

// spare returns how many more tasks a user may have running.
func (s *Scheduler) spare(u *user) int {
	if limit := s.host.conf.Scheduling.MaxUserRunning; limit > 0 {
		return max(limit-u.running, 0)
	}
	return math.MaxInt
}

// MayRun reports whether a user may have another task running.
func (s *Scheduler) MayRun(name string) bool { return s.spare(s.userOf(name)) > 0 }

// waiter is what is left of a bucket, with the priority of the first job of it.
type waiter struct {
	priority, ticket float64
	jobs             []*entry
	bucket           *bucket
}

// turns is a heap of waiters, the next one first.
type turns []waiter

func (l turns) Len() int { return len(l) }
func (l turns) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(l[j].priority, l[i].priority), compareEntries(l[i].jobs[0], l[j].jobs[0])) < 0
}
func (l turns) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *turns) Push(w any)   { *l = append(*l, w.(waiter)) }
func (l *turns) Pop() any {
	last := len(*l) - 1
	w := (*l)[last]
	*l = (*l)[:last]
	return w
}

const mayStart = "Jobs can start when it is their turn"

func (s *Scheduler) verdict(c *class, now time.Time) string {
	s.compile(c)
	switch {
	case s.allocate(c, &view{used: s.used, at: now, later: s.reserved}) != nil:
		return mayStart
	case s.allocate(c, &view{used: make(ledger, len(s.host.accounts)), state: idle}) == nil:
		return "Jobs can not run because no host can satisfy the resource requirements"
	case !slices.ContainsFunc(s.host.queues, func(q *queue) bool { return s.takes(q) }):
		return "All queues dropped because of overload or full"
	case c.want.PE != "":
		return "Jobs can not run because resources requested are not available for parallel job"
	}
	return "Jobs can not run because resources requested are not available"
}

// takes reports whether a queue would take a job without requests.
func (s *books) takes(q *queue) bool {
	return q.closed == "" && s.used[q.slots] < s.host.accounts[q.slots].limit && s.alarm(q) == nil && q.suspendedBy(s.used) == nil
}

// keeping says why slots of a queue are kept that nobody uses.
func (s *books) keeping(q *queue, add func(line string)) {
	for _, r := range s.holders() {
		if r.Kept && r.Why != "" && r.Grant.Queues[0].Queue == q.Name {
			add(r.Why)
		}
	}
}

// obstacles says what keeps a class from running.
func (s *books) obstacles(c *class, v *view) []string {
	s.compile(c)
	var lines []string
	add := func(line string) {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if c.want.PE != "" && len(c.pes) == 0 {
		add(fmt.Sprintf("cannot run because no access to PE %q", c.want.PE))
	}
	for _, q := range s.host.queues {
		n, o := s.inQueue(c, q, v)
		if n == 0 {
			add(s.host.words(c, q, o))
			if o.reason == full {
				s.keeping(q, add)
			}
			continue
		}
		if n, o = s.onHost(c, v, c.places[q.index].duration); n == 0 {
			add(s.host.words(c, nil, o))
		}
	}
	for _, pe := range c.pes {
		if rule := pe.AllocationRule; rule > 0 && c.slots(pe, maxSlots) == 0 {
			add(fmt.Sprintf("PE %q dropped because allocation rule is not suitable", pe.Name))
			continue
		}
		total := 0
		for _, q := range s.host.queues {
			if p := &c.places[q.index]; slices.Contains(q.PEs, pe.Name) {
				n, _ := s.inQueue(c, q, v)
				host, _ := s.onHost(c, v, p.duration)
				total = min(total+n, host)
			}
		}
		inPE, _ := s.host.room(v, []use{{s.host.pes[pe.Name], 1}}, nil, nil, nil, 0)
		add(fmt.Sprintf("cannot run in PE %q because it only offers %d slots", pe.Name, min(total, inPE)))
	}
	return lines
}

// ahead counts the jobs before another in the order.
func (s *pendingJobs) ahead(e *entry, now time.Time) int {
	usages := s.usages(now)
	mine := s.keyFor(e.bucket, e, s.ordered) + s.ticket(e.bucket.who.user, now, usages)
	n := 0
	for _, u := range s.users {
		ticket := s.ticket(u, now, usages)
		for _, t := range u.line {
			jobs := t.bucket.jobs
			n += sort.Search(len(jobs), func(i int) bool {
				theirs := s.keyFor(t.bucket, jobs[i], s.ordered) + ticket
				return cmp.Or(cmp.Compare(mine, theirs), compareEntries(jobs[i], e)) >= 0
			})
		}
	}
	return n
}

// Queues returns the state of each queue: those configured, by seq_no, then others in
// which tasks still run.
func (s *Scheduler) Queues(time.Time) []QueueState {
	kept := map[string]int{} // slots of claims
	for _, r := range s.tasks {
		for _, g := range r.Grant.Queues {
			if r.Kept {
				kept[g.Queue] += g.Slots
			}
		}
	}
	var list []QueueState
	for _, q := range s.host.queues {
		st := QueueState{Name: q.Name, Used: int(s.used[q.slots]) - kept[q.Name], Reserved: kept[q.Name], Total: q.Slots}
		for _, r := range s.reserved {
			for _, u := range r.uses {
				if u.account == q.slots {
					st.Reserved += int(u.amount)
				}
			}
		}
		add := func(letter, reason string) {
			st.Letters += letter
			st.Reasons = append(st.Reasons, reason)
		}
		if v := s.alarm(q); v != nil {
			add("a", v.explain("load"))
		}
		if v := s.exceeded(q, q.SuspendThresholds); v != nil {
			add("A", v.explain("suspend"))
		}
		if by := q.suspendedBy(s.used); by != nil {
			add("S", by.words())
		}
		list = append(list, st)
	}
	for _, name := range sorted(s.gone) {
		list = append(list, QueueState{Name: name, Used: s.gone[name], Letters: "o"})
	}
	return list
}

// Values returns the value of each attribute of the complex that a queue or, without a
// name, the host has, as qstat -F and qhost -F show them.
func (s *books) Values(queue string) []api.HostValue {
	q := s.host.byName[queue]
	if q == nil && queue != "" {
		return nil
	}
	var list []api.HostValue
	for _, a := range s.valueOrder() {
		if o, ok := s.offer(q, a, s.used); ok {
			list = append(list, o.hostValue(a))
		}
	}
	return list
}

// GlobalValues returns the value of each attribute of the complex that the host
// "global" has.
func (s *books) GlobalValues() []api.HostValue {
	var list []api.HostValue
	for _, a := range s.valueOrder() {
		v, ok := s.host.conf.AnyHost[a.Name]
		if !ok {
			continue
		}
		o := offer{value: v, level: 'g', source: 'f'}
		i, counted := s.host.consumed[consumer{a.Name, ""}]
		if a.Name == slots {
			i, counted = s.host.slots, true
		}
		if counted && (consumable(a) || a.Name == slots) {
			o.value, o.source = conf.Value{Number: v.Number - s.used[i]}, 'c'
		}
		list = append(list, o.hostValue(a))
	}
	return list
}

// loadOrder and queueOrder are the orders in which Grid Engine 8.1.9 shows load
// values of a host and attributes of a queue.
var (
	loadOrder = positions(`load_avg load_short load_medium load_long arch num_proc mem_free swap_free virtual_free mem_total
		swap_total virtual_total mem_used swap_used virtual_used cpu m_topology m_topology_inuse m_socket m_core m_thread
		np_load_avg np_load_short np_load_medium np_load_long`)
	queueOrder = positions(`qname hostname slots tmpdir seq_no rerun calendar s_rt h_rt s_cpu h_cpu s_fsize h_fsize s_data h_data
		s_stack h_stack s_core h_core s_rss h_rss s_vmem h_vmem min_cpu_interval`)
)

func positions(names string) map[string]int {
	at := map[string]int{}
	for i, name := range strings.Fields(names) {
		at[name] = i
	}
	return at
}

// valueOrder returns the attributes of the complex in the order of Values: those that
// the host "global" has, those of the host, and the others; in each group first those
// that Grid Engine shows first, then the rest as in the complex.
func (s *books) valueOrder() []*conf.Attribute {
	rank := func(a *conf.Attribute) (level, rank int) {
		_, global := s.host.conf.AnyHost[a.Name]
		_, here := s.host.conf.Host[a.Name]
		_, loaded := s.load[a.Name]
		level, first := 2, queueOrder
		switch {
		case global:
			return 0, 0
		case here || loaded:
			level, first = 1, loadOrder
		}
		if at, ok := first[a.Name]; ok {
			return level, at
		}
		return level, len(first)
	}
	list := make([]*conf.Attribute, len(s.host.conf.Complex))
	for i := range list {
		list[i] = &s.host.conf.Complex[i]
	}
	slices.SortStableFunc(list, func(a, b *conf.Attribute) int {
		levelA, rankA := rank(a)
		levelB, rankB := rank(b)
		return cmp.Or(cmp.Compare(levelA, levelB), cmp.Compare(rankA, rankB))
	})
	return list
}
