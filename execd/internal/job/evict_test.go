package job

import (
	"testing"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/spool"
	"paddock/spool/spooltest"
)

// A task that has to leave its slot leaves it though the disk is full, and what is to
// become of it then is not forgotten: its end can be recorded when there is room.
func TestEvictFaults(t *testing.T) {
	type state struct {
		root *spool.Root
		s    *Store
		task *Task
	}
	for _, want := range []Want{{Signal: 15, By: "slot1", Requeue: true, Slot: true}, {Signal: 15, By: "slot1", Requeue: true, Slot: true, Error: "it is bad"}} {
		spooltest.EachFault(t, unix.ENOSPC, func(t *testing.T) state {
			root := newRoot(t)
			s, _ := openStore(t, root)
			submit(t, s, api.SubmitRequest{})
			return state{root, s, startTask(t, s, s.Get(1))}
		}, func(_ *testing.T, st state) error {
			_, err := st.s.Evict(st.task, want)
			return err
		}, func(t *testing.T, st state, err error) {
			if got := st.s.Want(st.task); got == nil || *got != want {
				t.Fatalf("Evict returned %v, and what is wanted is %+v; want %+v", err, got, want)
			}
			endTask(t, st.s, st.task, FateRequeue)
			if err := st.s.Settle(st.task); err != nil {
				t.Fatal(err)
			}
			s, log := openStore(t, st.root)
			state := Pending
			if want.Error != "" {
				state = Errored
			}
			if got, ok := s.ClaimedState(s.Get(1)); !ok || got != state || log.Len() > 0 {
				t.Errorf("after Evict returned %v a new execd finds it %v; want %v%s", err, got, state, log)
			}
		})
	}
}
