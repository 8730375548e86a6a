package job

import (
	"testing"

	"paddock/execd/api"
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
		list := s.Foreigners()
		if len(list) != 2 || list[0].Identity != "a" || !list[0].Replied || list[1].Identity != "b" || list[1].Replied || list[1].Number != untold.Number {
			t.Fatalf("%s: foreign jobs are %+v; want a, replied, and b, not replied", when, list)
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
