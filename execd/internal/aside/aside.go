// Package aside takes out of the way what execd finds in its spool and cannot use: into
// corrupt/, where somebody may look at it, with a line in the log. Packages of execd that
// keep files there import it; it imports spool.
package aside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"paddock/spool"
)

// Put sets a file or directory aside.
func Put(root *spool.Root, log *slog.Logger, path string, cause error) error {
	kept, err := root.SetAside(path)
	Tell(log, path, kept, cause, err)
	return err
}

// Tell says where what was set aside is kept now, or why it could not be set aside.
func Tell(log *slog.Logger, path, kept string, cause, err error) {
	if err != nil {
		log.Error(fmt.Sprintf("cannot set %s aside: %v (%v)", path, err, cause))
		return
	}
	log.Warn(fmt.Sprintf("%s: %v: kept in %s", path, cause, kept))
}

// Read reads a small store in JSON, of no more bytes than most. One that is not there is
// empty, and so is one that makes no sense: that is set aside, and what is without it is
// told. What the system cannot read may be in order: it is an error, or would be written
// over.
func Read[T any](root *spool.Root, log *slog.Logger, path string, most int, without string) (v T, err error) {
	data, err := spool.ReadFile(path, most)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return v, nil
	case spool.Unread(err):
		return v, err
	}
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		var none T
		return none, Put(root, log, path, fmt.Errorf("cannot read it, %s: %w", without, err))
	}
	return v, nil
}
