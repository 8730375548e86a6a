package stage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/stage/outcome"
	"paddock/spool"
)

// taskBook is the file tasks in the directory of a run: what must be known of
// tasks whose own directories are gone.
type taskBook struct {
	Next int `json:"next,omitempty"` // the last number of a task of a parallel job
	Into int `json:"into,omitempty"` // and of one that people have started
	// Counted is the last task that Used and Sum have: its directory may still
	// be there.
	Counted string        `json:"counted,omitempty"`
	Used    schedule.Used `json:"used"`
	// Sum is what tasks have used that have no line of their own, as if it were
	// one; empty: there are none.
	Sum string `json:"sum,omitempty"`
}

// writeBook writes down the book of a run. tasks.mu is held.
func (r *Runner) writeBook(l *life) error {
	b, err := json.Marshal(&l.tasks.book)
	if err != nil {
		return fmt.Errorf("internal error: cannot encode the tasks of job %v: %w", l.task, err)
	}
	return r.Launcher.Root.Active(l.task.RunID().ID()).Write(spool.FileTasks, append(b, '\n'))
}

// readBook reads what an earlier execd has written. tasks.mu is held.
func (r *Runner) readBook(l *life) {
	b, err := r.Launcher.Root.Active(l.task.RunID().ID()).Read(spool.FileTasks)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(b, &l.tasks.book)
	}
	if err != nil {
		r.Log.Warn(fmt.Sprintf("job %v: cannot read what its tasks have used: %v", l.task, err))
	}
}

// taskLine is the file accounting in the directory of a task: the line that is
// to stand in the accounting file, and from where on it is to be looked for.
type taskLine struct {
	Line  string    `json:"line"`
	Place job.Place `json:"place"`
}

// accountTask writes the line of a task, once, unless its PE wants none.
func (r *Runner) accountTask(l *life, s *subtask, out *spool.Outcome, total *api.Usage, e *job.End) error {
	d := r.Launcher.Root.Active(s.run.ID())
	b, err := d.Read(spool.FileAccounting)
	var written taskLine
	again := err == nil && json.Unmarshal(b, &written) == nil
	if !again {
		if r.inSummary(l, s) {
			return nil
		}
		rec := r.taskRecord(l, s, out, total, e)
		written = taskLine{outcome.Line(rec, r.Log), r.Book.Now()}
		if b, err = json.Marshal(&written); err != nil {
			return fmt.Errorf("internal error: cannot encode the accounting of a task: %w", err)
		}
		if err := d.WriteDurable(spool.FileAccounting, append(b, '\n')); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err // without the directory the line is written all the same
		}
	}
	return r.Book.Add(written.Line, written.Place, again)
}

// inSummary reports whether a task is accounted with its job.
func (r *Runner) inSummary(l *life, s *subtask) bool {
	if spool.IsInto(s.run.PETask) || l.task.Start.Grant == nil {
		return false
	}
	pe := r.Config().PEs[l.task.Start.Grant.PE]
	return pe != nil && pe.AccountingTotal
}

// taskRecord is what is accounted of a task.
func (r *Runner) taskRecord(l *life, s *subtask, out *spool.Outcome, total *api.Usage, e *job.End) accounting.Record {
	rec := outcome.Record(l.task, e, r.Host, r.Config().Queue(l.task.Start.Queue))
	rec.PETaskID, rec.QName = s.run.PETask, s.queue
	if !spool.IsInto(s.run.PETask) {
		rec.JobName = "petask"
	}
	if out.Usage != nil {
		outcome.Fill(&rec, out.Usage, total)
	}
	return rec
}

// countTask adds what a task has used to what its run has. tasks.mu is held.
func (r *Runner) countTask(l *life, s *subtask, out *spool.Outcome, total *api.Usage, e *job.End) error {
	b := l.tasks.book
	if b.Counted == s.run.PETask {
		return nil
	}
	b.Counted = s.run.PETask
	b.Used.CPU, b.Used.Mem, b.Used.IO = b.Used.CPU+total.CPU, b.Used.Mem+total.Mem, b.Used.IO+total.IO
	if d := r.Launcher.Root.Active(s.run.ID()); r.inSummary(l, s) {
		if own, err := d.Has(spool.FileAccounting); err == nil && !own {
			rec := r.taskRecord(l, s, out, total, e)
			outcome.AddSum(&rec, b.Sum)
			b.Sum = outcome.Line(rec, r.Log)
		}
	}
	l.tasks.book, b = b, l.tasks.book
	err := r.writeBook(l)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.tasks.book = b
		return err
	}
	return nil
}

// addSum adds to a record what the tasks without lines of their own have used.
func (ts *tasks) addSum(rec *accounting.Record) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	outcome.AddSum(rec, ts.book.Sum)
}
