// Package timeline remembers what the runs of this host's jobs did lately, here and on other
// hosts, for those who look: when each had its slots, and when within that its hooks ran, its
// files travelled, its job ran and was suspended. Packages stage, finish, jobhook and shadow
// tell it by Note; the server asks by Since. It is memory alone: after a restart runs that go on are told anew, and those that
// are over come from the accounting file, as far as that is known of them.
//
// It has no goroutine and no timer. Who waits for a change has a channel, and without one a
// note costs a lock and a few writes.
package timeline

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/spool"
)

// Kind is what a span of a run is.
type Kind uint8

// The kinds.
const (
	Slot      Kind = iota // it has its slots
	Hook                  // a hook or a script of the site, before the job or after it
	In                    // its files come
	Job                   // its job runs
	Suspended             // and is stopped
	Out                   // its files go where they belong
)

// kinds are the kinds as replies have them.
var kinds = [...]api.SpanKind{Slot: api.SpanSlot, Hook: api.SpanHook, In: api.SpanIn, Job: api.SpanRun, Suspended: api.SpanSuspended, Out: api.SpanOut}

// Of is the run that a line is of.
type Of struct {
	Run       spool.RunID
	Array     bool
	Owner     string
	Name      string
	Host      string // another one, on which it is; empty: this one
	Queue     string
	Slots     string // of the queue, or of the other host, as 1,7; empty: not known
	Submitted time.Time
}

// Span is a stretch of time of a run, which goes on as long as End is zero. A note of one that
// goes on needs its Kind and its End alone.
type Span struct {
	Kind       Kind
	Begin, End time.Time
	Bytes      int64 // that travelled
	Failed     bool
}

// span is a Span in memory: its times are milliseconds since the epoch, and end is 0 while it goes on.
type span struct {
	begin, end, bytes int64
	kind              Kind
	failed            bool
}

// How much is remembered. What a line costs is estimated, from above.
const (
	budget   = 1600 << 10
	lineCost = 320
	spanCost = 32
	maxSpans = 64  // of a line: a user decides how often his job is stopped
	maxShown = 200 // bytes of a name
)

// line is what is remembered of a run. Lines are a list, the one that changed last first.
type line struct {
	of         Of
	spans      []span
	seq        uint64
	over       bool
	failed     int // as in the accounting file, as exit
	exit       int
	prev, next *line
}

func (l *line) cost() int {
	return lineCost + spanCost*cap(l.spans) + len(l.of.Owner) + len(l.of.Name) + len(l.of.Host) + len(l.of.Queue) + len(l.of.Slots)
}

// Timeline is what is remembered. The zero value is ready, and a nil one remembers nothing.
type Timeline struct {
	mu      sync.Mutex
	epoch   string                // guarded by mu, as all below; empty: nothing was told yet
	seq     uint64                // of the last change
	open    map[spool.RunID]*line // those of runs that are not over
	first   *line
	last    *line
	cost    int
	changed chan struct{} // closed at the next change; nil: nobody waits
}

// Enter begins the line of a run, which has its slots from a time on; zero: it has none any more.
// A line of the run that is there already, of a try that came to nothing, ends.
func (t *Timeline) Enter(of Of, taken time.Time) {
	if t == nil {
		return
	}
	of.Owner, of.Name, of.Slots = strings.Clone(of.Owner), strings.Clone(cut(of.Name)), strings.Clone(of.Slots)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[spool.RunID]*line{}
	}
	if old := t.open[of.Run]; old != nil {
		old.end(time.Now())
		old.over = true
	}
	l := &line{of: of, spans: make([]span, 0, 2)}
	if !taken.IsZero() {
		l.spans = append(l.spans, span{kind: Slot, begin: taken.UnixMilli()})
	}
	t.open[of.Run] = l
	t.cost += l.cost()
	t.front(l)
}

// Note notes a span of a run whose line was begun: that it begins, or that the one of its kind
// that goes on has ended. What was not seen to begin is noted as a whole.
func (t *Timeline) Note(run spool.RunID, s Span) {
	t.change(run, func(l *line) bool { return l.note(s) })
}

// change changes the line of a run, if it was begun; what does so reports whether it has.
func (t *Timeline) change(run spool.RunID, do func(*line) bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.open[run]
	if l == nil {
		return
	}
	before := l.cost()
	if do(l) {
		t.cost += l.cost() - before
		t.front(l)
	}
}

// Account has the job of a run begin and end within the seconds that are accounted, as near to
// what was noted as that is, so that all who tell of a run tell the same. Execd sees the end of a
// job later than its shepherd does, or not at all, and another host tells them by its own clock.
func (t *Timeline) Account(run spool.RunID, begin, end int64) {
	t.change(run, func(l *line) bool { l.account(begin, end); return true })
}

// Leave ends the line of a run at a time, with what the accounting file says of it; -1: nothing.
func (t *Timeline) Leave(run spool.RunID, at time.Time, failed, exit int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.open[run]
	if l == nil {
		return
	}
	delete(t.open, run)
	l.end(at)
	l.over, l.failed, l.exit = true, failed, exit
	t.front(l)
}

// Past enters runs that are over and ended before all others, of which the last is the latest.
// They change nothing for who has a cursor, so that they are entered before there is one.
func (t *Timeline) Past(runs []api.TimelineRun) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range slices.Backward(runs) {
		l := &line{
			of:   Of{Run: spool.RunID{Job: r.Job, Task: max(r.Task, 1)}, Array: r.Task > 0, Owner: r.Owner, Name: cut(r.Name), Host: r.Host, Queue: r.Queue, Submitted: time.UnixMilli(r.Submitted)},
			over: true, failed: r.Failed, exit: r.Exit,
		}
		for _, s := range r.Spans {
			l.spans = append(l.spans, span{kind: Job, begin: s.Begin, end: s.End})
		}
		if t.cost+l.cost() > budget {
			return
		}
		t.cost += l.cost()
		if l.prev = t.last; t.last != nil {
			t.last.next = l
		} else {
			t.first = l
		}
		t.last = l
	}
}

// Since returns the runs of which something has changed since a cursor, the oldest change first,
// and the cursor of now. Whole says that there are all, since the cursor is none of this execd.
func (t *Timeline) Since(cursor string) (runs []api.TimelineRun, now string, whole bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.epoch == "" {
		t.epoch = strconv.FormatInt(time.Now().UnixNano(), 36)
	}
	epoch, number, _ := strings.Cut(cursor, ".")
	since, err := strconv.ParseUint(number, 10, 64)
	if whole = err != nil || epoch != t.epoch || since > t.seq; whole {
		since = 0
	}
	for l := t.first; l != nil && (whole || l.seq > since); l = l.next {
		runs = append(runs, l.shown())
	}
	slices.Reverse(runs)
	return runs, fmt.Sprintf("%s.%d", t.epoch, t.seq), whole
}

// Changed returns a channel that is closed at the next change.
func (t *Timeline) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.changed
}

// front has a line be the one that changed last, forgets those for which there is no room, and
// tells who waits. t.mu is held.
func (t *Timeline) front(l *line) {
	if t.seq++; l != t.first {
		t.unlink(l)
		if l.next = t.first; t.first != nil {
			t.first.prev = l
		} else {
			t.last = l
		}
		t.first = l
	}
	l.seq = t.seq
	for old := t.last; old != nil && t.cost > budget; {
		before := old.prev
		if old.over {
			t.cost -= old.cost()
			t.unlink(old)
		}
		old = before
	}
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// unlink takes a line out of the list, if it is there. t.mu is held.
func (t *Timeline) unlink(l *line) {
	if l.prev != nil {
		l.prev.next = l.next
	} else if t.first == l {
		t.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else if t.last == l {
		t.last = l.prev
	}
	l.prev, l.next = nil, nil
}

// note is Note of a line, and reports whether it has changed.
func (l *line) note(s Span) bool {
	if s.End.IsZero() {
		if l.going(s.Kind) == nil {
			l.add(s)
			return true
		}
		return false
	}
	going := l.going(s.Kind)
	if going == nil {
		if !s.Begin.IsZero() {
			l.add(s)
		}
		return !s.Begin.IsZero()
	}
	going.end, going.bytes, going.failed = s.End.UnixMilli(), s.Bytes, s.Failed
	if s.Kind == Job {
		l.resume(going.end)
	}
	return true
}

// resume ends that it is suspended, as what is over is no more.
func (l *line) resume(at int64) {
	if stopped := l.going(Suspended); stopped != nil {
		stopped.end = at
	}
}

// account is Account of a line.
func (l *line) account(begin, end int64) {
	i := slices.IndexFunc(l.spans, func(s span) bool { return s.kind == Job })
	if i < 0 {
		l.add(Span{Kind: Job, Begin: time.UnixMilli(within(0, begin)), End: time.UnixMilli(within(0, end))})
		return
	}
	s := &l.spans[i]
	s.begin, s.end = within(s.begin, begin), within(s.end, end)
	l.resume(s.end)
}

// within returns the time within a second that is the nearest to one that was seen; 0: none was.
// Another host may tell of any second.
func within(seen, second int64) int64 {
	first := min(second, 1<<40) * 1000
	return min(max(seen, first), first+999)
}

// add adds a span. Of more than there is room for the oldest goes that is short of telling what
// became of the run.
func (l *line) add(s Span) {
	if len(l.spans) >= maxSpans {
		i := slices.IndexFunc(l.spans, func(s span) bool { return s.kind != Slot && s.kind != Job && s.end != 0 })
		if i < 0 {
			return
		}
		l.spans = slices.Delete(l.spans, i, i+1)
	}
	added := span{kind: s.Kind, begin: s.Begin.UnixMilli(), bytes: s.Bytes, failed: s.Failed}
	if !s.End.IsZero() {
		added.end = s.End.UnixMilli()
	}
	l.spans = append(l.spans, added)
}

// going returns the span of a kind that goes on; nil: none does.
func (l *line) going(k Kind) *span {
	for i := range l.spans {
		if l.spans[i].kind == k && l.spans[i].end == 0 {
			return &l.spans[i]
		}
	}
	return nil
}

// end ends all that goes on.
func (l *line) end(at time.Time) {
	for i := range l.spans {
		if l.spans[i].end == 0 {
			l.spans[i].end = at.UnixMilli()
		}
	}
}

// shown is a line as replies have it.
func (l *line) shown() api.TimelineRun {
	r := api.TimelineRun{
		Job: l.of.Run.Job, Run: l.of.Run.Run, Owner: l.of.Owner, Name: l.of.Name, Host: l.of.Host, Queue: l.of.Queue, Slots: l.of.Slots,
		Submitted: l.of.Submitted.UnixMilli(), Over: l.over, Failed: l.failed, Exit: l.exit, Spans: make([]api.Span, len(l.spans)),
	}
	if l.of.Array {
		r.Task = l.of.Run.Task
	}
	for i, s := range l.spans {
		r.Spans[i] = api.Span{Kind: kinds[s.kind], Begin: s.begin, End: s.end, Bytes: s.bytes, Failed: s.failed}
	}
	return r
}

// cut cuts a name to what is shown of it.
func cut(name string) string {
	if len(name) <= maxShown {
		return name
	}
	return strings.ToValidUTF8(name[:maxShown], "") + "…"
}
