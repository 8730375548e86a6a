package launch

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"paddock/spool"
	"paddock/spool/atomicfile"
)

// SetLease writes the lease of an active run, whether it has a shepherd yet or not; zero: it
// has none, or none any more. The file is replaced, so that the shepherd finds the one end or
// the other whenever it looks, and nothing has changed when there was no room for it. A
// shepherd that may know of none is told to look. One that is not ours would not.
func (ss *shepherds) SetLease(run spool.RunID, lease spool.Lease) error {
	s := ss.shepherd(run)
	if s != nil && s.foreign || s == nil && ss.Foreign() {
		return nil
	}
	d := ss.Root.Active(run.ID())
	is, err := d.Lease()
	none := errors.Is(err, fs.ErrNotExist)
	switch {
	case err == nil && is == lease, none && lease == spool.Lease{}:
		return nil
	case lease == spool.Lease{}:
		err = atomicfile.Remove(d.Path(spool.FileLease))
	case none && s == nil: // nobody looks yet
		err = d.WriteNew(spool.FileLease, lease.Append(nil))
	default:
		err = d.Write(spool.FileLease, lease.Append(nil))
	}
	if err == nil && none && s != nil {
		err = ss.poke(run, s, unix.SIGTTIN)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it has ended
		return fmt.Errorf("cannot write the lease of job %v: %w", run.ID(), err)
	}
	return nil
}
