package job

import (
	"testing"
	"time"

	"paddock/execd/api"
)

// TestCommon has jobs that are alike share memory, and each its own when it differs.
func TestCommon(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	var numbers []int
	for _, name := range []string{"a", "a", "b"} {
		j, _, err := s.Submit(alice, alice.GID, &api.SubmitRequest{Name: name, Binary: true, Command: "true"}, Limits{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, j.Number)
	}
	s, _ = openStore(t, root)
	first, second, other := s.Get(numbers[0]), s.Get(numbers[1]), s.Get(numbers[2])
	if first.Terms() != second.Terms() || first.Submitter != second.Submitter || first.particulars != second.particulars {
		t.Error("two jobs that are alike share nothing")
	}
	if other.Terms().Name != "b" || other.Submitter != first.Submitter {
		t.Errorf("the third job is %+v of %+v; want b of alice", other.Terms(), other.Submitter)
	}
	all := first.all()
	if err := first.hold(&all, "u", true); err != nil {
		t.Fatal(err)
	}
	if len(first.held) != 1 || len(second.held) != 0 {
		t.Errorf("one of two jobs is held: %v, %v", first.held, second.held)
	}
}
