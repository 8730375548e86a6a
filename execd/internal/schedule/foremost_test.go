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
