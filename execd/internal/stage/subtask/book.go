package subtask

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

// book is the file tasks in the directory of a run: what must be known of
// tasks whose own directories are gone.
type book struct {
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

// writeBook writes down the book of a run. mu is held.
func (ts *Tasks) writeBook() error {
	b, err := json.Marshal(&ts.book)
	if err != nil {
		return fmt.Errorf("internal error: cannot encode the tasks of job %v: %w", ts.of, err)
	}
	return ts.host.Launcher.Root.Active(ts.of.RunID().ID()).Write(spool.FileTasks, append(b, '\n'))
}

// readBook reads what an earlier execd has written. mu is held.
func (ts *Tasks) readBook() {
	b, err := ts.host.Launcher.Root.Active(ts.of.RunID().ID()).Read(spool.FileTasks)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(b, &ts.book)
	}
	if err != nil {
		ts.host.Log.Warn(fmt.Sprintf("job %v: cannot read what its tasks have used: %v", ts.of, err))
	}
}

// line is the file accounting in the directory of a task: the line that is
// to stand in the accounting file, and from where on it is to be looked for.
type line struct {
	Line  string    `json:"line"`
	Place job.Place `json:"place"`
}

// account writes the line of a task, once, unless its PE wants none.
func (ts *Tasks) account(s *task, out *spool.Outcome, total *api.Usage, e *job.End) error {
	d := ts.host.Launcher.Root.Active(s.run.ID())
	b, err := d.Read(spool.FileAccounting)
	var written line
	again := err == nil && json.Unmarshal(b, &written) == nil
	if !again {
		if ts.inSummary(s) {
			return nil
		}
		rec := ts.record(s, out, total, e)
		written = line{outcome.Line(rec, ts.host.Log), ts.host.Book.Now()}
		if b, err = json.Marshal(&written); err != nil {
			return fmt.Errorf("internal error: cannot encode the accounting of a task: %w", err)
		}
		if err := d.WriteDurable(spool.FileAccounting, append(b, '\n')); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err // without the directory the line is written all the same
		}
	}
	return ts.host.Book.Add(written.Line, written.Place, again)
}

// inSummary reports whether a task is accounted with its job.
func (ts *Tasks) inSummary(s *task) bool {
	if spool.IsInto(s.run.PETask) || ts.of.Start.Grant == nil {
		return false
	}
	pe := ts.host.Config().PEs[ts.of.Start.Grant.PE]
	return pe != nil && pe.AccountingTotal
}

// record is what is accounted of a task.
func (ts *Tasks) record(s *task, out *spool.Outcome, total *api.Usage, e *job.End) accounting.Record {
	rec := outcome.Record(ts.of, e, ts.host.Name, ts.host.Config().Queue(ts.of.Start.Queue))
	rec.PETaskID, rec.QName = s.run.PETask, s.queue
	if !spool.IsInto(s.run.PETask) {
		rec.JobName = "petask"
	}
	if out.Usage != nil {
		outcome.Fill(&rec, out.Usage, total)
	}
	return rec
}

// count adds what a task has used to what its run has. mu is held.
func (ts *Tasks) count(s *task, out *spool.Outcome, total *api.Usage, e *job.End) error {
	b := ts.book
	if b.Counted == s.run.PETask {
		return nil
	}
	b.Counted = s.run.PETask
	b.Used.CPU, b.Used.Mem, b.Used.IO = b.Used.CPU+total.CPU, b.Used.Mem+total.Mem, b.Used.IO+total.IO
	if d := ts.host.Launcher.Root.Active(s.run.ID()); ts.inSummary(s) {
		if own, err := d.Has(spool.FileAccounting); err == nil && !own {
			rec := ts.record(s, out, total, e)
			outcome.AddSum(&rec, b.Sum)
			b.Sum = outcome.Line(rec, ts.host.Log)
		}
	}
	ts.book, b = b, ts.book
	err := ts.writeBook()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		ts.book = b
		return err
	}
	return nil
}

// AddSum adds to a record what the tasks without lines of their own have used.
func (ts *Tasks) AddSum(rec *accounting.Record) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	outcome.AddSum(rec, ts.book.Sum)
}
