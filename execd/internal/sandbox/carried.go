package sandbox

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/sandbox/pack"
	"paddock/execd/internal/sandbox/worker"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/user"
)

// Files of a run of another host travel when its execd asks for that: see api.Carriage. Who
// waits for it here are Fetch and Send, and its requests come to them through a gate, one at
// a time. A gate is there from the plan of the sandbox to its end. It is in memory alone:
// after a restart Fetch and Send look what there is, and wait again.

// gates are those of sandboxes whose files another host pushes and pulls.
type gates struct {
	mu   sync.Mutex
	of   map[api.SandboxID]*gate // guarded by mu
	made chan struct{}           // guarded by mu; closed when there is another one; nil: nobody waits
	kept map[string]bool         // guarded by mu; public ids of claims that are being released, and leave their output
	// Guarded by mu: the last that are gone, so that nobody waits for them to be made, and the next
	// of them to be forgotten.
	gone [64]api.SandboxID
	next int
}

// gate is that of one run.
type gate struct {
	task   *job.Task
	id     api.SandboxID
	visits chan *visit
	over   chan struct{} // closed when the sandbox goes
	filled chan struct{} // closed when all that is pushed has come

	// Guarded by gates.mu.
	phase    api.CarriedPhase
	part     api.StagePart
	busy     func()        // ends the stream that is under way; nil: there is none
	told     *visit        // who is to hear that the output is where it belongs
	unwanted *job.Want     // why nobody waits for the output any more; nil: somebody does
	drop     chan struct{} // closed then
	until    time.Time     // of its own lease; zero: that of its claim holds
	timer    *time.Timer   // which ends then
}

// visit is a request of the other host for a gate. It is answered once.
type visit struct {
	push  api.StagePart        // it pushes a part
	ask   bool                 // it asks which part is awaited
	bytes int64                // that it is about to push then; 0: not known
	pull  *api.StageOutRequest // it pulls the output
	done  bool                 // it has all of that
	root  string
	stuck *exit.Permanent // it cannot take it
	via   *worker.Stream  // of push and pull

	reply chan answer // has room for it
}

// answer is that to a visit.
type answer struct {
	part   api.StagePart
	have   string
	result order.Result
	err    error
}

func (v *visit) answer(a answer) { v.reply <- a }

// again refuses what is to be tried again.
func again(format string, args ...any) error {
	return api.Refusef(api.RefusedTryAgain, format, args...)
}

// carriage returns how the files of a run travel; nil: not by another host.
func carriage(t *job.Task) *api.Carriage {
	if a := t.Job.Activation; a != nil {
		return a.Carriage
	}
	return nil
}

// gate returns that of a run, and makes it.
func (m *Manager) gate(t *job.Task) *gate {
	m.gates.mu.Lock()
	defer m.gates.mu.Unlock()
	id := t.Job.Activation.Sandbox
	g := m.gates.of[id]
	if g != nil && g.task == t {
		return g
	}
	if m.gates.of == nil {
		m.gates.of = map[api.SandboxID]*gate{}
	}
	g = &gate{task: t, id: id, visits: make(chan *visit), over: make(chan struct{}), filled: make(chan struct{}), drop: make(chan struct{})}
	m.gates.of[id] = g
	if m.gates.made != nil {
		close(m.gates.made)
		m.gates.made = nil
	}
	return g
}

// shut ends the gate of a sandbox that goes.
func (m *Manager) shut(t *job.Task) {
	if carriage(t) == nil {
		return
	}
	m.gates.mu.Lock()
	defer m.gates.mu.Unlock()
	g := m.gates.of[t.Job.Activation.Sandbox]
	if g == nil || g.task != t {
		return
	}
	delete(m.gates.of, g.id)
	m.gates.gone[m.gates.next] = g.id
	m.gates.next = (m.gates.next + 1) % len(m.gates.gone)
	close(g.over)
	if g.timer != nil {
		g.timer.Stop()
	}
}

// become notes what a gate waits for.
func (m *Manager) become(g *gate, phase api.CarriedPhase, part api.StagePart) {
	m.gates.mu.Lock()
	defer m.gates.mu.Unlock()
	g.phase, g.part = phase, part
}

// Carried returns how the files of an activation stand, but for the transfer, and its run;
// nil: they do not travel, or not any more.
func (m *Manager) Carried(id api.SandboxID) (*api.Carried, *job.Task) {
	m.gates.mu.Lock()
	defer m.gates.mu.Unlock()
	g := m.gates.of[id]
	if g == nil {
		return nil, nil
	}
	c := &api.Carried{Phase: g.phase, Part: g.part}
	if !g.until.IsZero() {
		c.Detached, c.Lease = true, max(int(time.Until(g.until)/time.Second), 0)
	}
	return c, g.task
}

// visitPatience is how long a request waits until somebody is there for it: less than the
// other end waits for a word.
const visitPatience = 45 * time.Second

// drainPatience is how long a stream may go on whose other end asks for something else:
// what of it has come is still to be taken.
const drainPatience = 2 * time.Second

// find returns the gate of an activation, or a channel that is closed when there is another
// one; both are nil if it is known to be gone.
func (m *Manager) find(id api.SandboxID) (*gate, <-chan struct{}) {
	m.gates.mu.Lock()
	defer m.gates.mu.Unlock()
	if g := m.gates.of[id]; g != nil {
		return g, nil
	}
	if slices.Contains(m.gates.gone[:], id) {
		return nil, nil
	}
	if m.gates.made == nil {
		m.gates.made = make(chan struct{})
	}
	return nil, m.gates.made
}

var errGone = api.Refusef(api.RefusedState, "its sandbox is gone")

// visit has a request answered by who waits for it.
func (m *Manager) visit(ctx context.Context, id api.SandboxID, v *visit) (answer, error) {
	v.reply = make(chan answer, 1)
	timer := time.NewTimer(visitPatience)
	defer timer.Stop()
	var drained <-chan time.Time
	if v.ask || v.via != nil {
		drained = time.After(drainPatience)
	}
	for {
		g, made := m.find(id)
		if g == nil && made == nil {
			return answer{}, errGone
		}
		if g == nil {
			select {
			case <-made:
				continue
			case <-timer.C:
				return answer{}, again("it has no sandbox yet")
			case <-ctx.Done():
				return answer{}, context.Cause(ctx)
			}
		}
		var filled <-chan struct{}
		if v.ask {
			filled = g.filled
		}
		select {
		case g.visits <- v:
		case <-drained: // who asks again has given up what is under way
			m.interrupt(g)
			drained = nil
			continue
		case <-filled:
			return answer{}, nil
		case <-g.over:
			return answer{}, errGone
		case <-timer.C:
			return answer{}, again("it is not its turn, or something else is done with its files")
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		}
		if v.via != nil { // which is in use until then
			a := <-v.reply
			return a, a.err
		}
		select {
		case a := <-v.reply:
			return a, a.err
		case <-g.over: // it may have been answered before
			select {
			case a := <-v.reply:
				return a, a.err
			default:
				return answer{}, errGone
			}
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		}
	}
}

// interrupt ends the stream that is under way.
func (m *Manager) interrupt(g *gate) {
	m.gates.mu.Lock()
	defer m.gates.mu.Unlock()
	if g.busy != nil {
		g.busy()
	}
}

// use notes by what the stream is ended that is under way, until done is called.
func (m *Manager) use(g *gate, via *worker.Stream) (done func()) {
	set := func(stop func()) {
		m.gates.mu.Lock()
		defer m.gates.mu.Unlock()
		g.busy = stop
	}
	set(via.Stop)
	return func() { set(nil) }
}

// AskPart returns which part of its input an activation waits for, and what there is of it.
// The other host is about to push so many bytes; 0: it does not know.
func (m *Manager) AskPart(ctx context.Context, id api.SandboxID, bytes int64) (api.StagePart, string, error) {
	a, err := m.visit(ctx, id, &visit{ask: true, bytes: bytes})
	return a.part, a.have, err
}

// Push has a part of the input put into the sandbox of an activation. Stop has a call of from
// return soon.
func (m *Manager) Push(ctx context.Context, id api.SandboxID, part api.StagePart, from io.Reader, stop func()) (api.StageInReply, error) {
	a, err := m.visit(ctx, id, &visit{push: part, via: &worker.Stream{From: from, Stop: stop}})
	r := &a.result
	return api.StageInReply{Root: r.Root, Bytes: r.Bytes, Files: r.Files, Left: leftOut(r)}, err
}

// Pull has the output of an activation sent as a request says. Stop has a call of to return soon.
func (m *Manager) Pull(ctx context.Context, r *api.StageOutRequest, to io.Writer, stop func()) error {
	if _, err := pack.ParseHave(r.Have); err != nil {
		return api.Refusef(api.RefusedMessage, "%v", err)
	}
	if err := m.unstick(r.Sandbox); err != nil {
		return err
	}
	_, err := m.visit(ctx, r.Sandbox, &visit{pull: r, via: &worker.Stream{To: to, Stop: stop}})
	return err
}

// Delivered notes that the output of an activation is where it belongs, and returns when
// that is on disk.
func (m *Manager) Delivered(ctx context.Context, id api.SandboxID, root string) error {
	if err := m.unstick(id); err != nil {
		return err
	}
	_, err := m.visit(ctx, id, &visit{done: true, root: root})
	return err
}

// Undeliverable notes that the other host cannot take the output before somebody has looked.
func (m *Manager) Undeliverable(ctx context.Context, id api.SandboxID, errno int, text string) error {
	if g, _ := m.find(id); g != nil && m.Store.Stuck(g.task) != nil {
		return nil
	}
	_, err := m.visit(ctx, id, &visit{stuck: &exit.Permanent{Errno: errno, Err: errors.New(text)}})
	return err
}

// unstick has output that was stuck wait for the other host again, which has looked.
func (m *Manager) unstick(id api.SandboxID) error {
	g, _ := m.find(id)
	if g == nil || m.Store.Stuck(g.task) == nil {
		return nil
	}
	if err := m.Store.Unstick(g.task); err != nil {
		return err
	}
	m.Wake(g.task)
	return nil
}

// Drop notes that nobody wants the output of an activation any more.
func (m *Manager) Drop(id api.SandboxID, why string) {
	m.gates.mu.Lock()
	defer m.gates.mu.Unlock()
	if g := m.gates.of[id]; g != nil {
		m.dropOne(g, why)
	}
}

// dropOne is Drop. m.gates.mu is held.
func (m *Manager) dropOne(g *gate, why string) {
	if g.unwanted != nil {
		return
	}
	g.unwanted = &job.Want{Signal: int(unix.SIGKILL), Cause: why}
	close(g.drop)
	t := g.task
	m.Later(0, func() { // what is stuck waits for nobody
		if m.Store.Stuck(t) == nil {
			return
		}
		if _, err := m.Store.GiveUp(t, *g.unwanted); err != nil {
			m.Log.Error(fmt.Sprintf("job %v: %v", t, err))
		}
		m.Wake(t)
	})
}

// Keep has the output of a claim be kept that is about to be released.
func (m *Manager) Keep(claim string) {
	m.gates.mu.Lock()
	defer m.gates.mu.Unlock()
	if m.gates.kept == nil {
		m.gates.kept = map[string]bool{}
	}
	m.gates.kept[claim] = true
}

// ClaimOver is told that a claim is over. If its holder has released it, or has not renewed
// its lease, nobody waits for its output, unless he wants to keep that; in all other cases it
// is kept for the time of a lease of its own.
func (m *Manager) ClaimOver(claim string, released, expired bool) {
	m.gates.mu.Lock()
	defer m.gates.mu.Unlock()
	keep := m.gates.kept[claim]
	delete(m.gates.kept, claim)
	for _, g := range m.gates.of {
		switch {
		case g.task.Start.Claim != claim:
		case expired:
			m.dropOne(g, "the lease of its claim is over")
		case released && !keep:
			m.dropOne(g, "its claim was released")
		default:
			m.detach(g)
		}
	}
}

// detach gives a gate a lease of its own. m.gates.mu is held.
func (m *Manager) detach(g *gate) {
	lease := m.Lease()
	g.until = time.Now().Add(lease)
	if g.timer != nil {
		g.timer.Reset(lease)
		return
	}
	g.timer = time.AfterFunc(lease, func() {
		m.gates.mu.Lock()
		defer m.gates.mu.Unlock()
		if !time.Now().Before(g.until) { // it was renewed just now
			m.dropOne(g, "its lease is over")
		}
	})
}

// RenewOutput renews the lease of output that is detached, and returns its length; false:
// there is none.
func (m *Manager) RenewOutput(id api.SandboxID) (time.Duration, bool) {
	m.gates.mu.Lock()
	defer m.gates.mu.Unlock()
	g := m.gates.of[id]
	if g == nil || g.until.IsZero() || g.unwanted != nil {
		return 0, false
	}
	m.detach(g)
	return m.Lease(), true
}

// receiveAll has all come that the other host pushes, and what is brought from elsewhere.
func (m *Manager) receiveAll(ctx context.Context, t *job.Task, r *api.SubmitRequest, owner *user.User, report func(order.Progress)) error {
	g, c, p := m.gate(t), carriage(t), launch.PathsOf(t, r, owner, m.Host)
	if err := m.makeSay(t.Start.Sandbox, owner); err != nil {
		return err
	}
	defer m.become(g, api.CarriedNone, api.PartNone)
	receive := func(is bool, part api.StagePart, note bool) error {
		if !is {
			return nil
		}
		o := m.orders(t, owner, p, knobMaxInput)
		o.Unpack = &order.Unpack{Part: string(part), Note: note}
		return m.receive(ctx, g, owner, o, part, report)
	}
	if err := receive(c.Input, api.PartInput, true); err != nil {
		return err
	}
	o := m.orders(t, owner, p, knobMaxInput)
	for i := range r.StageIn {
		s := &r.StageIn[i]
		if _, plain := api.PlainPlace(string(s.Place)); !plain {
			o.Bring = append(o.Bring, order.Named{From: placeOf(p, string(s.Place)), To: filepath.Clean(s.InSandbox())})
		}
	}
	if len(o.Bring) > 0 {
		err := m.addPlugins(ctx, o, t, r, owner, true)
		if err == nil {
			err = m.carry(ctx, &m.Throttle.down, owner, t, o, report)
		}
		if err != nil {
			return err
		}
	}
	if err := receive(c.Spool, api.PartSpool, false); err != nil {
		return err
	}
	select {
	case <-g.filled:
	default:
		close(g.filled)
	}
	return nil
}

// receive has a part come. A connection that breaks is no failure of it: the other host
// comes again.
func (m *Manager) receive(ctx context.Context, g *gate, owner *user.User, o *order.Orders, part api.StagePart, report func(order.Progress)) error {
	var leave func() // its turn; nil: it has none
	defer func() {
		if leave != nil {
			leave()
		}
	}()
	m.become(g, api.CarriedInput, part)
	large := false
	for {
		look := *o
		look.Unpack = &order.Unpack{Part: o.Unpack.Part, Note: o.Unpack.Note, Look: true}
		r, err := m.inTurn(ctx, &m.Throttle.brief, owner, g.task, &look, nil, func(order.Progress) {})
		if err != nil || r.Root != "" {
			return err
		}
		turn := func() error {
			if leave == nil && large {
				leave, err = m.Throttle.down.take(ctx, owner.UID, func() { report(order.Progress{Queued: true}) })
			}
			return err
		}
		for pushed := false; !pushed; {
			if err := turn(); err != nil {
				return err
			}
			report(order.Progress{Idle: true})
			v, err := m.await(ctx, g, leave != nil)
			switch {
			case err != nil:
				return err
			case v == nil: // the turn was not used
				leave()
				leave, large = nil, false
			case v.ask:
				large = large || v.bytes > order.Brief
				if err := turn(); err != nil {
					v.answer(answer{err: again("%v", err)})
					return err
				}
				v.answer(answer{part: part, have: r.Have})
			case v.push != part:
				v.answer(answer{err: again("what is awaited is %q", part)})
			default:
				if pushed = leave != nil || !m.isLarge(ctx, g, v.via); !pushed {
					large = true
					v.answer(answer{err: again("it waits for its turn")})
				} else if done, err := m.receiveOnce(ctx, g, owner, o, v, leave != nil, report); done || err != nil {
					return err
				}
			}
		}
	}
}

// isLarge reports whether a stream is to bring so much that it needs a turn, as its sender
// says.
func (m *Manager) isLarge(ctx context.Context, g *gate, via *worker.Stream) bool {
	defer m.use(g, via)()
	defer context.AfterFunc(ctx, via.Stop)()
	in := bufio.NewReaderSize(via.From, peeked)
	via.From = in
	return saysLarge(in)
}

// saysLarge is isLarge of a stream that has begun.
func saysLarge(in *bufio.Reader) bool {
	const at = len(pack.Magic) + 4 + 8 // behind the head of the first record, and the number of items
	b, err := in.Peek(at + 8)
	return err == nil && pack.Type(b[len(pack.Magic)]) == pack.Begin && binary.BigEndian.Uint64(b[at:]) > order.Brief
}

// peeked is how much of a stream is looked at before it is taken.
const peeked = 64

// receiveOnce has a part come by one request, and reports whether it has.
func (m *Manager) receiveOnce(ctx context.Context, g *gate, owner *user.User, o *order.Orders, v *visit, turn bool, report func(order.Progress)) (bool, error) {
	defer m.use(g, v.via)()
	one := *o
	one.Turn = turn
	report(order.Progress{})
	r, err := m.Worker.Copy(ctx, owner, g.task.Start.Sandbox.Dir, &one, v.via, report)
	_, permanent := errors.AsType[*exit.Permanent](err)
	switch {
	case err == nil:
		report(order.Progress{Bytes: r.Bytes, Total: r.Bytes, Files: r.Files, Left: leftOut(&r)})
		v.answer(answer{result: r})
		return true, nil
	case permanent:
		v.answer(answer{err: api.Refusef(api.RefusedRequirements, "%v", err)})
		return false, err
	case ctx.Err() != nil:
		v.answer(answer{err: again("%v", context.Cause(ctx))})
		return false, err
	}
	report(order.Progress{Lost: err})
	v.answer(answer{err: again("%v", err)})
	return false, nil
}

// await waits for a request of the other host; nil: with a turn, it was not used in time.
func (m *Manager) await(ctx context.Context, g *gate, turn bool) (*visit, error) {
	var late <-chan time.Time
	if turn {
		timer := time.NewTimer(api.StageTurn * time.Second)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case v := <-g.visits:
			if v.ask || v.push != "" {
				return v, nil
			}
			v.answer(answer{err: again("its job has not run yet")})
		case <-late:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// deliver has the other host pull what a run has left, as often as it likes, until it says
// that all is there.
func (m *Manager) deliver(ctx context.Context, t *job.Task, report func(order.Progress)) error {
	g := m.gate(t)
	root := ""
	m.become(g, api.CarriedOutput, api.PartNone)
	for {
		report(order.Progress{Idle: true, Total: m.out.size(t.Start.Sandbox.Dir)})
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-g.drop:
			if err := m.Store.DropOutput(t, *g.unwanted); err != nil {
				return err
			}
			return &exit.Cancelled{Err: errors.New(g.unwanted.Cause)}
		case v := <-g.visits:
			switch {
			case v.pull != nil:
				r, err := m.pull(ctx, g, v, report)
				if err != nil {
					return err
				}
				if r.Root != "" {
					root = r.Root
					m.become(g, api.CarriedSent, api.PartNone)
				}
			case v.done && root != "" && v.root != root:
				v.answer(answer{err: api.Refusef(api.RefusedState, "the root of what was sent is %s", root)})
			case v.done:
				m.gates.mu.Lock()
				g.told = v
				m.gates.mu.Unlock()
				return nil
			case v.stuck != nil:
				m.become(g, api.CarriedStuck, api.PartNone)
				v.answer(answer{})
				return &exit.Permanent{Errno: v.stuck.Errno, Err: fmt.Errorf("%s: %w", t.Job.Activation.Host, v.stuck.Err)}
			default:
				v.answer(answer{err: again("its job is over")})
			}
		}
	}
}

// pull sends the output once. The error is one for which the other host waits in vain.
func (m *Manager) pull(ctx context.Context, g *gate, v *visit, report func(order.Progress)) (r order.Result, err error) {
	t := g.task
	defer m.use(g, v.via)()
	defer func() {
		if a := (answer{err: err}); err == nil {
			v.answer(a)
		} else {
			a.err = again("%v", err)
			v.answer(a)
		}
	}()
	o, owner, err := m.output(ctx, t)
	if err != nil {
		return r, err
	}
	o.Pack = &order.Pack{Have: v.pull.Have, Zstd: v.pull.Zstd, Out: api.NameStdout, Err: api.NameStderr}
	r, err = m.carryBy(ctx, &m.Throttle.up, owner, t, o, v.via, func(p order.Progress) {
		m.measured(t, p)
		report(p)
	})
	if _, permanent := errors.AsType[*exit.Permanent](err); err == nil || permanent || ctx.Err() != nil {
		return r, err
	}
	report(order.Progress{Lost: err})
	return order.Result{}, nil
}

// heard tells the other host that the output of a run is known to be where it belongs.
func (m *Manager) heard(t *job.Task) {
	if carriage(t) == nil {
		return
	}
	m.gates.mu.Lock()
	defer m.gates.mu.Unlock()
	if g := m.gates.of[t.Job.Activation.Sandbox]; g != nil && g.told != nil {
		g.told.answer(answer{})
		g.told = nil
	}
}
