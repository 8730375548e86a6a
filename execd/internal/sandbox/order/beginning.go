package order

import (
	"errors"
	"io"
)

// Beginning keeps the beginning of what is written to it. A process of a user's may write
// any amount.
type Beginning struct {
	Most int // bytes that are kept
	text []byte
}

func (b *Beginning) String() string { return string(b.text) }

// Write implements io.Writer, and drops what is too much.
func (b *Beginning) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), b.Most-len(b.text))]...)
	return len(p), nil
}

// ReadFrom implements io.ReaderFrom, by which package exec fills it, with less memory than
// that takes otherwise for as long as the process lives.
func (b *Beginning) ReadFrom(r io.Reader) (n int64, err error) {
	var buf [512]byte
	for err == nil {
		var got int
		got, err = r.Read(buf[:])
		n += int64(got)
		_, _ = b.Write(buf[:got])
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
