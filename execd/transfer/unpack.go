package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/sandbox/pack"
)

// What is unpacked is gathered as a landing is, and beside what that has there are
//
//	.paddock-ID.part/have    what has come, a pack.Have that is written over and over
//	.paddock-ID.part/synced  what had come when all was brought to the disk the last time
//	.paddock-ID.part/lock    held by the process

// unpacker is what is to become of a stream.
type unpacker struct {
	links    bool   // also links that lead out of the tree
	dots     bool   // also names that begin with a dot, in the user's home
	maxItems uint64 // 0: any number
	maxBytes uint64
	arrived  func() error // is called when all is in place, before the traces are removed; nil: nothing is
}

// Bytes after which it is noted what has come, and after which it is brought to the disk.
// An item is counted as if it had some bytes more.
const (
	noted   = 4 << 20
	synced  = 1 << 30
	perItem = 512
)

// unpackWord is the word unpack.
func unpackWord(args []string) int {
	var how unpacker
	flags := flag.NewFlagSet("unpack", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	have := flags.Bool("have", false, "")
	id := flags.String("id", "0000000000000000", "")
	flags.BoolVar(&how.links, "links", false, "")
	flags.BoolVar(&how.dots, "dots", false, "")
	flags.Uint64Var(&how.maxItems, "items", 0, "")
	flags.Uint64Var(&how.maxBytes, "bytes", 0, "")
	err := flags.Parse(args)
	if err == nil {
		err = order.CheckID(*id)
	}
	if err != nil || flags.NArg() != 1 {
		return usage(whyUsage(err, "unpack wants a directory"))
	}
	w := newWorker()
	w.orders = &order.Orders{ID: *id, Send: &order.Send{Home: os.Getenv("HOME")}}
	u, err := w.openUnpack(flags.Arg(0))
	var root pack.Digest
	switch {
	case err != nil:
	case *have:
		if u.had != (pack.Have{}) {
			fmt.Println(u.had)
		}
		return 0
	default:
		u.unpacker = how
		root, err = u.run(bufio.NewReaderSize(os.Stdin, pack.MaxRecord))
	}
	if err != nil {
		return failed(err)
	}
	w.warn()
	_, err = fmt.Printf("blake3:%s %d bytes\n", root, w.bytes.Load())
	return failed(err)
}

// openUnpack finds what an earlier attempt has left below a directory.
func (w *worker) openUnpack(dest string) (*unpacking, error) {
	if err := w.readBoot(); err != nil {
		return nil, err
	}
	w.landings = []*landing{{dir: dest, fd: -1, part: -1, tree: -1, links: -1, rest: true}}
	u := &unpacking{worker: w, landing: w.landings[0], lock: -1, note: -1, file: -1}
	if err := w.openLanding(u.landing); err != nil {
		return nil, err
	}
	if u.part < 0 || u.landing.links < 0 {
		return u, nil
	}
	name := "have"
	if u.stale && !u.committed {
		name = "synced"
	}
	// If it is damaged, it is nothing: all is sent once more.
	u.had, _ = pack.ParseHave(readSmall(u.part, name))
	return u, nil
}

// unpacking is a stream that becomes a tree.
type unpacking struct {
	*worker
	*landing
	unpacker

	lock, note int       // -1: not open
	had        pack.Have // of an earlier attempt
	in         *pack.Reader
	to         *cursor
	fresh      bool // what is there has come in this stream

	file int         // -1: none, or it is left out
	rec  pack.Record // of the file that has begun
	out  int         // how many directories deep it is in one that is left out

	end, behind     int64 // of what has come of it, and of what the disk was told to write
	bytes, unsynced int64 // since the last note and the last sync
}

// hold takes the lock, which ends with the process.
func (u *unpacking) hold() (err error) {
	if u.lock < 0 {
		if u.lock, err = openBeneath(u.part, "lock", unix.O_RDWR|unix.O_CREAT, 0o600, true); err != nil {
			u.lock = -1
			return fail("open", u.path("lock"), err)
		}
	}
	// A file system that knows no locks has none to hold.
	if err := unix.Flock(u.lock, unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return &failure{"somebody else unpacks into " + quote(u.path("")), unix.EWOULDBLOCK, false}
	}
	return nil
}

// path returns the path of something in the part directory.
func (u *unpacking) path(name string) string {
	return u.dir + "/" + u.partName() + suffix(name)
}

// run takes all of a stream, and returns its root.
func (u *unpacking) run(in pack.Source) (pack.Digest, error) {
	var err error
	if u.part >= 0 {
		if err := u.hold(); err != nil {
			return pack.Digest{}, err
		}
	}
	if u.in, err = pack.NewReader(in, u.had, u.maxItems, u.maxBytes); err != nil {
		return pack.Digest{}, u.broken(err)
	}
	u.in.Decompress = unzip
	u.worker.total.Store(int64(min(u.in.Bytes, math.MaxInt64)))
	if u.committed {
		if done, err := u.goOn(); done || err != nil {
			return u.had.Root, err
		}
	}
	if err := u.begin(); err != nil {
		return pack.Digest{}, err
	}
	defer func() { u.to.close() }()
	for {
		rec, err := u.in.Next()
		if err != nil {
			return pack.Digest{}, u.broken(err)
		}
		if err := u.record(&rec); err != nil {
			return pack.Digest{}, err
		}
		if rec.Type == pack.End {
			break
		}
	}
	u.worker.bytes.Store(int64(u.in.Have().Bytes))
	u.copied = true
	if err := u.commit(u.landing); err != nil {
		return pack.Digest{}, err
	}
	return u.in.Have().Root, u.arrive()
}

// goOn finishes what was committed by an earlier attempt. done says that the stream
// brings nothing else.
func (u *unpacking) goOn() (done bool, err error) {
	rec := pack.Record{}
	if u.in.Resumed {
		if rec, err = u.in.Next(); err != nil {
			return false, u.broken(err)
		}
	}
	if err := u.land(u.landing); err != nil {
		return false, err
	}
	if rec.Type == pack.End {
		return true, u.finish()
	}
	if err := u.forget(); err != nil {
		return false, err
	}
	if u.in.Resumed {
		return false, &failure{"there is more than what has arrived by now: begin anew", 0, false}
	}
	return false, nil
}

// forget removes what earlier attempts have left.
func (u *unpacking) forget() error {
	for _, fd := range []*int{&u.tree, &u.landing.links} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	for _, name := range []string{"have", "synced", "commit", "tree", "links"} {
		if err := u.removeAll(u.part, name); err != nil {
			return err
		}
	}
	u.committed, u.stale = false, false
	u.worker.bytes.Store(0)
	u.files.Store(0)
	u.result = order.Result{}
	return nil
}

// begin has all be there that the first record needs.
func (u *unpacking) begin() error {
	if u.fresh = !u.in.Resumed; u.fresh && u.part >= 0 {
		if err := u.forget(); err != nil {
			return err
		}
	}
	if u.in.Resumed {
		u.worker.had(u.had)
	}
	if u.stale {
		// What came later than the last sync comes again, and replaces what is there.
		err := writeSmall(u.part, "have", u.had.String(), true)
		if err == nil {
			err = writeSmall(u.part, "boot", u.boot, false)
		}
		if err != nil {
			return fail("write", u.path("have"), err)
		}
		u.stale = false
	}
	if err := u.makePart(u.landing); err != nil {
		return err
	}
	if err := u.hold(); err != nil {
		return err
	}
	var err error
	if u.note, err = openBeneath(u.part, "have", unix.O_WRONLY|unix.O_CREAT, 0o600, true); err != nil {
		return fail("open", u.path("have"), err)
	}
	fd, err := unix.FcntlInt(uintptr(u.tree), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		u.to, err = newCursor(fd, true)
	}
	u.worker.links, u.syncs = u.landing.links, u.fresh && u.in.Items <= few
	return fail("open", u.path("tree"), err)
}

// record does what a record says.
func (u *unpacking) record(rec *pack.Record) error {
	u.beat.Add(1)
	switch rec.Type {
	case pack.Block:
		return u.block(rec)
	case pack.Again:
		return u.again()
	}
	if err := u.close(); err != nil {
		return err
	}
	if err := u.item(rec); err != nil {
		return err
	}
	if rec.Type == pack.End {
		if n := int(min(rec.Skipped, math.MaxInt32)); n > 0 {
			u.result.Skipped += n
			u.result.Skips = append(u.result.Skips, itoa(n)+" by the sender")
		}
		return u.keep()
	}
	return u.count(perItem)
}

func (u *unpacking) item(rec *pack.Record) error {
	st := statOf(&rec.Meta)
	switch rec.Type {
	case pack.Inside, pack.Dir:
		if u.out > 0 || u.unwanted(rec.Name, unix.S_IFDIR) {
			u.out++
			return nil
		}
		return u.down(rec)
	case pack.Up:
		if u.out > 0 {
			u.out--
			return nil
		}
		return u.up(&st)
	case pack.File:
		u.rec = *rec
		if u.out > 0 || u.unwanted(rec.Name, unix.S_IFREG) {
			return nil
		}
		return u.open(rec)
	case pack.Same:
		if u.out > 0 || u.unwanted(rec.Name, unix.S_IFREG) {
			return nil
		}
		return u.same(rec.Name, &st)
	case pack.Link:
		if u.out > 0 || u.unwanted(rec.Name, unix.S_IFLNK) {
			return nil
		}
		if !u.unpacker.links && leaves(rec.Target, u.to.depth()) {
			u.leaveOut(rec.Name, unix.S_IFLNK)
			return nil
		}
		err := u.free(rec.Name)
		if err == nil {
			err = makeLink(rec.Target, u.to.fd, rec.Name)
		}
		if err != nil {
			return fail("make the link", u.to.of(rec.Name), err)
		}
		setLinkTime(u.to.fd, rec.Name, st.Mtim)
	}
	return nil
}

// unwanted reports whether a name does not land: a part directory, which would be taken
// for one of ours, and in the user's home what his programs would read unasked.
func (u *unpacking) unwanted(name string, kind uint32) bool {
	if u.to.depth() > 0 || !isPart(name) && (!u.home || u.dots || name[0] != '.') {
		return false
	}
	u.leaveOut(name, kind)
	return true
}

func (u *unpacking) leaveOut(name string, kind uint32) {
	u.skip(&unix.Stat_t{Mode: kind}, u.to.of(name))
}

// leaves reports whether the target of a link in a directory so deep is outside of the
// tree. Other links may stand for parts of it, so that it may not go up behind one.
func leaves(target string, depth int) bool {
	if strings.HasPrefix(target, "/") {
		return true
	}
	down := false
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == "" || part == ".":
		case part != "..":
			down = true
		case down || depth == 0:
			return true
		default:
			depth--
		}
	}
	return false
}

// errTwice is that a stream has a name twice, or two that are one for the file system.
var errTwice = errors.New("it comes twice")

// free makes sure that nothing else in this stream has a name. An attempt that goes on
// finds what an earlier one did not note any more, and replaces it.
func (u *unpacking) free(name string) error {
	if !u.fresh {
		return nil
	}
	if _, err := lstat(u.to.fd, name); !errors.Is(err, unix.ENOENT) {
		return errTwice
	}
	return nil
}

func (u *unpacking) down(rec *pack.Record) error {
	var err error
	if u.fresh {
		err = unix.Mkdirat(u.to.fd, rec.Name, 0o700)
	} else {
		err = makeDir(u.to.fd, rec.Name)
	}
	if errors.Is(err, unix.EEXIST) {
		err = errTwice
	}
	if err == nil {
		err = u.to.down(rec.Name)
	}
	return fail("make", u.to.of(rec.Name), err)
}

// up finishes a directory from above, since its mode may be one that lets nobody through.
func (u *unpacking) up(st *unix.Stat_t) error {
	path := u.to.of("")
	fd, err := unix.FcntlInt(uintptr(u.to.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fail("finish", path, err)
	}
	defer unix.Close(fd)
	if err = u.to.up(); err == nil {
		err = finish(fd, st)
	}
	if err == nil && u.syncs {
		err = unix.Fsync(fd)
	}
	return fail("finish", path, err)
}

// open begins a file, or goes on in one.
func (u *unpacking) open(rec *pack.Record) (err error) {
	u.behind, u.end = rec.Offset, rec.Offset
	if rec.Offset == 0 {
		mode := rec.Mode | 0o200 // an attempt that goes on has to write, too
		if u.fresh {
			u.file, err = openBeneath(u.to.fd, rec.Name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, mode, false)
		} else {
			u.file, err = create(u.to.fd, rec.Name, mode)
		}
		if errors.Is(err, unix.EEXIST) {
			err = errTwice
		}
		return fail("make", u.to.of(rec.Name), err)
	}
	u.file, err = openBeneath(u.to.fd, rec.Name, unix.O_WRONLY|unix.O_NONBLOCK, 0, true)
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(u.file, &st)
	}
	if err == nil && (kind(&st) != unix.S_IFREG || st.Size < rec.Offset) {
		err = unix.ESTALE
	}
	return fail("go on with", u.to.of(rec.Name), err)
}

func (u *unpacking) block(rec *pack.Record) error {
	n := int64(len(rec.Data))
	if u.file >= 0 {
		for done := int64(0); done < n; {
			more, err := unix.Pwrite(u.file, rec.Data[done:], rec.Offset+done)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return fail("write", u.to.of(u.rec.Name), err)
			}
			done += int64(max(more, 0))
		}
		if u.end = rec.Offset + n; u.end-u.behind >= window { // so that the sync at the end is short
			_ = unix.SyncFileRange(u.file, u.behind, u.end-u.behind, unix.SYNC_FILE_RANGE_WRITE)
			u.behind = u.end
		}
	}
	u.add(n)
	u.pace(int64(rec.Travel))
	return u.count(n)
}

// again forgets the file that has begun.
func (u *unpacking) again() error {
	if u.file < 0 {
		return nil
	}
	unix.Close(u.file)
	u.file = -1
	return fail("remove", u.to.of(u.rec.Name), unix.Unlinkat(u.to.fd, u.rec.Name, 0))
}

// close finishes the file that has begun.
func (u *unpacking) close() error {
	if u.file < 0 {
		return nil
	}
	st := statOf(&u.rec.Meta)
	var err error
	if u.end < st.Size { // it ends with a hole
		err = unix.Ftruncate(u.file, st.Size)
	}
	if err == nil && st.Mode&0o200 == 0 {
		err = unix.Fchmod(u.file, st.Mode&0o777)
	}
	if err == nil {
		err = setTime(u.file, &st)
	}
	if err == nil && u.syncs {
		u.waits.Store(syncTime)
		err = unix.Fsync(u.file)
		u.waits.Store(0)
	}
	err = errors.Join(err, unix.Close(u.file))
	u.file = -1
	if err == nil {
		err = u.keepLink(&st, u.to.fd, u.rec.Name)
	}
	u.files.Add(1)
	return fail("finish", u.to.of(u.rec.Name), err)
}

// same gives a file that has come another name.
func (u *unpacking) same(name string, st *unix.Stat_t) error {
	first := linkName(st)
	if there, err := lstat(u.landing.links, first); err != nil || there.Size != st.Size {
		return &failure{quote(u.to.of(name)) + " is another name of a file that has not come", unix.EBADMSG, false}
	}
	if err := u.free(name); err != nil {
		return fail("make", u.to.of(name), err)
	}
	return u.copyFile(source{dir: u.landing.links, name: first, path: u.to.of(name)}, st, u.to.fd, name)
}

// count counts what has come, and notes it every now and then.
func (u *unpacking) count(n int64) error {
	if u.bytes += n; u.bytes < noted {
		return nil
	}
	u.unsynced += u.bytes
	u.bytes = 0
	if err := u.keep(); err != nil || u.unsynced < synced {
		return err
	}
	u.unsynced = 0
	u.waits.Store(syncTime)
	defer u.waits.Store(0)
	err := unix.Syncfs(u.tree)
	if err == nil {
		err = writeSmall(u.part, "synced", u.in.Have().String(), true)
	}
	return fail("sync", u.path(""), err)
}

// keep notes what has come. The note has always the same length.
func (u *unpacking) keep() error {
	_, err := unix.Pwrite(u.note, []byte(u.in.Have().String()), 0)
	return fail("write", u.path("have"), err)
}

// arrive renames all into place.
func (u *unpacking) arrive() error {
	if err := u.land(u.landing); err != nil {
		return err
	}
	return u.finish()
}

// finish removes the traces when all is in place.
func (u *unpacking) finish() error {
	if u.arrived != nil {
		if err := u.arrived(); err != nil {
			return err
		}
	}
	return u.removeParts()
}

// broken returns why a stream did not come to its end.
func (u *unpacking) broken(err error) error {
	if f, ok := errors.AsType[*pack.Failure](err); ok {
		return &failure{"the sender says: " + f.Text, unix.Errno(f.Errno), f.Permanent}
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &failure{"the stream has ended too early", unix.EPIPE, false}
	case errors.Is(err, pack.ErrLimit):
		return never(unix.EFBIG, "there is more than -bytes or -items allow")
	case errors.Is(err, pack.ErrFormat):
		return &failure{err.Error(), unix.EBADMSG, false}
	}
	return fail("read", "the stream", err)
}

// statOf returns what metaOf was made of, as far as it travels.
func statOf(m *pack.Meta) unix.Stat_t {
	st := unix.Stat_t{Mode: unix.S_IFREG | m.Mode, Size: m.Size, Dev: m.Dev, Ino: m.Ino, Nlink: 1}
	st.Mtim.Sec, st.Mtim.Nsec = m.Sec, int64(m.Nsec)
	if m.Dev != 0 || m.Ino != 0 {
		st.Nlink = 2
	}
	return st
}
