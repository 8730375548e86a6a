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

// pipeSize is how much a pipe is to hold, so that one end works while the other does.
const pipeSize = 1 << 20

// packWord is the word pack.
func packWord(args []string) int {
	flags := flag.NewFlagSet("pack", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	text := flags.String("have", "", "")
	zips := flags.Bool("zstd", false, "")
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
	w.zips = *zips
	p, err := w.pack(pack.NewBuffer(os.Stdout), flags.Arg(0), have)
	w.warn()
	if err == nil {
		fmt.Fprintf(os.Stderr, "blake3:%s %d bytes\n", p.root, p.out.Bytes())
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
func (w *worker) pack(out pack.Space, dir string, have pack.Have) (*packing, error) {
	w.stay = true
	return w.packAll(out, have, func(p *packing) error {
		fd, err := p.openTree(source{path: dir, follow: true})
		if err != nil {
			return fail("open", dir, err)
		}
		p.hidden = isPart
		return p.tree(fd, dir)
	})
}

// packAll writes a stream, behind what the receiver has of it. Content writes what is in it,
// the same each time.
func (w *worker) packAll(out pack.Space, have pack.Have, content func(p *packing) error) (*packing, error) {
	p := &packing{worker: w, content: content}
	err := p.prepare()
	if errors.Is(err, errTurn) {
		return p, err
	}
	for err == nil {
		w.had(have)
		to := pack.NewWriter(out, have, uint64(p.sum.items), uint64(p.sum.bytes))
		if w.zips {
			to.Compress = zip
		}
		if err = p.all(to); !errors.Is(err, pack.ErrAnew) {
			break
		}
		have, err = pack.Have{}, nil
	}
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

// had notes what was there before a stream.
func (w *worker) had(have pack.Have) {
	n := int64(have.Bytes + have.Data)
	w.bytes.Store(n)
	w.before.Store(n)
}

// packing is a tree that is being written.
type packing struct {
	*worker
	content func(*packing) error
	out     *pack.Writer // nil: it is only looked how much there is
	sum     sum
	sent    *table // files with several names that were sent; nil: there are none
	root    pack.Digest

	top   string // path of the directory that is gone through
	from  *walker
	given int // how many levels of it the stream has

	// Of that directory, what of it is left out; nil: nothing.
	hidden func(name string) bool                              // at its top
	wanted func(name string, st *unix.Stat_t) (is, leads bool) // leads: what is wanted may be in it
	staged *table                                              // and has not changed since
}

// prepare looks how much there is.
func (p *packing) prepare() error {
	if err := p.all(nil); err != nil {
		return err
	}
	p.total.Store(p.sum.bytes)
	if p.orders.Max > 0 && p.sum.bytes > p.orders.Max {
		return p.tooMuch(p.sum.bytes)
	}
	if p.orders.Pack != nil {
		return p.turn()
	}
	return nil
}

// all goes through all that there is.
func (p *packing) all(out *pack.Writer) error {
	p.out, p.result.Skipped, p.result.Skips = out, 0, nil
	if out != nil && p.sum.shared > 0 {
		if err := p.openSent(); err != nil {
			return err
		}
		defer func() {
			p.sent.close()
			p.sent = nil
		}()
	}
	if err := p.content(p); err != nil || out == nil {
		return err
	}
	var err error
	p.root, err = out.End(uint64(p.result.Skipped))
	return err
}

func (p *packing) openSent() error {
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

// tree writes what is in a directory, which it closes. It has a path.
func (p *packing) tree(fd int, path string) (err error) {
	p.top, p.given = path, 0
	p.from, err = newWalker(fd, p.stay)
	defer func() { p.from.close() }()
	if err != nil {
		return fail("look at", path, err)
	}
	for {
		name, err := p.from.next()
		if err != nil {
			return fail("read", p.path(""), err)
		}
		if name == "" {
			if p.from.depth() == 0 {
				return nil
			}
			err = p.leave()
		} else {
			err = p.name(name)
		}
		if err != nil {
			return err
		}
	}
}

// reach has the stream come to the directory that is gone through now.
func (p *packing) reach() error {
	for p.given < p.from.depth() {
		p.given++
		if err := p.dir(p.from.name(p.given)); err != nil {
			return err
		}
	}
	return nil
}

func (p *packing) dir(name string) error {
	if p.out == nil {
		p.count(&p.sum, &unix.Stat_t{Mode: unix.S_IFDIR})
		return nil
	}
	return p.out.Dir(name)
}

func (p *packing) up(m pack.Meta) error {
	if p.out == nil {
		return nil
	}
	return p.out.Up(m)
}

func (p *packing) leave() error {
	depth := p.from.depth()
	var st unix.Stat_t
	err := unix.Fstat(p.from.fd, &st)
	if err == nil {
		err = p.from.up()
	}
	if err != nil {
		return fail("leave", p.path(""), err)
	}
	if p.given < depth {
		return nil // there was nothing in it that is wanted
	}
	p.given--
	return p.up(metaOf(&st))
}

// name writes one name of a directory.
func (p *packing) name(name string) error {
	p.beat.Add(1)
	st, err := lstat(p.from.fd, name)
	switch {
	case errors.Is(err, unix.ENOENT), p.from.depth() == 0 && p.hidden != nil && p.hidden(name):
		return nil
	case err != nil:
		return fail("look at", p.path(name), err)
	}
	is, leads := true, false
	if p.wanted != nil {
		is, leads = p.wanted(p.from.of(name), &st)
	}
	switch {
	case !is && !leads, kind(&st) == unix.S_IFDIR && identity{st.Dev, st.Ino} == p.self:
		return nil
	case kind(&st) == unix.S_IFDIR:
		if err := p.from.down(name); err != nil {
			return fail("open", p.path(name), err)
		}
		if !is || p.staged.has(p.from.levels[p.from.depth()].spot, nil) {
			return nil // when there is something for it
		}
		return p.reach()
	case !is, p.staged.has(p.from.spot(name), &st):
		return nil
	}
	if err := p.reach(); err != nil {
		return err
	}
	return p.leaf(source{dir: p.from.fd, name: name, path: p.path(name)}, name, &st)
}

// leaf writes what is no directory, under a name.
func (p *packing) leaf(s source, name string, st *unix.Stat_t) error {
	switch kind(st) {
	case unix.S_IFREG:
		return p.file(s, name, st)
	case unix.S_IFLNK:
		var buf [unix.PathMax]byte
		n, err := unix.Readlinkat(s.dir, s.name, buf[:])
		if err != nil {
			return fail("read the link", s.path, err)
		}
		if p.out == nil {
			p.count(&p.sum, st)
			return nil
		}
		return p.out.Link(name, string(buf[:n]), metaOf(st))
	}
	p.skip(st, s.path)
	return nil
}

// file writes a file, again if it changes meanwhile.
func (p *packing) file(s source, name string, st *unix.Stat_t) error {
	if p.out == nil {
		p.count(&p.sum, st)
		return nil
	}
	shared := st.Nlink > 1 && p.sent != nil
	if shared {
		if _, found := p.sent.find(spot{}.entry(st)); found {
			return p.out.Same(name, metaOf(st))
		}
	}
	for range maxChanges {
		err := p.fileOnce(s, name, st)
		switch {
		case err == nil && shared:
			return fail("note", s.path, p.sent.add(spot{}.entry(st)))
		case err == nil:
			return nil
		case !errors.Is(err, errChanged):
			return err
		}
		if err := p.out.Again(); err != nil {
			return err
		}
		if *st, err = s.look(); errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return fail("look at", s.path, err)
		}
		if kind(st) != unix.S_IFREG {
			break
		}
	}
	return never(unix.ETXTBSY, "%s changed while it was sent", quote(s.path))
}

func (p *packing) fileOnce(s source, name string, st *unix.Stat_t) error {
	at, err := p.out.File(name, metaOf(st))
	if err != nil || at < 0 {
		return err
	}
	fd, err := s.open(p.stay)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return errChanged // it was a regular file a moment ago
	}
	if err != nil {
		return fail("open", s.path, err)
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
		return fail("read", s.path, err)
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
		n := int(min(end-at, pack.MaxBlock))
		block, err := p.out.Room(n)
		if err != nil {
			return fail("write", "the stream", err)
		}
		for got := 0; got < n; {
			more, err := unix.Pread(fd, block[got:], at+int64(got))
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil:
				return err
			case more == 0:
				return errChanged // it is shorter by now
			}
			got += max(more, 0)
		}
		travel, err := p.out.Block(at, n)
		if err != nil {
			return fail("write", "the stream", err)
		}
		at += int64(n)
		p.add(int64(n))
		p.pace(int64(travel))
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
