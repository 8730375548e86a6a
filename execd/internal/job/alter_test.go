package job

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/spool"
	"paddock/spool/spooltest"
)

// accept is a configuration that has room for everything.
func accept(*Job, []api.Field, *api.SubmitRequest) ([]api.Line, bool, error) { return nil, false, nil }

// alter returns the lines of an alteration; those of failures begin with "!".
func alter(t *testing.T, s *Store, c Caller, req api.AlterRequest) []string {
	t.Helper()
	reply, err := s.Alter(t.Context(), &req, c, AlterHooks{Check: accept, Host: "h"})
	if err != nil {
		return []string{"! " + err.Error()}
	}
	var texts []string
	for _, l := range reply.Lines {
		if l.Failed {
			l.Text = "! " + l.Text
		}
		texts = append(texts, l.Text)
	}
	return texts
}

func fields(f ...api.Field) []api.Field { return f }

// The texts are those of a Grid Engine 8.1.9.
func TestAlter(t *testing.T) {
	owner := Caller{UID: alice.UID, Name: "alice"}
	operator := Caller{UID: 7, Name: "oper", Operator: true}
	manager := Caller{UID: 8, Name: "boss", Manager: true}
	for _, test := range []struct {
		name   string
		caller Caller
		req    api.AlterRequest
		want   []string
	}{
		{"name", owner, api.AlterRequest{Fields: fields("-N"), To: api.SubmitRequest{Name: "n"}}, []string{"modified job name of job 1"}},
		{"lower priority", owner, api.AlterRequest{Fields: fields(api.FieldPriority), To: api.SubmitRequest{Priority: -5}}, []string{"alice@h sets scheduling priority of job 1 to -5"}},
		{"raised priority", owner, api.AlterRequest{Fields: fields("-N", api.FieldPriority), To: api.SubmitRequest{Name: "n", Priority: 3}}, []string{`! denied: "alice" must be operator to increase job priority`}},
		{"raised by an operator", operator, api.AlterRequest{Fields: fields(api.FieldPriority), To: api.SubmitRequest{Priority: 3}}, []string{"oper@h sets scheduling priority of job 1 to 3"}},
		{"in Grid Engine's order", owner, api.AlterRequest{
			Fields:  fields("-tc", api.FieldPE, api.FieldArgs, "-N", api.FieldHard, "-c", "-a"),
			Jobs:    []string{"2"},
			Context: []api.ContextChange{{Option: "-ac", Variables: []string{"a=1"}}},
			Hold:    "u",
		}, []string{
			"modified hold of job-array task 2.1", "modified hold of job-array task 2.2", "modified hold of job-array task 2.3",
			"modified start time of job 2", "modified hard resource list of job 2", "modified job name of job 2",
			"modified parallel environment of job 2", "modified slot range of job 2",
			"modified script arguments of job 2", "modified context of job 2", "modified task concurrency of job 2",
		}},
		{"nothing", owner, api.AlterRequest{}, nil},
		{"tasks of no array", owner, api.AlterRequest{Fields: fields("-tc"), To: api.SubmitRequest{MaxRun: 2}}, []string{`! invalid option argument "task concurrency"`}},
		{"not there", owner, api.AlterRequest{Fields: fields("-N"), Jobs: []string{"99", "1", "nosuch"}}, []string{
			`! denied: job "99" does not exist`, "modified job name of job 1", `! denied: job "nosuch" does not exist`,
		}},
		{"a foreign user", Caller{UID: 5, Name: "eve"}, api.AlterRequest{Fields: fields("-N"), Jobs: []string{"1", "2"}}, []string{
			`! denied: "eve" must be at least owner of job 1 to change job attributes`,
			`! denied: "eve" must be at least owner of job 2 to change job attributes`,
		}},
		{"a foreign user, of all", Caller{UID: 5, Name: "eve"}, api.AlterRequest{Fields: fields("-N"), Users: []string{"*"}, Jobs: nil}, []string{
			`! denied: "eve" must be at least owner of job 1 to change job attributes`,
		}},
		{"of users", owner, api.AlterRequest{Fields: fields(api.FieldAccount), Users: []string{"alice"}}, []string{
			"modified account of job 1", "modified account of job 2", "modified account of job 3",
		}},
		{"of nobody", owner, api.AlterRequest{Fields: fields(api.FieldAccount), Users: []string{"x", "y"}}, []string{"! The job * of user(s) x,y does not exist"}},
		{"tasks", owner, api.AlterRequest{Fields: fields("-N"), Jobs: []string{"2.1"}}, []string{"! denied: the selected option works only on jobs and not on tasks"}},
		{"holds of tasks", owner, api.AlterRequest{Hold: "u", Jobs: []string{"2.1-2"}}, []string{"modified hold of job-array task 2.1", "modified hold of job-array task 2.2"}},
		{"a hold that is there", owner, api.AlterRequest{Hold: "u", Jobs: []string{"3"}}, nil},
		{"a hold taken away", owner, api.AlterRequest{Hold: "uU", Jobs: []string{"3"}}, []string{"modified hold of job 3"}},
		{"an operator's hold", owner, api.AlterRequest{Hold: "o", Fields: fields("-N")}, []string{`! denied: "alice" must be operator to set operator hold`}},
		{"a system's hold that is not there", owner, api.AlterRequest{Hold: "SO"}, nil},
		{"all holds, by the owner", owner, api.AlterRequest{Hold: "n"}, []string{`! denied: "alice" must be manager to remove manager hold`}},
		{"all holds, by a manager", manager, api.AlterRequest{Hold: "n", Jobs: []string{"3"}}, []string{"modified hold of job 3"}},
		{"no hold", owner, api.AlterRequest{Hold: "x"}, []string{`! Unknown hold list "x" specified to -h option`}},
		{"its own predecessor", owner, api.AlterRequest{Fields: fields("-N", api.FieldHoldJobs), To: api.SubmitRequest{HoldJobs: []string{"1"}}}, []string{`! denied: job "1" may not be its own jobnet predecessor`}},
		{"predecessors", owner, api.AlterRequest{Fields: fields(api.FieldHoldJobs), To: api.SubmitRequest{HoldJobs: []string{"77", "3", "arr", "nosuch"}}}, []string{
			"modified job id hold list of job 1", "   blocking jobs: 3,2", "   exited jobs:   77",
		}},
		{"a cycle", owner, api.AlterRequest{Fields: fields(api.FieldHoldJobs), Jobs: []string{"2"}, To: api.SubmitRequest{HoldJobs: []string{"3"}}}, []string{
			"! job 2 dependency change would generate a dependency cycle with job 3",
		}},
		{"tasks of predecessors", owner, api.AlterRequest{Fields: fields(api.FieldHoldArray), To: api.SubmitRequest{HoldArray: []string{"2"}}}, []string{"! " + ErrNoArray.Error()}},
		{"a field that is none", owner, api.AlterRequest{Fields: fields("-b")}, []string{`! cannot alter "-b"`}},
		{"a field twice", owner, api.AlterRequest{Fields: fields("-N", "-N")}, []string{`! cannot alter "-N"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, log := openStore(t, newRoot(t))
			submit(t, s, api.SubmitRequest{Name: "one"})
			submit(t, s, api.SubmitRequest{Name: "arr", Tasks: api.Tasks{First: 1, Last: 3, Step: 1}})
			submit(t, s, api.SubmitRequest{Name: "held", Hold: "u", HoldJobs: []string{"2"}})
			before := everything(t, s)
			if test.req.Jobs == nil && test.req.Users == nil {
				test.req.Jobs = []string{"1"}
			}
			got := alter(t, s, test.caller, test.req)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			refused := !slices.ContainsFunc(got, func(l string) bool { return !strings.HasPrefix(l, "! ") })
			if after := everything(t, s); refused && after != before {
				t.Errorf("it was refused and has changed something:\n%s", cmp.Diff(before, after))
			}
			if log.Len() > 0 {
				t.Error(log)
			}
		})
	}
}

// everything is what a store and its records say of all jobs.
func everything(t *testing.T, s *Store) string {
	t.Helper()
	var b strings.Builder
	for _, j := range s.sortedAll() {
		r, err := s.Request(j)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(s.path(j.Number))
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		fmt.Fprintf(&b, "%d: %+v %+v held %v waits %v %v\n%s\n", j.Number, *r, *j.Terms(), j.held, j.waitsFor, j.waitsForTasks, data)
		s.mu.Unlock()
	}
	return b.String()
}

func (s *Store) sortedAll() []*Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sorted(func(*Job) bool { return true })
}

// asks is what a job is known to ask for: at hand and in whole.
func asks(t *testing.T, s *Store, number int) string {
	t.Helper()
	j := s.Get(number)
	if j == nil {
		return "none"
	}
	r, err := s.Request(j)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*keptOf(r).terms(), *j.Terms(), cmp.Comparer(func(a, b Needs) bool { return a == b })); diff != "" {
		t.Errorf("job %d: what is at hand is not what was asked for (-request +terms):\n%s", number, diff)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%s %v %v env %v context %v args %v waits %v", r.Name, r.Hard, r.Queues, r.Env, r.Context, r.Args, j.predecessors())
}

// A new execd knows the altered job, also from a record that was made anew.
func TestAlterSurvives(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	owner := Caller{UID: alice.UID, Name: "alice"}
	submit(t, s, api.SubmitRequest{Name: "first", Hold: "u"})
	submit(t, s, api.SubmitRequest{Name: "arr", Tasks: api.Tasks{First: 1, Last: 4, Step: 1}, Env: []string{"A=\xff"}, Hard: []api.Resource{{Name: "h_rt", Value: "1"}}})
	alter(t, s, owner, api.AlterRequest{
		Jobs: []string{"2"}, Fields: fields(api.FieldHard, "-N", api.FieldArgs),
		To:      api.SubmitRequest{Name: "second\xfe", Args: []string{"x", ""}},
		Context: []api.ContextChange{{Option: "-sc", Variables: []string{"a=1", "b"}}},
	})
	running := s.Take(s.Get(2), Start{Queue: "all.q"}, time.Now())
	if running != nil {
		t.Fatal("a job was started for what it asked for before")
	}
	wantReady(t, s, s.Get(2), "4 from 1")
	running = s.Take(s.Get(2), Start{Queue: "all.q"}, time.Now())
	if err := s.Begin(running); err != nil {
		t.Fatal(err)
	}
	alter(t, s, owner, api.AlterRequest{
		Jobs: []string{"2"}, Fields: fields(api.FieldQueues, api.FieldHoldJobs, api.FieldEnv),
		To:      api.SubmitRequest{Queues: []string{"b.q"}, HoldJobs: []string{"1"}, Env: []string{"B=\xfd"}},
		Context: []api.ContextChange{{Option: "-dc", Variables: []string{"b"}}},
		Hold:    "u",
	})
	if _, err := s.RequestFor(running); !errors.Is(err, ErrAltered) {
		t.Errorf("the request of a task that runs: %v; want ErrAltered", err)
	}
	want := asks(t, s, 2)
	if text := "second\xfe [] [b.q] env [B=\xfd] context [a=1] args [x ] waits [1]"; want != text {
		t.Errorf("job 2 asks for %q; want %q", want, text)
	}
	needs := running.Needs
	if len(needs.Request().Queues) > 0 {
		t.Errorf("what runs has needs that came later: %v", needs.Request())
	}
	check := func(what string) {
		t.Helper()
		again, log := openStore(t, root)
		if log.Len() > 0 {
			t.Errorf("%s: %s", what, log)
		}
		if got := asks(t, again, 2); got != want {
			t.Errorf("%s: job 2 asks for %q; want %q", what, got, want)
		}
		wantReady(t, again, again.Get(2), "0 from 0")
		if got := again.graph.holds(again.Get(2)); got != "uj" {
			t.Errorf("%s: holds %q; want uj", what, got)
		}
		task := again.Unfinished()[0]
		if task.Needs != needs {
			t.Errorf("%s: what runs has the needs %v; want %v", what, task.Needs.Request(), needs.Request())
		}
		// The one it waits for goes, and so does that hold.
		if _, err := again.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"1"}}, owner, func(*Task) {}); err != nil {
			t.Fatal(err)
		}
		if got := again.graph.holds(again.Get(2)); got != "u" {
			t.Errorf("%s: holds %q when job 1 is gone; want u", what, got)
		}
	}
	record, err := os.ReadFile(s.path(2))
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(s.path(1))
	if err != nil {
		t.Fatal(err)
	}
	check("a new execd")
	if err := os.WriteFile(s.path(1), first, 0o600); err != nil {
		t.Fatal(err)
	}
	j := s.Get(2)
	j.file.Lock()
	s.compact(j)
	j.file.Unlock()
	compacted, err := os.ReadFile(s.path(2))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(compacted, []byte(`"altered"`)) || !bytes.Contains(compacted, []byte(`"b.q"`)) {
		t.Errorf("the record made anew is\n%s", compacted)
	}
	check("a record made anew")

	// A write that was cut short has altered nothing, or all of it.
	seen := map[string]bool{}
	for n := bytes.IndexByte(record, '\n') + 1; n <= len(record); n++ {
		if err := os.WriteFile(s.path(2), record[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.path(1), first, 0o600); err != nil {
			t.Fatal(err)
		}
		s, _ := openStore(t, root)
		seen[asks(t, s, 2)] = true
	}
	if len(seen) != 3 || !seen[want] {
		t.Errorf("a record cut short says %v; want three states", seen)
	}
}

// An alteration that was answered is on disk; one whose write has failed is
// there as a whole or not at all, and what the job was before is never lost.
func TestAlterFaults(t *testing.T) {
	type state struct {
		root *spool.Root
		s    *Store
	}
	const before, after = "j [] [] env [A=b] context [] args [] waits []", "new [] [q] env [C=d] context [x] args [] waits []"
	for _, compactAbove := range []int64{defaultCompactAbove, 1} {
		spooltest.EachFault(t, unix.EIO, func(t *testing.T) state {
			root := newRoot(t)
			s, _ := openStore(t, root)
			s.compactAbove = compactAbove
			submit(t, s, api.SubmitRequest{Env: []string{"A=b"}})
			if compactAbove == 1 {
				alter(t, s, Caller{UID: alice.UID}, api.AlterRequest{Jobs: []string{"1"}, Fields: fields(api.FieldAccount), To: api.SubmitRequest{Account: strings.Repeat("x", 3000)}})
			}
			return state{root, s}
		}, func(_ *testing.T, st state) error {
			_, err := st.s.Alter(t.Context(), &api.AlterRequest{
				Jobs: []string{"1"}, Fields: fields("-N", api.FieldQueues, api.FieldEnv),
				To:      api.SubmitRequest{Name: "new", Queues: []string{"q"}, Env: []string{"C=d"}},
				Context: []api.ContextChange{{Option: "-ac", Variables: []string{"x"}}},
			}, Caller{UID: alice.UID, Name: "alice"}, AlterHooks{Check: accept})
			return err
		}, func(t *testing.T, st state, err error) {
			s, log := openStore(t, st.root)
			if log.Len() > 0 {
				t.Error(log)
			}
			got := asks(t, s, 1)
			if got != after && (err == nil || got != before) {
				t.Errorf("after the answer %v a new execd knows %q", err, got)
			}
		})
	}
}

// Who alters at the same time loses nothing of the others, and readers see one
// state or the other.
func TestAlterTogether(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	s.compactAbove = 4 << 10
	for range 40 {
		submit(t, s, api.SubmitRequest{})
	}
	owner := Caller{UID: alice.UID, Name: "alice"}
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				s.List(&api.JobsRequest{Users: []string{"*"}}, owner, "h", math.MaxInt)
				s.Detail(s.Get(1), owner, "h", func(*Job) []string { return nil })
				s.Ready(s.Get(1), time.Now())
			}
		}
	})
	for w := range 4 {
		writers.Go(func() {
			for i := range 10 {
				v := fmt.Sprintf("w%d_%d=%d", w, i, i)
				alter(t, s, owner, api.AlterRequest{Users: []string{"alice"}, Context: []api.ContextChange{{Option: "-ac", Variables: []string{v}}}})
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	again, _ := openStore(t, root)
	for _, s := range []*Store{s, again} {
		for _, j := range s.sortedAll() {
			r, err := s.Request(j)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Context) != 40 {
				t.Errorf("job %d has %d context variables; want 40", j.Number, len(r.Context))
			}
		}
	}
}

// Jobs that are altered to wait for each other at the same time do not both
// pass, and those that waited before are not told any more.
func TestAlterPredecessors(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	owner := Caller{UID: alice.UID, Name: "alice"}
	for range 3 {
		submit(t, s, api.SubmitRequest{})
	}
	var wg sync.WaitGroup
	var texts [2][]string
	for i := range 2 {
		wg.Go(func() {
			texts[i] = alter(t, s, owner, api.AlterRequest{
				Jobs: []string{fmt.Sprint(1 + i)}, Fields: fields(api.FieldHoldJobs), To: api.SubmitRequest{HoldJobs: []string{fmt.Sprint(2 - i)}},
			})
		})
	}
	wg.Wait()
	if a, b := len(texts[0]) == 1, len(texts[1]) == 1; a == b {
		t.Errorf("of two jobs that are to wait for each other: %q", texts)
	}
	for range 100 {
		alter(t, s, owner, api.AlterRequest{Jobs: []string{"1", "2"}, Fields: fields(api.FieldHoldJobs), To: api.SubmitRequest{HoldJobs: []string{"3"}}})
	}
	if n := len(s.graph.followers); n != 1 || len(s.graph.followers[3]) != 2 {
		t.Errorf("followers are %v; want two of job 3", s.graph.followers)
	}
	if _, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"3"}}, owner, func(*Task) {}); err != nil {
		t.Fatal(err)
	}
	wantReady(t, s, s.Get(1), "1 from 1")
	wantReady(t, s, s.Get(2), "1 from 1")
}

// What is refused by the configuration, or only looked at, changes nothing.
func TestAlterChecked(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	submit(t, s, api.SubmitRequest{})
	submit(t, s, api.SubmitRequest{Hold: "u"})
	before := everything(t, s)
	var seen []string
	hooks := AlterHooks{Host: "h", Check: func(j *Job, f []api.Field, to *api.SubmitRequest) ([]api.Line, bool, error) {
		seen = append(seen, fmt.Sprintf("%d %v %s %q", j.Number, f, to.Name, to.Verify))
		if to.Name == "bad" {
			return nil, false, api.Errorf(api.CodeRejected, "no\nnever")
		}
		return []api.Line{{Text: "found"}}, to.Verify == "v", nil
	}}
	try := func(verify, name string) (texts []string) {
		reply, err := s.Alter(t.Context(), &api.AlterRequest{Jobs: []string{"1", "2"}, Fields: fields("-N"), To: api.SubmitRequest{Name: name, Verify: verify}}, Caller{UID: alice.UID}, hooks)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range reply.Lines {
			texts = append(texts, l.Text)
		}
		return texts
	}
	const held = "verification: job is already running or is held"
	if diff := cmp.Diff([]string{"no", "never", "no", "never"}, try("", "bad")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"found", held}, try("v", "good")); diff != "" {
		t.Error(diff)
	}
	if after := everything(t, s); after != before {
		t.Errorf("it has changed:\n%s", cmp.Diff(before, after))
	}
	if diff := cmp.Diff([]string{"modified job name of job 1", "found", "modified job name of job 2", held}, try("w", "good")); diff != "" {
		t.Error(diff)
	}
	slices.Sort(seen)
	want := []string{
		`1 [-N] bad ""`, `1 [-N] good "v"`, `1 [-N] good "w"`, `2 [-N] bad ""`, `2 [-N] good ""`, `2 [-N] good ""`,
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
}

// A record with an alteration that execd did not write is damaged.
func TestAlterDamaged(t *testing.T) {
	for _, line := range []string{
		`{"event":"altered"}`,
		`{"event":"altered","change":{"fields":["-N"]}}`,
		`{"event":"altered","change":{"fields":["-b"],"to":{"name":"x"}}}`,
		`{"event":"altered","change":{"hold":"x"},"tasks":"1"}`,
		`{"event":"altered","change":{"hold":"u"},"tasks":"9"}`,
	} {
		if _, _, err := decode(record(t, line)); err == nil {
			t.Errorf("%s is taken for an event", line)
		}
	}
}

func TestCopyable(t *testing.T) {
	s, err := Open(newRoot(t), false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	submit(t, s, api.SubmitRequest{})
	submit(t, s, api.SubmitRequest{})
	owner := Caller{UID: alice.UID, Name: "alice"}
	for _, test := range []struct {
		words  []string
		caller Caller
		want   string
	}{
		{[]string{"2", "1", "2"}, owner, "[1 2]"},
		{[]string{"1"}, Caller{UID: 8, Manager: true}, "[1]"},
		{[]string{"1", "9"}, owner, `job "9" does not exist`},
		{[]string{"j"}, owner, `job "j" does not exist`},
		{[]string{"1.1"}, owner, ErrNotTasks.Text},
		{[]string{"1"}, Caller{UID: 5, Name: "eve", Operator: true}, "job rejected: eve@h is not allowed to resubmit jobs of user alice"},
		{make([]string, api.MaxWords+1), owner, "1001 jobs are too many, at most 1000 are possible"},
	} {
		jobs, err := s.Copyable(test.words, test.caller, "h")
		got := "["
		for i, j := range jobs {
			got += strings.Repeat(" ", min(i, 1)) + fmt.Sprint(j.Number)
		}
		got += "]"
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("Copyable(%.40q) = %s; want %s", test.words, got, test.want)
		}
	}
}
