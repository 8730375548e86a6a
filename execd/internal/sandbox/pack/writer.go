package pack

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
)

// ErrAnew is that the receiver has something else. Nothing was written, and the sender
// begins anew with a Writer that knows of no Have.
var ErrAnew = errors.New("what the receiver has is not in this tree")

// Writer writes a stream. Its methods are called for all that is in the tree, in the
// same order in each attempt, also for what the receiver has, which is not written.
type Writer struct {
	progress

	w     *bufio.Writer
	have  Have
	total [2]uint64 // items and bytes
	begun bool
	names []string // of directories, as long as it has not begun
	at    int64    // from where on the file that is open is sent
	b     []byte
}

// bufferSize is how many bytes are written at once, but for those of blocks.
const bufferSize = 64 << 10

// NewWriter returns a Writer that tells the receiver how much there is.
func NewWriter(w io.Writer, have Have, items, bytes uint64) *Writer {
	return &Writer{w: bufio.NewWriterSize(w, bufferSize), have: have, total: [2]uint64{items, bytes}}
}

// record writes a record; err is what the buffer had to say in the end.
func (w *Writer) record(t Type, payload, data []byte) error {
	var head [4]byte
	binary.BigEndian.PutUint32(head[:], uint32(t)<<24|uint32(len(payload)+len(data)))
	for _, b := range [][]byte{head[:], payload, data} {
		if _, err := w.w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

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
	if _, err := w.w.WriteString(Magic); err != nil {
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
	if err := w.record(Begin, append(append(b, w.have.List[:]...), path[:]...), nil); err != nil {
		return err
	}
	for _, name := range w.names {
		if err := w.record(Inside, []byte(name), nil); err != nil {
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
	return true, w.record(t, payload, nil)
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

// Block writes a block of the file that was begun last.
func (w *Writer) Block(offset int64, data []byte) error {
	digest := sha256.Sum256(data)
	w.b = binary.BigEndian.AppendUint64(append(w.b[:0], 0), uint64(offset))
	w.b = append(w.b, digest[:]...)
	w.block(offset, len(data), digest[:])
	return w.record(Block, w.b, data)
}

// Again takes back the file that was begun last: it has changed.
func (w *Writer) Again() error {
	w.open = false
	return w.record(Again, nil, nil)
}

// End ends the stream, and returns the root. skipped is how much cannot be sent at all.
func (w *Writer) End(skipped uint64) (Digest, error) {
	if err := w.begin(0); err != nil {
		return Digest{}, err
	}
	w.close()
	if err := w.record(End, binary.BigEndian.AppendUint64(w.root[:], skipped), nil); err != nil {
		return w.root, err
	}
	return w.root, w.w.Flush()
}

// Bytes returns how many bytes the files have, without holes, also those that the
// receiver had.
func (w *Writer) Bytes() uint64 { return w.bytes }

// Fail ends the stream, which cannot be sent.
func (w *Writer) Fail(f Failure) error {
	if !w.begun {
		if _, err := w.w.WriteString(Magic); err != nil {
			return err
		}
	}
	b := append(binary.BigEndian.AppendUint32(nil, f.Errno), 0)
	if f.Permanent {
		b[4] = 1
	}
	if err := w.record(Failed, append(b, f.Text[:min(len(f.Text), MaxText)]...), nil); err != nil {
		return err
	}
	return w.w.Flush()
}
