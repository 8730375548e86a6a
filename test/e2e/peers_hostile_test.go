package e2e

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/test/harness"
)

// material is what a host shows to others.
type material struct {
	cert  *tls.Certificate
	roots *x509.CertPool
	most  uint16 // version of TLS
}

// materialOf reads a host.pem.
func materialOf(t *testing.T, text string) material {
	t.Helper()
	cert, err := tls.X509KeyPair([]byte(text), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	m := material{cert: &cert, roots: x509.NewCertPool()}
	m.roots.AppendCertsFromPEM([]byte(text))
	return m
}

// forged returns what a host has whose certificate the real CA has made, as it is changed.
func forged(t *testing.T, dir string, change func(*x509.Certificate)) material {
	t.Helper()
	block := func(name string) []byte {
		text, err := os.ReadFile(dir + "/etc/pool/" + name)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := pem.Decode(text)
		return b.Bytes
	}
	ca, err := x509.ParseCertificate(block("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	caKey, err := x509.ParsePKCS8PrivateKey(block("ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(4711), Subject: pkix.Name{CommonName: "login"}, DNSNames: []string{"login"},
		URIs:      []*url.URL{{Scheme: "paddock", Opaque: "submit"}},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	change(c)
	der, err := x509.CreateCertificate(rand.Reader, c, ca, key.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	return material{cert: &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots: roots}
}

// dial connects to node, with a certificate or without one.
func (p *pool) dial(m material) (*tls.Conn, error) {
	raw, err := net.Dial("tcp", "127.0.0.1:"+p.port)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: m.roots, ServerName: "node", MaxVersion: m.most}
	if m.cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return m.cert, nil }
	}
	c := tls.Client(raw, config)
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if err := c.HandshakeContext(p.ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// ask has node answer one request, and returns its status and what it says.
func (p *pool) ask(m material, user, verb string, request any) (status int, text string, err error) {
	c, err := p.dial(m)
	if err != nil {
		return 0, "", err
	}
	defer c.Close()
	return p.askOn(c, user, verb, request)
}

// askOn is ask on a connection, which stays open.
func (p *pool) askOn(c *tls.Conn, user, verb string, request any) (status int, text string, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return 0, "", err
	}
	r, err := http.NewRequestWithContext(p.ctx, http.MethodPost, "https://node/"+strings.TrimPrefix("v1/"+verb, "v1//"), bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if user != "" {
		r.Header.Set("Paddock-User", user)
	}
	if err := r.Write(c); err != nil {
		return 0, "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(data), err
}

// logged waits until the log of node has a line with a text.
func (p *pool) logged(text string) {
	p.t.Helper()
	if err := harness.WaitFor(patience, "log of node to have "+text, func() (bool, error) {
		return strings.Contains(p.node.Log(), text), nil
	}); err != nil {
		p.t.Errorf("%v\n%s", err, p.node.Log())
	}
}

// read returns a file.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Who is no host of the pool, or not one that may submit, is refused at once, with a line
// in the log that says why, and the hosts of the pool are answered all the same.
func TestPeersHostile(t *testing.T) {
	parallel(t)
	if second == nil && os.Geteuid() == 0 {
		t.Skip("work of other hosts never runs as root")
	}
	p := newPool(t, knobsOf{login: "CLAIM_USERS = *\n"})
	login, mine := p.login.dir, "me"
	if second != nil {
		mine = second.Name
	}
	good := materialOf(t, read(t, login+"/etc/host.pem"))
	other := materialOf(t, p.pool(t, login, "host", "login2", "-submit"))
	wrongRole := materialOf(t, p.pool(t, login, "host", "node2", "-execute"))
	unlisted := materialOf(t, p.pool(t, login, "host", "unlisted", "-submit"))
	revoked := materialOf(t, p.pool(t, login, "host", "login3", "-submit"))
	p.pool(t, login, "revoke", "login3")
	foreignDir := place(t, "foreign")
	p.pool(t, foreignDir, "new", "login")
	foreign := materialOf(t, read(t, foreignDir+"/etc/host.pem"))
	foreign.roots = good.roots

	// Files that the administrator changes are in force when the log says so.
	peers := read(t, login+"/etc/peers")
	for line := range strings.Lines(peers) {
		if strings.HasPrefix(line, "unlisted ") {
			peers = strings.Replace(peers, line, "", 1)
		}
	}
	write(t, p.node.dir+"/etc/peers", peers+"other execute\n", 0o644)
	p.logged("pool: other: added")

	if status, text, err := p.ask(good, mine, api.VerbHello, api.HelloRequest{}); status != http.StatusOK {
		t.Fatalf("a host of the pool: %d %s, %v", status, text, err)
	}
	// At the handshake. With TLS 1.3 a client hears of it when it reads.
	expired := forged(t, login, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) })
	early := forged(t, login, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(30 * time.Minute) })
	server := forged(t, login, func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] })
	for what, test := range map[string]struct {
		m    material
		said string // in the log
	}{
		"no certificate": {material{roots: good.roots}, "didn't provide a certificate"},
		"a foreign CA":   {foreign, "unknown authority"},
		"an expired one": {expired, "has expired"},
		"one of later":   {early, "has expired or is not yet valid"},
		"one for no TLS": {server, "incompatible key usage"},
		"old TLS":        {material{good.cert, good.roots, tls.VersionTLS12}, "unsupported version"},
	} {
		if status, text, err := p.ask(test.m, mine, api.VerbHello, api.HelloRequest{}); err == nil {
			t.Errorf("%s: answered %d %s", what, status, text)
		}
		p.logged(test.said)
	}
	// By what the file and the certificate say.
	for what, test := range map[string]struct {
		m    material
		said string
	}{
		"of another role": {wrongRole, `has not the role submit`},
		"without a line":  {unlisted, `\"unlisted\" has no line in the file peers`},
		"revoked":         {revoked, `\"login3\" is revoked`},
		"an unknown role": {forged(t, login, func(c *x509.Certificate) { c.URIs[0].Opaque = "god" }), `role \"god\", which is not known`},
		"no role":         {forged(t, login, func(c *x509.Certificate) { c.URIs = nil }), `has not the role submit`},
		"of no name":      {forged(t, login, func(c *x509.Certificate) { c.DNSNames = nil }), `no line in the file peers`},
	} {
		status, text, err := p.ask(test.m, mine, api.VerbHello, api.HelloRequest{})
		if err != nil || status != http.StatusForbidden || !strings.Contains(text, test.said) {
			t.Errorf("%s: %d %s, %v; want %s", what, status, text, err, test.said)
		}
	}
	p.logged(`the certificate of "login3" is revoked`)

	// What hosts may not ask for, whoever they are.
	for _, verb := range []string{
		api.VerbSubmit, api.VerbJobs, api.VerbDetail, api.VerbDelete, api.VerbModify, api.VerbConfigure, api.VerbReload, api.VerbDrain, api.VerbVacate,
		api.VerbTask, api.VerbAttach, api.VerbPeers, api.VerbStatus, "on/login/" + api.VerbHello, "on/node/" + api.VerbSubmit,
	} {
		if status, text, err := p.ask(good, mine, verb, struct{}{}); err != nil || status != http.StatusForbidden {
			t.Errorf("%s: %d %s, %v; want it denied", verb, status, text, err)
		}
	}
	if status, text, err := p.ask(good, mine, "/metrics", struct{}{}); err != nil || status != http.StatusBadRequest {
		t.Errorf("the metrics: %d %s, %v", status, text, err)
	}
	// A claim is for a user, and not for one who may do everything.
	denied := []string{"", "root"}
	if second != nil { // in user mode all others are its own user, whatever they are called
		denied = append(denied, "no such user", strings.Repeat("x", 5000))
	}
	for _, user := range denied {
		status, text, err := p.ask(good, user, api.VerbClaim, api.ClaimRequest{})
		if err != nil || status != http.StatusForbidden || len(text) > 500 {
			t.Errorf("user %.20q: %d %.500s, %v; want him denied", user, status, text, err)
		}
	}
	if second != nil {
		p.noOtherUser(good)
	}

	// The claim of a host is its own, and of its user.
	var granted api.ClaimReply
	status, text, err := p.ask(good, mine, api.VerbClaim, api.ClaimRequest{})
	if status != http.StatusOK || json.Unmarshal([]byte(text), &granted) != nil {
		t.Fatalf("a claim: %d %s, %v", status, text, err)
	}
	order := api.ClaimOrder{ID: granted.ID}
	for _, verb := range []string{api.VerbRenew, api.VerbRelease, api.VerbClaimSuspend, api.VerbClaimContinue, api.VerbClaimCheck} {
		for _, user := range []string{mine, ""} {
			if status, text, err := p.ask(other, user, verb, order); err != nil || status != http.StatusNotFound {
				t.Errorf("%s of the claim of another host, by %q: %d %s, %v", verb, user, status, text, err)
			}
		}
	}
	p.asUser(func() {
		if _, err := p.node.Client.ClaimOf(granted.ID).Renew(p.ctx); second != nil && api.RefusalOf(err) != api.RefusedUnknown {
			t.Errorf("the claim of another host's user, by him here: %v", err)
		}
	})
	if status, text, err := p.ask(other, mine, api.VerbRenewAll, api.RenewAllRequest{IDs: []api.ClaimID{granted.ID}}); status != http.StatusOK || !strings.Contains(text, "no claim") {
		t.Errorf("all of another host: %d %s, %v", status, text, err)
	}
	p.floods(good, other, mine)
	if status, text, err := p.ask(good, mine, api.VerbRelease, order); status != http.StatusOK {
		t.Errorf("released: %d %s, %v", status, text, err)
	}
}

// noOtherUser fails the test if a user of login becomes another on node.
func (p *pool) noOtherUser(good material) {
	p.t.Helper()
	// The login host itself may say any name; REMOTE_OWNERS and the file peers are for that.
	for _, user := range []string{"paddock", "daemon"} {
		if status, text, err := p.ask(good, user, api.VerbClaim, api.ClaimRequest{}); err != nil || status != http.StatusForbidden {
			p.t.Errorf("user %s: %d %s, %v; want him denied", user, status, text, err)
		}
	}
	// Its users may not: who asks is known by the kernel.
	if _, err := p.login.Client.On("node").Claim(p.ctx, api.ClaimRequest{}); codeOf(err) != api.CodeDenied || !strings.Contains(err.Error(), "root") {
		p.t.Errorf("root of login: %v; want him denied", err)
	}
	p.second(func() {
		if _, err := os.ReadFile(p.login.dir + "/etc/host.pem"); err == nil {
			p.t.Error("a user reads the key of the host")
		}
		if _, err := p.dial(material{roots: good.roots}); err != nil {
			p.t.Errorf("at the handshake: %v", err)
		}
		c, err := p.login.Client.On("node").Claim(p.ctx, api.ClaimRequest{Ad: `Owner = "nobody"`})
		if err != nil {
			p.t.Error(err)
			return
		}
		if _, err := c.Activate(p.ctx, api.ActivateRequest{Ad: "Cmd = \"/bin/true\"\nOwner = \"nobody\"\n"}); codeOf(err) != api.CodeDenied {
			p.t.Errorf("work of another: %v; want it denied", err)
		}
		if err := c.Release(p.ctx); err != nil {
			p.t.Error(err)
		}
	})
}

// floods has strangers hold up the listener, and fails the test if a host of the pool is.
func (p *pool) floods(good, other material, user string) {
	p.t.Helper()
	t := p.t
	answered := func(when string) {
		t.Helper()
		for range 3 {
			if status, text, err := p.ask(good, user, api.VerbHello, api.HelloRequest{}); status != http.StatusOK {
				t.Errorf("%s: %d %s, %v", when, status, text, err)
			}
		}
	}
	before, err := harness.StatusField(p.node.PID(), "VmRSS")
	if err != nil {
		t.Fatal(err)
	}
	// A head that does not end is refused, and the connection is closed.
	for _, head := range []string{"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 1<<20), "GET /\x00\r\n\r\n"} {
		c, err := p.dial(good)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, head) // it may be refused before the end
		if text, _ := io.ReadAll(c); !strings.HasPrefix(string(text), "HTTP/1.1 4") {
			t.Errorf("a head of %d bytes is answered with %.100q", len(head), text)
		}
		c.Close()
	}
	// Connections that say nothing, or something else than TLS.
	var conns []net.Conn
	defer func() { harness.CloseAll(conns) }()
	for i := range 1000 {
		c, err := net.Dial("tcp", "127.0.0.1:"+p.port)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, c)
		switch i % 3 {
		case 1:
			_, err = c.Write([]byte{22, 3, 1, 2, 0, 1}) // a greeting that does not go on
		case 2:
			_, err = c.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
		}
		if err != nil && i%3 != 2 {
			t.Logf("connection %d: %v", i, err)
		}
	}
	answered("beside a thousand connections")
	// A host that has as many connections as it may have gets no more, others do.
	var own []net.Conn
	defer func() { harness.CloseAll(own) }()
	for range 300 {
		c, err := p.dial(good)
		if err != nil {
			break
		}
		own = append(own, c)
		// One that has asked nothing is closed after ten seconds, before a slow host has all.
		if _, _, err := p.askOn(c, user, api.VerbHello, api.HelloRequest{}); err != nil {
			break
		}
	}
	until := func(what string, want int) {
		t.Helper()
		if err := harness.WaitFor(patience, what, func() (bool, error) {
			status, _, _ := p.ask(good, user, api.VerbHello, api.HelloRequest{})
			return status == want, nil
		}); err != nil {
			t.Error(err)
		}
	}
	until("login to be refused", 0)
	if status, text, err := p.ask(other, user, api.VerbHello, api.HelloRequest{}); status != http.StatusOK {
		t.Errorf("another host beside one with too many connections: %d %s, %v", status, text, err)
	}
	harness.CloseAll(own)
	until("login to be answered", http.StatusOK)
	after, err := harness.StatusField(p.node.PID(), "VmRSS")
	if err != nil {
		t.Fatal(err)
	}
	if after > before+64<<10 {
		t.Errorf("execd has grown from %d to %d KiB", before, after)
	}
	if n := strings.Count(p.node.Log(), "refused a host at"); n > 200 {
		t.Errorf("%d lines in the log", n)
	}
}
