// Package job keeps the record of every job from its acceptance until it is removed:
// state.go has the table of what a task may become and by which event, record.go the form
// of a record on disk, and the Store is the only writer of records.
// Memory is a cache of the records. Other packages of execd import it.
package job

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"

	"paddock/execd/api"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// Store has the jobs of one spool, in memory and on disk. Its methods may be called from
// several goroutines; those that write return when what they wrote is on disk.
type Store struct {
	jobSet
	*disk
	ended *ended // the jobs that are over

	compactAbove int64 // see defaultCompactAbove

	onWork func(*Job) // guarded by mu; told when a job has something to start
	// onDelete is told before tasks are deleted that wait.
	onDelete func(*Job) (undo func()) // guarded by mu
	// onLeave is told before tasks leave the queue that did not run.
	onLeave  func(*Job) (left func(tasks Tasks, why string)) // guarded by mu; nil: nobody is told
	onNotice func(*Job, *api.SubmitRequest, Notice)          // guarded by mu; nil: nobody is told
	onUnbox  func(*Sandbox)                                  // guarded by mu; nil: nobody is told
	onWait   func(*Job)                                      // guarded by mu; nil: nobody is told

	predecessors sync.Mutex // held while those of a job are altered
}

// ParseNumber reads the name of a record or of a script: the number of its job.
func ParseNumber(name string) (int, bool) {
	n, err := strconv.Atoi(name)
	return n, err == nil && n > 0 && strconv.Itoa(n) == name
}

// Open reads all records. One that makes no sense is moved to corrupt/ with a
// line in the log, and the others carry on. A record of another format stops
// execd: it was written by another version, and is in order. So does one that the
// system cannot read: it may be in order.
func Open(root *spool.Root, chownScripts bool, log *slog.Logger) (*Store, error) {
	s := &Store{disk: &disk{root: root, log: log, chown: chownScripts}, jobSet: newJobSet(), compactAbove: defaultCompactAbove}
	names, err := root.ListJobs()
	if err != nil {
		return nil, err
	}
	if s.ended, s.next, err = openEnded(s.disk); err != nil {
		return nil, err
	}
	var numbers []int
	for _, name := range names {
		number, ok := ParseNumber(name)
		if !ok {
			s.setAside(root.Path(spool.DirJobs, name), errors.New("not the name of a record"))
			continue
		}
		s.next = max(s.next, number)
		numbers = append(numbers, number)
	}
	if err := s.loadAll(numbers); err != nil {
		return nil, err
	}
	last, err := readSeqNum(root)
	switch {
	case spool.Unread(err):
		return nil, fmt.Errorf("cannot read the last job number: %w", err)
	case err != nil:
		s.setAside(root.Path(spool.FileSeqNum), err)
	}
	s.next = max(s.next, last) + 1
	var over []*Job
	for _, j := range s.jobs {
		s.graph.link(j)
		if j.over() {
			over = append(over, j)
		}
	}
	// All that wait for them must be there to hear of it.
	for _, j := range over {
		s.drop(j)
		s.remove(j)
	}
	// A crash may have come between the record of a job and what outcome adds to it.
	for _, j := range s.jobs {
		if err := s.outcome(j, s.graph.gone(j, j.links.Success)); err != nil {
			return nil, err
		}
	}
	return s, s.sweep(s.jobs)
}

// load takes over a record that was read.
func (s *Store) load(l *loaded) error {
	j, number, err := l.job, l.number, l.err
	file := s.path(number)
	switch {
	case errors.Is(err, spool.ErrFormat), spool.Unread(err):
		return fmt.Errorf("cannot read record of job %d: %w", number, err)
	case err == nil && j.Number != number:
		s.setAside(file, fmt.Errorf("the header says job %d", j.Number))
		return nil
	case j == nil:
		s.setAside(file, err)
		return nil
	case err != nil:
		return s.repair(number, l.data, err)
	}
	if l.whole < l.size {
		// What comes next must not be glued to half a line.
		if err := os.Truncate(file, int64(l.whole)); err != nil {
			return fmt.Errorf("cannot repair record of job %d: %w", number, err)
		}
	}
	s.adopt(j, int64(l.whole))
	return nil
}

// adopt takes over a job whose record was read. Open calls it before anybody
// else can.
func (s *Store) adopt(j *Job, size int64) {
	for _, t := range j.active {
		t.recorded = t.State == Ended
		close(t.begun)
	}
	j.size, j.base = size, s.compactAbove/4
	s.jobs[j.Number] = j
	s.byUser[j.UID]++
}

// repair makes a new record of a job whose events are damaged from some line
// on. The old file goes to corrupt/. Nobody knows which of the tasks that look
// pending have run since, so none is started: they wait in error.
func (s *Store) repair(number int, data []byte, cause error) error {
	file := s.path(number)
	kept, err := s.root.SetAside(file)
	if err != nil {
		return fmt.Errorf("cannot set record of job %d aside: %w", number, err)
	}
	s.log.Warn(fmt.Sprintf("job %d: cannot read its record: %v: kept in %s, its tasks wait in error", number, cause, kept))
	out, j, err := rebuilt(data, damaged, kept)
	if err == nil {
		err = atomicfile.WriteDurable(file, out, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot write record of job %d: %w", number, err)
	}
	s.adopt(j, int64(len(out)))
	return nil
}

// goodLines returns the lines of a record up to the first that cannot be
// replayed.
func goodLines(data []byte) []byte {
	good := bytes.IndexByte(data, '\n') + 1
	for end := good; ; {
		i := bytes.IndexByte(data[end:], '\n')
		if i < 0 {
			return data[:good]
		}
		end += i + 1
		if _, _, err := decode(data[:end]); err != nil {
			return data[:good]
		}
		good = end
	}
}

// OnWork sets the function that is called when what a job has to start may have changed. The
// call is a hint, and f must not call back into the Store.
func (s *Store) OnWork(f func(*Job)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onWork = f
}

// hint calls the function of OnWork.
func (s *Store) hint(j *Job) {
	s.mu.Lock()
	f := s.onWork
	s.mu.Unlock()
	if f != nil {
		f(j)
	}
}

// Request returns what is asked for at present, without the script.
func (s *Store) Request(j *Job) (*api.SubmitRequest, error) {
	req, _, err := s.request(j)
	return req, err
}

// ErrAltered says that a job was altered since its turn came.
var ErrAltered = errors.New("the job was altered meanwhile")

// RequestFor returns what was asked for when the task was taken to be started,
// and ErrAltered when that is not known any more.
func (s *Store) RequestFor(t *Task) (*api.SubmitRequest, error) {
	req, alteration, err := s.request(t.Job)
	if err == nil && alteration != t.alteration {
		return nil, ErrAltered
	}
	return req, err
}

// request returns the request of a job, and after how many alterations.
func (s *Store) request(j *Job) (*api.SubmitRequest, int, error) {
	known := func() (*api.SubmitRequest, int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return j.request, j.alterations
	}
	if req, alteration := known(); req != nil {
		return req, alteration, nil
	}
	j.file.Lock() // it is not altered meanwhile
	defer j.file.Unlock()
	_, alteration := known()
	h, err := s.readRequest(j.Number, alteration > 0)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read record of job %d: %w", j.Number, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j.request = &h.Request
	return j.request, alteration, nil
}

// forget drops the request of a job that has nothing to start, so that memory
// holds environments only of jobs that are being started.
func (j *Job) forget() {
	if j.pending.Len() == 0 {
		j.request = nil
	}
}

// drop takes a job out of memory. s.mu is held.
func (s *Store) drop(j *Job) {
	j.dropped = true
	s.became(j)
	j.wakeWaiting()
	s.ended.enter(j)
	delete(s.jobs, j.Number)
	s.graph.unlink(j)
	if s.byUser[j.UID]--; s.byUser[j.UID] <= 0 {
		delete(s.byUser, j.UID)
	}
}

// remove takes the files of a job that is over away, and tells those who waited
// for it. The highest number given out must be known from elsewhere before the
// record goes.
func (s *Store) remove(j *Job) {
	for _, f := range j.freed {
		s.hint(f)
	}
	for _, d := range j.blocked {
		if err := s.commit(d.job, durable, nil, &line{Event: EventUnmet, Unmet: d.unmet}); err != nil {
			s.log.Warn(fmt.Sprintf("job %d: cannot remove its record: %v", j.Number, err))
			return // the next start tells them
		}
	}
	if last := s.Last(); s.Get(last) == nil { // else its record tells the number
		if err := s.keepSequence(last); err != nil {
			// The record stays; the next start removes it.
			s.log.Warn(fmt.Sprintf("job %d: cannot remove its record: %v", j.Number, err))
			return
		}
	}
	if !s.ended.keeps(j.Number) {
		s.discard(j.Number, s.path(j.Number), s.script(j.Number))
		return
	}
	s.shorten(j)
	s.ended.putAway(j)
}
