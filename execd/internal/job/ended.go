package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// ended knows the jobs that are over and whose records and scripts are kept in
// ended_jobs, so that they can be submitted again: a number and a few words for
// each, and no more of them than limit and maxEndedBytes allow. It is guarded by
// the Store's mutex.
type ended struct {
	limit int
	bytes int64
	jobs  map[int]*endedJob
	users map[int]*endedUser
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
	case e.Failed != 0 && e.Reason != "":
		return ": " + e.Reason
	case e.Failed != 0:
		return fmt.Sprintf(": failed %d", e.Failed)
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
	j.failed.Add(number)
	if j.failure == "" {
		j.failure = why
	}
}

// enter takes in a job that is over.
func (e *ended) enter(j *Job) {
	if j.Interactive || j.UnderClaim() {
		return // nobody could submit it again
	}
	if e.jobs == nil {
		e.jobs, e.users = map[int]*endedJob{}, map[int]*endedUser{}
	}
	if e.jobs[j.Number] == nil {
		e.jobs[j.Number] = &endedJob{uid: j.UID, failed: j.failed.Len() > 0}
	}
}

// keep takes note that the files of a job are in ended_jobs.
func (e *ended) keep(number int, size int64) {
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

// forget drops a job.
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

// surplus takes out the jobs that are too many and returns their numbers. Who has
// most loses first, and of his those that succeeded: nobody's jobs go because of
// what another has submitted since.
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

// KeepEnded sets how many jobs are kept after their end, to be submitted again.
func (s *Store) KeepEnded(limit int) {
	s.mu.Lock()
	s.ended.limit = limit
	s.mu.Unlock()
	s.thin()
}

// thin removes the files of jobs that are too many in ended_jobs.
func (s *Store) thin() {
	s.mu.Lock()
	numbers := s.ended.surplus()
	s.mu.Unlock()
	for _, number := range numbers {
		for _, name := range []string{recordName(number), scriptName(number)} {
			if err := atomicfile.Remove(s.root.Path(spool.DirEnded, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.log.Warn(fmt.Sprintf("job %d: %v", number, err))
			}
		}
	}
}

// putAway moves the files of a job that is over to ended_jobs. Who looks for one
// looks in the old place first, so that he finds it at any time.
func (s *Store) putAway(j *Job) {
	s.mu.Lock()
	keep := s.ended.limit > 0 && s.ended.jobs[j.Number] != nil
	if !keep {
		s.ended.forget(j.Number)
	}
	s.mu.Unlock()
	record := s.path(j.Number)
	if !keep {
		if err := atomicfile.Remove(record); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn(fmt.Sprintf("job %d: cannot remove its record: %v", j.Number, err))
		}
		if j.HasScript {
			s.removeScript(j.Number)
		}
		return
	}
	var size int64
	move := func(from, name string) error {
		to := s.root.Path(spool.DirEnded, name)
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
		err = move(s.script(j.Number), scriptName(j.Number))
	}
	if err == nil {
		s.shorten(j)
		err = move(record, recordName(j.Number))
	}
	if err != nil {
		s.log.Warn(fmt.Sprintf("job %d: cannot put its record away: %v", j.Number, err))
		return // the next start tries again
	}
	s.mu.Lock()
	s.ended.keep(j.Number, size)
	s.mu.Unlock()
	s.thin()
}

// maxEndedRecord is the size in bytes of a record above which it is made anew
// before it is put away: of a large array it has a line for each task.
const maxEndedRecord = 64 << 10

// shorten makes a record anew if it is long.
func (s *Store) shorten(j *Job) {
	j.file.Lock()
	defer j.file.Unlock()
	if j.size > maxEndedRecord {
		s.compact(j)
	}
}

// loadEnded learns which jobs are in ended_jobs. Open calls it first.
func (s *Store) loadEnded() error {
	names, err := s.root.ListEnded()
	if err != nil {
		return err
	}
	sizes := map[int]int64{}
	for _, name := range names {
		number, ok := ParseNumber(strings.TrimSuffix(name, ".script"))
		info, err := os.Lstat(s.root.Path(spool.DirEnded, name))
		if !ok || err != nil || !info.Mode().IsRegular() {
			s.setAside(s.root.Path(spool.DirEnded, name), errors.New("not the name of a record or script"))
			continue
		}
		sizes[number] += info.Size()
	}
	numbers := make([]int, 0, len(sizes))
	for number := range sizes {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	for _, number := range numbers {
		j, err := s.readEnded(number)
		switch {
		case errors.Is(err, fs.ErrNotExist): // the script went last
			_ = atomicfile.Remove(s.root.Path(spool.DirEnded, scriptName(number)))
			continue
		case err != nil:
			s.setAside(s.root.Path(spool.DirEnded, recordName(number)), err)
			continue
		}
		s.next = max(s.next, number)
		s.ended.enter(j)
		s.ended.keep(number, sizes[number])
	}
	return nil
}

// readEnded reads the record of a job that is over.
func (s *Store) readEnded(number int) (*Job, error) {
	data, err := s.readRecord(number)
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
	// What is done with the last task is not in the record any more.
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

// Ended returns a job that is over and is kept, as it was at its end; nil: it is
// not. It is nobody else's, and not one of the Store's.
func (s *Store) Ended(number int) (*Job, error) {
	s.mu.Lock()
	known := s.ended.jobs[number] != nil
	s.mu.Unlock()
	if !known {
		return nil, nil
	}
	j, err := s.readEnded(number)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return j, err
}

// Failed returns the tasks of a job that are over and did not succeed, as the list
// that is Only of a request; empty: there are none.
func (s *Store) Failed(j *Job) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.failed.format()
}

// Only returns those of a range of tasks that a list of ranges names, in the form
// of api.SubmitRequest.Only, and how many there are. The ranges may overlap, and
// stand in any order.
func Only(list string, of api.Tasks) (only string, n int, err error) {
	var runs []run
	add := func(i, j int) error {
		if runs = append(runs, run{i, j}); len(runs) > maxRanges {
			return fmt.Errorf("more than %d ranges of tasks are too many", maxRanges)
		}
		return nil
	}
	set := NoTasks(of)
	for word := range strings.SplitSeq(list, ",") {
		t, err := api.ParseTasks(word)
		if err != nil {
			return "", 0, err
		}
		t.Last -= (t.Last - t.First) % t.Step
		low, ok1 := set.index(t.First)
		high, ok2 := set.index(t.Last)
		if !ok1 || !ok2 || t.First < t.Last && t.Step%of.Step != 0 {
			return "", 0, fmt.Errorf("%s are no tasks of %v", word, of)
		}
		if t.First == t.Last || t.Step == of.Step {
			err = add(low, high)
		} else {
			for i := low; i <= high && err == nil; i += t.Step / of.Step {
				err = add(i, i)
			}
		}
		if err != nil {
			return "", 0, err
		}
	}
	slices.SortFunc(runs, func(a, b run) int { return a.low - b.low })
	for _, r := range runs {
		if last := len(set.runs) - 1; last >= 0 && r.low <= set.runs[last].high+1 {
			set.runs[last].high = max(set.runs[last].high, r.high)
			continue
		}
		set.runs = append(set.runs, r)
	}
	for _, r := range set.runs {
		set.n += r.high - r.low + 1
	}
	if set.n == of.Count() {
		return "", set.n, nil
	}
	return set.format(), set.n, nil
}

// maxRanges bounds the ranges of tasks of a job that a user lists.
const maxRanges = 10000
