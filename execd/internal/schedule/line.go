package schedule

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"strings"
	"time"
)

// pendingJobs has the jobs that wait, and their order.
type pendingJobs struct {
	books
	jobs       map[int]*entry
	buckets    map[bucketKey]*bucket
	classes    map[string]*class
	users      map[string]*user
	identities map[string]*identity
	pass       pass

	urgencies   span // of all jobs that wait, or a little more
	ordered     span // urgencies when the lines were sorted
	shrunk      int  // jobs that have left since urgencies was measured
	origin      time.Time
	asked       usageKey // of askedUsages
	askedUsages span
	key         []byte // a buffer
}

// user is a user with jobs, or with usage that still counts.
type user struct {
	name    string
	line    []turn // his buckets, in order
	running int    // tasks, including those that have a grant and are not started yet
	share   Share

	// Of all running tasks: their usage is added to the share when they end, and is
	// estimated until then.
	slots   float64
	started float64 // times slots, in seconds since the origin

	shares int     // pass.shares when ticket was worked out
	ticket float64 // its part of the priority
	cursor int     // in line: this pass has tried all buckets before it
	place  int     // in the heap of the pass; -1: not in it
}

// identity is a user with the groups that a job was submitted with.
type identity struct {
	*user
	groups []string
	lists  string
}

// turn is the place of a bucket in the line of its user.
type turn struct {
	key    float64 // the part of the priority that does not depend on the user
	bucket *bucket
}

// bucket is a queue of jobs of one user with the same requests and the same -p, which
// are served in order.
type bucket struct {
	bucketKey
	key  float64  // that of its turn
	jobs []*entry // in the order of submission; empty only for a moment
}

type bucketKey struct {
	class    *class
	who      *identity
	priority int
	reserve  bool
}

// entry is a job that waits.
type entry struct {
	number    int
	submitted int64 // nanoseconds since 1970
	tasks     int
	bucket    *bucket
	gone      bool // removed or replaced
}

func compareEntries(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.submitted, b.submitted), cmp.Compare(a.number, b.number))
}

func compareTurns(a, b turn) int {
	return cmp.Or(cmp.Compare(b.key, a.key), compareEntries(a.bucket.jobs[0], b.bucket.jobs[0]))
}

// Add adds a job with tasks that may start. It replaces one with the same number.
func (s *Scheduler) Add(j Job) {
	s.Remove(j.Number)
	if j.Tasks <= 0 {
		return
	}
	who := s.identityOf(j.User, j.Groups)
	e := &entry{number: j.Number, submitted: j.Submitted.UnixNano(), tasks: j.Tasks}
	e.bucket = s.bucketOf(bucketKey{s.classOf(&j, who.lists), who, j.Priority, j.Reserve})
	s.enter(e)
}

// Remove forgets the waiting tasks of a job.
func (s *Scheduler) Remove(number int) {
	for _, r := range s.granted {
		if r.entry.number == number {
			r.entry.gone = true
		}
	}
	if e := s.jobs[number]; e != nil {
		e.gone = true
		s.leave(e)
	}
	if slices.ContainsFunc(s.reserved, func(r *reservation) bool { return r.job == number }) {
		s.changed()
	}
}

func (s *pendingJobs) userOf(name string) *user {
	u := s.users[name]
	if u == nil {
		u = &user{name: name, place: -1}
		s.users[name] = u
	}
	return u
}

func (s *pendingJobs) identityOf(name string, groups []string) *identity {
	key := name + "\x00" + strings.Join(groups, "\x00")
	who := s.identities[key]
	if who == nil {
		who = &identity{user: s.userOf(name), groups: groups, lists: s.host.membership(name, groups)}
		s.identities[key] = who
	}
	return who
}

func (s *pendingJobs) bucketOf(key bucketKey) *bucket {
	b := s.buckets[key]
	if b == nil {
		b = &bucket{bucketKey: key}
		s.buckets[key] = b
		key.class.buckets++
	}
	return b
}

// bucketLike returns a bucket for the jobs of one from before a change of the configuration
// or of its job.
func (s *pendingJobs) bucketLike(b *bucket) *bucket {
	who := s.identityOf(b.who.name, b.who.groups)
	return s.bucketOf(bucketKey{s.classOf(&b.class.want, who.lists), who, b.priority, b.reserve})
}

// enter puts a job into its bucket, and the bucket into its place in the line.
func (s *pendingJobs) enter(e *entry) {
	b := e.bucket
	s.jobs[e.number] = e
	i, _ := slices.BinarySearchFunc(b.jobs, e, compareEntries)
	if i > 0 {
		b.jobs = slices.Insert(b.jobs, i, e)
	} else {
		s.takeOut(b)
		b.jobs = slices.Insert(b.jobs, i, e)
		s.insert(b)
	}
	s.urgencies.widen(s.urgency(b, e))
	s.revisit(b)
}

// leave takes a job out of its bucket.
func (s *pendingJobs) leave(e *entry) {
	b := e.bucket
	delete(s.jobs, e.number)
	s.shrunk++
	i, ok := slices.BinarySearchFunc(b.jobs, e, compareEntries)
	if !ok {
		panic("internal error: a job is not in its bucket")
	}
	if i > 0 {
		b.jobs = slices.Delete(b.jobs, i, i+1)
		return
	}
	s.takeOut(b)
	b.jobs[0] = nil
	b.jobs = b.jobs[1:] // most jobs leave from the front, where nothing has to move
	if len(b.jobs) > 0 {
		s.insert(b)
		return
	}
	delete(s.buckets, b.bucketKey)
	if b.class.buckets--; b.class.buckets == 0 {
		delete(s.classes, b.class.key)
	}
}

// takeOut takes a bucket out of the line of its user, before its first job changes.
func (s *pendingJobs) takeOut(b *bucket) {
	if len(b.jobs) == 0 {
		return
	}
	u := b.who.user
	i, ok := slices.BinarySearchFunc(u.line, turn{b.key, b}, compareTurns)
	if !ok {
		panic("internal error: a bucket is not in its line")
	}
	u.line = slices.Delete(u.line, i, i+1)
	if i < u.cursor {
		u.cursor--
	}
	s.fix(u)
}

func (s *pendingJobs) insert(b *bucket) {
	u := b.who.user
	b.key = s.keyFor(b, b.jobs[0], s.ordered)
	t := turn{b.key, b}
	i, _ := slices.BinarySearchFunc(u.line, t, compareTurns)
	u.line = slices.Insert(u.line, i, t)
	if i < u.cursor {
		u.cursor++
	}
	s.fix(u)
}

// revisit lets a pass that has passed a bucket try it again, since it has a new job.
func (s *pendingJobs) revisit(b *bucket) {
	u := b.who.user
	if !s.pass.begun || b.class.failed == s.pass.number && !b.reserve {
		return
	}
	i, _ := slices.BinarySearchFunc(u.line, turn{b.key, b}, compareTurns)
	u.cursor = min(u.cursor, i)
	s.fix(u)
}

// The priority of a job is the weighted sum of three numbers of 0 to 1 (sched_conf(5)).
// Two of them do not depend on the user, nor on the time, since differences of waiting
// times stay the same: they are the key in the line of a user. A pass merges the lines.

// basePriority is half of the range of -p.
const basePriority = 1024

// keyFor is the part of the priority of a job from -p and urgency, for a range of
// urgencies.
func (s *pendingJobs) keyFor(b *bucket, e *entry, urgencies span) float64 {
	w := &s.host.conf.Scheduling
	return w.WeightPriority*normalPriority(b.priority) + w.WeightUrgency*urgencies.normal(s.urgency(b, e))
}

// normalPriority maps -p to 0..1.
func normalPriority(priority int) float64 { return float64(priority+basePriority) / (2 * basePriority) }

// urgency is the urgency of a job, without the part that the present time adds to all
// jobs alike.
func (s *pendingJobs) urgency(b *bucket, e *entry) float64 {
	return s.urgencyAt(&Standing{Submitted: time.Unix(0, e.submitted), Resources: b.class.urgency})
}

func (s *pendingJobs) urgencyAt(st *Standing) float64 {
	return st.Resources - s.host.conf.Scheduling.WeightWaiting*s.seconds(st.Submitted)
}

// seconds returns a time in seconds since origin, which is near enough to keep fractions.
func (s *pendingJobs) seconds(t time.Time) float64 {
	if s.origin.IsZero() {
		s.origin = t
	}
	return t.Sub(s.origin).Seconds()
}

// span is the range of numbers that are normalised.
type span struct{ low, high float64 }

// noSpan is the range of no numbers.
var noSpan = span{math.Inf(1), math.Inf(-1)}

// normal maps a number of the range to 0..1; if all are the same, to the middle.
func (r span) normal(n float64) float64 {
	if r.high <= r.low {
		return 0.5
	}
	return (n - r.low) / (r.high - r.low)
}

// within is normal for any number: one beyond the range is mapped to its end.
func (r span) within(n float64) float64 { return max(0, min(1, r.normal(n))) }

func (r *span) widen(n float64) {
	r.low, r.high = min(r.low, n), max(r.high, n)
}

// measure computes the range of urgencies when it may have become smaller. Since that
// takes a look at all waiting jobs, it is done only after many have left.
func (s *pendingJobs) measure() {
	if s.shrunk == 0 || len(s.jobs) >= few && s.shrunk*16 < len(s.jobs) {
		return
	}
	s.urgencies, s.shrunk = noSpan, 0
	for _, b := range s.buckets {
		s.urgencies.widen(s.urgency(b, b.jobs[0]))
		s.urgencies.widen(s.urgency(b, b.jobs[len(b.jobs)-1]))
	}
	for _, r := range s.tasks {
		if r.Standing != nil {
			s.urgencies.widen(s.urgencyAt(r.Standing))
		}
	}
	for _, r := range s.granted {
		s.urgencies.widen(s.urgency(r.entry.bucket, r.entry))
	}
}

// few is the number of jobs that may all be looked at whenever something changes.
const few = 64

// reorder sorts the lines again when the range of urgencies has changed so much that
// urgency weighs differently against -p and shares: by a quarter, or at all if few jobs
// wait.
func (s *pendingJobs) reorder() {
	if s.host.conf.Scheduling.WeightUrgency == 0 {
		return
	}
	s.measure()
	was, is := s.ordered.high-s.ordered.low, s.urgencies.high-s.urgencies.low
	if is <= was*1.25 && is >= was*0.75 && (len(s.jobs) >= few || s.ordered == s.urgencies) {
		return
	}
	s.ordered = s.urgencies
	for _, b := range s.buckets {
		b.key = s.keyFor(b, b.jobs[0], s.ordered)
	}
	for _, u := range s.users {
		for i := range u.line {
			u.line[i].key = u.line[i].bucket.key
		}
		slices.SortFunc(u.line, compareTurns)
	}
}

// usage is the recent usage of a user: by tasks that have ended, half of which is
// forgotten in each halftime, and by running tasks, as if their slots were busy.
func (s *pendingJobs) usage(u *user, now time.Time) float64 {
	w := &s.host.conf.Scheduling
	running := max(0, s.seconds(now)*u.slots-u.started)
	return u.share.at(now, w.HalfTime) + running*w.UsageWeights.CPU
}

// at returns the usage of a share at a later time.
func (h Share) at(now time.Time, half time.Duration) float64 {
	if half <= 0 || !now.After(h.Time) {
		return h.Usage
	}
	return h.Usage * math.Exp2(-float64(now.Sub(h.Time))/float64(half))
}

// usages returns the range of the usage of users with jobs.
func (s *pendingJobs) usages(now time.Time) span {
	used := noSpan
	for _, u := range s.users {
		if len(u.line) > 0 || u.running > 0 {
			used.widen(s.usage(u, now))
		}
	}
	return used
}

// ticket is what the share of a user contributes to the priority of his jobs: most for
// the user who has used least.
func (s *pendingJobs) ticket(u *user, now time.Time, usages span) float64 {
	return s.host.conf.Scheduling.WeightTicket * (1 - usages.normal(s.usage(u, now)))
}

// usageKey is what the range of usages depends on.
type usageKey struct {
	now           time.Time
	changes, jobs int
}

// Parts returns the parts of the priority of a waiting job, as of now. They are zero for a
// job that the Scheduler does not have.
func (s *pendingJobs) Parts(job int, now time.Time) Parts {
	if e := s.jobs[job]; e != nil {
		return s.parts(e, now)
	}
	return Parts{}
}

// RunningParts returns the parts of the priority of a running task, as of now; ok is
// false for one that is not compared with others.
func (s *pendingJobs) RunningParts(id TaskID, now time.Time) (p Parts, ok bool) {
	r := s.tasks[id]
	if r == nil || r.Standing == nil {
		return Parts{}, false
	}
	return s.partsOf(r.Standing, r.owner, now), true
}

// PartsIf returns the parts that the priority of a job would have if it waited.
func (s *pendingJobs) PartsIf(j *Job, now time.Time) Parts {
	u := s.users[j.User]
	if u == nil {
		u = &user{name: j.User}
	}
	return s.partsOf(&Standing{j.Priority, j.Submitted, s.host.urgencyOf(j)}, u, now)
}

// Granted returns the parts of the priority of a job to which Next has just given a
// grant.
func (s *pendingJobs) Granted(g *Grant, now time.Time) Parts {
	if r := s.granted[g]; r != nil {
		return s.parts(r.entry, now)
	}
	return Parts{}
}

// Priority is the weighted sum of the parts, as qstat shows it: from 0 to the sum of
// the weights.
func (s *pendingJobs) Priority(p Parts) float64 {
	w := &s.host.conf.Scheduling
	return w.WeightPriority*p.Priority + w.WeightUrgency*p.Urgency + w.WeightTicket*p.Share
}

func (s *pendingJobs) parts(e *entry, now time.Time) Parts {
	b := e.bucket
	return s.partsOf(&Standing{b.priority, time.Unix(0, e.submitted), b.class.urgency}, b.who.user, now)
}

func (s *pendingJobs) partsOf(st *Standing, u *user, now time.Time) Parts {
	s.askUsages(now)
	return Parts{
		Priority: normalPriority(st.Priority), Urgency: s.urgencies.within(s.urgencyAt(st)),
		Share:     1 - s.askedUsages.within(s.usage(u, now)),
		Resources: st.Resources, Waiting: s.host.conf.Scheduling.WeightWaiting * now.Sub(st.Submitted).Seconds(),
	}
}

// askUsages computes the range of usages once for many jobs, since qstat asks for each of
// them.
func (s *pendingJobs) askUsages(now time.Time) {
	s.measure()
	if q := (usageKey{now, s.changes, len(s.jobs)}); s.asked != q {
		s.asked, s.askedUsages = q, s.usages(now)
	}
}

// Shares returns the usage of each user, to be kept over a restart.
func (s *pendingJobs) Shares() map[string]Share {
	shares := map[string]Share{}
	for name, u := range s.users {
		if u.share.Usage > 0 {
			shares[name] = u.share
		}
	}
	return shares
}

// SetShares restores what Shares returned in an earlier run of execd.
func (s *pendingJobs) SetShares(shares map[string]Share) {
	for name, share := range shares {
		s.userOf(name).share = share
	}
	s.changed()
}

// pass is a series of calls of Next until one finds no job. During a pass there is less
// and less to give out, so a class that does not fit is not tried again. Whatever may make
// a class fit begins another pass.
type pass struct {
	number int // never 0
	begun  bool
	at     time.Time // of the shares
	usages span
	shares int // how often shares were worked out
	line   merged
}

// merged is a heap of users by the priority of their next job.
type merged []*user

func (m merged) Len() int { return len(m) }

func (m merged) Less(i, j int) bool {
	a, b := m[i].line[m[i].cursor], m[j].line[m[j].cursor]
	return cmp.Or(cmp.Compare(b.key+m[j].ticket, a.key+m[i].ticket), compareEntries(a.bucket.jobs[0], b.bucket.jobs[0])) < 0
}

func (m merged) Swap(i, j int) {
	m[i], m[j] = m[j], m[i]
	m[i].place, m[j].place = i, j
}

// Push implements heap.Interface.
func (m *merged) Push(x any) {
	u := x.(*user)
	u.place = len(*m)
	*m = append(*m, u)
}

// Pop implements heap.Interface.
func (m *merged) Pop() any {
	u := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	u.place = -1
	return u
}

// changed ends the pass, since a job may fit now that did not.
func (s *pendingJobs) changed() {
	s.changes++
	s.pass.number++
	s.pass.begun = false
}

// share computes the shares of users for the pass.
func (s *pendingJobs) share(now time.Time) {
	p := &s.pass
	p.at, p.usages = now, s.usages(now)
	p.shares++
	for _, u := range p.line {
		s.fixTicket(u)
	}
	heap.Init(&p.line)
}

func (s *pendingJobs) fixTicket(u *user) {
	if u.shares != s.pass.shares {
		u.shares, u.ticket = s.pass.shares, s.ticket(u, s.pass.at, s.pass.usages)
	}
}

// fix moves a user to his place in the heap of a pass when his line or his cursor has
// changed.
func (s *pendingJobs) fix(u *user) {
	switch {
	case !s.pass.begun:
	case u.cursor >= len(u.line):
		if u.place >= 0 {
			heap.Remove(&s.pass.line, u.place)
		}
	case u.place >= 0:
		heap.Fix(&s.pass.line, u.place)
	default:
		s.fixTicket(u)
		heap.Push(&s.pass.line, u)
	}
}

// clock starts or stops the estimate of the usage of a task.
func (s *pendingJobs) clock(r *run, sign float64) {
	n := sign * float64(r.Grant.Slots())
	if r.Away {
		n = sign
	}
	r.owner.slots += n
	r.owner.started += n * s.seconds(r.Started)
	if r.owner.running == 0 {
		r.owner.slots, r.owner.started = 0, 0
	}
}
