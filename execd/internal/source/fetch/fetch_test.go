package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/spool"
	"paddock/spool/spooltest"
)

// work is an ad that a hook may print.
func adOf(id string, more ...string) string {
	return fmt.Sprintf("Cmd = \"/bin/true\"\nGlobalJobId = %q\n%s", id, strings.Join(append(more, ""), "\n"))
}

// in runs a test with a clock of its own.
func in(t *testing.T, knobs string, slots []int, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, knobs, slots...)
		f(t, b)
	})
}

// The life of two jobs under one claim, and what the hooks see of it.
//
// REQ-HOOK-7, REQ-HOOK-10, REQ-HOOK-11, REQ-HOOK-15, REQ-HOOK-16, REQ-HOOK-17, REQ-HOOK-18, REQ-HOOK-24, REQ-HOOK-25, REQ-HOOK-28, REQ-HOOK-64.
func TestLife(t *testing.T) {
	in(t, allHooks+`FetchWorkDelay = State == "Claimed" && Activity == "Idle" ? 0 : 300`, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"), adOf("b"))
		b.start()
		began := time.Now()
		b.slots.end(t, b.Layer, 1)
		synctest.Wait()
		b.slots.end(t, b.Layer, 1)
		synctest.Wait()
		if d := time.Since(began); d != 0 {
			t.Errorf("%v went by between jobs of one claim; want none", d)
		}
		want := `slot 1: claimed <h>#1#1#...
slot 1: job 1 starts
slot 1: claimed <h>#1#1#...
slot 1: job 2 starts
slot 1: withdrawn: no more work`
		if got := b.slots.told(); got != want {
			t.Errorf("the slots were told\n%s\nwant\n%s", got, want)
		}
		if got, want := b.hooks.words(), "FETCH_WORK, REPLY_FETCH accept, FETCH_WORK, REPLY_FETCH accept, FETCH_WORK, EVICT_CLAIM"; got != want {
			t.Errorf("the hooks were\n%s\nwant\n%s", got, want)
		}
		evict := b.hooks.of(hook.EvictClaim)[0]
		if !strings.Contains(evict.stdin, `GlobalJobId = "b"`) || !strings.Contains(evict.stdin, `HookKeyword = "KW"`) ||
			!strings.Contains(evict.stdin, "VacateReason = \"no more work\"\n") {
			t.Errorf("EVICT_CLAIM has read\n%s", evict.stdin)
		}
		// Then the other delay holds.
		time.Sleep(299 * time.Second)
		synctest.Wait()
		if n := len(b.hooks.of(hook.FetchWork)); n != 3 {
			t.Errorf("%d questions in 299 s; want 3", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(b.hooks.of(hook.FetchWork)); n != 4 {
			t.Errorf("%d questions in 300 s; want 4", n)
		}
	})
}

// With FETCH_WORK_AHEAD the next work is asked for while the end of the last is told,
// and decided when that is done.
func TestAhead(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		knobs := fmt.Sprintf("%sFETCH_WORK_AHEAD = %v\nFetchWorkDelay = State == \"Claimed\" && Activity == \"Idle\" ? 0 : 300", allHooks, wanted)
		in(t, knobs, []int{1}, func(t *testing.T, b *bench) {
			b.startAhead()
			asked := b.hooks.of(hook.FetchWork)
			if (len(asked) == 2) != wanted {
				t.Fatalf("FETCH_WORK_AHEAD %v: asked %d times; want the second only if it is wanted", wanted, len(asked))
			}
			if wanted && !strings.Contains(asked[1].stdin, "Activity = \"Idle\"\n") {
				t.Errorf("FETCH_WORK has read\n%s", asked[1].stdin)
			}
			if got := b.slots.told(); strings.Contains(got, "job 2") || len(b.hooks.of(hook.ReplyFetch)) != 1 {
				t.Errorf("FETCH_WORK_AHEAD %v: before the end of the first job the slots were told\n%s", wanted, got)
			}
			b.slots.end(t, b.Layer, 1)
			synctest.Wait()
			if got := b.slots.told(); !strings.HasSuffix(got, "slot 1: claimed <h>#1#1#...\nslot 1: job 2 starts") {
				t.Errorf("FETCH_WORK_AHEAD %v: the slots were told\n%s", wanted, got)
			}
			if n := len(b.hooks.of(hook.FetchWork)); n != 2 {
				t.Errorf("FETCH_WORK_AHEAD %v: asked %d times for two jobs", wanted, n)
			}
		})
	}
}

// REQ-XFER-38, REQ-XFER-39, REQ-XFER-102: while too much output of a claim is on its way
// nothing is asked, what was asked for ahead waits, also over a restart, and the claim stays.
// When some has arrived it goes on at once.
func TestWhileOutputTravels(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		in(t, fmt.Sprintf("%sFETCH_WORK_AHEAD = %v\nFetchWorkDelay = State == \"Claimed\" && Activity == \"Idle\" ? 0 : 300", allHooks, ahead), []int{1}, func(t *testing.T, b *bench) {
			b.startAhead()
			b.slots.set(1, func(s *fakeSlot) { s.Full = true })
			b.slots.end(t, b.Layer, 1)
			time.Sleep(time.Hour)
			synctest.Wait()
			if asked := len(b.hooks.of(hook.FetchWork)); (asked == 2) != ahead {
				t.Errorf("asked %d times", asked)
			}
			if got := b.slots.told(); strings.Contains(got, "job 2") || strings.Contains(got, "withdrawn") {
				t.Errorf("the slots were told\n%s", got)
			}
			began := time.Now()
			b.slots.set(1, func(s *fakeSlot) { s.Full = false })
			synctest.Wait()
			if got := b.slots.told(); !strings.HasSuffix(got, "slot 1: claimed <h>#1#1#...\nslot 1: job 2 starts") || time.Since(began) > 0 {
				t.Errorf("after %v the slots were told\n%s", time.Since(began), got)
			}
		})
	}
	in(t, aheadKnobs, []int{1}, func(t *testing.T, b *bench) {
		stop := b.startAhead()
		b.slots.set(1, func(s *fakeSlot) { s.Full = true })
		b.slots.end(t, b.Layer, 1)
		stop()
		b.open(t)
		b.start()
		if got := b.slots.told(); strings.Contains(got, "job 2") {
			t.Errorf("after a restart the slots were told\n%s", got)
		}
		b.slots.set(1, func(s *fakeSlot) { s.Full = false })
		synctest.Wait()
		if got := b.slots.told(); !strings.HasSuffix(got, "slot 1: job 2 starts") {
			t.Errorf("some has arrived, and the slots were told\n%s", got)
		}
	})
}

// aheadKnobs have a slot ask while the end of its job is told.
const aheadKnobs = allHooks + "FETCH_WORK_AHEAD = true\nFetchWorkDelay = State == \"Claimed\" && Activity == \"Idle\" ? 0 : 300"

// Work that was asked for ahead is a job on disk while the slot has still to decide, and
// none any more when it refuses.
func TestAheadRefused(t *testing.T) {
	in(t, aheadKnobs, []int{1}, func(t *testing.T, b *bench) {
		b.startAhead()
		if n := len(b.o.Store.Claimed()); n != 2 {
			t.Errorf("%d jobs are recorded; want the second before the first is over", n)
		}
		b.slots.refuse = func(*classad.Ad) error { return errors.New("START is false") }
		b.slots.end(t, b.Layer, 1)
		synctest.Wait()
		if replies := b.hooks.of(hook.ReplyFetch); len(replies) != 2 || replies[1].args != "reject" {
			t.Errorf("replies are %v; want the second to reject", replies)
		}
		if n := len(b.o.Store.Claimed()); n != 0 {
			t.Errorf("%d jobs are left", n)
		}
		if got := b.slots.told(); !strings.HasSuffix(got, "slot 1: withdrawn: no suitable work") {
			t.Errorf("the slots were told\n%s", got)
		}
	})
}

// When the claim is another one meanwhile, so is the record.
func TestAheadUnderAnotherClaim(t *testing.T) {
	in(t, aheadKnobs, []int{1}, func(t *testing.T, b *bench) {
		b.startAhead()
		b.slots.set(1, func(s *fakeSlot) {
			s.State, s.Activity, s.Fetched, s.Ending, s.job, s.Claim = "Owner", "Idle", false, false, nil, ""
		})
		synctest.Wait()
		list := b.o.Store.Claimed()
		last := list[len(list)-1]
		if last.Number != 3 || len(list) != 2 { // that of "a" the fake has forgotten to end
			t.Fatalf("jobs are %v; want the second recorded anew as the third", list)
		}
		req, err := b.o.Store.Request(last.Job)
		if err != nil || req.Work.Claim != "<h>#1#2#..." {
			t.Errorf("its claim is %+v, %v; want the new one", req.Work, err)
		}
		if got := b.slots.told(); !strings.HasSuffix(got, "slot 1: claimed <h>#1#2#...\nslot 1: job 3 starts") {
			t.Errorf("the slots were told\n%s", got)
		}
	})
}

// Execd stops while the slot has still to decide: the next one offers the work again,
// and tells who it comes from.
func TestAheadRestart(t *testing.T) {
	in(t, aheadKnobs, []int{1}, func(t *testing.T, b *bench) {
		stop := b.startAhead()
		stop()
		if replies := b.hooks.of(hook.ReplyFetch); len(replies) != 1 {
			t.Errorf("%d replies; want none of the second", len(replies))
		}
		b.slots.end(t, b.Layer, 1)
		b.open(t)
		stop = b.start()
		stop()
		if replies := b.hooks.of(hook.ReplyFetch); len(replies) != 2 || replies[1].args != "accept" {
			t.Errorf("replies are %v; want the second to accept", replies)
		}
		if got := b.slots.told(); strings.Count(got, "job 2 starts") != 1 {
			t.Errorf("the slots were told\n%s", got)
		}
	})
}

// The end of the job before is still told when the next execd starts: what was recorded
// ahead waits for that, and is not taken for work that is to preempt it.
func TestAheadRestartAtAnEnd(t *testing.T) {
	in(t, aheadKnobs, []int{1}, func(t *testing.T, b *bench) {
		stop := b.startAhead()
		stop()
		b.open(t)
		b.start()
		if got := b.slots.told(); strings.Contains(got, "refused") || strings.Contains(got, "job 2") {
			t.Errorf("before the end of the first job the slots were told\n%s", got)
		}
		b.slots.end(t, b.Layer, 1)
		synctest.Wait()
		if got := b.slots.told(); !strings.HasSuffix(got, "slot 1: claimed <h>#1#1#...\nslot 1: job 2 starts") {
			t.Errorf("the slots were told\n%s", got)
		}
		if n := len(b.hooks.of(hook.EvictClaim)); n != 0 {
			t.Errorf("%d evictions", n)
		}
	})
}

// REQ-HOOK-20, REQ-HOOK-21, REQ-HOOK-26, REQ-HOOK-29: what the hooks are handed, to the byte.
func TestStdin(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		b.start()
		fetch, reply := b.hooks.of(hook.FetchWork)[0], b.hooks.of(hook.ReplyFetch)[0]
		if want := "SlotID = 1\nState = \"Unclaimed\"\nActivity = \"Idle\"\n"; fetch.stdin != want || fetch.args != "" {
			t.Errorf("FETCH_WORK has read\n%s\nwith arguments %q; want\n%s", fetch.stdin, fetch.args, want)
		}
		job, slotAd, ok := strings.Cut(reply.stdin, "-----\n")
		if !ok || !strings.HasPrefix(job, "Cmd = \"/bin/true\"\nGlobalJobId = \"a\"\n") {
			t.Errorf("REPLY_FETCH has read\n%s", reply.stdin)
		}
		if want := "SlotID = 1\nState = \"Claimed\"\nActivity = \"Idle\"\nPublicClaimId = \"<h>#1#1#...\"\n"; slotAd != want {
			t.Errorf("the slot's ad is\n%s\nwant\n%s", slotAd, want)
		}
		b.slots.Withdraw("<h>#1#1#...", slot.Hold{Text: "somebody wants it"})
		synctest.Wait()
		evict := b.hooks.of(hook.EvictClaim)[0]
		job += "VacateReason = \"somebody wants it\"\n"
		if gotJob, gotSlot, ok := strings.Cut(evict.stdin, "-----\n"); !ok || evict.args != "" || gotJob != job || !strings.Contains(gotSlot, "PublicClaimId = \"<h>#1#1#...\"\n") {
			t.Errorf("EVICT_CLAIM has read\n%s\nwith arguments %q", evict.stdin, evict.args)
		}
	})
}

// REQ-HOOK-109: the secret goes to those who accept, and only if it is wanted.
func TestSecret(t *testing.T) {
	for _, send := range []bool{false, true} {
		in(t, fmt.Sprintf("%sFETCH_SEND_CLAIM_ID = %v\n", allHooks, send), []int{1}, func(t *testing.T, b *bench) {
			b.hooks.fetch = once(adOf("a"))
			b.start()
			got := b.hooks.of(hook.ReplyFetch)[0].stdin
			if strings.Contains(got, "#secret") != send {
				t.Errorf("FETCH_SEND_CLAIM_ID %v: REPLY_FETCH has read\n%s", send, got)
			}
		})
	}
}

// REQ-HOOK-71, REQ-HOOK-74, REQ-HOOK-75: the delay is counted from the end of a question, and is 300 s where
// nothing is said.
func TestDelayFromCompletion(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = func(context.Context, hook.Call) hook.Result {
			time.Sleep(100 * time.Second)
			return hook.Result{}
		}
		b.start()
		time.Sleep(399 * time.Second)
		synctest.Wait()
		if n := len(b.hooks.of(hook.FetchWork)); n != 1 {
			t.Errorf("%d questions in 399 s; want 1", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		calls := b.hooks.of(hook.FetchWork)
		if len(calls) != 2 || calls[1].at.Sub(calls[0].at) != 400*time.Second {
			t.Errorf("questions at %v; want two, 400 s apart", calls)
		}
		time.Sleep(100 * time.Second)
	})
}

// REQ-HOOK-5, REQ-HOOK-63: each slot asks by itself, and one without a keyword never.
func TestEachSlot(t *testing.T) {
	knobs := `SLOT1_JOB_HOOK_KEYWORD = kw
SLOT2_JOB_HOOK_KEYWORD = kw
KW_HOOK_FETCH_WORK = $(HOOK)
FetchWorkDelay = SlotID * 100`
	in(t, knobs, []int{1, 2, 3}, func(t *testing.T, b *bench) {
		stop := b.start()
		time.Sleep(450 * time.Second)
		synctest.Wait()
		stop()
		n := map[string]int{}
		for _, c := range b.hooks.of(hook.FetchWork) {
			n[c.label]++
		}
		if n["slot 1"] != 5 || n["slot 2"] != 3 || n["slot 3"] != 0 {
			t.Errorf("questions by slot: %v; want 5, 3 and none", n)
		}
	})
}

// REQ-HOOK-69, REQ-HOOK-72, REQ-HOOK-73: a change of the slot's state has the delay evaluated again, with the job as
// TARGET; both ways to write the usual policy mean the same.
func TestDelayIsEvaluatedAgain(t *testing.T) {
	for _, policy := range []string{
		`State == "Claimed" && Activity == "Idle" ? 0 : 300`,
		`ifThenElse(State == "Claimed" && Activity == "Idle", 0, 300)`,
	} {
		in(t, allHooks+"FetchWorkDelay = "+policy, []int{1}, func(t *testing.T, b *bench) {
			stop := b.start()
			b.slots.set(1, func(s *fakeSlot) { s.State = "Claimed" })
			synctest.Wait()
			time.Sleep(emptyPace)
			synctest.Wait()
			stop()
			if n := len(b.hooks.of(hook.FetchWork)); n < 2 {
				t.Errorf("%s: %d questions when the slot is Claimed/Idle; want another one", policy, n)
			}
		})
	}
}

// REQ-HOOK-108: in these states nothing is asked, and in the others it is.
func TestStatesThatAsk(t *testing.T) {
	tests := []struct {
		state, activity  string
		closed, promised bool
		want             bool
	}{
		{state: "Owner", activity: "Idle", want: true},
		{state: "Unclaimed", activity: "Idle", want: true},
		{state: "Unclaimed", activity: "Benchmarking", want: true},
		{state: "Unclaimed", activity: "Idle", closed: true},
		{state: "Matched", activity: "Idle"},
		{state: "Claimed", activity: "Idle", want: true},
		{state: "Claimed", activity: "Idle", promised: true},
		{state: "Claimed", activity: "Busy", want: true}, // REQ-HOOK-70: RANK may prefer what comes
		{state: "Claimed", activity: "Retiring", want: true},
		{state: "Claimed", activity: "Suspended"},
		{state: "Claimed", activity: "Cleaning"},
		{state: "Preempting", activity: "Vacating"},
		{state: "Preempting", activity: "Killing"},
		{state: "Backfill", activity: "Busy", want: true},
		{state: "Backfill", activity: "Killing"},
		{state: "Drained", activity: "Idle"},
		{state: "Drained", activity: "Retiring"},
		{state: "Deleted", activity: "Idle"},
	}
	for _, tt := range tests {
		t.Run(tt.state+"_"+tt.activity, func(t *testing.T) {
			in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
				b.slots.set(1, func(s *fakeSlot) {
					s.State, s.Activity, s.Closed, s.Promised = tt.state, tt.activity, tt.closed, tt.promised
				})
				stop := b.start()
				stop()
				if got := len(b.hooks.of(hook.FetchWork)) > 0; got != tt.want {
					t.Errorf("%+v: asked %v", tt, got)
				}
			})
		})
	}
}

// REQ-HOOK-6, REQ-HOOK-9: what counts is the slot when the hook has answered.
func TestStateChangesMeanwhile(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = func(context.Context, hook.Call) hook.Result {
			b.slots.set(1, func(s *fakeSlot) { s.State = "Matched" })
			return hook.Result{Stdout: []byte(adOf("a"))}
		}
		stop := b.start()
		stop()
		if got, want := b.hooks.words(), "FETCH_WORK, REPLY_FETCH reject"; got != want {
			t.Errorf("hooks: %s; want %s", got, want)
		}
		if n := len(b.o.Store.Claimed()); n != 0 {
			t.Errorf("%d jobs; want none", n)
		}
	})
}

// REQ-HOOK-22, REQ-HOOK-105, REQ-HOOK-23: what the answers of a hook mean.
func TestAnswers(t *testing.T) {
	good := adOf("a")
	tests := []struct {
		name   string
		result hook.Result
		hooks  string
		log    string
	}{
		{"good", hook.Result{Stdout: []byte(good)}, "REPLY_FETCH accept", "accepted: job=1"},
		{"status", hook.Result{Stdout: []byte(good), Status: 7}, "REPLY_FETCH accept", "accepted: job=1"},
		{"nothing", hook.Result{}, "", ""},
		{"blanks", hook.Result{Stdout: []byte(" \n\n")}, "", ""},
		{"comment", hook.Result{Stdout: []byte("# nothing today\n")}, "", ""},
		{"one bad line", hook.Result{Stdout: []byte(good + "what is this\n")}, "", "line 3"},
		{"NUL", hook.Result{Stdout: []byte(good + "A = \"\x00\"\n")}, "", "line 3: a NUL byte"},
		{"no command", hook.Result{Stdout: []byte("GlobalJobId = \"a\"\n")}, "REPLY_FETCH reject", "Cmd"},
		{"no lease", hook.Result{Stdout: []byte(adOf("a", "JobLeaseDuration = -1"))}, "REPLY_FETCH reject", "JobLeaseDuration: -1 is not"},
		{"no signal", hook.Result{Stdout: []byte(adOf("a", `KillSig = "SIGNOT"`))}, "REPLY_FETCH reject", "KillSig"},
		{"timeout", hook.Result{Stdout: []byte(good), TimedOut: true}, "", "killed after its limit of 1m0s"},
		{"too long", hook.Result{Stdout: []byte(good), TooLong: true}, "", "killed after more than 100663296 bytes"},
		{"a script that is no string", hook.Result{Stdout: []byte(good + "Script = secret(1)\n")}, "", "its answer is no ad: line 3: Script is neither a string nor eval of one"},
		{"an empty script", hook.Result{Stdout: []byte(good + "Script = \"\"\n")}, "", "Script is empty"},
		{"a script that is too large", hook.Result{Stdout: slices.Concat([]byte(good+"Script = \""), bytes.Repeat([]byte("x"), api.MaxScript+1), []byte("\"\n"))}, "", "Script has 67108865 bytes, at most 67108864 are possible"},
		{"a script in Java", hook.Result{Stdout: []byte(good + "Script = \"exit\"\nArgs = \"A\"\nJobUniverse = 10\n")}, "REPLY_FETCH reject", "Script: work with it is of universe 5"},
		{"signal", hook.Result{Stdout: []byte(good), Status: -11}, "", "killed by signal 11"},
		{"not started", hook.Result{Err: errors.New("no such thing")}, "", "no such thing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
				answered := false
				b.hooks.fetch = func(context.Context, hook.Call) hook.Result {
					if answered {
						return hook.Result{}
					}
					answered = true
					return tt.result
				}
				stop := b.start()
				stop()
				got := strings.TrimPrefix(strings.TrimPrefix(b.hooks.words(), "FETCH_WORK"), ", ")
				if got != tt.hooks {
					t.Errorf("hooks behind the first: %q; want %q", got, tt.hooks)
				}
				if !strings.Contains(b.log.String(), tt.log) {
					t.Errorf("the log has\n%s\nwithout %q", b.log, tt.log)
				}
			})
		})
	}
}

// REQ-HOOK-115, REQ-HOOK-71: a hook that fails is left alone for longer and longer, never for less than the delay, and the
// slot's ad says so; when it works again that is forgotten.
func TestBackoff(t *testing.T) {
	in(t, allHooks+"FetchWorkDelay = 0", []int{1}, func(t *testing.T, b *bench) {
		var works atomic.Bool
		var told atomic.Int32
		b.hooks.fetch = func(context.Context, hook.Call) hook.Result {
			if !works.Load() {
				return hook.Result{TimedOut: true}
			}
			return hook.Result{}
		}
		b.o.Failing = func() { told.Add(1) }
		stop := b.start()
		time.Sleep(64 * time.Second)
		synctest.Wait()
		if got := told.Load(); got != 7 {
			t.Errorf("7 failures were told %d times", got)
		}
		calls := b.hooks.of(hook.FetchWork)
		for i, want := range []time.Duration{1, 2, 4, 8, 16, 32} {
			if got := calls[i+1].at.Sub(calls[i].at); got != want*time.Second {
				t.Errorf("after failure %d: %v; want %v", i+1, got, want*time.Second)
			}
		}
		text := ""
		for _, a := range b.Attributes(slot.Static(1)) {
			text += a.Name + " = " + a.Expr.String() + "\n"
		}
		if want := "FetchHookState = \"Failing\"\nFetchFailures = 7\nFetchFailureReason = \"killed after its limit of 1m0s\"\n"; text != want {
			t.Errorf("attributes are\n%swant\n%s", text, want)
		}
		works.Store(true)
		time.Sleep(64 * time.Second)
		synctest.Wait()
		if got := b.Attributes(slot.Static(1))[1].Expr.String(); got != "0" {
			t.Errorf("FetchFailures is %s when the hook works again", got)
		}
		if got := told.Load(); got != 8 {
			t.Errorf("7 failures and that it works again were told %d times", got)
		}
		stop()
		if got := len(b.Attributes(slot.Static(2))); got != 0 {
			t.Errorf("a slot that does not fetch has %d attributes", got)
		}
	})
}

// With a delay of 0 a hook that has nothing is not run without a break; one that
// waits for work itself is asked again at once.
func TestEmptyPace(t *testing.T) {
	for _, tt := range []struct{ takes, want time.Duration }{{0, time.Second}, {30 * time.Second, 30 * time.Second}} {
		in(t, allHooks+"FetchWorkDelay = 0", []int{1}, func(t *testing.T, b *bench) {
			b.hooks.fetch = func(ctx context.Context, _ hook.Call) hook.Result {
				select {
				case <-ctx.Done():
				case <-time.After(tt.takes):
				}
				return hook.Result{}
			}
			stop := b.start()
			time.Sleep(100 * time.Second)
			stop()
			calls := b.hooks.of(hook.FetchWork)
			if got := calls[1].at.Sub(calls[0].at); got != tt.want {
				t.Errorf("a hook that takes %v is asked again after %v; want %v", tt.takes, got, tt.want)
			}
		})
	}
}

// A slot whose work has ended asks at once, and when there is no more once again as a free one.
func TestEmptyPaceAfterWork(t *testing.T) {
	in(t, allHooks+"FetchWorkDelay = 0", []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		stop := b.start()
		time.Sleep(500 * time.Millisecond)
		ended := time.Now()
		b.slots.end(t, b.Layer, 1)
		time.Sleep(2500 * time.Millisecond)
		stop()
		var after []time.Duration
		for _, c := range b.hooks.of(hook.FetchWork) {
			after = append(after, c.at.Sub(ended))
		}
		if want := []time.Duration{-time.Second / 2, -time.Second / 2, 0, 0, time.Second, 2 * time.Second}; !slices.Equal(after, want) {
			t.Errorf("it asks %v after the end of its work; want %v", after, want)
		}
	})
}

// REQ-HOOK-27, REQ-HOOK-30: nobody waits for the hooks that are told, but the slot's own next
// question.
func TestReplyIsNotWaitedFor(t *testing.T) {
	in(t, allHooks+"FetchWorkDelay = 0", []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		b.hooks.other = func(ctx context.Context, c hook.Call) hook.Result {
			select {
			case <-ctx.Done():
			case <-time.After(c.Hook.Limit):
			}
			return hook.Result{TimedOut: true, Status: -9}
		}
		began := time.Now()
		b.start()
		if got := b.slots.told(); !strings.Contains(got, "job 1 starts") || time.Since(began) != 0 {
			t.Errorf("after %v the slots were told\n%s", time.Since(began), got)
		}
		b.slots.end(t, b.Layer, 1)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if n := len(b.hooks.of(hook.FetchWork)); n != 2 {
			t.Errorf("%d questions; want the second when the reply is over", n)
		}
		if got := b.slots.told(); !strings.HasSuffix(got, "withdrawn: no more work") {
			t.Errorf("the slots were told\n%s", got)
		}
	})
}

// REQ-HOOK-119: who is told of an acceptance has a job on disk, and nobody is told of
// what has no place.
func TestRecordBeforeReply(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		var found []job.Claimed
		var claimed string
		b.hooks.other = func(context.Context, hook.Call) hook.Result {
			again, err := job.Open(b.root, false, b.o.Log)
			if err != nil {
				t.Error(err)
				return hook.Result{}
			}
			found, claimed = again.Claimed(), b.slots.told()
			return hook.Result{}
		}
		stop := b.start()
		stop()
		if len(found) != 1 || found[0].Identity != "a" || !strings.Contains(claimed, "claimed") {
			t.Errorf("when the reply was made the disk had %+v, and the slots were told %q", found, claimed)
		}
	})
}

// An identity that is alive is answered again, and not started again; one that has
// ended may come again.
func TestIdentity(t *testing.T) {
	in(t, allHooks+`FetchWorkDelay = 10`, []int{1, 2}, func(t *testing.T, b *bench) {
		b.hooks.fetch = func(_ context.Context, c hook.Call) hook.Result {
			if c.Label == "slot 2" {
				time.Sleep(time.Second)
			}
			return hook.Result{Stdout: []byte(adOf("same"))}
		}
		b.start()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := len(b.o.Store.Claimed()); n != 1 {
			t.Fatalf("%d jobs of one identity", n)
		}
		replies := b.hooks.of(hook.ReplyFetch)
		if len(replies) != 2 || replies[0].args != "accept" || replies[1].args != "accept" {
			t.Errorf("replies are %v; want accept twice", replies)
		}
		b.slots.set(2, func(s *fakeSlot) { s.State = "Drained" })
		b.slots.end(t, b.Layer, 1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := b.slots.told(); strings.Count(got, "starts") != 2 {
			t.Errorf("the slots were told\n%s\nwant a second start when the first has ended", got)
		}
	})
}

// An answer that was on its way when the work ended names work that is over.
func TestIdentityThatHasJustEnded(t *testing.T) {
	in(t, allHooks+`FetchWorkDelay = 10`, []int{1, 2}, func(t *testing.T, b *bench) {
		b.hooks.fetch = func(_ context.Context, c hook.Call) hook.Result {
			if c.Label == "slot 2" {
				time.Sleep(5 * time.Second)
			}
			return hook.Result{Stdout: []byte(adOf("same"))}
		}
		stop := b.start()
		b.slots.set(1, func(s *fakeSlot) { s.Closed = true })
		time.Sleep(time.Second)
		b.slots.end(t, b.Layer, 1)
		time.Sleep(5 * time.Second) // slot 2 asked before, and has its answer now
		synctest.Wait()
		if got := b.slots.told(); strings.Count(got, "starts") != 1 {
			t.Errorf("the slots were told\n%s\nwant one start", got)
		}
		stop()
		if len(b.known.byID)+len(b.known.byJob) != 0 {
			t.Errorf("the register still has %v", b.known.byID)
		}
	})
}

// What was accepted and told to nobody is told after a restart; what was not
// started then is.
func TestRestart(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		b.hooks.other = endless
		stop := b.start()
		stop()
		b.slots.set(1, func(s *fakeSlot) {
			s.State, s.Activity, s.Fetched, s.job, s.Claim = "Unclaimed", "Idle", false, nil, ""
		})
		b.hooks.answerOther(nil)
		b.open(t)
		stop = b.start()
		stop()
		if replies := b.hooks.of(hook.ReplyFetch); len(replies) != 2 || replies[1].args != "accept" {
			t.Errorf("replies are %v; want a second accept", replies)
		}
		if got := b.slots.told(); strings.Count(got, "job 1 starts") != 2 {
			t.Errorf("the slots were told\n%s\nwant job 1 started again", got)
		}
		b.slots.set(1, func(s *fakeSlot) {
			s.State, s.Activity, s.Fetched, s.job, s.Claim = "Unclaimed", "Idle", false, nil, ""
		})
		b.open(t)
		b.slots.refuse = func(*classad.Ad) error { return errors.New("START is false") }
		stop = b.start()
		stop()
		if replies := b.hooks.of(hook.ReplyFetch); len(replies) != 2 {
			t.Errorf("%d replies; want none when it was told", len(replies))
		}
		if n := len(b.hooks.of(hook.EvictClaim)); n != 1 || len(b.o.Store.Claimed()) != 0 {
			t.Errorf("%d evictions, %d jobs; want one and none when the slot refuses", n, len(b.o.Store.Claimed()))
		}
	})
}

// What has ended while execd was away is told to be accepted all the same, though its
// record goes before the slots fetch again.
func TestOverBeforeTold(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		b.hooks.other = endless
		stop := b.start()
		stop()
		b.hooks.answerOther(nil)
		b.open(t)
		ctx, cancel := context.WithCancel(t.Context())
		b.Recover(ctx)
		b.slots.end(t, b.Layer, 1) // as the stages do
		done := make(chan struct{})
		go func() { defer close(done); b.Run(ctx) }()
		synctest.Wait()
		cancel()
		<-done
		if replies := b.hooks.of(hook.ReplyFetch); len(replies) != 2 || replies[1].args != "accept" {
			t.Errorf("replies are %v; want a second accept", replies)
		}
		if got := b.slots.told(); strings.Count(got, "job 1 starts") != 1 {
			t.Errorf("the slots were told\n%s\nwant job 1 not started again", got)
		}
	})
}

// Work that cannot be started is forgotten, and its claim broken: who it came from is
// told by that.
func TestStartFails(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		b.slots.failing = errors.New("no shepherd")
		stop := b.start()
		stop()
		if got, want := b.hooks.words(), "FETCH_WORK, REPLY_FETCH accept, EVICT_CLAIM"; got != want {
			t.Errorf("hooks: %s; want %s", got, want)
		}
		if n := len(b.o.Store.Claimed()); n != 0 {
			t.Errorf("%d jobs are left", n)
		}
	})
}

// Whoever the work comes from is told when its claim is broken while its job is being
// recorded, too: it is not known then whose claim it is.
func TestBrokenWhileRecorded(t *testing.T) {
	for _, partitionable := range []bool{false, true} {
		in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
			if partitionable {
				b.slots.partition(1, 1)
			}
			b.hooks.fetch = once(sized("a"))
			b.o.Limits = func() job.Limits {
				b.slots.Withdraw("<h>#1#1#...", slot.Hold{Text: "somebody has vacated the slot"})
				return job.Limits{}
			}
			b.start()
			if n := len(b.hooks.of(hook.EvictClaim)); n != 1 {
				t.Errorf("EVICT_CLAIM was called %d times; want once: %s", n, b.hooks.words())
			}
			if b.work.under("<h>#1#1#...") != nil {
				t.Error("the work is still noted for a claim that is gone")
			}
		})
	}
}

// What still waits for its slot when its claim is broken is forgotten: whoever it comes
// from is told that it does not run, and may hand it out again.
func TestBrokenBeforeTurn(t *testing.T) {
	in(t, allHooks+"FetchWorkDelay = 1\n", []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		b.slots.waits = true
		stop := b.start()
		b.slots.Withdraw("<h>#1#1#...", slot.Hold{Text: "the host is being drained"})
		synctest.Wait()
		if n := len(b.o.Store.Claimed()); n != 0 {
			t.Errorf("%d jobs are left", n)
		}
		b.slots.mu.Lock()
		b.slots.waits = false
		b.slots.mu.Unlock()
		b.hooks.mu.Lock()
		b.hooks.fetch = once(adOf("a"))
		b.hooks.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		stop()
		if got, want := b.hooks.words(), "FETCH_WORK, REPLY_FETCH accept, EVICT_CLAIM, FETCH_WORK, REPLY_FETCH accept"; got != want {
			t.Errorf("hooks: %s; want %s", got, want)
		}
		if got, want := b.slots.told(), "job 2 starts"; !strings.Contains(got, want) || strings.Contains(got, "job 1 starts") {
			t.Errorf("the slots were told\n%s\nwant that only %s", got, want)
		}
	})
}

// An execd that ended after it had noted that EVICT_CLAIM is to be told of what waited
// for its slot, and before it had forgotten that, has it not run by the next one.
func TestRestartBeforeForgotten(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		b.slots.waits = true
		stop := b.start()
		stop()
		f := b.o.Store.Claimed()
		if len(f) != 1 {
			t.Fatalf("%d jobs; want one", len(f))
		}
		n := notice{Slot: "1", Keyword: "kw", Claim: "<h>#1#1#...", Work: adOf("a")}
		if err := b.keep(f[0].Number, &n); err != nil {
			t.Fatal(err)
		}
		b.slots.waits = false
		b.slots.set(1, func(s *fakeSlot) { s.State, s.Fetched, s.Promised, s.Claim = "Owner", false, false, "" })
		b.open(t)
		stop = b.start()
		stop()
		if got := b.slots.told(); strings.Contains(got, "starts") {
			t.Errorf("the slots were told\n%s\nwant that nothing starts", got)
		}
		if n := len(b.hooks.of(hook.EvictClaim)); n != 1 {
			t.Errorf("EVICT_CLAIM was called %d times; want once", n)
		}
		if n := len(b.o.Store.Claimed()); n != 0 {
			t.Errorf("%d jobs are left", n)
		}
	})
}

// And what is given back after its start, as by a disk that is full, the same.
func TestGivenBack(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		stop := b.start()
		b.slots.set(1, func(s *fakeSlot) { s.Activity, s.job = "Idle", nil })
		synctest.Wait()
		stop()
		if got, want := b.hooks.words(), "FETCH_WORK, REPLY_FETCH accept, EVICT_CLAIM"; got != want {
			t.Errorf("hooks: %s; want %s", got, want)
		}
		if n := len(b.o.Store.Claimed()); n != 0 {
			t.Errorf("%d jobs are left", n)
		}
	})
}

// What a hook of the job or the host keeps from running is told of with the code of its
// hold: its claim is broken, and the next work has another one.
func TestAbandoned(t *testing.T) {
	in(t, allHooks+`FetchWorkDelay = Activity == "Idle" ? 0 : 300`, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"), adOf("b"))
		stop := b.start()
		b.Abandoned(b.slots.slots[slot.Static(1)].job, slot.Hold{Code: 19, Subcode: 7, Text: "its prepare hook has failed"})
		b.slots.end(t, b.Layer, 1)
		synctest.Wait()
		stop()
		want := `slot 1: claimed <h>#1#1#...
slot 1: job 1 starts
slot 1: withdrawn: its prepare hook has failed
slot 1: claimed <h>#1#2#...
slot 1: job 2 starts`
		if got := b.slots.told(); got != want {
			t.Errorf("the slots were told\n%s\nwant\n%s", got, want)
		}
		evicted := b.hooks.of(hook.EvictClaim)
		if len(evicted) != 1 {
			t.Fatalf("evictions are %v; want one", evicted)
		}
		for _, want := range []string{`GlobalJobId = "a"`, "VacateReasonCode = 19\n", "VacateReasonSubCode = 7\n"} {
			if !strings.Contains(evicted[0].stdin, want) {
				t.Errorf("EVICT_CLAIM reads\n%s\nwant %s in it", evicted[0].stdin, want)
			}
		}
	})
}

// Nobody is told of the end of a claim under which nothing was accepted.
func TestRecordFails(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		b.o.Limits = func() job.Limits { return job.Limits{UserJobs: 1} }
		if _, _, err := b.o.Store.Submit(users["me"], 100, mustRequest(), job.Limits{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		stop := b.start()
		stop()
		if got, want := b.hooks.words(), "FETCH_WORK, REPLY_FETCH reject"; got != want {
			t.Errorf("hooks: %s; want %s", got, want)
		}
		if got := b.slots.told(); !strings.HasSuffix(got, "withdrawn: the work could not be recorded") {
			t.Errorf("the slots were told\n%s", got)
		}
	})
}

// Wake has slots ask at once, and one that is asking once more.
func TestWake(t *testing.T) {
	in(t, allHooks, []int{1, 2}, func(t *testing.T, b *bench) {
		takes := time.Duration(0)
		b.hooks.fetch = func(context.Context, hook.Call) hook.Result {
			time.Sleep(takes)
			return hook.Result{}
		}
		b.start()
		if told, missing := b.Wake([]slot.ID{slot.Static(2), slot.Static(7)}); told != 1 || len(missing) != 1 || missing[0] != slot.Static(7) {
			t.Errorf("%d told, missing %v", told, missing)
		}
		synctest.Wait()
		if n := len(b.hooks.of(hook.FetchWork)); n != 3 {
			t.Errorf("%d questions; want 3", n)
		}
		takes = 10 * time.Second
		if told, _ := b.Wake(nil); told != 2 {
			t.Errorf("%d told", told)
		}
		time.Sleep(time.Second)
		b.Wake([]slot.ID{slot.Static(1)})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(b.hooks.of(hook.FetchWork)); n != 6 {
			t.Errorf("%d questions; want 6", n)
		}
		time.Sleep(10 * time.Second)
	})
}

// The end of execd ends the hook that is asked, and is not waited for by it.
func TestStopEndsHook(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = endless
		stop := b.start()
		began := time.Now()
		stop()
		if time.Since(began) != 0 {
			t.Errorf("the stop took %v", time.Since(began))
		}
		if strings.Contains(b.log.String(), "failures") {
			t.Errorf("the log takes it for a failure:\n%s", b.log)
		}
	})
}

// Work that comes while its slot or execd stops is refused at once: who has handed it out would wait for the end of a lease.
// Nobody is waited for long who is told.
func TestStopTurnsAway(t *testing.T) {
	for _, all := range []bool{false, true} {
		in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
			b.hooks.fetch = func(ctx context.Context, _ hook.Call) hook.Result {
				<-ctx.Done()
				return hook.Result{Stdout: []byte(adOf("a"))}
			}
			b.hooks.other = endless
			stop := b.start()
			began := time.Now()
			if all {
				stop()
			} else {
				b.set(t, "STARTD_JOB_HOOK_KEYWORD = kw\nKW_HOOK_REPLY_FETCH = $(HOOK)\n")
				b.Configure()
				time.Sleep(time.Minute)
				synctest.Wait()
			}
			replies := b.hooks.of(hook.ReplyFetch)
			if got := b.hooks.words(); got != "FETCH_WORK, REPLY_FETCH reject" || !strings.Contains(replies[0].stdin, `GlobalJobId = "a"`) {
				t.Errorf("all %t: hooks: %s", all, got)
			}
			if took := time.Since(began); all && took > turnAwayLimit {
				t.Errorf("the stop took %v", took)
			}
			if n := len(b.o.Store.Claimed()); n != 0 {
				t.Errorf("all %t: %d jobs; want none", all, n)
			}
		})
	}
}

// REQ-HOOK-19, REQ-HOOK-62: without FETCH_WORK no hook is ever called; after a reload that brings one it is, and after
// one that takes it away an idle claim goes.
func TestReload(t *testing.T) {
	in(t, "STARTD_JOB_HOOK_KEYWORD = kw\nKW_HOOK_REPLY_FETCH = $(HOOK)\n", []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		b.start()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := b.hooks.words(); got != "" {
			t.Errorf("hooks: %s", got)
		}
		b.set(t, allHooks)
		b.Configure()
		synctest.Wait()
		b.slots.end(t, b.Layer, 1)
		synctest.Wait()
		b.set(t, "")
		b.Configure()
		synctest.Wait()
		if got := b.slots.told(); !strings.HasSuffix(got, "withdrawn: the slot fetches no work any more") {
			t.Errorf("the slots were told\n%s", got)
		}
	})
}

// A slot that stops fetching while its work runs is given back when that ends, also
// by an execd that was started meanwhile.
func TestReloadWhileBusy(t *testing.T) {
	for _, restart := range []bool{false, true} {
		in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
			b.hooks.fetch = once(adOf("a"))
			stop := b.start()
			if restart {
				stop()
				b.knobs = ""
				b.open(t)
				stop = b.start()
			} else {
				b.set(t, "")
				b.Configure()
			}
			synctest.Wait()
			if got := b.slots.told(); strings.Contains(got, "withdrawn") {
				t.Errorf("restart %t: the slots were told\n%s", restart, got)
			}
			b.slots.set(1, func(s *fakeSlot) { s.Activity, s.job = "Idle", nil })
			synctest.Wait()
			if got := b.slots.told(); !strings.HasSuffix(got, "withdrawn: the slot fetches no work any more") {
				t.Errorf("restart %t: the slots were told\n%s", restart, got)
			}
			stop()
		})
	}
}

// Renewals come at a third of the lease; status 1 and a lease without one end the
// claim.
func TestRenew(t *testing.T) {
	knobs := allHooks + "KW_HOOK_RENEW_CLAIM = $(HOOK)\nFetchWorkDelay = State == \"Claimed\" && Activity == \"Idle\" ? 0 : 300\n"
	tests := []struct {
		name   string
		result hook.Result
		want   string
		after  time.Duration
	}{
		{"renewed", hook.Result{}, "", 0},
		{"not known", hook.Result{Status: 1}, "slot 1: withdrawn: its hook says that nobody waits for it", 30 * time.Second},
		{"fails", hook.Result{TimedOut: true}, "slot 1: expired: its lease is over", 90 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in(t, knobs, []int{1}, func(t *testing.T, b *bench) {
				b.hooks.fetch = once(adOf("before"), adOf("a", "JobLeaseDuration = 90"))
				b.hooks.other = func(_ context.Context, c hook.Call) hook.Result {
					if c.Hook.Name == hook.RenewClaim {
						return tt.result
					}
					return hook.Result{}
				}
				stop := b.start()
				b.slots.end(t, b.Layer, 1)
				time.Sleep(29 * time.Second)
				synctest.Wait()
				if n := len(b.hooks.of(hook.RenewClaim)); n != 0 {
					t.Errorf("%d renewals in 29 s", n)
				}
				time.Sleep(62 * time.Second)
				synctest.Wait()
				stop()
				n := len(b.hooks.of(hook.RenewClaim))
				if tt.want == "" {
					if n != 3 || strings.Contains(b.slots.told(), "expired") {
						t.Errorf("%d renewals in 91 s, want 3; the slots were told\n%s", n, b.slots.told())
					}
					return
				}
				if !strings.HasSuffix(b.slots.told(), tt.want) {
					t.Errorf("the slots were told\n%s\nwant %q", b.slots.told(), tt.want)
				}
			})
		})
	}
}

// What is answered of work that has ended meanwhile does not end what its claim is for now.
func TestRenewalOfEnded(t *testing.T) {
	knobs := allHooks + "KW_HOOK_RENEW_CLAIM = $(HOOK)\nFetchWorkDelay = State == \"Claimed\" && Activity == \"Idle\" ? 0 : 300\n"
	in(t, knobs, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a", "JobLeaseDuration = 90"), adOf("b", "JobLeaseDuration = 90"))
		b.hooks.other = func(_ context.Context, c hook.Call) hook.Result {
			if c.Hook.Name == hook.RenewClaim {
				time.Sleep(10 * time.Second)
				if strings.Contains(string(c.Stdin), `"a"`) {
					return hook.Result{Status: 1}
				}
			}
			return hook.Result{}
		}
		stop := b.start()
		b.RenewNow(nil)
		synctest.Wait()
		b.slots.end(t, b.Layer, 1)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		stop()
		if n := len(b.hooks.of(hook.RenewClaim)); n != 1 || strings.Contains(b.slots.told(), "withdrawn") {
			t.Errorf("%d renewals; the slots were told\n%s", n, b.slots.told())
		}
	})
}

// What is answered of work that has ended does not end its claim while that is being given to the next.
func TestRenewalWhileRecorded(t *testing.T) {
	knobs := allHooks + "KW_HOOK_RENEW_CLAIM = $(HOOK)\nFetchWorkDelay = State == \"Claimed\" && Activity == \"Idle\" ? 0 : 300\n"
	in(t, knobs, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a", "JobLeaseDuration = 90"), adOf("b", "JobLeaseDuration = 90"))
		b.hooks.other = func(_ context.Context, c hook.Call) hook.Result {
			if c.Hook.Name == hook.RenewClaim && strings.Contains(string(c.Stdin), `"a"`) {
				return hook.Result{Status: 1}
			}
			return hook.Result{}
		}
		stop := b.start()
		b.o.Limits = func() job.Limits {
			b.RenewNow(nil)
			time.Sleep(10 * time.Second)
			return job.Limits{}
		}
		b.slots.end(t, b.Layer, 1)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		stop()
		if n, got := len(b.hooks.of(hook.RenewClaim)), b.slots.told(); n != 1 || !strings.HasSuffix(got, "job 2 starts") || strings.Contains(got, "withdrawn") {
			t.Errorf("%d renewals; the slots were told\n%s", n, got)
		}
	})
}

// Somebody has the renewal be now: the hook is asked at once, though not more often than twice a
// second, and the next time a third of the lease later. Slots without such work are named.
func TestRenewNow(t *testing.T) {
	in(t, allHooks+"KW_HOOK_RENEW_CLAIM = $(HOOK)\nFetchWorkDelay = 300\n", []int{1, 2}, func(t *testing.T, b *bench) {
		b.hooks.fetch = func(_ context.Context, c hook.Call) hook.Result {
			if c.Label != "slot 1" {
				return hook.Result{}
			}
			return hook.Result{Stdout: []byte(adOf("a", "JobLeaseDuration = 90"))}
		}
		b.start()
		began := time.Now()
		time.Sleep(10 * time.Second)
		for range 3 {
			if told, missing := b.RenewNow(nil); told != 1 || len(missing) > 0 {
				t.Errorf("told %d, missing %v; want slot 1 told", told, missing)
			}
			synctest.Wait()
		}
		if told, missing := b.RenewNow([]slot.ID{slot.Static(2), slot.Static(1), slot.Static(9)}); told != 1 || !slices.Equal(missing, []slot.ID{slot.Static(2), slot.Static(9)}) {
			t.Errorf("told %d, missing %v; want slots 2 and 9", told, missing)
		}
		time.Sleep(35 * time.Second)
		synctest.Wait()
		var after []time.Duration
		for _, c := range b.hooks.of(hook.RenewClaim) {
			after = append(after, c.at.Sub(began))
		}
		if want := []time.Duration{10 * time.Second, 10*time.Second + renewPace, 40*time.Second + renewPace}; !slices.Equal(after, want) {
			t.Errorf("asked after %v; want %v", after, want)
		}
	})
}

// However short a lease is, it is renewed at most twice a second, which is told once for
// each work; and what is not renewed has no more than its lease.
func TestShortLease(t *testing.T) {
	knobs := allHooks + "KW_HOOK_RENEW_CLAIM = $(HOOK)\nFetchWorkDelay = State == \"Claimed\" && Activity == \"Idle\" ? 0 : 300\n"
	fails := hook.Result{TimedOut: true}
	tests := []struct {
		lease  int
		result hook.Result
		want   int           // renewals in 10.5 s
		told   int           // that the lease is short
		over   time.Duration // when it is over; 0: it is not
	}{
		{1, hook.Result{}, 21, 1, 0},
		{2, hook.Result{}, 15, 0, 0},
		{3, hook.Result{}, 10, 0, 0},
		{6, hook.Result{}, 5, 0, 0},
		{1, fails, 1, 1, time.Second},
		{2, fails, 3, 0, 2 * time.Second},
		{6, fails, 4, 0, 6 * time.Second},
	}
	for _, tt := range tests {
		in(t, knobs, []int{1}, func(t *testing.T, b *bench) {
			b.hooks.fetch = once(adOf("a", fmt.Sprintf("JobLeaseDuration = %d", tt.lease)))
			b.hooks.other = func(_ context.Context, c hook.Call) hook.Result {
				if c.Hook.Name == hook.RenewClaim {
					return tt.result
				}
				return hook.Result{}
			}
			stop := b.start()
			begun := time.Now()
			step := 500 * time.Millisecond
			over := time.Duration(0)
			for time.Since(begun) < 10500*time.Millisecond {
				time.Sleep(step)
				synctest.Wait()
				if over == 0 && strings.Contains(b.slots.told(), "expired") {
					over = time.Since(begun)
				}
			}
			stop()
			if n := len(b.hooks.of(hook.RenewClaim)); n != tt.want || over != tt.over {
				t.Errorf("lease of %d s: %d renewals in 10.5 s, over at %v; want %d and %v", tt.lease, n, over, tt.want, tt.over)
			}
			if n := strings.Count(b.log.String(), "is too short"); n != tt.told {
				t.Errorf("lease of %d s: told %d times that it is short, want %d", tt.lease, n, tt.told)
			}
		})
	}
}

// A claim that is not over at once, as its exit hook still runs, is not renewed again
// and again meanwhile.
func TestNotWantedAndStillThere(t *testing.T) {
	in(t, allHooks+"KW_HOOK_RENEW_CLAIM = $(HOOK)\n", []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a", "JobLeaseDuration = 90"))
		b.hooks.other = func(_ context.Context, c hook.Call) hook.Result {
			if c.Hook.Name == hook.RenewClaim {
				time.Sleep(time.Millisecond)
				return hook.Result{Status: 1}
			}
			return hook.Result{}
		}
		b.slots.lingers = true
		stop := b.start()
		time.Sleep(39 * time.Second)
		synctest.Wait()
		stop()
		if n := len(b.hooks.of(hook.RenewClaim)); n != 2 {
			t.Errorf("%d renewals in 39 s; want one at a third of the lease, and one five seconds later", n)
		}
	})
}

func mustRequest() *api.SubmitRequest {
	return &api.SubmitRequest{Name: "n", Binary: true, Command: "/bin/true"}
}

// REQ-HOOK-25: that a claim is over is told by the next execd when this one ends
// before the hook has, with what the hook would have read but the secret; and once.
func TestEvictionOutlivesExecd(t *testing.T) {
	in(t, allHooks+"FETCH_SEND_CLAIM_ID = true\nFetchWorkDelay = State == \"Claimed\" && Activity == \"Idle\" ? 0 : 300\n", []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		b.hooks.other = func(ctx context.Context, c hook.Call) hook.Result {
			if c.Hook.Name == hook.EvictClaim {
				return endless(ctx, c)
			}
			return hook.Result{}
		}
		stop := b.start()
		b.slots.end(t, b.Layer, 1)
		synctest.Wait()
		first := b.hooks.of(hook.EvictClaim)
		stop()
		if len(first) != 1 || !strings.Contains(first[0].stdin, "ClaimId = \"<h>#1#1#secret\"") {
			t.Fatalf("EVICT_CLAIM has read %v", first)
		}
		names, err := b.root.ListEvictions()
		if err != nil || len(names) != 1 {
			t.Fatalf("%v, %v are to be told; want one", names, err)
		}
		path := b.root.Path(spool.DirEvictions, names[0])
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v; want mode 0600", info.Mode(), err)
		}
		if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "secret") {
			t.Errorf("on disk is %s, %v; want no secret", text, err)
		}
		b.hooks.answerOther(nil)
		for range 2 {
			b.open(t)
			stop = b.start()
			stop()
			told := b.hooks.of(hook.EvictClaim)
			if len(told) != 2 {
				t.Fatalf("told %d times; want a second time, and no third", len(told))
			}
			if want := strings.Replace(first[0].stdin, "ClaimId = \"<h>#1#1#secret\"\n", "", 1); told[1].stdin != want {
				t.Errorf("EVICT_CLAIM has read\n%s\nwant\n%s", told[1].stdin, want)
			}
		}
	})
}

// What lies among the ends of claims and is none is set aside, and told. That of a later
// format stays for an execd that can read it.
func TestDamagedEvictions(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		for name, text := range map[string]string{
			"x": "{}", "007": "{}", "1": "nonsense", "2": `{"format":9,"slot":"1"}`, "3": `{"format":1,"slot":"here"}`,
			"4": `{"format":1,"slot":"1","keyword":"KW","work":"a = ","ad":""}`,
		} {
			if err := os.WriteFile(b.root.Path(spool.DirEvictions, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		stop := b.start()
		stop()
		if n := len(b.hooks.of(hook.EvictClaim)); n != 1 {
			t.Errorf("told %d times; want once, of job 4", n)
		}
		left, err := b.root.ListEvictions()
		aside, asideErr := b.root.ListCorrupt()
		if err != nil || asideErr != nil || !slices.Equal(left, []string{"2"}) || len(aside) != 4 {
			t.Errorf("left %v, %v; aside %v, %v; want 2 left and four aside", left, err, aside, asideErr)
		}
	})
}

// The end of a claim that cannot be read for now is not lost: it is told after the next
// start.
func TestUnreadEviction(t *testing.T) {
	in(t, allHooks, []int{1}, func(t *testing.T, b *bench) {
		n := notice{Slot: "1", Keyword: "KW", Work: "A = 1\n"}
		if err := b.keep(7, &n); err != nil {
			t.Fatal(err)
		}
		restore := spooltest.FailReads(t, "/7", unix.EMFILE)
		b.start()()
		restore()
		if got := b.log.String(); strings.Count(got, "cannot read evictions/7: too many open files") != 1 || len(b.hooks.of(hook.EvictClaim)) != 0 {
			t.Errorf("the log is\n%s", got)
		}
		b.open(t)
		stop := b.start()
		stop()
		if n := len(b.hooks.of(hook.EvictClaim)); n != 1 {
			t.Errorf("told %d times; want once", n)
		}
	})
}
