package account

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"paddock/execd/api/accounting"
)

// Last returns the last records of the file, as they stand, from at most so many bytes. Lines
// that are none are passed over.
func (b *Book) Last(most int64) ([]accounting.Record, error) {
	f, err := os.Open(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read accounting file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot read accounting file: %w", err)
	}
	from := max(info.Size()-most, 0)
	text, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	if err != nil {
		return nil, fmt.Errorf("cannot read accounting file: %w", err)
	}
	if from > 0 { // it begins within a line
		_, text, _ = bytes.Cut(text, []byte{'\n'})
	}
	var records []accounting.Record
	for line := range bytes.Lines(text) {
		if r, err := accounting.Parse(line); err == nil {
			records = append(records, r)
		}
	}
	return records, nil
}
