package wire

import (
	"encoding/binary"
	"strings"
)

type (
	// Daemon says where a daemon waits for the client's program.
	Daemon struct {
		Port    uint16
		Program string // path of what begins the command on the daemon's side; "": a login shell is wanted
		Handle  string // by which it finds the session
		Host    string
	}
	// Status tells how the client's program has ended.
	Status struct{ Status uint16 }
)

// Sizes of the texts of daemon. The texts become words of a command line of the
// client.
const (
	maxHost    = 255
	maxProgram = 1 << 9
	maxHandle  = 64
)

func (m Daemon) frame() (Type, []byte) {
	b := binary.BigEndian.AppendUint16(nil, m.Port)
	return TypeDaemon, append(b, strings.Join([]string{m.Program, m.Handle, m.Host}, "\x00")...)
}

func (m Status) frame() (Type, []byte) {
	return TypeStatus, binary.BigEndian.AppendUint16(nil, m.Status)
}

// parseDaemon reads the payload of daemon.
func parseDaemon(b []byte) (Message, error) {
	m := Daemon{Port: binary.BigEndian.Uint16(b)}
	texts := strings.Split(string(b[2:]), "\x00")
	if len(texts) != 3 {
		return nil, broken("%d texts of a daemon", len(texts))
	}
	m.Program, m.Handle, m.Host = texts[0], texts[1], texts[2]
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// check returns what is wrong with a daemon. Neither a shell nor the client's
// program may take its texts for more than words.
func (m *Daemon) check() error {
	login := m.Program == "" && m.Handle == ""
	switch {
	case m.Port == 0:
		return broken("a daemon without a port")
	case len(m.Host) == 0 || len(m.Host) > maxHost || m.Host[0] == '-' || !plain(m.Host, ".:_-"):
		return broken("a daemon on the host %q", m.Host)
	case !login && (len(m.Program) > maxProgram || !strings.HasPrefix(m.Program, "/") || !printable(m.Program)):
		return broken("a daemon with the program %q", m.Program)
	case !login && (m.Handle == "" || len(m.Handle) > maxHandle || !plain(m.Handle, "")):
		return broken("a daemon with the handle %q", m.Handle)
	}
	return nil
}

// plain reports whether a text has nothing but letters, digits and others.
func plain(s, others string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}

// printable reports whether a text can stand between single quotes.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f || s[i] == '\'' {
			return false
		}
	}
	return true
}
