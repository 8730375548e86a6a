package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/test/harness"
)

// crew is hosts that execute, as an execd sees them that submits: all are this process,
// have a slot each, and run whatever they are given for ever.
type crew struct {
	server http.Server
	closed context.CancelFunc
}

// poll is how long the hosts keep a request back that waits for news.
const poll = time.Minute

// member is a host of a crew.
type member struct {
	name string

	mu      sync.Mutex
	news    chan struct{} // closed when there is some
	claimed bool          // guarded by mu
	running api.SandboxID // guarded by mu; empty: nothing runs
}

// newCrew makes so many hosts of the pool of an execd, and returns their lines of its file
// peers.
func (b *bench) newCrew(dir string, n int) (*crew, string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &crew{closed: cancel}
	c.server.BaseContext = func(net.Listener) context.Context { return ctx }
	c.server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, memberKey{}, conn.(*tls.Conn).NetConn().(*crewConn).of)
	}
	c.server.Handler = http.HandlerFunc(c.serve)
	var lines strings.Builder
	for i := range n {
		m := &member{name: fmt.Sprintf("node%d", i+1), news: make(chan struct{})}
		out, err := limited(longest, filepath.Join(b.bin, "execd"), "-root", dir, "-pool", "host", m.name, "-execute").Output()
		if err != nil {
			return c, "", fmt.Errorf("execd -pool host: %w", err)
		}
		cert, err := tls.X509KeyPair(out, out)
		if err != nil {
			return c, "", err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return c, "", err
		}
		fmt.Fprintf(&lines, "%s %s execute\n", m.name, l.Addr())
		config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{"http/1.1"}}
		go func() { _ = c.server.Serve(tls.NewListener(&crewListener{l, m}, config)) }() // until it is closed
	}
	return c, lines.String(), nil
}

// close ends the hosts.
func (c *crew) close() error {
	c.closed()
	return c.server.Close()
}

// crewListener is that of a host, which its connections know.
type crewListener struct {
	net.Listener
	of *member
}

type crewConn struct {
	net.Conn
	of *member
}

type memberKey struct{}

// Accept implements [net.Listener].
func (l *crewListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &crewConn{c, l.of}, nil
}

func (c *crew) serve(w http.ResponseWriter, r *http.Request) {
	m := r.Context().Value(memberKey{}).(*member)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var reply any
	switch verb := filepath.Base(r.URL.Path); verb {
	case api.VerbHello:
		reply = api.HelloReply{Host: m.name, Version: "bench"}
	case api.VerbSlots:
		reply = m.slots(r.Context(), parse[api.SlotsRequest](body))
	case api.VerbClaim:
		reply = m.claim()
	case api.VerbActivate:
		reply = m.activate(parse[api.ActivateRequest](body))
	case api.VerbFollow:
		reply = m.follow(r.Context(), parse[api.FollowRequest](body))
	case api.VerbRenewAll:
		reply = api.RenewAllReply{Claims: make([]api.Renewed, len(parse[api.RenewAllRequest](body).IDs))}
	default:
		w.WriteHeader(http.StatusConflict)
		reply = api.Errorf(api.CodeBadRequest, "a host of the benchmark does not know %s", verb)
	}
	_ = json.NewEncoder(w).Encode(reply) // the client may have gone
}

func parse[T any](body []byte) (r T) {
	_ = json.Unmarshal(body, &r) // of our own execd
	return r
}

// await returns when ok reports true, or after a minute. m.mu is held.
func (m *member) await(ctx context.Context, ok func() bool) {
	enough := time.After(poll)
	for !ok() {
		news := m.news
		m.mu.Unlock()
		select {
		case <-news:
			m.mu.Lock()
			continue
		case <-enough:
		case <-ctx.Done():
		}
		m.mu.Lock()
		return
	}
}

// tell wakes who waits. m.mu is held.
func (m *member) tell() {
	close(m.news)
	m.news = make(chan struct{})
}

func (m *member) slots(ctx context.Context, r api.SlotsRequest) api.SlotsReply {
	m.mu.Lock()
	defer m.mu.Unlock()
	version := func() string { return fmt.Sprint(m.claimed, m.running) }
	m.await(ctx, func() bool { return r.Since != version() })
	s := api.SlotStatus{Slot: "1", Name: "slot1@" + m.name, Queue: "all.q", State: "Unclaimed", Activity: "Idle"}
	if m.claimed {
		s.State = "Claimed"
	}
	if m.running != "" {
		s.Activity = "Busy"
	}
	if r.Ads {
		s.Ad = "Start = true\nFileSystemDomain = \"cluster\"\n"
	}
	return api.SlotsReply{Host: m.name, Slots: []api.SlotStatus{s}, Version: version()}
}

func (m *member) claim() any {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claimed {
		return api.Refusef(api.RefusedBusy, "its slot is not free")
	}
	m.claimed = true
	m.tell()
	return api.ClaimReply{ID: api.ClaimID("<" + m.name + ">#1#1#secret"), Slot: "1", Name: "slot1@" + m.name, Lease: 1800, Renew: 300, Ad: "Queue = \"all.q\"\n"}
}

func (m *member) activate(r api.ActivateRequest) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = r.Sandbox
	m.tell()
	return api.ActivateReply{Job: 1}
}

func (m *member) follow(ctx context.Context, r api.FollowRequest) api.FollowReply {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.await(ctx, func() bool { return m.running != "" && r.Cursor != "1" })
	if m.running == "" || r.Cursor == "1" {
		return api.FollowReply{Cursor: r.Cursor}
	}
	return api.FollowReply{Cursor: "1", Events: []api.ActivationEvent{{Sandbox: m.running, Kind: api.ActivationStarted, Seq: 1, Time: time.Now(), Job: 1}}}
}

// crewTime measures what an execd takes for a pool of which nothing is wanted, and for one
// where a job runs on each host.
func (b *bench) crewTime() (err error) {
	const name = "crew"
	hosts, window := b.size(50, 5), time.Duration(b.size(60, 2))*time.Second
	dir := filepath.Join(b.base, name)
	peers := filepath.Join(api.DevPlaces(dir).Config, "peers")
	if out, err := limited(longest, filepath.Join(b.bin, "execd"), "-root", dir, "-pool", "new", "login").CombinedOutput(); err != nil {
		return fmt.Errorf("execd -pool new: %w\n%s", err, out)
	}
	c, lines, err := b.newCrew(dir, hosts)
	defer func() { err = errors.Join(err, c.close()) }()
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(peers, nil, 0o644), os.WriteFile(filepath.Join(filepath.Dir(peers), "hooks.conf"), []byte("FILESYSTEM_DOMAIN = cluster\n"), 0o644)); err != nil {
		return err
	}
	d, err := b.startOurs(name, 1)
	if err != nil {
		return err
	}
	defer d.Kill()
	if err := b.occupy(d); err != nil {
		return err
	}
	measure := func() (share, kb float64, err error) {
		if err := harness.Settle(b.bin, d.Dir); err != nil {
			return 0, 0, err
		}
		begin, err := processorTime(d.PID())
		if err != nil {
			return 0, 0, err
		}
		<-time.After(window)
		end, err := processorTime(d.PID())
		if err != nil {
			return 0, 0, err
		}
		memory, err := harness.StatusField(d.PID(), "VmRSS")
		return 100 * float64(end-begin) / float64(window), float64(memory), err
	}
	_, alone, err := measure()
	if err != nil {
		return err
	}
	if err := os.WriteFile(peers, []byte(lines), 0o644); err != nil {
		return err
	}
	if err := b.seen(d, "qhost -peers", func(out string) bool { return strings.Count(out, " up ") == hosts }); err != nil {
		return err
	}
	idle, kb, err := measure()
	if err != nil {
		return err
	}
	b.report(row{what: fmt.Sprintf("processor of execd with %d idle hosts", hosts), unit: "%", ours: idle, alone: true, limit: 1})
	b.report(row{what: "memory of execd for each", unit: "MB", ours: (kb - alone) / 1024 / float64(hosts), alone: true, limit: 1})
	if _, err := b.sleep(d, hosts); err != nil {
		return err
	}
	if err := b.seen(d, "qstat", func(out string) bool { return strings.Count(out, " all.q@node") == hosts }); err != nil {
		return err
	}
	busy, kb, err := measure()
	if err != nil {
		return err
	}
	b.report(row{what: "processor of execd with a job on each", unit: "%", ours: busy, alone: true, limit: 1})
	b.report(row{what: "memory of execd for each", unit: "MB", ours: (kb - alone) / 1024 / float64(hosts), alone: true, limit: 1})
	return nil
}

// seen waits until a command of ours prints what is wanted.
func (b *bench) seen(d *harness.Daemon, command string, ok func(out string) bool) error {
	var text string
	err := harness.WaitFor(harness.Patience, command+" to show it", func() (bool, error) {
		out, err := b.ours(d, strings.Fields(command)...).CombinedOutput()
		text = string(out)
		return ok(text), err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	return nil
}
