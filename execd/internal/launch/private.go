package launch

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

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
func (t *tmpdirs) makePrivateTmp(o *Order) error {
	if !o.PrivateTmp && !o.Global.PrivateTmp {
		return nil
	}
	if reason := t.sharesTmp(); reason != "" {
		if o.PrivateTmp {
			return &Unfit{"cannot give the job a /tmp of its own: " + reason}
		}
		t.shared.Do(func() { t.Log.Warn("PRIVATE_TMP is without effect: " + reason) })
		return nil
	}
	err := t.fillPrivateTmp(o)
	if err != nil {
		err = fmt.Errorf("cannot make a private /tmp: %w", err)
	}
	return err
}

func (t *tmpdirs) fillPrivateTmp(o *Order) error {
	parent, err := t.openParent(o.Queue.Tmpdir)
	if err != nil {
		return err
	}
	defer parent.Close()
	dir, name, err := makeNew(parent, filepath.Base(o.chosen)+t.privateSuffix())
	if err != nil {
		return err
	}
	defer dir.Close()
	o.closed = filepath.Join(o.Queue.Tmpdir, name)
	if o.scratch.project > 0 { // one limit for both
		if err := quota.Assign(dir, o.scratch.project); err != nil {
			return err
		}
	}
	closed, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
	if err != nil {
		return err
	}
	defer closed.Close()
	// The directory itself is its owner's in a moment, to rename and replace.
	tmpdir, err := filepath.EvalSymlinks(o.Queue.Tmpdir)
	if err != nil {
		return err
	}
	tmpdir = filepath.Join(tmpdir, filepath.Base(o.chosen))
	done := map[string]bool{}
	for _, p := range spool.PrivateTmp {
		// A host may have only one of them, or one for both.
		place, err := filepath.EvalSymlinks(p.Place)
		if errors.Is(err, fs.ErrNotExist) || done[place] {
			continue
		}
		done[place] = true
		if err == nil {
			err = makeOpenIn(closed, p.Name, 0o755)
		}
		// TMPDIR stays where it is, which takes a place to mount it on. It is made
		// now: later the job could put a link in its way.
		if rel, below := strings.CutPrefix(tmpdir, place+"/"); err == nil && below {
			at := p.Name
			for name := range strings.SplitSeq(rel, "/") {
				at = filepath.Join(at, name)
				err = errors.Join(err, makeOpenIn(closed, at, 0o755))
			}
		}
		if err == nil {
			err = closed.Chmod(p.Name, 0o777|os.ModeSticky)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Place, err)
		}
	}
	return nil
}

// makeOpenIn makes a directory below another with a mode, whatever the umask is.
func makeOpenIn(root *os.Root, name string, mode fs.FileMode) error {
	if err := root.Mkdir(name, mode); err != nil {
		return err
	}
	return root.Chmod(name, mode)
}

// privateSuffix ends the names of what holds a private /tmp. It tells those of one
// spool from those of another.
func (t *tmpdirs) privateSuffix() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Root.Path()))
	return fmt.Sprintf(".private-%08x", h.Sum32())
}

// sharesTmp says why no job can have a /tmp of its own; empty: it can.
func (t *tmpdirs) sharesTmp() string {
	switch {
	case !t.Privileged:
		return "execd runs the jobs of one user, without root's rights"
	case t.Foreign():
		return "the shepherd_cmd " + t.Shepherd + " is not our own"
	}
	root, err := filepath.EvalSymlinks(t.Root.Path())
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
func (t *tmpdirs) removePrivateTmp(config *spool.Config) error {
	path, ok := config.Lookup(spool.KeyPrivateTmp)
	if !ok || !filepath.IsAbs(path) {
		return nil
	}
	uid, err := config.Int(spool.KeyUID)
	if err != nil {
		return err
	}
	if err := t.removeClosed(path, uid); err != nil {
		return fmt.Errorf("cannot remove private /tmp %s: %w", path, err)
	}
	return nil
}

// removeClosed removes a directory of root's that nobody else can enter, with what
// its user has put into it while it was mounted for his job.
func (t *tmpdirs) removeClosed(path string, uid int) error {
	parent, err := t.openParent(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	dir, err := openOwn(parent, filepath.Base(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dir.Close()
	if err := t.aside(func() error { return t.AsUser.EmptyClosed(uid, path) }); err != nil {
		return err
	}
	return unix.Rmdir(path)
}
