package subtask

import (
	"log/slog"
	"testing"
	"time"

	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/stage/base"
	"paddock/spool"
)

// tasksOf returns the tasks of a run that has none.
func tasksOf(t *testing.T) *Tasks {
	t.Helper()
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	ts := &Tasks{}
	host := &base.Host{Name: "h", Launcher: launch.New(launch.Runs{Root: root}), Log: slog.New(slog.DiscardHandler)}
	ts.Init(host, &job.Task{Job: &job.Job{Number: 7, Submitter: &job.Submitter{}, Origin: &job.Origin{}}, Number: 1}, func(string) {})
	return ts
}

// While a task is being started beside a job, which waits for the disk, qstat shows what
// there was before.
func TestListWhileOneIsStarted(t *testing.T) {
	ts := tasksOf(t)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.add("1.h", "all.q", 0).began = time.Unix(1002, 0)
	ts.book.Next = 1
	ts.show()
	ts.add("2.h", "all.q", 0) // is being started
	if list, past := ts.List(); len(list) != 1 || list[0].ID != "1.h" || past == nil {
		t.Errorf("tasks %+v, past %v", list, past)
	}
}

// At the end of the job its tasks are ended, each once, and it waits for them.
func TestClose(t *testing.T) {
	if !tasksOf(t).Close() {
		t.Error("a job without tasks waits for them")
	}
	ts := tasksOf(t)
	s := ts.add("1.h", "all.q", 0)
	if ts.Close() || !s.killed || !ts.closed {
		t.Error("the job does not wait for its task, or that is not killed")
	}
	delete(ts.list, "1.h")
	if !ts.Close() {
		t.Error("the job waits for a task that is over")
	}
}
