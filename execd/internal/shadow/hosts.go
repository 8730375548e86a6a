package shadow

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/shadow/match"
	"paddock/execd/internal/shadow/report"
)

// hosts are the other hosts of the pool. They are used with core.mu held.
type hosts struct {
	*core
	runs *runs
	list map[string]*host // by name
}

// get returns a host.
func (l *hosts) get(name string) *host {
	h := l.list[name]
	if h == nil {
		h = &host{refused: map[match.Class]refusal{}, feed: feed{core: l.core, name: name, runs: l.runs, acks: map[api.SandboxID]uint64{}}}
		l.list[name] = h
	}
	return h
}

// host is another host: its slots, and what it tells of runs. It is used with core.mu held.
type host struct {
	feed
	slots    []match.Slot      // its free slots, as of read
	queues   map[string]string // queues of slots, by name
	read     time.Time
	reading  bool
	changed  bool              // they have changed since
	named    []api.QueueStatus // its queues
	revision int               // of its configuration
	opening  bool              // a claim is asked for, and one on what is left of its slot
	asking   int               // claims that it is being asked for
	steps    int               // that are left in this round to evaluate its ads
	crowded  bool              // a job has found no free slot there in this round
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

// change takes over what a host has become, and reports whether it has other queues.
func (h *host) change(is *api.PeerStatus) (queues bool) {
	if h.revision != is.Revision {
		h.revision, h.read = is.Revision, time.Time{}
		clear(h.refused)
	}
	h.changed = true
	maps.DeleteFunc(h.refused, func(_ match.Class, r refusal) bool { return r.state })
	queues = !slices.EqualFunc(h.named, is.Queues, func(a, b api.QueueStatus) bool { return a.Name == b.Name })
	h.named = is.Queues
	return queues
}

// beginRound begins to look at what the host is asked for.
func (h *host) beginRound(now time.Time) {
	h.steps, h.crowded = matchSteps, false
	maps.DeleteFunc(h.refused, func(_ match.Class, r refusal) bool {
		return r.until.Add(time.Duration(r.times) * refusedMost).Before(now)
	})
}

// refuse notes why a host takes no jobs of a class for a while, or, for the state of its slots,
// until that is another, and returns that. One that refuses a job when its slot was granted is asked
// more and more seldom.
func (h *host) refuse(of match.Class, why string, state, granted bool) refusal {
	r := h.refused[of]
	r.text, r.state = api.Visible(api.Short(why)), state
	r.until = time.Now().Add(min(refusedFor<<r.times, refusedMost))
	if granted {
		r.times = min(r.times+1, 10)
	}
	h.refused[of] = r
	return r
}

// readSoon has the ads of the free slots read.
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

// feed is what a host tells of runs. It is followed as long as one is there, or something that was
// told is to be acknowledged.
type feed struct {
	*core
	name string // of the host
	runs *runs

	// Guarded by core.mu.
	followed bool
	heard    bool                     // it has said what it had to say of runs of earlier execds
	again    time.Time                // when it is followed again after a failure, without a run there
	cancel   context.CancelFunc       // of the request by which it is
	cut      error                    // why that was cancelled, as if the host did not answer; nil: it was not
	silent   time.Time                // since when the host has not answered; zero: it does
	acks     map[api.SandboxID]uint64 // what is to be acknowledged
}

const (
	// followLimit is for how long a host that answers each minute may be silent.
	followLimit = 3 * time.Minute
	// ackPause is how long an acknowledgement waits for a request to go with.
	ackPause = time.Second
)

// due reports whether the host is to be asked, though nothing is known to run there. core.mu is
// held.
func (f *feed) due(now time.Time) bool {
	return now.After(f.again) && (!f.heard || len(f.acks) > 0)
}

// follow has the feed followed by a goroutine. core.mu is held.
func (f *feed) follow() {
	if !f.followed {
		f.followed = true
		f.do(f.watch)
	}
}

// watch follows the feed until no run is left there, and all that was said is acknowledged.
func (f *feed) watch(ctx context.Context) {
	cursor := ""
	for over := false; !over; {
		err := again(ctx, retries.After, func(int) (done bool) {
			cursor, over, done = f.listen(ctx, cursor)
			return done || over
		})
		if err != nil {
			return
		}
	}
}

// listen hears once what the host has to say behind a cursor. Over says that there is nothing
// more to be heard, and not done that the host does not answer.
func (f *feed) listen(ctx context.Context, cursor string) (next string, over, done bool) {
	f.mu.Lock()
	acks := make([]api.Ack, 0, len(f.acks))
	for id, seq := range f.acks {
		if len(acks) < api.MaxEvents {
			acks = append(acks, api.Ack{Sandbox: id, Seq: seq})
		}
	}
	if f.followed = !f.heard || len(acks)+len(f.runs.on(f.name)) > 0; !f.followed {
		f.mu.Unlock()
		return cursor, true, true
	}
	if cut := f.cut; cut != nil {
		f.cut = nil
		f.mu.Unlock()
		return "", f.fall(cut), false
	}
	limited, cancel := context.WithTimeout(ctx, followLimit)
	defer cancel()
	f.cancel = cancel
	f.mu.Unlock()
	reply, err := f.On(f.name, "").Follow(limited, api.FollowRequest{Cursor: cursor, Acks: acks})
	f.mu.Lock()
	if f.cut != nil && (err != nil || len(reply.Events) == 0) {
		err, cursor = f.cut, "" // all that it was not acknowledged is sent again
	}
	f.cut = nil
	f.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return cursor, true, true
	case errors.Is(err, context.Canceled): // there is something to be acknowledged
		return cursor, false, true
	case err != nil:
		return cursor, f.fall(err), false
	}
	f.take(acks, &reply)
	return reply.Cursor, false, true
}

// fall notes that the host does not answer, and reports whether that does not matter.
func (f *feed) fall(err error) (whatever bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	runs := f.runs.on(f.name)
	if len(runs) == 0 { // it is followed again when it is up
		f.followed, f.again = false, time.Now().Add(retries.Most)
		return true
	}
	if f.silent.IsZero() {
		f.silent = time.Now()
		for _, r := range runs {
			r.poke()
		}
		f.warnf("execd: host %s does not answer, and %d jobs run there: %v", f.name, len(runs), err)
	}
	return false
}

// take takes over what the host has said. It may say anything.
func (f *feed) take(acks []api.Ack, reply *api.FollowReply) {
	events := reply.Events[:min(len(reply.Events), api.MaxEvents)]
	status, most := make([]*ad.Status, len(events)), make([]time.Duration, len(events))
	for i := range events {
		status[i], most[i] = report.StatusOf(events[i].Ad)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = true
	if !f.silent.IsZero() {
		f.silent = time.Time{}
		f.logf("execd: host %s answers again", f.name)
		for _, r := range f.runs.on(f.name) {
			r.hearAgain()
		}
	}
	for _, a := range acks {
		if f.acks[a.Sandbox] == a.Seq {
			delete(f.acks, a.Sandbox)
		}
	}
	for i := range events {
		e := &events[i]
		r := f.runs.list[e.Sandbox]
		if r == nil || r.host.name != f.name || r.hear(e, status[i], most[i]) { // its end is recorded, or it never was
			f.acknowledge(e.Sandbox, e.Seq)
		}
	}
}

// acknowledge has the host forget events of a run up to one. core.mu is held.
func (f *feed) acknowledge(id api.SandboxID, seq uint64) { f.acks[id] = max(f.acks[id], seq) }

// acknowledgeSoon is acknowledge with a request of its own if none goes soon: the next may be a
// minute away. core.mu is held.
func (f *feed) acknowledgeSoon(id api.SandboxID, seq uint64) {
	f.acknowledge(id, seq)
	f.follow()
	time.AfterFunc(ackPause, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if _, waits := f.acks[id]; waits && f.cancel != nil {
			f.cancel()
		}
	})
}

// reconnect has the request by which the feed is followed made anew. core.mu is held.
func (f *feed) reconnect(why error) {
	if f.cut = why; f.cancel != nil {
		f.cancel()
	}
}
