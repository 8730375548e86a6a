package main

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"

	"paddock/execd/internal/sandbox/pack"
)

// text is what compresses well.
func text(n int) []byte { return bytes.Repeat([]byte("a line of a log\n"), n/16) }

// A tree that is compressed is the same tree in fewer bytes, and what does not compress is as long
// as it was. One attempt may compress where another has not.
func TestZstd(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	random := make([]byte, 1<<20)
	_, _ = rand.Read(random)
	must(t, os.WriteFile(filepath.Join(from, "random"), random, 0o644))
	plain, _ := packed(t, from, pack.Have{})
	w := newWorker()
	w.zips = true
	zipped := func(have pack.Have) []byte {
		t.Helper()
		var b bytes.Buffer
		_, err := w.pack(pack.NewBuffer(&b), from, have)
		must(t, err)
		return b.Bytes()
	}
	if got := zipped(pack.Have{}); !bytes.Equal(got, plain) {
		t.Errorf("what does not compress has %d bytes of %d, or is another", len(got), len(plain))
	}
	must(t, os.WriteFile(filepath.Join(from, "text"), text(1<<20), 0o644))
	must(t, os.WriteFile(filepath.Join(from, "small"), text(512), 0o644))
	plain, p := packed(t, from, pack.Have{})
	stream := zipped(pack.Have{})
	if most := len(plain) - 1<<20 + 10000; len(stream) > most {
		t.Errorf("%d bytes are %d; want at most %d", len(plain), len(stream), most)
	}
	if _, _, err := unpacked(t, bytes.NewReader(plain[:len(plain)/2]), to, unpacker{}); err == nil {
		t.Error("half of a stream is enough")
	}
	_, root, err := unpacked(t, bytes.NewReader(zipped(hadOf(t, to))), to, unpacker{})
	if err != nil || root != p.root {
		t.Errorf("root %v, %v; want %v", root, err, p.root)
	}
	wantSame(t, from, to)
}

// frame is what zstd makes of something as it is, in one frame, which need not be a block.
func frame(t testing.TB, data []byte, options ...zstd.EOption) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil, options...)
	must(t, err)
	defer e.Close()
	return e.EncodeAll(data, nil)
}

// What would become more than a block, or wants more memory than one, is refused before it has
// that; so is what was cut off, or says another length than it has.
func TestUnzipHostile(t *testing.T) {
	block := frame(t, text(4096))
	wrong := bytes.Clone(block)
	wrong[5]++                                                // the length, behind magic and flags
	streamed := func(n int, options ...zstd.EOption) []byte { // the length is not said
		var b bytes.Buffer
		e, err := zstd.NewWriter(&b, options...)
		must(t, err)
		for range n {
			_, err = e.Write(text(64 << 10))
			must(t, err)
		}
		must(t, e.Close())
		return b.Bytes()
	}
	room := make([]byte, 0, pack.MaxBlock)
	if got, err := unzip(room, block); err != nil || !bytes.Equal(got, text(4096)) {
		t.Errorf("a block is %d bytes, %v", len(got), err)
	}
	for what, zip := range map[string][]byte{
		"bomb":          frame(t, make([]byte, 64*pack.MaxBlock)),
		"silent bomb":   streamed(1 << 10),
		"many frames":   bytes.Repeat(block, pack.MaxBlock/4096+1),
		"one byte more": frame(t, make([]byte, pack.MaxBlock+1)),
		"huge window":   streamed(3, zstd.WithWindowSize(128<<20)),
		"wrong length":  wrong,
		"cut off":       block[:len(block)-1],
		"more behind":   append(bytes.Clone(block), 'x'),
		"no zstd":       text(64),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := unzip(room, zip)
		runtime.ReadMemStats(&after)
		if err == nil || cap(got) > pack.MaxBlock {
			t.Errorf("%s: %d bytes, %v", what, len(got), err)
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 4*pack.MaxBlock {
			t.Errorf("%s: it takes %d bytes of memory", what, taken)
		}
	}
}

// FuzzUnzip decompresses what may be anything, and what was compressed of it.
func FuzzUnzip(f *testing.F) {
	f.Add(frame(f, text(4096)))
	f.Add(frame(f, make([]byte, pack.MaxBlock+1)))
	f.Add(bytes.Repeat(frame(f, []byte("x")), 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		room := make([]byte, 0, pack.MaxBlock)
		if got, err := unzip(room, b); err == nil && len(got) > pack.MaxBlock {
			t.Fatalf("%d bytes become %d", len(b), len(got))
		}
		if len(b) == 0 || len(b) > pack.MaxBlock {
			return
		}
		if got, err := unzip(room, zip(nil, b)); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%d bytes are %d, %v", len(b), len(got), err)
		}
	})
}
