package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"paddock/execd/internal/check"
	"paddock/spool"
)

// CheckSpool looks for damage in the spool and the accounting file and prints a line
// for each finding. With repair it mends what can be mended; if an execd runs, the
// error then matches ErrRunning. It reports whether all is well now.
func CheckSpool(o Options, repair bool, out io.Writer) (clean bool, err error) {
	live, err := configured(o)
	if err != nil {
		return false, err
	}
	dir, err := spoolDir(o, live.Current())
	if err != nil {
		return false, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return false, fmt.Errorf("cannot check spool: %w", err)
	}
	c := check.Options{Spool: dir, Accounting: o.Places.Accounting, Scripts: o.RootMode, Repair: repair}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && !o.RootMode {
		c.Owner = int(st.Uid)
	}
	lock := dir + "/" + spool.FileExecdLock
	if repair {
		held, err := spool.LockFile(lock)
		if errors.Is(err, spool.ErrLocked) {
			return false, fmt.Errorf("cannot repair: %w on spool %s", ErrRunning, dir)
		}
		if err != nil {
			return false, err
		}
		defer held.Close()
	} else if c.Running, err = spool.Held(lock); err != nil {
		return false, err
	}
	found, err := check.Run(c)
	if errors.Is(err, spool.ErrFormat) {
		return false, &UsageError{err}
	}
	if err != nil {
		return false, err
	}
	left := 0
	for _, f := range found {
		remedy := f.Remedy
		switch {
		case f.Err != nil:
			remedy = "not repaired: " + f.Err.Error()
		case remedy == "":
			remedy = "left for you to look at"
		}
		if !repair || f.Err != nil || f.Remedy == "" {
			left++
		}
		fmt.Fprintf(out, "%s: %s: %s\n", f.Path, f.Text, remedy)
	}
	also := ""
	if c.Running {
		also = "; execd is running, and what may be its work was not looked at"
	}
	fmt.Fprintf(out, "%s: damaged=%d repaired=%d%s\n", dir, len(found), len(found)-left, also)
	return left == 0, nil
}
