package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"paddock/execd/internal/quota"
	"paddock/spool"
)

// PrivateTmp is the name of the attribute, BOOL, by which a job asks for a /tmp
// of its own, where the administrator has defined it.
const PrivateTmp = "private_tmp"

// makePrivateTmp makes, beside TMPDIR, what the job sees as /tmp and /var/tmp, and
// notes it in the order. It is in a directory that only root can enter: whoever
// is not in the job cannot get at it, and what is in it can be removed as root
// when the job is gone.
func (l *Launcher) makePrivateTmp(o *Order) error {
	if !o.PrivateTmp && !o.Global.PrivateTmp {
		return nil
	}
	if reason := l.sharesTmp(); reason != "" {
		if o.PrivateTmp {
			return &Unfit{"cannot give the job a /tmp of its own: " + reason}
		}
		l.shared.Do(func() { l.Log.Warn("PRIVATE_TMP is without effect: " + reason) })
		return nil
	}
	var err error
	if o.closed, err = makeNew(o.chosen + ".private"); err != nil {
		o.closed = ""
		return fmt.Errorf("cannot make a private /tmp: %w", err)
	}
	if o.scratch.project > 0 { // one limit for both
		closed, err := openDir(o.closed)
		if err == nil {
			err = quota.Assign(closed, o.scratch.project)
			closed.Close()
		}
		if err != nil {
			return fmt.Errorf("cannot make a private /tmp: %w", err)
		}
	}
	tmpdir, err := filepath.EvalSymlinks(o.chosen)
	if err != nil {
		return fmt.Errorf("cannot make a private /tmp: %w", err)
	}
	done := map[string]bool{}
	for _, p := range spool.PrivateTmp {
		// A host may have only one of them, or one for both.
		place, err := filepath.EvalSymlinks(p.Place)
		if errors.Is(err, fs.ErrNotExist) || done[place] {
			continue
		}
		done[place] = true
		dir := filepath.Join(o.closed, p.Name)
		if err == nil {
			err = makeOpen(dir, 0o755)
		}
		// TMPDIR stays where it is, which takes a place to mount it on. It is made
		// now: later the job could put a link in its way.
		if rel, below := strings.CutPrefix(tmpdir, place+"/"); err == nil && below {
			at := dir
			for name := range strings.SplitSeq(rel, "/") {
				at = filepath.Join(at, name)
				err = errors.Join(err, makeOpen(at, 0o755))
			}
		}
		if err == nil {
			err = os.Chmod(dir, 0o777|os.ModeSticky)
		}
		if err != nil {
			return fmt.Errorf("cannot make a private %s: %w", p.Place, err)
		}
	}
	return nil
}

// makeOpen makes a directory with a mode, whatever the umask is.
func makeOpen(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// sharesTmp says why no job can have a /tmp of its own; empty: it can.
func (l *Launcher) sharesTmp() string {
	switch {
	case !l.Privileged:
		return "execd runs the jobs of one user, without root's rights"
	case l.Foreign():
		return "the shepherd_cmd " + l.Shepherd + " is not our own"
	}
	root, err := filepath.EvalSymlinks(l.Root.Path())
	if err != nil {
		return err.Error()
	}
	for _, p := range spool.PrivateTmp {
		if place, err := filepath.EvalSymlinks(p.Place); err == nil && strings.HasPrefix(root, place+"/") {
			return "the spool " + root + " is below " + p.Place + ", where jobs could not reach it"
		}
	}
	return ""
}

// removePrivateTmp removes the private /tmp that a run's config names.
func (l *Launcher) removePrivateTmp(config *spool.Config) error {
	path, ok := config.Lookup(spool.KeyPrivateTmp)
	if !ok || !filepath.IsAbs(path) {
		return nil
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot remove private /tmp: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || st.Uid != 0 || info.Mode().Perm() != 0o700 {
		return fmt.Errorf("cannot remove private /tmp %s: it is not a closed directory of root", path)
	}
	// Not as the owner, who cannot get there; and by the shepherd's hand, which
	// follows nothing and is not stopped by depth.
	err = l.asUser(context.Background(), nil, 0, 0, "0", "-remove", path)
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return fmt.Errorf("cannot remove private /tmp %s: %w", path, err)
	}
	return nil
}
