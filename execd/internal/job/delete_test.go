package job

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// BenchmarkDelete is what a user's jobs cost when all that wait are deleted at once; an
// operation is one job.
func BenchmarkDelete(b *testing.B) {
	s, _ := openStore(b, newRoot(b))
	s.Keep(0, 1000)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range b.N/64 + 1 {
				r := &api.SubmitRequest{Name: "j", Script: []byte("true\n")}
				if _, _, err := s.Submit(alice, alice.GID, r, Limits{}, time.Now()); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ResetTimer()
	reply, err := s.Delete(b.Context(), &api.DeleteRequest{Users: []string{"alice"}}, Caller{UID: alice.UID, Name: "alice"}, func(*Task) {})
	if err != nil || len(reply.Lines) < b.N {
		b.Fatalf("%d lines, %v", len(reply.Lines), err)
	}
}

// What is said of many jobs, which are deleted some at a time, has their order.
func TestDeleteMany(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	var want []string
	for i := range 3*atSameTime + 1 {
		owner := alice
		if i%40 == 39 {
			owner = bob
		}
		j, _, err := s.Submit(owner, owner.GID, &api.SubmitRequest{Name: "j", Binary: true, Command: "true"}, Limits{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if owner == bob {
			want = append(want, fmt.Sprintf("alice - you do not have the necessary privileges to delete the job \"%d\"", j.Number))
		} else {
			want = append(want, fmt.Sprintf("alice has deleted job %d", j.Number))
		}
	}
	caller := Caller{UID: alice.UID, Name: "alice"}
	reply, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"*"}, Users: []string{"*"}}, caller, func(*Task) {})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range reply.Lines {
		got = append(got, l.Text)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if n := s.Len(); n != 2 {
		t.Errorf("%d jobs are left; want 2", n)
	}
}

// A job that ends between being found by its name and being deleted is no failure; one
// that was named by its number does not exist.
func TestDeleteEnded(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	j, _, err := s.Submit(alice, alice.GID, &api.SubmitRequest{Name: "j", Binary: true, Command: "true"}, Limits{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Drop(j); err != nil {
		t.Fatal(err)
	}
	for _, byNumber := range []bool{false, true} {
		var told lines
		d := s.deletion(j, api.Tasks{}, Caller{UID: alice.UID, Name: "alice"}, func(*Task) {})
		d.byNumber = byNumber
		if err := d.run(&told); err != nil || (len(told.all()) > 0) != byNumber {
			t.Errorf("by number %t: %v, %v", byNumber, told.all(), err)
		}
	}
}

// While the record of the job with the last number is there it tells the number, and no
// file of its own is written for each job that is over.
func TestSequenceFromRecord(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	for range 3 {
		submit(t, s, api.SubmitRequest{})
	}
	for number, want := range []int{1: 0, 2: 0, 3: 3} {
		if number == 0 {
			continue
		}
		if _, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{strconv.Itoa(number)}}, Caller{UID: alice.UID}, func(*Task) {}); err != nil {
			t.Error(err)
		}
		if last, err := readSeqNum(root); err != nil || last != want {
			t.Errorf("the last number on disk is %d, %v after job %d; want %d", last, err, number, want)
		}
		if next, _ := openStore(t, root); next.Last() != 3 {
			t.Errorf("the next execd takes %d for the last number after job %d", next.Last(), number)
		}
	}
}

// The file of the last number never has a lower one than before: who writes it late for
// a job must not undo what another has written for the next.
func TestSequence(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	submit(t, s, api.SubmitRequest{})
	caller := Caller{UID: alice.UID}
	remove := func(number string) {
		if _, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{number}}, caller, func(*Task) {}); err != nil {
			t.Error(err)
		}
	}
	remove("1") // the file is there now
	submit(t, s, api.SubmitRequest{})
	second := make(chan struct{})
	var first atomic.Bool
	restore := atomicfile.Inject(func(op atomicfile.Op, path string) error {
		if op != atomicfile.OpRename || path != root.Path(spool.FileSeqNum) || first.Swap(true) {
			return nil
		}
		submit(t, s, api.SubmitRequest{})
		go func() {
			defer close(second)
			remove("3")
		}()
		select {
		case <-second:
		case <-time.After(100 * time.Millisecond): // it has to wait
		}
		return nil
	})
	defer restore()
	remove("2")
	<-second
	if last, err := readSeqNum(root); err != nil || last != 3 {
		t.Errorf("the last number on disk is %d, %v; want 3", last, err)
	}
}
