package peer

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"paddock/execd/api"
)

// scheme is that of the URIs in certificates that name the roles of a host.
const scheme = "paddock"

// Identity is what a host is known by to others: its key and certificate, and the
// certificates of those whom it believes.
type Identity struct {
	Roles Role // in the certificate; 0: a site's own certificate says nothing of them
	cert  tls.Certificate
	leaf  *x509.Certificate
	roots *x509.CertPool
}

// readKey reads a file with a private key, which nobody but its owner may read. A site's
// own may be read by a group.
func readKey(file string, group bool) ([]byte, error) {
	forbidden := fs.FileMode(0o077)
	if group {
		forbidden = 0o027
	}
	return read(file, forbidden)
}

// read reads a file that nobody else may write, or has forbidden rights for.
func read(file string, forbidden fs.FileMode) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = api.Untrusted(info, os.Geteuid())
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", file, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file", file)
	case info.Mode().Perm()&forbidden != 0:
		return nil, fmt.Errorf("%s: its mode is %04o, and others must have no right to a key: chmod 600", file, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", file, err)
	case len(data) > maxFile:
		return nil, fmt.Errorf("%s: has more than %d bytes", file, maxFile)
	}
	return data, nil
}

// identity reads what this host is known by. Without any file it is nil.
func (f *Files) identity(now time.Time) (*Identity, error) {
	if f.Cert == "" && f.Key == "" && f.CA == "" {
		data, err := readKey(f.Host, false)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		certs, key := split(data)
		return newIdentity(f.Host, key, firstOf(certs), restOf(certs), false, now)
	}
	if f.Cert == "" || f.Key == "" || f.CA == "" {
		return nil, errors.New("TLS_CERT_FILE, TLS_KEY_FILE and TLS_CA_FILE belong together: one is not set")
	}
	if _, err := os.Stat(f.Host); err == nil {
		return nil, fmt.Errorf("%s is there, and TLS_CERT_FILE too: one of them is to go", f.Host)
	}
	key, err := readKey(f.Key, true)
	if err != nil {
		return nil, err
	}
	cert, err := read(f.Cert, 0)
	if err != nil {
		return nil, err
	}
	ca, err := read(f.CA, 0)
	if err != nil {
		return nil, err
	}
	return newIdentity(f.Cert, key, cert, ca, true, now)
}

// split divides a file into its certificates and its key.
func split(data []byte) (certs, key []byte) {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return certs, key
		}
		if text := pem.EncodeToMemory(block); block.Type == "CERTIFICATE" {
			certs = append(certs, text...)
		} else {
			key = append(key, text...)
		}
		data = rest
	}
}

// firstOf returns the first certificate, and restOf those behind it.
func firstOf(certs []byte) []byte {
	if block, _ := pem.Decode(certs); block != nil {
		return pem.EncodeToMemory(block)
	}
	return nil
}

func restOf(certs []byte) []byte { return bytes.TrimPrefix(certs, firstOf(certs)) }

// newIdentity makes an identity of its parts, in PEM. Site says that a certificate may
// name no roles. That it has expired is no mistake here: others will say so.
func newIdentity(file string, key, cert, ca []byte, site bool, now time.Time) (*Identity, error) {
	wrong := func(format string, args ...any) error { return fmt.Errorf("%s: %w", file, fmt.Errorf(format, args...)) }
	if len(cert) == 0 || len(key) == 0 || len(ca) == 0 {
		return nil, wrong("want a key, a certificate and that of its CA, in PEM")
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, wrong("%s", strings.TrimPrefix(err.Error(), "tls: "))
	}
	id := &Identity{cert: pair, leaf: pair.Leaf, roots: x509.NewCertPool()}
	if !id.roots.AppendCertsFromPEM(ca) {
		return nil, wrong("the certificate of the CA cannot be read")
	}
	if id.Roles, err = rolesOf(id.leaf); err != nil {
		return nil, wrong("%w", err)
	}
	if id.Roles == 0 && !site {
		return nil, wrong("the certificate has no role: it was not made by execd -pool")
	}
	if len(id.leaf.DNSNames) == 0 {
		return nil, wrong("the certificate has no name of a host")
	}
	if err := id.verify(id.leaf, pair.Certificate[1:], clamp(now, id.leaf)); err != nil {
		return nil, wrong("%w", err)
	}
	return id, nil
}

// clamp returns the time nearest to now at which a certificate is valid.
func clamp(now time.Time, c *x509.Certificate) time.Time {
	switch {
	case now.After(c.NotAfter):
		return c.NotAfter
	case now.Before(c.NotBefore):
		return c.NotBefore
	}
	return now
}

// verify returns why a certificate is not believed at a time.
func (id *Identity) verify(c *x509.Certificate, between [][]byte, now time.Time) error {
	pool := x509.NewCertPool()
	for _, der := range between {
		if ca, err := x509.ParseCertificate(der); err == nil {
			pool.AddCert(ca)
		}
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		_, err := c.Verify(x509.VerifyOptions{Roots: id.roots, Intermediates: pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
		if err != nil {
			return errors.New(strings.TrimPrefix(err.Error(), "x509: "))
		}
	}
	return nil
}

// rolesOf returns the roles in a certificate.
func rolesOf(c *x509.Certificate) (r Role, err error) {
	for _, uri := range c.URIs {
		if uri.Scheme != scheme {
			continue
		}
		one, ok := parseRoles(uri.Opaque)
		if !ok {
			return 0, fmt.Errorf("the certificate has the role %q, which is not known", api.Short(uri.Opaque))
		}
		r |= one
	}
	return r, nil
}

// serialOf returns the serial number of a certificate as it is written in files.
func serialOf(c *x509.Certificate) string { return c.SerialNumber.Text(16) }

// early is how long before its end a certificate is spoken of.
const early = 60 * 24 * time.Hour

// expiry returns what is to be said of the time that a certificate is valid; empty:
// nothing yet.
func expiry(c *x509.Certificate, now time.Time) string {
	left := c.NotAfter.Sub(now)
	switch {
	case left <= 0:
		return "has expired at " + c.NotAfter.Local().Format(time.DateTime)
	case now.Before(c.NotBefore):
		return "is not valid before " + c.NotBefore.Local().Format(time.DateTime)
	case left < early:
		return fmt.Sprintf("expires in %d days, at %s", left/(24*time.Hour), c.NotAfter.Local().Format(time.DateTime))
	}
	return ""
}
