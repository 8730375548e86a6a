package peer

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"paddock/execd/api"
)

// Files are where a host has what it is known by, and the file peers.
type Files struct {
	Dir           string // of the configuration
	Host          string // key, certificate and CA, as execd -pool prints them
	Cert, Key, CA string // instead, those of a site's own CA
	Peers         string
}

// FilesIn returns the files in the directory of the configuration.
func FilesIn(dir string) Files {
	return Files{Dir: dir, Host: filepath.Join(dir, fileHost), Peers: filepath.Join(dir, filePeers)}
}

// peers reads the file peers; nil: there is none.
func (f *Files) peers() (*Peers, error) {
	data, err := read(f.Peers, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parsePeers(f.Peers, data, func(name string) (map[string]string, error) {
		file := filepath.Join(f.Dir, name)
		data, err := read(file, 0)
		if err != nil {
			return nil, err
		}
		return parseNames(file, data)
	})
}

// Trust is what a host believes of others, and they of it. It never changes: another
// replaces it.
type Trust struct {
	Self  *Identity
	peers *Peers // nil: there is no such file, and certificates alone say what hosts may do
	roles Role   // of this host
	site  bool   // a site's own CA has made the certificates, which name no roles
}

// Load reads the files. Without a key and certificate it returns nil: the host is in no
// pool.
func (f *Files) Load(now time.Time) (*Trust, error) {
	self, err1 := f.identity(now)
	peers, err2 := f.peers()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if self == nil {
		return nil, nil
	}
	t := &Trust{Self: self, peers: peers, site: f.Cert != ""}
	line := t.lineOf(self.leaf)
	switch {
	case self.Roles != 0:
		t.roles = self.Roles
	case line != nil:
		t.roles = line.Roles
	}
	if t.roles == 0 {
		return nil, fmt.Errorf("%s: no line says what this host may do, %s, and its certificate does not either", f.Peers, strings.Join(self.leaf.DNSNames, ", "))
	}
	return t, nil
}

// May reports whether this host has a role.
func (t *Trust) May(r Role) bool { return t != nil && t.roles&r != 0 }

// Name returns the name of this host in the pool.
func (t *Trust) Name() string { return nameOf(t.Self.leaf) }

// nameOf returns the first name in a certificate.
func nameOf(c *x509.Certificate) string {
	if len(c.DNSNames) == 0 {
		return ""
	}
	return strings.ToLower(c.DNSNames[0])
}

// lineOf returns the line of the host that a certificate names; nil: it has none.
func (t *Trust) lineOf(c *x509.Certificate) *Peer {
	if t.peers == nil {
		return nil
	}
	for _, name := range c.DNSNames {
		if p := t.peers.find(name); p != nil {
			return p
		}
	}
	return nil
}

// refused says why a host is not believed.
func refused(format string, args ...any) error { return api.Errorf(api.CodeDenied, format, args...) }

// Believe returns the host that a certificate names if it has a role: the certificate
// was made by the CA, is valid now and not revoked, and it and the file peers give the
// host the role.
func (t *Trust) Believe(chain []*x509.Certificate, role Role, now time.Time) (*Peer, error) {
	c := chain[0]
	name := nameOf(c)
	if text := expiry(c, now); now.After(c.NotAfter) || now.Before(c.NotBefore) {
		return nil, refused("denied: the certificate of %.60q %s", name, text)
	}
	if t.peers != nil && t.peers.revoked[serialOf(c)] {
		return nil, refused("denied: the certificate of %.60q is revoked, serial number %s", name, serialOf(c))
	}
	var between [][]byte
	for _, c := range chain[1:] {
		between = append(between, c.Raw)
	}
	if err := t.Self.verify(c, between, now); err != nil {
		return nil, refused("denied: the certificate of %.60q is not believed: %v", name, err)
	}
	roles, err := rolesOf(c)
	if err != nil {
		return nil, refused("denied: %q: %v", name, err)
	}
	line := t.lineOf(c)
	switch {
	case roles&role == 0 && (roles != 0 || !t.site):
		return nil, refused("denied: the certificate of %.60q has not the role %v", name, role)
	case line == nil && (t.peers != nil && len(t.peers.list) > 0 || t.site):
		return nil, refused("denied: %.60q has no line in the file peers", name)
	case line == nil && !isHostname(name): // an empty one would stand for this host
		return nil, refused("denied: the certificate has not the name of a host, but %.60q", name)
	case line == nil:
		return &Peer{Name: name, Roles: roles, users: everybody}, nil
	case line.Roles&role == 0:
		return nil, refused("denied: the line of %q in the file peers has not the role %v", line.Name, role)
	}
	return line, nil
}

// Member returns this host in its pool; nil: it is in none.
func (t *Trust) Member() *api.Member {
	if t == nil {
		return nil
	}
	return &api.Member{Name: t.Name(), Roles: t.roles.String(), Until: t.Self.leaf.NotAfter}
}

// Executors returns the hosts that may be asked to execute, by name.
func (t *Trust) Executors() (list []Peer) {
	if !t.May(Submit) || t.peers == nil {
		return nil
	}
	self := t.lineOf(t.Self.leaf)
	for i := range t.peers.list {
		if p := &t.peers.list[i]; p.Roles&Execute != 0 && p != self {
			list = append(list, *p)
		}
	}
	slices.SortFunc(list, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Executor returns a host that may be asked to execute.
func (t *Trust) Executor(name string) (*Peer, error) {
	switch {
	case t == nil:
		return nil, api.Errorf(api.CodeRejected, "cannot ask %.60q: this host is in no pool", name)
	case !t.May(Submit):
		return nil, refused("denied: this host may not submit to others")
	}
	for _, p := range t.Executors() {
		if strings.EqualFold(p.Name, name) {
			return &p, nil
		}
	}
	return nil, api.Errorf(api.CodeNotFound, "the file peers has no host %.60q that executes", name)
}

// Warnings returns what an administrator should look at before it is too late.
func (t *Trust) Warnings(now time.Time) []string {
	if t == nil {
		return nil
	}
	if text := expiry(t.Self.leaf, now); text != "" {
		return []string{fmt.Sprintf("the certificate of this host in the pool %s", text)}
	}
	return nil
}

// Keeper has the Trust in force. Its methods may be called from anywhere.
type Keeper struct {
	files    func() Files
	current  atomic.Pointer[Trust]
	mistakes atomic.Pointer[string] // of the last reading

	mu      sync.Mutex    // one Reload at a time
	changed chan struct{} // guarded by mu; closed at the next change
}

// NewKeeper returns a keeper of files, which may be others at each reading. Nothing is in
// force before Reload.
func NewKeeper(files func() Files) *Keeper {
	k := &Keeper{files: files, changed: make(chan struct{})}
	k.mistakes.Store(new(string))
	return k
}

// Current returns the Trust in force; nil: the host is in no pool.
func (k *Keeper) Current() *Trust { return k.current.Load() }

// Submitter returns the host at the other end of a connection if it may submit as of now:
// what was let in may not be believed any more.
func (k *Keeper) Submitter(c *Conn) (*Peer, error) {
	t := k.Current()
	if !t.May(Execute) {
		return nil, refused("denied: this host executes no work of others")
	}
	now := time.Now()
	if b := c.believed.Load(); b != nil && b.trust == t && now.Before(c.Chain[0].NotAfter) {
		return b.line, nil
	}
	line, err := t.Believe(c.Chain, Submit, now)
	if err == nil {
		c.believed.Store(&belief{t, line})
	}
	return line, err
}

// Changed returns a channel that is closed at the next change.
func (k *Keeper) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// Reload reads the files again. With a mistake in them everything stays as it was. It
// returns what has changed, a line each; the same mistakes are told once. A file peers
// that is gone, or empty, is a mistake where it has revoked certificates: an editor may be
// about to write it, and without it they would be believed again.
func (k *Keeper) Reload() (changed []string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.files()
	t, err := f.Load(time.Now())
	if was := k.current.Load(); err == nil && t != nil && t.peers.isEmpty() && was != nil && was.peers != nil && len(was.peers.revoked) > 0 {
		err = fmt.Errorf("%s: it says nothing any more, and has revoked certificates: they stay revoked until execd is started again", f.Peers)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if before := *k.mistakes.Swap(&text); err != nil {
		if text == before {
			return nil, nil
		}
		return nil, err
	}
	changed = differences(k.current.Load(), t)
	if len(changed) > 0 {
		k.current.Store(t)
		close(k.changed)
		k.changed = make(chan struct{})
	}
	return changed, nil
}

// Problems returns what an administrator should look at, a line each.
func (k *Keeper) Problems() []string {
	if text := *k.mistakes.Load(); text != "" {
		return strings.Split("pool not in force: "+strings.ReplaceAll(text, "\n", "\npool not in force: "), "\n")
	}
	return k.Current().Warnings(time.Now())
}

// differences compares two states, a line for each thing.
func differences(old, now *Trust) (changed []string) {
	switch {
	case now == nil && old == nil:
		return nil
	case now == nil:
		return []string{"this host is in no pool any more"}
	case old == nil || !old.Self.equal(now.Self) || old.roles != now.roles || old.site != now.site:
		changed = append(changed, fmt.Sprintf("this host is %s: roles=%v serial=%s until=%s", now.Name(), now.roles, serialOf(now.Self.leaf), now.Self.leaf.NotAfter.Local().Format(time.DateTime)))
	}
	before, after := old.lines(), now.lines()
	for _, name := range slices.Sorted(maps.Keys(after)) {
		switch text, was := before[name]; {
		case !was:
			changed = append(changed, name+": added: "+after[name])
		case text != after[name]:
			changed = append(changed, name+": "+text+" -> "+after[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, is := after[name]; !is {
			changed = append(changed, name+": removed")
		}
	}
	return changed
}

// lines returns the file peers as it is told of: what stands there, by what it is about.
func (t *Trust) lines() map[string]string {
	lines := map[string]string{}
	if t == nil || t.peers == nil {
		return lines
	}
	for i := range t.peers.list {
		p := &t.peers.list[i]
		text := fmt.Sprintf("%s %v", p.Address, p.Roles)
		if p.Roles&Submit != 0 {
			text += " users=" + p.users.String()
		}
		if p.Zstd {
			text += " zstd=yes"
		}
		lines[p.Name] = text
	}
	for serial := range t.peers.revoked {
		lines["certificate "+serial] = "revoked"
	}
	return lines
}

// String describes whose work a host may bring.
func (u *users) String() string {
	if u.names == nil {
		return strings.Join(u.patterns, ",")
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(u.names)) {
		words = append(words, name+">"+u.names[name])
	}
	return strings.Join(words, ",")
}

// equal reports whether two identities are the same.
func (id *Identity) equal(other *Identity) bool {
	return slices.EqualFunc(id.cert.Certificate, other.cert.Certificate, bytes.Equal) && id.roots.Equal(other.roots)
}
