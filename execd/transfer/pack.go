package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/pack"
)

const (
	// pipeSize is how much a pipe is to hold, so that one end works while the other does.
	pipeSize = 1 << 20
	// blockSize is less than a block may have: a pipe holds several, and the processor's
	// cache one, which is copied and hashed.
	blockSize = 256 << 10
)

// packWord is the word pack.
func packWord(args []string) int {
	flags := flag.NewFlagSet("pack", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	text := flags.String("have", "", "")
	err := flags.Parse(args)
	var have pack.Have
	if err == nil {
		have, err = pack.ParseHave(*text)
	}
	if err != nil || flags.NArg() != 1 {
		return usage(whyUsage(err, "pack wants a directory"))
	}
	if _, err := unix.IoctlGetTermios(unix.Stdout, unix.TCGETS); err == nil {
		return usage("standard output is a terminal")
	}
	_, _ = unix.FcntlInt(os.Stdout.Fd(), unix.F_SETPIPE_SZ, pipeSize) // it is none, or there may be none so large
	w := newWorker()
	p, err := w.pack(os.Stdout, flags.Arg(0), have)
	w.warn()
	if err == nil {
		fmt.Fprintf(os.Stderr, "sha256:%s %d bytes\n", p.root, p.out.Bytes())
	}
	return failed(err)
}

func whyUsage(err error, otherwise string) string {
	if err != nil {
		return err.Error()
	}
	return otherwise
}

// warn says what was left out.
func (w *worker) warn() {
	r := &w.result
	if r.Skipped == 0 {
		return
	}
	text := strings.Join(r.Skips, ", ")
	if r.Skipped > len(r.Skips) {
		text += ", ..."
	}
	fmt.Fprintf(os.Stderr, "execd-transfer: %d left out: %s\n", r.Skipped, text)
}

// failed says why something has failed, and returns the exit status.
func failed(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "execd-transfer: %v\n", err)
	return exitFailed
}

// pack writes a directory as a stream, behind what the receiver has of it.
func (w *worker) pack(out io.Writer, dir string, have pack.Have) (*packing, error) {
	w.stay = true
	p := &packing{worker: w, top: dir}
	err := p.prepare()
	for err == nil {
		p.out = pack.NewWriter(out, have, uint64(p.sum.items), uint64(p.sum.bytes))
		if err = p.run(); !errors.Is(err, pack.ErrAnew) {
			break
		}
		have, err = pack.Have{}, nil
		w.result.Skipped, w.result.Skips = 0, nil
	}
	p.sent.close()
	if err != nil {
		if p.out == nil {
			p.out = pack.NewWriter(out, pack.Have{}, 0, 0)
		}
		failed := pack.Failure{Text: err.Error()}
		if f, ok := errors.AsType[*failure](err); ok {
			failed.Errno, failed.Permanent = uint32(f.errno), f.permanent
		}
		_ = p.out.Fail(failed)
	}
	return p, err
}

// packing is a tree that is being written.
type packing struct {
	*worker
	top  string // path of the first directory
	sum  sum
	sent *table // files with several names that were sent; nil: there are none
	out  *pack.Writer
	from *walker
	buf  []byte
	root pack.Digest
}

// prepare looks how much there is.
func (p *packing) prepare() (err error) {
	s := source{path: p.top, follow: true}
	var st unix.Stat_t
	if err := unix.Stat(p.top, &st); err != nil {
		return fail("open", p.top, err)
	}
	if kind(&st) != unix.S_IFDIR {
		return fail("open", p.top, unix.ENOTDIR)
	}
	if p.sum, err = p.scan(s, &st); err != nil || p.sum.shared == 0 {
		return err
	}
	f, err := os.CreateTemp("", "paddock-")
	if err != nil {
		return fail("make", "a temporary file", err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return fail("remove", f.Name(), err)
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		p.sent, err = tableIn(fd, p.sum.shared)
	}
	return fail("make", f.Name(), err)
}

func (p *packing) path(name string) string {
	if name == "" {
		return p.top + suffix(string(p.from.path))
	}
	return p.top + "/" + p.from.of(name)
}

func (p *packing) run() error {
	fd, err := p.openTree(source{path: p.top, follow: true})
	if err != nil {
		return fail("open", p.top, err)
	}
	p.from, err = newWalker(fd, p.stay)
	defer func() { p.from.close() }()
	if err != nil {
		return fail("look at", p.top, err)
	}
	for {
		name, err := p.from.next()
		if err != nil {
			return fail("read", p.path(""), err)
		}
		if name == "" {
			if p.from.depth() == 0 {
				break
			}
			err = p.leave()
		} else {
			err = p.name(name)
		}
		if err != nil {
			return err
		}
	}
	p.root, err = p.out.End(uint64(p.result.Skipped))
	return err
}

func (p *packing) leave() error {
	var st unix.Stat_t
	err := unix.Fstat(p.from.fd, &st)
	if err == nil {
		err = p.from.up()
	}
	if err != nil {
		return fail("leave", p.path(""), err)
	}
	return p.out.Up(metaOf(&st))
}

// name writes one name of a directory.
func (p *packing) name(name string) error {
	st, err := lstat(p.from.fd, name)
	switch {
	case errors.Is(err, unix.ENOENT), p.from.depth() == 0 && isPart(name):
		return nil
	case err != nil:
		return fail("look at", p.path(name), err)
	}
	switch kind(&st) {
	case unix.S_IFDIR:
		if err := p.from.down(name); err != nil {
			return fail("open", p.path(name), err)
		}
		return p.out.Dir(name)
	case unix.S_IFREG:
		return p.file(name, &st)
	case unix.S_IFLNK:
		var buf [unix.PathMax]byte
		n, err := unix.Readlinkat(p.from.fd, name, buf[:])
		if err != nil {
			return fail("read the link", p.path(name), err)
		}
		return p.out.Link(name, string(buf[:n]), metaOf(&st))
	}
	p.skip(&st, p.path(name))
	return nil
}

// file writes a file, again if it changes meanwhile.
func (p *packing) file(name string, st *unix.Stat_t) error {
	shared := st.Nlink > 1 && p.sent != nil
	if shared {
		if _, found := p.sent.find(spot{}.entry(st)); found {
			return p.out.Same(name, metaOf(st))
		}
	}
	for range maxChanges {
		err := p.fileOnce(name, st)
		switch {
		case err == nil && shared:
			return fail("note", p.path(name), p.sent.add(spot{}.entry(st)))
		case err == nil:
			return nil
		case !errors.Is(err, errChanged):
			return err
		}
		if err := p.out.Again(); err != nil {
			return err
		}
		if *st, err = lstat(p.from.fd, name); errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return fail("look at", p.path(name), err)
		}
	}
	return never(unix.ETXTBSY, "%s changed while it was sent", quote(p.path(name)))
}

func (p *packing) fileOnce(name string, st *unix.Stat_t) error {
	at, err := p.out.File(name, metaOf(st))
	if err != nil || at < 0 {
		return err
	}
	fd, err := source{dir: p.from.fd, name: name}.open(p.stay)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return errChanged // it was a regular file a moment ago
	}
	if err != nil {
		return fail("open", p.path(name), err)
	}
	defer unix.Close(fd)
	if err := unchanged(fd, st); err != nil {
		return err
	}
	if st.Size <= small && volume(st) >= st.Size { // without holes
		err = p.data(fd, at, st.Size)
	} else {
		err = eachExtent(fd, at, st.Size, func(at, end int64) error { return p.data(fd, at, end) })
	}
	if err == nil {
		err = unchanged(fd, st)
	}
	if err != nil && !errors.Is(err, errChanged) {
		return fail("read", p.path(name), err)
	}
	return err
}

// unchanged returns whether a file is still what it was.
func unchanged(fd int, want *unix.Stat_t) error {
	var got unix.Stat_t
	err := unix.Fstat(fd, &got)
	if err == nil && sign(&got) != sign(want) {
		return errChanged
	}
	return err
}

// data writes a part of a file that is no hole.
func (p *packing) data(fd int, at, end int64) error {
	for at < end {
		n := int(min(end-at, blockSize))
		if n > len(p.buf) {
			p.buf = make([]byte, n)
		}
		for got := 0; got < n; {
			more, err := unix.Pread(fd, p.buf[got:n], at+int64(got))
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil:
				return err
			case more == 0:
				return errChanged // it is shorter by now
			}
			got += max(more, 0)
		}
		if err := p.out.Block(at, p.buf[:n]); err != nil {
			return fail("write", "the stream", err)
		}
		at += int64(n)
		p.add(int64(n))
	}
	return nil
}

// metaOf returns what travels of a file beside its name.
func metaOf(st *unix.Stat_t) pack.Meta {
	m := pack.Meta{Mode: st.Mode & 0o777, Sec: st.Mtim.Sec, Nsec: uint32(st.Mtim.Nsec), Size: st.Size}
	if st.Nlink > 1 {
		m.Dev, m.Ino = st.Dev, st.Ino
	}
	return m
}
