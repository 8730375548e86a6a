package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/sandbox/pack"
	"paddock/test/props"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const someID = "0123456789abcdef"

// fill makes a tree with something of everything.
func fill(t testing.TB, dir string, big int) {
	t.Helper()
	in := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string, mode fs.FileMode) {
		must(t, os.WriteFile(in(name), []byte(text), mode))
		must(t, os.Chmod(in(name), mode))
	}
	must(t, os.MkdirAll(in("a/b/c"), 0o755))
	must(t, os.MkdirAll(in("empty"), 0o755))
	must(t, os.MkdirAll(in("odd \n\xff"), 0o755))
	write("file", "text", 0o644)
	write("a/nothing", "", 0o600)
	write("a/b/readonly", "r", 0o444)
	write("a/b/program", "p", 0o755)
	write("odd \n\xff/\x01", "odd", 0o600)
	must(t, os.Link(in("a/b/readonly"), in("another")))
	must(t, os.Link(in("a/b/readonly"), in("empty/third")))
	must(t, os.Symlink("../file", in("a/link")))
	must(t, os.Symlink("nowhere", in("dangling")))
	data := make([]byte, big)
	for i := range data {
		data[i] = byte(i * i >> 8)
	}
	write("big", string(data), 0o640)
	f, err := os.Create(in("a/hole"))
	must(t, err)
	_, err = f.WriteAt([]byte("island"), 1<<20)
	must(t, errors.Join(err, f.Truncate(1<<30), f.Close()))
	when := time.Unix(1e9, 123456789)
	for _, name := range []string{"file", "a/b/readonly", "empty", "a/b/c", "a/b"} {
		must(t, os.Chtimes(in(name), when, when))
	}
	must(t, os.Chmod(in("a/b/c"), 0o555))
}

// list says of all that is in a directory what it is, with the numbers of files that have
// several names replaced by their first name.
func list(t testing.TB, dir string) []string {
	t.Helper()
	var lines []string
	first := map[uint64]string{}
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		line := fmt.Sprintf("%q %o %d.%09d", name, st.Mode, st.Mtim.Sec, st.Mtim.Nsec)
		switch kind(&st) {
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			must(t, err)
			line += " " + target
		case unix.S_IFREG:
			line += fmt.Sprintf(" %d", st.Size)
			if st.Size < 1<<29 {
				text, err := os.ReadFile(path)
				must(t, err)
				line += fmt.Sprintf(" %.20q %s", text, pack.Digest(sha256.Sum256(text)))
			} else if st.Blocks > 4096 {
				line += " without its holes"
			}
			if st.Nlink > 1 {
				if first[st.Ino] == "" {
					first[st.Ino] = name
				}
				line += " " + first[st.Ino]
			}
		}
		lines = append(lines, line)
		return nil
	}))
	return lines
}

// packed writes a directory as a stream.
func packed(t testing.TB, dir string, have pack.Have) ([]byte, *packing) {
	t.Helper()
	var b bytes.Buffer
	p, err := newWorker().pack(pack.NewBuffer(&b), dir, have)
	must(t, err)
	return b.Bytes(), p
}

// unpackWorker is one for openUnpack.
func unpackWorker() *worker {
	w := newWorker()
	w.orders = &order.Orders{ID: someID, Send: &order.Send{Home: os.Getenv("HOME")}}
	return w
}

// unpacked makes a tree of a stream.
func unpacked(t testing.TB, stream io.Reader, dest string, how unpacker) (*unpacking, pack.Digest, error) {
	t.Helper()
	u, err := unpackWorker().openUnpack(dest)
	must(t, err)
	defer func() {
		for _, fd := range []int{u.fd, u.part, u.tree, u.landing.links, u.lock, u.note, u.file} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}()
	u.unpacker = how
	root, err := u.run(bufio.NewReaderSize(stream, pack.MaxRecord))
	return u, root, err
}

// had returns what there is of an attempt that was interrupted.
func hadOf(t testing.TB, dest string) pack.Have {
	t.Helper()
	u, err := unpackWorker().openUnpack(dest)
	must(t, err)
	for _, fd := range []int{u.fd, u.part, u.tree, u.landing.links} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	return u.had
}

func wantSame(t testing.TB, from, to string) {
	t.Helper()
	if diff := cmp.Diff(list(t, from), list(t, to)); diff != "" {
		t.Errorf("they differ (-sent +arrived):\n%s", diff)
	}
}

// All arrives as it was, beside and in the place of what is there.
func TestPack(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	fill(t, from, 9<<20)
	stream, p := packed(t, from, pack.Have{})
	_, root, err := unpacked(t, bytes.NewReader(stream), to, unpacker{})
	must(t, err)
	if root != p.root {
		t.Errorf("the root %v; want %v", root, p.root)
	}
	wantSame(t, from, to)

	must(t, os.WriteFile(filepath.Join(to, "file"), []byte("old"), 0o600))
	must(t, os.WriteFile(filepath.Join(to, "a/mine"), nil, 0o600))
	_, _, err = unpacked(t, bytes.NewReader(stream), to, unpacker{})
	must(t, err)
	must(t, os.Remove(filepath.Join(to, "a/mine")))
	when := time.Unix(1, 0) // of a directory that was added to
	must(t, os.Chtimes(filepath.Join(to, "a"), when, when))
	must(t, os.Chtimes(filepath.Join(from, "a"), when, when))
	for _, name := range []string{"a/b", "empty", "odd \n\xff"} {
		must(t, os.Chtimes(filepath.Join(to, name), when, when))
		must(t, os.Chtimes(filepath.Join(from, name), when, when))
	}
	wantSame(t, from, to)
}

// Whatever has come goes on, and no more than a block is sent twice.
func TestPackResumes(t *testing.T) {
	from := t.TempDir()
	fill(t, from, 9<<20)
	stream, p := packed(t, from, pack.Have{})
	const slack = 4 << 10 // how a stream begins, and items
	for n := 0; n < len(stream); n += 1<<20 - 1 {
		to := t.TempDir()
		_, _, err := unpacked(t, bytes.NewReader(stream[:n]), to, unpacker{})
		if f, ok := errors.AsType[*failure](err); !ok || f.permanent {
			t.Fatalf("cut at %d: %v", n, err)
		}
		if n > len(stream)/2 { // once more
			rest, _ := packed(t, from, hadOf(t, to))
			_, _, err := unpacked(t, bytes.NewReader(rest[:len(rest)/2]), to, unpacker{})
			if err == nil {
				t.Fatalf("cut at %d, and then: no error", n)
			}
		}
		have := hadOf(t, to)
		rest, again := packed(t, from, have)
		if again.root != p.root {
			t.Errorf("cut at %d: the root %v; want %v", n, again.root, p.root)
		}
		if twice := len(rest) - (len(stream) - n); twice > noted+slack {
			t.Errorf("cut at %d of %d: %d bytes are sent again", n, len(stream), twice)
		}
		u, root, err := unpacked(t, bytes.NewReader(rest), to, unpacker{})
		if err != nil || root != p.root {
			t.Fatalf("cut at %d: the root %v, %v", n, root, err)
		}
		if got, want := u.worker.bytes.Load(), int64(p.out.Bytes()); got != want {
			t.Errorf("cut at %d: %d bytes have arrived; want %d", n, got, want)
		}
		wantSame(t, from, to)
	}
}

// After another boot what was not brought to the disk comes again.
func TestPackAfterReboot(t *testing.T) {
	from := t.TempDir()
	fill(t, from, 9<<20)
	stream, _ := packed(t, from, pack.Have{})
	for _, noted := range []bool{false, true} {
		to := t.TempDir()
		_, _, err := unpacked(t, bytes.NewReader(stream[:len(stream)-100]), to, unpacker{})
		if err == nil {
			t.Fatal("no error")
		}
		part := filepath.Join(to, ".paddock-"+someID+".part")
		want := pack.Have{}
		if noted {
			want = hadOf(t, to)
			must(t, os.WriteFile(filepath.Join(part, "synced"), []byte(want.String()), 0o600))
			must(t, os.WriteFile(filepath.Join(part, "have"), []byte(pack.Have{Items: 1000}.String()), 0o600))
		}
		must(t, os.WriteFile(filepath.Join(part, "boot"), []byte("another"), 0o600))
		have := hadOf(t, to)
		if have != want {
			t.Fatalf("%v is there; want %v", have, want)
		}
		rest, _ := packed(t, from, have)
		_, _, err = unpacked(t, bytes.NewReader(rest[:len(rest)-100]), to, unpacker{})
		if err == nil {
			t.Fatal("no error")
		}
		rest, _ = packed(t, from, hadOf(t, to)) // in the same boot
		_, _, err = unpacked(t, bytes.NewReader(rest), to, unpacker{})
		must(t, err)
		wantSame(t, from, to)
	}
}

// A tree that has changed since is sent anew, and so is another one.
func TestPackOfAnotherTree(t *testing.T) {
	from, other, to := t.TempDir(), t.TempDir(), t.TempDir()
	fill(t, from, 9<<20)
	must(t, os.WriteFile(filepath.Join(other, "other"), nil, 0o600))
	stream, _ := packed(t, from, pack.Have{})
	_, _, err := unpacked(t, bytes.NewReader(stream[:len(stream)-100]), to, unpacker{})
	if err == nil {
		t.Fatal("no error")
	}
	rest, _ := packed(t, other, hadOf(t, to))
	_, _, err = unpacked(t, bytes.NewReader(rest), to, unpacker{})
	must(t, err)
	wantSame(t, other, to)
}

// writer calls do before each write.
type writer struct {
	bytes.Buffer
	do func()
}

func (w *writer) Write(b []byte) (int, error) {
	w.do()
	return w.Buffer.Write(b)
}

// A file that changes while it is sent is sent again, and not for ever.
func TestPackOfChangingFile(t *testing.T) {
	for _, times := range []int{1, maxChanges + 1} {
		from, to := t.TempDir(), t.TempDir()
		fill(t, from, 9<<20)
		left := times
		out := &writer{do: func() {
			if left--; left >= 0 {
				f, err := os.OpenFile(filepath.Join(from, "big"), os.O_RDWR|os.O_APPEND, 0)
				must(t, err)
				_, err = f.WriteString("more")
				must(t, errors.Join(err, f.Close()))
			}
		}}
		if times > 1 {
			left = 1 << 30
		}
		_, err := newWorker().pack(pack.NewBuffer(out), from, pack.Have{})
		_, _, uerr := unpacked(t, &out.Buffer, to, unpacker{})
		if times == 1 {
			must(t, errors.Join(err, uerr))
			wantSame(t, from, to)
			continue
		}
		for _, err := range []error{err, uerr} {
			if f, ok := errors.AsType[*failure](err); !ok || !f.permanent || f.errno != unix.ETXTBSY || !strings.Contains(f.text, "big") {
				t.Errorf("%v", err)
			}
		}
	}
}

// What is neither a file nor a directory nor a link does not travel, nor a part directory.
func TestPackSkips(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	must(t, os.Mkdir(filepath.Join(from, "d"), 0o755))
	must(t, syscall.Mkfifo(filepath.Join(from, "d/pipe"), 0o644))
	must(t, os.Mkdir(filepath.Join(from, ".paddock-"+someID+".part"), 0o755))
	stream, p := packed(t, from, pack.Have{})
	if p.result.Skipped != 1 || !strings.Contains(p.result.Skips[0], "pipe") {
		t.Errorf("%+v", p.result)
	}
	u, _, err := unpacked(t, bytes.NewReader(stream), to, unpacker{})
	must(t, err)
	if u.result.Skipped != 1 {
		t.Errorf("%+v", u.result)
	}
	if got, err := filepath.Glob(filepath.Join(to, "*")); err != nil || !slices.Equal(got, []string{filepath.Join(to, "d")}) {
		t.Errorf("%q has arrived, %v", got, err)
	}
}

// A directory that cannot be packed is no end that somebody takes for one.
func TestPackFails(t *testing.T) {
	from := t.TempDir()
	for _, dir := range []string{from + "/nowhere", "/dev/null"} {
		var b bytes.Buffer
		_, err := newWorker().pack(pack.NewBuffer(&b), dir, pack.Have{})
		_, _, uerr := unpacked(t, &b, t.TempDir(), unpacker{})
		for _, err := range []error{err, uerr} {
			if f, ok := errors.AsType[*failure](err); !ok || !f.permanent || !strings.Contains(f.text, dir) {
				t.Errorf("%s: %v", dir, err)
			}
		}
	}
}

// program is execd-transfer.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "transfer")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil {
			panic(err)
		}
		program = filepath.Join(dir, "execd-transfer")
		if err := props.Build(program); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}
