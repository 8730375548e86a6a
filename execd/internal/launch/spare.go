package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// spares are scratch directories that jobs have left empty, kept for the next
// job of the same user: making and removing a directory for each job is a
// large part of what a short job costs, and on some file systems, which search
// long for an inode when many were removed lately, by far the largest. They
// are never given to another user.
type spares struct {
	mu   sync.Mutex
	kept map[spareKey][]string // guarded by mu; paths
	n    int                   // guarded by mu; how many
	last int                   // guarded by mu; number of the last
}

type spareKey struct {
	uid    int
	parent string
}

// maxSpares bounds how many directories are kept.
const maxSpares = 64

// sparePrefix begins the name of a spare directory.
const sparePrefix = ".paddock-spare-"

// keep takes an empty scratch directory that belongs to uid out of its place,
// and reports whether it did.
func (s *spares) keep(path string, uid int) bool {
	if !emptyDirOf(path, uid) {
		return false
	}
	key := spareKey{uid, filepath.Dir(path)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= maxSpares {
		return false
	}
	s.last++
	spare := filepath.Join(key.parent, sparePrefix+strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(s.last))
	if unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, spare, unix.RENAME_NOREPLACE) != nil {
		return false
	}
	if s.kept == nil {
		s.kept = map[spareKey][]string{}
	}
	s.kept[key] = append(s.kept[key], spare)
	s.n++
	return true
}

// take makes a spare directory of uid the scratch directory path, and reports
// whether there was one that is still as it should be.
func (s *spares) take(path string, uid int) bool {
	key := spareKey{uid, filepath.Dir(path)}
	s.mu.Lock()
	list := s.kept[key]
	if len(list) == 0 {
		s.mu.Unlock()
		return false
	}
	spare := list[len(list)-1]
	if s.kept[key] = list[:len(list)-1]; len(list) == 1 {
		delete(s.kept, key)
	}
	s.n--
	s.mu.Unlock()
	// Its owner may have put something into it meanwhile, by a descriptor that
	// a process of another job of his has kept: then it stays as it is, his.
	if !emptyDirOf(spare, uid) {
		return false
	}
	if unix.Renameat2(unix.AT_FDCWD, spare, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE) != nil {
		// The name is taken, which is no reason to leave the directory behind.
		_ = unix.Rmdir(spare)
		return false
	}
	return true
}

// emptyDirOf reports whether a path is a directory, not a link to one, that
// belongs to uid and has nothing in it.
func emptyDirOf(path string, uid int) bool {
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || int(st.Uid) != uid {
		return false
	}
	names, err := f.Readdirnames(1)
	return len(names) == 0 && err != nil // io.EOF
}

// sweepSpares removes the spare directories that an earlier execd has left in
// the parent of scratch directories. Only what is empty goes, whosever it is.
func sweepSpares(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return // there will be no jobs either
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), sparePrefix) {
			_ = unix.Rmdir(filepath.Join(parent, e.Name()))
		}
	}
}

// remove removes all spare directories.
func (s *spares) remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, list := range s.kept {
		for _, path := range list {
			if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) {
				errs = append(errs, &os.PathError{Op: "rmdir", Path: path, Err: err})
			}
		}
	}
	s.kept, s.n = nil, 0
	return errors.Join(errs...)
}
