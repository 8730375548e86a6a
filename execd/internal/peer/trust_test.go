package peer

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// newPool makes a pool of the host login in a directory.
func newPool(t *testing.T) (dir string, p *Pool) {
	t.Helper()
	dir = t.TempDir()
	if err := NewPool(dir, "login", Submit); err != nil {
		t.Fatal(err)
	}
	p, err := OpenPool(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return dir, p
}

// issue makes a certificate, and returns the text and the certificate. Without a role it
// is one that execd -pool does not make.
func issue(t *testing.T, p *Pool, name string, roles Role) (string, *x509.Certificate) {
	t.Helper()
	issue := p.Issue
	if roles == 0 {
		issue = p.sign
	}
	text, err := issue(name, roles)
	if err != nil {
		t.Fatal(err)
	}
	certs, _ := split(text)
	block, _ := pem.Decode(certs)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), c
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// on returns a directory of a host with a host.pem, and its files.
func on(t *testing.T, text string) (string, Files) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, fileHost), text, 0o600)
	return dir, FilesIn(dir)
}

// What is there already is not replaced, and what a failure has left is no obstacle.
func TestNewPool(t *testing.T) {
	dir, p := newPool(t)
	for _, name := range []string{"host.pem", "pool/ca.key", "pool/issued"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", name, info, err)
		}
	}
	if err := NewPool(dir, "login", Submit); err == nil || !strings.Contains(err.Error(), "ca.pem is there already") {
		t.Errorf("a second pool: %v", err)
	}
	if _, err := OpenPool(dir); err == nil || !strings.Contains(err.Error(), "another execd -pool") {
		t.Errorf("at the same time: %v", err)
	}
	p.Close()
	if err := os.Remove(filepath.Join(dir, "pool/ca.pem")); err != nil {
		t.Fatal(err)
	}
	if err := NewPool(dir, "login", Submit); err == nil || !strings.Contains(err.Error(), "host.pem is there already") {
		t.Errorf("with a certificate of another pool: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "host.pem")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenPool(dir); err == nil || !strings.Contains(err.Error(), "execd -pool new") {
		t.Errorf("without a CA: %v", err)
	}
	if err := NewPool(dir, "login", Submit|Execute); err != nil {
		t.Errorf("where one was begun: %v", err)
	}
	f := FilesIn(dir)
	if trust, err := f.Load(time.Now()); err != nil || !trust.May(Execute) || trust.Name() != "login" {
		t.Errorf("%+v, %v", trust, err)
	}
}

// A directory that others may change has no key of a CA.
func TestPoolOfOthers(t *testing.T) {
	for _, name := range []string{".", dirPool} {
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(dir, dirPool), 0o700), os.Chmod(filepath.Join(dir, name), 0o777)); err != nil {
			t.Fatal(err)
		}
		if err := NewPool(dir, "login", Submit); err == nil || !strings.Contains(err.Error(), "may be written by others") {
			t.Errorf("%s: %v", name, err)
		}
		if files, err := filepath.Glob(dir + "/*/*"); err != nil || len(files) > 0 {
			t.Errorf("%s: %q is there, %v", name, files, err)
		}
	}
}

func TestIssue(t *testing.T) {
	dir, p := newPool(t)
	first, c := issue(t, p, "Node1", Execute)
	if c.DNSNames[0] != "node1" || c.NotAfter.Before(time.Now().Add(lifeOfHost-time.Hour)) {
		t.Errorf("%v until %v", c.DNSNames, c.NotAfter)
	}
	again, _ := issue(t, p, "node1", Execute)
	if first == again {
		t.Error("two certificates are the same")
	}
	if _, err := p.Issue("../x", Execute); err == nil {
		t.Error("a certificate for no host")
	}
	if n, err := p.Revoke("NODE1"); n != 2 || err != nil {
		t.Errorf("revoked %d, %v; want 2", n, err)
	}
	if _, err := p.Revoke("node1"); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("revoked again: %v", err)
	}
	if _, err := p.Revoke("node2"); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("a host without one: %v", err)
	}
	issue(t, p, "node1", Execute)
	list, err := p.Issued()
	if err != nil || len(list) != 4 || list[0].Revoked || !list[1].Revoked || !list[2].Revoked || list[3].Revoked {
		t.Errorf("%+v, %v", list, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "peers"))
	if err != nil || strings.Count(string(text), "node1 execute\n") != 1 || !strings.HasPrefix(string(text), "login submit\n") {
		t.Errorf("%s, %v", text, err)
	}
	// The file is the administrator's too: with a mistake in it nothing is added.
	write(t, filepath.Join(dir, "peers"), string(text)+"oops", 0o644)
	if _, err := p.Issue("node3", Execute); err == nil || !strings.Contains(err.Error(), "peers:5: want what the host may do") {
		t.Errorf("beside a mistake: %v", err)
	}
}

func TestBelieve(t *testing.T) {
	_, p := newPool(t)
	nodeText, node := issue(t, p, "node", Execute)
	_, login := issue(t, p, "login", Submit)
	_, both := issue(t, p, "both", Submit|Execute)
	_, p2 := newPool(t)
	_, foreign := issue(t, p2, "login", Submit)
	// Without a name a host would be taken for this one.
	nameless, odd := *login, *login
	nameless.DNSNames, odd.DNSNames = nil, []string{"*.example.org", "LOGIN"}
	now := time.Now()
	for _, test := range []struct {
		peers string // of node; "-": there is none
		cert  *x509.Certificate
		role  Role
		at    time.Time
		want  string // empty: it is believed
	}{
		{"-", login, Submit, now, ""},
		{"-", both, Submit, now, ""},
		{"-", node, Submit, now, "not the role submit"},
		{"-", login, Execute, now, "not the role execute"},
		{"-", foreign, Submit, now, "unknown authority"},
		{"-", &nameless, Submit, now, "not the name of a host"},
		{"-", &odd, Submit, now, "not the name of a host"},
		{"other submit", &nameless, Submit, now, "has no line"},
		{"-", login, Submit, now.Add(lifeOfHost + time.Hour), "has expired"},
		{"-", login, Submit, now.Add(-2 * time.Hour), "not valid before"},
		{"login submit", login, Submit, now, ""},
		{"login submit", both, Submit, now, "has no line"},
		{"login execute", login, Submit, now, "the line of \"login\" in the file peers has not the role submit"},
		{"both execute", both, Submit, now, "has not the role submit"},
		{"node execute,submit", node, Submit, now, "the certificate of \"node\" has not the role submit"},
		{"revoked " + serialOf(login), login, Submit, now, "is revoked"},
		{"revoked " + strings.ToUpper(serialOf(login)), login, Submit, now, "is revoked"},
		{"revoked " + serialOf(login), both, Submit, now, ""},
	} {
		dir, files := on(t, nodeText)
		if test.peers != "-" {
			write(t, filepath.Join(dir, "peers"), test.peers+"\n", 0o644)
		}
		trust, err := files.Load(now)
		if err != nil {
			t.Fatal(err)
		}
		line, err := trust.Believe([]*x509.Certificate{test.cert}, test.role, test.at)
		switch {
		case test.want == "" && (err != nil || line.Name != nameOf(test.cert)):
			t.Errorf("%q, %s: %v, %v", test.peers, nameOf(test.cert), line, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%q, %s: %v; want %s", test.peers, nameOf(test.cert), err, test.want)
		}
	}
}

// A site's own CA: who may do what stands in the file peers alone.
func TestSite(t *testing.T) {
	_, p := newPool(t)
	nodeText, _ := issue(t, p, "node", 0)
	_, login := issue(t, p, "login", 0)
	dir := t.TempDir()
	certs, key := split([]byte(nodeText))
	for name, text := range map[string][]byte{"cert": firstOf(certs), "ca": restOf(certs), "key": key} {
		write(t, filepath.Join(dir, name), string(text), 0o600)
	}
	f := FilesIn(dir)
	f.Cert = filepath.Join(dir, "cert")
	now := time.Now()
	if _, err := f.Load(now); err == nil || !strings.Contains(err.Error(), "belong together") {
		t.Errorf("a part of it: %v", err)
	}
	f.Key, f.CA = filepath.Join(dir, "key"), filepath.Join(dir, "ca")
	if _, err := f.Load(now); err == nil || !strings.Contains(err.Error(), "no line says what this host may do, node") {
		t.Errorf("without a line: %v", err)
	}
	write(t, filepath.Join(dir, "peers"), "node execute\n", 0o644)
	trust, err := f.Load(now)
	if err != nil || !trust.May(Execute) || trust.May(Submit) {
		t.Fatalf("%+v, %v", trust, err)
	}
	if _, err := trust.Believe([]*x509.Certificate{login}, Submit, now); err == nil || !strings.Contains(err.Error(), "no line") {
		t.Errorf("a host without a line: %v", err)
	}
	write(t, filepath.Join(dir, "peers"), "node execute\nlogin submit\n", 0o644)
	if trust, err = f.Load(now); err != nil {
		t.Fatal(err)
	}
	if _, err := trust.Believe([]*x509.Certificate{login}, Submit, now); err != nil {
		t.Error(err)
	}
	several := *login
	several.DNSNames = []string{"*.example.org", "LOGIN"}
	if line, err := trust.Believe([]*x509.Certificate{&several}, Submit, now); err != nil || line.Name != "login" {
		t.Errorf("one name of several has a line: %v, %v", line, err)
	}
	// Another chain of the same certificate, as when a CA between them was renewed.
	k := NewKeeper(func() Files { return f })
	for range 2 {
		if changed, err := k.Reload(); err != nil || len(changed) == 0 {
			t.Errorf("%v, %v", changed, err)
		}
		write(t, filepath.Join(dir, "cert"), string(certs), 0o600)
	}
	write(t, filepath.Join(dir, fileHost), nodeText, 0o600)
	if _, err := f.Load(now); err == nil || !strings.Contains(err.Error(), "one of them is to go") {
		t.Errorf("beside a host.pem: %v", err)
	}
}

func TestIdentityMistakes(t *testing.T) {
	_, p := newPool(t)
	text, _ := issue(t, p, "node", Execute)
	other, _ := issue(t, p, "node", Execute)
	noRole, _ := issue(t, p, "bare", 0)
	certs, key := split([]byte(text))
	_, otherKey := split([]byte(other))
	_, p2 := newPool(t)
	foreign, _ := issue(t, p2, "node", Execute)
	foreignCerts, _ := split([]byte(foreign))
	for what, test := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"others may read it": {text, 0o640, "chmod 600"},
		"others may write":   {text, 0o602, "may be written by others"},
		"nothing in it":      {"", 0o600, "want a key, a certificate"},
		"no key":             {string(certs), 0o600, "want a key, a certificate"},
		"another's key":      {string(otherKey) + string(certs), 0o600, "private key does not match"},
		"another CA":         {string(key) + string(firstOf(certs)) + string(restOf(foreignCerts)), 0o600, "unknown authority"},
		"no role":            {noRole, 0o600, "has no role"},
		"too much":           {text + strings.Repeat("#\n", maxFile), 0o600, "has more than"},
	} {
		dir, files := on(t, test.text)
		if err := os.Chmod(filepath.Join(dir, fileHost), test.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Load(time.Now()); err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), files.Host+": ") {
			t.Errorf("%s: %v; want %s", what, err, test.want)
		}
	}
	none := FilesIn(t.TempDir())
	if trust, err := none.Load(time.Now()); trust != nil || err != nil {
		t.Errorf("no file: %v, %v", trust, err)
	}
}

// What will not be valid any more is told sixty days before, and what is not, is used all
// the same: the others will say so.
func TestWarnings(t *testing.T) {
	_, p := newPool(t)
	text, c := issue(t, p, "node", Execute)
	_, files := on(t, text)
	for at, want := range map[time.Time]string{
		time.Now():                         "",
		c.NotAfter.Add(-early - time.Hour): "",
		c.NotAfter.Add(-early + time.Hour): "expires in 59 days",
		c.NotAfter.Add(-time.Hour):         "expires in 0 days",
		c.NotAfter.Add(time.Hour):          "has expired",
		c.NotBefore.Add(-time.Hour):        "is not valid before",
	} {
		trust, err := files.Load(at)
		if err != nil {
			t.Errorf("%v: %v", at, err)
			continue
		}
		if got := strings.Join(trust.Warnings(at), "\n"); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%v: %q; want %q", at, got, want)
		}
	}
}

// With a mistake in the files, what was in force stays so; it is told once.
func TestReload(t *testing.T) {
	_, p := newPool(t)
	text, _ := issue(t, p, "node", Execute)
	dir, files := on(t, text)
	k := NewKeeper(func() Files { return files })
	changed, err := k.Reload()
	if err != nil || len(changed) != 1 || !strings.Contains(changed[0], "this host is node: roles=execute") {
		t.Fatalf("%v, %v", changed, err)
	}
	before, woken := k.Current(), k.Changed()
	write(t, filepath.Join(dir, "peers"), "login\n", 0o644)
	if _, err := k.Reload(); err == nil {
		t.Error("a mistake is accepted")
	}
	if changed, err := k.Reload(); err != nil || changed != nil {
		t.Errorf("told again: %v, %v", changed, err)
	}
	if k.Current() != before || len(k.Problems()) != 1 || !strings.Contains(k.Problems()[0], "pool not in force: ") {
		t.Errorf("after a mistake: %v", k.Problems())
	}
	select {
	case <-woken:
		t.Error("a mistake wakes up")
	default:
	}
	write(t, filepath.Join(dir, "peers"), "login submit\n", 0o644)
	if changed, err := k.Reload(); err != nil || len(changed) != 1 || changed[0] != "login: added: login:6445 submit users=*,!root" {
		t.Errorf("%v, %v", changed, err)
	}
	<-woken
	// While an editor writes the file, nothing that was revoked is believed.
	write(t, filepath.Join(dir, "peers"), "login submit\nrevoked 5fea\n", 0o644)
	if changed, err := k.Reload(); err != nil || len(changed) != 1 || changed[0] != "certificate 5fea: added: revoked" {
		t.Errorf("%v, %v", changed, err)
	}
	before = k.Current()
	write(t, filepath.Join(dir, "peers"), "", 0o644)
	if _, err := k.Reload(); err == nil || !strings.Contains(err.Error(), "they stay revoked") || k.Current() != before {
		t.Errorf("an empty file lifts what is revoked: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "peers")); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Reload(); err != nil || k.Current() != before {
		t.Errorf("a file that is gone lifts what is revoked: %v", err)
	}
	write(t, filepath.Join(dir, "peers"), "login submit\n", 0o644)
	if changed, err := k.Reload(); err != nil || len(changed) != 1 || changed[0] != "certificate 5fea: removed" {
		t.Errorf("%v, %v", changed, err)
	}
	again, _ := issue(t, p, "node", Execute)
	write(t, filepath.Join(dir, fileHost), again, 0o600)
	if changed, err := k.Reload(); err != nil || len(changed) != 1 {
		t.Errorf("a new certificate: %v, %v", changed, err)
	}
	if err := os.Remove(filepath.Join(dir, fileHost)); err != nil {
		t.Fatal(err)
	}
	if changed, err := k.Reload(); err != nil || len(changed) != 1 || k.Current() != nil || k.Current().May(Execute) || len(k.Problems()) != 0 {
		t.Errorf("without one: %v, %v", changed, err)
	}
}
