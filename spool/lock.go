package spool

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool/atomicfile"
)

// ErrLocked means that somebody else holds a lock.
var ErrLocked = errors.New("locked by another process")

// LockFile takes the lock of a file, which it creates if there is none, and
// returns the open file. The lock is held until the last copy of the
// descriptor is closed, those that children were given included.
func LockFile(path string) (*os.File, error) {
	f, err := atomicfile.OpenAppend(path, 0o600)
	if err != nil {
		return nil, cannot("lock", path, cause(err))
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, cannot("lock", path, err)
	}
	return f, nil
}

// Held reports whether somebody holds the lock of a file. Without the file
// nobody does.
func Held(path string) (bool, error) {
	f, err := openRegular(path)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, cannot("look at lock", path, err)
	}
	defer f.Close()
	// The lock is a shared one, so that two readers do not see each other.
	err = flock(f, unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, ErrLocked) {
		return true, nil
	}
	if err != nil {
		return false, cannot("look at lock", path, err)
	}
	return false, nil
}

// released waits until nobody holds the lock of a file, at most for within, and
// reports whether it is free.
func released(path string, within time.Duration) (bool, error) {
	f, err := openRegular(path)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	if err != nil {
		return false, cannot("look at lock", path, err)
	}
	done := make(chan error, 1)
	go func() {
		defer f.Close()
		done <- flock(f, unix.LOCK_SH)
	}()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case err := <-done:
		if err != nil {
			return false, cannot("look at lock", path, err)
		}
		return true, nil
	case <-late.C:
		return false, nil // the thread that waits goes when the lock does
	}
}

func flock(f *os.File, how int) error {
	for {
		switch err := unix.Flock(int(f.Fd()), how); err {
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return ErrLocked
		default:
			return err
		}
	}
}
