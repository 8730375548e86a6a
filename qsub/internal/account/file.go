package account

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/qsub/internal/command"
)

// openAccounting opens an accounting file, which may be compressed; "-" is
// standard input.
func openAccounting(inv *command.Invocation, file string) (io.ReadCloser, error) {
	if file == "-" {
		return unzipped(io.NopCloser(inv.In)), nil
	}
	f, err := os.Open(file)
	if err != nil {
		fmt.Fprintln(inv.Out, "no jobs running since startup")
		text := fmt.Sprintf("%s: %s", api.Visible(file), command.ErrorText(err))
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			text = fmt.Sprintf("error: unable to open %s: %s", api.Visible(file), command.ErrorText(err))
		}
		return nil, command.Failf("%s", text)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return unzipped(f), nil
	}
	var begin [len(gzipBegin)]byte
	if n, _ := f.ReadAt(begin[:], 0); string(begin[:n]) == gzipBegin {
		return unzipped(f), nil
	}
	return regular{io.NewSectionReader(f, 0, info.Size()), f}, nil
}

// regular is a file up to the length that it had when it was opened.
type regular struct {
	*io.SectionReader
	file *os.File
}

// Close implements io.Closer.
func (r regular) Close() error { return r.file.Close() }

// spans returns what has to be read: all, unless the index of the file says where lines of the job
// are that is looked for.
func (s *selection) spans(in io.Reader) []accounting.Span {
	file, ok := in.(regular)
	number, err := strconv.Atoi(string(s.number))
	if !ok || err != nil {
		return []accounting.Span{{Reader: in}}
	}
	return accounting.Spans(file.file, file.Size(), number)
}

// gzipBegin is the beginning of a file of gzip. No line of text begins so.
const gzipBegin = "\x1f\x8b"

// unzipped returns a reader of the text of a file that may be compressed.
func unzipped(in io.ReadCloser) io.ReadCloser {
	b := bufio.NewReaderSize(in, 64<<10)
	if begin, _ := b.Peek(len(gzipBegin)); string(begin) != gzipBegin {
		return struct { // an error of Peek comes again from Read
			io.Reader
			io.Closer
		}{b, in}
	}
	return &zipped{Closer: in, from: b}
}

// zipped reads compressed text. Text that is cut short is an error, and not the
// end of the file.
type zipped struct {
	io.Closer
	from io.Reader
	z    *gzip.Reader
}

func (z *zipped) Read(b []byte) (n int, err error) {
	if z.z == nil {
		z.z, err = gzip.NewReader(z.from)
	}
	if err == nil {
		n, err = z.z.Read(b)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the compressed text is cut short")
	}
	return n, err
}
