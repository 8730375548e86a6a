package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/fair"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/peer"
	"paddock/execd/internal/source"
	"paddock/execd/internal/user"
)

// These bound what a host may have us do: the head of a request, the time without one on
// a connection, and requests at once.
const (
	maxPeerHeader  = 64 << 10
	peerIdle       = time.Minute
	maxPeerAnswers = 16
	maxPeersAtOnce = 256 // of all hosts together
	maxPeerLookups = 4   // of names of users, each of which may start programs
	maxLookups     = 16
)

// newPeerAdmission bounds the requests of hosts that are answered at the same time. Those
// that wait for an event are not counted: connections are.
func newPeerAdmission() *admission {
	return &admission{
		submits: fair.Gate{Total: maxPeersAtOnce, PerUser: maxPeerAnswers},
		answers: fair.Gate{Total: maxPeersAtOnce, PerUser: maxPeerAnswers},
		bodies:  fair.Gate{Total: maxBodies, PerUser: maxUserBodies},
		replies: fair.Gate{Total: maxReplies, PerUser: maxUserReplies},
	}
}

// ServePeers answers other hosts until ctx is done, and then finishes requests under way.
// Open was called.
func (s *Server) ServePeers(ctx context.Context, l *peer.Listener) error {
	h := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serveOne(w, r, l.Refused) }),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: peerIdle, MaxHeaderBytes: maxPeerHeader,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, c.(*peer.Conn))
		},
	}
	return serveUntil(ctx, h, l)
}

// keyOf returns what stands for a host where users are counted by uid: a number that no
// user has.
func keyOf(host string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(host))
	return -2 - int(h.Sum32())
}

// peerCaller identifies the user for whom a host asks, or the host itself.
func (s *Server) peerCaller(r *http.Request, c *peer.Conn) (job.Caller, error) {
	p, err := s.Peers.Submitter(c)
	if err != nil {
		return job.Caller{}, err
	}
	name := r.Header.Get(peer.HeaderUser)
	if name == "" {
		return job.Caller{UID: -1, GID: -1, Host: p.Name}, nil
	}
	local, ok := p.Local(name)
	if !ok {
		return job.Caller{}, api.Errorf(api.CodeDenied, "denied: user %.60q of %s may have no work here", name, p.Name)
	}
	leave, err := s.lookups.Enter(r.Context(), keyOf(p.Name), 1)
	if err != nil {
		return job.Caller{}, err
	}
	u, err := s.remoteOwner(r.Context(), local)
	leave()
	switch {
	case errors.Is(err, user.ErrUnknown):
		return job.Caller{}, api.Errorf(api.CodeDenied, "denied: user %.60q of %s is not known on this host", name, p.Name)
	case err != nil:
		return job.Caller{}, err
	}
	return job.Caller{UID: u.UID, GID: u.GID, Name: u.Name, Host: p.Name}, nil
}

// remoteOwner returns the user as whom work of another host runs, by his name here. In
// user mode all work is that of execd's own user.
func (s *Server) remoteOwner(ctx context.Context, name string) (*user.User, error) {
	switch {
	case s.OwnerOnly == 0:
		return nil, api.Errorf(api.CodeDenied, "denied: this execd runs work as root alone, and work of other hosts never is")
	case s.OwnerOnly > 0:
		u, err := s.Users.ByID(ctx, s.OwnerOnly)
		if err == nil {
			err = source.MayRemote(u.Name, s.Config().Knobs)
		}
		return u, err
	}
	c := s.Config()
	return source.RemoteOwner(ctx, s.Users, name, c.Knobs, c.Global.MinUID)
}

// hello answers what this host is.
func (s *Server) hello(context.Context, job.Caller, *api.HelloRequest) (api.HelloReply, error) {
	return api.HelloReply{Host: s.Host, Version: s.Version, Arch: launch.Arch()}, nil
}

// peers answers which hosts may run work of this one.
func (s *Server) peers(context.Context, job.Caller, *api.PeersRequest) (api.PeersReply, error) {
	return api.PeersReply{Self: s.Peers.Current().Member(), Peers: s.Watch.Status()}, nil
}

// relay has a request answered by another host, for the caller.
func relay(host, name string, may who) handleFunc {
	return func(s *Server, ctx context.Context, c job.Caller, in *incoming) (any, error) {
		p, err := s.Peers.Current().Executor(host)
		if err != nil {
			return nil, err
		}
		var request json.RawMessage
		if err := in.decode(ctx, &request); err != nil {
			return nil, err
		}
		as := ""
		if may&^peers != anyone {
			if err := s.mayRelay(c); err != nil {
				return nil, err
			}
			as = c.Name
		}
		if name == api.VerbActivate && namesHome(request) {
			return nil, api.Errorf(api.CodeDenied, "denied: only execd says whose job of this host an activation is")
		}
		to := s.relays.of(p.Name)
		leave, err := to.requests.Enter(ctx, c.UID, 1)
		if err != nil {
			return nil, err
		}
		defer leave()
		hold := func(ctx context.Context, size int) (err error) {
			if giveBack(&in.dropReply); size > smallReply {
				in.dropReply, err = to.answers.Enter(ctx, c.UID, size)
			}
			return err
		}
		var reply json.RawMessage
		err = s.Hosts.OfHolding(p.Name, as, hold).Call(ctx, name, request, &reply)
		if errors.Is(err, api.ErrUnreachable) {
			return nil, api.Errorf(api.CodeAway, "%v", err)
		}
		return reply, err
	}
}

// namesHome reports whether the request for an activation has numbers of a job.
func namesHome(request json.RawMessage) bool {
	var r struct {
		Home json.RawMessage `json:"home"`
	}
	return json.Unmarshal(request, &r) != nil || len(r.Home) > 0
}

// These bound the requests of users under way at one host, also those that wait there for
// an event: execd's own need connections, too. Of its answers so many bytes are in memory.
const (
	maxRelays      = 192
	maxUserRelays  = 64
	maxRelayed     = 32 << 20
	maxUserRelayed = 16 << 20
)

// relays has the gates of each host that is asked for users.
type relays struct {
	mu    sync.Mutex
	gates map[string]*relayed // guarded by mu; by name
}

// relayed is what of a host is under way for users: requests, and bytes of answers.
type relayed struct{ requests, answers fair.Gate }

// of returns the gates of a host, by its name in the file peers: users may write it in many ways.
func (r *relays) of(host string) *relayed {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gates == nil {
		r.gates = map[string]*relayed{}
	}
	if r.gates[host] == nil {
		r.gates[host] = &relayed{
			requests: fair.Gate{Total: maxRelays, PerUser: maxUserRelays},
			answers:  fair.Gate{Total: maxRelayed, PerUser: maxUserRelayed},
		}
	}
	return r.gates[host]
}

// mayRelay refuses callers for whom other hosts are not asked.
func (s *Server) mayRelay(c job.Caller) error {
	if c.Unsure || c.Name == "" {
		return api.Errorf(api.CodeDenied, "denied: the name of user %d is not known for certain now", c.UID)
	}
	return s.Programs.MayClaim(c)
}

// elsewhere divides a path that names another host.
func elsewhere(path string) (host, verb string, ok bool) {
	rest, ok := strings.CutPrefix(path, api.OnHost+"/")
	if !ok {
		return "", path, false
	}
	host, verb, ok = strings.Cut(rest, "/")
	return host, verb, ok
}

// renewedAtOnce is how many leases of a request are written at the same time.
const renewedAtOnce = 16

// renewAll renews leases. Each claim and each sandbox has an answer of its own.
func (s *Server) renewAll(ctx context.Context, c job.Caller, req *api.RenewAllRequest) (api.RenewAllReply, error) {
	if n := len(req.IDs) + len(req.Sandboxes); n > api.MaxWords {
		return api.RenewAllReply{}, api.Refusef(api.RefusedMessage, "%d claims are too many, at most %d are possible", n, api.MaxWords)
	}
	reply := api.RenewAllReply{Claims: make([]api.Renewed, len(req.IDs)), Sandboxes: make([]api.RenewedSandbox, len(req.Sandboxes))}
	for i := range req.Sandboxes {
		lease, err := activations{s}.renew(ctx, c, &req.Sandboxes[i])
		if reply.Sandboxes[i].Lease = int(lease / time.Second); err != nil {
			reply.Sandboxes[i].Error = s.explained(err)
		}
	}
	places := make(chan struct{}, renewedAtOnce)
	var group sync.WaitGroup
	for i, text := range req.IDs {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			state, err := s.renewOnce(c, &api.ClaimOrder{ID: text})
			if reply.Claims[i].ClaimState = state; err != nil {
				reply.Claims[i].Error = s.explained(err)
			}
		})
	}
	group.Wait()
	return reply, nil
}

// How long a request for slots waits for a change, and for more changes that come with
// it. Who hears nothing for three times as long knows that the host is gone.
const (
	slotsPoll   = time.Minute
	slotsGather = 200 * time.Millisecond
)

// slotsSince is slots, and waits until they are not those any more that the caller has.
func (s *Server) slotsSince(ctx context.Context, c job.Caller, in *incoming) (any, error) {
	var req api.SlotsRequest
	if err := in.decode(ctx, &req); err != nil {
		return nil, err
	}
	enough := time.NewTimer(slotsPoll)
	defer enough.Stop()
	for {
		if err := in.takeTurn(ctx); err != nil {
			return nil, err
		}
		changed := s.Queue.Stirred() // before the slots are looked at
		reply, err := s.slots(ctx, c, &req)
		if err != nil {
			return reply, err
		}
		text, err := json.Marshal(reply)
		if err != nil {
			return reply, err
		}
		h := fnv.New64a()
		_, _ = h.Write(text)
		if reply.Version = fmt.Sprintf("%x", h.Sum64()); req.Since == "" || reply.Version != req.Since {
			return reply, nil
		}
		giveBack(&in.leaveTurn) // who waits keeps nobody from his turn
		if !s.awaitChange(ctx, changed, enough.C) {
			return reply, nil
		}
		select {
		case <-time.After(slotsGather):
		case <-s.stopping:
		case <-ctx.Done():
		}
	}
}

// awaitChange waits for a change that a long poll is kept back for, and reports whether it
// has come before there was enough of that, or nobody waits any more.
func (s *Server) awaitChange(ctx context.Context, changed <-chan struct{}, enough <-chan time.Time) bool {
	select {
	case <-changed:
		return true
	case <-enough:
	case <-s.stopping:
	case <-ctx.Done():
	}
	return false
}
