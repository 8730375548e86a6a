package ring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// dup returns descriptors of what another process would be given.
func (t *Theirs) dup(tb testing.TB) (memory, link int) {
	tb.Helper()
	var fds [2]int
	for i, f := range []*os.File{t.Memory, t.Link} {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		must(tb, err)
		fds[i] = fd
	}
	must(tb, t.Close())
	return fds[0], fds[1]
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// both makes a ring, and returns its ends; out says that it is read by who has made it.
func both(t testing.TB, out bool) (*Writer, *Reader) {
	t.Helper()
	if out {
		r, theirs, err := NewReader()
		must(t, err)
		w, err := OpenWriter(theirs.dup(t))
		must(t, err)
		return w, r
	}
	w, theirs, err := NewWriter()
	must(t, err)
	r, err := OpenReader(theirs.dup(t))
	must(t, err)
	return w, r
}

// What is written in pieces of any length comes in pieces of any other, each without a gap.
func TestStream(t *testing.T) {
	for _, out := range []bool{false, true} {
		w, r := both(t, out)
		want := make([]byte, 20*Size+12345)
		random := rand.NewChaCha8([32]byte{1})
		_, _ = random.Read(want)
		done := make(chan error, 1)
		go func() {
			lengths := rand.New(rand.NewPCG(1, 2))
			for rest := want; len(rest) > 0; {
				n := min(1+lengths.IntN(Size/2), len(rest))
				b, err := w.Room(n)
				if err != nil {
					done <- err
					return
				}
				n = copy(b[:n], rest)
				rest = rest[n:]
				if err := w.Commit(n); err != nil {
					done <- err
					return
				}
			}
			done <- errors.Join(w.Flush(), w.Close())
		}()
		var got bytes.Buffer
		lengths := rand.New(rand.NewPCG(3, 4))
		for {
			n := 1 + lengths.IntN(Size/2)
			b, err := r.Peek(n)
			if err == nil {
				b = b[:n]
			}
			got.Write(b)
			if _, err := r.Discard(len(b)); err != nil {
				t.Fatal(err)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
		}
		must(t, <-done)
		must(t, r.Close())
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("out %t: what has come is not what was written", out)
		}
	}
}

// numbers is what an end says.
func numbers(list ...uint32) (b []byte) {
	for _, n := range list {
		b = binary.NativeEndian.AppendUint32(b, n)
	}
	return b
}

// An end that says what cannot be is not believed, then or later.
func TestHostileCounts(t *testing.T) {
	for what, said := range map[string][]byte{
		"too many":             numbers(Size + 1),
		"too many together":    numbers(Size-1, 1, 1),
		"too many in the end":  numbers(1, 1<<32-1),
		"none":                 numbers(0),
		"some, and then none":  numbers(5, 0, 5),
		"half a number before": append(numbers(1 << 31)[:2], numbers(1<<31, 1<<31)...),
	} {
		r, theirs, err := NewReader()
		must(t, err)
		_, err = theirs.Link.Write(said)
		must(t, errors.Join(err, theirs.Close()))
		for range 2 {
			if b, err := r.Peek(Size); !errors.Is(err, ErrCount) || len(b) > 0 {
				t.Errorf("%s: %d bytes, %v", what, len(b), err)
			}
		}
		must(t, r.Close())
	}
	// Nobody gives back what he has not been given.
	w, theirs, err := NewWriter()
	must(t, err)
	_, err = w.Room(Size)
	must(t, errors.Join(err, w.Commit(100), w.Flush()))
	_, err = theirs.Link.Write(numbers(101))
	must(t, err)
	if b, err := w.Room(Size); !errors.Is(err, ErrCount) {
		t.Errorf("there is room for %d bytes, %v", len(b), err)
	}
	must(t, errors.Join(w.Close(), theirs.Close()))
}

// A number that comes in parts is one.
func TestCountInParts(t *testing.T) {
	r, theirs, err := NewReader()
	must(t, err)
	done := make(chan error, 1)
	go func() {
		var err error
		for _, b := range numbers(70000, 3) {
			_, more := theirs.Link.Write([]byte{b})
			err = errors.Join(err, more)
		}
		done <- errors.Join(err, theirs.Close())
	}()
	if b, err := r.Peek(Size); !errors.Is(err, io.EOF) || len(b) != 70003 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	must(t, errors.Join(<-done, r.Close()))
}

// Who has the memory can make it neither smaller nor larger, and can write to it only if it is
// his to write; the seals cannot be taken off.
func TestSealed(t *testing.T) {
	for _, out := range []bool{false, true} {
		var mine io.Closer
		var theirs *Theirs
		var err error
		if out {
			mine, theirs, err = NewReader()
		} else {
			mine, theirs, err = NewWriter()
		}
		must(t, err)
		fd := int(theirs.Memory.Fd())
		for _, size := range []int64{0, Size - 1, 2 * Size} {
			if err := unix.Ftruncate(fd, size); !errors.Is(err, unix.EPERM) {
				t.Errorf("out %t: it can have %d bytes: %v", out, size, err)
			}
		}
		if err := unix.Fallocate(fd, 0, Size, 1); err == nil {
			t.Errorf("out %t: it can grow", out)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
			t.Errorf("out %t: it can be sealed", out)
		}
		_, err = unix.Pwrite(fd, []byte("x"), 0)
		b, mapping := unix.Mmap(fd, 0, Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if writes := err == nil || mapping == nil; writes != out {
			t.Errorf("out %t: the other end can write: %v, %v", out, err, mapping)
		}
		if mapping == nil {
			must(t, unix.Munmap(b))
		}
		// A hole is read as zeros.
		if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, Size); out && err != nil {
			t.Error(err)
		}
		must(t, errors.Join(theirs.Close(), mine.Close()))
	}
}

// What has come is there after the end of who has written it, also if it has gone without having
// read that there was room; who writes to nobody is told so.
func TestOtherEndGone(t *testing.T) {
	w, r := both(t, true)
	for range 3 {
		b, err := w.Room(Size / 2)
		must(t, err)
		copy(b, strings.Repeat("x", Size/2))
		must(t, errors.Join(w.Commit(Size/2), w.Flush()))
		if b, err := r.Peek(Size / 2); err != nil || len(b) != Size/2 {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		_, err = r.Discard(Size / 2)
		must(t, err)
	}
	b, err := w.Room(4)
	must(t, err)
	copy(b, "last")
	must(t, errors.Join(w.Commit(4), w.Flush(), w.Close()))
	if got, err := r.Peek(5); string(got) != "last" || !errors.Is(err, io.EOF) {
		t.Errorf("%q, %v", got, err)
	}
	must(t, r.Close())

	w, r = both(t, false)
	must(t, r.Close())
	b, err = w.Room(Size)
	must(t, err)
	if err := w.Commit(len(b) - 1); !errors.Is(err, unix.EPIPE) {
		t.Errorf("%v; want that nobody reads", err)
	}
	if _, err := w.Room(2); !errors.Is(err, unix.EPIPE) {
		t.Errorf("%v; want that nobody reads", err)
	}
	must(t, w.Close())
}

// An end that waits for the other one returns when it is stopped.
func TestStop(t *testing.T) {
	w, r := both(t, true)
	time.AfterFunc(time.Millisecond, r.Stop)
	if _, err := r.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v; want that it was stopped", err)
	}
	must(t, errors.Join(w.Close(), r.Close()))
}

// What is no ring is not taken for one.
func TestNoRing(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	defer f.Close()
	if _, err := OpenReader(int(f.Fd()), int(f.Fd())); err == nil || !strings.Contains(err.Error(), "is no ring: it has 0 bytes") {
		t.Error(err)
	}
}
