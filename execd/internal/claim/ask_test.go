package claim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob/knobtest"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/slot"
)

// waiting is a job that waits, and counts how often its ad is wanted.
type waiting struct {
	like  Likeness
	alone bool // it does not know what it is like
	ads   *int
}

func (w *waiting) Like() (Likeness, bool) { return w.like, !w.alone }

func (w *waiting) AdOf(names []string) *classad.Ad {
	all := w.Ad()
	var some []classad.Attr
	for _, name := range names {
		if e, ok := all.Lookup(name); ok {
			some = append(some, classad.Attr{Name: name, Expr: e})
		}
	}
	return classad.New(some...)
}

func (w *waiting) Ad() *classad.Ad {
	*w.ads++
	return classad.New(
		classad.Attr{Name: "JobUniverse", Expr: classad.Int(5).Expr()},
		classad.Attr{Name: "Owner", Expr: classad.String(w.like.Owner).Expr()},
		classad.Attr{Name: "JobPrio", Expr: classad.Int(int64(w.like.Priority)).Expr()},
		classad.Attr{Name: "ClusterId", Expr: classad.Int(int64(w.like.Number)).Expr()},
	)
}

// hall is a table of some slots whose ads a test changes.
type hall struct {
	*Table
	now  time.Time
	heat map[int]int // by slot
}

func newHall(t testing.TB, slots int, policy string) *hall {
	t.Helper()
	h := &hall{Table: NewTable([]conf.Queue{{Name: "a.q", Slots: slots}}, "queue"), now: noon, heat: map[int]int{}}
	err := h.Manage(Options{Host: "node", Boot: noon, Now: func() time.Time { return h.now }, Ad: func(in *Info) *classad.Ad {
		return classad.New(
			classad.Attr{Name: "SlotID", Expr: classad.Int(int64(in.Slot.Number)).Expr()},
			classad.Attr{Name: "Heat", Expr: classad.Int(int64(h.heat[in.Slot.Number])).Expr()},
			classad.Attr{Name: "Cool", Expr: expr(t, "Heat < TARGET.JobPrio")},
			classad.Attr{Name: "Other", Expr: classad.Int(h.now.UnixNano()).Expr()},
			classad.Attr{Name: "Own", Expr: expr(t, []string{"TARGET.Owner == \"u1\"", "clusterid % 2 == 0", "Heat > 1"}[in.Slot.Number%3])},
		)
	}})
	if err != nil {
		t.Fatal(err)
	}
	h.policy(t, policy)
	return h
}

func (h *hall) policy(t testing.TB, text string) {
	t.Helper()
	h.Configure(slot.NewPolicy(knobtest.Parse(t, text)), nil)
}

func expr(t testing.TB, text string) classad.Expr {
	t.Helper()
	e, err := classad.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// POLICY-START: answers that are remembered are those that the slots would give if
// they were asked anew.
func TestRememberedAnswers(t *testing.T) {
	policies := []string{
		"START = TARGET.Owner == \"u1\"", "START = Cool", "START = TARGET.Owner == \"u1\" && SlotID == 2 || SlotID == 1 && Heat > 2",
		"START = TARGET.ClusterId % 3 == Heat", "START = SlotID == 1 ? TARGET.Owner == \"u2\" : TARGET.JobPrio > Heat",
		"START = time() % 3 == 0", "START = Heat", "START = TARGET.Nothing", "START = eval(strcat(\"Heat\", \" > 1\"))",
		"IS_OWNER = Heat == 3", "START = isUndefined(TARGET.Other)",
		"START = Own", "START = TARGET.ClusterId > 2 && TARGET.JobPrio < Heat", "START = TARGET.Owner", "START = JobUniverse == 5 && TARGET.Owner =!= \"u1\"",
	}
	random := rand.New(rand.NewPCG(3, 4))
	h, ads := newHall(t, 3, policies[0]), 0
	var running [][]*Slot
	for step := range 4000 {
		switch random.IntN(12) {
		case 0:
			h.policy(t, policies[random.IntN(len(policies))])
		case 1, 2:
			h.heat[1+random.IntN(3)] = random.IntN(4)
			h.now = h.now.Add(time.Duration(random.IntN(3)) * time.Second)
			h.Tick()
		case 3:
			j := &waiting{like: Likeness{Owner: "u1", Priority: 3}, ads: &ads}
			if slots := h.Activate(fmt.Sprintf("%d.1", step+1), []schedule.QueueSlots{{Queue: "a.q", Slots: 1}}, j); slots != nil {
				running = append(running, slots)
			}
			h.Tick()
		case 4:
			if len(running) > 0 {
				h.Deactivate(running[0])
				running = running[1:]
				h.Tick()
			}
		}
		w := &waiting{like: Likeness{Owner: fmt.Sprintf("u%d", random.IntN(3)), Priority: random.IntN(4), Number: random.IntN(5)}, ads: &ads}
		alone := *w
		alone.alone = true
		most := 1 + random.IntN(3)
		n, why, _ := h.Willing("a.q", w, most)
		m, because, _ := h.Willing("a.q", &alone, most)
		if n != m || why != because && n == 0 {
			t.Fatalf("step %d: %+v, %d at most: %d are willing, %q; asked anew %d, %q", step, w.like, most, n, why, m, because)
		}
	}
}

// POLICY-START: jobs that are alike for START are asked about once; and again only
// when something changes that it looks at.
func TestRefusalsAreShared(t *testing.T) {
	h, ads := newHall(t, 2, "START = TARGET.Owner == \"nobody\" && Heat < 9"), 0
	pass := func(want int, what string) {
		t.Helper()
		ads = 0
		for n := range 1000 {
			w := &waiting{like: Likeness{Owner: fmt.Sprintf("u%d", n%5), Priority: n, Number: n}, ads: &ads}
			if n, why, same := h.Willing("a.q", w, 1); n != 0 || !same || why != "START of slot1 is false" {
				t.Fatalf("willing %d, %q, same %t; want all alike to be refused", n, why, same)
			}
		}
		if ads != want {
			t.Errorf("%s: the ads of %d jobs were wanted; want %d", what, ads, want)
		}
	}
	pass(5, "at first, about five users by two slots of the same kind")
	h.now = h.now.Add(time.Hour)
	h.Tick()
	pass(0, "when nothing has changed that START looks at")
	h.heat[2] = 1
	h.Tick()
	pass(5, "when one slot has changed")
	h.policy(t, "START = TARGET.Owner == \"nobody\"")
	pass(5, "under another policy")
}

// What is remembered has bounds.
func TestRefusalsAreBounded(t *testing.T) {
	h, ads := newHall(t, 1, "START = TARGET.ClusterId < 0"), 0
	for n := range maxRefusals/5 + 10 {
		h.Willing("a.q", &waiting{like: Likeness{Number: n + 1}, ads: &ads}, 1)
	}
	if n := len(h.queues["a.q"].asked.refused); n == 0 || n > 20 {
		t.Errorf("%d jobs are remembered; want to begin anew at the bound", n)
	}
}

// CLAIM-REQUEST: a search of all slots for a user's ad costs no more than a bound,
// however many there are; a slot that is named can still be claimed.
func TestSearchIsBounded(t *testing.T) {
	const slots = 400
	h := newHall(t, slots, "")
	dear := func(last string) *classad.Ad { // some ten thousand steps
		text := "x0 = {1,2,3,4,5,6,7,8,9,10};"
		for n := range 10 {
			text += fmt.Sprintf("x%d = x%d && x%d;", n+2, n+1, n+1)
		}
		text = "[x1 = size(x0) > 1;" + text + "Requirements = x11 && " + last + "]"
		a, err := classad.ParseAd(text)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	request := func(a *classad.Ad, number int) error {
		_, err := h.Request(Request{Holder: "alice", By: alice, Ad: a, NoWait: true, Slot: slot.Static(number)})
		return err
	}
	if err := request(dear("TARGET.SlotID == 400"), 0); err == nil || err.Error() != "the ad costs too much to be looked at by all slots" {
		t.Errorf("a dear ad for the last slot: %v", err)
	}
	if h.Managed() {
		t.Error("slots that were only asked stay managed")
	}
	if err := request(dear("TARGET.SlotID == 400"), 400); err != nil {
		t.Errorf("the same for a slot that is named: %v", err)
	}
	if err := request(dear("TARGET.SlotID == 3"), 0); err != nil {
		t.Errorf("the same for one of the first slots: %v", err)
	}
	cheap, err := classad.ParseAd("[Requirements = TARGET.SlotID == 399]")
	if err != nil {
		t.Fatal(err)
	}
	if err := request(cheap, 0); err != nil {
		t.Errorf("a cheap ad for the last slot but one: %v", err)
	}
	if err := request(cheap, 0); err == nil {
		t.Error("the same again, and it is in use")
	}
}

// BenchmarkSearch is a request for any of 1,000 slots with an ad that is as dear as
// an ad may be.
func BenchmarkSearch(b *testing.B) {
	h := newHall(b, 1000, "")
	text := "[x0 = true;"
	for n := range 20 {
		text += fmt.Sprintf("x%d = x%d && x%d;", n+1, n, n)
	}
	a, err := classad.ParseAd(text + "Requirements = x20 && false]")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := h.Request(Request{Holder: "alice", By: alice, Ad: a}); err == nil {
			b.Fatal("a slot is had")
		}
	}
}

// START of jobs that are refused is looked at again and again only where it can change
// by itself: an execd of which nobody wants anything sleeps.
func TestRestless(t *testing.T) {
	idle, err := classad.Parse("KeyboardIdle > 600")
	if err != nil {
		t.Fatal(err)
	}
	for start, want := range map[string]bool{
		`true`:                              false,
		`TARGET.Owner == "u"`:               false,
		`MY.SlotID > 1 && TARGET.Wanted`:    false,
		`ClockMin > 480`:                    true,
		`LoadAvg < 1`:                       true,
		`time() % 2 == 0`:                   true,
		`MY.Quiet && TARGET.Owner == "u"`:   true,
		`eval(TARGET.Expression)`:           true,
		`MY.Disk > TARGET.RequestDisk`:      true,
		`TARGET.Owner == "u" && random(2)`:  true,
		`debug(MY.Activity) =!= "Retiring"`: false,
	} {
		d := newDesk(t, "START = "+start)
		of := d.o.Ad
		d.o.Ad = func(in *Info) *classad.Ad { return of(in).With(classad.Attr{Name: "Quiet", Expr: idle}) }
		if got := d.Restless(); got != want {
			t.Errorf("START = %s: %v; want %v", start, got, want)
		}
	}
}
