package job

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"paddock/spool/atomicfile"
)

// loaded is a record that was read.
type loaded struct {
	number int
	size   int // of the record in bytes
	whole  int // those up to the last whole line
	job    *Job
	err    error  // of reading, or of decoding
	data   []byte // the record, if there was an error
}

// loaders is how many records are read at the same time: a disk is quicker with
// some.
const loaders = 8

// loadAll reads the records of some jobs. There may be a hundred thousand:
// several goroutines read and decode, one takes over.
func (s *Store) loadAll(numbers []int) error {
	read := make(chan *loaded, loaders)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range loaders {
		wg.Go(func() {
			var r recordReader
			for i := next.Add(1) - 1; i < int64(len(numbers)); i = next.Add(1) - 1 {
				read <- s.read(numbers[i], &r)
			}
		})
	}
	go func() {
		wg.Wait()
		close(read)
	}()
	var err error
	for l := range read {
		if err != nil {
			continue
		}
		if err = s.load(l); err != nil {
			next.Store(int64(len(numbers)))
		}
	}
	return err
}

// read reads one record.
func (s *Store) read(number int, r *recordReader) *loaded {
	l := &loaded{number: number}
	data, err := r.read(s.path(number))
	if err == nil {
		l.size = len(data)
		l.job, l.whole, err = decodeBy(&r.headers, data)
	}
	if l.err = err; err != nil {
		l.data = bytes.Clone(data)
	}
	return l
}

// recordReader reads files by plain system calls. What one needs is used again for the next.
type recordReader struct {
	buf     []byte
	headers headers
}

// read returns the content of a file, good until the next call.
func (r *recordReader) read(path string) ([]byte, error) {
	if err := atomicfile.Reading(path); err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if r.buf == nil {
		r.buf = make([]byte, 64<<10)
	}
	for n := 0; ; {
		got, err := unix.Read(fd, r.buf[n:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		n += got
		if n < len(r.buf) { // a file ends where less is read than there is room for
			return r.buf[:n], nil
		}
		r.buf = append(r.buf, make([]byte, n)...)
	}
}
