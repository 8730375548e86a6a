package shadow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
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
		if h := s.of(peers[i].Name); peers[i].State == api.PeerUp && now.After(h.again) && (!h.heard || len(h.acks) > 0) {
			s.followed(h)
		}
	}
	if len(peers) > 0 && s.Domain() != "" {
		s.offer(peers, now, soonest)
	}
	for _, c := range s.claims {
		switch after := c.idle.Add(idleFor); {
		case c.run != nil || c.closed:
		case after.After(now) && !c.spent:
			soonest(after)
		default:
			s.release(c)
		}
	}
	return next
}

// offer offers what waits. s.mu is held.
func (s *Shadows) offer(peers []api.PeerStatus, now time.Time, soonest func(time.Time)) {
	asked := maps.Clone(s.asked)
	for _, h := range s.hosts {
		h.steps = matchSteps
		for c, r := range h.refused {
			if r.until.Add(time.Duration(r.times) * refusedMost).Before(now) {
				delete(h.refused, c)
			}
		}
	}
	clear(s.stay)
	for _, w := range s.Foremost(most) {
		j := s.Host.Store.Get(w.Job)
		if j == nil {
			continue
		}
		if why := stays(j); why != "" {
			s.stay[j] = why
			continue
		}
		of, n := classOf(j), w.Tasks
		for n > 0 && s.startIdle(j, of, &w) {
			n--
		}
		covered := min(n, asked[of])
		asked[of] -= covered
		if n -= covered; n == 0 {
			continue
		}
		var why []string
		for i := range peers {
			for n > 0 {
				text, again := s.ask(&peers[i], j, of, now)
				if text != "" {
					why = append(why, peers[i].Name+": "+text)
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
		}
	}
}

// startIdle starts a task of a job under a claim that nothing runs under. s.mu is held.
func (s *Shadows) startIdle(j *job.Job, of class, w *schedule.Waiting) bool {
	for _, c := range s.claims {
		if c.run == nil && !c.closed && !c.spent && c.class == of && !c.lease.hopeless(time.Now()) {
			return s.start(c, j, w)
		}
	}
	return false
}

// Why says of each host why it does not take a job that waits; empty: none was asked.
func (s *Shadows) Why(j *job.Job) string {
	if s.Domain() == "" && len(s.Peers()) > 0 {
		return "FILESYSTEM_DOMAIN is not set"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stay[j]
}

// ask asks a host for a slot, or says why not, and when that may be another thing; zero: when
// the host says so. s.mu is held.
func (s *Shadows) ask(p *api.PeerStatus, j *job.Job, of class, now time.Time) (why string, again time.Time) {
	h := s.of(p.Name)
	switch r, refused := h.refused[of]; {
	case p.State == api.PeerUnknown:
		return "it has not answered yet", again
	case p.State != api.PeerUp:
		return "down since " + p.Since.Format(time.DateTime) + ": " + api.Visible(p.Error), again
	case refused && r.until.After(now):
		return r.text, r.until
	case p.Free <= h.asking:
		return "no slot is free", again
	case h.asking >= askedAtOnce:
		return "it is being asked", again
	case now.Sub(h.read) >= fresh || h.stirred && now.Sub(h.read) >= freshLeast:
		if !h.reading {
			h.reading, h.stirred = true, false
			s.do(func(ctx context.Context) { s.look(ctx, h) })
		}
		return "it is being asked", again
	case h.stirred && len(h.slots) == 0:
		return "no slot is free", h.read.Add(freshLeast)
	}
	work, domain := s.JobAd(j), s.Domain()
	for i := range h.slots {
		if why = unfit(work, h.slots[i].ad, domain, now, &h.steps); why == "" {
			break
		}
	}
	switch {
	case h.steps <= 0: // its expressions are expensive, and others wait meanwhile
		return "it is being asked", now.Add(freshLeast)
	case len(h.slots) == 0:
		return "no slot is free", h.read.Add(fresh)
	case why != "":
		return why, h.refuse(of, why).until
	}
	h.asking++
	s.asked[of]++
	text := work.OldString()
	s.do(func(ctx context.Context) { s.request(ctx, h, of, text) })
	return "", again
}

// refuse notes why a host takes no jobs of a class for a while. Shadows.mu is held.
func (h *host) refuse(of class, why string) refusal {
	r := h.refused[of]
	r.text, r.state = api.Visible(api.Short(why)), false
	r.until = time.Now().Add(min(refusedFor<<r.times, refusedMost))
	h.refused[of] = r
	return r
}

// look reads the ads of the free slots of a host.
func (s *Shadows) look(ctx context.Context, h *host) {
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var reply api.SlotsReply
	err := s.On(h.name, "").Call(limited, api.VerbSlots, &api.SlotsRequest{Ads: true}, &reply)
	var slots []slotAd
	queues := map[string]string{}
	for i := range reply.Slots {
		t := &reply.Slots[i]
		if len(t.Ad) > maxAd || len(slots) == maxSlots {
			continue
		}
		queues[string(t.Slot)] = t.Queue
		if !free(t) {
			continue
		}
		if ad, err := classad.ParseOld(t.Ad); err == nil {
			slots = append(slots, slotAd{string(t.Slot), ad})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.reading = false
	if err == nil {
		h.slots, h.queues, h.read = slots, queues, time.Now()
		s.Wake()
	}
}

// request asks a host for a slot for a job of a class.
func (s *Shadows) request(ctx context.Context, h *host, of class, ad string) {
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	begun := time.Now()
	c, err := s.On(h.name, of.owner).Claim(limited, api.ClaimRequest{Ad: ad, NoWait: true, Lease: wanted})
	s.mu.Lock()
	queue := h.queues
	s.mu.Unlock()
	var got *claim
	if err == nil {
		r := record{ID: c.Reply.ID, Host: h.name, User: of.owner, Slot: string(c.Reply.Slot), Queue: queueOf(&c.Reply, queue), Lease: c.Reply.Lease, Ad: c.Reply.Ad}
		got = &claim{record: r, class: of, idle: time.Now(), lease: lease{length: time.Duration(r.Lease) * time.Second, tried: begun, renewed: begun}}
		if err = s.check(got); err == nil {
			err = (&records{s.Root}).put(&r)
		}
		if err != nil {
			_ = c.Release(limited) // else it ends with its lease
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.asking--
	if s.asked[of]--; s.asked[of] == 0 {
		delete(s.asked, of)
	}
	if err != nil {
		if ctx.Err() == nil {
			h.refuse(of, err.Error())
			switch api.RefusalOf(err) {
			case api.RefusedTryAgain, api.RefusedState, api.RefusedRank, api.RefusedBusy, api.RefusedShutdown, api.RefusedBroken:
				r := h.refused[of]
				r.state = true
				h.refused[of] = r
			}
			s.Host.Log.Debug(fmt.Sprintf("execd: host %s refuses a slot for jobs of %s: %v", h.name, of.owner, err))
		}
	} else {
		s.claims[got.public()] = got
		h.slots = slices.DeleteFunc(h.slots, func(a slotAd) bool { return a.name == got.Slot })
	}
	s.Wake()
}

// queueOf returns the queue of the slot of a claim: its ad says it, or what was read of the
// slots of the host.
func queueOf(r *api.ClaimReply, queues map[string]string) string {
	if ad, err := classad.ParseOld(r.Ad); err == nil {
		if q, ok := (&classad.Env{My: ad}).Attr("Queue").Str(); ok {
			return q
		}
	}
	return queues[string(r.Slot)]
}
