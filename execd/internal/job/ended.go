package job

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"paddock/execd/api/accounting"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// ended knows the jobs that are over and whose records and scripts are kept in
// ended_jobs, so that they can be submitted again: a number and a few words for
// each, and no more of them than limit and maxEndedBytes allow.
type ended struct {
	*disk

	mu    sync.Mutex
	limit int                // guarded by mu
	bytes int64              // guarded by mu
	jobs  map[int]*endedJob  // guarded by mu
	users map[int]*endedUser // guarded by mu
}

type endedJob struct {
	uid    int
	failed bool
	size   int64 // of its files; 0: they are not in ended_jobs yet
}

// endedUser has the numbers of one user's jobs, the oldest first: those that
// succeeded, whom nobody will miss, and the others.
type endedUser struct {
	succeeded, failed []int
	bytes             int64
}

func (u *endedUser) len() int { return len(u.succeeded) + len(u.failed) }

// maxEndedBytes bounds the files in ended_jobs.
const maxEndedBytes = 256 << 20

// recordName and scriptName are the names of the files of a job in ended_jobs.
func recordName(number int) string { return strconv.Itoa(number) }
func scriptName(number int) string { return strconv.Itoa(number) + ".script" }

// failure says how a run ended, behind "job 17 failed"; empty: with success.
func (e *End) failure() string {
	switch {
	case e.Failed != 0:
		return ": " + cmp.Or(e.Reason, accounting.FailedText(e.Failed))
	case e.Exit != 0:
		return fmt.Sprintf(" with exit code %d", e.Exit)
	case e.Fate != FateDone:
		return ": it was to run again and did not"
	}
	return ""
}

// deletedBeforeRun is the failure of a task that never ran.
const deletedBeforeRun = ": deleted before it ran"

// fail notes a task that is over and did not succeed.
func (j *Job) fail(number int, why string) {
	own := j.own()
	own.failed.Add(number)
	if own.failure == "" {
		own.failure = why
	}
}

// enter takes in a job that is over.
func (e *ended) enter(j *Job) {
	if j.Interactive || j.UnderClaim() {
		return // nobody could submit it again
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.jobs[j.Number] == nil {
		e.jobs[j.Number] = &endedJob{uid: j.UID, failed: j.failed.Len() > 0}
	}
}

// keep takes note that the files of a job are in ended_jobs.
func (e *ended) keep(number int, size int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := e.jobs[number]
	if k == nil || k.size > 0 {
		return
	}
	k.size = max(size, 1)
	e.bytes += k.size
	u := e.users[k.uid]
	if u == nil {
		u = &endedUser{}
		e.users[k.uid] = u
	}
	u.bytes += k.size
	list := &u.succeeded
	if k.failed {
		list = &u.failed
	}
	*list = append(*list, number)
}

// forget drops a job. e.mu is held.
func (e *ended) forget(number int) {
	k := e.jobs[number]
	if k == nil {
		return
	}
	delete(e.jobs, number)
	u := e.users[k.uid]
	if u == nil || k.size == 0 {
		return
	}
	e.bytes -= k.size
	u.bytes -= k.size
	isIt := func(n int) bool { return n == number }
	u.succeeded, u.failed = slices.DeleteFunc(u.succeeded, isIt), slices.DeleteFunc(u.failed, isIt)
	if u.len() == 0 {
		delete(e.users, k.uid)
	}
}

// surplus takes out the jobs that are too many and returns their numbers. The user
// with most of them loses first, and of his those that succeeded: nobody's jobs go
// because of what another has submitted since. e.mu is held.
func (e *ended) surplus() (numbers []int) {
	for {
		total := 0
		var most, largest *endedUser
		for _, u := range e.users {
			total += u.len()
			if most == nil || u.len() > most.len() {
				most = u
			}
			if largest == nil || u.bytes > largest.bytes {
				largest = u
			}
		}
		switch {
		case total > e.limit:
		case e.bytes > maxEndedBytes:
			most = largest
		default:
			return numbers
		}
		oldest := most.failed
		if len(most.succeeded) > 0 {
			oldest = most.succeeded
		}
		numbers = append(numbers, oldest[0])
		e.forget(oldest[0])
	}
}

// atMost sets how many jobs are kept.
func (e *ended) atMost(limit int) {
	e.mu.Lock()
	e.limit = limit
	e.mu.Unlock()
	e.thin()
}

// thin removes the files of jobs that are too many in ended_jobs.
func (e *ended) thin() {
	e.mu.Lock()
	numbers := e.surplus()
	e.mu.Unlock()
	for _, number := range numbers {
		e.discard(number, e.root.Path(spool.DirEnded, recordName(number)), e.root.Path(spool.DirEnded, scriptName(number)))
	}
}

// keeps reports whether the files of a job that is over are to be kept.
func (e *ended) keeps(number int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit > 0 && e.jobs[number] != nil {
		return true
	}
	e.forget(number)
	return false
}

// putAway moves the files of a job that is over to ended_jobs. A reader looks in the
// old place first, so that he finds them at any time.
func (e *ended) putAway(j *Job) {
	var size int64
	move := func(from, name string) error {
		to := e.root.Path(spool.DirEnded, name)
		err := atomicfile.Rename(from, to)
		var st unix.Stat_t
		if err == nil && unix.Lstat(to, &st) == nil {
			size += st.Size
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // moved before a crash, or taken away by somebody
		}
		return err
	}
	// The script first: what has no record in jobs any more, the next start sweeps
	// away.
	var err error
	if j.HasScript {
		err = move(e.script(j.Number), scriptName(j.Number))
	}
	if err == nil {
		err = move(e.path(j.Number), recordName(j.Number))
	}
	if err != nil {
		e.log.Warn(fmt.Sprintf("job %d: cannot put its record away: %v", j.Number, err))
		return // the next start tries again
	}
	e.keep(j.Number, size)
	e.thin()
}

// openEnded learns which jobs are in ended_jobs, and the highest number of one. All are
// kept until atMost says.
func openEnded(d *disk) (e *ended, last int, err error) {
	e = &ended{disk: d, limit: math.MaxInt, jobs: map[int]*endedJob{}, users: map[int]*endedUser{}}
	names, err := d.root.ListEnded()
	if err != nil {
		return nil, 0, err
	}
	sizes := map[int]int64{}
	for _, name := range names {
		number, ok := ParseNumber(strings.TrimSuffix(name, ".script"))
		info, err := os.Lstat(d.root.Path(spool.DirEnded, name))
		if !ok || err != nil || !info.Mode().IsRegular() {
			d.setAside(d.root.Path(spool.DirEnded, name), errors.New("not the name of a record or script"))
			continue
		}
		sizes[number] += info.Size()
	}
	for _, number := range slices.Sorted(maps.Keys(sizes)) {
		j, err := d.readEnded(number)
		switch {
		case errors.Is(err, fs.ErrNotExist): // the script went last
			_ = atomicfile.Remove(d.root.Path(spool.DirEnded, scriptName(number)))
			continue
		case err != nil:
			d.setAside(d.root.Path(spool.DirEnded, recordName(number)), err)
			continue
		}
		last = number
		e.enter(j)
		e.keep(number, sizes[number])
	}
	return e, last, nil
}

// readEnded reads the record of a job that is over.
func (d *disk) readEnded(number int) (*Job, error) {
	data, err := d.readRecord(number)
	if err != nil {
		return nil, err
	}
	j, _, err := decode(data)
	if err == nil && j.Number != number {
		err = fmt.Errorf("the header says job %d", j.Number)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read record of job %d: %w", number, err)
	}
	// The record does not say any more what became of the last task.
	for _, t := range j.tasksInOrder() {
		if t.End == nil {
			continue // nothing of the kind is over
		}
		if why := t.End.failure(); why != "" {
			j.fail(t.Number, why)
		}
	}
	j.dropped = true
	return j, nil
}

// get returns a job that is over and is kept, as it was at its end; nil: it is
// not. It is nobody else's, and not one of the Store's.
func (e *ended) get(number int) (*Job, error) {
	e.mu.Lock()
	known := e.jobs[number] != nil
	e.mu.Unlock()
	if !known {
		return nil, nil
	}
	j, err := e.readEnded(number)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return j, err
}

// Failed returns the tasks of a job that are over and did not succeed, as the list
// that is Only of a request; empty: there are none.
func (s *jobSet) Failed(j *Job) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.failed.format()
}
