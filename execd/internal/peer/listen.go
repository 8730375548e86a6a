package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/fair"
)

// These bound what strangers cost: connections whose other end has not shown a
// certificate yet, of one address and of all, and the time that it has for it. One more
// ends the oldest of them, so that who is slow holds up nobody.
const (
	maxHandshakes        = 128
	maxHandshakesOfOne   = 32
	handshakePatience    = 5 * time.Second
	descriptorsOfPeers   = 8 // the divisor of what execd may open
	maxConnections       = 1024
	maxConnectionsOfHost = 256
)

// These are how many refusals a second are logged, of one address or host and of all; ten
// times as many at once. So nobody keeps those of others out of the log.
const (
	refusalsToldOfOne = 1
	refusalsTold      = 5
)

// Listener lets in connections of hosts that may submit. Accept returns them when they
// have shown their certificates.
type Listener struct {
	net.Listener
	keeper *Keeper
	log    *slog.Logger
	most   int

	in    chan *Conn
	done  chan struct{}
	close func() error

	mu      sync.Mutex
	waiting []*stranger    // guarded by mu; in the handshake, the oldest first
	open    map[*Conn]bool // guarded by mu; connections that were let in
	ofHost  map[string]int // guarded by mu; of them, by the name of the host
	told    fair.Meter
	untold  int // guarded by mu; refusals since the last that was logged
}

// errSlow is why a connection is ended whose other end shows no certificate.
var errSlow = fmt.Errorf("it has shown no certificate in %v", handshakePatience)

// stranger is a connection whose other end is not known yet.
type stranger struct {
	net.Conn
	from string
}

// Conn is a connection of a host.
type Conn struct {
	*secured
	// Chain is what the host has shown: its certificate, and those between it and the CA.
	Chain    []*x509.Certificate
	close    func() error
	believed atomic.Pointer[belief] // as of the last request
}

// belief is what a host may do by what was in force.
type belief struct {
	trust *Trust
	line  *Peer
}

// Close ends the connection.
func (c *Conn) Close() error { return c.close() }

// Listen listens on an address.
func Listen(address string, keeper *Keeper, log *slog.Logger) (*Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive, Control: endSilent} // connections inherit it
	l, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for other hosts: %w", err)
	}
	p := &Listener{
		Listener: l, keeper: keeper, log: log, most: connections(),
		in: make(chan *Conn), done: make(chan struct{}), open: map[*Conn]bool{}, ofHost: map[string]int{},
	}
	p.close = sync.OnceValue(func() error {
		close(p.done)
		err := l.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range p.waiting {
			_ = s.Close()
		}
		return err
	})
	go p.run()
	go p.review()
	return p, nil
}

// connections returns how many hosts together may have open.
func connections() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return maxConnections
	}
	return int(min(limit.Cur/descriptorsOfPeers, maxConnections))
}

// keepAlive has a connection end within a minute when the other host is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3}

// Accept returns the next connection that was let in.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.in:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close closes the listener, and ends what is not let in yet.
func (l *Listener) Close() error { return l.close() }

// run takes connections until the listener is closed.
func (l *Listener) run() {
	told := ""
	for {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			told = ""
			s := &stranger{c, addressOf(c)}
			l.enter(s)
			go l.meet(s)
		case errors.Is(err, net.ErrClosed):
			return
		default: // no descriptor is left
			if text := err.Error(); text != told {
				told = text
				l.log.Warn("execd: cannot take connections of other hosts: " + text)
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-l.done:
				return
			}
		}
	}
}

// review ends the connections of hosts that are not believed any more, at each change of
// what is in force: a request may be under way there that waits.
func (l *Listener) review() {
	for {
		changed := l.keeper.Changed()
		l.mu.Lock()
		list := slices.Collect(maps.Keys(l.open))
		l.mu.Unlock()
		for _, c := range list {
			if _, err := l.keeper.Submitter(c); err != nil {
				l.Refused(c, err)
				_ = c.NetConn().Close() // at once: a farewell waits for who does not read
				_ = c.Close()
			}
		}
		select {
		case <-changed:
		case <-l.done:
			return
		}
	}
}

// addressOf returns the address at the other end, without its port. Of IPv6 it is the
// network that one host may have for itself.
func addressOf(c net.Conn) string {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		return ip.Mask(net.CIDRMask(64, 128)).String()
	}
	return host
}

// enter notes a stranger, and ends the oldest where there are too many.
func (l *Listener) enter(s *stranger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := func(o *stranger) bool { return o.from == s.from }
	n := 0
	for _, o := range l.waiting {
		if same(o) {
			n++
		}
	}
	oldest := -1
	switch {
	case n >= maxHandshakesOfOne:
		oldest = slices.IndexFunc(l.waiting, same)
	case len(l.waiting) >= maxHandshakes:
		oldest = 0
	}
	if oldest >= 0 {
		_ = l.waiting[oldest].Close()
		l.waiting = slices.Delete(l.waiting, oldest, oldest+1)
	}
	l.waiting = append(l.waiting, s)
}

// meet has a stranger show its certificate, and lets it in or refuses it.
func (l *Listener) meet(s *stranger) {
	t := l.keeper.Current()
	if !t.May(Execute) {
		l.leave(s)
		_ = s.Close()
		return
	}
	c := secure(s.Conn, func(c net.Conn) *tls.Conn { return tls.Server(c, t.serverConfig()) })
	ctx, cancel := context.WithTimeout(context.Background(), handshakePatience)
	err := c.HandshakeContext(ctx)
	cancel()
	crowded := !l.leave(s)
	if err != nil {
		switch {
		case crowded:
			err = errors.New("it has shown no certificate while many others came")
		case errors.Is(err, context.DeadlineExceeded):
			err = errSlow
		}
		l.refuse(s.from, s.from, err)
		_ = s.Close()
		return
	}
	chain := c.ConnectionState().PeerCertificates
	name := nameOf(chain[0])
	conn := &Conn{secured: c, Chain: chain}
	if n, ok := l.admit(name, conn); !ok {
		l.refuse(name, s.from, fmt.Errorf("%q has %d connections open, and may have no more now", name, n))
		_ = s.Close()
		return
	}
	select {
	case l.in <- conn:
	case <-l.done:
		_ = conn.Close()
	}
}

// leave notes that the handshake of a stranger is over; false: it was ended.
func (l *Listener) leave(s *stranger) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, s)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	return i >= 0
}

// admit counts a connection of a host; false: there is no room for it.
func (l *Listener) admit(name string, c *Conn) (n int, ok bool) {
	c.close = sync.OnceValue(func() error {
		l.left(name, c)
		return c.secured.Close()
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	n = l.ofHost[name]
	if n >= min(maxConnectionsOfHost, l.most-len(l.open)) {
		return n, false
	}
	l.open[c] = true
	l.ofHost[name]++
	return n, true
}

// left notes that a connection is over.
func (l *Listener) left(name string, c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	if l.ofHost[name]--; l.ofHost[name] == 0 {
		delete(l.ofHost, name)
	}
}

// Refused logs that a request of a host was refused.
func (l *Listener) Refused(c *Conn, why error) {
	l.refuse(nameOf(c.Chain[0]), addressOf(c), why)
}

// refuse logs a refusal of who is known by a name or an address, unless there were many
// just before.
func (l *Listener) refuse(who, from string, why error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(who))
	now := time.Now()
	l.mu.Lock()
	tell := l.told.Take(int(h.Sum32()), refusalsToldOfOne, now) == 0 && l.told.Take(-1, refusalsTold, now) == 0
	before := l.untold
	if tell {
		l.untold = 0
	} else {
		l.untold++
	}
	l.mu.Unlock()
	if !tell {
		return
	}
	text := fmt.Sprintf("execd: refused a host at %s: %s", from, api.Visible(why.Error()))
	if before > 0 {
		text += fmt.Sprintf("; and %d before it that were not logged", before)
	}
	l.log.Warn(text)
}

// serverConfig is how the handshake is done with hosts that submit.
func (t *Trust) serverConfig() *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{t.Self.cert}, MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: t.Self.roots,
		// Each connection shows its certificate: what has been revoked meanwhile is not believed.
		SessionTicketsDisabled: true, NextProtos: []string{"http/1.1"},
	}
}
