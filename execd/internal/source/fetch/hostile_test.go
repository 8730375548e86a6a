package fetch

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
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
		b.start()
		synctest.Wait()
		b.Evicted(claim.Eviction{Slot: slot.Static(1), ID: claim.PublicID("<h>#1#9#..."), Reason: "the work could not be recorded"})
		synctest.Wait()
		if n := len(b.hooks.of(hook.EvictClaim)); n != 0 {
			t.Error("EVICT_CLAIM is told of work that goes on")
		}
		if b.Work(1) == nil {
			t.Error("the work that runs is forgotten")
		}
	})
}

// delete deletes a job, as its owner may at any time.
func (b *bench) delete(t *testing.T, number string) {
	t.Helper()
	if _, err := b.o.Store.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{number}}, job.Caller{Manager: true}, func(*job.Task) {}); err != nil {
		t.Fatal(err)
	}
}

// evictions are the words in which EVICT_CLAIM is told why, by identity.
func (b *bench) evictions() map[string]string {
	list := map[string]string{}
	for _, c := range b.hooks.of(hook.EvictClaim) {
		_, id, _ := strings.Cut(c.stdin, "GlobalJobId = \"")
		_, why, _ := strings.Cut(c.stdin, "VacateReason = \"")
		id, _, _ = strings.Cut(id, "\"")
		list[id], _, _ = strings.Cut(why, "\"")
	}
	return list
}

// Work that was accepted and deleted before it ran has no exit hook: who it came from
// is told by EVICT_CLAIM, and other work does not take its claim before that.
func TestDeletedBeforeItRan(t *testing.T) {
	in(t, allHooks+`FetchWorkDelay = Activity == "Busy" ? 300 : 0`, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"), adOf("b"), adOf("a"))
		b.start()
		b.delete(t, "1")
		b.slots.set(1, func(s *fakeSlot) { s.Activity, s.job = "Idle", nil }) // its run has come to nothing
		synctest.Wait()
		if got := b.evictions(); len(got) != 1 || got["a"] != deleted {
			t.Errorf("EVICT_CLAIM is told %v; want of a, that %s", got, deleted)
		}
		b.slots.end(t, b.Layer, 1) // of b
		synctest.Wait()
		if got := b.slots.told(); !strings.HasSuffix(got, "job 3 starts") {
			t.Errorf("the slots were told\n%s\nwant a started when it comes once more", got)
		}
	})
}

// So it is when its slot asks for more at that moment, and there is none.
func TestDeletedWhileItAsks(t *testing.T) {
	in(t, allHooks+"FetchWorkDelay = 0", []int{1}, func(t *testing.T, b *bench) {
		first, answers := true, make(chan struct{})
		b.hooks.fetch = func(context.Context, hook.Call) hook.Result {
			if first {
				first = false
				return hook.Result{Stdout: []byte(adOf("a"))}
			}
			<-answers
			return hook.Result{}
		}
		b.start()
		b.delete(t, "1")
		b.slots.set(1, func(s *fakeSlot) { s.Activity, s.job = "Idle", nil })
		close(answers)
		synctest.Wait()
		if got := b.evictions(); len(got) != 1 || got["a"] != deleted {
			t.Errorf("EVICT_CLAIM is told %v; want of a, that %s", got, deleted)
		}
	})
}

// So it is when it waits for its slot, at once.
func TestDeletedWhileItWaits(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		b.start()
		j := b.o.Store.Get(1)
		b.slots.set(1, func(s *fakeSlot) { s.Activity, s.job, s.Promised = "Idle", nil, true })
		b.delete(t, "1")
		b.Unstarted(j, "it was deleted")
		b.Unstarted(j, "it was deleted") // as the stage that would have started it does
		synctest.Wait()
		if got := b.evictions(); len(got) != 1 || got["a"] != deleted {
			t.Errorf("EVICT_CLAIM is told %v; want of a, that %s", got, deleted)
		}
		if got := b.slots.told(); strings.Count(got, "withdrawn") != 1 {
			t.Errorf("the slots were told\n%s\nwant the claim withdrawn, once", got)
		}
	})
}

// And when execd was started meanwhile.
func TestDeletedBeforeTheRestart(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		stop := b.start()
		stop()
		b.slots.set(1, func(s *fakeSlot) {
			s.State, s.Activity, s.job, s.Fetched, s.Claim = "Unclaimed", "Idle", nil, false, ""
		})
		b.open(t)
		b.Recover(t.Context())
		b.delete(t, "1")
		for _, c := range b.takeLeft(slot.Static(1)) {
			newWorker(b.Layer, slot.Static(1), "KW").resume(t.Context(), c)
		}
		synctest.Wait()
		if got := b.evictions(); got["a"] != deleted {
			t.Errorf("EVICT_CLAIM is told %v; want of a, that %s", got, deleted)
		}
	})
}

// Execd is killed when the job is deleted and its claim is not broken yet, and of the
// claim nothing is left, as it only waited for its slot: who the work comes from is told
// all the same, once. While the job is there he is told nothing.
func TestKilledWhenItIsDeleted(t *testing.T) {
	for _, tt := range []struct {
		before bool // that it is deleted
		want   int
	}{{false, 1}, {true, 0}} {
		in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
			b.hooks.fetch = once(adOf("a"))
			stop := b.start()
			stop()
			if tt.before {
				b.Deleting(b.o.Store.Get(1)) // and is not taken back
				if names, err := b.root.ListEvictions(); err != nil || len(names) != 1 {
					t.Errorf("%v, %v are to be told; want one", names, err)
				}
			} else {
				b.delete(t, "1")
			}
			b.slots.set(1, func(s *fakeSlot) {
				s.State, s.Activity, s.job, s.Fetched, s.Claim = "Unclaimed", "Idle", nil, false, ""
			})
			restarts := 2
			if tt.before {
				restarts = 1 // its job runs now
			}
			for range restarts {
				b.open(t)
				stop = b.start()
				stop()
			}
			if got := b.evictions(); len(b.hooks.of(hook.EvictClaim)) != tt.want || tt.want > 0 && got["a"] != deleted {
				t.Errorf("killed before: %t: EVICT_CLAIM is told %v; want %d times that %s", tt.before, got, tt.want, deleted)
			}
			if started := strings.Count(b.slots.told(), "job 1 starts"); tt.before != (started > 1) {
				t.Errorf("killed before: %t: the slots were told\n%s", tt.before, b.slots.told())
			}
			if names, err := b.root.ListEvictions(); err != nil || len(names) != 0 {
				t.Errorf("%v, %v are to be told; want none", names, err)
			}
		})
	}
}

// A job that cannot be deleted stays, and nothing is to be told of it.
func TestNotDeleted(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		b.start()
		b.Deleting(b.o.Store.Get(1))()
		if names, err := b.root.ListEvictions(); err != nil || len(names) != 0 {
			t.Errorf("%v, %v are to be told; want none", names, err)
		}
	})
}

// Work that its slot was taken from is to be done again: when it is handed out to
// another slot that has asked before, it is run, and not taken for what is gone.
func TestHandedOutAgain(t *testing.T) {
	for name, lose := range map[string]func(b *bench){
		"it ran":         func(b *bench) { b.Over(b.o.Store.Get(1), true) },
		"it did not run": func(*bench) {},
	} {
		in(t, allHooks+"FetchWorkDelay = 0", []int{1, 2}, func(t *testing.T, b *bench) {
			first, again := true, make(chan struct{})
			b.hooks.fetch = func(ctx context.Context, c hook.Call) hook.Result {
				if c.Label == "slot 1" && first {
					first = false
					return hook.Result{Stdout: []byte(adOf("a"))}
				}
				if c.Label == "slot 2" { // it waits for work
					select {
					case <-again:
						again = nil
						return hook.Result{Stdout: []byte(adOf("a"))}
					case <-ctx.Done():
						return hook.Result{Err: ctx.Err()}
					}
				}
				return endless(ctx, c)
			}
			b.start()
			time.Sleep(time.Second)
			lose(b)
			b.delete(t, "1")
			b.slots.Withdraw("<h>#1#1#...", slot.Hold{Text: "somebody wants the slot"})
			synctest.Wait()
			if got := b.evictions(); len(got) != 1 {
				t.Fatalf("%s: EVICT_CLAIM is told %v", name, got)
			}
			close(again)
			synctest.Wait()
			if got := b.slots.told(); !strings.HasSuffix(got, "slot 2: job 2 starts") {
				t.Errorf("%s: the slots were told\n%s\nwant the work started in the other one", name, got)
			}
		})
	}
}

// A queue has fewer slots, and the slots of the next one other numbers: who the work
// there comes from is asked about its lease as before, and told when it is over. Of
// the slots that are gone, too.
func TestSlotsHaveOtherNumbers(t *testing.T) {
	knobs := allHooks + "KW_HOOK_RENEW_CLAIM = $(HOOK)\nFetchWorkDelay = SlotID\nALIVE_INTERVAL = 30\nMAX_CLAIM_ALIVES_MISSED = 1\n"
	in(t, knobs, []int{1, 2, 3}, func(t *testing.T, b *bench) {
		b.hooks.fetch = func(_ context.Context, c hook.Call) hook.Result {
			return hook.Result{Stdout: []byte(adOf(c.Label))}
		}
		b.start()
		claims := map[int]string{}
		b.slots.mu.Lock()
		for id, s := range b.slots.slots {
			claims[id.Number] = s.Claim
		}
		// Of those of the first queue one is left.
		close(b.slots.slots[slot.Static(2)].changed)
		b.slots.slots[slot.Static(2)] = b.slots.slots[slot.Static(3)]
		b.slots.slots[slot.Static(2)].Slot = slot.Static(2)
		delete(b.slots.slots, slot.Static(3))
		close(b.slots.listed)
		b.slots.listed = make(chan struct{})
		for _, s := range b.slots.slots {
			close(s.changed)
			s.changed = make(chan struct{})
		}
		b.slots.mu.Unlock()
		b.Evicted(claim.Eviction{ID: claim.PublicID(claims[2]), Reason: "it is gone"})
		synctest.Wait()
		if got := b.evictions(); len(got) != 1 || got["slot 2"] != "it is gone" {
			t.Errorf("EVICT_CLAIM is told %v; want of the work in the slot that is gone", got)
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		renewed := false
		for _, c := range b.hooks.of(hook.RenewClaim) {
			renewed = renewed || strings.Contains(c.stdin, `GlobalJobId = "slot 3"`)
		}
		if !renewed {
			t.Error("RENEW_CLAIM is not asked about the work in the slot that has another number")
		}
		b.slots.Withdraw(claims[3], slot.Hold{Text: "somebody wants it"})
		synctest.Wait()
		if got := b.evictions(); len(got) != 2 || got["slot 3"] != "somebody wants it" {
			t.Errorf("EVICT_CLAIM is told %v; want of the work in the slot that has another number", got)
		}
		names, err := b.root.ListEvictions()
		if err != nil || len(names) != 0 {
			t.Errorf("%v are still to be told, %v", names, err)
		}
	})
}

// Work cannot say that it is somebody else's, by whatever START and RANK look at.
func TestWhoseWorkItIs(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.o.Host = "node"
		var seen *classad.Ad
		b.slots.refuse = func(work *classad.Ad) error { seen = work; return nil }
		b.hooks.fetch = once(adOf("a", `user = "boss@node"`, `OwnerGroup = "bosses"`, `Wanted = true`))
		b.start()
		for name, want := range map[string]string{"Owner": "me", "User": "me@node", "OwnerGroup": "users"} {
			if got, _ := text(seen, name); got != want {
				t.Errorf("slots see %s = %q; want %q", name, got, want)
			}
		}
		if stdin := b.hooks.of(hook.ReplyFetch)[0].stdin; !strings.Contains(stdin, "user = \"boss@node\"\n") {
			t.Errorf("REPLY_FETCH has read\n%s\nwant the ad as it came", stdin)
		}
	})
}

// Execd was killed when a job that had not run was deleted, and its claim was still to
// be given back: who the work comes from is told all the same, once.
func TestClaimThatLostItsWork(t *testing.T) {
	in(t, allHooks, []int{1, 2}, func(t *testing.T, b *bench) {
		for n, id := range map[int]string{1: "a", 2: "b"} {
			work, err := classad.ParseOld(adOf(id, `HookKeyword = "KW"`))
			if err != nil {
				t.Fatal(err)
			}
			b.slots.set(n, func(s *fakeSlot) {
				s.State, s.Activity, s.Fetched, s.Claim, s.work = "Claimed", "Idle", true, "<h>#1#"+id+"#...", work
			})
		}
		// Of b it was already told that this is to be told.
		n := notice{Slot: "2", Keyword: "KW", Claim: "<h>#1#b#...", Work: adOf("b", `VacateReason = "before"`)}
		if err := b.keep(7, &n); err != nil {
			t.Fatal(err)
		}
		b.start()
		if got := b.evictions(); len(b.hooks.of(hook.EvictClaim)) != 2 || got["a"] != "no more work" || got["b"] != "before" {
			t.Errorf("EVICT_CLAIM is told %v; want of both, once", got)
		}
	})
}

// Work that was started after a restart, under another claim than it was accepted
// under, is found by that one after the next.
func TestWorkUnderAnotherClaim(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		stop := b.start()
		stop()
		j := b.o.Store.Get(1)
		b.o.Store.Ready(j, time.Now())
		if task := b.o.Store.Take(j, job.Start{Queue: "all.q", Claim: "<h>#2#1#..."}, time.Now()); task == nil {
			t.Fatal("the job does not start")
		}
		b.slots.set(1, func(s *fakeSlot) { s.Claim, s.job = "<h>#2#1#...", nil }) // which has just ended
		b.Layer = New(b.o)
		b.slots.evicted = b.Evicted
		b.o.Store.OnDelete(b.Deleting)
		b.start()
		b.slots.Withdraw("<h>#2#1#...", slot.Hold{Text: "somebody wants it"})
		synctest.Wait()
		if got := b.evictions(); got["a"] != "somebody wants it" {
			t.Errorf("EVICT_CLAIM is told %v; want of a", got)
		}
	})
}
