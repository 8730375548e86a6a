package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"sync"
)

// Positions are offsets in the three streams.
type Positions [streams]uint64

// Link carries the streams and messages of a session to the other end, over one
// connection after another. A connection that breaks loses nothing. Link
// buffers at most Window bytes of each stream and direction.
type Link struct {
	// ForDaemon says that the job is a daemon, so that only clients that know
	// the frame daemon are accepted. It is set before there is a connection.
	ForDaemon bool

	handle func(Message)

	mu       sync.Mutex
	changed  *sync.Cond // of mu
	out      [streams]*outgoing
	in       [streams]*incoming
	messages []Message // to be sent
	last     Message   // the Exit or Bye that was posted, sent again over each connection
	failed   error     // why the present connection is over; nil while there is one
	version  uint8     // that is spoken over it
	used     bool      // there has been a connection
	start    Positions // where streams begin
	unwanted bool      // all of stdin has come in an earlier connection
	closed   bool
	conn     net.Conn // the one in use, nil for none
	turn     uint64   // the last handshake
}

// outgoing is a stream that is sent.
type outgoing struct {
	ring
	sent    uint64 // offset up to which it was written to the present connection
	ended   bool   // its end has been read
	refused bool   // the other end does not want it any more
	source  io.Closer
}

// limit returns the offset behind the last byte, or behind the end.
func (o *outgoing) limit() uint64 {
	if o.ended {
		return o.end + 1
	}
	return o.end
}

// incoming is a stream that is received.
type incoming struct {
	ring
	ended   bool   // its end has come
	done    bool   // everything was written that can be
	told    uint64 // offset up to which the sender knows that it was taken
	refused bool   // it cannot be written
	tell    bool   // the sender must be told so
}

// New returns a link. handle is called for each message that comes, one after
// another; it must not wait for the link.
func New(handle func(Message)) *Link {
	l := &Link{handle: handle, failed: net.ErrClosed}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// Source sends r as a stream until it ends or fails; a reader that was closed
// on this side has not ended. closer is called when the other end does not want
// the stream any more.
func (l *Link) Source(s Stream, r io.Reader, closer io.Closer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.start[s]
	o := &outgoing{ring: ring{base: at, end: at}, sent: at, source: closer, refused: s == Stdin && l.unwanted}
	l.out[s] = o
	go l.fill(o, r)
}

// fill reads a source as fast as the other end takes it.
func (l *Link) fill(o *outgoing, r io.Reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && !o.refused && !o.ended {
		room := o.free()
		if len(room) == 0 {
			l.changed.Wait()
			continue
		}
		l.mu.Unlock()
		n, err := r.Read(room)
		l.mu.Lock()
		o.end += uint64(n)
		o.ended = err != nil && !errors.Is(err, os.ErrClosed)
		l.changed.Broadcast()
		if err != nil {
			return
		}
	}
}

// Sink writes a stream to w, which is closed at the end of the stream.
func (l *Link) Sink(s Stream, w io.WriteCloser) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.start[s]
	i := &incoming{ring: ring{base: at, end: at}, told: at}
	l.in[s] = i
	go l.drain(i, w)
}

// drain writes the received bytes of a stream.
func (l *Link) drain(i *incoming, w io.WriteCloser) {
	defer w.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		chunk := i.from(i.base)
		if len(chunk) == 0 {
			if i.ended || l.closed {
				i.done = true
				l.changed.Broadcast()
				return
			}
			l.changed.Wait()
			continue
		}
		l.mu.Unlock()
		_, err := w.Write(chunk)
		l.mu.Lock()
		if err != nil {
			i.refused, i.tell, i.done = true, true, true
			i.base = i.end
			l.changed.Broadcast()
			return
		}
		i.base += uint64(len(chunk))
		l.changed.Broadcast()
	}
}

// maxMessages bounds the messages that wait for a connection.
const maxMessages = 64

// Post sends a message. An Exit or a Bye is sent behind all streams, and again
// over each later connection.
func (l *Link) Post(m Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.changed.Broadcast()
	switch m.(type) {
	case Exit, Bye:
		l.last = m
		if l.failed != nil {
			return // the next connection begins with it
		}
	case WindowSize, State:
		// Only the last one counts.
		l.messages = slices.DeleteFunc(l.messages, func(old Message) bool { return reflect.TypeOf(old) == reflect.TypeOf(m) })
	default:
		if len(l.messages) >= maxMessages {
			return
		}
	}
	l.messages = append(l.messages, m)
}

// positions returns the offsets for hello and welcome.
func (l *Link) positions() (p Positions, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p = l.start
	for s := range streams {
		if i := l.in[s]; i != nil {
			p[s] = i.received()
		} else if o := l.out[s]; o != nil {
			p[s] = o.base
		}
	}
	return p, l.in[Stdin] != nil && l.in[Stdin].ended
}

func (i *incoming) received() uint64 {
	if i.ended {
		return i.end + 1
	}
	return i.end
}

// Written waits until all incoming streams have ended and are written, or the
// link is closed.
func (l *Link) Written() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && !l.written() {
		l.changed.Wait()
	}
}

func (l *Link) written() bool {
	for _, i := range l.in {
		if i != nil && !i.done {
			return false
		}
	}
	return true
}

// Taken waits until the other end has taken all that was read of a stream, or
// wants no more of it.
func (l *Link) Taken(s Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := l.out[s]; !l.closed && !o.refused && o.base < o.end; {
		l.changed.Wait()
	}
}

// Close ends the link. Messages that were posted before go out; streams are dropped.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.changed.Broadcast()
}

// Run uses a connection, after its handshake, until it breaks or the link is
// closed. It closes the connection and returns the reason. has is what the
// other end has received. Only one connection is used at a time.
func (l *Link) Run(conn *Conn, has Positions) error {
	l.mu.Lock()
	if conn.turn != l.turn {
		l.mu.Unlock()
		conn.Close()
		return errReplaced
	}
	for s, o := range l.out {
		if o == nil {
			continue
		}
		if has[s] < o.base || has[s] > o.limit() {
			l.mu.Unlock()
			conn.Close()
			return broken("%v: the other end has %d bytes; %d to %d can be sent again", Stream(s), has[s], o.base, o.limit())
		}
		o.sent = has[s]
	}
	for s, i := range l.in {
		if i != nil {
			// Messages over the last connection may not have arrived.
			i.tell, i.told = i.refused, l.start[s]
		}
	}
	if l.last != nil {
		l.messages = append(l.messages, l.last)
	}
	l.failed, l.used, l.conn = nil, true, conn
	l.mu.Unlock()

	written := make(chan struct{})
	go func() {
		defer close(written)
		l.fail(l.write(conn))
		conn.Close()
	}()
	l.fail(l.read(bufio.NewReader(conn)))
	conn.Close()
	<-written
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = nil
	l.changed.Broadcast()
	return l.failed
}

// errReplaced is the reason for the end of a connection that another one replaces.
var errReplaced = errors.New("there is another connection")

// replace ends the use of a connection that the other end has given up: bytes that
// still came over it would be received twice. A connection whose handshake was earlier
// is not used any more, either. It returns the number of the next connection.
func (l *Link) replace() (turn uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn++
	turn = l.turn
	for l.conn != nil {
		if l.failed == nil {
			l.failed = errReplaced
			l.changed.Broadcast()
			go l.conn.Close() // may wait for the other end
		}
		l.changed.Wait()
	}
	return turn
}

// fail ends the use of the current connection.
func (l *Link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = err
	}
	l.changed.Broadcast()
}

// write sends frames until the connection is closed.
func (l *Link) write(conn *Conn) error {
	unsent := true
	for {
		head, chunk, err := l.next(unsent)
		if err != nil {
			return errors.Join(err, conn.below.flush())
		}
		if len(head) == 0 {
			if err := conn.below.flush(); err != nil {
				return err
			}
			unsent = false
			continue
		}
		unsent = true
		if err := writeFrame(conn, head, chunk); err != nil {
			return err
		}
	}
}

// writeFrame writes the header of a frame and its chunk: a short chunk in the
// same record, a long one without copying it.
func writeFrame(w io.Writer, head, chunk []byte) error {
	if len(chunk) <= shortChunk {
		head, chunk = append(head, chunk...), nil
	}
	for _, b := range [...][]byte{head, chunk} {
		if len(b) == 0 {
			continue
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// next waits for something to send: the header of a frame, and the chunk of a stream
// that belongs to it. The chunk counts as sent, since its receipt may arrive before
// the write returns. With unsent next does not wait, and may return nothing.
func (l *Link) next(unsent bool) (head, chunk []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.failed != nil {
			return nil, nil, l.failed
		}
		if head := l.receipts(); len(head) > 0 {
			return head, nil, nil
		}
		if len(l.messages) > 0 && (l.messages[0] != l.last || l.closed || l.allSent()) {
			t, payload := l.messages[0].frame()
			l.messages = l.messages[1:]
			return appendFrame(nil, t, payload), nil, nil
		}
		if l.closed {
			return nil, nil, net.ErrClosed
		}
		for s, o := range l.out {
			if o == nil || o.refused || o.sent >= o.limit() {
				continue
			}
			chunk := o.from(min(o.sent, o.end))
			chunk = chunk[:min(len(chunk), MaxPayload-1)]
			head := make([]byte, HeaderSize+1)
			putHeader(head, TypeData, 1+len(chunk))
			head[HeaderSize] = byte(s)
			o.sent += uint64(max(len(chunk), 1)) // the end counts as a byte
			return head, chunk, nil
		}
		if unsent {
			return nil, nil, nil
		}
		l.changed.Wait()
	}
}

// shortChunk is the size up to which a chunk is cheaper to copy than to encrypt
// in a record of its own.
const shortChunk = 1 << 12

// allSent reports whether all streams are sent up to their ends, after which
// the last message may follow.
func (l *Link) allSent() bool {
	for _, o := range l.out {
		if o != nil && !o.refused && (!o.ended || o.sent < o.limit()) {
			return false
		}
	}
	return true
}

// receipts returns the frames taken that are due: when nothing is left to
// write, and now and then before.
func (l *Link) receipts() []byte {
	var b []byte
	for s, i := range l.in {
		if i == nil {
			continue
		}
		if i.tell {
			i.tell = false
			b = appendFrame(b, TypeRefused, []byte{byte(s)})
		}
		if n := i.base - i.told; n >= Window/4 || n > 0 && i.len() == 0 {
			i.told = i.base
			b = appendFrame(b, TypeTaken, binary.BigEndian.AppendUint64([]byte{byte(s)}, i.base))
		}
	}
	return b
}

// read handles frames until the connection is closed.
func (l *Link) read(r *bufio.Reader) error {
	for {
		t, length, err := readHeader(r)
		if err != nil {
			return err
		}
		if t == TypeData {
			err = l.readData(r, length)
		} else {
			err = l.readOther(r, t, length)
		}
		if err != nil {
			return err
		}
	}
}

// readData receives bytes of a stream.
func (l *Link) readData(r *bufio.Reader, length int) error {
	if length == 0 {
		return broken("data without a stream")
	}
	s, err := r.ReadByte()
	if err != nil {
		return err
	}
	length--
	l.mu.Lock()
	defer l.mu.Unlock()
	if s >= uint8(streams) || l.in[s] == nil || l.in[s].ended {
		return broken("data of %v, which is not received", Stream(s))
	}
	i := l.in[s]
	if length > Window-i.len() {
		return broken("%d bytes of %v beyond the window", length, Stream(s))
	}
	i.ended = length == 0
	for length > 0 {
		room := i.free()
		room = room[:min(len(room), length)]
		l.mu.Unlock()
		_, err := io.ReadFull(r, room)
		l.mu.Lock()
		if err != nil {
			// The bytes that were received are not known to the sender yet.
			return err
		}
		i.end += uint64(len(room))
		length -= len(room)
		if i.refused {
			i.base = i.end // nobody will write it
		}
		l.changed.Broadcast()
	}
	l.changed.Broadcast()
	return nil
}

// readOther handles any other frame.
func (l *Link) readOther(r *bufio.Reader, t Type, length int) error {
	if length > 2+MaxReason {
		return broken("frame of type %d and %d bytes", t, length)
	}
	payload := make([]byte, length)
	if _, err := io.ReadFull(r, payload); err != nil {
		return err
	}
	switch t {
	case TypeTaken, TypeRefused:
		return l.receipt(t, payload)
	}
	l.mu.Lock()
	version := l.version
	l.mu.Unlock()
	if t >= TypeDaemon && version < DaemonVersion {
		return broken("frame of type %d in version %d", t, version)
	}
	m, err := parseMessage(t, payload)
	if err == nil {
		l.handle(m)
	}
	return err
}

// receipt handles taken and refused for a stream that is sent.
func (l *Link) receipt(t Type, b []byte) error {
	want := 1
	if t == TypeTaken {
		want += 8
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(b) != want || b[0] >= uint8(streams) || l.out[b[0]] == nil {
		return broken("bad receipt of %d bytes", len(b))
	}
	o := l.out[b[0]]
	defer l.changed.Broadcast()
	if t == TypeRefused {
		if !o.refused {
			o.refused = true
			if o.source != nil {
				// The writer gets an error, as from a pipe that nobody reads.
				_ = o.source.Close()
			}
		}
		return nil
	}
	taken := binary.BigEndian.Uint64(b[1:])
	if taken < o.base || taken > min(o.sent, o.end) {
		return broken("receipt of %d bytes of %v, %d to %d were sent", taken, Stream(b[0]), o.base, o.sent)
	}
	o.base = taken
	return nil
}
