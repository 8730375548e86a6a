package check

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"strconv"

	"paddock/execd/api/accounting"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// accounting looks at the accounting file. Whole lines that are wrong are left to the
// administrator: the file is evidence, and programs that follow it by offset must not
// find another file.
func (c *checker) accounting() error {
	f, err := os.Open(c.Accounting)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot check accounting file: %w", err)
	}
	defer f.Close()
	// The hash of a line takes 16 bytes, and there may be millions of lines.
	seen := map[[16]byte]int{}
	r := bufio.NewReaderSize(f, 64<<10)
	for number, at := 1, int64(0); ; number++ {
		line, err := r.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			if len(line) > 0 {
				c.cut(at, line)
			}
			return nil
		case err != nil:
			return fmt.Errorf("cannot check accounting file: %w", err)
		}
		at += int64(len(line))
		if line[0] == '#' || len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		where := fmt.Sprintf("%s:%d", c.Accounting, number)
		record, err := accounting.Parse(line)
		if err != nil {
			c.left(where, "cannot be read: "+err.Error())
			continue
		}
		c.highest = max(c.highest, record.JobNumber)
		if record.StartTime == 0 {
			continue // two runs of one task that power cuts ended have the same line
		}
		h := fnv.New128a()
		_, _ = h.Write(line)
		key := [16]byte(h.Sum(nil))
		if first, double := seen[key]; double {
			c.left(where, fmt.Sprintf("is the same as line %d: a run of job %d is accounted for twice", first, record.JobNumber))
			continue
		}
		seen[key] = number
	}
}

// cut reports half a line at the end, which the next line would be glued to.
func (c *checker) cut(at int64, line []byte) {
	c.findings = append(c.findings, Finding{
		Path: c.Accounting, Text: fmt.Sprintf("its last line is cut short, %d bytes of it are there", len(line)),
		Remedy: "would be moved to " + spool.DirCorrupt, passing: true,
		fix: func() (string, error) {
			kept := c.root.Path(spool.DirCorrupt, "accounting")
			for n := 1; ; n++ {
				_, err := os.Lstat(kept)
				if errors.Is(err, fs.ErrNotExist) {
					break
				}
				if err != nil {
					return "", err
				}
				kept = c.root.Path(spool.DirCorrupt, "accounting."+strconv.Itoa(n))
			}
			if err := atomicfile.WriteDurable(kept, line, 0o600); err != nil {
				return "", err
			}
			return "kept in " + kept, os.Truncate(c.Accounting, at)
		},
	})
}
