package job

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// Pending returns the jobs that have something to start, in no order.
func (s *jobSet) Pending() []*Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	var jobs []*Job
	for _, j := range s.jobs {
		if j.pending.Len() > 0 {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// Turn returns the time from which a job's turn is counted: when it was
// submitted, or last put back.
func (s *jobSet) Turn(j *Job) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.requeued.After(j.Submitted) {
		return j.requeued
	}
	return j.Submitted
}

// Take makes the lowest task of a job that may start a started one, in memory;
// nil when there is none. Begin makes it durable; until then nobody else can
// start it.
func (s *Store) Take(j *Job, start Start, now time.Time) *Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	terms := j.Terms()
	at, _ := j.earliest()
	switch {
	case s.jobs[j.Number] != j || terms.MaxRun > 0 && j.started >= terms.MaxRun || at.After(now):
		return nil
	case j.stale: // the start may not be for what it asks for now
		return nil
	}
	set := s.graph.free(j)
	if set.Len() == 0 {
		return nil
	}
	number := set.Min()
	if err := j.apply(number, &line{Event: EventStarted, Time: now, Start: &start}); err != nil {
		s.log.Error("internal error: " + err.Error())
		return nil
	}
	return j.active[number]
}

// Carve notes the slots that were carved for a task which was taken, before Begin.
func (s *jobSet) Carve(t *Task, carved []Carved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Start.Carved = carved
}

// Match notes what references of a task which was taken were expanded to, before Begin.
func (s *jobSet) Match(t *Task, expanded []api.Text) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Start.MatchExp = expanded
}

// Matched returns what they were expanded to.
func (s *jobSet) Matched(t *Task) []api.Text {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.Start.MatchExp
}

// Begin records that a task was taken to be started.
func (s *Store) Begin(t *Task) error {
	start := t.Start
	err := s.commit(t.Job, durable, nil, &line{
		Event: EventStarted, Tasks: strconv.Itoa(t.Number), Time: t.Started, Run: t.Run, Start: &start,
	})
	if err == nil {
		close(t.begun)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.became(t.Job)
		if t.Job.startAwaited {
			t.Job.wakeWaiting()
		}
	}
	return err
}

// Untake gives back a task of which Begin has failed.
func (s *Store) Untake(t *Task) {
	s.mu.Lock()
	err := t.Job.apply(t.Number, &line{Event: EventWithdrawn})
	t.Job.wakeWaiting()
	s.mu.Unlock()
	close(t.begun)
	if err != nil {
		s.log.Error("internal error: " + err.Error())
	}
	s.hint(t.Job)
}

// Withdraw gives back a task that was recorded as started and was not. One that
// somebody has deleted meanwhile does not wait for a second start.
func (s *Store) Withdraw(t *Task) error {
	if s.Unwanted(t) {
		return s.end(t)
	}
	j := t.Job
	err := s.commit(j, durable, j.wakeWaiting, &line{Event: EventWithdrawn, Tasks: strconv.Itoa(t.Number), Time: time.Now(), Run: t.Run})
	if err != nil {
		return err
	}
	s.hint(j)
	return nil
}

// end records that a task, which was recorded as started and was not, is over.
func (s *Store) end(t *Task) error {
	j, number, now := t.Job, strconv.Itoa(t.Number), time.Now()
	over, left := false, s.leaving(j)
	lines := []*line{
		{Event: EventWithdrawn, Tasks: number, Time: now, Run: t.Run},
		{Event: EventDeleted, Tasks: number, Time: now},
	}
	err := s.commit(j, durable, func() {
		s.finished.ran(t)
		if over = j.over() && s.jobs[j.Number] == j; over {
			s.drop(j)
		}
	}, lines...)
	if err != nil {
		return err
	}
	gone := NoTasks(j.Tasks)
	gone.Add(t.Number)
	by := "execd"
	if want := s.Want(t); want != nil && want.By != "" {
		by = want.By
	}
	left(gone, "deleted by "+by)
	if over {
		s.remove(j)
	}
	return nil
}

// Fail puts a task in error that was recorded as started and could not be, for
// a reason that a second try would meet again. One that was deleted meanwhile is
// gone instead.
func (s *Store) Fail(t *Task, reason string) error {
	if s.Unwanted(t) {
		return s.Withdraw(t)
	}
	tasks, now := strconv.Itoa(t.Number), time.Now()
	return s.commit(t.Job, durable, t.Job.wakeWaiting,
		&line{Event: EventWithdrawn, Tasks: tasks, Time: now, Run: t.Run},
		&line{Event: EventErrored, Tasks: tasks, Time: now, Run: t.Run, Reason: reason})
}

// Exceed records that a running task has exceeded a limit and is to be killed. A
// wish that is recorded already stays.
func (s *Store) Exceed(t *Task, reason string) error {
	s.mu.Lock()
	wanted := t.Want != nil || t.State != Started
	s.mu.Unlock()
	if wanted {
		return nil
	}
	return s.commit(t.Job, durable, nil, &line{
		Event: EventWant, Tasks: strconv.Itoa(t.Number), Time: time.Now(), Run: t.Run,
		Want: &Want{Signal: sigkill, Reason: reason},
	})
}

// Evict records that a running task is to leave its slot: with Requeue to run
// again, else for good. It reports whether that is news: a task that is being killed
// already is not asked again, unless it was only to run elsewhere. A task that was
// asked to leave and is killed now still leaves for the first reason.
func (s *Store) Evict(t *Task, want Want) (bool, error) {
	<-t.begun // a want must stand behind the start
	if old := s.Want(t); old != nil && old.Slot {
		signal := want.Signal
		want = *old
		want.Signal, want.Until, want.UntilUp = signal, time.Time{}, 0
	}
	news := false
	may := func() bool {
		news = t.State == Started && (t.Want == nil || (t.Want.Requeue || t.Want.Slot) && t.Want.Signal != want.Signal)
		return news
	}
	err := s.commitIf(t.Job, may, durable, nil, &line{
		Event: EventWant, Tasks: strconv.Itoa(t.Number), Time: time.Now(), Run: t.Run, Want: &want,
	})
	if err != nil {
		// It leaves all the same. Its end is recorded when there is room again, and must
		// not lack what was to become of it.
		s.mu.Lock()
		defer s.mu.Unlock()
		if may() {
			t.Want = &want
		}
	}
	return news, err
}

// Ending is the end of one task's run, on its way into record and accounting.
type Ending struct {
	Task *Task
	End  *End
	Time time.Time
}

// Over records the outcome of a run whose output is still to be transferred. From here on
// the task counts as one that runs no more, and no crash has it run again.
func (s *Store) Over(t *Task, e *End) error {
	j := t.Job
	err := s.commit(j, durable, nil, &line{Event: EventOver, Tasks: strconv.Itoa(t.Number), Time: time.Now(), Run: t.Run, End: e})
	if err == nil && j.Tasks.IsArray() { // -tc or max_aj_instances may have held back others
		s.hint(j)
	}
	return err
}

// Stick records that the output of a task is not delivered until somebody has looked. One
// whose transfer somebody has ended meanwhile is left as it is.
func (s *Store) Stick(t *Task, why Stuck) error {
	may := func() bool { return t.State == Over && t.Want == t.WantBefore }
	return s.commitIf(t.Job, may, durable, t.Job.wakeWaiting, &line{Event: EventStuck, Tasks: strconv.Itoa(t.Number), Time: time.Now(), Run: t.Run, Stuck: &why})
}

// Unstick records that the output of a task that was stuck is tried to be delivered again.
func (s *Store) Unstick(t *Task) error {
	may := func() bool { return t.Stuck != nil }
	return s.commitIf(t.Job, may, durable, nil, &line{Event: EventUnstuck, Tasks: strconv.Itoa(t.Number), Time: time.Now(), Run: t.Run})
}

// GiveUp records that the output of a task which is stuck is not wanted any more, and
// reports whether it was stuck still.
func (s *Store) GiveUp(t *Task, want Want) (given bool, err error) {
	may := func() bool {
		given = t.State == Over && t.Stuck != nil && t.Want == t.WantBefore
		return given
	}
	err = s.commitIf(t.Job, may, durable, nil, &line{Event: EventWant, Tasks: strconv.Itoa(t.Number), Time: time.Now(), Run: t.Run, Want: &want})
	return given, err
}

// DropOutput records that the output of a task which is over is not wanted any more, unless
// somebody has said so.
func (s *Store) DropOutput(t *Task, want Want) error {
	may := func() bool { return t.State == Over && t.Want == t.WantBefore }
	return s.commitIf(t.Job, may, durable, nil, &line{Event: EventWant, Tasks: strconv.Itoa(t.Number), Time: time.Now(), Run: t.Run, Want: &want})
}

// NotDelivered returns what somebody has asked of a task since it was over, which ends the
// transfer of its output; nil: nobody has.
func (s *jobSet) NotDelivered(t *Task) *Want {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.State != Over || t.Want == t.WantBefore {
		return nil
	}
	return t.Want
}

// Stuck returns why the output of a task is not delivered until somebody has looked, or nil.
func (s *jobSet) Stuck(t *Task) *Stuck {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.Stuck
}

// End records the ends of several runs with shared syncs. The error of each is
// in the slice that is returned.
func (s *Store) End(ends []Ending) []error {
	errs := make([]error, len(ends))
	byJob := map[*Job][]int{}
	for i, e := range ends {
		byJob[e.Task.Job] = append(byJob[e.Task.Job], i)
	}
	var wg sync.WaitGroup
	for j, indexes := range byJob {
		wg.Go(func() {
			lines := make([]*line, len(indexes))
			for k, i := range indexes {
				e := ends[i]
				lines[k] = &line{Event: EventEnded, Tasks: strconv.Itoa(e.Task.Number), Time: e.Time, Run: e.Task.Run, End: e.End}
			}
			err := s.commit(j, durable, nil, lines...)
			s.mu.Lock()
			for _, i := range indexes {
				errs[i] = err
				ends[i].Task.recorded = err == nil
				j.prepared()
			}
			s.mu.Unlock()
			if j.Tasks.IsArray() { // -tc or max_aj_instances may have held back others
				s.hint(j)
			}
		})
	}
	wg.Wait()
	return errs
}

// Fate returns what becomes of a task that has ended, by its End and by what somebody wants
// of it.
func (s *Store) Fate(t *Task) Fate {
	switch fate, want := t.End.Fate, s.Want(t); {
	case want != nil && !want.Requeue:
		return FateDone // deleted since it has ended
	case want != nil && want.Error != "" && fate == FateRequeue:
		return FateError
	default:
		return fate
	}
}

// Settle records what becomes of a task whose end is accounted and whose run
// is cleaned, by the fate in its End. The last task takes the record with it.
// It needs no sync: when the line is lost, the accounting step is repeated and
// finds its own line.
func (s *Store) Settle(t *Task) error {
	l := &line{Tasks: strconv.Itoa(t.Number), Time: time.Now(), Run: t.Run}
	switch s.Fate(t) {
	case FateRequeue:
		l.Event = EventRequeued
	case FateError:
		l.Event, l.Reason, l.Why = EventErrored, t.End.Reason, t.End.Why
		if want := s.Want(t); want != nil && want.Error != "" {
			l.Reason = want.Error
			if want.Code != 0 {
				l.Why = &Why{want.Code, want.Subcode}
			}
		}
	default:
		l.Event = EventDone
	}
	j := t.Job
	if s.settleLast(j, t, l) {
		s.remove(j)
		return nil
	}
	after := j.forget
	sync, over := durable, false
	switch l.Event {
	case EventDone:
		sync = lazy
		after = func() {
			j.forget()
			s.finished.ran(t)
			if t.End.Fate != FateDone { // it was to run again, and does not
				j.wakeWaiting()
			}
			// Others may have been settled since settleLast has looked.
			if over = j.over() && s.jobs[j.Number] == j; over {
				s.drop(j)
			}
		}
	case EventErrored:
		after = j.wakeWaiting
	case EventRequeued:
		if spool.HostFailed(t.End.Failed) {
			after = func() {
				j.forget()
				own := j.own()
				own.notBefore, own.delayed = l.Time.Add(delayOf(t.Run)), t.End.Reason
			}
		}
	}
	if err := s.commit(j, sync, after, l); err != nil {
		return err
	}
	if over {
		s.remove(j)
	}
	if l.Event == EventRequeued {
		s.hint(j)
	}
	s.taskOver(j)
	return nil
}

// settleLast settles a task in memory alone when nothing else of its job is
// left, and reports whether it was so: then the record goes.
func (s *Store) settleLast(j *Job, t *Task, l *line) bool {
	j.file.Lock()
	defer j.file.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.Event != EventDone || j.pending.Len() > 0 || len(j.active) != 1 || j.active[t.Number] != t {
		return false
	}
	if err := j.apply(t.Number, l); err != nil {
		s.log.Error("internal error: " + err.Error())
		return false
	}
	s.finished.ran(t)
	s.drop(j)
	s.unboxed(j)
	return true
}

// Accounted tells those who wait that the end of a task is in the accounting
// file.
func (s *jobSet) Accounted(t *Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.counted = true
	t.Job.wakeWaiting()
}

// wakeWaiting tells those who wait that something of the job has changed. The
// Store's mutex is held.
func (j *Job) wakeWaiting() {
	if j.changed != nil {
		close(j.changed)
		j.own().changed = nil
	}
}

// How a commit ends.
const (
	durable = true  // when it returns the lines are on disk
	lazy    = false // they will be, when the kernel finds time
)

// commit appends lines to the record of a job and applies them to the job in
// memory, one commit after the other, so that both have them in the same
// order; then calls after with the Store's mutex held. What Take and Delete
// have done to memory before is met again as a repetition. After a failed sync
// nobody knows what is on disk: the caller repeats the event, and the record
// may hold it twice.
func (s *Store) commit(j *Job, sync bool, after func(), lines ...*line) error {
	return s.commitIf(j, nil, sync, after, lines...)
}

// commitIf is a commit that does nothing, nor calls after, when may, called with
// the Store's mutex held, does not allow it.
func (s *Store) commitIf(j *Job, may func() bool, sync bool, after func(), lines ...*line) error {
	var data []byte
	for _, l := range lines {
		b, err := encode(l)
		if err != nil {
			return err
		}
		data = append(data, b...)
	}
	wrap := func(err error) error { return fmt.Errorf("cannot write record of job %d: %w", j.Number, err) }
	f, err := s.appendAndApply(j, may, data, after, lines)
	if err != nil {
		return wrap(err)
	}
	if f == nil {
		return nil
	}
	if sync {
		err = s.group.Sync(f)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return wrap(err)
	}
	return nil
}

// appendAndApply is the part of commit that is done by one at a time. It
// returns the file, to be synced; nil when the job is over, and the record with
// it, or when it may not: there is nothing to add.
func (s *Store) appendAndApply(j *Job, may func() bool, data []byte, after func(), lines []*line) (*os.File, error) {
	j.file.Lock()
	defer j.file.Unlock()
	s.mu.Lock()
	nothing := j.dropped || may != nil && !may()
	s.mu.Unlock()
	if nothing {
		return nil, nil
	}
	if j.size > s.compactAbove && j.size > 4*j.base {
		s.compact(j)
	}
	request := s.noticed(j, lines)
	f, err := atomicfile.OpenAppend(s.path(j.Number), 0o600)
	if err != nil {
		return nil, err
	}
	if err := atomicfile.AppendTo(f, data); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	j.size += int64(len(data))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range lines {
		var held Tasks
		if request != nil {
			held = j.heldWaiting()
		}
		if err := j.replay(l); err != nil {
			s.log.Error(fmt.Sprintf("internal error: job %d: %v", j.Number, err))
		} else if request != nil {
			s.notices(j, request, l, held)
		}
	}
	s.waits(j, lines)
	if after != nil {
		after()
	}
	s.unboxed(j)
	s.became(j)
	return f, nil
}

// defaultCompactAbove is the size in bytes above which a record is made anew when it
// has become four times as large as it was when it was new: a large array
// appends some hundred bytes for each task, and a start of execd reads all.
const defaultCompactAbove = 4 << 20

// compact replaces a record by one that says the same in few lines. j.file is
// held, so that memory has all that the file has. A failure is no harm: the
// old record is good.
func (s *Store) compact(j *Job) {
	j.base = j.size // not again for a while, whatever happens
	data, err := s.compacted(j)
	if err == nil {
		err = atomicfile.WriteDurable(s.path(j.Number), data, 0o600)
	}
	if err != nil {
		s.log.Warn(fmt.Sprintf("job %d: cannot compact its record: %v", j.Number, err))
		return
	}
	j.size, j.base = int64(len(data)), int64(len(data))
}

// compacted returns the short form of a record.
func (s *Store) compacted(j *Job) ([]byte, error) {
	s.mu.Lock()
	altered, lines := j.alterations > 0, j.lines(time.Now())
	s.mu.Unlock()
	h, err := s.readRequest(j.Number, altered)
	if err != nil {
		return nil, err
	}
	data, err := encode(h)
	if err != nil {
		return nil, err
	}
	for _, l := range lines {
		b, err := encode(l)
		if err != nil {
			return nil, err
		}
		data = append(data, b...)
	}
	return data, nil
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
