package launch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// linkCommands makes bin/ARC in the SGE_ROOT of the jobs a link to the commands:
// MPI libraries look there for qrsh.
func (l *Launcher) linkCommands() error {
	dir := filepath.Join(l.SGERoot, "bin")
	for _, d := range []string{l.SGERoot, dir} {
		if err := makeOpen(d, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	link := filepath.Join(dir, Arch())
	if to, err := os.Readlink(link); err == nil && to == l.BinDir {
		return nil
	}
	// Jobs that run find the one or the other.
	next := link + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(l.BinDir, next); err != nil {
		return err
	}
	return os.Rename(next, link)
}
