package fetch

import (
	"encoding/json"
	"errors"
	"fmt"

	"paddock/execd/internal/aside"
	"paddock/execd/internal/hook"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// What a hook is still to be told lies in a file of the spool, in JSON with its format, until
// the hook has heard it: notices in evictions/, and reports in reports/.

// maxKept bounds what is read of one, in bytes: two ads, each at most as large as a request to
// execd.
const maxKept = 32 << 20

// writeKept writes a file that is on disk when it returns.
func writeKept(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return atomicfile.WriteDurable(path, append(data, '\n'), 0o600)
}

// readKept reads a file whose format, which is a part of v, is the newest at most.
func readKept(path string, v any, format *int, newest int) error {
	data, err := spool.ReadFile(path, maxKept)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err == nil && *format > newest {
		err = fmt.Errorf("%w: it has %d, this execd reads %d", spool.ErrFormat, *format, newest)
	}
	return err
}

// unreadable deals with a file that cannot be read: one that may be read after the next start
// stays, which it reports, and another is set aside.
func (l *Layer) unreadable(dir, name string, tells hook.Name, err error) (stays bool) {
	if spool.Unread(err) || errors.Is(err, spool.ErrFormat) {
		l.o.Log.Error(fmt.Sprintf("cannot read %s/%s: %v: %s is told after the next start", dir, name, err, tells))
		return true
	}
	_ = aside.Put(l.o.Root, l.o.Log, l.o.Root.Path(dir, name), fmt.Errorf("cannot read it: %w", err)) // it was told
	return false
}
