package accounting

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
)

// MaxLine is the longest line a Reader takes: the fields of text are limited
// at submission to a small part of it.
const MaxLine = 1 << 20

// Reader reads an accounting file line by line, without allocating for lines
// that nobody wants.
type Reader struct {
	in   *bufio.Reader
	line int
}

// NewReader returns a reader of an accounting file.
func NewReader(r io.Reader) *Reader {
	return &Reader{in: bufio.NewReaderSize(r, MaxLine)}
}

// LineError is a line that is no record.
type LineError struct {
	Line int // counted from 1, comments included
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

// Records yields the records of the lines for which keep is true (of all lines
// when it is nil), skipping comments and empty lines. A bad line is yielded as
// *LineError, and reading goes on; any other error ends the sequence. keep sees
// the raw line and must not hold on to it.
//
// A last line without newline is being written at this moment: it counts if it
// is whole already.
func (r *Reader) Records(keep func(line []byte) bool) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			line, err := r.in.ReadSlice('\n')
			r.line++
			switch {
			case errors.Is(err, bufio.ErrBufferFull):
				bad := r.line
				if err = r.skipLine(); err == nil {
					if !yield(Record{}, &LineError{bad, fmt.Errorf("accounting line is longer than %d bytes", MaxLine)}) {
						return
					}
					continue
				}
			case errors.Is(err, io.EOF):
				if len(line) > 0 && line[0] != '#' && (keep == nil || keep(line)) {
					if rec, err := Parse(line); err == nil {
						yield(rec, nil)
					}
				}
				return
			case err == nil:
				if len(line) == 1 || line[0] == '#' || keep != nil && !keep(line) {
					continue
				}
				rec, err := Parse(line)
				if err != nil {
					err = &LineError{r.line, err}
				}
				if !yield(rec, err) {
					return
				}
				continue
			}
			if !errors.Is(err, io.EOF) {
				yield(Record{}, fmt.Errorf("cannot read accounting file: %w", err))
			}
			return
		}
	}
}

// skipLine reads to the end of a line that is too long.
func (r *Reader) skipLine() error {
	for {
		_, err := r.in.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}
