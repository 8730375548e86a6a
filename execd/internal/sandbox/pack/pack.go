// Package pack is the format in which a tree of files travels from one process to
// another, as pack(5) tells users. It imports blake3 beside the standard library; both
// ends of execd-transfer link it.
//
// # Stream
//
// A stream begins with the line "paddock-pack 2". Records follow: a byte with the type,
// three bytes with the length of the payload, and the payload. Numbers are big-endian,
// and have 64 bits where nothing else is said.
//
//	 1 begin   items bytes from at list path  how much there is, and from where on it follows
//	 2 inside  name                           a directory on the way to the first item
//	 3 dir     name                           what follows is in it
//	 4 up      mode time                      nothing more is in it
//	 5 file    mode time size dev ino name    blocks follow
//	 6 same    mode time size dev ino name    another name of a file
//	 7 link    mode time name NUL target      a symbolic link
//	 8 block   flags offset digest bytes      flags of 8 bits: 1, the bytes are compressed, or 0
//	 9 again                                  the file before has changed: forget it
//	10 end     root skipped                   all has been sent, but for what cannot be
//	11 failed  errno permanent text           it cannot be, 32 and 8 bits
//
// A mode has 16 bits, and no other than those of rwxrwxrwx; a time has seconds and, in 32
// bits, nanoseconds. dev and ino are 0 unless the file has several names: then same may
// name them later. Blocks come in order, have a byte at least and MaxBlock at most, and
// do not overlap. One that is compressed has frames of zstd (RFC 8878) instead of its bytes,
// which all other numbers are of. What no block has is a hole.
//
// A name is one part of a path: it has 1 to MaxName bytes, no slash and no NUL, and is neither "." nor "..". A target has 1 to
// MaxTarget bytes and no NUL. A tree is at most MaxDepth deep.
//
// # Digests
//
// The digest of a block is the BLAKE3 of its bytes. A file's begins with 32 zeros and is
// for each block the BLAKE3 of itself, the offset, the length in 32 bits and the digest
// of the block.
//
// Items are the records from dir to link. Two digests go through all of them, both begin
// with 32 zeros. list is for each item the BLAKE3 of itself, the type and the payload;
// root is that of itself, the type, the payload and, for a file, the digest of the file.
// A sender that reads directories in the same order again finds the same list without
// reading a file. root says that both ends have the same.
//
// # Resumption
//
// Since there is one order, what a receiver has is so many items and, of the file behind
// them, the bytes up to an offset: see Have. It sends that to the sender, which goes
// through the tree again. Where list is the same after as many items, it sends begin with
// from, at and list as they are in Have, an inside for each directory in which it is
// then, and the items behind. path begins with 32 zeros and is for each inside the
// BLAKE3 of itself and the name. at is 0 if the file behind them is another, and is sent
// from its beginning. Otherwise it begins anew, with zeros.
package pack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/zeebo/blake3"
)

// Magic is how a stream begins: a word, and the version of the form.
const (
	magicWord = "paddock-pack "
	Magic     = magicWord + "2\n"
)

// Limits, in bytes but for the last.
const (
	MaxName   = 255
	MaxTarget = 4095
	MaxBlock  = 256 << 10
	MaxText   = 1 << 10 // of failed
	MaxDepth  = 20000

	// MaxRecord is the most that a record has.
	MaxRecord = sizeHead + sizeBlock + MaxBlock
)

// Type is the type of a record.
type Type uint8

// The types.
const (
	Begin Type = 1 + iota
	Inside
	Dir
	Up
	File
	Same
	Link
	Block
	Again
	End
	Failed
)

// item reports whether a record is one that counts.
func (t Type) item() bool { return t >= Dir && t <= Link }

// zipped is the flag of a block that is compressed.
const zipped = 1

// sizeDigest is how many bytes a digest has.
const sizeDigest = 32

// Digest is a BLAKE3.
type Digest [sizeDigest]byte

func (d Digest) String() string { return fmt.Sprintf("%x", d[:]) }

// Meta is what is known of a file or directory beside its name.
type Meta struct {
	Mode     uint32 // rwxrwxrwx
	Sec      int64  // time of the last change
	Nsec     uint32
	Size     int64  // of File and Same
	Dev, Ino uint64 // of File and Same, unless it has one name
}

// Sizes of what is before a payload, and of payloads before a text.
const (
	sizeHead  = 4
	sizeBegin = 4*8 + 2*sizeDigest
	sizeUp    = 2 + 8 + 4
	sizeFile  = sizeUp + 3*8
	sizeBlock = 1 + 8 + sizeDigest
	sizeEnd   = sizeDigest + 8
	sizeFail  = 4 + 1
)

// payloads says how long payloads may be.
var payloads = map[Type]struct{ least, most int }{
	Begin: {sizeBegin, sizeBegin}, Inside: {1, MaxName}, Dir: {1, MaxName}, Up: {sizeUp, sizeUp},
	File: {sizeFile + 1, sizeFile + MaxName}, Same: {sizeFile + 1, sizeFile + MaxName},
	Link: {sizeUp + 3, sizeUp + MaxName + 1 + MaxTarget}, Block: {sizeBlock + 1, sizeBlock + MaxBlock},
	Again: {}, End: {sizeEnd, sizeEnd}, Failed: {sizeFail, sizeFail + MaxText},
}

// ErrFormat is matched when a stream breaks the rules.
var ErrFormat = errors.New("the stream is damaged")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

// ErrLimit is matched when there is more than the receiver takes.
var ErrLimit = errors.New("there is more than may be")

// Failure is what the sender says when it cannot send.
type Failure struct {
	Errno     uint32
	Permanent bool // a second attempt would fail as well
	Text      string
}

func (f *Failure) Error() string { return f.Text }

// checkName refuses what is no part of a path.
func checkName(name string) error {
	if name == "" || len(name) > MaxName || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return broken("the name %.300q", name)
	}
	return nil
}

// progress is how far a stream is.
type progress struct {
	items      uint64
	bytes      uint64 // of them, without holes
	list, root Digest

	open   bool   // a file follows the items
	header []byte // its type and payload
	size   int64
	offset int64  // end of its last block
	data   uint64 // in its blocks
	file   Digest
}

func sum(d Digest, parts ...[]byte) Digest {
	var b [512]byte // enough for most
	all := append(b[:0], d[:]...)
	for _, p := range parts {
		all = append(all, p...)
	}
	return blake3.Sum256(all)
}

// close counts the file that is open, if one is.
func (p *progress) close() {
	if p.open {
		p.open = false
		p.items++
		p.bytes += p.data
		p.list, p.root = sum(p.list, p.header), sum(p.root, p.header, p.file[:])
	}
}

// item counts an item, or opens a file.
func (p *progress) item(t Type, payload []byte) {
	p.close()
	p.header = append(append(p.header[:0], byte(t)), payload...)
	if t == File {
		p.open, p.offset, p.data, p.file = true, 0, 0, Digest{}
		p.size = int64(binary.BigEndian.Uint64(payload[sizeUp:]))
		return
	}
	p.items++
	p.list, p.root = sum(p.list, p.header), sum(p.root, p.header)
}

// block counts a block of the file that is open.
func (p *progress) block(offset int64, length int, digest []byte) {
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	p.file, p.offset, p.data = sum(p.file, b, digest), offset+int64(length), p.data+uint64(length)
}

// have returns what somebody has who has had all of this.
func (p *progress) have() Have {
	h := Have{Items: p.items, Bytes: p.bytes, List: p.list, Root: p.root}
	if p.open && p.offset > 0 {
		h.Offset, h.Data, h.Partial, h.File = p.offset, p.data, sum(p.list, p.header), p.file
	}
	return h
}

// goOn goes on behind what somebody has.
func (p *progress) goOn(h Have) { p.items, p.bytes, p.list, p.root = h.Items, h.Bytes, h.List, h.Root }

// goOnFile goes on in the file that is open.
func (p *progress) goOnFile(h Have) { p.offset, p.data, p.file = h.Offset, h.Data, h.File }

func appendMeta(b []byte, m Meta) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(m.Mode))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Sec))
	return binary.BigEndian.AppendUint32(b, m.Nsec)
}

func parseMeta(b []byte) (Meta, error) {
	m := Meta{Mode: uint32(binary.BigEndian.Uint16(b)), Sec: int64(binary.BigEndian.Uint64(b[2:])), Nsec: binary.BigEndian.Uint32(b[10:])}
	if m.Mode > 0o777 || m.Nsec >= 1e9 {
		return m, broken("the mode %o, the nanoseconds %d", m.Mode, m.Nsec)
	}
	return m, nil
}

func appendFile(b []byte, m Meta, name string) []byte {
	b = appendMeta(b, m)
	for _, n := range []uint64{uint64(m.Size), m.Dev, m.Ino} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return append(b, name...)
}

func parseFile(b []byte) (Meta, string, error) {
	m, err := parseMeta(b)
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[sizeUp+8*i:]) }
	m.Size, m.Dev, m.Ino = int64(n(0)), n(1), n(2)
	name := string(b[sizeFile:])
	if err == nil {
		err = checkName(name)
	}
	if err == nil && m.Size < 0 {
		err = broken("%q has %d bytes", name, n(0))
	}
	return m, name, err
}
