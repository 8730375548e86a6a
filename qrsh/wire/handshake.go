package wire

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Token is the secret by which the session authenticates itself, for one connection.
type Token [TokenSize]byte

// NewToken returns a token that nobody can guess.
func NewToken() (t Token) {
	_, _ = rand.Read(t[:]) // it never fails
	return t
}

// Fingerprint is the SHA-256 of a certificate.
type Fingerprint [sha256.Size]byte

// NewIdentity makes a key for one session, with its certificate.
func NewIdentity() (tls.Certificate, Fingerprint, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, Fingerprint{}, fmt.Errorf("cannot make a key: %w", err)
	}
	// Only the bytes of the certificate are compared; its fields must merely be valid.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, Fingerprint{}, fmt.Errorf("cannot make a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, sha256.Sum256(der), nil
}

// magic begins a hello.
const magic = "paddock"

// Sizes of the payloads of the handshake.
const (
	helloSize   = len(magic) + 2 + TokenSize + 8*int(streams) + 1
	welcomeSize = 1 + 8*int(streams)
)

// ErrUnauthenticated is matched when a connection does not come from the session.
var ErrUnauthenticated = errors.New("not the session")

// Accept is the client's side of the handshake. It returns the connection for
// Run, and what the session has received. The caller sets a deadline before it
// calls Accept and removes it afterwards. Nobody but the session gets an answer.
// Over a Unix socket no identity is used.
func (l *Link) Accept(conn net.Conn, identity tls.Certificate, token Token) (*Conn, Positions, error) {
	secure, err := guarded(conn, func(below net.Conn) net.Conn {
		return tls.Server(below, &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{identity}, SessionTicketsDisabled: true,
			DynamicRecordSizingDisabled: true,
		})
	})
	if err != nil {
		return nil, Positions{}, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	b, err := readFrame(secure, TypeHello, helloSize)
	if err != nil {
		return nil, Positions{}, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	rest, ok := bytes.CutPrefix(b, []byte(magic))
	if !ok || len(b) != helloSize || subtle.ConstantTimeCompare(rest[2:2+TokenSize], token[:]) != 1 {
		return nil, Positions{}, fmt.Errorf("%w: wrong token", ErrUnauthenticated)
	}
	first, last := rest[0], rest[1]
	if first > LastVersion || last < FirstVersion {
		return nil, Positions{}, fmt.Errorf("the session speaks versions %d to %d of the protocol; here are %d to %d", first, last, FirstVersion, LastVersion)
	}
	has := parsePositions(rest[2+TokenSize:])
	secure.turn = l.replace()
	version := min(last, LastVersion)
	l.mu.Lock()
	l.version = version
	if !l.used {
		// A new client begins at the offsets of the session.
		l.start, l.unwanted = has, rest[len(rest)-1] == 1
	}
	l.mu.Unlock()
	mine, _ := l.positions()
	welcome := appendPositions([]byte{version}, mine)
	if _, err := secure.Write(appendFrame(nil, TypeWelcome, welcome)); err != nil {
		return nil, Positions{}, err
	}
	return secure, has, nil
}

// Offer is the session's side of the handshake. The client must have the
// certificate of the fingerprint, or, over a Unix socket, be of the session's user.
func (l *Link) Offer(conn net.Conn, identity Fingerprint, token Token) (*Conn, Positions, error) {
	secure, err := guarded(conn, func(below net.Conn) net.Conn {
		return tls.Client(below, &tls.Config{
			MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true,
			InsecureSkipVerify: true, //nolint:gosec // no authority signs it: the very bytes are known
			VerifyConnection: func(state tls.ConnectionState) error {
				if got := sha256.Sum256(state.PeerCertificates[0].Raw); got != identity {
					return errors.New("another certificate than the client's")
				}
				return nil
			},
		})
	})
	if err != nil {
		return nil, Positions{}, err
	}
	secure.turn = l.replace()
	mine, ended := l.positions()
	hello := append([]byte(magic), l.least(), LastVersion)
	hello = appendPositions(append(hello, token[:]...), mine)
	hello = append(hello, 0)
	if ended {
		hello[len(hello)-1] = 1
	}
	if _, err := secure.Write(appendFrame(nil, TypeHello, hello)); err != nil {
		return nil, Positions{}, err
	}
	b, err := readFrame(secure, TypeWelcome, welcomeSize)
	if err != nil {
		return nil, Positions{}, err
	}
	if len(b) != welcomeSize || b[0] < l.least() || b[0] > LastVersion {
		return nil, Positions{}, broken("bad welcome of %d bytes", len(b))
	}
	l.mu.Lock()
	l.version = b[0]
	l.mu.Unlock()
	return secure, parsePositions(b[1:]), nil
}

// guarded makes a connection one that nobody else reads or speaks on: by TLS, or, where that is a
// Unix socket, by the kernel, which says whose process is at its other end.
func guarded(conn net.Conn, byTLS func(below net.Conn) net.Conn) (*Conn, error) {
	below := newRecordBuffer(conn)
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return &Conn{below: below, Conn: byTLS(below)}, nil
	}
	if err := SameUser(local); err != nil {
		return nil, err
	}
	return &Conn{below: below, Conn: below}, nil
}

// SameUser returns an error unless the process at the other end of a Unix socket, which has connected it or has
// listened for it, is of this one's user.
func SameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("the other end is of user %d", peer.Uid)
	}
	return nil
}

// least is the lowest version that is accepted.
func (l *Link) least() uint8 {
	if l.ForDaemon {
		return DaemonVersion
	}
	return FirstVersion
}

func appendPositions(b []byte, p Positions) []byte {
	for _, n := range p {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

func parsePositions(b []byte) (p Positions) {
	for s := range p {
		p[s] = binary.BigEndian.Uint64(b[8*s:])
	}
	return p
}
