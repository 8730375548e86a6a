package accounting

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
)

// MaxLine is the longest line that is read. The limits of a submission keep
// lines much shorter.
const MaxLine = 1 << 20

// blockSize is how much is read at once: it fits the cache of a processor.
const blockSize = 256 << 10

// Each reads a file of any size, in blocks and with as many goroutines as there
// are processors. It calls work with whole lines, each with its newline except
// perhaps the last one of the file; work must not keep them, and is called from
// several goroutines at once. It calls use with the results, one by one and in
// the order of the file. An error of use ends the reading and is returned.
//
// Of a line longer than MaxLine work gets the beginning, without a newline; it
// is not a record.
//
// Goroutines read at the same time from a reader with a size and ReadAt, such as an
// io.SectionReader, and in turn from any other.
func Each[T any](in io.Reader, work func(lines []byte) T, use func(T) error) error {
	s := &source{in: in, stop: make(chan struct{})}
	if at, ok := in.(sized); ok {
		s.at, s.size = at, at.Size()
	}
	workers := runtime.GOMAXPROCS(0)
	// There is a channel for each block, in the order of the file.
	order := make(chan chan block[T], 2*workers)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { readBlocks(s, order, work) })
	}
	go func() {
		running.Wait()
		close(order)
	}()
	err := inOrder(order, work, use)
	close(s.stop)
	for range order {
		// Every goroutine must be able to send its last block.
	}
	return err
}

// sized is a reader with a size and ReadAt.
type sized interface {
	io.ReaderAt
	Size() int64
}

// source hands out the blocks of a file.
type source struct {
	mu   sync.Mutex
	in   io.Reader
	at   sized // nil: in has to be read in sequence
	size int64
	next int64 // offset
	over bool
	stop chan struct{}
}

// block is a part of a file: the result of work for the whole lines in it, and
// the parts of lines around them.
type block[T any] struct {
	head, tail []byte // head is all when whole is false
	whole      bool   // the block has a newline
	worked     bool   // there is a line between head and tail
	made       T
	err        error
}

// readBlocks reads blocks and calls work for them until there are no more.
func readBlocks[T any](s *source, order chan<- chan block[T], work func([]byte) T) {
	buf := make([]byte, blockSize)
	for {
		s.mu.Lock()
		if s.over {
			s.mu.Unlock()
			return
		}
		offset := s.next
		s.next += blockSize
		var n int
		var err error
		if s.at == nil {
			n, err = io.ReadFull(s.in, buf)
			s.over = err != nil
		} else {
			s.over = s.next >= s.size
		}
		to := make(chan block[T], 1)
		select {
		case order <- to:
		case <-s.stop:
			s.over = true
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if s.at != nil {
			// A file that was truncated meanwhile ends where it ends now.
			n, err = s.at.ReadAt(buf[:min(blockSize, s.size-offset)], offset)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
		to <- divide(buf[:n], err, work)
	}
}

// divide calls work for the whole lines of a block.
func divide[T any](text []byte, err error, work func([]byte) T) block[T] {
	b := block[T]{err: err}
	first := bytes.IndexByte(text, '\n') + 1
	last := bytes.LastIndexByte(text, '\n') + 1
	b.head, b.tail = bytes.Clone(text[:first]), bytes.Clone(text[last:])
	if b.whole = first > 0; !b.whole {
		b.head, b.tail = b.tail, nil
	}
	if b.worked = first < last; b.worked {
		b.made = work(text[first:last])
	}
	return b
}

// inOrder joins the lines that are divided between blocks, and calls use with
// all results.
func inOrder[T any](order <-chan chan block[T], work func([]byte) T, use func(T) error) error {
	var line []byte // the part of a line that is there so far
	join := func(more []byte) {
		line = append(line, more[:min(len(more), MaxLine+1-len(line))]...)
	}
	flush := func() error {
		if len(line) == 0 {
			return nil
		}
		made := work(line)
		line = line[:0]
		return use(made)
	}
	for from := range order {
		b := <-from
		if b.err != nil {
			return fmt.Errorf("cannot read accounting file: %w", b.err)
		}
		join(b.head)
		if !b.whole {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		if b.worked {
			if err := use(b.made); err != nil {
				return err
			}
		}
		join(b.tail)
	}
	return flush()
}
