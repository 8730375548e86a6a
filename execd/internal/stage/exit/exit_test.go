package exit

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// counting is a process that counts what it is told.
type counting struct {
	Script
	told []string
}

func (p *counting) Reaped(child string, s Status) bool {
	p.told = append(p.told, child)
	return p.Script.Reaped(child, s)
}

func names(list []Process) string {
	var n []string
	for _, p := range list {
		n = append(n, p.Name())
	}
	return strings.Join(n, " ")
}

// REQ-EXIT-1: both lists are there to be seen, and who is active is not reaped.
func TestListsOfProcesses(t *testing.T) {
	var l List
	l.Spawned(&Script{Of: "a"})
	l.Spawned(&Script{Of: "b"})
	if got, reaped := names(l.Active()), names(l.Reaped()); got != "a b" || reaped != "" {
		t.Errorf("active %q, reaped %q; want a b and none", got, reaped)
	}
}

// REQ-EXIT-2: an end that is nobody's is harmless, and the caller learns it.
func TestUnknownChild(t *testing.T) {
	var l List
	l.Spawned(&Script{Of: "a"})
	if l.Reap("z", Status{}) {
		t.Error("z is known")
	}
	if l.Idle() || !l.Reap("a", Status{}) || !l.Idle() {
		t.Error("a was not reaped by its own end alone")
	}
}

// REQ-EXIT-3, REQ-EXIT-4: each end is told to every process that is active, and
// an ordinary one acts on its own only.
func TestEveryProcessIsTold(t *testing.T) {
	var l List
	a, b, c := &counting{Script: Script{Of: "a"}}, &counting{Script: Script{Of: "b"}}, &counting{Script: Script{Of: "c"}}
	for _, p := range []*counting{a, b, c} {
		l.Spawned(p)
	}
	l.Reap("b", Status{Code: 3})
	l.Reap("x", Status{})
	if got := names(l.Active()); got != "a c" {
		t.Errorf("active: %q; want a c", got)
	}
	l.Reap("a", Status{})
	for _, tt := range []struct {
		p    *counting
		want string
	}{{a, "b x a"}, {b, "b"}, {c, "b x a"}} {
		if got := strings.Join(tt.p.told, " "); got != tt.want {
			t.Errorf("%s was told of %q; want %q", tt.p.Of, got, tt.want)
		}
	}
}

// REQ-EXIT-5: a companion may end by the end of another.
func TestCompanionEndsByTheJob(t *testing.T) {
	var l List
	l.Spawned(&Companion{Of: "tool", Other: func(child string, _ Status) bool { return child == "job" }})
	l.Spawned(&Job{Script{Of: "job"}})
	l.Spawned(&Script{Of: "other"})
	l.Reap("other", Status{})
	if got := names(l.Active()); got != "tool job" {
		t.Errorf("active: %q; want tool job", got)
	}
	l.Reap("job", Status{})
	if !l.Idle() {
		t.Errorf("active: %q; want none", names(l.Active()))
	}
}

// REQ-EXIT-6: what is over is in the list of the reaped, with its status, in the
// order of the ends.
func TestReapedKeepOrderAndStatus(t *testing.T) {
	var l List
	a, b := &Script{Of: "a"}, &Script{Of: "b"}
	l.Spawned(a)
	l.Spawned(b)
	l.Reap("b", Status{Code: 7})
	l.Reap("a", Status{Signal: 9})
	if got := names(l.Reaped()); got != "b a" {
		t.Errorf("reaped: %q; want b a", got)
	}
	if b.Status.Code != 7 || a.Status.Signal != 9 || b.Status.OK() || a.Status.OK() {
		t.Errorf("statuses %+v %+v; want code 7, signal 9", b.Status, a.Status)
	}
}

// REQ-EXIT-101: a list from which several go at one end loses none of the others.
func TestSeveralAreOverAtOnce(t *testing.T) {
	var l List
	byJob := func(child string, _ Status) bool { return child == "job" }
	l.Spawned(&Companion{Of: "t1", Other: byJob})
	l.Spawned(&Companion{Of: "t2", Other: byJob})
	l.Spawned(&Script{Of: "stays"})
	l.Spawned(&Companion{Of: "t3", Other: byJob})
	l.Spawned(&Job{Script{Of: "job"}})
	l.Reap("job", Status{})
	if got, reaped := names(l.Active()), names(l.Reaped()); got != "stays" || reaped != "t1 t2 t3 job" {
		t.Errorf("active %q, reaped %q; want stays, and t1 t2 t3 job", got, reaped)
	}
}

// REQ-EXIT-7, REQ-EXIT-8, REQ-EXIT-15: what follows an end is started before it
// counts that nothing is left, and only then the clean-up begins, by one entry.
func TestSuccessorsAndOneEntry(t *testing.T) {
	c := &fake{}
	p := pipeline(c)
	var trace []string
	p.List = List{Next: func(over Process, active []Process) Process {
		trace = append(trace, over.Name()+" is over")
		switch {
		case over.Name() == "pre":
			return &Job{Script{Of: "job"}}
		case over.Name() == "post" || len(active) > 0:
			return nil
		}
		return &Script{Of: "post"}
	}}
	p.Spawned(&Script{Of: "pre"})
	p.Spawned(&Companion{Of: "tool", Other: func(string, Status) bool { return false }})
	for _, child := range []string{"pre", "job", "tool", "post"} {
		if result, _ := p.AllDone(); result != InProgress || len(c.trace) > 0 {
			t.Fatalf("before the end of %s: %v, trace %v; want no clean-up", child, result, c.trace)
		}
		if p.Idle() {
			t.Fatalf("before the end of %s nothing is active", child)
		}
		p.Reap(child, Status{})
	}
	if result, err := p.AllDone(); result != Done || err != nil {
		t.Fatalf("at the end: %v, %v; want done", result, err)
	}
	if got := strings.Join(trace, ", "); got != "pre is over, job is over, tool is over, post is over" {
		t.Errorf("trace: %s", got)
	}
	if got := strings.Join(c.trace, " "); got != "enter hook free announce transfer notify:job gone" {
		t.Errorf("clean-up: %s", got)
	}
}

// fake is a controller whose answers are scripted: a step without one is done.
type fake struct {
	trace   []string
	answers map[string][]Result
}

var errScripted = errors.New("as scripted")

func (c *fake) step(name string) (Result, error) {
	c.trace = append(c.trace, name)
	list := c.answers[name]
	if len(list) == 0 {
		return Done, nil
	}
	c.answers[name] = list[1:]
	if list[0] == Failed {
		return Failed, errScripted
	}
	return list[0], nil
}

func (c *fake) Enter() (Result, error)           { return c.step("enter") }
func (c *fake) Hook() (Result, error)            { return c.step("hook") }
func (c *fake) Free() (Result, error)            { return c.step("free") }
func (c *fake) Announce() (Result, error)        { return c.step("announce") }
func (c *fake) Transfer() (Result, error)        { return c.step("transfer") }
func (c *fake) Notify(p Process) (Result, error) { return c.step("notify:" + p.Name()) }
func (c *fake) Gone() (Result, error)            { return c.step("gone") }

func (c *fake) count(name string) (n int) {
	for _, s := range c.trace {
		if s == name {
			n++
		}
	}
	return n
}

// pipeline is one whose job has ended.
func pipeline(c Controller) *Pipeline { return &Pipeline{Controller: c} }

func ended(c Controller) *Pipeline {
	p := pipeline(c)
	p.Spawned(&Job{Script{Of: "job"}})
	p.Reap("job", Status{})
	return p
}

// REQ-EXIT-9, REQ-EXIT-10, REQ-EXIT-11, REQ-EXIT-14, REQ-EXIT-16, REQ-EXIT-19:
// the steps come in their order, timers first, the hook before all that is
// visible, and the end last.
func TestOrderOfSteps(t *testing.T) {
	c := &fake{}
	if result, err := ended(c).AllDone(); result != Done || err != nil {
		t.Fatalf("AllDone = %v, %v; want done", result, err)
	}
	if got := strings.Join(c.trace, " "); got != "enter hook free announce transfer notify:job gone" {
		t.Errorf("trace: %s", got)
	}
}

// REQ-EXIT-17, REQ-EXIT-104, REQ-EXIT-105: while the hook runs the pipeline
// stands still and starts no second one; its end enters at the top, and the
// pipeline goes on to its own end.
func TestHookInProgress(t *testing.T) {
	c := &fake{answers: map[string][]Result{"hook": {InProgress, InProgress}}}
	p := ended(c)
	for range 2 {
		if result, err := p.AllDone(); result != InProgress || err != nil {
			t.Fatalf("AllDone = %v, %v; want in progress", result, err)
		}
	}
	if c.count("free")+c.count("transfer")+c.count("gone") > 0 {
		t.Fatalf("something came while the hook ran: %v", c.trace)
	}
	if result, _ := p.AllDone(); result != Done || c.count("gone") != 1 {
		t.Errorf("after the hook: %v, trace %v", result, c.trace)
	}
}

// REQ-EXIT-18, REQ-EXIT-20: what has nothing to do is over at once, and leaves
// nothing to be written down.
func TestNothingToDo(t *testing.T) {
	var kept []string
	p := ended(Base{})
	p.Keep = func(step string) error { kept = append(kept, step); return nil }
	if result, err := p.AllDone(); result != Done || err != nil || len(kept) > 0 {
		t.Errorf("AllDone = %v, %v, kept %v; want done at once, nothing kept", result, err, kept)
	}
	if len(p.Reaped()) > 0 {
		t.Errorf("reaped: %v", names(p.Reaped()))
	}
}

// REQ-EXIT-24, REQ-EXIT-25, REQ-EXIT-32, REQ-EXIT-33: all that were reaped are
// asked, in order; a script tells nobody; what succeeds leaves the list; and the
// end comes once, however often it is asked for.
func TestReapedAreDoneInOrder(t *testing.T) {
	c := &fake{answers: map[string][]Result{"notify:two": {Failed}}}
	p := pipeline(c)
	p.Spawned(&Script{Of: "pre"})
	p.Spawned(&Job{Script{Of: "two"}})
	p.Spawned(&Job{Script{Of: "one"}})
	for _, child := range []string{"pre", "one", "two"} {
		p.Reap(child, Status{})
	}
	if result, err := p.AllDone(); result != Failed || !errors.Is(err, errScripted) {
		t.Fatalf("AllDone = %v, %v; want failed", result, err)
	}
	if got := names(p.Reaped()); got != "two" {
		t.Errorf("reaped: %q; want two", got)
	}
	for range 3 {
		if result, err := p.AllDone(); result != Done || err != nil {
			t.Fatalf("AllDone = %v, %v; want done", result, err)
		}
	}
	if got := strings.Join(c.trace, " "); got != "enter hook free announce transfer notify:one notify:two notify:two gone" {
		t.Errorf("trace: %s", got)
	}
}

// REQ-EXIT-30: a notice that fails leaves its process in the list.
func TestFailedNoticeKeepsProcess(t *testing.T) {
	p := ended(&fake{answers: map[string][]Result{"notify:job": {Failed, Failed, Failed}}})
	for range 3 {
		if _, err := p.AllDone(); err == nil || names(p.Reaped()) != "job" {
			t.Fatalf("error %v, reaped %q; want an error, and the job", err, names(p.Reaped()))
		}
	}
}

// REQ-EXIT-36, REQ-EXIT-37, REQ-EXIT-38, REQ-EXIT-39: nothing comes behind a
// step that failed; each event enters at the top; what is done answers without
// being done; so a second failure is met behind the first.
func TestDoubleFailure(t *testing.T) {
	c := &fake{answers: map[string][]Result{"transfer": {Failed}, "notify:job": {Failed}}}
	p := ended(c)
	var at []string
	for range 3 {
		before := len(c.trace)
		result, err := p.AllDone()
		at = append(at, strings.Join(c.trace[before:], " ")+": "+result.String())
		if (result == Failed) != (err != nil) {
			t.Errorf("%v with error %v", result, err)
		}
	}
	want := []string{"enter hook free announce transfer: failed", "transfer notify:job: failed", "notify:job gone: done"}
	if !slices.Equal(at, want) {
		t.Errorf("entries %q; want %q", at, want)
	}
}

// REQ-EXIT-115: each step is written down before the next begins; when that
// fails nothing is done twice, and nothing further; who is told of what was
// written goes on behind it.
func TestMarksAreKept(t *testing.T) {
	c := &fake{}
	p := ended(c)
	full := true
	var kept []string
	p.Keep = func(step string) error {
		if full && step == StepFree {
			return errors.New("disk full")
		}
		kept = append(kept, step)
		return nil
	}
	for range 2 {
		if result, err := p.AllDone(); result != Failed || err == nil || err.Error() != "release: disk full" {
			t.Fatalf("AllDone = %v, %v; want failed", result, err)
		}
	}
	if c.count("free") != 1 || c.count("transfer") != 0 {
		t.Fatalf("trace %v; want one release, and no transfer", c.trace)
	}
	full = false
	if result, _ := p.AllDone(); result != Done || c.count("free") != 1 {
		t.Fatalf("%v, trace %v", result, c.trace)
	}
	again := &fake{}
	q := ended(again)
	for _, step := range kept {
		if step != StepGone {
			q.Set(step)
		}
	}
	if result, _ := q.AllDone(); result != Done || strings.Join(again.trace, " ") != "notify:job gone" {
		t.Errorf("after a restart: %v, trace %v", result, again.trace)
	}
}

// REQ-EXIT-44: what cannot be recovered leaves the pipeline waiting, for as often
// as it is entered.
func TestNeverRecovers(t *testing.T) {
	answers := make([]Result, 100)
	for i := range answers {
		answers[i] = Failed
	}
	c := &fake{answers: map[string][]Result{"transfer": answers}}
	p := ended(c)
	for range answers {
		if result, _ := p.AllDone(); result != Failed {
			t.Fatalf("AllDone = %v; want failed", result)
		}
	}
	if c.count("hook") != 1 || c.count("gone") != 0 {
		t.Errorf("hook %d times, gone %d times; want 1, 0", c.count("hook"), c.count("gone"))
	}
}

// REQ-EXIT-107, REQ-EXIT-110: the output of a job is transferred if the job was set up,
// and has ended by itself, or was evicted and asks for that, or was removed and waits for
// it, and there is no hurry.
func TestWantsOutput(t *testing.T) {
	for _, tt := range []struct {
		e    Ending
		want bool
	}{
		{Ending{}, false},
		{Ending{SetUp: true, Word: WordExit}, true},
		{Ending{SetUp: true, Word: WordExit, Fast: true}, true},
		{Ending{OnEviction: true, Word: WordEvict}, false},
		{Ending{SetUp: true, Word: WordEvict}, false},
		{Ending{SetUp: true, Word: WordEvict, OnEviction: true}, true},
		{Ending{SetUp: true, Word: WordEvict, OnEviction: true, Fast: true}, false},
		{Ending{SetUp: true, Word: WordRemove, OnEviction: true}, false},
		{Ending{SetUp: true, Word: WordRemove, Final: true}, true},
		{Ending{Word: WordRemove, Final: true}, false},
	} {
		if got := WantsOutput(tt.e); got != tt.want {
			t.Errorf("WantsOutput(%+v) = %v; want %v", tt.e, got, tt.want)
		}
	}
}
