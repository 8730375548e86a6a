// Package classad compares our expression language with the Go library of the
// Pelican project, in what they evaluate to and in what that costs. It is a
// module of its own, so that nothing else depends on that library.
package classad

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	theirs "github.com/PelicanPlatform/classad/classad"

	ours "paddock/classad"
)

const probes = "../../classad/testdata/probes"

// pair is the two ads that an expression is evaluated between, in both forms.
type pair struct {
	env        ours.Env
	my, target *theirs.ClassAd
}

func newPair(t testing.TB, my, target string) *pair {
	t.Helper()
	p := &pair{env: ours.Env{Now: time.Unix(1_000_000, 0).UTC()}}
	p.env.My, p.my = both(t, my)
	p.env.Target, p.target = both(t, target)
	return p
}

func both(t testing.TB, text string) (*ours.Ad, *theirs.ClassAd) {
	t.Helper()
	if text == "" {
		return nil, nil
	}
	a, err := ours.ParseAd(text)
	if err != nil {
		t.Fatal(err)
	}
	b, err := theirs.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

const syntaxError = "syntax error"

// eval returns what each makes of an expression.
func (p *pair) eval(text string) (our, their string) {
	if e, err := ours.Parse(text); err != nil {
		our = syntaxError
	} else {
		our = ourForm(p.env.Eval(e))
	}
	e, err := theirs.ParseExpr(text)
	if err != nil {
		return our, syntaxError
	}
	// The expression becomes an attribute: only so do references in it have
	// their scope.
	my := theirs.New()
	if p.my != nil {
		my, _ = theirs.Parse(p.my.String())
	}
	my.InsertExpr("_probe", e)
	if p.target != nil {
		target, _ := theirs.Parse(p.target.String())
		my.SetTarget(target)
		target.SetTarget(my)
	}
	return our, theirForm(my.EvaluateAttr("_probe"))
}

func ourForm(v ours.Value) string {
	switch v.Kind() {
	case ours.ListKind:
		var elems []string
		for _, e := range v.List() {
			elems = append(elems, ourForm(e))
		}
		return "{" + strings.Join(elems, ",") + "}"
	case ours.AdKind:
		return "ad"
	case ours.RealKind:
		r, _ := v.Number()
		return "real " + strconv.FormatFloat(r, 'g', 14, 64)
	case ours.StringKind:
		s, _ := v.Str()
		return strconv.Quote(s)
	}
	return v.String()
}

func theirForm(v theirs.Value) string {
	switch {
	case v.IsList():
		list, _ := v.ListValue()
		var elems []string
		for _, e := range list {
			elems = append(elems, theirForm(e))
		}
		return "{" + strings.Join(elems, ",") + "}"
	case v.IsClassAd():
		return "ad"
	case v.IsReal():
		r, _ := v.RealValue()
		return "real " + strconv.FormatFloat(r, 'g', 14, 64)
	case v.IsString():
		s, _ := v.StringValue()
		return strconv.Quote(s)
	case v.IsInteger():
		i, _ := v.IntValue()
		return strconv.FormatInt(i, 10)
	case v.IsBool():
		b, _ := v.BoolValue()
		return strconv.FormatBool(b)
	case v.IsUndefined():
		return "undefined"
	}
	return "error"
}

func TestProbes(t *testing.T) {
	f, err := os.Open(probes)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	my, target, agreed, excepted := "", "", 0, 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		text, _, probe := strings.Cut(line, " => ")
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "my "):
			my = line[len("my "):]
		case strings.HasPrefix(line, "target "):
			target = line[len("target "):]
		case !probe:
			my, target = "", ""
		default:
			our, their := newPair(t, my, target).eval(text)
			why := exception(text)
			switch {
			case our == their && why == "":
				agreed++
			case our == their:
				t.Errorf("%s: both say %s now; it is no exception any more", text, our)
			case why != "":
				excepted++
				t.Logf("%s: ours %s, theirs %s: %s", text, our, their, why)
			default:
				t.Errorf("%s: ours %s, theirs %s", text, our, their)
			}
		}
	}
	t.Logf("%d probes agree, %d exceptions", agreed, excepted)
}

// The ads that generated expressions are evaluated between.
const (
	generatedMy     = `[A = 1; B = "abc"; C = 2.5; D = true; E = {1, "b", 3.5}; F = [X = 1; Y = "z"]; G = A + 1]`
	generatedTarget = `[A = 7; H = "Linux"; I = MY.A]`
)

// grow writes an expression of what both sides have alike: not pow, which
// rounds there, not quantize, whose result has the type that the manual says
// here, not version_in_range, to which undefined is sometimes an error there,
// and not the string of an ad.
func grow(r *rand.Rand, depth int) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	if depth == 0 || r.IntN(8) == 0 {
		return pick("0", "1", "-3", "7", "2.5", "-0.5", "1e10", `"abc"`, `"ABC"`, `""`, `"3"`, "true", "false", "undefined", "error",
			"A", "B", "C", "D", "E", "F.Y", "G", "MY.A", "TARGET.A", "TARGET.H", "TARGET.I", "NoSuch", "{}", "{1,2}", `{"a",2.5,true}`, "F.X", "E[1]")
	}
	sub := func() string { return grow(r, depth-1) }
	switch r.IntN(10) {
	case 0, 1, 2, 3:
		op := pick("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "=?=", "=!=", "&&", "||", "&", "|", "^")
		return "(" + sub() + " " + op + " " + sub() + ")"
	case 4:
		return pick("!", "-", "~", "+") + "(" + sub() + ")"
	case 5:
		return "(" + sub() + " ? " + sub() + " : " + sub() + ")"
	case 6:
		return "(" + sub() + ") ?: (" + sub() + ")"
	case 7:
		name := pick("isUndefined", "isError", "isString", "isInteger", "isReal", "isBoolean", "isList", "isClassAd",
			"int", "real", "bool", "floor", "ceiling", "round", "size", "toLower", "toUpper", "splitUserName", "splitSlotName", "split",
			"stringListSize", "min", "max")
		return name + "(" + sub() + ")"
	case 8:
		name := pick("strcmp", "stricmp", "member", "identicalMember", "stringListMember", "stringListIMember",
			"strcat", "join", "substr", "versioncmp", "regexp")
		return name + "(" + sub() + "," + sub() + ")"
	}
	return pick("ifThenElse", "substr", "join", "strcat") + "(" + sub() + "," + sub() + "," + sub() + ")"
}

// sameOrder reports whether two results of a comparison have the same sign:
// more does not count in them.
func sameOrder(text, our, their string) bool {
	a, errA := strconv.ParseInt(our, 10, 64)
	b, errB := strconv.ParseInt(their, 10, 64)
	return errA == nil && errB == nil && strings.Contains(text, "cmp(") && (a < 0) == (b < 0) && (a > 0) == (b > 0)
}

func TestGenerated(t *testing.T) {
	const seed, count = 1, 20_000
	r := rand.New(rand.NewPCG(seed, 0))
	p := newPair(t, generatedMy, generatedTarget)
	agreed := 0
	bad := 0
	for range count {
		text := grow(r, 1+r.IntN(4))
		our, their := p.eval(text)
		switch {
		case our == their, sameOrder(text, our, their):
			agreed++
		default:
			if bad++; bad < 40 {
				t.Errorf("%s: ours %s, theirs %s", text, our, their)
			}
		}
	}
	t.Logf("%d of %d agree", agreed, count)
}

// cost returns the processor time of one call, in nanoseconds: the host may be
// busy with something else.
func cost(f func()) float64 {
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			panic(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	for n := 1; ; n *= 2 {
		start := used()
		for range n {
			f()
		}
		if took := used() - start; took > int64(200*time.Millisecond) {
			return float64(took) / float64(n)
		}
	}
}

// TestSpeed prints what both cost, and asserts nothing: that is for people.
func TestSpeed(t *testing.T) {
	slot, job := describe(150), `[Requirements = TARGET.Memory >= RequestMemory && TARGET.Disk >= 4096 && TARGET.MyType == "Machine"; RequestMemory = 128; Owner = "ann"]`
	p := newPair(t, slot, job)
	oldText := p.env.My.OldString()
	theirMy, theirTarget := p.my, p.target
	match := theirs.NewMatchClassAd(theirMy, theirTarget)
	if !p.env.Match() || !match.Match() {
		t.Fatal("the ads do not match")
	}
	for _, c := range []struct {
		name       string
		our, their func()
	}{
		{"parse old syntax", func() { ours.ParseOld(oldText) }, func() { theirs.ParseOld(oldText) }},
		{"parse new syntax", func() { ours.ParseAd(slot) }, func() { theirs.Parse(slot) }},
		{"print old syntax", func() { _ = p.env.My.OldString() }, func() { theirMy.MarshalOld() }},
		{"a literal", func() { p.env.Attr("Memory") }, func() { theirMy.EvaluateAttr("Memory") }},
		{"a condition", func() { p.env.Attr("FetchWorkDelay") }, func() { theirMy.EvaluateAttr("FetchWorkDelay") }},
		{"a match", func() { p.env.Match() }, func() { match.Match() }},
	} {
		our, their := cost(c.our), cost(c.their)
		t.Logf("%-16s: ours %8.0f ns, theirs %8.0f ns, ratio %.2f", c.name, our, their, our/their)
	}
}

// describe writes an ad of a slot with so many attributes.
func describe(attrs int) string {
	var b strings.Builder
	b.WriteString(`[MyType = "Machine"; Memory = 16000; Disk = 187654321; State = "Claimed"; Activity = "Idle"; LoadAvg = 0.17; KeyboardIdle = 1873;
FetchWorkDelay = ifThenElse(State == "Claimed" && Activity == "Idle", 0, 300);
Start = (LoadAvg < 0.3 || State =?= "Claimed") && KeyboardIdle > 15 * 60 && TARGET.RequestMemory <= MY.Memory;
Requirements = Start && TARGET.Owner =!= "mallory"`)
	for i := 10; i < attrs; i++ {
		value := []string{"%d", `"Debian GNU/Linux %d"`, "true || %d > 5", "0.%d"}[i%4]
		fmt.Fprintf(&b, ";\nTotalTimeClaimedBusy%d = "+value, i, i)
	}
	return b.String() + "]"
}
