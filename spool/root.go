package spool

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"paddock/spool/atomicfile"
)

// A Root is the spool of one host. Every answer is read from the disk; memory
// holds only which spare directories there are. It does not sync; who needs
// that syncs the directories concerned. Its methods may be called from several
// goroutines.
type Root struct {
	path string

	mu     sync.Mutex
	spares []spare // guarded by mu; directories in staging, see Recycle
	last   int     // guarded by mu; number of the last
}

// A spare is a directory that the next run may have.
type spare struct {
	name string
	lent int // uid of whom its files are lent to, -1 if it has none of these
}

// suits reports whether nothing in it is lent to anybody but the reader.
func (s spare) suits(reader int) bool { return s.lent < 0 || s.lent == reader }

// OpenRoot opens the spool at a path. With create it makes what is missing of
// it and gives the directories their modes. The places below must be real
// directories, no links.
func OpenRoot(path string, create bool) (*Root, error) {
	path = strings.TrimRight(path, "/")
	if path == "" {
		return nil, cannot("open spool", path, errors.New("not a place for one"))
	}
	r := &Root{path: path}
	if create {
		if err := makeParents(path); err != nil {
			return nil, cannot("create spool", path, err)
		}
		if err := makeDir(path, 0o711); err != nil {
			return nil, cannot("create spool", path, err)
		}
	}
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = unix.ENOTDIR
	}
	if err != nil {
		return nil, cannot("open spool", path, osCause(err))
	}
	for _, p := range Places {
		if create {
			err = makeDir(r.Path(p.Name), p.Mode)
			if err == nil {
				err = atomicfile.Chmod(r.Path(p.Name), -1, -1, p.Mode)
			}
			if err != nil {
				return nil, cannot("create spool", path, err)
			}
		}
		if err := isDir(r.Path(p.Name)); err != nil {
			return nil, cannot("open spool", path, err)
		}
	}
	return r, nil
}

func makeParents(path string) error {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return nil
	}
	parent := path[:i]
	if _, err := os.Stat(parent); !errors.Is(err, fs.ErrNotExist) {
		return osCause(err)
	}
	if err := makeParents(parent); err != nil {
		return err
	}
	return makeDir(parent, 0o755)
}

func makeDir(path string, perm fs.FileMode) error {
	err := atomicfile.Mkdir(path, perm)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// isDir returns an error unless the path itself, not behind a link, is a
// directory.
func isDir(path string) error {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if err != nil {
		return cannot("open directory", path, err)
	}
	return nil
}

// osCause strips what package os says about operation and path.
func osCause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// Path returns the path of the root, or of something below it. Names that
// come from outside are made of an ID or RunID, never passed as they are.
func (r *Root) Path(elem ...string) string { return join(r.path, elem) }

// Staging returns the directory of a run that is being built.
func (r *Root) Staging(run RunID) Dir { return r.runDir(DirStaging, run) }

// Active returns the directory of a task that will run, runs, or has ended.
// For an id that is not valid it is no directory.
func (r *Root) Active(id ID) Dir {
	if !id.Valid() {
		return Dir{}
	}
	return Dir{path: r.Path(DirActive, id.String())}
}

// Finished returns the directory of a run whose processes are over.
func (r *Root) Finished(run RunID) Dir { return r.runDir(DirFinished, run) }

// StageTask makes the directory in which a task that is started in a run is
// built: below that of the run, under a dot name. A left-over is removed.
func (r *Root) StageTask(run RunID) (Dir, error) {
	d, err := r.hiddenTask("stage task", run)
	if err != nil {
		return Dir{}, err
	}
	err = atomicfile.Mkdir(d.path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		if err = atomicfile.RemoveAll(d.path); err == nil {
			err = atomicfile.Mkdir(d.path, 0o700)
		}
	}
	if err != nil {
		return Dir{}, cannot("stage task", run.String(), err)
	}
	return d, nil
}

// ActivateTask gives the directory of a task its name.
func (r *Root) ActivateTask(run RunID) (Dir, error) {
	d, err := r.hiddenTask("activate task", run)
	if err != nil {
		return Dir{}, err
	}
	to := r.Active(run.ID())
	if err := atomicfile.RenameNew(d.path, to.path); err != nil {
		return Dir{}, cannot("activate task", run.String(), err)
	}
	return to, nil
}

// DiscardTask removes what StageTask has made.
func (r *Root) DiscardTask(run RunID) error {
	d, err := r.hiddenTask("discard task", run)
	if err != nil {
		return err
	}
	return atomicfile.RemoveAll(d.path)
}

func (r *Root) hiddenTask(verb string, run RunID) (Dir, error) {
	if !run.Valid() || run.PETask == "" {
		return Dir{}, cannot(verb, run.String(), errors.New("not the id of a task within a run"))
	}
	return Dir{path: r.Active(run.Within().ID()).Path("." + run.PETask)}, nil
}

// ListTasks returns the tasks that have a directory in that of a run, in no
// order, and removes what was half made of others. That there is no directory
// is no error.
func (r *Root) ListTasks(run RunID) ([]string, error) {
	d := r.Active(run.Within().ID())
	names, err := readNames(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, cannot("list tasks of job", run.ID().String(), err)
	}
	var tasks []string
	for _, name := range names {
		if isDir(d.Path(name)) != nil {
			continue // a file of the job's
		}
		if name[0] == '.' {
			if err := atomicfile.RemoveAll(d.Path(name)); err != nil {
				return nil, cannot("remove task", d.Path(name), err)
			}
			continue
		}
		if validPETask(name) {
			tasks = append(tasks, name)
		}
	}
	return tasks, nil
}

func (r *Root) runDir(place string, run RunID) Dir {
	if !run.Valid() {
		return Dir{}
	}
	return Dir{path: r.Path(place, run.String())}
}

func checkRun(verb string, run RunID) error {
	if !run.Valid() {
		return cannot(verb, run.String(), errors.New("not the id of a run"))
	}
	return nil
}

// Stage makes the directory in which a run is built, 0700 until Admit. reader is the
// uid of its owner if files of it are lent to him, see Refill; else -1. A left-over of
// that name is removed: what stands in staging was never started.
func (r *Root) Stage(run RunID, reader int) (Dir, error) {
	if err := checkRun("stage run", run); err != nil {
		return Dir{}, err
	}
	d := r.Staging(run)
	if r.reuse(d, reader) {
		return d, nil
	}
	err := atomicfile.Mkdir(d.path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		if err = r.Remove(d); err == nil {
			err = atomicfile.Mkdir(d.path, 0o700)
		}
	}
	if err != nil {
		return Dir{}, cannot("stage run", run.String(), err)
	}
	return d, nil
}

// Activate moves a run that is built among the active jobs. A directory that
// already has that name is of an earlier run which nobody collected, and its
// exit_status must not be taken for this run's: it is set aside.
func (r *Root) Activate(run RunID) (Dir, error) {
	if err := checkRun("activate run", run); err != nil {
		return Dir{}, err
	}
	from, to := r.Staging(run), r.Active(run.ID())
	if err := isDir(from.path); err != nil {
		return Dir{}, cannot("activate run", run.String(), err)
	}
	if err := r.moveIn(from, to); err != nil {
		return Dir{}, cannot("activate run", run.String(), err)
	}
	return to, nil
}

// Finish moves a run whose processes are over out of the active jobs. Done
// again, it finds the run where it is.
func (r *Root) Finish(run RunID) (Dir, error) {
	if err := checkRun("finish run", run); err != nil {
		return Dir{}, err
	}
	from, to := r.Active(run.ID()), r.Finished(run)
	err := isDir(from.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isDir(to.path) == nil:
		return to, nil
	case err == nil:
		err = r.moveIn(from, to)
	}
	if err != nil {
		return Dir{}, cannot("finish run", run.String(), err)
	}
	return to, nil
}

func (r *Root) moveIn(from, to Dir) error {
	err := atomicfile.RenameNew(from.path, to.path)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, err := r.SetAside(to.path); err != nil {
		return err
	}
	return atomicfile.RenameNew(from.path, to.path)
}

// Remove removes a directory below staging, active_jobs or finished. It gets a
// dot name first, which readers skip, so nobody sees half of it. That there is
// none is no error.
func (r *Root) Remove(d Dir) error {
	place, name, ok := strings.Cut(r.relative(d.path), "/")
	switch place {
	case DirStaging, DirActive, DirFinished:
	default:
		ok = false
	}
	if !ok || !cleanPath(name) {
		return cannot("remove job directory", d.path, errors.New("not a job directory of this spool"))
	}
	i := strings.LastIndexByte(d.path, '/')
	hidden := d.path[:i+1] + "." + d.path[i+1:]
	err := atomicfile.RenameNew(d.path, hidden)
	if errors.Is(err, fs.ErrExist) {
		// The same was removed by halves before.
		if err = atomicfile.RemoveAll(hidden); err == nil {
			err = atomicfile.RenameNew(d.path, hidden)
		}
	}
	// If it has gone already, its hidden rest may still be there.
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cannot("remove job directory", d.path, err)
	}
	if err := atomicfile.RemoveAll(hidden); err != nil {
		return cannot("remove job directory", d.path, err)
	}
	return nil
}

// maxSpares bounds how many directories wait to be used again.
const maxSpares = 64

// recycled are the files that may stay in a directory which is used again,
// emptied. Every run has them, or every run with a sandbox or under a claim. FileCheckpointed is
// none of them: a foreign shepherd says something by leaving it empty.
var recycled = [...]string{
	FileConfig, FileEnvironment, FilePEHostfile, FileLock, FileTrace, FilePID, FileJobPID, FileAddGrpID,
	FileError, FileExitStatus, FileUsage, FileHooks, FileLease,
}

// lent are files that the owner of a run may read: who has had one open before sees what is written
// to it later. They stay for a run of the same owner.
var lent = [...]string{FileHookJobAd, FileHookSlotAd}

// Recycle is Remove for a directory whose run is over, except that the
// directory may become the next one that Stage returns, with its files empty:
// an empty file says the same as none (see Dir). Making and removing a dozen
// files for each job is a large part of what a short job costs, and on some
// file systems by far the largest. What is not an ordinary file of an ordinary
// run is never kept. owner is the uid of whom the run was.
func (r *Root) Recycle(d Dir, owner int) error {
	r.mu.Lock()
	r.last++
	s := spare{name: ".spare-" + strconv.Itoa(r.last), lent: -1}
	full := len(r.spares) >= maxSpares
	r.mu.Unlock()
	if full || !ordinary(d) {
		return r.Remove(d)
	}
	// In staging nobody takes it for anything, whatever happens meanwhile.
	hidden := Dir{path: r.Path(DirStaging, s.name)}
	if err := atomicfile.RenameNew(d.path, hidden.path); err != nil {
		return r.Remove(d)
	}
	has, err := empty(hidden)
	if err != nil {
		if err := atomicfile.RemoveAll(hidden.path); err != nil {
			return cannot("remove job directory", d.path, err)
		}
		return nil
	}
	if has {
		s.lent = owner
	}
	r.mu.Lock()
	r.spares = append(r.spares, s)
	r.mu.Unlock()
	return nil
}

// ordinary reports whether a directory has no other entries than those that
// may stay.
func ordinary(d Dir) bool {
	names, err := readNames(d.path)
	return err == nil && !slices.ContainsFunc(names, func(name string) bool {
		return !slices.Contains(recycled[:], name) && !slices.Contains(lent[:], name)
	})
}

// empty takes the content from all files of a directory, and reports whether some of them are
// lent.
func empty(d Dir) (hasLent bool, err error) {
	names, err := readNames(d.path)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		var kept bool
		path, mode, shared := d.Path(name), ModeOf(name), slices.Contains(lent[:], name)
		switch {
		case shared:
			kept, err = atomicfile.EmptyShared(path)
			hasLent = hasLent || kept
		case mode&0o200 != 0 || unix.Geteuid() == 0: // else nobody could fill it again
			if kept, err = atomicfile.Empty(path, mode); err == nil && !kept {
				err = errors.New("not a file that can be used again")
			}
		}
		if err == nil && !kept {
			err = atomicfile.Remove(path)
		}
		if err != nil {
			return false, err
		}
	}
	return hasLent, atomicfile.Chmod(d.path, -1, unix.Getegid(), 0o700)
}

// reuse makes a spare directory that of a run, and reports whether there was
// one.
func (r *Root) reuse(d Dir, reader int) bool {
	s, ok := r.takeSpare(reader)
	if !ok {
		return false
	}
	hidden := Dir{path: r.Path(DirStaging, s.name)}
	if !s.suits(reader) {
		for _, name := range lent {
			if err := atomicfile.Remove(hidden.Path(name)); err != nil {
				return false // it is swept away at the next start
			}
		}
	}
	return atomicfile.RenameNew(hidden.path, d.path) == nil
}

// takeSpare returns the last spare directory that suits the reader, or the last at all.
func (r *Root) takeSpare(reader int) (spare, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spares) == 0 {
		return spare{}, false
	}
	take := len(r.spares) - 1
	for i, s := range slices.Backward(r.spares) {
		if s.suits(reader) {
			take = i
			break
		}
	}
	s := r.spares[take]
	r.spares = slices.Delete(r.spares, take, take+1)
	return s, true
}

// relative returns a path below the root without the root, else "".
func (r *Root) relative(path string) string {
	rest, ok := strings.CutPrefix(path, r.path+"/")
	if !ok {
		return ""
	}
	return rest
}

// cleanPath reports whether every part of a path is a plain name.
func cleanPath(path string) bool {
	for more := true; more; {
		var name string
		name, path, more = strings.Cut(path, "/")
		if !plainName(name) {
			return false
		}
	}
	return true
}

// SetAside moves a file or directory from anywhere below the root to corrupt,
// where a human looks at it, and returns its new path. It never deletes and
// never replaces: a name that is taken gets .1, .2 and so on.
func (r *Root) SetAside(path string) (string, error) {
	rel := r.relative(path)
	place, rest, deep := strings.Cut(rel, "/")
	if !cleanPath(rel) || place == DirCorrupt || !deep && isPlace(place) {
		return "", cannot("set aside", path, errors.New("not in this spool, or a part of it"))
	}
	name := place
	if deep {
		name = rest[strings.LastIndexByte(rest, '/')+1:]
	}
	// Dot names are skipped, and this one shall be seen.
	name = strings.TrimLeft(name, ".")
	if name == "" {
		name = "unnamed"
	}
	to := r.Path(DirCorrupt, name)
	for n := 1; ; n++ {
		err := atomicfile.RenameNew(path, to)
		if err == nil {
			return to, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", cannot("set aside", path, err)
		}
		to = r.Path(DirCorrupt, name+"."+strconv.Itoa(n))
	}
}

func isPlace(name string) bool {
	for i := range Places {
		if Places[i].Name == name {
			return true
		}
	}
	return false
}

// ListStaging returns the names in staging, sorted, without dot names. The
// caller parses them: what does not parse is to be set aside.
func (r *Root) ListStaging() ([]string, error) { return r.list(DirStaging) }

// ListActive returns the names in active_jobs, as ListStaging does.
func (r *Root) ListActive() ([]string, error) { return r.list(DirActive) }

// ListFinished returns the names in finished, as ListStaging does.
func (r *Root) ListFinished() ([]string, error) { return r.list(DirFinished) }

// ListCorrupt returns the names in corrupt, as ListStaging does.
func (r *Root) ListCorrupt() ([]string, error) { return r.list(DirCorrupt) }

// ListJobs returns the names in jobs, as ListStaging does.
func (r *Root) ListJobs() ([]string, error) { return r.list(DirJobs) }

// ListClaims returns the names in claims, as ListStaging does.
func (r *Root) ListClaims() ([]string, error) { return r.list(DirClaims) }

// ListRemote returns the names in remote, as ListStaging does.
func (r *Root) ListRemote() ([]string, error) { return r.list(DirRemote) }

// ListEvictions returns the names in evictions, as ListStaging does.
func (r *Root) ListEvictions() ([]string, error) { return r.list(DirEvictions) }

// ListReports returns the names in reports, as ListStaging does.
func (r *Root) ListReports() ([]string, error) { return r.list(DirReports) }

// ListFences returns the names in fences, as ListStaging does.
func (r *Root) ListFences() ([]string, error) { return r.list(DirFences) }

// ListScripts returns the names in job_scripts, as ListStaging does.
func (r *Root) ListScripts() ([]string, error) { return r.list(DirScripts) }

// ListEnded returns the names of records and scripts of jobs that have ended,
// sorted.
func (r *Root) ListEnded() ([]string, error) { return r.list(DirEnded) }

func (r *Root) list(place string) ([]string, error) {
	names, err := readNames(r.Path(place))
	if err != nil {
		return nil, cannot("list", r.Path(place), err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name[0] == '.' })
	slices.Sort(names)
	return names, nil
}

func readNames(path string) ([]string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	names, err := f.Readdirnames(-1)
	return names, osCause(errors.Join(err, f.Close()))
}

// SweepDots removes what a crash left half removed or half written: all dot
// names in the places, except in corrupt, and temporary files in the root. It
// may run only while nobody else works in the spool, as execd starts.
func (r *Root) SweepDots() error {
	names, err := readNames(r.path)
	if err != nil {
		return cannot("sweep", r.path, err)
	}
	var errs []error
	for _, name := range names {
		if atomicfile.IsTemp(name) {
			errs = append(errs, atomicfile.RemoveAll(r.Path(name)))
		}
	}
	for _, p := range Places {
		if p.Name == DirCorrupt {
			continue
		}
		names, err := readNames(r.Path(p.Name))
		if err != nil {
			errs = append(errs, cannot("sweep", r.Path(p.Name), err))
		}
		for _, name := range names {
			if name[0] == '.' {
				errs = append(errs, atomicfile.RemoveAll(r.Path(p.Name, name)))
			}
		}
	}
	return errors.Join(errs...)
}
