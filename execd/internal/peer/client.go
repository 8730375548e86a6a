package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"paddock/execd/api"
)

// HeaderUser names in a request the user of the submit host for whom it asks. Without it
// the host asks for itself.
const HeaderUser = "Paddock-User"

// Clients asks hosts that execute. Connections are kept for a while.
type Clients struct {
	keeper    *Keeper
	transport atomic.Pointer[http.Transport] // its connections were made by what is in force

	mu   sync.Mutex
	ends map[string]time.Time // guarded by mu; of the certificates of hosts, by name
}

// These bound what a host may answer, in bytes.
const (
	maxReply  = 16 << 20
	maxHeader = 64 << 10
)

// How long a connection without a request is kept: less than the other end keeps it.
const idlePatience = 45 * time.Second

// maxIdle is how many connections to a host are kept that have no request. Those of a burst
// of short jobs are used again: a handshake costs both hosts more than the start of one.
const maxIdle = 64

// NewClients returns clients of the hosts that a keeper has in force.
func NewClients(keeper *Keeper) *Clients {
	c := &Clients{keeper: keeper, ends: map[string]time.Time{}}
	c.transport.Store(c.newTransport())
	return c
}

func (c *Clients) newTransport() *http.Transport {
	return &http.Transport{
		DialTLSContext: c.dial, IdleConnTimeout: idlePatience, MaxIdleConnsPerHost: maxIdle, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1 alone
	}
}

// Forget has requests that follow use connections of their own, as after a change of what
// is in force: one that is busy now would be used again otherwise, whoever is at its end.
func (c *Clients) Forget() { c.transport.Swap(c.newTransport()).CloseIdleConnections() }

// dial connects to a host; address is its name with a port.
func (c *Clients) dial(ctx context.Context, _, address string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	t := c.keeper.Current()
	p, err := t.Executor(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*handshakePatience)
	defer cancel()
	d := net.Dialer{KeepAliveConfig: keepAlive, Control: endSilent}
	conn, err := d.DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return nil, err
	}
	if c, ok := conn.(*net.TCPConn); ok {
		// A request that is given up is not to arrive later: it may renew a lease.
		_ = c.SetLinger(0)
	}
	s := secure(conn, func(c net.Conn) *tls.Conn { return tls.Client(c, t.clientConfig(p)) })
	if err := s.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	c.mu.Lock()
	c.ends[name] = s.ConnectionState().PeerCertificates[0].NotAfter
	c.mu.Unlock()
	return s, nil
}

// until returns the end of the certificate that a host has shown last.
func (c *Clients) until(name string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ends[name]
}

// clientConfig is how the handshake is done with a host that executes.
func (t *Trust) clientConfig(p *Peer) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{t.Self.cert}, RootCAs: t.Self.roots, ServerName: p.Name,
		MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := t.Believe(s.PeerCertificates, Execute, time.Now())
			return err
		},
	}
}

// Of returns a client of a host, for one of this host's users; empty: for this host
// itself. It does not connect yet.
func (c *Clients) Of(host, user string) *api.Client { return c.OfHolding(host, user, nil) }

// OfHolding is Of. Before an answer is read hold is called with the most bytes that it may
// have, and may wait until there is room for them.
func (c *Clients) OfHolding(host, user string, hold func(ctx context.Context, size int) error) *api.Client {
	streams := func(ctx context.Context, path string, body io.Reader, read func(status string, r io.Reader) error) error {
		return c.stream(ctx, host, user, path, body, read)
	}
	return api.NewClientOver(host, func(ctx context.Context, path string, body []byte, read func(status string, r io.Reader) error) error {
		answer, err := c.post(ctx, host, user, path, bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		size := answer.ContentLength
		if size < 0 || size > maxReply {
			size = maxReply
		}
		if hold != nil {
			if err := hold(ctx, int(size)); err != nil {
				return err
			}
		}
		return read(answer.Status, io.LimitReader(answer.Body, size))
	}, streams)
}

// post sends one request.
func (c *Clients) post(ctx context.Context, host, user, path string, body io.Reader) (*http.Response, error) {
	if _, err := c.keeper.Current().Executor(host); err != nil {
		return nil, err
	}
	if strings.TrimSpace(user) != user { // a header would name another
		return nil, fmt.Errorf("cannot ask %.60q: %q is no name of a user", host, user)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+host+path, body)
	if err != nil {
		return nil, fmt.Errorf("cannot ask %.60q: %w", host, err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "") // none
	if user != "" {
		r.Header.Set(HeaderUser, user)
	}
	answer, err := c.transport.Load().RoundTrip(r)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	// What TLS says of the other end's refusal begins with words that say nothing.
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		err = fmt.Errorf("it refuses the certificate of this host: %w", op.Err)
	}
	return answer, err
}
