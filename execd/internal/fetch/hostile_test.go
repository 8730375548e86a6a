package fetch

import (
	"testing"
	"testing/synctest"

	"paddock/execd/internal/hook"
	"paddock/execd/internal/slot"
)

// Execd was killed when it had claimed a slot for work and not recorded the work yet,
// and the administrator has taken the hook away before he started it again: the claim
// is given back, since nobody else would ever.
func TestClaimWithoutWorkIsGivenBack(t *testing.T) {
	in(t, "", []int{1, 2}, func(t *testing.T, b *bench) {
		b.slots.set(1, func(s *fakeSlot) {
			s.State, s.Activity, s.Fetched, s.Claim = "Claimed", "Idle", true, "<h>#1#1#..."
		})
		stop := b.start()
		synctest.Wait()
		stop()
		if got, want := b.slots.told(), "slot 1: withdrawn: the slot fetches no work any more"; got != want {
			t.Errorf("the slots were told %q; want %q", got, want)
		}
	})
}

// A claim under which nothing was recorded ends without a word, whatever runs in the
// slot under another one.
func TestEvictionOfNoWork(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		stop := b.start()
		defer stop()
		synctest.Wait()
		b.Evicted(Eviction{Slot: slot.Static(1), Claim: "<h>#1#9#...", Reason: "the work could not be recorded"})
		synctest.Wait()
		if n := len(b.hooks.of(hook.EvictClaim)); n != 0 {
			t.Error("EVICT_CLAIM is told of work that goes on")
		}
		if b.Work(1) == nil {
			t.Error("the work that runs is forgotten")
		}
	})
}
