package shadow

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/shadow/match"
	"paddock/execd/internal/shadow/remote"
)

// round offers what waits here to other hosts, and gives claims back that nothing runs
// under. It returns when it is to be done again if nothing happens; zero: never.
func (s *Shadows) round(now time.Time) (next time.Time) {
	peers := s.Peers()
	s.mu.Lock()
	defer s.mu.Unlock()
	soonest := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for i := range peers {
		if h := s.hosts.get(peers[i].Name); peers[i].State == api.PeerUp && h.due(now) {
			h.follow()
		}
	}
	if len(peers) > 0 {
		s.offer(peers, now, soonest)
	}
	for _, c := range s.claims {
		if c.run == nil {
			s.started(c)
		}
		switch after := c.idle.Add(idleFor); {
		case c.run != nil || c.closed || c.carving > 0:
		case s.capped(c) && !c.spent && s.want[c.class] > 0: // its turn comes
		case s.hosts.get(c.Host).crowded && s.want[c.class] == 0: // another job can have the slot
			s.release(c)
		case c.rest != nil: // nobody else has slots carved there meanwhile
			s.release(c)
		case after.After(now) && !c.spent:
			soonest(after)
		default:
			s.release(c)
		}
	}
	return next
}

// offer offers what waits. core.mu is held.
func (s *Shadows) offer(peers []api.PeerStatus, now time.Time, soonest func(time.Time)) {
	asked := maps.Clone(s.asked)
	for _, h := range s.hosts.list {
		h.beginRound(now)
	}
	clear(s.stay)
	waiting := s.waiting()
	clear(s.want)
	for _, w := range waiting {
		if j := s.Host.Store.Get(w.Job); j != nil {
			s.want[match.ClassOf(j)] += w.Tasks
		}
	}
	for _, w := range waiting {
		j := s.Host.Store.Get(w.Job)
		if j == nil {
			continue
		}
		if why := s.stays(j); why != "" {
			s.stay[j] = why
			s.answer(j, false)
			continue
		}
		of, n := match.ClassOf(j), w.Tasks
		started, enough := true, false
		for n > 0 && started {
			if started, enough = s.startIdle(j, of, &w); started {
				n--
			}
		}
		if enough { // more have started here meanwhile
			s.answer(j, false)
			continue
		}
		covered := min(n, asked[of])
		asked[of] -= covered
		if n -= covered; n == 0 {
			continue
		}
		var why []string
		order := match.Preferred(s.Host.Config(), j.Terms().Needs.Request(), peers)
		for i := range order {
			for n > 0 {
				text, again := s.ask(&order[i], j, of, now)
				if text != "" {
					why = append(why, order[i].Name+": "+text)
					if !again.IsZero() {
						soonest(again)
					}
					break
				}
				n--
			}
		}
		if n > 0 {
			s.stay[j] = strings.Join(why, "; ")
			if s.asked[of] == 0 && !slices.ContainsFunc(why, func(text string) bool { return strings.HasSuffix(text, ": "+beingAsked) }) {
				s.answer(j, false)
			}
		}
	}
}

// startIdle is start under a claim that nothing runs under. core.mu is held.
func (s *Shadows) startIdle(j *job.Job, of match.Class, w *schedule.Waiting) (started, enough bool) {
	for _, c := range s.claims {
		if c.run == nil && c.rest == nil && !c.closed && !c.spent && !s.capped(c) && c.class == of && !c.lease.hopeless(time.Now()) {
			return s.start(c, j, w)
		}
	}
	return false, false
}

// Why says of each host why it does not take a job that waits; empty: none was asked.
func (s *Shadows) Why(j *job.Job) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stay[j]
}

// search is that for a slot of a host for a job. core.mu is held.
func (s *Shadows) search(h *host, j *job.Job, now time.Time) *match.Search {
	return &match.Search{Config: s.Host.Config(), Request: j.Terms().Needs.Request(), Ad: s.JobAd(j), Domain: s.Domain(), Now: now, Steps: &h.steps}
}

// notNamed is why a host does not take a job that asks for others.
const notNamed = "it is not asked for (-q, -l)"

// stays says why a job runs on no host but this one; empty: it may leave.
func (s *Shadows) stays(j *job.Job) string {
	t := j.Terms()
	r := t.Needs.Request()
	why := match.Stays(r, t.Session)
	if why == "" && !match.Travels(r) && s.Domain() == "" {
		why = "FILESYSTEM_DOMAIN is not set"
	}
	return why
}

// beingAsked is why a job is not on a host that has not answered yet.
const beingAsked = "it is being asked"

// ask asks a host for a slot, or says why not, and when that may be another thing; zero: when
// the host says so. core.mu is held.
func (s *Shadows) ask(p *api.PeerStatus, j *job.Job, of match.Class, now time.Time) (why string, again time.Time) {
	h, terms := s.hosts.get(p.Name), j.Terms()
	r, lost := terms.Needs.Request(), match.Unreached(terms.Session, p)
	switch {
	case !match.Admits(s.Host.Config(), r, p):
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
	if c := s.restOn(p.Name, of.Owner); c != nil {
		if ok, _ := schedule.Admits(s.Host.Config(), r, schedule.Place{Host: p.Name, Queue: c.Queue}); ok && c.carving == askedAtOnce {
			return beingAsked, again
		} else if ok && s.carve(h, c, of, s.search(h, j, now)) {
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
	search := s.search(h, j, now)
	best, why, state := search.Best(h.name, h.slots)
	switch {
	case h.steps <= 0: // its expressions are expensive, and others wait meanwhile
		return beingAsked, now.Add(freshLeast)
	case best == nil && why == "":
		return "no slot is free", h.read.Add(fresh)
	case best == nil:
		return why, h.refuse(of, why, state).until
	}
	h.opening = s.want[of]-s.asked[of] > 1 && best.IsPartitionable() // the others are carved out of what is left
	s.send(h, of, &ask{ad: search.AdFor(best).OldString()})
	return "", again
}

// ask is a request for a claim.
type ask struct {
	on   api.SlotID // empty: any slot
	ad   string
	rest *claim // under which the slot is carved; nil: none
}

// send asks a host for a slot for a job of a class. core.mu is held.
func (s *Shadows) send(h *host, of match.Class, a *ask) {
	more := s.want[of]-s.asked[of] > 1
	h.asking++
	s.asked[of]++
	if a.rest != nil {
		a.rest.carving++
	}
	s.do(func(ctx context.Context) { s.request(ctx, h, of, a, more) })
}

// request is send, without the lock. With more a claim is asked for as well on what is left of
// the slot that this one is carved out of.
func (s *Shadows) request(ctx context.Context, h *host, of match.Class, a *ask, more bool) {
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	begun := time.Now()
	c, err := s.On(h.name, of.Owner).Claim(limited, api.ClaimRequest{Slot: a.on, Ad: a.ad, NoWait: true, Lease: wanted, LeftOvers: more, Confirm: true})
	var got, rest *claim
	if err == nil {
		got, err = s.enterClaim(ctx, h, of, c, begun, nil)
	}
	if err == nil {
		rest = s.keepRest(ctx, h, of, c.LeftOvers(), begun)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.asking--
	if s.asked[of]--; s.asked[of] == 0 {
		delete(s.asked, of)
	}
	if a.rest == nil {
		h.opening = false
	} else if a.rest.carving--; a.rest != rest {
		a.rest.spent = true
	}
	if err != nil {
		if ctx.Err() == nil {
			state := a.rest != nil || slices.ContainsFunc(h.slots, func(slot match.Slot) bool { return slot.IsPartitionable() })
			switch api.RefusalOf(err) {
			case api.RefusedTryAgain, api.RefusedState, api.RefusedRank, api.RefusedBusy, api.RefusedShutdown, api.RefusedBroken:
				state = true
			}
			h.refuse(of, err.Error(), state)
			s.debugf("execd: host %s refuses a slot for jobs of %s: %v", h.name, of.Owner, err)
		}
	} else {
		s.claims[got.Name()] = got
		h.slots = slices.DeleteFunc(h.slots, func(slot match.Slot) bool { return slot.Name == got.Slot })
	}
	s.Wake()
}

// enterClaim makes a claim that was granted durable; rest is the ad of what is left, if it is
// for that.
func (s *Shadows) enterClaim(ctx context.Context, h *host, of match.Class, c *api.Claim, begun time.Time, rest *classad.Ad) (*claim, error) {
	s.mu.Lock()
	queues, twice := h.queues, s.claims[remote.Name{Host: h.name, Public: c.Reply.ID.String()}] != nil
	s.mu.Unlock()
	r := remote.Claim{ID: c.Reply.ID, Host: h.name, User: of.Owner, Slot: string(c.Reply.Slot), Queue: match.Queue(&c.Reply, queues), Lease: c.Reply.Lease, Ad: c.Reply.Ad}
	got := &claim{Claim: r, class: of, rest: rest, idle: time.Now(), lease: lease{length: time.Duration(r.Lease) * time.Second, tried: begun, renewed: begun}}
	err := got.Check()
	if err == nil && twice {
		err = errors.New("it grants a claim twice")
	}
	if err == nil {
		err = (&remote.Store{Root: s.Root}).Put(&got.Claim)
	}
	if err != nil {
		limited, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		_ = c.Release(limited) // else it ends with its lease
	}
	return got, err
}
