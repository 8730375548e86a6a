// Package wire is the protocol between qrsh, which listens, and qrsh-session,
// which the shepherd of an interactive job starts and which connects to it. It
// imports nothing of the project; qrsh, qrsh-session and tests alone import it.
//
// # Connection
//
// Within a host it is an abstract Unix socket, of which the kernel tells each end whose
// process is at the other one: none but of the same user is spoken to. From elsewhere it is
// TLS 1.3 over TCP: qrsh makes a key for the session and sends the SHA-256 of
// its certificate with the job, through execd's socket; qrsh-session accepts
// only that certificate. Over both qrsh-session proves itself by a token of 32 bytes
// that came the same way and is valid for one connection. Whoever does not have
// the token gets no answer.
//
// # Frames
//
// Everything is sent in frames: a byte with the type, three bytes with the length of
// the payload, and the payload of at most 65,536 bytes. Numbers are big-endian.
//
//	 1 hello     S>C  "paddock" first last token offsets end  the first frame; versions first to last
//	 2 welcome   C>S  version offsets                        the answer: the version that is spoken
//	 3 data      ><   stream bytes                           none: the stream has ended
//	 4 taken     ><   stream offset                          so much of it was written where it belongs
//	 5 refused   ><   stream                                 nobody reads it any more
//	 6 window    C>S  rows columns width height, 16 bits each
//	 7 signal    C>S  number, 8 bits
//	 8 state     S>C  1 runs, 2 is suspended, 8 bits
//	 9 exit      S>C  status, 16 bits; a text                the last that the session says
//	10 bye       C>S                                         the answer to it
//	11 modes     C>S  mode value, 8 and 32 bits, repeated    of the client's terminal, numbered as in RFC 4254, section 8
//	12 daemon    S>C  port, 16 bits; three texts             where a daemon waits for the client's program
//	13 status    C>S  status, 16 bits                        that program has ended
//
// The client of a job with a terminal sends window as soon as it is connected,
// behind modes if it has a terminal itself: the job begins with them.
//
// The last two belong to version 2, and to a job that is a daemon like sshd: it
// has no streams in the session, but a connection of its own, which the
// client's program makes. The texts of daemon, with NUL bytes between them, are
// the path of the program that begins the job's command on the other side of
// the daemon, the handle by which that program finds the session, and the name
// of the host. The first two are empty for a login shell.
//
// Streams have the numbers of the descriptors 0, 1 and 2, in 8 bits. Offsets count the
// bytes of a stream since the session began, in 64 bits; the end of a stream counts as
// a byte. hello and welcome have an offset for each stream in order: for a stream that
// the sender of the frame receives, how much it has received, and for one that it
// sends, from where on it still has the bytes. So the bytes that a broken connection
// has lost are sent again over the next one, and a new client begins there. The end in
// hello, in 8 bits, is 1 when all of stdin was received, else 0. A sender is never
// more than Window bytes ahead of taken.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Versions of the protocol that are spoken here.
const (
	FirstVersion = 1
	LastVersion  = 2
	// DaemonVersion is the first that has the frames daemon and status.
	DaemonVersion = 2
)

// Sizes in bytes.
const (
	HeaderSize = 4
	MaxPayload = 1 << 16
	MaxReason  = 1 << 10 // of the text of exit
	ModeSize   = 5       // of a mode and its value
	MaxModes   = 128
	TokenSize  = 32
	// Window is how many bytes of a stream may be sent and not yet taken.
	Window = 1 << 20
)

// Type is the type of a frame.
type Type uint8

// The types.
const (
	TypeHello Type = 1 + iota
	TypeWelcome
	TypeData
	TypeTaken
	TypeRefused
	TypeWindow
	TypeSignal
	TypeState
	TypeExit
	TypeBye
	TypeModes
	TypeDaemon
	TypeStatus
)

// Stream is one of the three streams of a session.
type Stream uint8

// The streams.
const (
	Stdin Stream = iota
	Stdout
	Stderr
	streams
)

func (s Stream) String() string {
	if s >= streams {
		return fmt.Sprintf("stream %d", uint8(s))
	}
	return [...]string{"stdin", "stdout", "stderr"}[s]
}

// ErrProtocol is matched when the other end breaks the rules.
var ErrProtocol = errors.New("protocol error")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// putHeader writes the header of a frame.
func putHeader(b []byte, t Type, length int) {
	binary.BigEndian.PutUint32(b, uint32(t)<<24|uint32(length))
}

// readHeader reads the header of a frame.
func readHeader(r io.Reader) (t Type, length int, err error) {
	var b [HeaderSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, 0, err
	}
	head := binary.BigEndian.Uint32(b[:])
	t, length = Type(head>>24), int(head&0xffffff)
	if t < TypeHello || t > TypeStatus {
		return 0, 0, broken("frame of unknown type %d", t)
	}
	if length > MaxPayload {
		return 0, 0, broken("frame of %d bytes", length)
	}
	return t, length, nil
}

// appendFrame appends a short frame.
func appendFrame(b []byte, t Type, payload []byte) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	putHeader(b[at:], t, len(payload))
	return append(b, payload...)
}

// readFrame reads a frame that must have a given type and a payload of at most
// maximum bytes.
func readFrame(r io.Reader, want Type, maximum int) ([]byte, error) {
	t, length, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	if t != want || length > maximum {
		return nil, broken("frame of type %d and %d bytes where one of type %d was due", t, length, want)
	}
	payload := make([]byte, length)
	_, err = io.ReadFull(r, payload)
	return payload, err
}

// Message is a frame that does not belong to a stream.
type Message interface {
	frame() (Type, []byte)
}

// The messages.
type (
	// WindowSize is the size of the terminal, in characters and in pixels.
	WindowSize struct{ Rows, Columns, Width, Height uint16 }
	// Signal asks for a signal to be sent to the job.
	Signal struct{ Number uint8 }
	// State tells whether the job is suspended.
	State struct{ Suspended bool }
	// Exit is the end of the job: its exit status, 128+n for signal n, and
	// the reason in words where there is one.
	Exit struct {
		Status uint16
		Reason string
	}
	// Bye ends the session: the client has received everything.
	Bye struct{}
	// Modes are those of the client's terminal, as package term encodes them.
	Modes struct{ Pairs string }
)

func (m WindowSize) frame() (Type, []byte) {
	b := make([]byte, 0, 8)
	for _, n := range [...]uint16{m.Rows, m.Columns, m.Width, m.Height} {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	return TypeWindow, b
}

func (m Signal) frame() (Type, []byte) { return TypeSignal, []byte{m.Number} }

func (m State) frame() (Type, []byte) {
	if m.Suspended {
		return TypeState, []byte{2}
	}
	return TypeState, []byte{1}
}

func (m Exit) frame() (Type, []byte) {
	b := binary.BigEndian.AppendUint16(nil, m.Status)
	return TypeExit, append(b, m.Reason[:min(len(m.Reason), MaxReason)]...)
}

func (Bye) frame() (Type, []byte) { return TypeBye, nil }

func (m Modes) frame() (Type, []byte) { return TypeModes, []byte(m.Pairs) }

// parseMessage reads the payload of a message.
func parseMessage(t Type, b []byte) (Message, error) {
	switch {
	case t == TypeWindow && len(b) == 8:
		n := func(i int) uint16 { return binary.BigEndian.Uint16(b[2*i:]) }
		return WindowSize{n(0), n(1), n(2), n(3)}, nil
	case t == TypeSignal && len(b) == 1 && b[0] >= 1 && b[0] <= 64:
		return Signal{b[0]}, nil
	case t == TypeState && len(b) == 1 && (b[0] == 1 || b[0] == 2):
		return State{b[0] == 2}, nil
	case t == TypeExit && len(b) >= 2 && len(b) <= 2+MaxReason:
		return Exit{binary.BigEndian.Uint16(b), string(b[2:])}, nil
	case t == TypeBye && len(b) == 0:
		return Bye{}, nil
	case t == TypeModes && len(b)%ModeSize == 0 && len(b) <= MaxModes*ModeSize:
		return Modes{string(b)}, nil
	case t == TypeDaemon && len(b) >= 2:
		return parseDaemon(b)
	case t == TypeStatus && len(b) == 2:
		return Status{binary.BigEndian.Uint16(b)}, nil
	}
	return nil, broken("bad frame of type %d and %d bytes", t, len(b))
}
