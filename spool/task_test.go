package spool_test

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"paddock/spool"
)

// TestTaskDirectories makes, finds and removes the directories of tasks below
// that of a run.
func TestTaskDirectories(t *testing.T) {
	root, err := spool.OpenRoot(t.TempDir()+"/spool", true)
	if err != nil {
		t.Fatal(err)
	}
	run := spool.RunID{Job: 7, Task: 2, Run: 3}
	if names, err := root.ListTasks(run); len(names) != 0 || err != nil {
		t.Errorf("tasks of a run that is not there: %q, %v", names, err)
	}
	if _, err := root.Stage(run, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := root.Activate(run); err != nil {
		t.Fatal(err)
	}
	task := run
	task.PETask = "1.node7"
	if got, want := task.String(), "7.2.3/1.node7"; got != want || !task.Valid() || task.Within() != run {
		t.Errorf("a task is called %s, within %v; want %s, %v", got, task.Within(), want, run)
	}
	for range 2 { // the first was left half made
		d, err := root.StageTask(task)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.WriteNew(spool.FileConfig, []byte("x=1\n")); err != nil {
			t.Fatal(err)
		}
	}
	d, err := root.ActivateTask(task)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := d.Path(), root.Active(run.ID()).Path("1.node7"); got != want {
		t.Errorf("the task's directory is %s; want %s", got, want)
	}
	// What is half made goes; files are no tasks.
	half := run
	half.PETask = spool.IntoTask(4)
	if _, err := root.StageTask(half); err != nil {
		t.Fatal(err)
	}
	if err := root.Active(run.ID()).WriteNew(spool.FileTasks, nil); err != nil {
		t.Fatal(err)
	}
	if names, err := root.ListTasks(run); err != nil || !slices.Equal(names, []string{"1.node7"}) {
		t.Errorf("tasks %q, %v", names, err)
	}
	if _, err := os.Stat(root.Active(run.ID()).Path(".into.4")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a task that was half made: %v", err)
	}
	if err := root.Remove(d); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "../1", "a/b", ".1"} {
		task.PETask = bad
		if _, err := root.StageTask(task); err == nil {
			t.Errorf("a task %q was made", bad)
		}
	}
	if !spool.IsInto(spool.IntoTask(1)) || spool.IsInto("1.into.1") {
		t.Error("what people start is not told from other tasks")
	}
}
