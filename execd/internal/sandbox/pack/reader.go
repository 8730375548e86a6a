package pack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/zeebo/blake3"
)

// Record is one of what a stream is made of.
type Record struct {
	Type Type
	Name string
	Meta
	Target  string // of Link
	Offset  int64  // of Block; of File: from where on its blocks follow
	Data    []byte // of Block, until the next record is read
	Travel  int    // of Block: as how many bytes it came
	Skipped uint64 // of End: what the sender could not send
}

// Reader reads a stream, and refuses what does not belong there.
type Reader struct {
	// Items and Bytes are how much there is, as the sender says.
	Items, Bytes uint64
	// Decompress puts what a block was before Compress of the Writer into a buffer, if it has room
	// for that, and returns it; nil: no block may be compressed.
	Decompress func(to, zip []byte) ([]byte, error)
	// Resumed says that it goes on behind what the receiver has.
	Resumed bool

	progress

	source             Source
	read               int // bytes of the record that was returned last
	maxItems, maxBytes uint64
	depth              int
	path, want         Digest // of inside
	at                 int64  // of begin
	have               Have
	unzipped           []byte // room for a block; nil: none was compressed yet
	started            bool   // an item has come
	ended              bool
}

// Source is what a stream is read from, in place. A bufio.Reader is one, if its buffer has
// MaxRecord bytes.
type Source interface {
	// Peek returns at least n bytes, or an error with fewer.
	Peek(n int) ([]byte, error)
	// Discard passes over n bytes that Peek has returned, which may change from then on.
	Discard(n int) (int, error)
}

// NewReader reads how a stream begins. Of what is not limited, a limit is 0.
func NewReader(source Source, have Have, maxItems, maxBytes uint64) (*Reader, error) {
	p := &Reader{source: source, read: len(Magic), have: have, maxItems: maxItems, maxBytes: maxBytes}
	magic, err := source.Peek(len(Magic))
	if err != nil {
		return nil, early(err)
	}
	switch got := string(magic[:len(Magic)]); {
	case got == Magic:
	case strings.HasPrefix(got, magicWord):
		return nil, fmt.Errorf("it is %q, and this version of Paddock knows %q alone", strings.TrimSpace(got), strings.TrimSpace(Magic))
	default:
		return nil, broken("it does not begin with %q", Magic)
	}
	t, b, err := p.record()
	switch {
	case err != nil:
		return nil, err
	case t == Failed:
		return nil, failure(b)
	case t != Begin:
		return nil, broken("it begins with a record of type %d", t)
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	p.Items, p.Bytes, p.at = n(0), n(1), int64(n(3))
	from := Have{Items: n(2), Offset: p.at, List: Digest(b[32:])}
	p.want = Digest(b[32+sizeDigest:])
	p.Resumed = from != Have{}
	if p.Resumed {
		if from.Items != have.Items || from.List != have.List || from.Offset != 0 && from.Offset != have.Offset {
			return nil, broken("it goes on where the receiver is not")
		}
		p.goOn(have)
	}
	return p, p.check(p.Items, p.Bytes)
}

// check refuses more than there may be.
func (r *Reader) check(items, bytes uint64) error {
	if r.maxItems > 0 && items > r.maxItems || r.maxBytes > 0 && bytes > r.maxBytes {
		return ErrLimit
	}
	return nil
}

// early returns an end as one that came too early.
func early(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// record reads a record. What it says of its length is bounded by its type.
func (r *Reader) record() (Type, []byte, error) {
	if _, err := r.source.Discard(r.read); err != nil {
		return 0, nil, err
	}
	r.read = 0
	b, err := r.source.Peek(sizeHead)
	if err != nil {
		return 0, nil, early(err)
	}
	head := binary.BigEndian.Uint32(b)
	t, n := Type(head>>24), int(head&0xffffff)
	bound, known := payloads[t]
	if !known || n < bound.least || n > bound.most {
		return t, nil, broken("a record of type %d and %d bytes", t, n)
	}
	if b, err = r.source.Peek(sizeHead + n); err != nil {
		return t, nil, early(err)
	}
	r.read = sizeHead + n
	return t, b[sizeHead:r.read], nil
}

func failure(b []byte) error {
	return &Failure{Errno: binary.BigEndian.Uint32(b), Permanent: b[4] != 0, Text: string(b[sizeFail:])}
}

// Have returns what somebody has who has all that Next has returned.
func (r *Reader) Have() Have {
	h := r.progress.have()
	if r.at > 0 && !r.started { // the file that goes on has not been named yet
		return r.have
	}
	return h
}

// Next returns the next record; after End there is none. The error is a *Failure if the
// sender has failed.
func (r *Reader) Next() (Record, error) {
	if r.ended {
		return Record{}, io.EOF
	}
	t, b, err := r.record()
	if err != nil {
		return Record{}, err
	}
	rec := Record{Type: t}
	if t == Inside {
		r.path = sum(r.path, b)
	} else if r.path != r.want {
		return rec, broken("it goes on in another directory")
	}
	switch t {
	case Begin:
		err = broken("it begins twice")
	case Inside, Dir:
		rec.Name = string(b)
		err = checkName(rec.Name)
		if r.depth++; err == nil && r.depth > MaxDepth {
			err = broken("it is deeper than %d", MaxDepth)
		}
		if err == nil && t == Inside && (!r.Resumed || r.started) {
			err = broken("it is inside of a directory that it has not entered")
		}
	case Up:
		rec.Meta, err = parseMeta(b)
		if r.depth--; err == nil && r.depth < 0 {
			err = broken("it leaves more directories than it has entered")
		}
	case File, Same:
		rec.Meta, rec.Name, err = parseFile(b)
		if err == nil && t == Same && rec.Dev == 0 && rec.Ino == 0 {
			err = broken("%q is the same as nothing", rec.Name)
		}
	case Link:
		if rec.Meta, err = parseMeta(b); err == nil {
			name, target, _ := bytes.Cut(b[sizeUp:], []byte{0})
			rec.Name, rec.Target = string(name), string(target)
			err = checkName(rec.Name)
			if err == nil && (len(target) == 0 || len(target) > MaxTarget || bytes.IndexByte(target, 0) >= 0) {
				err = broken("the target of %q", rec.Name)
			}
		}
	case Block:
		rec.Travel = len(b) - sizeBlock
		rec.Offset, rec.Data, err = r.checkBlock(b)
	case Again:
		if !r.open {
			err = broken("a file is forgotten that has not begun")
		}
		r.open = false
	case End:
		r.close()
		if rec.Skipped = binary.BigEndian.Uint64(b[sizeDigest:]); Digest(b) != r.root || r.depth != 0 || r.at > 0 && !r.started {
			err = broken("it does not end with what it was made of")
		}
		r.ended = true
	case Failed:
		return Record{}, failure(b)
	}
	if err == nil && t.item() {
		err = r.count(&rec, b)
	}
	return rec, err
}

// checkBlock reads a block, which has to be what its digest says and to fit into the
// file.
func (r *Reader) checkBlock(b []byte) (offset int64, data []byte, err error) {
	offset, data = int64(binary.BigEndian.Uint64(b[1:])), b[sizeBlock:]
	switch {
	case !r.open:
		return 0, nil, broken("a block belongs to no file")
	case b[0] == zipped && r.Decompress != nil:
		if data, err = r.decompress(data); err != nil {
			return 0, nil, broken("a block cannot be decompressed: %v", err)
		}
	case b[0] != 0:
		return 0, nil, broken("a block has the flags %#x", b[0])
	}
	switch digest := blake3.Sum256(data); {
	case offset < r.offset || offset > r.size || int64(len(data)) > r.size-offset:
		return 0, nil, broken("a block of %d bytes at %d in a file of %d", len(data), offset, r.size)
	case digest != Digest(b[9:]):
		return 0, nil, broken("a block is not what its digest says")
	default:
		r.block(offset, len(data), digest[:])
	}
	return offset, data, r.check(0, r.bytes+r.data)
}

// decompress returns what a block was before it was compressed.
func (r *Reader) decompress(zip []byte) ([]byte, error) {
	if r.unzipped == nil {
		r.unzipped = make([]byte, MaxBlock)
	}
	data, err := r.Decompress(r.unzipped[:0], zip)
	if err == nil && (len(data) == 0 || len(data) > MaxBlock) {
		err = fmt.Errorf("it has %d bytes", len(data))
	}
	return data, err
}

// count counts an item; the first file may go on behind what the receiver has of it.
func (r *Reader) count(rec *Record, payload []byte) error {
	r.item(rec.Type, payload)
	if !r.started && r.at > 0 {
		if rec.Type != File || sum(r.list, r.header) != r.have.Partial || r.at > rec.Size {
			return broken("another file goes on than the receiver has begun")
		}
		rec.Offset = r.at
		r.goOnFile(r.have)
	}
	r.started = true
	n := r.items
	if r.open {
		n++
	}
	return r.check(n, 0)
}
