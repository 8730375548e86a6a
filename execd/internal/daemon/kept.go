package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/spool/atomicfile"
)

// keptPath is the file with the sources of the configuration that was in force last. It
// is not in the spool, since the configuration says where that is.
func keptPath(o Options) string { return filepath.Join(o.Places.State, "last_configuration") }

// readKept returns what keep wrote. It refuses a file that another user could have
// written or put there, since the file decides what is run as the user of execd.
func readKept(o Options) ([]byte, error) {
	f, err := os.OpenFile(keptPath(o), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	dir, err := os.Stat(o.Places.State)
	if err != nil {
		return nil, err
	}
	if err := api.Untrusted(dir, os.Geteuid()); err != nil {
		return nil, fmt.Errorf("its directory: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if err := api.Untrusted(info, os.Geteuid()); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// keep stores the sources of a configuration in force, for a start at which its files
// have mistakes.
func (d *daemon) keep(c *conf.Config) {
	data := c.Kept()
	if data == nil {
		return
	}
	if was, err := readKept(d.opts); err == nil && bytes.Equal(was, data) {
		return
	}
	if err := atomicfile.WriteDurable(keptPath(d.opts), data, 0o600); err != nil {
		d.log.Warn(fmt.Sprintf("execd: %v: a start with mistakes in the configuration will be refused", err))
	}
}

// reportKept logs that the files had mistakes at the start.
func (d *daemon) reportKept() {
	mistakes := d.config.Mistakes()
	for _, text := range mistakes {
		d.log.Error("execd: configuration: " + text)
	}
	if len(mistakes) > 0 {
		d.log.Error("execd: the configuration is the last one that was in force, of " + keptPath(d.opts))
	}
}
