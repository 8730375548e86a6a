package shadow

import (
	"context"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/shadow/match"
)

// hosts are the other hosts of the pool.
type hosts struct {
	*core
	runs *runs
	list map[string]*host // guarded by core.mu; by name
}

// get returns a host. core.mu is held.
func (l *hosts) get(name string) *host {
	h := l.list[name]
	if h == nil {
		h = &host{refused: map[match.Class]refusal{}, feed: feed{core: l.core, name: name, runs: l.runs, acks: map[api.SandboxID]uint64{}}}
		l.list[name] = h
	}
	return h
}

// host is another host: its slots, and what it tells of runs. What follows is guarded by core.mu.
type host struct {
	feed
	slots    []match.Slot      // its free slots, as of read
	queues   map[string]string // queues of slots, by name
	read     time.Time
	reading  bool
	changed  bool   // they have changed since
	named    string // its queues
	revision int    // of its configuration
	opening  bool   // a claim is asked for, and one on what is left of its slot
	asking   int    // claims that it is being asked for
	steps    int    // that are left in this round to evaluate its ads
	crowded  bool   // a job has found no free slot there in this round
	refused  map[match.Class]refusal
}

const (
	matchSteps  = 300_000          // by which the ads of a host are evaluated in a round
	refusedFor  = 30 * time.Second // how long a refusal is, for the first time
	refusedMost = time.Hour        // and at most, where slots are granted and the job is refused
)

// refusal is why a host takes no jobs of a class.
type refusal struct {
	text  string
	until time.Time
	times int  // how often it has refused one after it had granted a slot
	state bool // for the state of its slots, and not for what the job is
}

// change takes over what a host has become, and reports whether it has other queues. core.mu is
// held.
func (h *host) change(is *api.PeerStatus) (queues bool) {
	var named strings.Builder
	for i := range is.Queues {
		named.WriteString(is.Queues[i].Name + " ")
	}
	if h.revision != is.Revision {
		h.revision, h.read = is.Revision, time.Time{}
		clear(h.refused)
	}
	h.changed = true
	for c, r := range h.refused {
		if r.state {
			delete(h.refused, c)
		}
	}
	queues = h.named != named.String()
	h.named = named.String()
	return queues
}

// beginRound begins to look at what the host is asked for. core.mu is held.
func (h *host) beginRound(now time.Time) {
	h.steps, h.crowded = matchSteps, false
	for c, r := range h.refused {
		if r.until.Add(time.Duration(r.times) * refusedMost).Before(now) {
			delete(h.refused, c)
		}
	}
}

// refuse notes why a host takes no jobs of a class for a while, or, for the state of its slots,
// until that is another. core.mu is held.
func (h *host) refuse(of match.Class, why string, state bool) refusal {
	r := h.refused[of]
	r.text, r.state = api.Visible(api.Short(why)), state
	r.until = time.Now().Add(min(refusedFor<<r.times, refusedMost))
	h.refused[of] = r
	return r
}

// refuseGranted is refuse for a job that was refused when its slot had been granted: the host is
// asked more and more seldom. core.mu is held.
func (h *host) refuseGranted(of match.Class, why string) {
	r := h.refuse(of, why, false)
	r.times = min(r.times+1, 10)
	h.refused[of] = r
}

// readSoon has the ads of the free slots read. core.mu is held.
func (h *host) readSoon() {
	if h.reading {
		return
	}
	h.reading, h.changed = true, false
	h.do(func(ctx context.Context) {
		limited, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		var reply api.SlotsReply
		err := h.On(h.name, "").Call(limited, api.VerbSlots, &api.SlotsRequest{Ads: true}, &reply)
		slots, queues := match.Slots(&reply)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.reading = false
		if err == nil {
			h.slots, h.queues, h.read = slots, queues, time.Now()
			h.Wake()
		}
	})
}
