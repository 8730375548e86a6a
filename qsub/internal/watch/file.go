package watch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/internal/hint"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/output"
)

// errNowhere is matched when a stream goes to /dev/null. The user was told then.
var errNowhere = errors.New("it goes to /dev/null")

// logFile is a file that a task writes.
type logFile struct {
	logs   *jobLogs
	task   int
	stream string // stdout or stderr
	what   string // the stream in words
	path   string
	name   string // of the file, if path is a directory
	state  string // of the task, when execd was asked
	prefix string // before each line; "": none

	f       *os.File // nil: not open
	dead    bool     // it is not read any more
	line    []byte   // an unfinished line, when lines have a prefix
	begun   bool     // the place where to begin was chosen
	watched bool
}

// id names the task.
func (f *logFile) id() string {
	if f.task > 0 {
		return strconv.Itoa(f.logs.job) + "." + strconv.Itoa(f.task)
	}
	return strconv.Itoa(f.logs.job)
}

// waits reports whether the task had not started when execd was asked.
func (f *logFile) waits() bool { return strings.HasSuffix(f.state, "w") }

// open opens the file. The error is fs.ErrNotExist when it does not exist yet.
// The owner of the job may have put something else in its place, which open
// must not block on.
func (f *logFile) open() error {
	f.resolve()
	file, info, err := openRegular(f.path)
	switch {
	case err != nil:
		return &openError{f.path, err}
	case isNull(info):
		f.logs.say("%s of job %s goes to /dev/null", f.what, f.id())
		return errNowhere
	case file == nil:
		return fmt.Errorf("%s of job %s goes to %s, which is not a regular file", f.what, f.id(), f.path)
	}
	f.f = file
	if f.begun {
		return nil // a file that has replaced another is shown from its beginning
	}
	f.begun = true
	if n := f.logs.view.lines; n >= 0 {
		var at int64
		if at, err = lastLines(file, info.Size(), n); err == nil {
			_, err = file.Seek(at, io.SeekStart)
		}
		if err != nil {
			return f.cannotRead(err)
		}
	}
	return nil
}

// openError says why a file cannot be opened, as the C library spells it.
type openError struct {
	path string
	err  error
}

func (e *openError) Error() string {
	return fmt.Sprintf("cannot open %s: %s", e.path, command.ErrorText(e.err))
}
func (e *openError) Unwrap() error { return e.err }

func (f *logFile) cannotRead(err error) error {
	return fmt.Errorf("cannot read %s: %s", f.path, command.ErrorText(err))
}

// resolve adds the file's name if the path is a directory, as the path of -o or
// -e may be.
func (f *logFile) resolve() {
	if info, err := os.Stat(f.path); err == nil && info.IsDir() {
		f.path = filepath.Join(f.path, f.name)
	}
}

// openRegular opens a regular file. Of anything else it returns only the
// FileInfo: to open a pipe may block, and to open a device may have effects.
func openRegular(path string) (*os.File, os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil, info, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if info, err = file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, info, err
	}
	return file, info, nil
}

// isNull reports whether a file is /dev/null.
func isNull(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode()&os.ModeCharDevice != 0 && st.Rdev == unix.Mkdev(1, 3)
}

// lastLines returns where the last n lines of a file begin.
func lastLines(r io.ReaderAt, size int64, n int) (int64, error) {
	const block = 64 << 10
	buf := make([]byte, block)
	if n == 0 {
		return size, nil
	}
	for end := size; end > 0; {
		begin := max(end-block, 0)
		b := buf[:end-begin]
		if _, err := r.ReadAt(b, begin); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i, c := range slices.Backward(b) {
			if c != '\n' || begin+int64(i) == size-1 { // the newline of the last line
				continue
			}
			if n--; n == 0 {
				return begin + int64(i) + 1, nil
			}
		}
		end = begin
	}
	return 0, nil
}

// advance shows what has been added to the file, which it opens when it exists.
// It reports whether w will tell when there is more. last says that nothing
// will be added any more.
func (f *logFile) advance(ctx context.Context, w *watch, last bool) (known bool, err error) {
	if f.dead {
		return true, nil
	}
	if f.f == nil {
		// The directory is watched before the file is looked for.
		f.resolve()
		known = w.directory(f.path)
		switch err := f.open(); {
		case errors.Is(err, fs.ErrNotExist):
			if last {
				f.dead = true
				if !f.waits() {
					f.logs.say("%s", api.Visible(err.Error()))
				}
			}
			return known, nil
		case err != nil:
			f.dead = true
			if !errors.Is(err, errNowhere) {
				f.logs.say("%s", api.Visible(err.Error()))
			}
			return true, nil
		}
	}
	if !f.watched {
		f.watched = w.file(f.path)
	}
	known = f.watched && w.directory(f.path) && !isRemote(f.f)
	if err := f.copy(ctx); err != nil {
		return known, err
	}
	if err := f.replaced(ctx, w); err != nil {
		return known, err
	}
	if last {
		f.finish()
		f.dead = true
	}
	return known, nil
}

// replaced goes on with the file that has taken the place of this one.
func (f *logFile) replaced(ctx context.Context, w *watch) error {
	there, err1 := os.Stat(f.path)
	have, err2 := f.f.Stat()
	if err1 != nil || err2 != nil || os.SameFile(there, have) {
		return nil
	}
	f.finish()
	f.close()
	f.logs.say("%s was replaced", api.Visible(f.path))
	if err := f.open(); err != nil {
		f.dead = true
		f.logs.say("%s", api.Visible(err.Error()))
		return nil
	}
	f.watched = w.file(f.path) // before it is read, or w does not tell of what is written in between
	return f.copy(ctx)
}

// copy shows what has been added since the last call.
func (f *logFile) copy(ctx context.Context) error {
	at, err := f.f.Seek(0, io.SeekCurrent)
	if err == nil {
		var info os.FileInfo
		if info, err = f.f.Stat(); err == nil && info.Size() < at {
			f.logs.say("%s was truncated", api.Visible(f.path))
			_, err = f.f.Seek(0, io.SeekStart)
		}
	}
	buf := make([]byte, 64<<10)
	for err == nil && ctx.Err() == nil {
		var n int
		n, err = f.f.Read(buf)
		if n > 0 {
			if werr := f.write(buf[:n]); werr != nil {
				return werr
			}
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return f.cannotRead(err)
	}
	return ctx.Err()
}

// maxLogLine bounds an unfinished line; a longer one is shown in pieces.
const maxLogLine = 64 << 10

// write shows bytes of the file: whole lines behind the prefix, if there is one.
func (f *logFile) write(b []byte) error {
	if f.prefix == "" {
		return f.print(b)
	}
	f.line = append(f.line, b...)
	var out bytes.Buffer
	for {
		i := bytes.IndexByte(f.line, '\n')
		if i < 0 && len(f.line) < maxLogLine {
			break
		}
		line := f.line[:max(i, 0)]
		if i < 0 {
			line, i = f.line, len(f.line)-1
		}
		out.WriteString(f.prefix)
		out.Write(line)
		out.WriteByte('\n')
		f.line = f.line[i+1:]
	}
	return f.print(out.Bytes())
}

// finish shows an unfinished line.
func (f *logFile) finish() {
	if len(f.line) > 0 {
		_ = f.write([]byte("\n")) // the next write fails, too
	}
}

// print writes standard output to standard output, and standard error to
// standard error.
func (f *logFile) print(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	inv := f.logs.inv
	if f.stream == "stdout" {
		_, err := inv.Out.Write(b)
		return err
	}
	// Flushed first, so that the order of the two streams is kept.
	if err := inv.Out.Flush(); err != nil {
		return err
	}
	if output.Coloured(inv.ErrTerminal) {
		text := strings.TrimRight(string(b), "\n")
		b = []byte(output.Colour(output.Red, text) + string(b[len(text):]))
	}
	_, err := inv.Err.Write(b)
	return err
}

func (f *logFile) close() {
	if f.f != nil {
		f.f.Close()
		f.f = nil
	}
}

// isRemote reports whether other hosts may write to the file: the kernel does
// not tell of their writes.
func isRemote(f *os.File) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil {
		return true
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC,
		unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC, unix.CEPH_SUPER_MAGIC, unix.CODA_SUPER_MAGIC, unix.NCP_SUPER_MAGIC,
		unix.V9FS_MAGIC, 0x0bd00bd0 /* Lustre */, 0x47504653 /* GPFS */ :
		return true
	}
	return false
}

// watch tells when files are written, by inotify(7). Where there is no inotify,
// the files are polled.
type watch struct {
	f      *os.File  // nil: there is no inotify
	events hint.Chan // something has happened

	mu    sync.Mutex
	dirs  map[string]int  // guarded by mu; the number of a directory's watch
	names map[string]bool // guarded by mu; "number/name" of files that are awaited in directories
	done  chan struct{}
}

func newWatch() *watch {
	w := &watch{events: hint.New(), dirs: map[string]int{}, names: map[string]bool{}, done: make(chan struct{})}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		close(w.done)
		return w
	}
	w.f = os.NewFile(uintptr(fd), "inotify")
	go w.read()
	return w
}

// file watches a file, and reports whether that is possible.
func (w *watch) file(path string) bool {
	if w == nil || w.f == nil {
		return false
	}
	_, err := w.add(path, unix.IN_MODIFY|unix.IN_ATTRIB|unix.IN_MOVE_SELF)
	return err == nil
}

// directory watches for a file to be created, and reports whether that is possible.
func (w *watch) directory(path string) bool {
	if w == nil || w.f == nil {
		return false
	}
	dir, base := filepath.Split(path)
	w.mu.Lock()
	defer w.mu.Unlock()
	number, ok := w.dirs[dir]
	if !ok {
		var err error
		if number, err = w.add(filepath.Clean(dir), unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR); err != nil {
			return false
		}
		w.dirs[dir] = number
	}
	w.names[strconv.Itoa(number)+"/"+base] = true
	return true
}

func (w *watch) add(path string, mask uint32) (number int, err error) {
	conn, err := w.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { number, failed = unix.InotifyAddWatch(int(fd), path, mask) })
	return number, errors.Join(err, failed)
}

// read passes events on until the watch is closed.
func (w *watch) read() {
	defer close(w.done)
	buf := make([]byte, 16<<10)
	for {
		n, err := w.f.Read(buf)
		if err != nil {
			return
		}
		if !w.matters(buf[:n]) {
			continue
		}
		w.events.Give()
	}
}

// matters reports whether one of the events is about a watched file, or about a
// name that is awaited in a directory.
func (w *watch) matters(events []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(events) >= unix.SizeofInotifyEvent {
		number := int(int32(binary.NativeEndian.Uint32(events)))
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		if end > len(events) {
			return true
		}
		name := string(bytes.TrimRight(events[unix.SizeofInotifyEvent:end], "\x00"))
		if name == "" || w.names[strconv.Itoa(number)+"/"+name] {
			return true
		}
		events = events[end:]
	}
	return false
}

func (w *watch) close() {
	if w.f != nil {
		w.f.Close()
	}
	<-w.done
}
