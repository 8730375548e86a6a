package shadow

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/shadow/match"
)

// offers are those of jobs that wait here to other hosts.
type offers struct {
	*core
	hosts  *hosts
	claims *claims
	runs   *runs
	now    immediate

	// Guarded by core.mu.
	asked map[match.Class]int // claims that hosts are being asked for
	want  map[match.Class]int // tasks that wait, as of the last round
	why   map[*job.Job]string // why jobs that wait were not taken by any host, as of the last round
}

// These bound what is done for jobs that wait.
const (
	most        = 256             // jobs that are looked at in a round
	askedAtOnce = 8               // claims of one host
	fresh       = 5 * time.Second // how long the ads of slots are believed
	freshLeast  = time.Second     // the same when they are known to have changed
	wanted      = 2400            // seconds of lease that are asked for
)

// These are why a job is not on a host that it does not ask for, or that has not answered yet.
const (
	notNamed   = "it is not asked for (-q, -l)"
	beingAsked = "it is being asked"
)

// round offers what waits here to other hosts, and gives claims back that nothing runs
// under. It returns when it is to be done again if nothing happens; zero: never.
func (o *offers) round(now time.Time) (next time.Time) {
	peers := o.Peers()
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range peers {
		if h := o.hosts.get(peers[i].Name); peers[i].State == api.PeerUp && h.due(now) {
			h.follow()
		}
	}
	if len(peers) > 0 {
		next = o.offerAll(peers, now)
	}
	return sooner(next, o.claims.giveBack(now, o.want, func(host string) bool { return o.hosts.get(host).crowded }))
}

// offerAll offers what waits, and returns when that is to be done again, as round does. core.mu is
// held.
func (o *offers) offerAll(peers []api.PeerStatus, now time.Time) (next time.Time) {
	for _, h := range o.hosts.list {
		h.beginRound(now)
	}
	clear(o.why)
	waiting := o.waiting()
	clear(o.want)
	for _, w := range waiting {
		if j := o.Host.Store.Get(w.Job); j != nil {
			o.want[match.ClassOf(j)] += w.Tasks
		}
	}
	asked := maps.Clone(o.asked)
	for i := range waiting {
		if j := o.Host.Store.Get(waiting[i].Job); j != nil {
			next = sooner(next, o.offer(j, &waiting[i], asked, peers, now))
		}
	}
	return next
}

// waiting returns what is offered: what is to start now before what waits. core.mu is held.
func (o *offers) waiting() []schedule.Waiting {
	var list []schedule.Waiting
	for j := range o.now {
		if o.Host.Store.Running(j) == 0 {
			list = append(list, schedule.Waiting{Job: j.Number, Tasks: 1})
		}
	}
	rest := slices.DeleteFunc(o.Foremost(most), func(w schedule.Waiting) bool {
		return len(o.now) > 0 && o.now[o.Host.Store.Get(w.Job)] != nil
	})
	return append(list, rest...)
}

// offer starts tasks of a job under claims that nothing runs under, and asks hosts for claims for
// the others. Asked are the claims that hosts are being asked for and that are for no job yet. core.mu
// is held.
func (o *offers) offer(j *job.Job, w *schedule.Waiting, asked map[match.Class]int, peers []api.PeerStatus, now time.Time) (next time.Time) {
	terms := j.Terms()
	if why := match.Stays(terms.Needs.Request(), terms.Session, o.Domain()); why != "" {
		o.why[j] = why
		o.now.answer(j, false)
		return next
	}
	of, n := match.ClassOf(j), w.Tasks
	for started := true; n > 0 && started; {
		c, enough := o.claims.idle(of), false
		if c == nil {
			break
		}
		if started, enough = o.runs.start(c, j, w); enough { // more have started here meanwhile
			o.now.answer(j, false)
			return next
		} else if started {
			n--
		}
	}
	covered := min(n, asked[of])
	asked[of] -= covered
	if n -= covered; n == 0 {
		return next
	}
	var why []string
	order := match.Preferred(o.Host.Config(), terms.Needs.Request(), peers)
	for i := range order {
		for n > 0 {
			text, again := o.ask(&order[i], j, of, now)
			if text != "" {
				why = append(why, order[i].Name+": "+text)
				next = sooner(next, again)
				break
			}
			n--
		}
	}
	if n > 0 {
		o.why[j] = strings.Join(why, "; ")
		if o.asked[of] == 0 && !slices.ContainsFunc(why, func(text string) bool { return strings.HasSuffix(text, ": "+beingAsked) }) {
			o.now.answer(j, false)
		}
	}
	return next
}

// search is that for a slot of a host for a job. core.mu is held.
func (o *offers) search(h *host, j *job.Job, now time.Time) *match.Search {
	return &match.Search{Config: o.Host.Config(), Request: j.Terms().Needs.Request(), Ad: o.JobAd(j), Domain: o.Domain(), Now: now, Steps: &h.steps}
}

// ask asks a host for a slot, or says why not, and when that may be another thing; zero: when
// the host says so. core.mu is held.
func (o *offers) ask(p *api.PeerStatus, j *job.Job, of match.Class, now time.Time) (why string, again time.Time) {
	h, terms := o.hosts.get(p.Name), j.Terms()
	r, lost := terms.Needs.Request(), match.Unreached(terms.Session, p)
	switch {
	case !match.Admits(o.Host.Config(), r, p):
		return notNamed, again
	case lost != "":
		return lost, again
	case p.State == api.PeerUnknown:
		return "it has not answered yet", again
	case p.State != api.PeerUp:
		return "down since " + p.Since.Format(time.DateTime) + ": " + api.Visible(p.Error), again
	case p.Draining:
		return "it is being drained", again
	}
	if c := o.claims.leftOversOn(p.Name, of.Owner); c != nil {
		if ok, _ := schedule.Admits(o.Host.Config(), r, schedule.Place{Host: p.Name, Queue: c.Queue}); ok && c.carving == askedAtOnce {
			return beingAsked, again
		} else if ok && o.carve(h, c, of, o.search(h, j, now)) {
			return "", again
		}
	}
	if h.opening {
		return beingAsked, again
	}
	switch r, refused := h.refused[of]; {
	case refused && r.until.After(now):
		return r.text, r.until
	case p.Free <= h.asking:
		h.crowded = true
		return "no slot is free", again
	case h.asking >= askedAtOnce:
		return beingAsked, again
	case now.Sub(h.read) >= fresh || h.changed && now.Sub(h.read) >= freshLeast:
		h.readSoon()
		return beingAsked, again
	case h.changed && len(h.slots) == 0:
		return "no slot is free", h.read.Add(freshLeast)
	}
	search := o.search(h, j, now)
	best, why, state := search.Best(h.name, h.slots)
	switch {
	case h.steps <= 0: // its expressions are expensive, and others wait meanwhile
		return beingAsked, now.Add(freshLeast)
	case best == nil && why == "":
		return "no slot is free", h.read.Add(fresh)
	case best == nil:
		return why, h.refuse(of, why, state, false).until
	}
	h.opening = o.want[of]-o.asked[of] > 1 && best.IsPartitionable() // the others are carved out of what is left
	o.request(h, of, &slotRequest{ad: search.AdFor(best).OldString()})
	return "", again
}

// carve asks for a slot for a job out of what is left, or reports that it does not fit there. core.mu
// is held.
func (o *offers) carve(h *host, c *claim, of match.Class, search *match.Search) bool {
	left := search.Carve(c.leftOvers)
	if left == nil {
		return false
	}
	c.leftOvers = left
	o.request(h, of, &slotRequest{on: api.SlotID(c.Slot), under: c, ad: search.Ad.OldString()})
	return true
}

// slotRequest is what a host is asked for.
type slotRequest struct {
	on    api.SlotID // empty: any slot
	ad    string     // of the job
	under *claim     // on what is left of a slot out of which this one is carved; nil: none
	more  bool       // a claim is asked for as well on what is left of the slot
}

// request has a host asked for a slot for a job of a class. core.mu is held.
func (o *offers) request(h *host, of match.Class, q *slotRequest) {
	q.more = o.want[of]-o.asked[of] > 1
	h.asking++
	o.asked[of]++
	if q.under != nil {
		q.under.carving++
	}
	o.do(func(ctx context.Context) { o.claimSlot(ctx, h, of, q) })
}

// claimSlot asks a host for a claim, and takes it over.
func (o *offers) claimSlot(ctx context.Context, h *host, of match.Class, q *slotRequest) {
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	begun := time.Now()
	c, err := o.On(h.name, of.Owner).Claim(limited, api.ClaimRequest{Slot: q.on, Ad: q.ad, NoWait: true, Lease: wanted, LeftOvers: q.more, Confirm: true})
	var got, leftOvers *claim
	if err == nil {
		got, err = o.claims.keep(ctx, h, of, c, begun, nil)
	}
	if err == nil && c.Reply.LeftOvers != nil {
		left, lost := c.LeftOvers(), error(nil)
		if leftOvers, lost = o.claims.keep(ctx, h, match.Class{Owner: of.Owner}, left, begun, match.LeftOvers(left.Reply.Ad)); lost != nil {
			o.debugf("execd: host %s: cannot keep what is left of slot %s: %v", h.name, api.Visible(string(left.Reply.Slot)), lost)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	h.asking--
	if o.asked[of]--; o.asked[of] == 0 {
		delete(o.asked, of)
	}
	if q.under == nil {
		h.opening = false
	} else if q.under.carving--; q.under != leftOvers {
		q.under.spent = true
	}
	if leftOvers != nil && !leftOvers.closed {
		o.claims.list[leftOvers.Name()] = leftOvers
	}
	if err != nil {
		if ctx.Err() == nil {
			state := q.under != nil || slices.ContainsFunc(h.slots, func(slot match.Slot) bool { return slot.IsPartitionable() })
			switch api.RefusalOf(err) {
			case api.RefusedTryAgain, api.RefusedState, api.RefusedRank, api.RefusedBusy, api.RefusedShutdown, api.RefusedBroken:
				state = true
			}
			h.refuse(of, err.Error(), state, false)
			o.debugf("execd: host %s refuses a slot for jobs of %s: %v", h.name, of.Owner, err)
		}
	} else {
		o.claims.list[got.Name()] = got
		h.slots = slices.DeleteFunc(h.slots, func(slot match.Slot) bool { return slot.Name == got.Slot })
	}
	o.Wake()
}
