// Package output keeps an index of the files that jobs write, for jobs that are over and
// whose records are gone. It is a convenience: the files outputs and outputs.1 of the spool
// have its last megabyte or two, nothing is synced, and lines that cannot be read are
// ignored. Package stage adds to it, and the server reads it; it imports launch, which has
// the type of the paths.
package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"paddock/execd/internal/launch"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// Index has the files that jobs write. Its methods may be called from several goroutines.
type Index struct {
	file, old string
	size      int64 // of outputs at which it becomes outputs.1

	mu     sync.Mutex
	arrays map[int]launch.Streams // guarded by mu; the last line of each array, since all its tasks have the same
}

const (
	maxSize = 1 << 20
	// maxArrays bounds arrays. Beyond it an array gets another line, which does no harm.
	maxArrays = 1000
)

// New returns the Index of a spool.
func New(root *spool.Root) *Index {
	return &Index{file: root.Path(spool.FileOutputs), old: root.Path(spool.FileOutputs1), size: maxSize}
}

// Add adds the files of a job that is being started.
func (x *Index) Add(s launch.Streams) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.Array && x.arrays[s.Job] == s {
		return nil
	}
	line, err := json.Marshal(s)
	if err == nil {
		err = x.write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("cannot remember where job %d writes: %w", s.Job, err)
	}
	if s.Array {
		if x.arrays == nil || len(x.arrays) >= maxArrays {
			x.arrays = map[int]launch.Streams{}
		}
		x.arrays[s.Job] = s
	}
	return nil
}

// write appends a line; x.mu is held.
func (x *Index) write(line []byte) error {
	f, err := atomicfile.OpenAppend(x.file, spool.ModeOf(spool.FileOutputs))
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() >= x.size {
		if err = errors.Join(f.Close(), atomicfile.Rename(x.file, x.old)); err != nil {
			return err
		}
		if f, err = atomicfile.OpenAppend(x.file, spool.ModeOf(spool.FileOutputs)); err != nil {
			return err
		}
	}
	if err == nil {
		err = atomicfile.AppendTo(f, line)
	}
	return errors.Join(err, f.Close())
}

// Job returns the files of the job with a number.
func (x *Index) Job(number int) (launch.Streams, bool) {
	return x.find(func(s *launch.Streams) bool { return s.Job == number })
}

// Youngest returns the files of the job that was started last of the jobs of a user with a
// name.
func (x *Index) Youngest(uid int, name string) (launch.Streams, bool) {
	return x.find(func(s *launch.Streams) bool { return s.UID == uid && string(s.Name) == name })
}

// find returns the last line of both files that is wanted.
func (x *Index) find(wanted func(*launch.Streams) bool) (launch.Streams, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, file := range []string{x.file, x.old} {
		data, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if s, ok := lastOf(data, wanted); ok {
			return s, true
		}
	}
	return launch.Streams{}, false
}

func lastOf(data []byte, wanted func(*launch.Streams) bool) (launch.Streams, bool) {
	for _, line := range slices.Backward(bytes.Split(data, []byte("\n"))) {
		var s launch.Streams
		if json.Unmarshal(line, &s) == nil && s.Job > 0 && wanted(&s) {
			return s, true
		}
	}
	return launch.Streams{}, false
}
