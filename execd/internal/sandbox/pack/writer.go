package pack

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/zeebo/blake3"
)

// ErrAnew is that the receiver has something else. Nothing was written, and the sender
// begins anew with a Writer that knows of no Have.
var ErrAnew = errors.New("what the receiver has is not in this tree")

// worth is which part of a block has to be spared by compression.
const worth = 16

// Writer writes a stream. Its methods are called for all that is in the tree, in the
// same order in each attempt, also for what the receiver has, which is not written.
type Writer struct {
	// Compress appends to a buffer what a block becomes; nil: all is sent as it is, as is a block of
	// which not much would be spared.
	Compress func(to, block []byte) []byte

	progress

	to    Space
	have  Have
	total [2]uint64 // items and bytes
	begun bool
	names []string // of directories, as long as it has not begun
	at    int64    // from where on the file that is open is sent
	b     []byte
	room  []byte // for a block with what is before its bytes
	zip   []byte // what Compress has made
}

// Space is where a stream is written, in place.
type Space interface {
	// Room returns at least n bytes that are not a part of the stream yet.
	Room(n int) ([]byte, error)
	// Commit makes the first n bytes of what Room has returned a part of it.
	Commit(n int) error
	// Flush has all of it go to the receiver.
	Flush() error
}

// NewWriter returns a Writer that tells the receiver how much there is.
func NewWriter(to Space, have Have, items, bytes uint64) *Writer {
	return &Writer{to: to, have: have, total: [2]uint64{items, bytes}}
}

// Buffer is a Space before a writer.
type Buffer struct {
	w io.Writer
	b []byte
}

// NewBuffer returns a Buffer.
func NewBuffer(w io.Writer) *Buffer { return &Buffer{w, make([]byte, 0, MaxRecord)} }

// Room implements Space.
func (b *Buffer) Room(n int) (room []byte, err error) {
	if n > cap(b.b)-len(b.b) {
		err = b.Flush()
	}
	return b.b[len(b.b):cap(b.b)], err
}

// Commit implements Space.
func (b *Buffer) Commit(n int) error {
	b.b = b.b[:len(b.b)+n]
	return nil
}

// Flush implements Space.
func (b *Buffer) Flush() error {
	_, err := b.w.Write(b.b)
	b.b = b.b[:0]
	return err
}

// write writes bytes.
func (w *Writer) write(parts ...[]byte) error {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	room, err := w.to.Room(n)
	if err != nil {
		return err
	}
	for _, p := range parts {
		room = room[copy(room, p):]
	}
	return w.to.Commit(n)
}

// head returns how a record begins with a payload of so many bytes.
func head(t Type, n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(t)<<24|uint32(n)) }

// record writes a record.
func (w *Writer) record(t Type, payload []byte) error { return w.write(head(t, len(payload)), payload) }

// begin writes how the stream begins, behind what the receiver has.
func (w *Writer) begin(at int64) error {
	if w.begun {
		return nil
	}
	if w.items < w.have.Items {
		return ErrAnew
	}
	w.begun, w.at = true, at
	w.goOn(w.have)
	if err := w.write([]byte(Magic)); err != nil {
		return err
	}
	b := make([]byte, 0, sizeBegin)
	for _, n := range []uint64{w.total[0], w.total[1], w.have.Items, uint64(at)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	var path Digest
	for _, name := range w.names {
		path = sum(path, []byte(name))
	}
	if err := w.record(Begin, append(append(b, w.have.List[:]...), path[:]...)); err != nil {
		return err
	}
	for _, name := range w.names {
		if err := w.record(Inside, []byte(name)); err != nil {
			return err
		}
	}
	return nil
}

// put counts an item, and writes it unless the receiver has it.
func (w *Writer) put(t Type, payload []byte) (written bool, err error) {
	if !w.begun && w.items < w.have.Items {
		w.item(t, payload)
		w.close()
		if w.items == w.have.Items && w.list != w.have.List {
			return false, ErrAnew
		}
		return false, nil
	}
	at := int64(0)
	if !w.begun && w.have.Offset > 0 && t == File && sum(w.list, []byte{byte(t)}, payload) == w.have.Partial {
		at = w.have.Offset
	}
	if err := w.begin(at); err != nil {
		return false, err
	}
	w.item(t, payload)
	return true, w.record(t, payload)
}

// Dir enters a directory.
func (w *Writer) Dir(name string) error {
	_, err := w.put(Dir, []byte(name))
	if !w.begun {
		w.names = append(w.names, name)
	}
	return err
}

// Up leaves it.
func (w *Writer) Up(m Meta) error {
	_, err := w.put(Up, appendMeta(w.b[:0], m))
	if n := len(w.names); n > 0 {
		w.names = w.names[:n-1]
	}
	return err
}

// Link is a symbolic link.
func (w *Writer) Link(name, target string, m Meta) error {
	b := append(appendMeta(w.b[:0], m), name...)
	w.b = append(append(b, 0), target...)
	_, err := w.put(Link, w.b)
	return err
}

// Same is another name of a file that was sent.
func (w *Writer) Same(name string, m Meta) error {
	w.b = appendFile(w.b[:0], m, name)
	_, err := w.put(Same, w.b)
	return err
}

// File begins a file, and returns from which offset on its blocks are to be written;
// less than 0: the receiver has all of it.
func (w *Writer) File(name string, m Meta) (from int64, err error) {
	w.b = appendFile(w.b[:0], m, name)
	written, err := w.put(File, w.b)
	if err != nil || !written {
		return -1, err
	}
	from, w.at = w.at, 0
	if from > 0 {
		w.goOnFile(w.have)
	}
	return from, nil
}

// Room returns n bytes, in which the next block of the file that was begun last is to be put.
func (w *Writer) Room(n int) (block []byte, err error) {
	w.room, err = w.to.Room(sizeHead + sizeBlock + n)
	if err != nil {
		return nil, err
	}
	return w.room[sizeHead+sizeBlock:][:n], nil
}

// Block makes the first n bytes of what Room has returned a block at an offset of the file, and
// returns as how many bytes it travels.
func (w *Writer) Block(offset int64, n int) (travel int, err error) {
	data := w.room[sizeHead+sizeBlock:][:n]
	digest := blake3.Sum256(data)
	w.block(offset, n, digest[:])
	flags := byte(0)
	if w.Compress != nil {
		if w.zip = w.Compress(w.zip[:0], data); len(w.zip) < n-n/worth {
			flags, n = zipped, copy(data, w.zip)
		}
	}
	b := append(w.room[:0], head(Block, sizeBlock+n)...)
	b = binary.BigEndian.AppendUint64(append(b, flags), uint64(offset))
	copy(w.room[len(b):], digest[:])
	return n, w.to.Commit(sizeHead + sizeBlock + n)
}

// Again takes back the file that was begun last: it has changed.
func (w *Writer) Again() error {
	w.open = false
	return w.record(Again, nil)
}

// End ends the stream, and returns the root. skipped is how much cannot be sent at all.
func (w *Writer) End(skipped uint64) (Digest, error) {
	if err := w.begin(0); err != nil {
		return Digest{}, err
	}
	w.close()
	if err := w.record(End, binary.BigEndian.AppendUint64(w.root[:], skipped)); err != nil {
		return w.root, err
	}
	return w.root, w.to.Flush()
}

// Bytes returns how many bytes the files have, without holes, also those that the
// receiver had.
func (w *Writer) Bytes() uint64 { return w.bytes }

// Fail ends the stream, which cannot be sent.
func (w *Writer) Fail(f Failure) error {
	if !w.begun {
		if err := w.write([]byte(Magic)); err != nil {
			return err
		}
	}
	b := append(binary.BigEndian.AppendUint32(nil, f.Errno), 0)
	if f.Permanent {
		b[4] = 1
	}
	if err := w.record(Failed, append(b, f.Text[:min(len(f.Text), MaxText)]...)); err != nil {
		return err
	}
	return w.to.Flush()
}
