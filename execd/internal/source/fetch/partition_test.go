package fetch

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
)

// sized is work as a partitionable slot wants it.
func sized(id string) string {
	return adOf(id) + "RequestCpus = 1\nRequestMemory = 1\nRequestDisk = 1\n"
}

// A partitionable slot is given work until nothing of it is left. What was carved asks
// for itself when its work is over, and is given back when no more comes.
// REQ-HOOK-119: nobody is told before the slot for the work is there.
func TestPartitionable(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.slots.partition(1, 2)
		b.hooks.fetch = once(sized("a"), sized("b"), sized("c"))
		b.start()
		if n := len(b.hooks.of(hook.FetchWork)); n != 2 {
			t.Errorf("%d questions; want two, and none when nothing is left", n)
		}
		b.slots.endIn(t, b.Layer, slot.ID{Number: 1, Dynamic: 2}) // c comes
		synctest.Wait()
		b.slots.endIn(t, b.Layer, slot.ID{Number: 1, Dynamic: 1}) // nothing more comes
		synctest.Wait()
		want := `slot 1_1: claimed <h>#1#1#...
slot 1_1: job 1 starts
slot 1_2: claimed <h>#1#2#...
slot 1_2: job 2 starts
slot 1_2: claimed <h>#1#2#...
slot 1_2: job 3 starts
slot 1_1: withdrawn: no more work`
		if got := b.slots.told(); got != want {
			t.Errorf("the slots were told\n%s\nwant\n%s", got, want)
		}
		var asked []string
		for _, c := range b.hooks.of(hook.FetchWork) {
			asked = append(asked, c.label)
		}
		// What was given back is the parent's again, which may ask at once.
		if got, want := strings.Join(asked, ", "), "slot 1, slot 1, slot 1_2, slot 1_1, slot 1"; got != want {
			t.Errorf("%s have asked; want %s", got, want)
		}
		replies := b.hooks.of(hook.ReplyFetch)
		for i, want := range []string{"DSlotID = 1\n", "DSlotID = 2\n", "DSlotID = 2\n"} {
			if i >= len(replies) || !strings.Contains(replies[i].stdin, want) {
				t.Fatalf("replies %v; want three, that of %d with the ad of the slot with %s", replies, i, want)
			}
		}
		if left := b.hooks.of(hook.EvictClaim); len(left) != 1 || left[0].label != "slot 1_1" || !strings.Contains(left[0].stdin, `GlobalJobId = "a"`) {
			t.Errorf("EVICT_CLAIM: %v", left)
		}
		// A question that brought nothing has the delay behind it.
		time.Sleep(299 * time.Second)
		synctest.Wait()
		if n := len(b.hooks.of(hook.FetchWork)); n != 5 {
			t.Errorf("%d questions within the delay; want 5", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(b.hooks.of(hook.FetchWork)); n != 6 {
			t.Errorf("%d questions after the delay; want 6", n)
		}
	})
}

// REQ-HOOK-106: work for a partitionable slot says how much of it it needs, or is
// refused; the log has what is missing.
func TestPartitionableWithoutRequest(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.slots.partition(1, 2)
		b.hooks.fetch = once(strings.ReplaceAll(sized("a"), "RequestMemory", "Memory"))
		b.start()
		if replies := b.hooks.of(hook.ReplyFetch); len(replies) != 1 || replies[0].args != "reject" || replies[0].label != "slot 1" {
			t.Errorf("replies %v; want the work rejected", replies)
		}
		if log := b.log.String(); strings.Count(log, "no RequestMemory, which a partitionable slot needs") != 1 {
			t.Errorf("the log has\n%s\nwant one line that says what is missing", log)
		}
		if got := b.slots.told(); got != "" {
			t.Errorf("the slots were told\n%s", got)
		}
	})
}

// A hook that was not told yet of what became of its work would give the same again:
// the slot that others are carved out of waits until the carved one has told it.
func TestPartitionableWaitsForReply(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.slots.partition(1, 2)
		b.hooks.fetch = once(sized("a"), sized("b"))
		b.hooks.other = func(context.Context, hook.Call) hook.Result {
			time.Sleep(7 * time.Second)
			return hook.Result{}
		}
		began := time.Now()
		b.start()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		asked := b.hooks.of(hook.FetchWork)
		if len(asked) != 2 || asked[1].at.Sub(began) != 7*time.Second {
			t.Errorf("asked %v; want a second question when the first answer was replied to", asked)
		}
	})
}

// What was accepted in a carved slot and not started is started there by the next
// execd, or where it is carved anew when that slot is gone.
func TestPartitionableRestart(t *testing.T) {
	for _, gone := range []bool{false, true} {
		in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
			b.slots.partition(1, 1)
			b.hooks.fetch = once(sized("a"))
			stop := b.start()
			stop()
			carved := slot.ID{Number: 1, Dynamic: 1}
			b.slots.mu.Lock()
			if gone {
				delete(b.slots.slots, carved)
				b.slots.resized(b.slots.slots[carved.Parent()], 1)
			} else {
				b.slots.locked(carved, func(s *fakeSlot) { s.Activity, s.job = "Idle", nil })
			}
			b.slots.mu.Unlock()
			b.open(t)
			stop = b.start()
			if got := b.slots.told(); strings.Count(got, "slot 1_1: job 1 starts") != 2 || strings.Contains(got, "withdrawn") {
				t.Errorf("gone %t: the slots were told\n%s\nwant job 1 started again", gone, got)
			}
			b.slots.endIn(t, b.Layer, carved)
			synctest.Wait()
			if got := b.slots.told(); !strings.HasSuffix(got, "slot 1_1: withdrawn: no more work") || len(b.hooks.of(hook.EvictClaim)) != 1 {
				t.Errorf("gone %t: the slots were told\n%s\nwant the carved slot given back, and the hook told", gone, got)
			}
			stop()
		})
	}
}

// When the hook goes a carved slot keeps its work until that is over, and is given back.
func TestPartitionableFetchesNoMore(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.slots.partition(1, 2)
		b.hooks.fetch = once(sized("a"))
		b.start()
		b.set(t, "START = true\n")
		b.Configure()
		synctest.Wait()
		if got := b.slots.told(); strings.Contains(got, "withdrawn") {
			t.Errorf("the slots were told\n%s", got)
		}
		b.slots.endIn(t, b.Layer, slot.ID{Number: 1, Dynamic: 1})
		synctest.Wait()
		if got := b.slots.told(); !strings.HasSuffix(got, "slot 1_1: withdrawn: the slot fetches no work any more") {
			t.Errorf("the slots were told\n%s", got)
		}
	})
}

// Work that is accepted and not run comes back to who it came from, and would be given
// again: the delay is between two tries.
func TestPartitionableNotRun(t *testing.T) {
	for _, later := range []bool{false, true} {
		in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
			b.slots.partition(1, 1)
			b.hooks.fetch = func(context.Context, hook.Call) hook.Result { return hook.Result{Stdout: []byte(sized("a"))} }
			if !later {
				b.slots.failing = errors.New("no")
			}
			b.start()
			for range 3 {
				if later { // its preparation says so
					b.slots.mu.Lock()
					j := b.slots.slots[slot.ID{Number: 1, Dynamic: 1}].job
					b.slots.mu.Unlock()
					b.Abandoned(j, because("its hook says so"))
					b.slots.endIn(t, b.Layer, slot.ID{Number: 1, Dynamic: 1})
				}
				synctest.Wait()
				n := len(b.hooks.of(hook.FetchWork))
				time.Sleep(299 * time.Second)
				synctest.Wait()
				if now := len(b.hooks.of(hook.FetchWork)); now != n {
					t.Fatalf("later %t: %d questions within the delay", later, now-n)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if now := len(b.hooks.of(hook.FetchWork)); now != n+1 {
					t.Fatalf("later %t: %d questions after the delay; want one", later, now-n)
				}
			}
		})
	}
}

// A slot that is carved under a name that another has had is not given back before its
// work is started: its job is still being recorded then.
func TestCarvedAgain(t *testing.T) {
	in(t, allHooks+"FetchWorkDelay = 1\n", []int{1}, func(t *testing.T, b *bench) {
		b.slots.partition(1, 1)
		b.hooks.fetch = once(sized("a"), "", sized("b"))
		b.o.Limits = func() job.Limits {
			time.Sleep(100 * time.Millisecond)
			return job.Limits{}
		}
		stop := b.start()
		time.Sleep(time.Second)
		b.slots.endIn(t, b.Layer, slot.ID{Number: 1, Dynamic: 1})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		stop()
		want := `slot 1_1: claimed <h>#1#1#...
slot 1_1: job 1 starts
slot 1_1: withdrawn: no more work
slot 1_1: claimed <h>#1#2#...
slot 1_1: job 2 starts`
		if got := b.slots.told(); got != want {
			t.Errorf("the slots were told\n%s\nwant\n%s", got, want)
		}
	})
}

// What was carved asks ahead as well.
func TestAheadCarved(t *testing.T) {
	in(t, aheadKnobs, []int{1}, func(t *testing.T, b *bench) {
		carved := slot.ID{Number: 1, Dynamic: 1}
		b.slots.partition(1, 1)
		b.hooks.fetch = once(sized("a"), sized("b"))
		b.start()
		b.slots.setID(carved, func(s *fakeSlot) { s.Ending = true })
		synctest.Wait()
		asked := b.hooks.of(hook.FetchWork)
		if len(asked) != 2 || asked[1].label != "slot 1_1" || !strings.Contains(asked[1].stdin, "Activity = \"Idle\"\n") {
			t.Fatalf("asked %v; want the second time for what was carved, as it will be", asked)
		}
		b.slots.endIn(t, b.Layer, carved)
		synctest.Wait()
		if got := b.slots.told(); !strings.HasSuffix(got, "slot 1_1: claimed <h>#1#1#...\nslot 1_1: job 2 starts") {
			t.Errorf("the slots were told\n%s", got)
		}
	})
}
