package job

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/spool/spooltest"
)

// Whether the world was told of an accepted job is known after a restart, and in
// a record that was made anew.
func TestReplied(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	submitted := func(id string) *Job {
		r := api.SubmitRequest{Name: "n", Binary: true, Command: "/bin/true"}
		if id != "" {
			r.Work = &api.Work{Ad: "Cmd = \"/bin/true\"\n", Identity: id, Slot: "1", Holder: "fetch"}
		}
		return submit(t, s, r)
	}
	told, untold := submitted("a"), submitted("b")
	submitted("")
	if err := s.Replied(told); err != nil {
		t.Fatal(err)
	}
	check := func(s *Store, when string) {
		t.Helper()
		list := s.Claimed()
		if len(list) != 2 || list[0].Identity != "a" || !list[0].Replied || list[1].Identity != "b" || list[1].Replied || list[1].Number != untold.Number {
			t.Fatalf("%s: jobs under claims are %+v; want a, replied, and b, not replied", when, list)
		}
		if list[0].State != Pending {
			t.Errorf("%s: job a is %v", when, list[0].State)
		}
	}
	check(s, "at once")
	data, err := s.compacted(told)
	if err != nil {
		t.Fatal(err)
	}
	if j, _, err := decode(data); err != nil || !j.replied {
		t.Errorf("the record made anew says replied %v, %v", j != nil && j.replied, err)
	}
	again, _ := openStore(t, root)
	check(again, "after a restart")
}

// Who wants to know is told before a job that waits is deleted, while it is there and
// cannot be started; and again if it stays.
func TestOnDelete(t *testing.T) {
	type state struct {
		s          *Store
		work       *Job
		told, back int
	}
	spooltest.EachFault(t, unix.EIO, func(t *testing.T) *state {
		s, _ := openStore(t, newRoot(t))
		st := &state{s: s}
		st.work = submit(t, s, api.SubmitRequest{Name: "n", Binary: true, Command: "/bin/true", Work: &api.Work{Ad: "Cmd = \"/bin/true\"\n", Slot: "1", Holder: "fetch"}})
		s.Ready(st.work, time.Now())
		s.OnDelete(func(j *Job) func() {
			if j != st.work || s.Get(1) != j || s.Take(j, Start{Queue: "all.q"}, time.Now()) != nil {
				t.Errorf("job %d is there: %t, or can be started", j.Number, s.Get(j.Number) == j)
			}
			st.told++
			return func() { st.back++ }
		})
		return st
	}, func(_ *testing.T, st *state) error {
		_, err := st.s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"1"}}, Caller{UID: alice.UID, Name: "alice"}, func(*Task) {})
		return err
	}, func(t *testing.T, st *state, err error) {
		stays := 0
		if st.s.Get(1) != nil {
			stays = 1
		}
		if st.told != 1 || st.back != stays {
			t.Errorf("answer %v: told %d times, and %d times that the job stays, which is so: %d", err, st.told, st.back, stays)
		}
	})
}
