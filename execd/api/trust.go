package api

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Untrusted returns an error that says how somebody other than root and the
// user uid could have written a file; nil if nobody could. The group whose
// number equals uid is taken for the user's private group.
func Untrusted(info fs.FileInfo, uid int) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	writable := info.Mode().Perm() & 0o022
	if ok && uid > 0 && int(st.Uid) == uid && int(st.Gid) == uid {
		writable &^= 0o020
	}
	switch {
	case !ok || st.Uid != 0 && int(st.Uid) != uid:
		return fmt.Errorf("belongs to user %d", st.Uid)
	case writable != 0:
		return fmt.Errorf("may be written by others (mode %04o)", info.Mode().Perm())
	}
	return nil
}

// Prepare makes the directory of DevPlaces, for the caller alone or, if open, so that
// the users of jobs may pass through it. It refuses a directory that somebody else may
// have made: its contents decide which programs run as the caller.
func (p Places) Prepare(open bool) error {
	mode := fs.FileMode(0o700)
	if open {
		mode = 0o755
	}
	err := os.MkdirAll(p.State, mode)
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(p.State)
	}
	if err != nil {
		return fmt.Errorf("cannot make directory: %w", err)
	}
	if err := Untrusted(info, os.Geteuid()); err != nil {
		return fmt.Errorf("cannot use directory %s: %w: what is in it decides what is run as you", p.State, err)
	}
	return nil
}
