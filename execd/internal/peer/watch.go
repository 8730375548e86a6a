package peer

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/internal/backoff"
)

// Watch knows how the hosts are that execute. It has a request under way at each, which
// is answered when slots change there, or each minute.
type Watch struct {
	Keeper  *Keeper
	Clients *Clients
	Log     *slog.Logger
	// Changed is told of a host that has become another: it is up or down, or has other slots.
	Changed func(name string)

	mu    sync.Mutex
	hosts map[string]*api.PeerStatus // guarded by mu; by name
}

// silence is after what time without an answer a host is down, greeting how long it has
// for the first, and pace how soon after an answer it is asked again.
const (
	silence  = 3 * time.Minute
	greeting = 20 * time.Second
	pace     = 100 * time.Millisecond
)

// maxError bounds what is shown of an error that another host may have written.
const maxError = 200

// retry is how long a host is left alone that is down.
var retry = backoff.Doubling{First: time.Second, Most: 30 * time.Second}

// Run watches until ctx is done.
func (w *Watch) Run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := w.Keeper.Changed()
		list := w.Keeper.Current().Executors()
		w.enter(list)
		round, stop := context.WithCancel(ctx)
		var group sync.WaitGroup
		for _, p := range list {
			group.Go(func() { w.follow(round, p.Name, w.Clients.Of(p.Name, "")) })
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
		stop()
		group.Wait()
		w.Clients.Forget() // they were made by what was in force
	}
}

// enter makes the list of hosts that are watched. What is known of them stays.
func (w *Watch) enter(list []Peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.hosts
	w.hosts = map[string]*api.PeerStatus{}
	for _, p := range list {
		s := old[p.Name]
		if s == nil || s.Address != p.Address {
			s = &api.PeerStatus{Name: p.Name, Address: p.Address, State: api.PeerUnknown, Since: time.Now()}
		}
		s.Zstd = p.Zstd
		w.hosts[p.Name] = s
	}
}

// Status returns how the hosts are, by name.
func (w *Watch) Status() []api.PeerStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []api.PeerStatus{}
	for _, s := range w.hosts {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b api.PeerStatus) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// follow asks one host again and again until ctx is done.
func (w *Watch) follow(ctx context.Context, name string, c *api.Client) {
	for pause := time.Duration(0); ctx.Err() == nil; {
		up, err := w.ask(ctx, name, c)
		if ctx.Err() != nil {
			return
		}
		w.down(name, err)
		w.Changed(name)
		if up {
			pause = 0
		}
		pause = retry.Next(pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// ask follows the slots of a host for as long as it answers, and reports whether it did.
func (w *Watch) ask(ctx context.Context, name string, c *api.Client) (up bool, err error) {
	var hello api.HelloReply
	if err := call(ctx, greeting, c, api.VerbHello, &api.HelloRequest{}, &hello); err != nil {
		return false, err
	}
	hello.Host, hello.Version, hello.Arch = api.Short(hello.Host), api.Short(hello.Version), api.Short(hello.Arch) // they are kept, and shown
	for since := ""; ; up = true {
		var reply api.SlotsReply
		if err := call(ctx, silence, c, api.VerbSlots, &api.SlotsRequest{Since: since}, &reply); err != nil {
			return up, err
		}
		w.up(name, &hello, &reply)
		w.Changed(name)
		since = reply.Version
		select {
		case <-time.After(pace):
		case <-ctx.Done():
		}
	}
}

// call is Client.Call with a limit of time.
func call(ctx context.Context, limit time.Duration, c *api.Client, verb string, request, reply any) error {
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer for %v", limit))
	defer cancel()
	err := c.Call(limited, verb, request, reply)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return context.Cause(limited)
	}
	return err
}

// up notes an answer of a host.
func (w *Watch) up(name string, hello *api.HelloReply, reply *api.SlotsReply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.hosts[name]
	s.Version, s.Arch, s.Until, s.Draining = hello.Version, hello.Arch, w.Clients.until(name), reply.Drain
	s.Queues, s.Revision = queuesOf(reply), reply.Revision
	s.Slots, s.Free = 0, 0
	for i := range reply.Slots {
		s.Slots += reply.Slots[i].Size()
		s.Free += reply.Slots[i].Free()
	}
	if s.State != api.PeerUp {
		s.State, s.Since, s.Error = api.PeerUp, time.Now(), ""
		w.Log.Info(fmt.Sprintf("execd: host %s is up: address=%s hostname=%s version=%s slots=%d", name, s.Address, api.Visible(hello.Host), api.Visible(hello.Version), s.Slots))
	}
}

// down notes why a host did not answer.
func (w *Watch) down(name string, err error) {
	text := strings.TrimPrefix(err.Error(), fmt.Sprintf("cannot reach execd at %s: ", name))
	text = text[:min(len(text), maxError)]
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.hosts[name]
	if s.State != api.PeerDown {
		s.State, s.Since = api.PeerDown, time.Now()
	} else if s.Error == text {
		return
	}
	s.Error = text
	w.Log.Warn(fmt.Sprintf("execd: host %s is down: %s", name, api.Visible(text)))
}
