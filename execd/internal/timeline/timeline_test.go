package timeline

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/spool"
)

// at is a time of a test, in seconds.
func at(s int) time.Time { return time.Unix(int64(s), 0) }

func run(n int) spool.RunID { return spool.RunID{Job: n, Task: 1} }

// since returns what has changed, a line for each run, and the next cursor.
func since(t *Timeline, cursor string) (lines []string, next string, whole bool) {
	runs, next, whole := t.Since(cursor)
	for _, r := range runs {
		text := strconv.Itoa(r.Job)
		for _, s := range r.Spans {
			text += " " + string(s.Kind) + " " + strconv.FormatInt(s.Begin/1000, 10) + "-"
			if s.End > 0 {
				text += strconv.FormatInt(s.End/1000, 10)
			}
			if s.Failed {
				text += "!"
			}
		}
		if r.Over {
			text += " over"
		}
		lines = append(lines, text)
	}
	return lines, next, whole
}

// TestLife has a run with all that it may have, and who looks sees each change once.
func TestLife(t *testing.T) {
	var l Timeline
	l.Enter(Of{Run: run(1), Owner: "alice", Name: "render", Queue: "all.q", Slots: "1,2", Submitted: at(5)}, at(10))
	l.Note(run(1), Span{Kind: In, Begin: at(11)})
	l.Note(run(1), Span{Kind: In, Begin: at(12)}) // it goes on
	l.Note(run(1), Span{Kind: In, End: at(13), Failed: true})
	l.Note(run(1), Span{Kind: In, Begin: at(14)})
	l.Note(run(1), Span{Kind: In, End: at(15), Bytes: 7})
	l.Note(run(1), Span{Kind: Job, Begin: at(20)})
	got, cursor, whole := since(&l, "")
	if want := []string{"1 slot 10- in 11-13! in 14-15 run 20-"}; !cmp.Equal(got, want) || !whole {
		t.Errorf("it is %q, whole %v; want %q", got, whole, want)
	}
	if more, next, whole := since(&l, cursor); len(more) > 0 || next != cursor || whole {
		t.Errorf("nothing has changed, and it is %q, %q, %v", more, next, whole)
	}
	l.Note(run(1), Span{Kind: Suspended, End: at(21)}) // it was not
	l.Note(run(7), Span{Kind: Job, Begin: at(21)})     // nobody knows it
	if more, _, _ := since(&l, cursor); len(more) > 0 {
		t.Errorf("what is not so is a change: %q", more)
	}
	l.Enter(Of{Run: run(2)}, at(22))
	l.Note(run(1), Span{Kind: Suspended, Begin: at(25)})
	l.Note(run(1), Span{Kind: Job, End: at(30)})
	l.Account(run(1), 20, 29)
	l.Note(run(1), Span{Kind: Slot, End: at(31)})
	l.Note(run(1), Span{Kind: Out, Begin: at(31)})
	got, cursor, _ = since(&l, cursor)
	if want := []string{"2 slot 22-", "1 slot 10-31 in 11-13! in 14-15 run 20-29 suspended 25-30 out 31-"}; !cmp.Equal(got, want) {
		t.Errorf("it is %q; want %q", got, want)
	}
	l.Leave(run(1), at(40), 100, 137)
	l.Note(run(1), Span{Kind: Hook, Begin: at(41)})
	runs, _, _ := l.Since(cursor)
	if len(runs) != 1 {
		t.Fatalf("%d runs have changed; want 1", len(runs))
	}
	r := runs[0]
	if r.Owner != "alice" || r.Name != "render" || r.Slots != "1,2" || r.Submitted != 5000 || !r.Over || r.Failed != 100 || r.Exit != 137 || r.Spans[5].End != 40000 {
		t.Errorf("it is %+v", r)
	}
}

// What was not seen to begin is noted as a whole, and a try that came to nothing ends when the
// next of its number begins.
func TestAgain(t *testing.T) {
	var l Timeline
	l.Enter(Of{Run: run(1)}, time.Time{})
	l.Note(run(1), Span{Kind: Job, Begin: at(1), End: at(2)})
	l.Enter(Of{Run: run(1)}, at(3))
	l.Leave(run(1), at(4), -1, -1)
	l.Leave(run(1), at(5), 0, 0)
	got, _, _ := since(&l, "")
	if want := []string{"1 run 1-2 over", "1 slot 3-4 over"}; !cmp.Equal(got, want) {
		t.Errorf("it is %q; want %q", got, want)
	}
}

// A cursor of another execd, or none, is answered with all.
func TestCursor(t *testing.T) {
	var before, now Timeline
	before.Enter(Of{Run: run(1)}, at(1))
	_, cursor, _ := before.Since("")
	now.Enter(Of{Run: run(2)}, at(1))
	for _, c := range []string{cursor, "x", "0.1", ".", "9999999999.18446744073709551616"} {
		if got, _, whole := since(&now, c); len(got) != 1 || !whole {
			t.Errorf("cursor %q: %q, whole %v", c, got, whole)
		}
	}
}

// Runs of the past come before all others, as many as there is room for.
func TestPast(t *testing.T) {
	var l Timeline
	l.Enter(Of{Run: run(9)}, at(90))
	l.Past([]api.TimelineRun{
		{Job: 1, Queue: "all.q", Spans: []api.Span{{Kind: api.SpanRun, Begin: 1000, End: 2000}}},
		{Job: 2, Task: 3, Failed: 7, Spans: []api.Span{{Kind: api.SpanRun, Begin: 3000, End: 4000}}},
	})
	got, _, _ := since(&l, "")
	if want := []string{"1 run 1-2 over", "2 run 3-4 over", "9 slot 90-"}; !cmp.Equal(got, want) {
		t.Errorf("it is %q; want %q", got, want)
	}
	if runs, _, _ := l.Since(""); runs[1].Task != 3 || runs[1].Failed != 7 || runs[0].Task != 0 {
		t.Errorf("it is %+v", runs)
	}
}

// Who waits is woken by a change, and by no other.
func TestChanged(t *testing.T) {
	var l Timeline
	c := l.Changed()
	l.Note(run(1), Span{Kind: Job, Begin: at(1)})
	select {
	case <-c:
		t.Error("woken by nothing")
	default:
	}
	l.Enter(Of{Run: run(1)}, at(1))
	<-c
}

// TestMemory has far more runs than there is room for, with long names and jobs that are stopped
// again and again: the newest are remembered, those that go on among them, in 2 MB.
func TestMemory(t *testing.T) {
	var l Timeline
	before := heap()
	for n := range 5_000 {
		l.Enter(Of{Run: run(n), Owner: strings.Repeat("o", 32), Name: strings.Repeat("n", 500), Queue: "all.q", Slots: "1"}, at(n))
		l.Note(run(n), Span{Kind: Job, Begin: at(n)})
		for i := range n % 100 {
			l.Note(run(n), Span{Kind: Suspended, Begin: at(n + i)})
			l.Note(run(n), Span{Kind: Suspended, End: at(n + i)})
		}
		if n != 3 {
			l.Leave(run(n), at(n+100), 0, 0)
		}
	}
	if used := heap() - before; used > 2<<20 {
		t.Errorf("%d bytes are used", used)
	}
	got, _, _ := since(&l, "")
	if len(got) < 300 || len(got) > 5000 {
		t.Errorf("%d runs are remembered", len(got))
	}
	if first := strings.Fields(got[0])[0]; first != "3" {
		t.Errorf("the first is %s; want the one that goes on", first)
	}
	if last := strings.Fields(got[len(got)-1])[0]; last != "4999" {
		t.Errorf("the last is %s", last)
	}
	runtime.KeepAlive(&l)
}

// TestMany remembers thousands of short runs.
func TestMany(t *testing.T) {
	var l Timeline
	before := heap()
	for n := range 20_000 {
		l.Enter(Of{Run: run(n), Owner: "alice", Name: "true", Queue: "all.q", Slots: "1"}, at(n))
		l.Note(run(n), Span{Kind: Job, Begin: at(n)})
		l.Leave(run(n), at(n+1), 0, 0)
	}
	if used := heap() - before; used > 2<<20 {
		t.Errorf("%d bytes are used", used)
	}
	if got, _, _ := l.Since(""); len(got) < 3000 {
		t.Errorf("%d runs are remembered", len(got))
	}
	runtime.KeepAlive(&l)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Of nothing nothing is remembered.
func TestNil(*testing.T) {
	var l *Timeline
	l.Enter(Of{Run: run(1)}, at(1))
	l.Note(run(1), Span{Kind: Job, Begin: at(1)})
	l.Account(run(1), 1, 2)
	l.Leave(run(1), at(2), 0, 0)
}

// BenchmarkRun is what the timeline costs of a run, when it is full and nobody looks.
func BenchmarkRun(b *testing.B) {
	var l Timeline
	n := 0
	for b.Loop() {
		n++
		l.Enter(Of{Run: run(n), Owner: "alice", Name: "true", Queue: "all.q", Slots: "1"}, at(n))
		l.Note(run(n), Span{Kind: Job, Begin: at(n)})
		l.Note(run(n), Span{Kind: Job, End: at(n + 1)})
		l.Note(run(n), Span{Kind: Slot, End: at(n + 1)})
		l.Leave(run(n), at(n+1), 0, 0)
	}
}
