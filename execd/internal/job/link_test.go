package job

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
)

// manyWaiting returns a Store in whose memory so many jobs of alice wait.
func manyWaiting(tb testing.TB, n int) *Store {
	s, _ := openStore(tb, newRoot(tb))
	for i := range n {
		h := &header{Format: Format, Job: i + 1, Owner: alice.Name, UID: alice.UID, Request: api.SubmitRequest{Name: fmt.Sprintf("job%d", i%1000), Binary: true}}
		s.jobs[h.Job] = newJob(digestOf(h))
	}
	s.next = n + 1
	return s
}

// BenchmarkNames is what a job costs that names others in all options, where many wait.
func BenchmarkNames(b *testing.B) {
	s := manyWaiting(b, 20000)
	r := &api.SubmitRequest{HoldJobs: []string{"job7", "other"}, HoldArray: []string{"job8"}, HoldOK: []string{"job9"}, HoldArrayOK: []string{"job10"}}
	for b.Loop() {
		meant := s.meanings(r, linking, alice.UID)
		if len(meant) != 4 || len(meant[0].jobs) != 20 || len(s.unmatched(meant)) != 1 {
			b.Fatalf("%+v", meant)
		}
	}
}

// Every option has all that its words mean, whatever the others have.
func TestMeanings(t *testing.T) {
	s := manyWaiting(t, 3)
	r := &api.SubmitRequest{
		HoldJobs: []string{"job1", "job*", "2", "0", "4", "no"}, HoldArray: []string{"2", "job1"},
		HoldOK: []string{"job1"}, HoldArrayOK: []string{"3", "9"},
	}
	var got []string
	for _, m := range s.meanings(r, linking, alice.UID) {
		got = append(got, fmt.Sprintf("%s %v %v %v %v", m.field, m.numbers(), m.words, m.over, m.none))
	}
	want := []string{
		"-hold_jid [2 1 3] [job1 job* job*] [0 4] [no]", "-hold_jid_ad [2] [2] [] []",
		"-hold_jid_ok [2] [job1] [] []", "-hold_jid_ad_ok [3] [3] [9] []",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Each of the four lists is altered by itself, whatever it has in common with another, and
// what has failed counts in the list in which it is.
func TestAlterSuccess(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	owner := Caller{UID: alice.UID, Name: "alice"}
	two := api.Tasks{First: 1, Last: 2, Step: 1}
	for range 3 {
		submit(t, s, api.SubmitRequest{Tasks: two}) // 1, 2, 3
	}
	j := submit(t, s, api.SubmitRequest{Tasks: two, HoldJobs: []string{"1"}, HoldOK: []string{"1", "2"}, HoldArrayOK: []string{"2"}})
	is := func(what string, ends, tasks []int, ready string) {
		t.Helper()
		for range 2 {
			var got []int
			for n := 1; n < 6; n++ {
				if j.waitsFor[n] {
					got = append(got, n)
				}
			}
			if d := cmp.Diff([][]int{ends, tasks}, [][]int{got, j.waitsForTasks}); d != "" {
				t.Errorf("%s: %s", what, d)
			}
			wantReady(t, s, j, ready)
			s.compact(j)
			s, _ = openStore(t, root) // a new execd knows as well
			j = s.Get(j.Number)
		}
	}
	try := func(want []string, to api.SubmitRequest, f ...api.Field) {
		t.Helper()
		got := alter(t, s, owner, api.AlterRequest{Jobs: []string{"4"}, Fields: f, To: to})
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	is("submitted", []int{1, 2}, []int{2}, "0 from 0")
	try([]string{"modified job id success hold list of job 4", "   blocking jobs: 3", "   exited jobs:   NONE"},
		api.SubmitRequest{HoldOK: []string{"3"}}, api.FieldHoldOK)
	is("success altered", []int{1, 3}, []int{2}, "0 from 0")
	try([]string{
		"modified job id hold list of job 4", "   blocking jobs: NONE", "   exited jobs:   99",
		"modified job id success hold list of job 4", "   blocking jobs: 1", "   exited jobs:   NONE",
	}, api.SubmitRequest{HoldJobs: []string{"99"}, HoldOK: []string{"1"}}, api.FieldHoldJobs, api.FieldHoldOK)
	is("both altered", []int{1}, []int{2}, "0 from 0")
	failing(t, s, s.Get(1))
	live(t, s, s.Get(1), FateDone)
	is("one has failed", nil, []int{2}, "0 from 0")

	try([]string{
		"modified job id success hold list of job 4", "   blocking jobs: NONE", "   exited jobs:   1",
		"tasks 1 of job 1 failed, the first with exit code 3: it will never start; delete it by qdel",
	}, api.SubmitRequest{HoldOK: []string{"1"}}, api.FieldHoldOK)
	changed, _, stuck := s.Changed(j, api.Tasks{})
	if !stuck.Vain {
		t.Error("it does not wait in vain")
	}
	try([]string{"modified job id success hold list of job 4", "   blocking jobs: 3", "   exited jobs:   NONE"},
		api.SubmitRequest{HoldOK: []string{"3"}}, api.FieldHoldOK)
	select {
	case <-changed:
	default:
		t.Error("who waits was not told")
	}
	if _, _, stuck := s.Changed(j, api.Tasks{}); stuck.Reason != "" {
		t.Errorf("the failed one is not waited for any more, and it is stuck: %+v", stuck)
	}
	try([]string{"modified job id success hold array list of job 4", "   blocking jobs: NONE", "   exited jobs:   1", "tasks 1 of job 1 failed, the first with exit code 3: tasks 1 will never start; delete it by qdel"},
		api.SubmitRequest{HoldArrayOK: []string{"1"}}, api.FieldHoldArrayOK)
	is("task by task", []int{3}, []int{1}, "0 from 0")
	for range 2 {
		live(t, s, s.Get(3), FateDone)
	}
	is("the rest may start", nil, []int{1}, "1 from 2")

	try([]string{`! denied: job "4" may not be its own jobnet predecessor`}, api.SubmitRequest{HoldOK: []string{"4"}}, api.FieldHoldOK)
	after := submit(t, s, api.SubmitRequest{HoldOK: []string{"4"}})
	try([]string{fmt.Sprintf("! job 4 dependency change would generate a dependency cycle with job %d", after.Number)},
		api.SubmitRequest{HoldOK: []string{fmt.Sprint(after.Number)}}, api.FieldHoldOK)
	try([]string{`! job rejected: there is no job "x" that is not finished, whose success could be waited for`}, api.SubmitRequest{HoldOK: []string{"x"}}, api.FieldHoldOK)
	if s.graph.waits[alice.UID] != len(s.graph.followers[2])+len(s.graph.followers[4]) {
		t.Errorf("waits %v, followers %v", s.graph.waits, s.graph.followers)
	}
}
