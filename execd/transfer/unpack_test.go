package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/pack"
)

// made is a stream that no tree is behind.
func made(t testing.TB, do func(w *pack.Writer) error) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := pack.NewWriter(pack.NewBuffer(&b), pack.Have{}, 0, 0)
	err := do(w)
	if err == nil {
		_, err = w.End(0)
	}
	must(t, err)
	return &b
}

// put is a file of one byte.
func put(w *pack.Writer, name string, m pack.Meta) error {
	m.Size = 1
	_, err := w.File(name, m)
	b, room := w.Room(1)
	copy(b, "x")
	_, failed := w.Block(0, 1)
	return errors.Join(err, room, failed)
}

// Streams that only somebody hostile sends do not leave the destination, which stays as
// it is.
func TestUnpackHostile(t *testing.T) {
	link := pack.Meta{Mode: 0o777}
	for what, do := range map[string]func(w *pack.Writer) error{
		"parent": func(w *pack.Writer) error {
			return errors.Join(w.Dir(".."), put(w, "escaped", pack.Meta{}), w.Up(pack.Meta{}))
		},
		"absolute":   func(w *pack.Writer) error { return put(w, "/escaped", pack.Meta{}) },
		"twice":      func(w *pack.Writer) error { return errors.Join(put(w, "f", pack.Meta{}), put(w, "f", pack.Meta{})) },
		"link twice": func(w *pack.Writer) error { return errors.Join(w.Link("f", "x", link), w.Link("f", "x", link)) },
		"file, link": func(w *pack.Writer) error { return errors.Join(put(w, "f", pack.Meta{}), w.Link("f", "x", link)) },
		"link, file": func(w *pack.Writer) error { return errors.Join(w.Link("f", "x", link), put(w, "f", pack.Meta{})) },
		"dir twice": func(w *pack.Writer) error {
			return errors.Join(w.Dir("d"), w.Up(pack.Meta{}), w.Dir("d"), w.Up(pack.Meta{}))
		},
		"of no file":   func(w *pack.Writer) error { return w.Same("s", pack.Meta{Ino: 7}) },
		"of /proc":     func(w *pack.Writer) error { return w.Same("s", pack.Meta{Dev: 5, Ino: 1, Size: 4096}) },
		"setuid":       func(w *pack.Writer) error { return put(w, "f", pack.Meta{Mode: 0o4755}) },
		"not all of d": func(w *pack.Writer) error { return w.Dir("d") },
		"link, dir": func(w *pack.Writer) error {
			return errors.Join(w.Link("d", ".", link), w.Dir("d"), put(w, "escaped", pack.Meta{}), w.Up(pack.Meta{}))
		},
		"dir, link": func(w *pack.Writer) error {
			return errors.Join(w.Dir("d"), w.Up(pack.Meta{}), w.Link("d", ".", link))
		},
		"same twice": func(w *pack.Writer) error {
			m := pack.Meta{Ino: 7, Size: 1}
			return errors.Join(put(w, "f", m), w.Same("s", m), w.Same("s", m))
		},
	} {
		for _, how := range []unpacker{{}, {links: true, dots: true}} {
			top := t.TempDir()
			to := filepath.Join(top, "to")
			must(t, os.Mkdir(to, 0o755))
			must(t, os.WriteFile(filepath.Join(to, "mine"), nil, 0o600))
			if _, _, err := unpacked(t, made(t, do), to, how); err == nil {
				t.Errorf("%s is taken", what)
			}
			must(t, os.RemoveAll(filepath.Join(to, ".paddock-"+someID+".part")))
			if got := list(t, top); len(got) != 2 || !strings.HasPrefix(got[1], `"to/mine"`) {
				t.Errorf("%s: there is %q", what, got)
			}
		}
	}
}

// More than may be is refused, before it is there.
func TestUnpackLimits(t *testing.T) {
	bomb := func(w *pack.Writer) error {
		var err error
		for i := range 2000 {
			err = errors.Join(err, put(w, itoa(i), pack.Meta{Mode: 0o600}))
		}
		return err
	}
	for _, how := range []unpacker{{maxItems: 1000}, {maxBytes: 1000}} {
		to := t.TempDir()
		_, _, err := unpacked(t, made(t, bomb), to, how)
		if f, ok := errors.AsType[*failure](err); !ok || !f.permanent || f.errno != unix.EFBIG {
			t.Errorf("%+v: %v", how, err)
		}
		if got := list(t, to); len(got) > 1010 {
			t.Errorf("%+v: %d files are there", how, len(got))
		}
	}
	// A size is a promise, and takes nothing.
	to := t.TempDir()
	_, _, err := unpacked(t, made(t, func(w *pack.Writer) error {
		_, err := w.File("huge", pack.Meta{Size: 1 << 62})
		return err
	}), to, unpacker{maxBytes: 1})
	if f, ok := errors.AsType[*failure](err); err != nil && (!ok || f.errno != unix.EFBIG) {
		t.Errorf("%v", err)
	}
}

func TestLeaves(t *testing.T) {
	for target, want := range map[string][2]bool{ // at the top, and in a directory
		"x": {}, "x/y/./z/": {}, ".": {}, "..": {true, false}, "../x": {true, false}, "./../x": {true, false}, "../..": {true, true},
		"/": {true, true}, "/etc": {true, true}, "x/..": {true, true}, "x/../y": {true, true}, "x/../../y": {true, true},
		"..x": {}, "...": {}, "x..": {}, "//x": {true, true},
	} {
		for depth := range 2 {
			if got := leaves(target, depth); got != want[depth] {
				t.Errorf("leaves(%q, %d) = %v", target, depth, got)
			}
		}
	}
}

// Links that lead out are left out, unless they are asked for, and so is in the home
// directory what begins with a dot, with all that is below.
func TestUnpackLeavesOut(t *testing.T) {
	stream := func() *bytes.Buffer {
		return made(t, func(w *pack.Writer) error {
			return errors.Join(
				w.Link("out", "/etc", pack.Meta{}), w.Link("in", "d/x", pack.Meta{}),
				put(w, ".profile", pack.Meta{}), w.Link(".in", "x", pack.Meta{}), w.Dir(".ssh"), w.Dir("deep"), put(w, "keys", pack.Meta{Ino: 1}), w.Same("k", pack.Meta{Ino: 1, Size: 1}),
				w.Link("l", "keys", pack.Meta{}), w.Up(pack.Meta{Mode: 0o700}), w.Up(pack.Meta{Mode: 0o700}),
				w.Dir(".paddock-x.part"), put(w, "commit", pack.Meta{}), w.Up(pack.Meta{}),
				w.Dir("d"), put(w, ".dot", pack.Meta{}), w.Link("up", "../in", pack.Meta{}), w.Up(pack.Meta{Mode: 0o755}), put(w, "f", pack.Meta{}),
			)
		})
	}
	for _, test := range []struct {
		home bool
		how  unpacker
		want string
	}{
		{false, unpacker{}, ".in .profile .ssh d f in"},
		{false, unpacker{links: true}, ".in .profile .ssh d f in out"},
		{true, unpacker{}, "d f in"},
		{true, unpacker{dots: true}, ".in .profile .ssh d f in"},
	} {
		to := t.TempDir()
		if test.home {
			t.Setenv("HOME", to)
		} else {
			t.Setenv("HOME", "/")
		}
		u, _, err := unpacked(t, stream(), to, test.how)
		must(t, err)
		entries, err := os.ReadDir(to)
		must(t, err)
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		slices.Sort(got)
		if strings.Join(got, " ") != test.want || u.result.Skipped == 0 {
			t.Errorf("%+v: there is %q, and %+v", test, got, u.result)
		}
		if _, err := os.Lstat(filepath.Join(to, "d/.dot")); err != nil {
			t.Error(err)
		}
	}
}

// A directory may have a mode that lets nobody in.
func TestUnpackClosedDirectory(t *testing.T) {
	to := t.TempDir()
	t.Cleanup(func() { must(t, os.Chmod(filepath.Join(to, "a"), 0o700)) })
	_, _, err := unpacked(t, made(t, func(w *pack.Writer) error {
		return errors.Join(
			w.Dir("a"), w.Dir("b"), put(w, "f", pack.Meta{Mode: 0o400}), w.Up(pack.Meta{}), w.Up(pack.Meta{}), put(w, "g", pack.Meta{}),
		)
	}), to, unpacker{})
	must(t, err)
	if st, err := os.Lstat(filepath.Join(to, "a")); err != nil || st.Mode() != os.ModeDir {
		t.Errorf("%v, %v", st, err)
	}
	must(t, os.Chmod(filepath.Join(to, "a"), 0o700))
	must(t, os.Chmod(filepath.Join(to, "a/b"), 0o700))
	if st, err := os.Lstat(filepath.Join(to, "a/b/f")); err != nil || st.Mode() != 0o400 {
		t.Errorf("%v, %v", st, err)
	}
}

// Two do not work in the same place, and nobody does in one that somebody else has made.
func TestUnpackAlone(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	fill(t, from, 1)
	stream, _ := packed(t, from, pack.Have{})
	_, _, err := unpacked(t, bytes.NewReader(stream[:len(stream)-1]), to, unpacker{})
	if err == nil {
		t.Fatal("no error")
	}
	part := filepath.Join(to, ".paddock-"+someID+".part")
	lock, err := os.Open(filepath.Join(part, "lock"))
	must(t, err)
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	_, _, err = unpacked(t, bytes.NewReader(stream), to, unpacker{})
	if f, ok := errors.AsType[*failure](err); !ok || f.errno != unix.EWOULDBLOCK {
		t.Errorf("%v", err)
	}
	must(t, lock.Close())
	if os.Getuid() != 0 {
		t.Skip("needs root to give a directory to somebody else")
	}
	must(t, os.Chown(part, 64123, 64123))
	if _, err := unpackWorker().openUnpack(to); err == nil {
		t.Error("the part of somebody else is taken")
	}
}
