package pilot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"paddock/spool"
	"paddock/spool/atomicfile"
)

// SharedVariable is the environment variable with the directory that pilots share.
const SharedVariable = "PADDOCK_PILOT_SHARED"

const (
	// maxReport bounds what is read of a report, in bytes: an execd bounds it to the same.
	maxReport = 32 << 20
	// notOwn is before the numbers that reports of other pilots have in the place of a job's, and
	// behind those of all jobs.
	notOwn = 1 << 40
)

// Shared is where pilots leave the reports that nobody has heard when they end, so that a later one tells
// them. A report lies there until it was heard, so that it is not lost with the pilot that tells it.
type Shared struct {
	dir     string
	reports string // of the spool of this pilot
	name    string // of this pilot, among all that use dir
	log     func(text string)
	lock    *os.File          // held while reports of others are told; nil: it is not
	taken   map[string]string // the reports of others: from their names in the spool to those in dir
}

// OpenShared opens the directory reports in the one that pilots share. Whoever can write to it can tell
// the end of work, so that it has to be this user's alone.
func OpenShared(shared, reports, name string, log func(text string)) (*Shared, error) {
	s := &Shared{dir: filepath.Join(shared, spool.DirReports), reports: reports, name: name, log: log, taken: map[string]string{}}
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("cannot make directory for reports: %w", err)
	}
	info, err := os.Lstat(s.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot use directory for reports: %w", err)
	}
	if st := info.Sys().(*syscall.Stat_t); !info.IsDir() || int(st.Uid) != os.Geteuid() || info.Mode()&0o022 != 0 {
		return nil, fmt.Errorf("cannot use %s for reports: it has to be a directory of yours that nobody else can write to", s.dir)
	}
	return s, nil
}

// parseReport reads the name of a report: its number, which is in the order of the ends, and the number of the job;
// before the end is recorded it has the latter alone.
func parseReport(name string) (number, job int64, ok bool) {
	before, after, dotted := strings.Cut(name, ".")
	if !dotted {
		before, after = "0", before
	}
	number, err := strconv.ParseInt(before, 10, 64)
	job, err2 := strconv.ParseInt(after, 10, 64)
	return number, job, err == nil && err2 == nil && number >= 0 && job > 0
}

// Take gives the reports of others to the execd of this pilot, before it starts. One pilot at a time has them.
func (s *Shared) Take() error {
	// A pilot that was killed and is run again where it was may have had some, and another one has told them since.
	entries, err := os.ReadDir(s.reports)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, job, ok := parseReport(e.Name()); ok && job >= notOwn {
			if err := atomicfile.Remove(filepath.Join(s.reports, e.Name())); err != nil {
				return err
			}
		}
	}
	lock, err := spool.LockFile(filepath.Join(s.dir, "lock"))
	if errors.Is(err, spool.ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	s.lock = lock
	if entries, err = os.ReadDir(s.dir); err != nil {
		return err
	}
	type report struct {
		number int64
		name   string
	}
	var found []report
	for _, e := range entries {
		// NUMBER.JOB.PILOT
		parts := strings.SplitN(e.Name(), ".", 3)
		if len(parts) != 3 {
			continue
		}
		if number, _, ok := parseReport(parts[0] + "." + parts[1]); ok && number > 0 {
			found = append(found, report{number, e.Name()})
		}
	}
	slices.SortFunc(found, func(a, b report) int { return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.name, b.name)) })
	for i, r := range found {
		data, err := spool.ReadFile(filepath.Join(s.dir, r.name), maxReport)
		name := fmt.Sprintf("%d.%d", r.number, notOwn+i)
		if err == nil {
			err = atomicfile.Write(filepath.Join(s.reports, name), data, 0o600)
		}
		if err != nil {
			s.log(fmt.Sprintf("cannot take report %s: %v", r.name, err))
			continue
		}
		s.taken[name] = r.name
	}
	if len(s.taken) == 0 {
		s.unlock()
		return nil
	}
	s.log(fmt.Sprintf("tells the ends of work that others could not: %d", len(s.taken)))
	return nil
}

func (s *Shared) unlock() {
	if s.lock != nil {
		s.lock.Close()
		s.lock = nil
	}
}

// Follow removes reports of others as soon as they have been heard, until ctx is done.
func (s *Shared) Follow(ctx context.Context) {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		defer w.Close()
		err = w.Add(s.reports)
	}
	if err != nil {
		s.log(fmt.Sprintf("cannot watch reports, they are removed at the end: %v", err))
		return
	}
	for s.heard() > 0 {
		select {
		case <-w.Events:
		case _, open := <-w.Errors:
			if !open {
				return
			}
		case <-ctx.Done():
			return
		}
	}
	s.unlock()
}

// heard removes the reports of others that have been heard, and returns how many have not.
func (s *Shared) heard() int {
	for name, theirs := range s.taken {
		if _, err := os.Lstat(filepath.Join(s.reports, name)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := atomicfile.Remove(filepath.Join(s.dir, theirs)); err != nil {
			s.log(fmt.Sprintf("%v: it is told again", err))
		}
		delete(s.taken, name)
	}
	return len(s.taken)
}

// Leave leaves the reports that nobody has heard to others. The execd has ended, and Follow has returned.
func (s *Shared) Leave() {
	defer s.unlock()
	s.heard()
	entries, err := os.ReadDir(s.reports)
	if err != nil {
		return // there are none
	}
	left := 0
	for _, e := range entries {
		path := filepath.Join(s.reports, e.Name())
		if s.taken[e.Name()] == "" {
			number, job, ok := parseReport(e.Name())
			if !ok {
				continue
			}
			if number == 0 {
				number = time.Now().UnixMicro()
			}
			data, err := spool.ReadFile(path, maxReport)
			if err == nil {
				err = atomicfile.WriteDurable(filepath.Join(s.dir, fmt.Sprintf("%d.%d.%s", number, job, s.name)), data, 0o600)
			}
			if err != nil {
				s.log(fmt.Sprintf("cannot leave report %s to others: %v", e.Name(), err))
				continue
			}
		}
		if err := atomicfile.Remove(path); err != nil {
			s.log(err.Error())
		}
		left++
	}
	if left > 0 {
		s.log(fmt.Sprintf("%d ends were not told: they are left in %s", left, s.dir))
	}
}
