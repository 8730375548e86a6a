package schedule

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"paddock/execd/internal/conf"
)

// maxSlots is more than any job asks for.
const maxSlots = 1 << 30

// view is a state of the host into which a class may fit or not.
type view struct {
	used ledger
	at   time.Time
	// later are the reservations that begin after at. A task that still runs then must not
	// use what they need.
	later []*reservation
	state hostState
	job   int // for which slots are asked whether they are willing; 0: they are not asked
	// varies says that the slots may answer differently for another job of the same user
	// and class.
	varies bool
}

// hostState says which state of the host a view shows.
type hostState int

const (
	current  hostState = iota // as it is
	upcoming                  // at a later time: load may differ, and names of units do not matter
	idle                      // as it is configured, open and empty
)

// reservation is room that is kept for a job with -R y.
type reservation struct {
	job   int
	from  time.Time
	until time.Time // zero: for ever
	uses  []use
	used  ledger // at from, by the reservation and all that runs then
}

// plan is where a task can run.
type plan struct {
	pe     *conf.PE
	queues []planned
	soft   int           // soft requests that are not fulfilled
	length time.Duration // how long the task may run; 0: for ever
}

type planned struct {
	queue *queue
	slots int
}

func (p *plan) slots() int {
	n := 0
	for _, q := range p.queues {
		n += q.slots
	}
	return n
}

// delays reports whether a task that starts at the time of the view, and runs for length,
// still runs when a reservation begins.
func (v *view) delays(r *reservation, length time.Duration) bool {
	return length == 0 || v.at.Add(length).After(r.from)
}

// room returns for how many slots there is room, now and when reservations begin, if each
// slot takes each and the job as a whole takes once.
func (h *host) room(v *view, each, once []use, alone, shared []int, length time.Duration) (int, obstacle) {
	n, o := h.roomIn(v.used, each, once, alone, shared)
	for _, r := range v.later {
		if n == 0 {
			break
		}
		if !v.delays(r, length) {
			continue
		}
		m, why := h.roomIn(r.used, each, once, alone, shared)
		if m < n {
			n, o = m, why
			if o.reason == offersOnly {
				o.text = " due to a reservation"
			} else {
				o = obstacle{reason: reserved, text: r.String()}
			}
		}
	}
	return n, o
}

func (r *reservation) String() string {
	return fmt.Sprintf("resources are kept free for job %d, which starts at %s at the latest", r.job, r.from.Format(time.DateTime))
}

func (h *host) roomIn(used ledger, each, once []use, alone, shared []int) (int, obstacle) {
	for _, i := range alone {
		if used[i] > 0 || h.occupied(used, h.accounts[i].queue) {
			return 0, h.inUse(i)
		}
	}
	for _, i := range shared {
		if used[i] > 0 {
			return 0, h.inUse(i)
		}
	}
	if n, short := used.room(h, once, 1); n == 0 {
		return 0, h.shortage(short, used)
	}
	n, short := used.room(h, each, maxSlots)
	if n == 0 {
		return 0, h.shortage(short, used)
	}
	return n, obstacle{}
}

// occupied reports whether any task runs in a queue, or for nil on the host.
func (h *host) occupied(used ledger, q *queue) bool {
	if q != nil {
		return used[q.slots] > 0
	}
	return used[h.slots] > 0
}

func (h *host) inUse(account int) obstacle {
	a := &h.accounts[account]
	return obstacle{reason: inUse, attribute: a.attribute, offer: offer{level: a.level}}
}

// slotsAttribute stands in for the attribute slots, which a complex need not have.
var slotsAttribute = &conf.Attribute{Name: slots, Kind: conf.KindInt, Relop: "<="}

func (h *host) shortage(account int, used ledger) obstacle {
	a := &h.accounts[account]
	if a.attribute == nil && a.queue != nil {
		return obstacle{reason: full}
	}
	o := obstacle{reason: offersOnly, attribute: cmp.Or(a.attribute, slotsAttribute)}
	o.offer = offer{conf.Value{Number: max(0, a.limit-used[account])}, a.level, 'c'}
	return o
}

// inQueue returns how many slots a class can have in a queue, or why it has none.
func (s *books) inQueue(c *class, q *queue, v *view) (int, obstacle) {
	n, o := s.fits(c, q, v)
	if n == 0 || v.job == 0 || v.state != current || s.gate == nil {
		return n, o
	}
	most := n
	if c.want.PE == "" {
		most = 1
	}
	willing, why, same := s.gate(v.job, q.Name, most)
	v.varies = v.varies || !same
	if willing == 0 {
		return 0, obstacle{reason: unwilling, text: why}
	}
	return min(n, willing), obstacle{}
}

// fits is inQueue, except that it does not ask whether the slots are willing.
func (s *books) fits(c *class, q *queue, v *view) (int, obstacle) {
	p := &c.places[q.index]
	if p.never.reason != none {
		return 0, p.never
	}
	if v.state != idle {
		if q.closed != "" {
			return 0, obstacle{reason: closed, text: q.closed}
		}
		if by := q.suspendedBy(v.used); by != nil {
			return 0, obstacle{reason: suspended, text: "suspended: " + by.words()}
		}
	}
	if v.state == current {
		if alarm := s.alarm(q); alarm != nil {
			return 0, obstacle{reason: overloaded, text: "overloaded: " + alarm.words()}
		}
	}
	for _, r := range c.volatile {
		if v.state == upcoming || v.state == idle && !steady(r.Attribute) {
			continue
		}
		if o, ok := s.offer(q, r.Attribute, v.used); ok && !satisfies(s.host.conf, r.Attribute, r.value, o.value) {
			return 0, obstacle{reason: offersOnly, attribute: r.Attribute, offer: o}
		}
	}
	n, o := s.host.room(v, p.each, p.once, p.alone, p.shared, p.duration)
	if n == 0 && len(p.once) > 0 {
		// There may be room for slots that are not the master's.
		if m, _ := s.host.room(v, p.each, nil, p.alone, p.shared, p.duration); m > 0 && c.want.PE != "" && p.slave {
			return m, obstacle{}
		}
	}
	if n > 0 && v.state == current && p.named {
		n, o = s.unitsFor(c, q, n)
	}
	if !p.slave {
		n = min(n, 1)
	}
	return n, o
}

// onHost returns how many slots the host has for a class, or why it has none.
func (s *books) onHost(c *class, v *view, length time.Duration) (int, obstacle) {
	n, o := s.host.room(v, c.each, c.once, c.alone, c.shared, length)
	if v.state != current {
		return n, o
	}
	for _, r := range c.consumes {
		load := s.load[r.Name]
		fits := maxSlots
		switch {
		case r.value.Number <= 0:
		case r.Consumable == conf.ConsumableJob:
			if r.value.Number > load.Number {
				fits = 0
			}
		default:
			fits = int(min(maxSlots, max(0, load.Number/r.value.Number)))
		}
		if fits < n {
			n, o = fits, obstacle{reason: offersOnly, attribute: r.Attribute, offer: offer{load, 'h', 'l'}}
		}
	}
	return n, o
}

// steady reports whether a load value is a property of the host, which does not change
// with what runs.
func steady(a *conf.Attribute) bool {
	switch a.Name {
	case "num_proc", "mem_total", "swap_total", "virtual_total", "m_socket", "m_core", "m_thread":
		return true
	}
	return !a.Kind.Number()
}

// allocate finds slots for a class, or returns nil.
func (s *books) allocate(c *class, v *view) *plan {
	s.compile(c)
	// Most classes that do not fit do not fit the host.
	if n, _ := s.host.roomIn(v.used, c.each, c.once, c.alone, c.shared); n == 0 {
		return nil
	}
	order := s.queueOrder(c, v)
	if c.want.PE == "" {
		return s.single(c, order, v)
	}
	var best *plan
	for _, pe := range c.pes {
		// A job that may not run long in a queue may end before a reservation begins, so
		// queues with less time are also tried by themselves.
		for _, length := range c.lengths(v) {
			if p := s.gather(c, pe, order, length, v); p != nil && (best == nil || p.better(best)) {
				best = p
			}
		}
	}
	return best
}

func (p *plan) better(than *plan) bool {
	return cmp.Or(cmp.Compare(p.slots(), than.slots()), cmp.Compare(than.soft, p.soft)) > 0
}

// queueOrder returns the queues in the order in which a class tries them: those that
// fulfil most of its soft requests first.
func (s *books) queueOrder(c *class, v *view) []*queue {
	if s.orderOf != s.changes {
		s.sortQueues()
		s.orderOf = s.changes
	}
	if len(c.soft) == 0 && len(c.want.SoftQueues) == 0 {
		return s.order
	}
	order := slices.Clone(s.order)
	slices.SortStableFunc(order, func(a, b *queue) int { return cmp.Compare(s.unfulfilled(c, a, v), s.unfulfilled(c, b, v)) })
	return order
}

// unfulfilled counts the soft requests of a class that a queue does not fulfil.
func (s *books) unfulfilled(c *class, q *queue, v *view) int {
	n := c.places[q.index].soft
	for _, r := range c.soft {
		if o, ok := s.offer(q, r.Attribute, v.used); !ok || !satisfies(s.host.conf, r.Attribute, r.value, o.value) {
			n++
		}
	}
	return n
}

func (s *books) single(c *class, order []*queue, v *view) *plan {
	for _, q := range order {
		if n, _ := s.inQueue(c, q, v); n == 0 {
			continue
		}
		length := c.places[q.index].duration
		if n, _ := s.onHost(c, v, length); n > 0 {
			return &plan{queues: []planned{{q, 1}}, length: length}
		}
	}
	return nil
}

// lengths returns how long a class may run in its queues, the longest time first. Where
// time does not matter, it returns only that one, which allows all queues.
func (c *class) lengths(v *view) []time.Duration {
	if len(v.later) == 0 {
		return []time.Duration{0}
	}
	var list []time.Duration
	for i := range c.places {
		if d := c.places[i].duration; c.places[i].never.reason == none && !slices.Contains(list, d) {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b time.Duration) int { return -compareLengths(a, b) })
	return list
}

// compareLengths compares durations, of which 0 means for ever.
func compareLengths(a, b time.Duration) int { return cmp.Compare(uint64(a)-1, uint64(b)-1) }

// gather collects slots for a job in a PE, as many as possible of those it asks for,
// from queues where it runs at most for length.
func (s *books) gather(c *class, pe *conf.PE, order []*queue, length time.Duration, v *view) *plan {
	limit, _ := s.onHost(c, v, length)
	inPE, _ := s.host.room(v, []use{{s.host.pes[pe.Name], 1}}, nil, nil, nil, length)
	if limit = min(limit, inPE); limit == 0 {
		return nil
	}
	free, all := make([]int, len(order)), 0 // all: without slots of queues that only the master may use
	for i, q := range order {
		p := &c.places[q.index]
		if compareLengths(p.duration, length) > 0 || !slices.Contains(q.PEs, pe.Name) {
			continue
		}
		free[i], _ = s.inQueue(c, q, v)
		if p.slave {
			all = min(maxSlots, all+free[i])
		}
	}
	var best *plan
	for i, q := range order {
		p := &c.places[q.index]
		if free[i] == 0 || !p.master {
			continue
		}
		if n, _ := s.host.room(v, nil, p.once, nil, nil, p.duration); n == 0 {
			continue
		}
		total := all
		if !p.slave {
			total++
		}
		if n := c.slots(pe, min(total, limit)); n > 0 && (best == nil || n > best.slots()) {
			best = s.fill(c, pe, order, free, i, n, v)
		}
	}
	return best
}

// fill takes n slots from queues with so many free, the first of them from the master's
// queue.
func (s *books) fill(c *class, pe *conf.PE, order []*queue, free []int, master, n int, v *view) *plan {
	p := &plan{pe: pe}
	take := func(i int) {
		if k := min(n, free[i]); k > 0 {
			p.queues = append(p.queues, planned{order[i], k})
			place := &c.places[order[i].index]
			p.soft += s.unfulfilled(c, order[i], v) * k
			if len(p.queues) == 1 || compareLengths(place.duration, p.length) > 0 {
				p.length = place.duration
			}
			n -= k
		}
	}
	take(master)
	for i, q := range order {
		if i != master && c.places[q.index].slave {
			take(i)
		}
	}
	return p
}

// slots returns the largest number of slots up to limit that a class asks for and its
// PE can give on one host; 0: there is none.
func (c *class) slots(pe *conf.PE, limit int) int {
	best := 0
	for _, r := range c.want.Slots {
		step := max(1, r.Step)
		if top := min(limit, r.Max); top >= r.Min {
			best = max(best, r.Min+(top-r.Min)/step*step)
		}
		if n := pe.AllocationRule; n > 0 && n <= limit && n >= r.Min && n <= r.Max && (n-r.Min)%step == 0 {
			return n
		}
	}
	if pe.AllocationRule > 0 {
		return 0
	}
	return best
}

// grant makes a plan a grant, and chooses the units of RSMAPs. It reports false if
// there are not enough of them after all.
func (s *books) grant(c *class, p *plan) (*Grant, bool) {
	h := s.host
	g := &Grant{}
	if p.pe != nil {
		g.PE = p.pe.Name
	}
	chosen := map[unit]int{}
	whole := true
	debit := func(u use, owner string, ids []string) []string {
		a := &h.accounts[u.account]
		if a.attribute == nil {
			return nil // slots are in Queues
		}
		if missing := int(u.amount) - len(ids); len(a.ids) > 0 && missing > 0 {
			ids = append(ids, s.units(a.attribute.Name, owner, missing, chosen)...)
			whole = whole && len(ids) == int(u.amount)
		}
		g.Debits = append(g.Debits, Debit{Name: a.attribute.Name, Queue: owner, Amount: u.amount, IDs: ids})
		return ids
	}
	units := map[string][]string{} // chosen in queues, by attribute
	for i, pq := range p.queues {
		g.Queues = append(g.Queues, QueueSlots{pq.queue.Name, pq.slots})
		place := &c.places[pq.queue.index]
		for _, u := range scale(place.each, place.once, place.alone, pq.slots, i == 0) {
			if ids := debit(u, pq.queue.Name, nil); len(ids) > 0 {
				name := h.accounts[u.account].attribute.Name
				units[name] = append(units[name], ids...)
			}
		}
	}
	for _, u := range scale(c.each, c.once, c.alone, p.slots(), true) {
		name := ""
		if a := h.accounts[u.account].attribute; a != nil {
			name = a.Name
		}
		debit(u, "", units[name])
	}
	return g, whole
}

// scale returns what n slots take, together with what a job takes once.
func scale(each, once []use, alone []int, n int, first bool) []use {
	uses := make([]use, 0, len(each)+len(once)+len(alone))
	for _, u := range each {
		uses = append(uses, use{u.account, u.amount * float64(n)})
	}
	if first {
		uses = append(uses, once...)
	}
	for _, i := range alone {
		uses = append(uses, use{i, 1})
	}
	return uses
}

// planUses returns what a plan takes of each account.
func (h *host) planUses(c *class, p *plan) []use {
	uses := scale(c.each, c.once, c.alone, p.slots(), true)
	for i, pq := range p.queues {
		place := &c.places[pq.queue.index]
		uses = append(uses, scale(place.each, place.once, place.alone, pq.slots, i == 0)...)
	}
	if p.pe != nil {
		uses = append(uses, use{h.pes[p.pe.Name], float64(p.slots())})
	}
	return uses
}

// usesOf returns what a grant takes of each account that exists: its queue may have
// been removed since.
func (h *host) usesOf(g *Grant) []use {
	n := float64(g.Slots())
	uses := []use{{h.slots, n}}
	for _, qs := range g.Queues {
		if q := h.byName[qs.Queue]; q != nil {
			uses = append(uses, use{q.slots, float64(qs.Slots)})
		}
	}
	if i, ok := h.pes[g.PE]; ok {
		uses = append(uses, use{i, n})
	}
	for _, d := range g.Debits {
		if i, ok := h.consumed[consumer{d.Name, d.Queue}]; ok {
			uses = append(uses, use{i, d.Amount})
		}
	}
	return uses
}

// unit is one of the units of a RSMAP.
type unit struct {
	account int
	id      string
}

// unitsFor lowers a number of slots to that for which each RSMAP of the queue has free
// units: the host may name the same units, and other queues use them.
func (s *books) unitsFor(c *class, q *queue, n int) (int, obstacle) {
	p := &c.places[q.index]
	for i, u := range slices.Concat(p.each, p.once) {
		a := &s.host.accounts[u.account]
		if len(a.ids) == 0 {
			continue
		}
		left := len(s.units(a.attribute.Name, q.Name, math.MaxInt, nil))
		if i < len(p.each) {
			n = min(n, left/max(1, int(u.amount)))
		} else if left < int(u.amount) {
			n = 0
		}
		if n == 0 {
			return 0, obstacle{reason: offersOnly, attribute: a.attribute, offer: offer{conf.Value{Number: float64(left)}, 'h', 'c'}}
		}
	}
	return n, obstacle{}
}

// units returns the first n free units of a RSMAP of a queue or, without one, of the
// host. Where the host names units too, those of a queue must also be free there. An id
// that stands several times can be used as often. The result is entered in chosen, and
// units that stand there are not free.
func (s *books) units(attribute, owner string, n int, chosen map[unit]int) []string {
	account, ok := s.host.consumed[consumer{attribute, owner}]
	if !ok {
		return nil
	}
	places := []int{account}
	if i, ok := s.host.consumed[consumer{attribute, ""}]; ok && owner != "" && len(s.host.accounts[i].ids) > 0 {
		places = append(places, i)
	}
	var free []string
	seen := map[string]int{}
	for _, id := range s.host.accounts[account].ids {
		if len(free) >= n {
			break
		}
		isFree := true
		for _, i := range places {
			u := unit{i, id}
			isFree = isFree && s.taken[u]+chosen[u]+seen[id] < count(s.host.accounts[i].ids, id)
		}
		if !isFree {
			continue
		}
		free = append(free, id)
		seen[id]++
	}
	for _, id := range free {
		for _, i := range places {
			if chosen != nil {
				chosen[unit{i, id}]++
			}
		}
	}
	return free
}

func count(list []string, word string) int {
	n := 0
	for _, w := range list {
		if w == word {
			n++
		}
	}
	return n
}
