package job

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/user"
	"paddock/spool"
	"paddock/spool/atomicfile"
	"paddock/spool/spooltest"
)

func openStore(t testing.TB, root *spool.Root) (*Store, *strings.Builder) {
	t.Helper()
	var log strings.Builder
	s, err := Open(root, false, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return s, &log
}

func newRoot(t testing.TB) *spool.Root {
	t.Helper()
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

var alice = &user.User{Name: "alice", UID: 1001, Group: "users", GID: 100}

func submitArray(t *testing.T, s *Store, n int) *Job {
	t.Helper()
	j, _, err := s.Submit(alice, alice.GID, &api.SubmitRequest{
		Name: "a", Script: []byte("true\n"), Tasks: api.Tasks{First: 1, Last: n, Step: 1}, Env: []string{"A=b"},
	}, Limits{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// summary is what a job is, for comparing memory with what a new execd reads.
func summary(s *Store, number int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[number]
	if j == nil {
		return "none"
	}
	text := fmt.Sprintf("pending %s finished %d deleted %d started %d runs %v checkpoints %v sandboxes", j.pending.String(), j.finished, j.deleted, j.started, j.runs, j.checkpoints)
	for _, number := range slices.Sorted(maps.Keys(j.sandboxes)) {
		text += fmt.Sprintf(" %d:%s", number, j.sandboxes[number].Dir)
	}
	for _, t := range j.tasksInOrder() {
		text += fmt.Sprintf("\n%d %v run %d checkpoint %v kept %v want %v end %v stuck %v", t.Number, t.State, t.Run, t.Checkpoint, t.State != Errored && t.Kept != nil, t.Want, (t.State == Over || t.State == Ended) && t.End != nil, t.Stuck != nil)
	}
	return text
}

// Whatever happens at once to the tasks of a job, a new execd reads what the
// old one knew, also from a record that was made anew many times.
func TestRecordAgreesWithMemory(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	root := newRoot(t)
	s, log := openStore(t, root)
	s.compactAbove = 4 << 10
	j := submitArray(t, s, 400)
	unboxed := map[string]bool{}
	s.OnUnbox(func(b *Sandbox) { unboxed[b.Dir] = true })
	var wg sync.WaitGroup
	for w := range 6 {
		rnd := rand.New(rand.NewPCG(seed, uint64(w)))
		wg.Go(func() {
			for n := range 50 {
				task := s.Take(j, Start{Queue: "all.q", Boot: "b"}, time.Now())
				if task == nil {
					return
				}
				if rnd.IntN(10) == 0 {
					s.Untake(task)
					continue
				}
				if err := s.Begin(task); err != nil {
					t.Error(err)
				}
				if rnd.IntN(10) == 0 {
					continue // runs on
				}
				end := &End{Fate: []Fate{FateDone, FateDone, FateRequeue, FateError}[rnd.IntN(4)], Checkpoint: rnd.IntN(2) == 0, Accounting: strings.Repeat("x", 200)}
				if end.Fate != FateDone && rnd.IntN(2) == 0 {
					end.Sandbox = &Sandbox{Dir: fmt.Sprintf("/%d.%d", w, n)}
				}
				if rnd.IntN(3) == 0 {
					err := errors.Join(s.Over(task, end), s.Stick(task, Stuck{Text: "no space left"}))
					if rnd.IntN(2) == 0 {
						err = errors.Join(err, s.Unstick(task))
					}
					if err != nil {
						t.Error(err)
					}
					if rnd.IntN(10) == 0 {
						continue // its output is on its way, or stuck
					}
				}
				if err := s.End([]Ending{{Task: task, End: end, Time: time.Now()}})[0]; err != nil {
					t.Error(err)
				}
				if rnd.IntN(10) == 0 {
					continue // not yet cleaned
				}
				if err := s.Settle(task); err != nil {
					t.Error(err)
				}
			}
		})
	}
	rnd := rand.New(rand.NewPCG(seed, 99))
	wg.Go(func() {
		for range 40 {
			first := 1 + rnd.IntN(400)
			_, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{fmt.Sprintf("1.%d-%d", first, first+rnd.IntN(5))}},
				Caller{UID: alice.UID, Name: "alice"}, func(*Task) {})
			if err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	if j.base == 0 {
		t.Error("the record was never made anew")
	}
	if strings.Contains(log.String(), "internal error") {
		t.Errorf("log:\n%s", log)
	}
	if len(unboxed) == 0 {
		t.Error("no sandbox was kept for a run that will not be")
	}
	for _, b := range s.Boxes() {
		if unboxed[b.Dir] {
			t.Errorf("sandbox %s is removed, and kept for another run", b.Dir)
		}
	}
	want := summary(s, 1)
	again, log := openStore(t, root)
	if diff := cmp.Diff(want, summary(again, 1)); diff != "" || log.Len() > 0 {
		t.Errorf("a new execd reads (-known to the old +new):\n%s\nlog: %s", diff, log)
	}
	for _, task := range again.Unfinished() {
		if again.Recorded(task) != (again.State(task) == Ended) {
			t.Errorf("task %v in state %v: recorded %v", task, again.State(task), again.Recorded(task))
		}
	}
	if r, err := again.Request(again.Get(1)); err != nil || len(r.Env) != 1 {
		t.Errorf("the request of the job: %v, %v; want its environment", r, err)
	}
}

// The last task takes record and script along, and the number of the job is
// not given out again.
// Whichever of the last tasks is settled last takes the job with it, also when
// they are settled at the same time.
func TestLastTasksAtOnce(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	for range 300 {
		const n = 4
		j := submitArray(t, s, n)
		var ends []Ending
		for range n {
			task := s.Take(j, Start{Queue: "all.q", Boot: "b"}, time.Now())
			if err := s.Begin(task); err != nil {
				t.Fatal(err)
			}
			ends = append(ends, Ending{Task: task, End: &End{Fate: FateDone}, Time: time.Now()})
		}
		if err := errors.Join(s.End(ends)...); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, e := range ends {
			wg.Go(func() {
				if err := s.Settle(e.Task); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if s.Get(j.Number) != nil {
			t.Fatalf("job %d is over and stays", j.Number)
		}
		if _, err := os.Stat(s.path(j.Number)); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("the record of job %d stays: %v", j.Number, err)
		}
	}
}

func TestNumbersAreNotUsedAgain(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	for range 3 {
		submitArray(t, s, 2)
	}
	reply, err := s.Delete(t.Context(), &api.DeleteRequest{Users: []string{"*"}}, Caller{UID: alice.UID, Name: "alice"}, func(*Task) {})
	if err != nil || len(reply.Lines) != 3 || reply.Lines[0].Text != "alice has deleted job 1" {
		t.Fatalf("Delete = %+v, %v", reply, err)
	}
	for _, place := range []string{spool.DirJobs, spool.DirScripts} {
		if entries, err := os.ReadDir(root.Path(place)); err != nil || len(entries) > 0 {
			t.Errorf("%s has %v, %v; want nothing", place, entries, err)
		}
	}
	s, _ = openStore(t, root)
	if j := submitArray(t, s, 1); j.Number != 4 {
		t.Errorf("the next job has number %d; want 4", j.Number)
	}
}

// What cannot be read for now is not set aside: execd does not start without it.
func TestUnread(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	for range 20 {
		submitArray(t, s, 1)
	}
	if err := os.WriteFile(root.Path(spool.FileSeqNum), []byte("30\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for suffix, want := range map[string]string{"/jobs/7": "cannot read record of job 7: ", "/" + spool.FileSeqNum: "cannot read the last job number: "} {
		for _, errno := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EIO} {
			restore := spooltest.FailReads(t, suffix, errno)
			_, err := Open(root, false, slog.New(slog.DiscardHandler))
			restore()
			if err == nil || err.Error() != want+errno.Error() {
				t.Errorf("%v; want %s%v", err, want, errno)
			}
		}
	}
	// Nor is a record removed while the last number is not known to be elsewhere.
	restore := spooltest.FailReads(t, "/"+spool.FileSeqNum, unix.EMFILE)
	if _, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"20"}}, Caller{Manager: true}, func(*Task) {}); err != nil {
		t.Fatal(err)
	}
	restore()
	s, log := openStore(t, root)
	if aside, err := root.ListCorrupt(); err != nil || len(aside) != 0 || log.Len() > 0 {
		t.Errorf("aside is %v, %v, and the log %q", aside, err, log)
	}
	if j := submitArray(t, s, 1); s.Get(7) == nil || s.Get(20) != nil || j.Number != 31 {
		t.Errorf("the next job has number %d; want 31, and all jobs but the 20th there", j.Number)
	}
}

// A full disk at any step of a submission accepts nothing and leaves nothing.
func TestSubmitOnFullDisk(t *testing.T) {
	for n := 1; ; n++ {
		root := newRoot(t)
		s, _ := openStore(t, root)
		step := 0
		var mu sync.Mutex
		restore := atomicfile.Inject(func(op atomicfile.Op, _ string) error {
			mu.Lock()
			defer mu.Unlock()
			if step++; step == n && op != atomicfile.OpRemove {
				return unix.ENOSPC
			}
			return nil
		})
		_, _, err := s.Submit(alice, alice.GID, &api.SubmitRequest{Name: "a", Script: []byte("true\n")}, Limits{}, time.Now())
		restore()
		if step < n {
			if n < 5 {
				t.Errorf("only %d steps", n-1)
			}
			return
		}
		if !errors.Is(err, unix.ENOSPC) || !strings.HasPrefix(err.Error(), "cannot store job 1: ") {
			t.Fatalf("step %d: Submit = %v; want ENOSPC", n, err)
		}
		for _, place := range []string{spool.DirJobs, spool.DirScripts} {
			if entries, err := os.ReadDir(root.Path(place)); err != nil || len(entries) > 0 {
				t.Errorf("step %d: %s has %v, %v; want nothing", n, place, entries, err)
			}
		}
		if pending := s.Tally().Waiting(); pending != 0 {
			t.Errorf("step %d: %d tasks pending; want none", n, pending)
		}
	}
}

func TestDeleteTexts(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	submitArray(t, s, 5)
	single, _, err := s.Submit(alice, alice.GID, &api.SubmitRequest{Name: "my.job", Binary: true, Command: "true"}, Limits{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	running := s.Take(single, Start{Queue: "all.q"}, time.Now())
	if err := s.Begin(running); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		words  []string
		caller Caller
		want   string
		failed bool
	}{
		{[]string{"9"}, Caller{UID: 1001, Name: "alice"}, `denied: job "9" does not exist`, true},
		{[]string{"nix"}, Caller{UID: 1001, Name: "alice"}, `The job nix of user(s) alice does not exist`, true},
		{[]string{"1"}, Caller{UID: 65534, Name: "nobody"}, `nobody - you do not have the necessary privileges to delete the job "1"`, true},
		{[]string{"1.3"}, Caller{UID: 1001, Name: "alice"}, `alice has deleted job-array task 1.3`, false},
		{[]string{"1.3"}, Caller{UID: 1001, Name: "alice"}, `job "1" task "3" does not exist`, true},
		{[]string{"1.1-2"}, Caller{UID: 1001, Name: "alice"}, `alice has deleted job-array tasks 1,2 of job 1`, false},
		{[]string{"my.job"}, Caller{UID: 0, Name: "root", Manager: true}, `The job my.job of user(s) root does not exist`, true},
		{[]string{"2"}, Caller{UID: 0, Name: "root", Manager: true}, `root has registered the job 2 for deletion`, false},
		{[]string{"2"}, Caller{UID: 0, Name: "root", Manager: true}, `job 2 is already in deletion`, false},
	} {
		reply, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: tt.words}, tt.caller, func(*Task) {})
		if err != nil || len(reply.Lines) != 1 || reply.Lines[0] != (api.Line{Text: tt.want, Failed: tt.failed}) {
			t.Errorf("qdel %v = %+v, %v; want %q", tt.words, reply.Lines, err, tt.want)
		}
	}
	if w := s.Want(running); w == nil || w.By != "root" {
		t.Errorf("Want = %+v; want root's", w)
	}
}

// A run knows whether the one before it left a checkpoint, also after execd was
// restarted, and only that one.
func TestCheckpointIsPassedOn(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	j, _, err := s.Submit(alice, alice.GID, &api.SubmitRequest{Name: "j", Binary: true, Command: "true"}, Limits{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for run, left := range []bool{true, true, false, false} {
		task := s.Take(j, Start{Queue: "all.q"}, time.Now())
		if err := s.Begin(task); err != nil {
			t.Fatal(err)
		}
		if want := run == 1 || run == 2; task.Run != run || task.Checkpoint != want {
			t.Errorf("run %d, checkpoint %v; want %d, %v", task.Run, task.Checkpoint, run, want)
		}
		end := &End{Failed: 24, Fate: FateRequeue, Checkpoint: left}
		if err := s.End([]Ending{{Task: task, End: end, Time: time.Now()}})[0]; err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(task); err != nil {
			t.Fatal(err)
		}
		s, _ = openStore(t, root)
		j = s.Get(j.Number)
	}
}

// A limit is a reason to kill a running task, unless somebody else had one.
func TestExceed(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	j := submitArray(t, s, 2)
	first := s.Take(j, Start{Queue: "all.q"}, time.Now())
	second := s.Take(j, Start{Queue: "all.q"}, time.Now())
	for _, task := range []*Task{first, second} {
		if err := s.Begin(task); err != nil {
			t.Fatal(err)
		}
	}
	killed := map[int]int{}
	qdel := func(word, want string) {
		t.Helper()
		reply, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{word}}, Caller{UID: alice.UID, Name: "alice"}, func(task *Task) { killed[task.Number]++ })
		if err != nil || len(reply.Lines) != 1 || reply.Lines[0].Text != want {
			t.Errorf("qdel %s = %+v, %v; want %q", word, reply.Lines, err, want)
		}
	}
	if err := s.Exceed(first, "h_rt 2 s"); err != nil {
		t.Fatal(err)
	}
	qdel("1.1", "job-array task 1.1 is already in deletion")
	qdel("1.2", "alice has registered the job-array task 1.2 for deletion")
	qdel("1.2", "job-array task 1.2 is already in deletion")
	if err := s.Exceed(second, "h_rt 2 s"); err != nil {
		t.Fatal(err)
	}
	if w := s.Want(first); w == nil || w.Reason != "h_rt 2 s" || w.By != "" {
		t.Errorf("Want of the first = %+v; want the limit", w)
	}
	if w := s.Want(second); w == nil || w.By != "alice" || w.Reason != "" {
		t.Errorf("Want of the second = %+v; want alice's", w)
	}
	if killed[1] != 1 || killed[2] != 2 {
		t.Errorf("killed %v times; want the first once, the second twice", killed)
	}
}

// A task that was deleted while its start failed does not come back.
func TestDeletedWhileItsStartFailed(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	j := submitArray(t, s, 3)
	for _, give := range []func(*Task) error{s.Withdraw, s.Withdraw, func(task *Task) error { return s.Fail(task, "r") }} {
		task := s.Take(j, Start{Queue: "all.q"}, time.Now())
		if err := s.Begin(task); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{fmt.Sprintf("1.%d", task.Number)}}, Caller{UID: alice.UID, Name: "alice"}, func(*Task) {}); err != nil {
			t.Fatal(err)
		}
		if err := give(task); err != nil {
			t.Fatal(err)
		}
		if j.pending.Has(task.Number) || j.active[task.Number] != nil {
			t.Errorf("task %d waits; want it deleted", task.Number)
		}
	}
	if s.Get(1) != nil {
		t.Error("the job is still there; want it gone with its last task")
	}
	if again, _ := openStore(t, root); again.Get(1) != nil {
		t.Error("the job comes back with the next execd")
	}
}

// Environments are in memory of few jobs that wait, however many do.
func TestFreshRequests(t *testing.T) {
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := openStore(t, root)
	var jobs []*Job
	for range 2 * maxFresh {
		jobs = append(jobs, submitArray(t, s, 1))
	}
	n := 0
	for _, j := range jobs {
		if j.request != nil {
			n++
		}
	}
	if n != maxFresh {
		t.Errorf("%d requests of %d jobs are in memory; want %d", n, len(jobs), maxFresh)
	}
	if r, err := s.Request(jobs[0]); err != nil || r == nil {
		t.Errorf("Request = %v, %v", r, err)
	}
}
