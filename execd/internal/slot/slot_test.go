package slot

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"paddock/classad"
)

// testKnobs are knobs as a file would set them.
type testKnobs map[string]string

func (k testKnobs) Expr(name string) (classad.Expr, bool) {
	text, ok := k[name]
	if !ok {
		return classad.Expr{}, false
	}
	e, err := classad.Parse(text)
	if err != nil {
		panic(err)
	}
	return e, true
}

func (k testKnobs) Int(name string, def int) int {
	if text, ok := k[name]; ok {
		fmt.Sscan(text, &def)
	}
	return def
}

func (k testKnobs) Duration(name string, def time.Duration) time.Duration {
	return time.Duration(k.Int(name, int(def.Seconds()))) * time.Second
}

// testJob is a job whose ad a test changes.
type testJob struct {
	attrs string
	made  int // how often it was asked for
}

func (j *testJob) Ad() *classad.Ad {
	j.made++
	ad, err := classad.ParseAd("[" + j.attrs + "]")
	if err != nil {
		panic(err)
	}
	return ad
}

// job returns a plain job with further attributes.
func job(attrs string) *testJob { return &testJob{attrs: "JobUniverse = 5; " + attrs} }

// bench is a machine on a clock.
type bench struct {
	t    testing.TB
	m    *Machine
	now  time.Time
	slot map[string]string // attributes of the slot
	made int               // how often its ad was asked for
	rows map[int]bool      // that were taken
	live map[Number]bool   // the claims that actions say there are
}

var epoch = time.Unix(1_800_000_000, 0)

func newBench(t testing.TB, knobs testKnobs, configure ...func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, now: epoch, slot: map[string]string{"Cpus": "1", "Memory": "1024"}, rows: map[int]bool{}, live: map[Number]bool{1: true}}
	cfg := Config{Policy: NewPolicy(knobs), Slot: b.ad}
	for _, c := range configure {
		c(&cfg)
	}
	b.m = New(cfg, b.now)
	if cfg.Restored != nil {
		b.live[2] = true
	}
	return b
}

func (b *bench) ad() *classad.Ad {
	b.made++
	text := fmt.Sprintf("State = %q; Activity = %q;", b.m.State(), b.m.Activity())
	for name, value := range b.slot {
		text += name + "=" + value + ";"
	}
	ad, err := classad.ParseAd("[" + text + "]")
	if err != nil {
		b.t.Fatal(err)
	}
	return ad
}

// words returns what actions are, without offers.
func actionWords(list []Action) string {
	var out []string
	for _, a := range list {
		s := a.Do.String()
		switch a.Do {
		case NewClaim, Dropped, Note:
			continue
		case Moved:
			s = fmt.Sprintf("%d:%s", a.Row, a.To)
		case HoldJob:
			s = fmt.Sprintf("HoldJob %d.%d %s", a.Code, a.Subcode, a.Text)
		case Deactivated:
			s = fmt.Sprintf("Deactivated again=%t cleaning=%t", a.Again, a.StillCleaning)
		case DrainComplete:
			s = "DrainComplete " + a.OnCompletion.String()
		default:
			if a.Claim != 0 {
				s += fmt.Sprintf(" #%d", a.Claim)
			}
			if a.Reason != 0 {
				s += fmt.Sprintf(" %d", int(a.Reason))
			}
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// handle gives an event to the machine, and checks what always must hold.
func (b *bench) handle(e Event) []Action {
	b.t.Helper()
	list := b.m.Handle(b.now, e)
	b.check(e, list)
	return list
}

func (b *bench) check(e Event, list []Action) {
	b.t.Helper()
	for _, a := range list {
		switch a.Do {
		case Moved:
			r := row(a.Row)
			if r == nil || !r.has(a.From, a.To) {
				b.t.Fatalf("%T: %s to %s is not in row %d of the table", e, a.From, a.To, a.Row)
			}
			b.rows[a.Row] = true
		case NewClaim:
			if b.live[a.Claim] {
				b.t.Fatalf("%T: claim %d twice", e, a.Claim)
			}
			b.live[a.Claim] = true
		case Dropped:
			if !b.live[a.Claim] {
				b.t.Fatalf("%T: claim %d dropped that is not there", e, a.Claim)
			}
			delete(b.live, a.Claim)
		}
	}
	if !b.m.Place().Valid() {
		b.t.Fatalf("%T: the slot is %s", e, b.m.Place())
	}
	have := map[Number]bool{}
	for _, c := range []Claim{b.m.Current(), b.m.Preempting(), b.m.PrePreempting()} {
		if c.Number != 0 && b.m.State() != Deleted {
			have[c.Number] = true
		}
	}
	if !maps.Equal(have, b.live) {
		b.t.Fatalf("%T in %s: claims %v, and told of %v", e, b.m.Place(), have, b.live)
	}
	if b.m.State() != Deleted && !have[b.m.Offer()] {
		b.t.Fatalf("%T: claim %d is offered", e, b.m.Offer())
	}
}

// want gives an event and says what comes of it.
func (b *bench) want(e Event, want string) {
	b.t.Helper()
	if got := actionWords(b.handle(e)); got != want {
		b.t.Fatalf("%T%+v at %s:\ngot  %s\nwant %s", e, e, b.now.Sub(epoch), got, want)
	}
}

// after lets time pass.
func (b *bench) after(d time.Duration) *bench {
	b.now = b.now.Add(d)
	return b
}

// next says when Evaluate is due, from now; negative: never.
func (b *bench) next(want time.Duration) {
	b.t.Helper()
	got := time.Duration(-1)
	if n := b.m.Next(); !n.IsZero() {
		got = n.Sub(b.now)
	}
	if got != want {
		b.t.Fatalf("%s: next evaluation in %s; want %s", b.m.Place(), got, want)
	}
}

func (b *bench) place(want Place) {
	b.t.Helper()
	if got := b.m.Place(); got != want {
		b.t.Fatalf("the slot is %s; want %s", got, want)
	}
}

const never = -1

// busy takes the machine to Claimed/Busy with a job of a queue.
func (b *bench) busy(j Job) Number {
	b.t.Helper()
	b.handle(Evaluate{})
	n := b.m.Offer()
	b.handle(Request{Claim: n, Holder: "queue", Job: j})
	b.handle(Activate{Claim: n, Job: j})
	b.place(Place{Claimed, Busy})
	return n
}

// fetch offers fetched work.
func (b *bench) fetch(j Job) []Action {
	b.t.Helper()
	b.handle(FetchBegan{})
	return b.handle(FetchEnded{Job: j})
}

// fetchBusy takes the machine to Claimed/Busy with fetched work.
func (b *bench) fetchBusy(j Job) Number {
	b.t.Helper()
	b.handle(Evaluate{})
	b.fetch(j)
	n := b.m.Current().Number
	b.handle(Activate{Claim: n, Job: j})
	b.place(Place{Claimed, Busy})
	return n
}

// exprOf parses an expression.
func exprOf(t testing.TB, text string) *classad.Expr {
	t.Helper()
	e, err := classad.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return &e
}
