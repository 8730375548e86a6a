package schedule

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"paddock/execd/internal/conf"
)

// Scheduler decides which waiting job starts next, and keeps slots free for jobs with
// -R y. See the package comment; New makes one.
type Scheduler struct {
	pendingJobs
	loaded map[string]conf.Value // as given to SetLoad
	shut   map[string]string     // why queues are closed

	reserved []*reservation // in this pass
	searched int            // searches for a time of one in this pass
	// remains is what tasks that run for ever hold, worked out when remainsOf was
	// changes.
	remains   ledger
	remainsOf int

	steps map[string]time.Time // when suspend_thresholds last did something, by queue
}

// New returns a scheduler of an idle host.
func New(c *conf.Config) *Scheduler {
	s := &Scheduler{loaded: map[string]conf.Value{}, shut: map[string]string{}, steps: map[string]time.Time{}}
	s.load, s.tasks, s.granted = map[string]conf.Value{}, map[TaskID]*run{}, map[*Grant]*run{}
	s.jobs, s.users, s.urgencies = map[int]*entry{}, map[string]*user{}, noSpan
	s.Configure(c)
	return s
}

// Configure sets the configuration. Running tasks keep their grants, even of queues and
// consumables that are gone.
func (s *Scheduler) Configure(c *conf.Config) {
	s.host = newHost(c)
	s.used, s.taken, s.gone = make(ledger, len(s.host.accounts)), map[unit]int{}, map[string]int{}
	for _, q := range s.host.queues {
		q.closed = s.shut[q.Name]
	}
	for _, r := range s.holders() {
		r.uses = s.host.usesOf(r.Grant)
		s.hold(r, 1)
	}
	s.SetLoad(s.loaded)

	// The memberships of users may have changed, and with them the classes of jobs.
	old := s.buckets
	s.buckets, s.classes, s.identities = map[bucketKey]*bucket{}, map[string]*class{}, map[string]*identity{}
	s.urgencies, s.ordered = noSpan, span{}
	for _, u := range s.users {
		u.line = nil
	}
	s.changed()
	for _, b := range old {
		to := s.bucketLike(b)
		for _, e := range b.jobs {
			e.bucket = to
			s.urgencies.widen(s.urgency(to, e))
		}
		s.takeOut(to)
		to.jobs = append(to.jobs, b.jobs...)
		slices.SortFunc(to.jobs, compareEntries)
		s.insert(to)
	}
}

// SetLoad sets all load values of the host, by attribute.
func (s *Scheduler) SetLoad(values map[string]conf.Value) {
	s.loaded = maps.Clone(values)
	load := make(map[string]conf.Value, len(values))
	same := len(values) == len(s.load)
	for name, v := range values {
		if factor, ok := s.host.conf.LoadScaling[name]; ok {
			v = conf.Value{Number: v.Number * factor}
		}
		load[name] = v
		_, known := s.load[name]
		same = same && known
	}
	s.load = load
	if !same { // the requests that depend on load are worked out anew
		for _, c := range s.classes {
			*c = class{want: c.want, lists: c.lists, key: c.key, buckets: c.buckets, urgency: c.urgency}
		}
	}
	s.changed()
}

// SetClosed closes a queue for new tasks and says why, as in "it is disabled"; an empty
// reason opens it.
func (s *Scheduler) SetClosed(queue, why string) {
	if s.shut[queue] == why {
		return
	}
	s.shut[queue] = why
	if why == "" {
		delete(s.shut, queue)
	}
	if q := s.host.byName[queue]; q != nil {
		q.closed = why
	}
	s.changed()
}

// SetGate sets the gate that Next asks before each start; nil: every free slot accepts
// every job.
func (s *Scheduler) SetGate(g Gate) {
	s.gate = g
	s.changed()
}

// GateChanged notes that slots may be willing now that were not.
func (s *Scheduler) GateChanged() {
	if s.gate != nil {
		s.changed()
	}
}

// begin debits a grant, also to its user.
func (s *Scheduler) begin(r *run) {
	if r.Kept {
		r.owner = &user{place: -1} // a user of its own, who competes with nobody
	} else {
		r.owner = s.userOf(r.User)
	}
	r.uses = s.host.usesOf(r.Grant)
	s.hold(r, 1)
	r.owner.running++
	s.clock(r, 1)
}

// end credits the grant of a task.
func (s *Scheduler) end(r *run) {
	s.hold(r, -1)
	r.owner.running--
	s.clock(r, -1)
	s.changed()
}

// Started notes the task that runs with a grant of Next. Any other grant is adopted: that
// of a task that runs already, whatever has become of its queue.
func (s *Scheduler) Started(r Running) {
	t, ok := s.granted[r.Grant]
	if ok {
		delete(s.granted, r.Grant)
		s.clock(t, -1)
		t.Running, t.entry = r, nil
		s.clock(t, 1)
	} else {
		t = &run{Running: r}
		s.begin(t)
	}
	id := TaskID{r.Job, r.Task}
	if twice := s.tasks[id]; twice != nil {
		s.end(twice)
	}
	s.tasks[id] = t
	if r.Standing != nil {
		s.urgencies.widen(s.urgencyAt(r.Standing))
	}
}

// GiveBack undoes a Next: the task waits again, unless its job was removed or
// replaced meanwhile.
func (s *Scheduler) GiveBack(job int, g *Grant) {
	r, ok := s.granted[g]
	if !ok {
		return
	}
	delete(s.granted, g)
	s.end(r)
	e := r.entry
	if e.gone {
		return
	}
	e.tasks++
	if s.jobs[job] == nil {
		e.bucket = s.bucketLike(e.bucket)
		s.enter(e)
	}
}

// Ended frees what a task held, and charges its user for the usage.
func (s *Scheduler) Ended(job, task int, used Used, now time.Time) {
	id := TaskID{job, task}
	r := s.tasks[id]
	if r == nil {
		return
	}
	delete(s.tasks, id)
	s.shrunk++
	w := &s.host.conf.Scheduling
	amount := used.CPU*w.UsageWeights.CPU + used.Mem*w.UsageWeights.Mem + used.IO*w.UsageWeights.IO
	r.owner.share = Share{r.owner.share.at(now, w.HalfTime) + amount, now}
	s.end(r)
}

// Next returns the first job of which a task can start, and the grant of the task. The
// grant is debited at once; Started or GiveBack follows.
func (s *Scheduler) Next(now time.Time) (job int, g *Grant, ok bool) {
	p := &s.pass
	if p.begun && len(p.line) == 0 && len(s.reserved) > 0 && now.Sub(p.at) >= time.Second {
		s.changed() // what is kept free changes with the time
	}
	if len(s.jobs) == 0 || !s.anyFree() {
		return 0, nil, false
	}
	if r := s.sweep(now); r != nil {
		return r.Job, r.Grant, true
	}
	return 0, nil, false
}

// sweep continues the pass until a job starts, or begins a new one.
func (s *Scheduler) sweep(now time.Time) *run {
	p := &s.pass
	switch {
	case !p.begun:
		s.reorder()
		p.begun, p.line, s.reserved, s.searched = true, p.line[:0], nil, 0
		s.share(now)
		for _, u := range s.users {
			u.cursor, u.place = 0, -1
			s.fix(u)
		}
	case now.Sub(p.at) >= time.Second:
		s.share(now)
	}
	for len(p.line) > 0 {
		u := p.line[0]
		b := u.line[u.cursor].bucket
		switch {
		case s.spare(u) == 0:
			u.cursor = len(u.line)
		case b.class.failed == p.number:
			s.reserveAll(b, now)
			u.cursor++
			for u.cursor < len(u.line) && s.passes(u.line[u.cursor].bucket) {
				u.cursor++
			}
		default:
			r, refused := s.start(b, now)
			if r != nil {
				return r
			}
			if refused { // its slots may take other jobs of the class
				u.cursor++
				break
			}
			b.class.failed = p.number
			continue
		}
		s.fix(u)
	}
	return nil
}

// passes reports whether the pass need not try a bucket.
func (s *Scheduler) passes(b *bucket) bool {
	return b.class.failed == s.pass.number && (!b.reserve || !s.mayReserve())
}

// mayReserve reports whether another job may have a reservation. A job that never fits
// does not count, but the number of searches is bounded.
func (s *Scheduler) mayReserve() bool {
	most := s.host.conf.Scheduling.MaxReservation
	return len(s.reserved) < most && s.searched < 3*most
}

// start grants the request of the first job of a bucket, or of the first job that the slots
// are willing to run, or returns nil; refused reports that the slots were not willing.
func (s *Scheduler) start(b *bucket, now time.Time) (r *run, refused bool) {
	c := b.class
	v := &view{used: s.used, at: now, later: s.reserved}
	p, e := s.allocate(c, v), b.jobs[0]
	if p == nil {
		return nil, false
	}
	if s.gate != nil {
		if p, e = s.admitted(b, v); p == nil {
			return nil, true
		}
	}
	g, ok := s.grant(c, p)
	if !ok {
		return nil, false
	}
	r = &run{Running: Running{Job: e.number, User: b.who.name, Started: now, Duration: p.length, Grant: g}, entry: e}
	s.begin(r)
	s.granted[g] = r
	s.impose(r.uses, now, p.length)
	if e.tasks--; e.tasks == 0 {
		s.leave(e)
	}
	return r, false
}

// impose debits reservations for a task that still runs when they begin.
func (s *Scheduler) impose(uses []use, from time.Time, length time.Duration) {
	v := view{at: from}
	for _, r := range s.reserved {
		if !r.from.Before(from) && v.delays(r, length) {
			r.used.debit(uses)
		}
	}
}

// reserveAll makes reservations for the jobs of a bucket that did not fit, at the
// earliest possible time, as many as are allowed.
func (s *Scheduler) reserveAll(b *bucket, now time.Time) {
	if !b.reserve || !s.mayReserve() || !s.everFits(b.class, now) {
		return
	}
	for _, e := range b.jobs {
		if !s.mayReserve() || !s.reserve(b.class, e.number, now) {
			return
		}
	}
}

// length returns how long a task runs, as far as is known; 0: for ever.
func (h *host) length(r *run) time.Duration {
	if r.Kept {
		return 0
	}
	return cmp.Or(r.Duration, h.conf.Scheduling.DefaultDuration)
}

// everFits reports whether a class fits after all tasks that ever end have ended.
func (s *Scheduler) everFits(c *class, now time.Time) bool {
	if s.remainsOf != s.changes {
		s.remains, s.remainsOf = make(ledger, len(s.used)), s.changes
		for _, r := range s.holders() {
			if s.host.length(r) == 0 {
				s.remains.debit(r.uses)
			}
		}
	}
	return s.allocate(c, &view{used: s.remains, at: now, state: upcoming}) != nil
}

// reserve makes a reservation for the earliest time at which a class fits, by the ends of
// running tasks and of other reservations.
func (s *Scheduler) reserve(c *class, job int, now time.Time) bool {
	s.searched++
	events := s.events(now)
	v := view{used: slices.Clone(s.used), state: upcoming}
	for i, e := range events {
		if e.begins {
			v.used.debit(e.uses)
		} else {
			v.used.credit(e.uses)
		}
		if i+1 < len(events) && events[i+1].at.Equal(e.at) {
			continue
		}
		v.at, v.later = e.at, nil
		for _, r := range s.reserved {
			if r.from.After(e.at) {
				v.later = append(v.later, r)
			}
		}
		p := s.allocate(c, &v)
		if p == nil {
			continue
		}
		r := &reservation{job: job, from: e.at, uses: s.host.planUses(c, p), used: v.used}
		if p.length > 0 {
			r.until = e.at.Add(p.length)
		}
		r.used.debit(r.uses)
		s.impose(r.uses, e.at, p.length)
		s.reserved = append(s.reserved, r)
		return true
	}
	return false
}

// event is the time at which a use begins or ends.
type event struct {
	at     time.Time
	uses   []use
	begins bool
}

// events returns the known events from now on, in the order of time.
func (s *Scheduler) events(now time.Time) []event {
	var list []event
	for _, r := range s.holders() {
		length := s.host.length(r)
		if length == 0 {
			continue
		}
		at := r.Started.Add(length)
		if !at.After(now) {
			at = now.Add(time.Second) // the task is overdue
		}
		list = append(list, event{at, r.uses, false})
	}
	for _, r := range s.reserved {
		list = append(list, event{r.from, r.uses, true})
		if !r.until.IsZero() {
			list = append(list, event{r.until, r.uses, false})
		}
	}
	slices.SortStableFunc(list, func(a, b event) int { return a.at.Compare(b.at) })
	return list
}

// Unsuitable says why a job cannot run, with a line for each obstacle.
type Unsuitable []string

func (u Unsuitable) Error() string { return "no suitable queues: " + strings.Join(u, "; ") }

// Possible reports why a job could not run here even if the host were idle and all its
// queues open; nil if it could. Load values that change do not count. With a time it
// reports whether the job could run beside what runs then.
func (s *Scheduler) Possible(j *Job, now time.Time) error {
	c := &class{want: *j, lists: s.host.membership(j.User, j.Groups)}
	v := &view{used: make(ledger, len(s.host.accounts)), state: idle}
	if !now.IsZero() {
		v = &view{used: s.used, at: now, later: s.reserved}
	}
	if s.allocate(c, v) != nil {
		return nil
	}
	return Unsuitable(s.obstacles(c, v))
}
