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
	state, err := os.OpenRoot(filepath.Dir(l.SGERoot))
	if err != nil {
		return err
	}
	defer state.Close()
	name := filepath.Base(l.SGERoot)
	for _, d := range []string{name, filepath.Join(name, "bin")} {
		if err := makeOpenIn(state, d, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	link := filepath.Join(l.SGERoot, "bin", Arch())
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
