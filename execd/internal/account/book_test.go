package account

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/job"
	"paddock/execd/internal/user"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// book returns a book that runs, and the store behind it.
func book(t *testing.T) (*Book, *job.Store) {
	t.Helper()
	dir := t.TempDir()
	root, err := spool.OpenRoot(filepath.Join(dir, "spool"), true)
	if err != nil {
		t.Fatal(err)
	}
	store, err := job.Open(root, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b := New(filepath.Join(dir, "accounting"), store)
	run(t, b)
	return b, store
}

func run(t *testing.T, b *Book) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { b.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// started returns a started task of a new array job with n tasks.
func startedTasks(t *testing.T, store *job.Store, n int) []*job.Task {
	t.Helper()
	owner := &user.User{Name: "alice", UID: os.Getuid(), Group: "users"}
	j, _, err := store.Submit(owner, owner.GID, &api.SubmitRequest{
		Name: "a", Binary: true, Command: "true", Tasks: api.Tasks{First: 1, Last: n, Step: 1},
	}, job.Limits{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var tasks []*job.Task
	for range n {
		task := store.Take(j, job.Start{Queue: "all.q", Boot: "b"}, time.Now())
		if task == nil {
			t.Fatal("there is no task to take")
		}
		if err := store.Begin(task); err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, task)
	}
	return tasks
}

func ending(t *testing.T, task *job.Task) job.Ending {
	t.Helper()
	line, err := accounting.Append(nil, accounting.Record{
		QName: "all.q", Hostname: "h", Group: "g", Owner: "alice", JobName: "a", JobNumber: task.Job.Number, Account: "sge",
		Project: "NONE", Department: "d", GrantedPE: "NONE", Slots: 1, TaskNumber: task.Number, Category: "NONE", PETaskID: "NONE",
	})
	if err != nil {
		t.Fatal(err)
	}
	return job.Ending{Task: task, Time: time.Now(), End: &job.End{Fate: job.FateDone, Accounting: strings.TrimSuffix(string(line), "\n")}}
}

func count(t *testing.T, b *Book) map[int]int {
	t.Helper()
	n := map[int]int{}
	files, _ := filepath.Glob(b.path + "*")
	for _, file := range files {
		_, err := eachLine(file, 0, func(l []byte) bool {
			if len(l) > 0 && l[0] != '#' {
				r, err := accounting.Parse(l)
				if err != nil {
					t.Errorf("%s: %v: %q", file, err, l)
				}
				n[r.TaskNumber]++
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func TestManyAtOnceOneLineEach(t *testing.T) {
	b, store := book(t)
	const n = 100
	var wg sync.WaitGroup
	tasks := startedTasks(t, store, n)
	for _, task := range tasks {
		e := ending(t, task)
		wg.Go(func() {
			if err := b.Enter(e).Synced(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := count(t, b)
	for i := 1; i <= n; i++ {
		if got[i] != 1 {
			t.Errorf("task %d has %d lines; want 1", i, got[i])
		}
	}
	ends, _, _, err := b.Ends(t.Context(), job.Place{}, tasks[0].Job.Number)
	if err != nil || len(ends) != n {
		t.Errorf("Ends = %d, %v; want %d", len(ends), err, n)
	}
}

// However an attempt fails, and though the file is rotated away in between,
// the step repeated writes no second line.
func TestRepeatedStep(t *testing.T) {
	for _, tt := range []struct {
		name   string
		op     atomicfile.Op
		rotate bool
	}{
		{"line not written", atomicfile.OpWrite, false},
		{"line written", "", false},
		{"line written, file rotated", "", true},
		{"line not written, file rotated", atomicfile.OpWrite, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, store := book(t)
			tasks := startedTasks(t, store, 2)
			if err := b.Enter(ending(t, tasks[0])).Synced(); err != nil {
				t.Fatal(err)
			}
			e := ending(t, tasks[1])
			if tt.op != "" {
				restore := atomicfile.Inject(func(op atomicfile.Op, path string) error {
					if op == tt.op && path == b.path {
						return unix.ENOSPC
					}
					return nil
				})
				err := b.Enter(e).Synced()
				restore()
				if !errors.Is(err, unix.ENOSPC) {
					t.Fatalf("Enter = %v; want ENOSPC", err)
				}
			} else if err := b.Enter(e).Synced(); err != nil {
				t.Fatal(err)
			}
			if tt.rotate {
				if err := os.Rename(b.path, b.path+".1"); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err := b.Enter(e).Synced(); err != nil {
					t.Fatal(err)
				}
			}
			if got := count(t, b); got[1] != 1 || got[2] != 1 {
				t.Errorf("lines by task: %v; want one each", got)
			}
		})
	}
}

func TestWrittenCanBeRead(t *testing.T) {
	b, store := book(t)
	task := startedTasks(t, store, 1)[0]
	e := b.Enter(ending(t, task))
	if err := e.Written(); err != nil {
		t.Fatal(err)
	}
	if got := count(t, b); got[1] != 1 || !store.Recorded(task) {
		t.Errorf("lines by task: %v, recorded: %v; want one of task 1, recorded", got, store.Recorded(task))
	}
	if err := e.Synced(); err != nil {
		t.Fatal(err)
	}
}

func TestHalfALineIsCutOff(t *testing.T) {
	b, store := book(t)
	if err := os.WriteFile(b.path, []byte("# head\nall.q:h:g:ali"), 0o644); err != nil {
		t.Fatal(err)
	}
	task := startedTasks(t, store, 1)[0]
	if err := b.Enter(ending(t, task)).Synced(); err != nil {
		t.Fatal(err)
	}
	if got := count(t, b); got[1] != 1 || len(got) != 1 {
		t.Errorf("lines by task: %v; want one of task 1", got)
	}
}

func TestNotAFile(t *testing.T) {
	b, store := book(t)
	if err := os.Mkdir(b.path, 0o755); err != nil {
		t.Fatal(err)
	}
	err := b.Enter(ending(t, startedTasks(t, store, 1)[0])).Synced()
	if err == nil || !strings.Contains(err.Error(), "cannot write accounting file") {
		t.Errorf("Enter = %v; want a refusal", err)
	}
}

func TestCursor(t *testing.T) {
	p := job.Place{Inode: 7, Offset: 42}
	if got, err := ParseCursor(FormatCursor(p)); err != nil || got != p {
		t.Errorf("ParseCursor(FormatCursor(%v)) = %v, %v", p, got, err)
	}
	for _, bad := range []string{"x", "1", "1:-2", "1:x", ":"} {
		if _, err := ParseCursor(bad); err == nil {
			t.Errorf("ParseCursor(%q) = nil error", bad)
		}
	}
}

func BenchmarkEnds(b *testing.B) {
	path := filepath.Join(b.TempDir(), "accounting")
	line := "all.q:h:g:o:n:%:sge:0:0:0:0:0:0:0:0.0:0.0:0.0:0:0:0:0:0:0:0:0.0:0:0:0:0:0:0:NONE:d:NONE:1:0:0.0:0.0:0.0:NONE:0.0:NONE:0.0:0:0\n"
	var text strings.Builder
	for i := range 100_000 {
		text.WriteString(strings.ReplaceAll(line, "%", strconv.Itoa(i)))
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	book := New(path, nil)
	for b.Loop() {
		if _, _, _, err := book.Ends(b.Context(), job.Place{}, 77); err != nil {
			b.Fatal(err)
		}
	}
}

// The end of what was started in a task is found by its line, when all else of its job is
// gone; one of the same name in another task of the job is not taken for it.
func TestSubtaskEnd(t *testing.T) {
	b, _ := book(t)
	place := b.Now()
	for _, r := range []struct{ job, task, exit int }{{7, 1, 5}, {7, 2, 137}, {9, 0, 7}} {
		line, err := accounting.Append(nil, accounting.Record{
			QName: "all.q", Hostname: "h", Group: "g", Owner: "alice", JobName: "a", JobNumber: r.job, Account: "sge", Project: "NONE",
			Department: "d", GrantedPE: "NONE", Slots: 1, TaskNumber: r.task, Category: "NONE", PETaskID: "into.1", StartTime: 1, ExitStatus: r.exit,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Add(strings.TrimSuffix(string(line), "\n"), b.Now(), false); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		job, task int
		name      string
		want      int // -1: it has no line
	}{{7, 1, "into.1", 5}, {9, 1, "into.1", 7}, {7, 2, "into.1", 137}, {7, 1, "into.2", -1}, {7, 3, "into.1", -1}, {8, 1, "into.1", -1}} {
		end, err := b.SubtaskEnd(t.Context(), place, tt.job, tt.task, tt.name)
		if err != nil || (end == nil) != (tt.want < 0) || end != nil && (end.Exit != tt.want || !end.Ran) {
			t.Errorf("job %d, task %d, %s: %+v, %v; want the exit status %d", tt.job, tt.task, tt.name, end, err, tt.want)
		}
	}
}
