package job

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"paddock/spool"
	"paddock/spool/atomicfile"
)

// Inspection is what a record says, for a check of a spool without its execd.
type Inspection struct {
	HasScript bool
	UID       int // of the owner
	Owner     string
	Group     string           // the owner's
	Pending   int              // tasks that are to be started
	Active    map[spool.ID]int // tasks that were started and are not settled, and the number of the run
	Cut       int              // bytes behind the last whole line
	Damage    error            // the events cannot be followed to their end; nil: they can
}

// Inspect reads the record of a job. An error means that there is nothing to
// make of it, and matches spool.ErrFormat for one of another execd's format.
func Inspect(data []byte, number int) (*Inspection, error) {
	j, whole, err := decode(data)
	switch {
	case j == nil:
		return nil, err
	case j.Number != number:
		return nil, fmt.Errorf("the header says job %d", j.Number)
	}
	// All of it, while execd reads the request only when the job is started.
	first, _, _ := bytes.Cut(data, []byte("\n"))
	if _, err := decodeHeader(first); err != nil {
		return nil, fmt.Errorf("line 1 is not a header: %v", err)
	}
	in := &Inspection{
		HasScript: j.HasScript, UID: j.UID, Owner: j.Owner, Group: j.Group, Pending: j.pending.Len(), Active: map[spool.ID]int{},
		Cut: len(data) - whole, Damage: err,
	}
	for _, t := range j.active {
		if t.State != Errored {
			in.Active[t.RunID().ID()] = t.Run
		}
	}
	return in, nil
}

// Rescue makes a record anew from its lines up to the first that cannot be
// followed, and returns where in corrupt/ the old one is kept. With a reason
// the tasks that seem to be pending are not started: they wait in error. The
// caller holds the lock of the spool.
func Rescue(root *spool.Root, number int, reason string) (kept string, err error) {
	file := root.Path(spool.DirJobs, strconv.Itoa(number))
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if kept, err = root.SetAside(file); err != nil {
		return "", fmt.Errorf("cannot set record of job %d aside: %w", number, err)
	}
	out, _, err := rebuilt(data, reason, kept)
	if err == nil {
		err = atomicfile.WriteDurable(file, out, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("cannot write record of job %d: %w", number, err)
	}
	return kept, nil
}

// rebuilt returns the good lines of a record as a record, and the job that it
// makes. With a reason its pending tasks are put in error.
func rebuilt(data []byte, reason, kept string) ([]byte, *Job, error) {
	out := bytes.Clone(goodLines(data))
	j, _, err := decode(out)
	if err != nil {
		return nil, nil, err
	}
	if reason == "" || j.pending.Len() == 0 {
		return out, j, nil
	}
	l := line{
		Event: EventErrored, Tasks: j.pending.format(), Time: time.Now(),
		Reason: fmt.Sprintf("%s; see %s", reason, kept),
	}
	b, err := encode(&l)
	return append(out, b...), j, errors.Join(err, j.replay(&l))
}

// damaged is why tasks wait in error whose record was damaged.
const damaged = "the record of the job was damaged, it is not known which tasks have run"
