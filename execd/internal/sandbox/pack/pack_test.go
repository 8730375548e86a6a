package pack

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/blake3"
)

// call is a call of a Writer.
type call func(w *Writer) error

func dir(name string) call { return func(w *Writer) error { return w.Dir(name) } }
func up() call             { return func(w *Writer) error { return w.Up(Meta{Mode: 0o755, Sec: 7, Nsec: 8}) } }

func link(name, to string) call {
	return func(w *Writer) error { return w.Link(name, to, Meta{Mode: 0o777, Sec: -1}) }
}

// put writes a block.
func put(w *Writer, at int64, data []byte) error {
	b, err := w.Room(len(data))
	copy(b, data)
	_, failed := w.Block(at, len(data))
	return errors.Join(err, failed)
}

// source is where a stream is read.
func source(stream []byte) *bufio.Reader {
	return bufio.NewReaderSize(bytes.NewReader(stream), MaxRecord)
}

// file is a file of parts, which are as long as they say, with a hole before each.
func file(name string, parts ...int) call {
	return func(w *Writer) error {
		const hole = 3
		size := int64(0)
		for _, n := range parts {
			size += int64(hole + n)
		}
		from, err := w.File(name, Meta{Mode: 0o640, Sec: 1, Size: size, Dev: 2, Ino: uint64(len(name))})
		if err != nil || from < 0 {
			return err
		}
		at := int64(0)
		for _, n := range parts {
			if at += hole; at >= from {
				err = errors.Join(err, put(w, at, bytes.Repeat([]byte{byte(n)}, n)))
			}
			at += int64(n)
		}
		return err
	}
}

func same(name string) call {
	return func(w *Writer) error { return w.Same(name, Meta{Mode: 0o640, Sec: 1, Dev: 2, Ino: 5}) }
}

func again() call { return func(w *Writer) error { return w.Again() } }

// squeeze compresses what is one byte again and again, to that byte and how often it comes. All
// else becomes longer.
func squeeze(to, block []byte) []byte {
	if len(bytes.Trim(block, string(block[:1]))) > 0 {
		return append(append(to, 0), block...)
	}
	return binary.BigEndian.AppendUint32(append(to, block[0]), uint32(len(block)))
}

// stretch undoes that.
func stretch(to, zip []byte) ([]byte, error) {
	if len(zip) != 5 {
		return nil, errors.New("it is not squeezed")
	}
	n := binary.BigEndian.Uint32(zip[1:])
	return append(to, bytes.Repeat(zip[:1], int(min(n, MaxBlock+1)))...), nil
}

// write writes a tree.
func write(t testing.TB, have Have, calls ...call) ([]byte, error) {
	t.Helper()
	return compressed(t, nil, have, calls...)
}

// compressed is write of blocks that are compressed.
func compressed(t testing.TB, compress func(to, block []byte) []byte, have Have, calls ...call) ([]byte, error) {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(NewBuffer(&b), have, 10, 20)
	w.Compress = compress
	for _, c := range calls {
		if err := c(w); err != nil {
			return nil, err
		}
	}
	_, err := w.End(3)
	return b.Bytes(), err
}

// read reads a stream, and returns what there was, each on a line, with what somebody has
// at each of these places.
func read(stream []byte, have Have) (lines []string, haves []Have, err error) {
	return readFrom(source(stream), have)
}

func readFrom(s Source, have Have) (lines []string, haves []Have, err error) {
	r, err := NewReader(s, have, 0, 0)
	if err != nil {
		return nil, nil, err
	}
	r.Decompress = stretch
	for {
		haves = append(haves, r.Have())
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return lines, haves, nil
		}
		if err != nil {
			return lines, haves, err
		}
		lines = append(lines, strings.Join([]string{
			string('a' + rune(rec.Type)), rec.Name, rec.Target, string('0' + rune(rec.Offset)), string(rec.Data),
		}, " "))
	}
}

var tree = []call{
	file("first", 10, 20), dir("a"), dir("b"), file("in b", 5), link("l", "../x"), up(), same("same"),
	dir("empty"), up(), file("hole"), up(), dir("z"), file("last", 1, 2, 3), up(),
}

// What is compressed is the same tree in fewer bytes, and what somebody has of it, too: one stream
// goes on where the other was cut off.
func TestCompress(t *testing.T) {
	blocks := [][]byte{bytes.Repeat([]byte("ab"), 500), make([]byte, 1000), []byte("x")}
	mixed := func(w *Writer) error {
		from, err := w.File("mixed", Meta{Size: 2001})
		for i, data := range blocks {
			if at := int64(i * 1000); err == nil && from >= 0 && at >= from {
				err = put(w, at, data)
			}
		}
		return err
	}
	calls := append([]call{mixed}, tree...)
	plain, err := write(t, Have{}, calls...)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := compressed(t, squeeze, Have{}, calls...)
	if err != nil {
		t.Fatal(err)
	}
	const spared = 1000 - 5 + 20 - 5 + 10 - 5 // the other blocks are not worth it
	if len(stream) != len(plain)-spared {
		t.Errorf("%d bytes are %d; want %d", len(plain), len(stream), len(plain)-spared)
	}
	lines, haves, err := read(plain, Have{})
	if err != nil {
		t.Fatal(err)
	}
	got, had, err := read(stream, Have{})
	if err != nil || !slices.Equal(got, lines) || !slices.Equal(had, haves) {
		t.Errorf("%q, %v, %v; want %q, %v", got, had, err, lines, haves)
	}
	for i, have := range haves[:len(haves)-1] {
		rest, err := compressed(t, squeeze, have, calls...)
		if err != nil {
			t.Fatal(err)
		}
		if _, after, err := read(rest, have); err != nil || after[len(after)-1] != haves[len(haves)-1] {
			t.Errorf("behind %d: %v, %v", i, after, err)
		}
	}
	r, err := NewReader(source(stream), Have{}, 0, 0)
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, ErrFormat) {
		t.Errorf("who cannot decompress it has %v", err)
	}
}

// What travels is what a reader and a writer say that does.
func TestTravel(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(NewBuffer(&b), Have{}, 0, 0)
	w.Compress = squeeze
	if _, err := w.File("f", Meta{Size: 1200}); err != nil {
		t.Fatal(err)
	}
	want := []int{5, 100}
	for i, data := range [][]byte{make([]byte, 1000), bytes.Repeat([]byte("ab"), 50)} {
		room, err := w.Room(len(data))
		copy(room, data)
		if n, failed := w.Block(int64(i*1000), len(data)); err != nil || failed != nil || n != want[i] {
			t.Errorf("block %d travels as %d, %v, %v; want %d", i, n, err, failed, want[i])
		}
	}
	if _, err := w.End(0); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(source(b.Bytes()), Have{}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.Decompress = stretch
	var got []int
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if rec.Type == Block {
			got = append(got, rec.Travel)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("blocks came as %d; want %d", got, want)
	}
}

// A stream that is interrupted anywhere goes on there.
func TestResume(t *testing.T) {
	stream, err := write(t, Have{}, tree...)
	if err != nil {
		t.Fatal(err)
	}
	all, haves, err := read(stream, Have{})
	if err != nil {
		t.Fatal(err)
	}
	last := haves[len(haves)-1]
	for n, h := range haves {
		have, err := ParseHave(h.String())
		if err != nil {
			t.Fatal(err)
		}
		rest, err := write(t, have, tree...)
		if err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		lines, then, err := read(rest, have)
		if err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		if then[len(then)-1] != last {
			t.Errorf("%d: it ends with %v; want %v", n, then[len(then)-1], last)
		}
		lines = slices.DeleteFunc(lines, func(l string) bool { return l[0] == 'a'+byte(Inside) })
		if have.Offset > 0 {
			lines = lines[1:] // the file
		}
		want := all[n:]
		if n > 0 && n < len(all) && have.Offset == 0 && all[n-1][0] == 'a'+byte(File) {
			want = all[n-1:] // it has begun, and nothing of it is there
		}
		if n == len(all) {
			want = all[n-1:] // the end alone
		}
		if !slices.Equal(lines, want) {
			t.Errorf("%d: %q follows; want %q", n, lines, want)
		}
	}
}

// Who has something else is told nothing of it, and a file that has changed is sent from
// its beginning.
func TestResumeOfAnotherTree(t *testing.T) {
	stream, err := write(t, Have{}, tree...)
	if err != nil {
		t.Fatal(err)
	}
	_, haves, err := read(stream, Have{})
	if err != nil {
		t.Fatal(err)
	}
	other := append([]call{file("first", 10, 21)}, tree[1:]...)
	for n, have := range haves {
		b, err := write(t, have, other...)
		if have.Items > 0 {
			if !errors.Is(err, ErrAnew) || len(b) > 0 {
				t.Errorf("%d: %d bytes were written, %v", n, len(b), err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if lines, _, err := read(b, have); err != nil || len(lines) != len(haves)-1 {
			t.Errorf("%d: %q, %v", n, lines, err)
		}
	}
	if _, err := write(t, haves[len(haves)-1], tree[:3]...); !errors.Is(err, ErrAnew) {
		t.Errorf("half of the tree: %v", err)
	}
}

// A file that changed comes again, and is in the root as it was in the end.
func TestAgain(t *testing.T) {
	stream, err := write(t, Have{}, dir("a"), file("f", 3), again(), file("f", 4), up())
	if err != nil {
		t.Fatal(err)
	}
	_, haves, err := read(stream, Have{})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := write(t, Have{}, dir("a"), file("f", 4), up())
	if err != nil {
		t.Fatal(err)
	}
	_, want, err := read(plain, Have{})
	if err != nil || haves[len(haves)-1] != want[len(want)-1] {
		t.Errorf("%v, %v; want %v", haves[len(haves)-1], err, want[len(want)-1])
	}
}

func TestFailure(t *testing.T) {
	for _, calls := range [][]call{nil, tree[:1]} {
		var b bytes.Buffer
		w := NewWriter(NewBuffer(&b), Have{}, 0, 0)
		for _, c := range calls {
			if err := c(w); err != nil {
				t.Fatal(err)
			}
		}
		want := Failure{5, true, strings.Repeat("x", MaxText)}
		if err := w.Fail(Failure{5, true, want.Text + "y"}); err != nil {
			t.Fatal(err)
		}
		_, _, err := read(b.Bytes(), Have{})
		if f, ok := errors.AsType[*Failure](err); !ok || *f != want {
			t.Errorf("%v", err)
		}
	}
}

// What was cut off or changed on its way is not taken for what was sent.
func TestDamage(t *testing.T) {
	s := source(nil) // for all of them, since its buffer is large
	again := func(stream []byte, have Have) ([]string, []Have, error) {
		s.Reset(bytes.NewReader(stream))
		return readFrom(s, have)
	}
	for _, have := range []Have{{}, middle(t)} {
		stream, err := write(t, have, tree...)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := again(stream, have); err != nil {
			t.Fatal(err)
		}
		for n := range stream {
			if _, _, err := again(stream[:n], have); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("of %d bytes %d are there: %v", len(stream), n, err)
			}
			const total = len(Magic) + 4 // how much there is, as the sender guessed
			if n >= total && n < total+16 || n >= len(stream)-8 {
				continue
			}
			for bit := range 8 {
				b := slices.Clone(stream)
				b[n] ^= 1 << bit
				if lines, _, err := again(b, have); err == nil {
					t.Fatalf("byte %d, bit %d: %q", n, bit, lines)
				}
			}
		}
	}
}

// middle is what somebody has who has half of the tree.
func middle(t *testing.T) Have {
	t.Helper()
	stream, err := write(t, Have{}, tree...)
	if err != nil {
		t.Fatal(err)
	}
	_, haves, err := read(stream, Have{})
	if err != nil {
		t.Fatal(err)
	}
	return haves[7]
}

// raw makes a stream of records of whatever kind, with the digests that are due.
func raw(have Have, records ...[]byte) []byte {
	b := []byte(Magic)
	var p progress
	put := func(t Type, payload []byte) {
		b = binary.BigEndian.AppendUint32(b, uint32(t)<<24|uint32(len(payload)&0xffffff))
		b = append(b, payload...)
	}
	begin := make([]byte, 16, sizeBegin)
	begin = binary.BigEndian.AppendUint64(begin, have.Items)
	begin = binary.BigEndian.AppendUint64(begin, uint64(have.Offset))
	var path Digest
	for _, r := range records {
		if Type(r[0]) == Inside {
			path = sum(path, r[1:])
		}
	}
	put(Begin, append(append(begin, have.List[:]...), path[:]...))
	p.goOn(have)
	for _, r := range records {
		t, payload := Type(r[0]), slices.Clone(r[1:])
		switch {
		case t == Block && len(payload) >= sizeBlock:
			data := payload[sizeBlock:]
			if payload[0] == zipped {
				data, _ = stretch(nil, data)
			}
			d := blake3.Sum256(data)
			copy(payload[9:], d[:])
			p.block(int64(binary.BigEndian.Uint64(payload[1:])), len(data), d[:])
		case t == Again:
			p.open = false
		case t.item() && len(payload) >= payloads[t].least:
			p.item(t, payload)
			if p.open && p.items == have.Items && have.Offset > 0 {
				p.goOnFile(have)
			}
		case t == End && len(payload) == 0:
			p.close()
			payload = binary.BigEndian.AppendUint64(p.root[:], 0)
		}
		put(t, payload)
	}
	return b
}

func rec(t Type, parts ...any) []byte {
	b := []byte{byte(t)}
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = append(b, p...)
		case int:
			b = binary.BigEndian.AppendUint64(b, uint64(p))
		case Meta:
			if t == Up || t == Link {
				b = appendMeta(b, p)
			} else {
				b = appendFile(b, p, "")
			}
		}
	}
	return b
}

func block(at int, data string) []byte {
	return rec(Block, "\x00", at, strings.Repeat("d", sizeDigest), data)
}

// zip is a block at 2 that is compressed.
func zip(data string) []byte {
	return rec(Block, "\x01", 2, strings.Repeat("d", sizeDigest), data)
}

// What no honest sender writes is refused.
func TestHostile(t *testing.T) {
	f := rec(File, Meta{Mode: 0o644, Size: 10}, "f")
	end := rec(End)
	for name, records := range map[string][][]byte{
		"parent":         {rec(Dir, ".."), rec(Up, Meta{}), end},
		"here":           {rec(Dir, "."), rec(Up, Meta{}), end},
		"absolute":       {rec(File, Meta{}, "/etc/passwd"), end},
		"path":           {rec(File, Meta{}, "a/b"), end},
		"parent's":       {rec(Link, Meta{}, "../x\x00y"), end},
		"nul":            {rec(File, Meta{}, "a\x00b"), end},
		"long":           {rec(Dir, strings.Repeat("n", MaxName+1)), rec(Up, Meta{}), end},
		"empty":          {rec(Dir), rec(Up, Meta{}), end},
		"no name":        {rec(File, Meta{}), end},
		"empty link":     {rec(Link, Meta{}, "\x00yy"), end},
		"no target":      {rec(Link, Meta{}, "abc"), end},
		"empty target":   {rec(Link, Meta{}, "ab\x00"), end},
		"target's nul":   {rec(Link, Meta{}, "a\x00b\x00c"), end},
		"long target":    {rec(Link, Meta{}, "a\x00"+strings.Repeat("t", MaxTarget+1)), end},
		"setuid":         {rec(File, Meta{Mode: 0o4755}, "f"), end},
		"sticky":         {rec(Dir, "d"), rec(Up, Meta{Mode: 0o1777}), end},
		"nanoseconds":    {rec(File, Meta{Nsec: 1e9}, "f"), end},
		"2^63":           {rec(File, Meta{Size: -1 << 63}, "f"), end},
		"behind the end": {f, block(5, "123456"), end},
		"at 2^63":        {f, block(-1<<63, "1"), end},
		"at -1":          {f, block(-1, "1"), end},
		"overlap":        {f, block(0, "123"), block(2, "3"), end},
		"backwards":      {f, block(4, "1"), block(0, "1"), end},
		"empty block":    {f, block(0, ""), end},
		"no file":        {block(0, "1"), end},
		"old file":       {f, rec(Dir, "d"), block(0, "1"), rec(Up, Meta{}), end},
		"flags":          {f, rec(Block, "\x02", 0, strings.Repeat("d", sizeDigest), "1"), end},
		"not compressed": {f, zip("x\x00\x00\x00"), end},
		"bomb":           {rec(File, Meta{Size: 1 << 40}, "f"), zip("x\xff\xff\xff\xff"), end},
		"no bomb":        {rec(File, Meta{Size: 1 << 40}, "f"), zip("x\x00\x04\x00\x01"), end},
		"of nothing":     {f, zip("x\x00\x00\x00\x00"), end},
		"of too much":    {f, zip("x\x00\x00\x00\x0b"), end},
		"zip of no file": {zip("x\x00\x00\x00\x01"), end},
		"huge block":     {f, block(0, strings.Repeat("x", MaxBlock+1)), end},
		"up":             {rec(Up, Meta{}), end},
		"not up":         {rec(Dir, "d"), end},
		"same as none":   {rec(Same, Meta{}, "s"), end},
		"inside":         {rec(Inside, "d"), rec(Up, Meta{}), end},
		"again":          {rec(Again), end},
		"again of none":  {f, rec(Dir, "d"), rec(Again), rec(Up, Meta{}), end},
		"begin":          {rec(Begin, strings.Repeat("b", sizeBegin)), end},
		"type 0":         {rec(0), end},
		"type 12":        {rec(Failed + 1), end},
		"another root":   {f, rec(End, strings.Repeat("r", sizeEnd))},
		"deep":           append(slices.Repeat([][]byte{rec(Dir, "d")}, MaxDepth+1), end),
	} {
		lines, _, err := read(raw(Have{}, records...), Have{})
		if !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %q, %v", name, lines, err)
		}
	}
	if _, _, err := read(raw(Have{}, f, block(0, "12"), zip("x\x00\x00\x00\x02"), block(8, "34"), end), Have{}); err != nil {
		t.Errorf("what is right is refused: %v", err)
	}
}

// A stream does not go on where the receiver is not.
func TestHostileResume(t *testing.T) {
	have := middle(t)
	f := rec(File, Meta{Size: 10}, "f")
	end := rec(End)
	for name, c := range map[string]struct {
		begin, have Have
		records     [][]byte
	}{
		"nothing is there": {have, Have{}, [][]byte{end}},
		"fewer items":      {Have{Items: have.Items - 1, List: have.List}, have, [][]byte{end}},
		"another list":     {Have{Items: have.Items}, have, [][]byte{end}},
		"another offset":   {Have{Items: have.Items, List: have.List, Offset: 1}, have, [][]byte{f, end}},
		"another file":     {Have{Offset: 5}, Have{Offset: 5}, [][]byte{f, end}},
		"no file":          {Have{Offset: 5}, Have{Offset: 5}, [][]byte{rec(Dir, "f"), rec(Up, Meta{}), end}},
		"nothing of it":    {Have{Offset: 5}, Have{Offset: 5}, [][]byte{end}},
		"inside later": {
			Have{Items: have.Items, List: have.List, Root: have.Root},
			have,
			[][]byte{rec(Dir, "d"), rec(Inside, "e"), rec(Up, Meta{}), rec(Up, Meta{}), end},
		},
	} {
		if lines, _, err := read(raw(c.begin, c.records...), c.have); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %q, %v", name, lines, err)
		}
	}
}

// A stream of another version is no damaged one, and said to be what it is.
func TestAnotherVersion(t *testing.T) {
	stream, err := write(t, Have{}, tree...)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = read(bytes.Replace(stream, []byte("pack 2"), []byte("pack 1"), 1), Have{})
	const want = `it is "paddock-pack 1", and this version of Paddock knows "paddock-pack 2" alone`
	if err == nil || err.Error() != want || errors.Is(err, ErrFormat) {
		t.Errorf("%v; want %s", err, want)
	}
}

// More than the receiver takes is refused, whether the sender says so before or not.
func TestLimits(t *testing.T) {
	var bomb [][]byte
	for range 100 {
		bomb = append(bomb, rec(Dir, "d"))
	}
	f := rec(File, Meta{Size: 1 << 62}, "f")
	honest, err := write(t, Have{}, file("f", 1)) // of 10 items and 20 bytes, it says
	if err != nil {
		t.Fatal(err)
	}
	for name, stream := range map[string][]byte{
		"items": raw(Have{}, bomb...),
		"files": raw(Have{}, slices.Repeat([][]byte{f}, 10)...),
		"bytes": raw(Have{}, f, block(0, "12345678"), block(1<<61, "12345678")),
		"said":  honest,
	} {
		r, err := NewReader(source(stream), Have{}, 9, 15)
		for n := 0; err == nil; n++ {
			if n > 20 {
				t.Fatalf("%s: it goes on and on", name)
			}
			_, err = r.Next()
		}
		if !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseHave(t *testing.T) {
	good := middle(t).String()
	for _, text := range []string{"x", good + " ", " " + good, good[1:], good[:len(good)-1], strings.ToUpper(good), strings.Replace(good, "00", "0g", 1)} {
		if h, err := ParseHave(text); err == nil {
			t.Errorf("%q is read as %v", text, h)
		}
	}
	if h, err := ParseHave(""); err != nil || h != (Have{}) {
		t.Errorf("%v, %v", h, err)
	}
	if h, err := ParseHave(Have{Offset: -1}.String()); err == nil {
		t.Errorf("%v", h)
	}
}

// FuzzReader reads anything.
func FuzzReader(f *testing.F) {
	stream, err := write(f, Have{}, tree...)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(stream)
	if stream, err = compressed(f, squeeze, Have{}, tree...); err != nil {
		f.Fatal(err)
	}
	f.Add(stream)
	f.Fuzz(func(t *testing.T, stream []byte) { follow(t, stream, Have{}) })
}

// FuzzRecords reads what has the right frames and digests. Each record of the input is a
// byte with its type, one with the length of its payload, and that.
func FuzzRecords(f *testing.F) {
	short := func(records ...[]byte) (b []byte) {
		for _, r := range records {
			b = append(append(b, r[0], byte(len(r)-1)), r[1:]...)
		}
		return b
	}
	one := rec(File, Meta{Size: 10, Dev: 1, Ino: 1}, "f")
	f.Add(uint64(0), uint64(0), short(one, block(0, "123"), rec(Again), one, block(3, "x"), rec(End)))
	f.Add(uint64(3), uint64(4), short(rec(Inside, "d"), one, block(4, "4"), rec(Up, Meta{}), rec(End)))
	f.Add(uint64(1), uint64(0), short(rec(Dir, "d"), rec(Link, Meta{}, "a\x00b"), rec(Same, Meta{Ino: 1}, "g"), rec(Up, Meta{}), rec(End)))
	f.Fuzz(func(t *testing.T, items, offset uint64, b []byte) {
		have := Have{Items: items, Offset: int64(offset)}
		var records [][]byte
		for len(b) >= 2 {
			n := min(2+int(b[1]), len(b))
			records = append(records, append([]byte{b[0]}, b[2:n]...))
			b = b[n:]
		}
		for _, r := range records {
			if Type(r[0]) == File {
				have.Partial = sum(have.List, r)
				break
			}
		}
		follow(t, raw(have, records...), have)
	})
}

// follow reads a stream to its end, and looks whether what it says can be done.
func follow(t *testing.T, stream []byte, have Have) {
	r, err := NewReader(source(stream), have, 0, 0)
	if err != nil {
		return
	}
	r.Decompress = stretch
	depth, size, end, open := 0, int64(0), int64(0), false
	for {
		rec, err := r.Next()
		if err != nil {
			return
		}
		if h, err := ParseHave(r.Have().String()); err != nil || h != r.Have() {
			t.Fatalf("%v: %v", r.Have(), err)
		}
		if rec.Type == Inside || rec.Type.item() && rec.Type != Up {
			if rec.Name == "" || rec.Name == "." || rec.Name == ".." || len(rec.Name) > MaxName || strings.ContainsAny(rec.Name, "/\x00") {
				t.Fatalf("the name %q", rec.Name)
			}
		}
		if rec.Mode&^0o777 != 0 || rec.Size < 0 || rec.Nsec >= 1e9 {
			t.Fatalf("%+v", rec)
		}
		switch rec.Type {
		case Inside, Dir:
			depth++
		case Up:
			depth--
		case File:
			size, end, open = rec.Size, rec.Offset, true
		case Block:
			if !open || rec.Offset < end || len(rec.Data) == 0 || rec.Offset+int64(len(rec.Data)) > size {
				t.Fatalf("a block at %d of %d behind %d of %d", rec.Offset, len(rec.Data), end, size)
			}
			end = rec.Offset + int64(len(rec.Data))
		}
		if rec.Type != Block {
			open = rec.Type == File
		}
		if depth < 0 || rec.Type == End && depth != 0 {
			t.Fatalf("%d deep", depth)
		}
	}
}

func FuzzParseHave(f *testing.F) {
	f.Add(Have{Items: 1, Offset: 2}.String())
	f.Add("\n")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ParseHave(text)
		if text = strings.TrimSuffix(text, "\n"); err == nil && text != "" && h.String() != text {
			t.Fatalf("%q is read as %v", text, h)
		}
	})
}
