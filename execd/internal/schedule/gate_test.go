package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/execd/internal/conf"
)

// gated is a host of two queues of two slots, and jobs of which the slots take
// only some.
func gated(t *testing.T, takes Gate) *Scheduler {
	t.Helper()
	s := New(&conf.Config{Hostname: "node", Queues: []conf.Queue{
		{Name: "a.q", Slots: 2, Batch: true, SeqNo: 1}, {Name: "b.q", Slots: 2, Batch: true, SeqNo: 2},
	}})
	s.SetGate(takes)
	return s
}

// POLICY-START: of jobs that ask for the same those start that a slot is willing
// to run, and the others do not stand in their way.
func TestGateChoosesJobs(t *testing.T) {
	s := gated(t, func(job int, _ string, _ int) (int, string, bool) {
		if job%2 == 0 {
			return 2, "", false
		}
		return 0, "START of slot1 is false", false
	})
	for n := 1; n <= 6; n++ {
		s.Add(Job{Number: n, User: "u", Submitted: epoch.Add(time.Duration(n)), Tasks: 1})
	}
	var started []int
	for {
		number, g, ok := s.Next(epoch)
		if !ok {
			break
		}
		s.Started(Running{Job: number, Task: 1, User: "u", Started: epoch, Grant: g})
		started = append(started, number)
	}
	if want := []int{2, 4, 6}; !slices.Equal(started, want) {
		t.Errorf("started %v; want %v", started, want)
	}
	if lines := strings.Join(s.Reasons(1, epoch), "\n"); !strings.Contains(lines, `cannot run in queue "b.q@node" because START of slot1 is false`) {
		t.Errorf("the reasons do not name the expression:\n%s", lines)
	}
	if got, want := s.Verdicts(epoch)(1), "Jobs can not run because no slot is willing to run them"; got != want {
		t.Errorf("verdict %q; want %q", got, want)
	}
}

func TestGateLimitsSlots(t *testing.T) {
	willing := 1
	s := gated(t, func(int, string, int) (int, string, bool) { return willing, "no", true })
	s.host.conf.PEs = map[string]*conf.PE{"smp": {Name: "smp", Slots: 9}}
	for i := range s.host.conf.Queues {
		s.host.conf.Queues[i].PEs = []string{"smp"}
	}
	s.Configure(s.host.conf)
	s.Add(Job{Number: 1, User: "u", Submitted: epoch, Tasks: 1, PE: "smp", Slots: []Range{{3, 3, 1}}})
	if _, _, ok := s.Next(epoch); ok {
		t.Fatal("three slots were granted; only one of each queue was willing")
	}
	willing = 2
	if _, _, ok := s.Next(epoch); ok {
		t.Fatal("a pass is begun anew without a word that something has changed")
	}
	s.GateChanged()
	if _, g, ok := s.Next(epoch); !ok || g.Slots() != 3 {
		t.Fatal("three slots are willing, and are not granted")
	}
}

// Slots that are kept for somebody are not given out, are shown apart from those
// in use, and cost nobody his share.
func TestKeptSlots(t *testing.T) {
	s := gated(t, nil)
	kept := func(n int) Running {
		return Running{Job: -n, Started: epoch, Kept: true, Grant: &Grant{Queues: []QueueSlots{{"a.q", 1}}}}
	}
	s.Started(kept(1))
	s.Started(kept(2))
	state := s.Queues(epoch)[0]
	if state.Used != 0 || state.Reserved != 2 {
		t.Errorf("used %d, reserved %d; want 0 and 2", state.Used, state.Reserved)
	}
	if _, err := s.Place(&Job{Number: 9, User: "u"}, "a.q", epoch); err == nil {
		t.Error("a job is placed where no slot is free")
	}
	s.Ended(-1, 0, Used{}, epoch)
	g, err := s.Place(&Job{Number: 9, User: "u"}, "a.q", epoch)
	if err != nil {
		t.Fatal(err)
	}
	s.Started(Running{Job: 9, Task: 1, User: "u", Started: epoch, Grant: g})
	s.Add(Job{Number: 10, User: "u", Submitted: epoch, Tasks: 9})
	n := 0
	for {
		number, g, ok := s.Next(epoch)
		if !ok {
			break
		}
		if g.Queues[0].Queue != "b.q" {
			t.Errorf("a slot of %s is granted; both are taken", g.Queues[0].Queue)
		}
		n++
		s.Started(Running{Job: number, Task: n, User: "u", Started: epoch, Grant: g})
	}
	if n != 2 {
		t.Errorf("%d tasks started; want 2", n)
	}
	if _, ok := s.users[""]; ok {
		t.Error("there is a user without a name")
	}
}

// What the slots say of all jobs that ask for the same is asked once in a pass.
func TestGateIsAskedOnce(t *testing.T) {
	for same, want := range map[bool]int{true: 2, false: 200} { // by two queues
		asked := 0
		s := gated(t, func(int, string, int) (int, string, bool) {
			asked++
			return 0, "no", same
		})
		for n := 1; n <= 100; n++ {
			s.Add(Job{Number: n, User: "u", Submitted: epoch.Add(time.Duration(n)), Tasks: 1})
		}
		if _, _, ok := s.Next(epoch); ok {
			t.Fatal("a job is started that no slot takes")
		}
		if asked != want {
			t.Errorf("same %t: asked %d times for 100 jobs; want %d", same, asked, want)
		}
	}
}
