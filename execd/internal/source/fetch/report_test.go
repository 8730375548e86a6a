package fetch

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"paddock/classad"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/spool"
	"paddock/spool/spooltest"
)

// reporting is a set with REPORT_WORK, for a slot that asks as soon as its work is over.
const reporting = allHooks + "KW_HOOK_REPORT_WORK = $(HOOK)\nFetchWorkDelay = State == \"Claimed\" && Activity == \"Idle\" ? 0 : 300\n"

// finish has the run in slot 1 end as the stages do it, up to the record of the end or beyond.
func (b *bench) finish(t *testing.T, word string, recorded bool) {
	t.Helper()
	b.slots.mu.Lock()
	j := b.slots.slots[slot.Static(1)].job
	b.slots.mu.Unlock()
	if j == nil {
		t.Fatalf("the slot runs nothing; the slots were told\n%s", b.slots.told())
	}
	if err := b.Report(j, word, func(work *classad.Ad) *classad.Ad {
		return work.With(classad.Attr{Name: "ExitCode", Expr: classad.Int(3).Expr()})
	}); err != nil {
		t.Fatal(err)
	}
	if recorded {
		b.slots.end(t, b.Layer, 1)
		b.Recorded(j)
	}
}

// reported are the reports that were told, each as its word, its identity and whether it has an
// exit code, and their numbers.
func (b *bench) reported(t *testing.T) (told []string, numbers []uint64) {
	t.Helper()
	for _, c := range b.hooks.of(hook.ReportWork) {
		work, err := classad.ParseOld(c.stdin)
		if err != nil {
			t.Fatal(err)
		}
		id, _ := text(work, attrIdentity)
		_, ended := work.Lookup("ExitCode")
		n, _ := (&classad.Env{My: work}).Attr(attrReport).Int()
		told = append(told, fmt.Sprintf("%s %s %t", c.args, id, ended))
		numbers = append(numbers, uint64(n))
	}
	return told, numbers
}

// left are the names in reports/.
func (b *bench) left(t *testing.T) []string {
	t.Helper()
	names, err := b.root.ListReports()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestReport has reports told in their order, each until it is heard, while the slot goes on.
// REQ-HOOK-122.
func TestReport(t *testing.T) {
	in(t, reporting, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"), adOf("b"), adOf("c"))
		answers := []int{1, -9, 0, 99}
		b.hooks.other = func(_ context.Context, c hook.Call) hook.Result {
			if c.Hook.Name != hook.ReportWork || len(answers) == 0 {
				return hook.Result{}
			}
			r := hook.Result{Status: answers[0]}
			answers = answers[1:]
			return r
		}
		b.start()
		for _, word := range []string{"exit", "remove", "exit"} {
			b.finish(t, word, true)
			synctest.Wait()
		}
		if got := strings.Count(b.slots.told(), "starts"); got != 3 {
			t.Errorf("%d jobs were started while the first is not heard; want 3", got)
		}
		if got := b.Failing(); len(got) != 1 || got[0] != "REPORT_WORK of KW has failed 1 times: exit status 1: 3 reports wait" {
			t.Errorf("it is said: %q", got)
		}
		began := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		told, numbers := b.reported(t)
		if want := []string{"exit a true", "exit a true", "exit a true", "remove b true", "remove b true", "exit c true"}; !slices.Equal(told, want) {
			t.Errorf("told %q; want %q", told, want)
		}
		if numbers[0] != numbers[2] || numbers[3] != numbers[4] || numbers[0] >= numbers[3] || numbers[3] >= numbers[5] {
			t.Errorf("numbers %v; want those of a report to be the same, and larger ones later", numbers)
		}
		var after []time.Duration
		for _, c := range b.hooks.of(hook.ReportWork) {
			after = append(after, c.at.Sub(began))
		}
		if want := []time.Duration{0, 1, 3, 3, 4, 4}; !slices.EqualFunc(after, want, func(a, b time.Duration) bool { return a == b*time.Second }) {
			t.Errorf("told after %v; want %v s", after, want)
		}
		if left, log := b.left(t), b.log.String(); len(left) > 0 || strings.Count(log, "works again: failures=") != 2 || !strings.Contains(log, "killed by signal 9") {
			t.Errorf("left %q; the log is\n%s", left, log)
		}
	})
}

// TestReportAgain has the next execd tell what this one has not, and not what was heard.
func TestReportAgain(t *testing.T) {
	in(t, reporting, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"), adOf("b"), adOf("c"))
		b.hooks.other = func(ctx context.Context, c hook.Call) hook.Result {
			if c.Hook.Name == hook.ReportWork && !strings.Contains(string(c.Stdin), `"a"`) {
				return endless(ctx, c)
			}
			return hook.Result{}
		}
		stop := b.start()
		b.finish(t, "exit", true)
		synctest.Wait()
		b.finish(t, "exit", true)
		synctest.Wait()
		b.finish(t, "hold", true)
		synctest.Wait()
		stop()
		for _, name := range b.left(t) {
			if info, err := os.Stat(b.root.Path(spool.DirReports, name)); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v; want mode 0600", name, info.Mode(), err)
			}
		}
		b.hooks.answerOther(nil)
		for range 2 {
			b.open(t)
			b.start()()
			told, numbers := b.reported(t)
			if want := []string{"exit a true", "exit b true", "exit b true", "hold c true"}; !slices.Equal(told, want) || numbers[1] != numbers[2] {
				t.Errorf("told %q, numbers %v; want %q", told, numbers, want)
			}
		}
	})
}

// TestReportOfUnrecorded has execd killed after the end was kept: it is told when it is
// recorded, and not as long as the next execd may find another one.
func TestReportOfUnrecorded(t *testing.T) {
	in(t, reporting, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		stop := b.start()
		b.finish(t, "exit", false)
		stop()
		b.open(t)
		b.start()()
		if told, _ := b.reported(t); len(told) > 0 || !slices.Equal(b.left(t), []string{"1"}) {
			t.Errorf("told %q, left %q; want the report to wait", told, b.left(t))
		}
		b.o.Store.OnDelete(func(*job.Job) (undo func()) { return func() {} }) // it goes as one that has ended
		b.delete(t, "1")
		b.open(t)
		b.start()()
		if told, _ := b.reported(t); !slices.Contains(told, "exit a true") || len(b.left(t)) > 0 {
			t.Errorf("told %q, left %q; want it told", told, b.left(t))
		}
	})
}

// TestReportOfUnrun has work that was accepted and never ran reported, whatever kept it from
// that.
func TestReportOfUnrun(t *testing.T) {
	for what, lose := range map[string]func(t *testing.T, b *bench){
		"deleted": func(t *testing.T, b *bench) {
			t.Helper()
			b.slots.set(1, func(s *fakeSlot) { s.Activity, s.job, s.Promised = "Idle", nil, true })
			j := b.o.Store.Get(1)
			b.delete(t, "1")
			b.Unstarted(j, "it was deleted")
		},
		"deleted, and execd killed": func(t *testing.T, b *bench) {
			t.Helper()
			b.delete(t, "1")
			b.slots.set(1, func(s *fakeSlot) {
				s.State, s.Activity, s.job, s.Fetched, s.Claim = "Unclaimed", "Idle", nil, false, ""
			})
			b.open(t)
			b.start()()
		},
		"its claim broken": func(_ *testing.T, b *bench) {
			b.slots.set(1, func(s *fakeSlot) { s.job = nil })
			id := b.slots.slots[slot.Static(1)].Claim
			b.slots.Withdraw(id, because("somebody wants it"))
		},
		"abandoned": func(_ *testing.T, b *bench) {
			b.Abandoned(b.o.Store.Get(1), slot.Hold{Text: "prepare failed", Code: 19})
			b.slots.set(1, func(s *fakeSlot) { s.Activity, s.job = "Idle", nil })
		},
	} {
		in(t, reporting, []int{1}, func(t *testing.T, b *bench) {
			b.hooks.fetch = once(adOf("a") + "ExitCode = \"x\"\nexitreason = \"x\"\nImageSize = \"x\"\n")
			b.start()
			lose(t, b)
			synctest.Wait()
			if told, _ := b.reported(t); !slices.Equal(told, []string{"evict a false"}) || len(b.left(t)) > 0 {
				t.Errorf("%s: told %q, left %q; want it to be evicted, once", what, told, b.left(t))
			}
			for _, c := range b.hooks.of(hook.ReportWork) {
				if !strings.Contains(c.stdin, "VacateReason = \"") || strings.Contains(c.stdin, "\"x\"") {
					t.Errorf("%s: it reads\n%s", what, c.stdin)
				}
			}
		})
	}
}

// TestReportOfNone has a job that cannot be deleted, and refused work: nothing is reported.
func TestReportOfNone(t *testing.T) {
	in(t, reporting, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"), adOf("b"))
		b.start()
		b.Deleting(b.o.Store.Get(1))()
		b.slots.refuse = func(*classad.Ad) error { return unix.EBUSY }
		b.slots.end(t, b.Layer, 1)
		synctest.Wait()
		if told, _ := b.reported(t); len(told) > 0 || len(b.left(t)) > 0 {
			t.Errorf("told %q, left %q", told, b.left(t))
		}
		if got := b.hooks.words(); !strings.Contains(got, "REPLY_FETCH reject") {
			t.Errorf("the hooks were called: %s", got)
		}
	})
}

// TestReportWithoutHook has the hook removed while a report waits: it is told when there is
// one again. Without one nothing is kept.
func TestReportWithoutHook(t *testing.T) {
	in(t, reporting, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"), adOf("b"))
		b.hooks.other = func(context.Context, hook.Call) hook.Result { return hook.Result{Status: 1} }
		b.start()
		b.finish(t, "exit", true)
		synctest.Wait()
		b.set(t, allHooks+"FetchWorkDelay = 300\n")
		b.Configure()
		b.finish(t, "exit", true)
		time.Sleep(time.Hour)
		if told, _ := b.reported(t); len(told) != 1 || len(b.left(t)) != 1 {
			t.Errorf("told %q, left %q; want one told, and left", told, b.left(t))
		}
		b.hooks.answerOther(nil)
		b.set(t, reporting)
		b.Configure()
		synctest.Wait()
		if told, _ := b.reported(t); !slices.Equal(told, []string{"exit a true", "exit a true"}) || len(b.left(t)) > 0 {
			t.Errorf("told %q, left %q; want a told again", told, b.left(t))
		}
	})
}

// TestReportWoken has execd -fetch tell at once what waits for another attempt, and a report
// that nobody hears is told no more after a week.
func TestReportWoken(t *testing.T) {
	in(t, reporting, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		b.hooks.other = func(_ context.Context, c hook.Call) hook.Result {
			return hook.Result{TimedOut: c.Hook.Name == hook.ReportWork}
		}
		b.start()
		b.finish(t, "exit", true)
		time.Sleep(time.Hour)
		synctest.Wait()
		before := len(b.hooks.of(hook.ReportWork))
		b.Wake(nil)
		synctest.Wait()
		if n := len(b.hooks.of(hook.ReportWork)); n != before+1 || before > 25 {
			t.Errorf("told %d times, and when it is woken %d; want one more, every five minutes before", before, n)
		}
		time.Sleep(reportPatience)
		synctest.Wait()
		if left := b.left(t); len(left) > 0 || !strings.Contains(b.log.String(), "the end of job 1 is told no more, since 168h0m0s are over") {
			t.Errorf("left %q; the log is\n%s", left, b.log)
		}
	})
}

// TestDamagedReports has what lies among the reports and is none set aside, and told.
func TestDamagedReports(t *testing.T) {
	in(t, reporting, []int{1}, func(t *testing.T, b *bench) {
		for name, text := range map[string]string{
			"x": "{}", "007": "{}", "5.x": "{}", "05.1": "{}", "-1.1": "{}", "1": "nonsense", "2": `{"format":9}`, "9.2": `{"format":9}`, "8.3": `{"format":1}`, "7.": "{}",
			"9223372036854775808.1": "{}", "11.12": `{"format":1,"slot":"1","keyword":"KW","word":"exit","work":"A = 1\n"}`,
		} {
			if err := os.WriteFile(b.root.Path(spool.DirReports, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b.start()()
		told, numbers := b.reported(t)
		if !slices.Equal(told, []string{"exit  false"}) || numbers[0] != 11 {
			t.Errorf("told %q, %v; want that of job 12", told, numbers)
		}
		aside, err := b.root.ListCorrupt()
		if left := b.left(t); err != nil || !slices.Equal(left, []string{"2", "9.2"}) || len(aside) != 9 {
			t.Errorf("left %q, aside %q, %v; want those of another format left and nine aside", left, aside, err)
		}
	})
}

// TestReportFaults has the disk fail when an end is kept: that is an error, and nothing is told
// of it but what was kept.
func TestReportFaults(t *testing.T) {
	in(t, reporting, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = once(adOf("a"))
		b.start()
		j := b.o.Store.Get(1)
		ended := func(work *classad.Ad) *classad.Ad { return work }
		for n := 1; ; n++ {
			fault := spooltest.InjectAt(t, n, unix.ENOSPC)
			err := b.Report(j, "exit", ended)
			fault.Restore()
			if err == nil {
				break
			}
			if n > 20 || !strings.Contains(err.Error(), "cannot store how job 1 has ended: ") {
				t.Fatalf("fault %d: %v", n, err)
			}
		}
		b.slots.end(t, b.Layer, 1)
		b.Recorded(j)
		synctest.Wait()
		if told, _ := b.reported(t); len(told) != 1 || len(b.left(t)) > 0 {
			t.Errorf("told %q, left %q; want one told", told, b.left(t))
		}
	})
}

// TestReportUnread has a report that cannot be read for now told later.
func TestReportUnread(t *testing.T) {
	in(t, reporting, []int{1}, func(t *testing.T, b *bench) {
		if err := b.keepReport(7, &report{Slot: "1", Keyword: "KW", Word: "exit", Work: "A = 1\n"}); err != nil {
			t.Fatal(err)
		}
		restore := spooltest.FailReads(t, "/"+strconv.Itoa(7), unix.EMFILE)
		b.start()()
		restore()
		if told, _ := b.reported(t); len(told) > 0 || strings.Count(b.log.String(), "cannot read reports/7: too many open files") != 1 {
			t.Errorf("told %q; the log is\n%s", told, b.log)
		}
		b.open(t)
		b.start()()
		if told, _ := b.reported(t); len(told) != 1 {
			t.Errorf("told %q; want one", told)
		}
	})
}

// TestUnheardIsNotRunAgain has work handed out again whose end was not heard: by this execd and
// the next one it is accepted again, and does not run a second time before that.
func TestUnheardIsNotRunAgain(t *testing.T) {
	in(t, reporting, []int{1}, func(t *testing.T, b *bench) {
		b.hooks.fetch = func(context.Context, hook.Call) hook.Result { return hook.Result{Stdout: []byte(adOf("a"))} }
		deaf := func(_ context.Context, c hook.Call) hook.Result {
			if c.Hook.Name == hook.ReportWork {
				return hook.Result{Status: 1}
			}
			return hook.Result{}
		}
		b.hooks.other = deaf
		started := func(want int) {
			t.Helper()
			synctest.Wait()
			if got := strings.Count(b.slots.told(), "starts"); got != want {
				t.Errorf("%d jobs were started; want %d", got, want)
			}
		}
		stop := b.start()
		b.finish(t, "exit", true)
		started(1)
		b.Wake(nil)
		started(1)
		stop()
		b.open(t)
		b.start()
		b.Wake(nil)
		started(1)
		if got := b.hooks.words(); strings.Count(got, "REPLY_FETCH accept") < 4 {
			t.Errorf("the hooks were called: %s; want the acceptance told each time", got)
		}
		b.hooks.mu.Lock()
		b.hooks.other = nil
		b.hooks.mu.Unlock()
		time.Sleep(time.Hour)
		started(2)
	})
}

// TestReportsTogether has a hook that takes several reports in a call: it hears those that wait together, and one alone
// when they were not heard.
func TestReportsTogether(t *testing.T) {
	in(t, reporting, []int{1}, func(t *testing.T, b *bench) {
		goOn, fails := make(chan struct{}), false
		b.hooks.together = true
		b.hooks.other = func(_ context.Context, c hook.Call) hook.Result {
			if c.Hook.Name != hook.ReportWork {
				return hook.Result{}
			}
			<-goOn
			if fails {
				return hook.Result{Status: 1}
			}
			return hook.Result{}
		}
		stop := b.start()
		end := func(jobs ...int) {
			for _, n := range jobs {
				if err := b.keepReport(n, &report{Slot: "1", Keyword: "KW", Word: "exit", Work: fmt.Sprintf("GlobalJobId = \"%d\"\n", n)}); err != nil {
					t.Fatal(err)
				}
				b.release(n)
			}
			synctest.Wait()
		}
		end(1)       // is being told
		end(2, 3, 4) // wait for it
		goOn <- struct{}{}
		synctest.Wait()
		end(5, 6)
		goOn <- struct{}{} // 2, 3, 4
		synctest.Wait()
		fails = true
		goOn <- struct{}{} // 5, 6
		goOn <- struct{}{} // 5, after a second
		synctest.Wait()
		fails = false
		goOn <- struct{}{} // 5
		goOn <- struct{}{} // 6
		synctest.Wait()
		stop()
		var got []string
		for _, c := range b.hooks.of(hook.ReportWork) {
			ids := ""
			for part := range strings.SplitSeq(c.stdin, "-----\n") {
				work, err := classad.ParseOld(part)
				if err != nil {
					t.Fatal(err)
				}
				id, _ := text(work, attrIdentity)
				ids += id
			}
			got = append(got, fmt.Sprintf("%s %d", ids, len(strings.Fields(c.args))))
		}
		if want := "1 1, 234 3, 56 2, 5 1, 5 1, 6 1"; strings.Join(got, ", ") != want {
			t.Errorf("reports and words: %s; want %s", strings.Join(got, ", "), want)
		}
		if left := b.left(t); len(left) > 0 {
			t.Errorf("left are %v", left)
		}
	})
}
