package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"paddock/execd/internal/conf"
)

// Jobs are foremost in the order in which they start when there is room for all.
func TestForemost(t *testing.T) {
	for day := range 200 {
		r := rand.New(rand.NewPCG(7, uint64(day)))
		c := &conf.Config{Queues: []conf.Queue{{Name: "q", Slots: 1000, Batch: true}}}
		w := &c.Scheduling
		w.WeightPriority, w.WeightUrgency, w.WeightTicket, w.WeightWaiting = r.Float64(), r.Float64(), r.Float64(), r.Float64()
		s := New(c)
		s.SetShares(map[string]Share{"0": {Usage: 100, Time: epoch}, "1": {Usage: 30, Time: epoch}})
		jobs := 1 + r.IntN(60)
		tasks := map[int]int{}
		for n := 1; n <= jobs; n++ {
			j := Job{Number: n, User: fmt.Sprint(r.IntN(3)), Priority: r.IntN(3) * 100, Submitted: epoch.Add(time.Duration(r.IntN(50)) * time.Second), Tasks: 1 + r.IntN(2)}
			tasks[n] = j.Tasks
			s.Add(j)
		}
		now := epoch.Add(time.Minute)
		// The lines are put in order at the begin of a pass.
		first, g, ok := s.Next(now)
		if !ok {
			t.Fatal("nothing starts")
		}
		s.GiveBack(first, g)
		list := s.Foremost(now, jobs)
		few := s.Foremost(now, 3)
		if !slices.Equal(few, list[:min(3, jobs)]) {
			t.Errorf("day %d: the first are %v of %v", day, few, list)
		}
		var want, got []int
		for {
			n, _, ok := s.Next(now)
			if !ok {
				break
			}
			if !slices.Contains(want, n) {
				want = append(want, n)
			}
		}
		for _, l := range list {
			if l.Tasks != tasks[l.Job] {
				t.Errorf("day %d: %+v has %d tasks", day, l, tasks[l.Job])
			}
			got = append(got, l.Job)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("day %d: foremost are %v, and start as %v", day, got, want)
		}
	}
}

// Who may have so many tasks running is foremost with no more of them, and those that run on
// other hosts count, also in his share.
func TestForemostLimit(t *testing.T) {
	c := &conf.Config{Queues: []conf.Queue{{Name: "q", Slots: 2, Batch: true}}}
	c.Scheduling.MaxUserRunning, c.Scheduling.UsageWeights.CPU = 3, 1
	s := New(c)
	s.Add(Job{Number: 1, User: "a", Submitted: epoch, Tasks: 2})
	s.Add(Job{Number: 2, User: "a", Submitted: epoch.Add(1), Tasks: 5})
	s.Add(Job{Number: 3, User: "b", Submitted: epoch.Add(2), Tasks: 1})
	tasks := func() map[int]int {
		list := map[int]int{}
		for _, w := range s.Foremost(epoch, 10) {
			list[w.Job] = w.Tasks
		}
		return list
	}
	want := func(text string, n1, n2 int, may bool) {
		t.Helper()
		if got := tasks(); got[1] != n1 || got[2] != n2 || got[3] != 1 || s.MayRun("a") != may || !s.MayRun("b") {
			t.Errorf("%s: foremost are %v, and another may run: %t; want %d and %d, and %t", text, got, s.MayRun("a"), n1, n2, may)
		}
	}
	want("nothing runs", 2, 1, true)
	for n := 1; n <= 3; n++ {
		s.Started(Running{Job: 9, Task: n, User: "a", Started: epoch, Grant: &Grant{}, Away: true})
	}
	want("three run elsewhere", 0, 0, false)
	if n, _, ok := s.Next(epoch); !ok || n != 3 {
		t.Errorf("job %d starts here, want that of the other user", n)
	}
	s.Ended(9, 2, Used{CPU: 50}, epoch)
	if got := tasks(); got[1] != 1 || got[2] != 0 {
		t.Errorf("two run elsewhere: foremost are %v", got)
	}
	if got := s.Shares()["a"].Usage; got != 50 {
		t.Errorf("the share of the user is %v", got)
	}
}
