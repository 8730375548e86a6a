// Package account writes the accounting file: one line for each run, never two,
// whatever happens between the writes. It also writes the ends of runs into the records
// of jobs, since the two must agree: the record has the line, and the place in the file
// behind which it stands. Packages below stage, server and the daemon use it; it imports
// job and the API's accounting format.
package account

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"paddock/execd/internal/job"
	"paddock/spool/atomicfile"
)

// Book is the accounting file. One goroutine, Run, writes entries many at a time: two
// syncs serve all that came in since the last two.
type Book struct {
	// Accounted is called when there are more lines to read; nil: nobody wants to know. It is set
	// before Run is called.
	Accounted func()

	path  string
	store *job.Store
	in    chan *Entry
	group atomicfile.Group
	index index // of Run alone
}

// Entry is the end of a run that is being written.
type Entry struct {
	end      job.Ending // without a Task only the line and its place
	recorded bool       // an earlier attempt, perhaps of an earlier execd, has recorded it
	err      error
	written  chan struct{} // closed when the line can be read
	done     chan struct{} // closed when the line is on disk, or err is set
}

// maxBatch bounds one group commit.
const maxBatch = 512

// New returns the book at path. The first line makes the file, which may be rotated
// away at any time.
func New(path string, store *job.Store) *Book {
	return &Book{path: path, store: store, in: make(chan *Entry, maxBatch)}
}

// Enter records the end of a run and writes its line, End.Accounting. The caller
// repeats it with the same Ending after an error; of an end that is recorded already
// the line is written only if it is not there.
func (b *Book) Enter(e job.Ending) *Entry {
	return b.enter(&Entry{end: e, recorded: b.store.Recorded(e.Task)})
}

func (b *Book) enter(e *Entry) *Entry {
	e.written, e.done = make(chan struct{}), make(chan struct{})
	b.in <- e
	return e
}

// Written waits until the end is recorded on disk and its line can be read. From then
// on waiting clients may be told: a line that a power cut takes is written again from
// the record.
func (e *Entry) Written() error {
	select {
	case <-e.written:
		return nil
	case <-e.done:
		return e.err
	}
}

// Synced waits until the line is on disk as well, and the record is no longer needed.
func (e *Entry) Synced() error {
	<-e.done
	return e.err
}

// Add writes the line of something that has no record of its own: a task that was
// started in a run. The caller has stored the line and a place, that of Now, before.
// again says that the line may stand behind that place already.
func (b *Book) Add(line string, from job.Place, again bool) error {
	return b.enter(&Entry{end: job.Ending{End: &job.End{Accounting: line, Place: from}}, recorded: again}).Synced()
}

// Run writes entries until ctx is done.
func (b *Book) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-b.in:
			batch := []*Entry{e}
			for more := true; more && len(batch) < maxBatch; {
				select {
				case e := <-b.in:
					batch = append(batch, e)
				default:
					more = false
				}
			}
			end := b.commit(batch)
			for _, e := range batch {
				close(e.done)
			}
			_ = b.index.extend(b.path, end) // qacct reads what is not in it
		}
	}
}

// commit writes a batch: the place of the lines, the records, the lines. It returns where the file
// ends then; zero: nothing was written.
func (b *Book) commit(batch []*Entry) (end job.Place) {
	fail := func(err error) {
		for _, e := range batch {
			if e.err == nil {
				e.err = err
			}
		}
	}
	f, place, err := b.open()
	if err != nil {
		fail(err)
		return end
	}
	defer f.Close()

	var ends []job.Ending
	var fresh []*Entry
	for _, e := range batch {
		if !e.recorded && e.end.Task != nil {
			e.end.End.Place = place
			ends = append(ends, e.end)
			fresh = append(fresh, e)
		}
	}
	for i, err := range b.store.End(ends) {
		fresh[i].err = err
	}

	var text []byte
	for _, e := range batch {
		if e.err != nil {
			continue
		}
		if e.recorded {
			found, err := b.find(e.end.End.Accounting, e.end.End.Place)
			if err != nil {
				e.err = err
				continue
			}
			if found {
				continue
			}
		}
		text = append(text, e.end.End.Accounting...)
		text = append(text, '\n')
	}
	if len(text) == 0 {
		return end
	}
	err = atomicfile.AppendTo(f, text)
	if err == nil {
		for _, e := range batch {
			if e.err == nil {
				close(e.written)
			}
		}
		if b.Accounted != nil {
			b.Accounted()
		}
		// The record is removed after this, so the line must not be lost.
		err = b.group.Sync(f)
	}
	if err != nil {
		fail(fmt.Errorf("cannot write accounting file %s: %w", b.path, err))
		return end
	}
	place.Offset += int64(len(text))
	return place
}

// open opens the file for appending and returns where it ends. Half a line at the end,
// from a power cut, is taken away: the record has all of it.
func (b *Book) open() (*os.File, job.Place, error) {
	wrap := func(err error) error { return fmt.Errorf("cannot write accounting file: %w", err) }
	f, err := atomicfile.OpenAppend(b.path, 0o644)
	if err != nil {
		return nil, job.Place{}, wrap(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", b.path)
	}
	if err != nil {
		f.Close()
		return nil, job.Place{}, wrap(err)
	}
	size := info.Size()
	if size == 0 {
		if err := atomicfile.AppendTo(f, []byte(heading)); err != nil {
			f.Close()
			return nil, job.Place{}, wrap(err)
		}
		size = int64(len(heading))
	} else if whole, err := wholeLines(b.path, size); err != nil {
		f.Close()
		return nil, job.Place{}, wrap(err)
	} else if whole < size {
		if err := f.Truncate(whole); err != nil {
			f.Close()
			return nil, job.Place{}, wrap(err)
		}
		size = whole
	}
	return f, job.Place{Inode: inode(info), Offset: size}, nil
}

// heading is how Grid Engine's qmaster begins a new file.
const heading = "# Version: Paddock 1\n# \n# DO NOT MODIFY THIS FILE MANUALLY!\n# \n"

// wholeLines returns the size of a file without a last line that has no newline.
func wholeLines(path string, size int64) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	const block = 64 << 10
	buf := make([]byte, block)
	for end := size; end > 0; {
		n := min(end, block)
		if end == size {
			n = 1 // the usual case: the file ends with a newline
		}
		if _, err := f.ReadAt(buf[:n], end-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1, nil
		}
		end -= n
	}
	return 0, nil
}

func inode(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// find reports whether a line stands in the accounting file behind a place. A file that
// was rotated away is found by its inode beside the new one.
func (b *Book) find(line string, from job.Place) (bool, error) {
	for _, path := range b.files(from.Inode) {
		offset := int64(0)
		if info, err := os.Stat(path); err == nil && inode(info) == from.Inode && from.Offset <= info.Size() {
			offset = from.Offset
		}
		found, err := contains(path, line, offset)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, fmt.Errorf("cannot read accounting file: %w", err)
		}
		if found {
			return true, nil
		}
	}
	return false, nil
}

// files returns the current file, after the one with the inode if that is another.
func (b *Book) files(want uint64) []string {
	if info, err := os.Stat(b.path); err == nil && inode(info) == want {
		return []string{b.path}
	}
	rotated, _ := filepath.Glob(b.path + "*")
	for _, path := range rotated {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && inode(info) == want {
			return []string{path, b.path}
		}
	}
	return []string{b.path}
}

// contains reports whether a line stands in a file from an offset on.
func contains(path, line string, offset int64) (bool, error) {
	found := false
	_, err := eachLine(path, offset, func(l []byte) bool {
		found = string(l) == line
		return !found
	})
	return found, err
}

var buffers = sync.Pool{New: func() any { return new(make([]byte, 0, 64<<10)) }}

// eachLine calls f for each whole line from an offset on, until f returns false. It
// returns the offset behind the last line that f saw.
func eachLine(path string, offset int64, f func([]byte) bool) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return offset, err
	}
	defer file.Close()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return offset, err
	}
	// Thousands of clients may wait, and each reads whenever a task has ended.
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	buf := (*pooled)[:0]
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := file.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		rest := buf
		for {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				break
			}
			offset += int64(i) + 1
			if !f(rest[:i]) {
				return offset, nil
			}
			rest = rest[i+1:]
		}
		buf = append(buf[:0], rest...)
		if errors.Is(err, io.EOF) {
			return offset, nil
		}
		if err != nil {
			return offset, err
		}
	}
}

// Now returns where the next line will be written.
func (b *Book) Now() job.Place {
	info, err := os.Stat(b.path)
	if err != nil {
		return job.Place{}
	}
	return job.Place{Inode: inode(info), Offset: info.Size()}
}
