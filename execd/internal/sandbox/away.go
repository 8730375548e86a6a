package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/sandbox/worker"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/user"
)

// A run on another host that does not share the files of this one has a sandbox there, and
// one here in which no job works. What is pushed is packed from where it lies. What is pulled
// comes into a directory below its destination, or into the sandbox here if that is a URL, the
// next run is to go on with it, or only what was written to standard streams is wanted of it.
// From there it is output like that of a run on this host.

// partOutput names what is pulled for the worker.
const partOutput = "output"

// away returns what a transfer of a run on another host is made from, and what has its
// sandbox here.
func (m *Manager) away(t *job.Task, limit string) (*order.Orders, *api.SubmitRequest, *user.User, launch.Paths, error) {
	r, owner, err := m.about(t)
	if err != nil {
		return nil, nil, nil, launch.Paths{}, err
	}
	if err := m.make(t.Start.Sandbox, owner); err != nil {
		return nil, nil, nil, launch.Paths{}, err
	}
	p := launch.PathsOf(t, r, owner, t.On(m.Host))
	return m.orders(t, owner, p, limit), r, owner, p, nil
}

// PushAway writes a part of what another host needs for a run there, behind what it has. Stop has
// a write return soon. With zstd it is compressed.
func (m *Manager) PushAway(ctx context.Context, t *job.Task, part api.StagePart, have string, zstd bool, to io.Writer, stop func(), report func(order.Progress)) error {
	o, r, owner, p, err := m.away(t, knobMaxInput)
	if err != nil {
		return err
	}
	box := t.Start.Sandbox
	o.Pack = &order.Pack{Have: have, Zstd: zstd}
	switch {
	case part == api.PartInput:
		o.Bring = pushes(r, p)
	case part == api.PartSpool && t.Kept != nil:
		box, o.Send = t.Kept, &order.Send{Select: order.All}
		o.ID = idOf(box)
	default:
		return &exit.Permanent{Errno: int(unix.EINVAL), Err: fmt.Errorf("there is no part %q to be pushed", part)}
	}
	_, err = m.carryIn(ctx, &m.Throttle.up, owner, box, o, &worker.Stream{To: to, Stop: stop}, report)
	return err
}

// pushes returns what is pushed before a job starts.
func pushes(r *api.SubmitRequest, p launch.Paths) (list []order.Named) {
	for i := range r.StageIn {
		s := &r.StageIn[i]
		if place := placeOf(p, string(s.Place)); order.Scheme(place) == "" {
			list = append(list, order.Named{From: place, To: filepath.Clean(s.InSandbox())})
		}
	}
	if path := p.Stdin(r); path != "" {
		list = append(list, order.Named{From: path, To: api.NameStdin})
	}
	return list
}

// Pushes reports whether anything is pushed before a job starts.
func (m *Manager) Pushes(t *job.Task, r *api.SubmitRequest) bool {
	return len(pushes(r, launch.PathsOf(t, r, &user.User{}, t.On(m.Host)))) > 0
}

// PullAway has come what a run on another host has left, and returns the root of it. Open has the
// other host send it, behind what there is.
func (m *Manager) PullAway(ctx context.Context, t *job.Task, open func(ctx context.Context, have string, read func(io.Reader) error) error, report func(order.Progress)) (root string, err error) {
	o, r, owner, p, err := m.away(t, knobMaxOutput)
	if err != nil {
		return "", err
	}
	o.Beside = besides(t, sends(r, owner, p))
	look := *o
	look.Unpack = &order.Unpack{Part: partOutput, Look: true}
	quiet := func(order.Progress) {}
	there, err := m.inBox(ctx, &m.Throttle.brief, owner, t.Start.Sandbox, &look, nil, quiet)
	if err != nil || there.Root != "" {
		report(order.Progress{Bytes: there.Bytes, Total: there.Bytes, Files: there.Files})
		return there.Root, err
	}
	if t.End.Carries == job.CarriesAll && there.Have == "" {
		if err := m.refill(ctx, t, owner, r, p, quiet); err != nil {
			return "", err
		}
	}
	o.Unpack = &order.Unpack{Part: partOutput}
	for {
		result, large, err := m.pullOnce(ctx, owner, t.Start.Sandbox, o, there.Have, open, report)
		if large {
			o.Turn = true
			continue
		}
		if err == nil {
			report(order.Progress{Bytes: result.Bytes, Total: result.Bytes, Files: result.Files, Left: leftOut(&result)})
		}
		return result.Root, err
	}
}

// pullOnce has it come by one stream, or reports that so much needs a turn.
func (m *Manager) pullOnce(ctx context.Context, owner *user.User, box *job.Sandbox, o *order.Orders, have string, open func(context.Context, string, func(io.Reader) error) error, report func(order.Progress)) (result order.Result, large bool, err error) {
	done, err := m.turnOf(ctx, owner, o, report)
	if err != nil {
		return result, false, err
	}
	defer done()
	if err := m.makeSay(box, owner); err != nil {
		return result, false, err
	}
	streaming, cut := context.WithCancel(ctx)
	defer cut()
	err = open(streaming, have, func(from io.Reader) error {
		in := bufio.NewReaderSize(from, peeked)
		if large = !o.Turn && saysLarge(in); large {
			return errors.New("it needs a turn")
		}
		var err error
		result, err = m.Worker.Copy(ctx, owner, box.Dir, o, &worker.Stream{From: in, Stop: cut}, report)
		return err
	})
	return result, large, err
}

// turnOf takes a turn for what is pulled, of which it is not known how much it is: that for much if
// one is free.
func (m *Manager) turnOf(ctx context.Context, owner *user.User, o *order.Orders, report func(order.Progress)) (done func(), err error) {
	waits := func() { report(order.Progress{Queued: true}) }
	if o.Turn {
		return m.Throttle.down.take(ctx, owner.UID, waits)
	}
	now, cancel := context.WithCancel(ctx)
	cancel()
	if done, err = m.Throttle.down.take(now, owner.UID, func() {}); err == nil {
		o.Turn = true
		return done, nil
	}
	return m.Throttle.brief.take(ctx, owner.UID, waits)
}

// refill brings into the sandbox here what the run before had been brought there.
func (m *Manager) refill(ctx context.Context, t *job.Task, owner *user.User, r *api.SubmitRequest, p launch.Paths, report func(order.Progress)) error {
	o := m.orders(t, owner, p, knobMaxInput)
	for i := range r.StageIn {
		s := &r.StageIn[i]
		o.Bring = append(o.Bring, order.Named{From: placeOf(p, string(s.Place)), To: filepath.Clean(s.InSandbox())})
	}
	if len(o.Bring) == 0 {
		return nil
	}
	if err := m.addPlugins(ctx, o, t, r, owner, true); err != nil {
		return err
	}
	return m.carry(ctx, &m.Throttle.down, owner, t, o, report)
}

// besides returns the directory below which what is pulled lies before it is where it belongs;
// empty: it lies in the sandbox here.
func besides(t *job.Task, s *order.Send) string {
	if t.End.Carries != job.CarriesOutput || order.Scheme(s.To) != "" {
		return ""
	}
	return s.To
}

// LandAway takes what was pulled to where it belongs.
func (m *Manager) LandAway(ctx context.Context, t *job.Task, report func(order.Progress)) error {
	o, owner, err := m.landing(ctx, t)
	if err != nil {
		return err
	}
	_, err = m.carryIn(ctx, &m.Throttle.up, owner, t.Start.Sandbox, o, nil, report)
	return err
}

// landing returns the orders for that.
func (m *Manager) landing(ctx context.Context, t *job.Task) (*order.Orders, *user.User, error) {
	o, r, owner, p, err := m.away(t, knobMaxOutput)
	if err != nil {
		return nil, nil, err
	}
	if o.Send = sends(r, owner, p); t.End.Carries != job.CarriesOutput {
		// It is not the output of this sandbox, which the next run may have.
		o.ID, o.Send = otherID(o.ID), &order.Send{Select: order.Listed}
	} else {
		o.Beside = besides(t, o.Send)
		if err := m.addPlugins(ctx, o, t, r, owner, false); err != nil {
			return nil, nil, err
		}
	}
	streams := launch.StreamsOf(t.Job.Number, r, owner)
	to := streams.Output(t.On(m.Host), t.Number)
	o.Send.Append = []order.Append{{From: api.NameStdout, To: string(to.Stdout.Path), Name: string(to.Stdout.Name)}}
	if !r.Merge {
		o.Send.Append = append(o.Send.Append, order.Append{From: api.NameStderr, To: string(to.Stderr.Path), Name: string(to.Stderr.Name)})
	}
	return o, owner, nil
}

// otherID returns another id than a sandbox has.
func otherID(id string) string {
	last := byte('0')
	if id[len(id)-1] == last {
		last = '1'
	}
	return id[:len(id)-1] + string(last)
}

// DiscardAway removes what was pulled and is not where it belongs, since nobody wants it any
// more.
func (m *Manager) DiscardAway(ctx context.Context, t *job.Task) error {
	o, owner, err := m.landing(ctx, t)
	if err != nil {
		return err
	}
	o.Discard = true
	_, err = m.inBox(ctx, &m.Throttle.brief, owner, t.Start.Sandbox, o, nil, func(order.Progress) {})
	return err
}
