package spool

import (
	"errors"
	"strconv"
	"strings"
)

// Session is the file session: where the client of an interactive job listens,
// and how the two authenticate each other. Execd writes it before the shepherd
// starts, and anew for each client that comes back; the shepherd passes it on to
// qrsh-session, which is not root and cannot read it.
type Session struct {
	Number      int    // 1 for the first client, one more for each that comes back
	Address     string // host:port, or @ and the name of an abstract Unix socket
	Fingerprint string // SHA-256 of the client's certificate, in hexadecimal; none of a Unix socket
	Token       string // by which the session proves itself, once, in hexadecimal
}

// Keys of the file session.
const (
	keyNumber      = "number"
	keyAddress     = "address"
	keyFingerprint = "fingerprint"
	keyToken       = "token"
)

// sessionHex is the length of fingerprint and token.
const sessionHex = 64

// ParseSession reads the file session.
func ParseSession(b []byte) (Session, error) {
	c, err := ParseConfig(b)
	if err != nil {
		return Session{}, err
	}
	var s Session
	var errs [4]error
	s.Number, errs[0] = c.Int(keyNumber)
	s.Address, errs[1] = c.String(keyAddress)
	if !s.Local() {
		s.Fingerprint, errs[2] = c.String(keyFingerprint)
	}
	s.Token, errs[3] = c.String(keyToken)
	if err := errors.Join(errs[:]...); err != nil {
		return Session{}, err
	}
	return s, s.Check()
}

// Local reports whether the client listens at a Unix socket.
func (s *Session) Local() bool { return LocalAddress(s.Address) }

// LocalAddress reports whether the address of a client is that of a Unix socket.
func LocalAddress(address string) bool { return strings.HasPrefix(address, "@") }

// maxName is how long the name of a Unix socket may be; see unix(7).
const maxName = 107

// Check returns an error unless the session is complete and well-formed.
func (s *Session) Check() error {
	if s.Number < 1 {
		return errors.New("number " + strconv.Itoa(s.Number) + " of a session is not positive")
	}
	if err := s.checkAddress(); err != nil {
		return err
	}
	if !isHex(s.Token) {
		return errors.New("the token of a session is not one")
	}
	return nil
}

// checkAddress looks at where the client listens, and at its certificate's fingerprint.
func (s *Session) checkAddress() error {
	if s.Local() {
		switch {
		case len(s.Address) == 1 || len(s.Address) > maxName || strings.ContainsFunc(s.Address, func(r rune) bool { return r <= ' ' || r > '~' }):
			return errors.New("address " + strconv.Quote(s.Address) + " of a session is not @name")
		case s.Fingerprint != "":
			return errors.New("the fingerprint of a session at a Unix socket is of nothing")
		}
		return nil
	}
	host, port, ok := strings.Cut(s.Address, ":")
	if i := strings.LastIndexByte(s.Address, ':'); i > 0 && s.Address[0] == '[' { // an address of IPv6
		host, port = s.Address[:i], s.Address[i+1:]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case !ok || host == "" || err != nil || n == 0 || len(s.Address) > 300 || strings.ContainsAny(s.Address, " \n\x00"):
		return errors.New("address " + strconv.Quote(s.Address) + " of a session is not host:port")
	case !isHex(s.Fingerprint):
		return errors.New("the fingerprint of a session is not one")
	}
	return nil
}

func isHex(s string) bool {
	return len(s) == sessionHex && strings.Trim(s, "0123456789abcdef") == ""
}

// Append appends the file session.
func (s *Session) Append(b []byte) []byte {
	b = append(b, keyNumber+"="+strconv.Itoa(s.Number)+"\n"...)
	b = append(b, keyAddress+"="+s.Address+"\n"...)
	if !s.Local() {
		b = append(b, keyFingerprint+"="+s.Fingerprint+"\n"...)
	}
	return append(b, keyToken+"="+s.Token+"\n"...)
}

// Messages between the shepherd and qrsh-session, over a socket of datagrams that
// qrsh-session has as descriptor SessionSocket. Each is a word and what belongs to
// it, separated by a blank.
//
//	shepherd     client FILE       the file session: a client is to be connected to
//	             state run|stop    the job runs, or is suspended
//	             deleted           its end is wanted: a client that is lost is not waited for any more
//	             exit STATUS TEXT  it has ended, 128+n for signal n, and why in words, if there is a reason
//	qrsh-session ready             a client is connected to, the first or another
//	             signal N          the client asks for a signal to the job
//	             status N          the command of a job that is a daemon has ended so, as wait(2) has it
//	             lost TEXT         the client is gone and will not be waited for any longer
//	             deaf              nobody reads the job's standard error, or what prolog and epilog say
//	             bye               the client has all of it
const (
	SessionClient  = "client"
	SessionState   = "state"
	SessionDeleted = "deleted"
	SessionExit    = "exit"
	SessionReady   = "ready"
	SessionSignal  = "signal"
	SessionStatus  = "status"
	SessionLost    = "lost"
	SessionDeaf    = "deaf"
	SessionBye     = "bye"
)

// Values of KeySessionLost: what becomes of an interactive job that has lost its
// client for good.
const (
	LostEnd  = "end"  // it gets SIGHUP
	LostStop = "stop" // it is suspended until a client comes
	LostKeep = "keep" // it goes on
)

// The outputs of procedures that KeySessionNotes names.
const (
	NotedStdout = "stdout"
	NotedStderr = "stderr"
)

// Descriptors of qrsh-session: the socket, and the other ends of the job's
// standard streams. Its first argument is the grace, the second says what it has
// instead of the streams. With SessionWithTerminal SessionTerminal is the master of
// the job's terminal, and SessionNotes the other end of what prolog and epilog write
// to. With SessionWithDaemon, and the host's name behind it, SessionStdin is a stream
// socket to the starter of the job, which sends the Command that was submitted, and
// gets a connection for its daemon, or the reason why there is none.
const (
	SessionSocket = 100 + iota // those below are the starter's
	SessionStdin
	SessionStdout
	SessionStderr

	SessionTerminal = SessionStdin
	SessionNotes    = SessionStdout

	SessionWithTerminal = "terminal"
	SessionWithDaemon   = "daemon"
)

// MaxSessionMessage bounds a message, in bytes.
const MaxSessionMessage = 4 << 10
