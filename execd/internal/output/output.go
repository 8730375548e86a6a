// Package output remembers where jobs write, for those who ask when the job is over and
// its record is gone. It is a comfort: the files outputs and outputs.1 of the spool
// hold the last megabyte or two of it, nothing is synced, and what cannot be read is
// passed over. Package stage writes it, the server asks; it imports launch, which has
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

// Memory is where jobs wrote. Its methods may be called from several goroutines.
type Memory struct {
	file, old string
	size      int64 // at which outputs becomes outputs.1

	mu   sync.Mutex
	last map[int]launch.Streams // guarded by mu; the last line of each array, since all its tasks write the same
}

const (
	maxSize = 1 << 20
	// maxLast bounds last. Beyond it an array gets another line, which does no harm.
	maxLast = 1000
)

// New returns the Memory of a spool.
func New(root *spool.Root) *Memory {
	return &Memory{file: root.Path(spool.FileOutputs), old: root.Path(spool.FileOutputs1), size: maxSize}
}

// Note remembers where a job writes that is being started.
func (m *Memory) Note(s launch.Streams) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.Array && m.last[s.Job] == s {
		return nil
	}
	line, err := json.Marshal(s)
	if err == nil {
		err = m.write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("cannot remember where job %d writes: %w", s.Job, err)
	}
	if s.Array {
		if m.last == nil || len(m.last) >= maxLast {
			m.last = map[int]launch.Streams{}
		}
		m.last[s.Job] = s
	}
	return nil
}

// write appends a line; m.mu is held.
func (m *Memory) write(line []byte) error {
	f, err := atomicfile.OpenAppend(m.file, spool.ModeOf(spool.FileOutputs))
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() >= m.size {
		if err = errors.Join(f.Close(), atomicfile.Rename(m.file, m.old)); err != nil {
			return err
		}
		if f, err = atomicfile.OpenAppend(m.file, spool.ModeOf(spool.FileOutputs)); err != nil {
			return err
		}
	}
	if err == nil {
		err = atomicfile.AppendTo(f, line)
	}
	return errors.Join(err, f.Close())
}

// Job returns where the job of a number writes.
func (m *Memory) Job(number int) (launch.Streams, bool) {
	return m.find(func(s *launch.Streams) bool { return s.Job == number })
}

// Youngest returns where the job writes that was started last of those of a user with a
// name.
func (m *Memory) Youngest(uid int, name string) (launch.Streams, bool) {
	return m.find(func(s *launch.Streams) bool { return s.UID == uid && string(s.Name) == name })
}

// find returns the last line that is wanted, of both files.
func (m *Memory) find(wanted func(*launch.Streams) bool) (launch.Streams, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, file := range []string{m.file, m.old} {
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
