// Package follow knows the activations of claims that somebody follows: programs, and the
// execds of other hosts, who must learn what has become of a job also when an answer was
// lost or an execd was restarted. An activation is known by an id of theirs, so that it can
// be repeated; what happens to it is kept until it is acknowledged; and an id can be fenced,
// after which it never starts a job.
//
// Only the last event of each kind is kept, in memory. What is not on disk otherwise is the
// state of a job, from which the next execd makes the events anew: package stage keeps the
// record of a run whose end was not acknowledged. Fences are files of this package.
//
// Stage tells what happens, program and server ask; daemon puts it together. It imports job.
package follow

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/spool"
)

// Who follows activations: a user of this host or another, or with no User the execd of
// another.
type Who struct{ Host, User string }

// Activations are those that somebody follows. The exported fields are set before use.
type Activations struct {
	Root *spool.Root
	// Claimed reports whether the claim with a public id lasts.
	Claimed func(public string) bool
	// Lease is how long an end is kept that nobody acknowledges when its claim is over.
	Lease func() time.Duration
	Log   *slog.Logger

	file sync.Mutex // held while a fence is written; before mu
	mu   sync.Mutex // before those that Claimed takes

	present presence
	opened  time.Time

	begun  string                        // of this execd, in cursors
	seq    uint64                        // guarded by mu; of the last event
	known  map[api.SandboxID]*activation // guarded by mu
	by     map[Who]*follower             // guarded by mu
	spent  map[name]uint64               // guarded by mu; the highest counter that was used or fenced
	fences map[name]uint64               // guarded by mu; the highest that is on disk
}

// follower is one of those who follow.
type follower struct {
	count   int           // of his activations
	changed chan struct{} // closed at the next event, if it is awaited
	awaited bool
}

// activation is one that was not acknowledged to the end.
type activation struct {
	api.Activation
	claim   string // public id
	name    name   // of the claim
	counter uint64
	job     int // 0: it has none yet
	cursor  string
	state   api.RunState
	ready   chan struct{} // closed when it has a job, or will have none
	events  []api.ActivationEvent
	again   func()      // has the run go on, whose end was acknowledged
	expiry  *time.Timer // since its claim is over
	expired bool
}

func (a *activation) who() Who { return Who{a.Host, a.User} }

// Open reads the fences that an earlier execd has left. The claims are known.
func (a *Activations) Open() error {
	now := time.Now()
	a.opened = now
	a.begun, a.seq = strconv.FormatInt(now.UnixNano(), 36), uint64(now.UnixMicro())
	a.known, a.by = map[api.SandboxID]*activation{}, map[Who]*follower{}
	a.spent, a.fences = map[name]uint64{}, map[name]uint64{}
	return a.readFences()
}

// Recover takes over the activations of jobs that are not over, before anything happens to
// them.
func (a *Activations) Recover(jobs []job.Claimed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, j := range jobs {
		if j.Activation == nil {
			continue
		}
		n := newActivation(j.Activation)
		if n == nil {
			a.Log.Error(fmt.Sprintf("job %d: its end is told to nobody: %q is no id of an activation", j.Number, j.Activation.Sandbox))
			continue
		}
		if j.State == job.Over || j.State == job.Ended {
			n.state = api.RunOver
		}
		a.add(n)
		a.become(n, j.Number)
	}
}

// newActivation returns an activation that has no job yet; nil: its id is malformed.
func newActivation(of *api.Activation) *activation {
	claim, counter, err := of.Sandbox.Parse()
	name, ok := nameOf(claim)
	if err != nil || !ok {
		return nil
	}
	return &activation{Activation: *of, claim: claim, name: name, counter: counter, state: api.RunStarting, ready: make(chan struct{})}
}

func (a *Activations) add(n *activation) {
	a.known[n.Sandbox] = n
	a.follower(n.who()).count++
}

func (a *Activations) remove(n *activation) {
	if a.known[n.Sandbox] != n {
		return
	}
	delete(a.known, n.Sandbox)
	a.follower(n.who()).count--
	if n.expiry != nil {
		n.expiry.Stop()
	}
}

func (a *Activations) follower(w Who) *follower {
	f := a.by[w]
	if f == nil {
		f = &follower{changed: make(chan struct{})}
		a.by[w] = f
	}
	return f
}

// Known is an activation that is repeated.
type Known struct {
	Job    int
	Cursor string // empty: not known any more
}

// Enter begins an activation under a claim of the caller's, which Entered ends. If that was
// begun before, it returns its job.
func (a *Activations) Enter(ctx context.Context, of *api.Activation) (*Known, error) {
	n := newActivation(of)
	if n == nil {
		return nil, api.Refusef(api.RefusedMessage, "%q is no id of an activation", api.Short(string(of.Sandbox)))
	}
	for {
		a.mu.Lock()
		was := a.known[of.Sandbox]
		fenced := was == nil && n.counter <= a.spent[n.name] || was != nil && was.who() != n.who()
		if was == nil && !fenced {
			defer a.mu.Unlock()
			if a.follower(n.who()).count >= api.MaxActivations {
				return nil, api.Refusef(api.RefusedTryAgain, "the ends of %d activations are not acknowledged", api.MaxActivations)
			}
			a.add(n)
			return nil, nil
		}
		known := &Known{}
		if was != nil {
			*known = Known{was.job, was.cursor}
		}
		a.mu.Unlock()
		switch {
		case fenced:
			return nil, api.Refusef(api.RefusedFenced, "activation %q was used or given up before, and starts no job", api.Short(string(of.Sandbox)))
		case known.Job != 0:
			return known, nil
		}
		select {
		case <-was.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Entered ends what Enter has begun: the activation has a job; 0: it has none, and its id may
// be used again.
func (a *Activations) Entered(id api.SandboxID, number int, cursor string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch n := a.known[id]; {
	case n == nil: // its end was acknowledged already
	case number != 0:
		a.become(n, number)
		n.cursor = cursor
	case n.job == 0:
		a.remove(n)
		close(n.ready)
	}
}

// become notes the job of an activation.
func (a *Activations) become(n *activation, number int) {
	if n.job != 0 {
		return
	}
	n.job = number
	close(n.ready)
	if !a.Claimed(n.claim) { // then a.spent has it no more
		a.expire(n)
		return
	}
	a.spent[n.name] = max(a.spent[n.name], n.counter)
}

// State returns what is known of an activation; 0: nothing.
func (a *Activations) State(ctx context.Context, w Who, id api.SandboxID) (api.RunState, int, error) {
	for {
		a.mu.Lock()
		n := a.known[id]
		if n == nil || n.who() != w {
			a.mu.Unlock()
			return api.RunUnknown, 0, nil
		}
		state, number := n.state, n.job
		a.mu.Unlock()
		if number != 0 {
			return state, number, nil
		}
		select {
		case <-n.ready:
		case <-ctx.Done():
			return api.RunUnknown, 0, context.Cause(ctx)
		}
	}
}

// ranks are those of the kinds of events: after one of a higher rank, none of a lower one
// above 0 means anything.
var ranks = map[api.ActivationKind]int{api.ActivationOver: 1, api.ActivationFinal: 2, api.ActivationGone: 3}

// states are those after an event.
var states = map[api.ActivationKind]api.RunState{
	api.ActivationStarted: api.RunRunning, api.ActivationSuspended: api.RunSuspended, api.ActivationResumed: api.RunRunning,
	api.ActivationOver: api.RunOver, api.ActivationFinal: api.RunFinal, api.ActivationGone: api.RunGone,
}

// replaces reports whether an event says all that one before it has said.
func replaces(kind, old api.ActivationKind) bool {
	steers := func(k api.ActivationKind) bool { return k == api.ActivationSuspended || k == api.ActivationResumed }
	return kind == old || steers(kind) && steers(old) || kind == api.ActivationGone
}

// Tell notes what has happened to a job.
func (a *Activations) Tell(j *job.Job, e api.ActivationEvent) {
	if j.Activation == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.known[j.Activation.Sandbox]
	if n == nil {
		return
	}
	a.become(n, j.Number) // it may happen before the caller hears of it
	for _, old := range n.events {
		if ranks[old.Kind] > ranks[e.Kind] {
			return // it comes late
		}
	}
	if n.state == api.RunOver && ranks[e.Kind] == 0 {
		return // the end was acknowledged
	}
	if state, ok := states[e.Kind]; ok {
		n.state = state
	}
	if len(e.Ad) > api.MaxUpdate {
		e.Ad = e.Ad[:strings.LastIndexByte(e.Ad[:api.MaxUpdate], '\n')+1]
	}
	a.seq++
	e.Sandbox, e.Seq, e.Job = n.Sandbox, a.seq, j.Number
	n.events = append(slices.DeleteFunc(n.events, func(old api.ActivationEvent) bool { return replaces(e.Kind, old.Kind) }), e)
	if f := a.follower(n.who()); f.awaited {
		close(f.changed)
		f.changed, f.awaited = make(chan struct{}), false
	}
	if n.expired {
		a.drop(n)
	}
}

// Gone notes that a job was never started and does not wait any more.
func (a *Activations) Gone(j *job.Job, reason string) {
	a.Tell(j, api.ActivationEvent{Kind: api.ActivationGone, Time: time.Now(), Reason: reason})
}

// Acknowledged reports whether nobody waits for the end of a job any more. If not, again is
// called when that is so.
func (a *Activations) Acknowledged(j *job.Job, again func()) bool {
	if j.Activation == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.known[j.Activation.Sandbox]
	if n == nil {
		return true
	}
	n.again = again
	return false
}

// drop forgets an activation whose last event was acknowledged, or has waited long enough.
func (a *Activations) drop(n *activation) {
	if n.state != api.RunFinal && n.state != api.RunGone {
		return
	}
	a.remove(n)
	if n.again != nil {
		go n.again() // it takes locks
	}
}

// Over is called when a claim is over. No activation of it will be begun.
func (a *Activations) Over(public string) {
	name, ok := nameOf(public)
	if !ok {
		return
	}
	a.mu.Lock()
	for _, n := range a.known {
		if n.name == name {
			a.expire(n)
		}
	}
	delete(a.spent, name)
	a.mu.Unlock()
	a.unfence(name)
}

// expire has an activation be forgotten after a while if its end is not acknowledged.
func (a *Activations) expire(n *activation) {
	if n.expiry != nil {
		return
	}
	n.expiry = time.AfterFunc(a.Lease(), func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		n.expired = true
		a.drop(n)
	})
}

// Extend has the end of an activation be kept for another lease, whose claim is over.
func (a *Activations) Extend(id api.SandboxID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.known[id]; n != nil && n.expiry != nil {
		n.expired = false
		n.expiry.Reset(a.Lease())
	}
}

// maxReply bounds the events of a reply, in bytes.
const maxReply = 1 << 20

// Look acknowledges events, and returns those that follow the cursor of a request, with a
// channel that is closed when to look again.
func (a *Activations) Look(w Who, r *api.FollowRequest) (api.FollowReply, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	after := a.parse(r.Cursor)
	for _, ack := range r.Acks {
		// Numbers of another execd, or of what was not sent, mean nothing.
		if n := a.known[ack.Sandbox]; n != nil && n.who() == w && ack.Seq <= after {
			a.ack(n, ack.Seq)
		}
	}
	f := a.follower(w)
	f.awaited = true
	reply := api.FollowReply{}
	if f.count > 0 {
		for _, n := range a.known {
			if n.who() != w {
				continue
			}
			for _, e := range n.events {
				if e.Seq > after {
					reply.Events = append(reply.Events, e)
				}
			}
		}
	}
	slices.SortFunc(reply.Events, func(x, y api.ActivationEvent) int { return cmp.Compare(x.Seq, y.Seq) })
	size := 0
	for i := range reply.Events {
		e := &reply.Events[i]
		size += len(e.Ad) + len(e.Reason)
		if e.End != nil {
			size += len(e.End.Reason) + len(e.End.Accounting)
		}
		if i > 0 && (i >= api.MaxEvents || size > maxReply) {
			reply.Events, reply.More = reply.Events[:i:i], true
			break
		}
	}
	last := max(after, a.seq)
	if reply.More {
		last = reply.Events[len(reply.Events)-1].Seq
	}
	reply.Cursor = a.begun + "-" + strconv.FormatUint(last, 10)
	return reply, f.changed
}

// ack acknowledges the events of an activation up to one.
func (a *Activations) ack(n *activation, seq uint64) {
	last := len(n.events) > 0 && ranks[n.events[len(n.events)-1].Kind] > 1
	n.events = slices.DeleteFunc(n.events, func(e api.ActivationEvent) bool { return e.Seq <= seq })
	if last && len(n.events) == 0 {
		a.drop(n)
	}
}

// parse returns the number in a cursor; 0 if it is of another execd, or none at all.
func (a *Activations) parse(cursor string) uint64 {
	begun, text, ok := strings.Cut(cursor, "-")
	seq, err := strconv.ParseUint(text, 10, 64)
	if !ok || begun != a.begun || err != nil || seq > a.seq {
		return 0
	}
	return seq
}
