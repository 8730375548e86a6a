package peer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// The files below the directory of the configuration.
const (
	fileHost  = "host.pem" // what this host is known by
	filePeers = "peers"
	dirPool   = "pool" // of the host that makes the certificates
	fileCA    = "ca.pem"
	fileCAKey = "ca.key"
	// fileIssued has a line for each certificate: serial number, name, roles and end.
	fileIssued = "issued"
	fileLock   = "lock"
)

// For how long certificates are valid.
const (
	lifeOfCA   = 25 * 365 * 24 * time.Hour
	lifeOfHost = 5 * 365 * 24 * time.Hour
	// slack is how far the clock of another host may be behind.
	slack = time.Hour
)

// Pool is the CA of a pool, on the host where its key is.
type Pool struct {
	dir  string // of the configuration
	ca   *x509.Certificate
	key  crypto.Signer
	lock *os.File
}

// Issued is a certificate that the CA has made.
type Issued struct {
	Serial  string
	Name    string
	Roles   string
	Until   time.Time
	Revoked bool
}

// NewPool makes the CA of a pool below the directory of the configuration, and what this
// host is known by in it. What is there is not replaced.
func NewPool(dir, name string, roles Role) error {
	host := filepath.Join(dir, fileHost)
	for _, path := range []string{filepath.Join(dir, dirPool, fileCA), host} {
		_, err := os.Lstat(path)
		if err == nil {
			err = fmt.Errorf("%s is there already", path)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot make a pool: %w", err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make a pool: %w", err)
	}
	p, err := lockPool(dir)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.makeCA(name); err != nil {
		return fmt.Errorf("cannot make a pool: %w", err)
	}
	text, err := p.Issue(name, roles)
	if err != nil {
		return err
	}
	return atomicfile.WriteDurable(host, text, 0o600)
}

// lockPool opens the directory of a pool, which it makes if it is not there.
func lockPool(dir string) (*Pool, error) {
	path := filepath.Join(dir, dirPool)
	if err := atomicfile.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	for _, path := range []string{dir, path} { // who could replace the key would be the CA
		info, err := os.Stat(path)
		if err == nil {
			err = api.Untrusted(info, os.Geteuid())
		}
		if err != nil {
			return nil, fmt.Errorf("cannot change the pool: %s: %w", path, err)
		}
	}
	lock, err := spool.LockFile(filepath.Join(path, fileLock))
	if errors.Is(err, spool.ErrLocked) {
		return nil, errors.New("cannot change the pool: another execd -pool is at it")
	}
	if err != nil {
		return nil, err
	}
	return &Pool{dir: dir, lock: lock}, nil
}

// OpenPool opens the CA of a pool. Close follows.
func OpenPool(dir string) (*Pool, error) {
	if _, err := os.Stat(filepath.Join(dir, dirPool, fileCA)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot find %s: the pool is made by execd -pool new, on one host", filepath.Join(dir, dirPool, fileCA))
	}
	p, err := lockPool(dir)
	if err != nil {
		return nil, err
	}
	if err := p.load(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close gives the lock of the pool back.
func (p *Pool) Close() { _ = p.lock.Close() }

func (p *Pool) path(name string) string { return filepath.Join(p.dir, dirPool, name) }

// makeCA makes key and certificate of the CA. The certificate comes last: with it the CA
// is there.
func (p *Pool) makeCA(host string) error {
	key, keyText, err := newKey()
	if err != nil {
		return err
	}
	serial, err := newSerial()
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Paddock pool of " + host},
		NotBefore: now.Add(-slack), NotAfter: now.Add(lifeOfCA), IsCA: true, MaxPathLenZero: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	if p.ca, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	p.key = key
	if err := atomicfile.WriteDurable(p.path(fileCAKey), keyText, 0o600); err != nil {
		return err
	}
	return atomicfile.WriteDurable(p.path(fileCA), certText(p.ca), 0o644)
}

// load reads key and certificate of the CA.
func (p *Pool) load() error {
	text, err := read(p.path(fileCA), 0)
	if err != nil {
		return err
	}
	key, err := readKey(p.path(fileCAKey), false)
	if err != nil {
		return err
	}
	certBlock, _ := pem.Decode(text)
	keyBlock, _ := pem.Decode(key)
	if certBlock == nil || keyBlock == nil {
		return fmt.Errorf("%s: the key or the certificate of the CA is not in PEM", p.path(""))
	}
	if p.ca, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return fmt.Errorf("%s: %w", p.path(fileCA), err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return fmt.Errorf("%s: %w", p.path(fileCAKey), err)
	}
	signer, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !signer.PublicKey.Equal(p.ca.PublicKey) {
		return fmt.Errorf("%s: it is not the key of %s", p.path(fileCAKey), fileCA)
	}
	p.key = signer
	return nil
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func newSerial() (*big.Int, error) {
	bits, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, err
	}
	return bits.SetBit(bits, 126, 1), nil // never short, and never zero
}

func certText(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// Issue makes key and certificate of a host, and returns them with the certificate of
// the CA: the text of its host.pem, which is kept nowhere here. The host gets a line in
// the file peers of this host unless it has one.
func (p *Pool) Issue(name string, roles Role) ([]byte, error) {
	name = strings.ToLower(name)
	if !isHostname(name) {
		return nil, fmt.Errorf("cannot make a certificate: %q is no name of a host", name)
	}
	if err := p.addLine(name, roles); err != nil {
		return nil, err
	}
	text, err := p.sign(name, roles)
	if err != nil {
		return nil, fmt.Errorf("cannot make a certificate: %w", err)
	}
	return text, nil
}

// sign makes a certificate. It is in the file issued before anybody has it, so that it
// can be revoked.
func (p *Pool) sign(name string, roles Role) ([]byte, error) {
	key, keyText, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	until := now.Add(lifeOfHost)
	if until.After(p.ca.NotAfter) {
		until = p.ca.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: now.Add(-slack), NotAfter: until, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, w := range roleWords {
		if roles&w.role != 0 {
			template.URIs = append(template.URIs, &url.URL{Scheme: scheme, Opaque: w.word})
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.ca, key.Public(), p.key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	line := fmt.Sprintf("%s %s %s %s\n", serialOf(cert), name, roles, cert.NotAfter.UTC().Format(time.RFC3339))
	if err := extend(p.path(fileIssued), line, 0o600); err != nil {
		return nil, err
	}
	return append(append(keyText, certText(cert)...), certText(p.ca)...), nil
}

// extend adds lines to a file, whole or not at all. When it returns they are durable.
func extend(path, lines string, mode fs.FileMode) error {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(data) > 0 && data[len(data)-1] != '\n' {
		data = append(data, '\n')
	}
	return atomicfile.WriteDurable(path, append(data, lines...), mode)
}

// peers reads the file peers of this host.
func (p *Pool) peers() (*Peers, error) {
	f := FilesIn(p.dir)
	return f.peers()
}

// addLine gives a host a line in the file peers, unless it has one.
func (p *Pool) addLine(name string, roles Role) error {
	peers, err := p.peers()
	if err != nil {
		return err
	}
	if peers != nil && peers.find(name) != nil {
		return nil
	}
	return extend(filepath.Join(p.dir, filePeers), fmt.Sprintf("%s %s\n", name, roles), 0o644)
}

// Issued returns all certificates, the oldest first.
func (p *Pool) Issued() ([]Issued, error) {
	data, err := os.ReadFile(p.path(fileIssued))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	peers, err := p.peers()
	if err != nil {
		return nil, err
	}
	var list []Issued
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) != 4 {
			return nil, fmt.Errorf("%s: %q is not the line of a certificate", p.path(fileIssued), strings.TrimSpace(line))
		}
		until, err := time.Parse(time.RFC3339, words[3])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.path(fileIssued), err)
		}
		list = append(list, Issued{words[0], words[1], words[2], until, peers != nil && peers.revoked[words[0]]})
	}
	return list, nil
}

// Revoke adds the certificates of a host to those in the file peers that are not
// believed, and returns how many these are.
func (p *Pool) Revoke(name string) (n int, err error) {
	list, err := p.Issued()
	if err != nil {
		return 0, err
	}
	known, lines := false, ""
	for _, c := range list {
		if c.Name != strings.ToLower(name) {
			continue
		}
		known = true
		if !c.Revoked {
			lines += fmt.Sprintf("revoked %s # %s\n", c.Serial, c.Name)
			n++
		}
	}
	switch {
	case !known:
		return 0, fmt.Errorf("cannot revoke: no certificate was made for %q", name)
	case n == 0:
		return 0, fmt.Errorf("cannot revoke: the certificates of %s are revoked already", name)
	}
	return n, extend(filepath.Join(p.dir, filePeers), lines, 0o644)
}
