package account

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"

	"paddock/execd/api/accounting"
	"paddock/execd/internal/job"
	"paddock/spool/atomicfile"
)

// index is how far the index of the accounting file goes, by which qacct finds the lines of a job.
// It is made from the file, and never synced: what is lost or does not match is made anew.
type index struct {
	inode uint64 // of the file; 0: the index has not been looked at yet
	end   int64  // behind the last part in the index
}

// maxIndexed is how many parts are read in turn, since ends wait meanwhile. There are more than one
// where the file has lines that no index had: when an execd is new, or somebody has changed them.
const maxIndexed = 32

// extend adds parts to the index of a file that ends at a place; zero: it is not known where.
func (x *index) extend(path string, at job.Place) error {
	if at.Inode == 0 {
		return nil
	}
	if x.inode != at.Inode || at.Offset < x.end { // rotated away, or cut
		*x = index{}
	}
	if at.Offset-x.end < accounting.PartSize {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || inode(info) != at.Inode { // rotated away just now
		return err
	}
	if x.inode != at.Inode {
		if err := x.begin(f, info); err != nil {
			return err
		}
	}
	var text []byte
	end := x.end
	buf := make([]byte, accounting.PartSize)
	for n := 0; n < maxIndexed && at.Offset-end >= accounting.PartSize; n++ {
		if _, err := f.ReadAt(buf, end); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		lines := buf[:bytes.LastIndexByte(buf, '\n')+1]
		if len(lines) == 0 {
			break // what is there has no lines, and is read by everybody
		}
		p := accounting.NewPart(end, lines)
		text, end = p.Append(text), p.End
	}
	if len(text) == 0 {
		return nil
	}
	if err := atomicfile.Append(accounting.IndexPath(path), text, 0o644); err != nil {
		x.inode = 0 // some of it may be there
		return err
	}
	x.end = end
	return nil
}

// begin goes on with the index that there is, as far as it is of the file as that is now.
func (x *index) begin(f *os.File, info fs.FileInfo) error {
	*x = index{}
	text := []byte(accounting.IndexHeading(info))
	end := int64(0)
	for _, p := range accounting.Parts(f) {
		text, end = p.Append(text), p.End
	}
	if err := atomicfile.Write(accounting.IndexPath(f.Name()), text, 0o644); err != nil {
		return err
	}
	*x = index{inode(info), end}
	return nil
}
