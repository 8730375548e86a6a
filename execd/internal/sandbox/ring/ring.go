// Package ring is memory that two processes share, in which a stream of bytes goes from one to
// the other: each works on the bytes where they lie. It imports the standard library and x/sys;
// execd and execd-transfer link it.
//
// A socket goes with the memory, over which each end says how many bytes it has filled or has
// done with, as numbers of 32 bits. All else an end knows by itself, and it believes no number
// that cannot be. What is in the memory the other end may change at any time; it cannot make the
// memory smaller, which would end whoever looks at it.
package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Size is how many bytes a ring has: room for two blocks of a stream, so that each end has one.
// One that is larger leaves the caches of the processors.
const Size = 640 << 10

// step is how many bytes an end fills, or is done with, before it says so unasked.
const step = 64 << 10

// ErrCount is matched when the other end says what cannot be.
var ErrCount = errors.New("the other end of a ring does not count")

// end is one of the two.
type end struct {
	link *os.File
	b    []byte // the memory twice, so that no part of it has a gap
	at   int    // where what follows begins
	have int    // bytes that are this end's: free ones, or those of the stream
	owed int    // bytes that it has given back, and has not told of
	in   [64]byte
	half int // bytes of a number that have come, of in
	out  [4]byte
	lost bool // the other end does not count
}

// wait returns what this end has when that is n bytes at least, or with an error what it has.
func (e *end) wait(n int) ([]byte, error) {
	if n > Size {
		return nil, fmt.Errorf("a ring has room for %d bytes, and not for %d", Size, n)
	}
	for e.have < n && !e.lost {
		if err := e.Flush(); err != nil && !errors.Is(err, unix.EPIPE) { // what it has said before it has gone comes first
			return nil, err
		}
		if err := e.hear(); errors.Is(err, ErrCount) {
			e.lost = true
		} else if err != nil {
			return e.b[e.at : e.at+e.have], err
		}
	}
	if e.lost {
		return nil, ErrCount
	}
	return e.b[e.at : e.at+e.have], nil
}

// hear takes what the other end says, which it waits for.
func (e *end) hear() error {
	n, err := e.link.Read(e.in[e.half:])
	if errors.Is(err, unix.ECONNRESET) { // it has gone, and has not heard all of ours
		err = io.EOF
	}
	if err != nil {
		return err
	}
	b := e.in[:e.half+n]
	for ; len(b) >= 4; b = b[4:] {
		count := int64(binary.NativeEndian.Uint32(b))
		if count == 0 || count > int64(Size-e.have-e.owed) {
			return ErrCount
		}
		e.have += int(count)
	}
	e.half = copy(e.in[:], b)
	return nil
}

// take gives the first n bytes that this end has to the other one.
func (e *end) take(n int) error {
	e.at, e.have, e.owed = (e.at+n)%Size, e.have-n, e.owed+n
	if e.owed < step {
		return nil
	}
	return e.Flush()
}

// Flush has the other end know of all that it has been given.
func (e *end) Flush() error {
	if e.owed == 0 {
		return nil
	}
	binary.NativeEndian.PutUint32(e.out[:], uint32(e.owed))
	_, err := e.link.Write(e.out[:])
	e.owed = 0
	return err
}

// Stop has calls return that wait, and those that follow.
func (e *end) Stop() { _ = e.link.SetDeadline(time.Unix(1, 0)) }

// Close ends this end. No part of the memory may be in use.
func (e *end) Close() error {
	return errors.Join(e.unmap(), e.link.Close())
}

// Writer is the end at which a stream is written.
type Writer struct{ end }

// Room returns at least n bytes that are not a part of the stream yet. An error that is EPIPE
// says that nobody reads it. What is asked for here and by Peek at a time is no more than Size
// together, or both ends would wait for each other.
func (w *Writer) Room(n int) ([]byte, error) {
	b, err := w.wait(n)
	if errors.Is(err, io.EOF) {
		err = unix.EPIPE
	}
	return b, err
}

// Commit makes the first n bytes of what Room has returned a part of the stream.
func (w *Writer) Commit(n int) error { return w.take(n) }

// Reader is the end at which it is read.
type Reader struct{ end }

// Peek returns at least n bytes of what has come, or fewer with an error: io.EOF, if that is
// all. They stay until Discard is called.
func (r *Reader) Peek(n int) ([]byte, error) { return r.wait(n) }

// Discard passes over the first n bytes of what Peek has returned.
func (r *Reader) Discard(n int) (int, error) {
	if err := r.take(n); err != nil && !errors.Is(err, unix.EPIPE) { // all may have been written
		return 0, err
	}
	return n, nil
}
