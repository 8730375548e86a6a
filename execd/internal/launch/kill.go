package launch

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"paddock/internal/proc"
	"paddock/spool"
)

// killLeft kills what a run has left whose shepherd is gone, and returns how
// many processes that were: those with its additional group id or its
// SGE_JOB_SPOOL_DIR, which procedures, methods and the starter have too,
// and what descends from those, whatever became of their environment. (Not
// those of its session: the number may long be another's.) gid is 0 for none.
func (r *Runs) killLeft(run spool.RunID, gid int) (killed int, err error) {
	return proc.Kill(killTimeout, r.leftoversOf(run, gid).owns)
}

// killTimeout bounds the wait for processes that do not die: those in the
// middle of a disk access that hangs.
const killTimeout = 10 * time.Second

// spoolDirMark is what the mark of a run begins with in environments.
const spoolDirMark = "SGE_JOB_SPOOL_DIR="

// shepherdName is what a shepherd is called in the list of processes.
func shepherdName(run spool.RunID) string { return "shepherd-" + run.ID().String() }

// leftovers tells a run's processes from others.
type leftovers struct {
	gid      int // 0: none
	paths    [][]byte
	shepherd string // the name of its shepherd
	dir      string // which works here
}

func (r *Runs) leftoversOf(run spool.RunID, gid int) *leftovers {
	path := r.Root.Active(run.ID()).Path()
	l := &leftovers{shepherd: shepherdName(run), dir: path, gid: gid, paths: [][]byte{[]byte(path)}}
	// The stage knows where it is, and not by what name that was configured.
	if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && parent != filepath.Dir(path) {
		l.dir = filepath.Join(parent, filepath.Base(path))
		l.paths = append(l.paths, []byte(l.dir))
	}
	return l
}

// marks are what of a process may tell whose it is.
type marks struct {
	groups []int
	dirs   [][]byte // the values of SGE_JOB_SPOOL_DIR
}

func marksOf(p proc.Process) (m marks) {
	if status, err := p.Read("status"); err == nil {
		m.groups = slices.Collect(proc.Groups(status))
	}
	for v := range p.Environ() {
		if dir, ok := bytes.CutPrefix(v, []byte(spoolDirMark)); ok {
			m.dirs = append(m.dirs, dir)
		}
	}
	return m
}

// owns reports whether a process belongs to the run.
func (l *leftovers) owns(p proc.Process) bool {
	m := marksOf(p)
	return l.marked(&m) || l.leads(p)
}

// marked reports whether a process belongs to the run by its own marks.
func (l *leftovers) marked(m *marks) bool {
	if l.gid > 0 && slices.Contains(m.groups, l.gid) {
		return true
	}
	for _, dir := range m.dirs {
		for _, path := range l.paths {
			// What is below is a task that was started in the run.
			if rest, ok := bytes.CutPrefix(dir, path); ok && (len(rest) == 0 || rest[0] == '/') {
				return true
			}
		}
	}
	return false
}

// leads reports whether a process is the shepherd of the run, working in a
// directory that somebody has removed: only then is it still to be found here.
func (l *leftovers) leads(p proc.Process) bool {
	where, err := os.Readlink("/proc/" + strconv.Itoa(p.PID) + "/cwd")
	if err != nil || where != l.dir+" (deleted)" {
		return false
	}
	if _, err := os.Lstat(l.dir); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	line, err := p.Read("cmdline")
	name, _, _ := bytes.Cut(line, []byte{0})
	return err == nil && string(name) == l.shepherd
}
