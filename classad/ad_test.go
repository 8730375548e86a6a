package classad_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/classad"
)

func parseOld(t testing.TB, text string) *classad.Ad {
	t.Helper()
	ad, err := classad.ParseOld(text)
	if err != nil {
		t.Fatalf("ParseOld(%q): %v", text, err)
	}
	return ad
}

func attr(name string, v classad.Value) classad.Attr {
	return classad.Attr{Name: name, Expr: v.Expr()}
}

func names(ad *classad.Ad) []string {
	var names []string
	for name := range ad.All() {
		names = append(names, name)
	}
	return names
}

// REQ-AD-5: comment marks inside strings are text, lines of # are none.
func TestREQ_AD_5_OldSyntax(t *testing.T) {
	ad := parseOld(t, "# a comment\r\n\n  Args = \"/* \\\"x\\\" // # \\n\"\r\nCmd = \"C:\\dir\\\"\nN = 1 + 2 // three\n")
	for name, want := range map[string]string{
		"args": `/* "x" // # \n`,
		"CMD":  `C:\dir\`,
		"n":    "3",
	} {
		got := (&classad.Env{My: ad}).Attr(name)
		text, ok := got.Str()
		if !ok {
			text = got.String()
		}
		if text != want {
			t.Errorf("%s = %q; want %q", name, text, want)
		}
	}
}

// REQ-AD-5: a bad line is told by its number, and who is lenient gets the rest.
func TestREQ_AD_5_BadLines(t *testing.T) {
	const text = "A = 1\nB\n\n  C = (1\nD = 4\nE = \"x\n1 = 2\nF = 5 5\n"
	_, err := classad.ParseOld(text)
	var at *classad.SyntaxError
	if !errors.As(err, &at) || at.Line != 2 || at.Column != 2 {
		t.Errorf("ParseOld = %v; want an error at line 2, column 2", err)
	}
	ad, errs := classad.ParseOldLenient(text)
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	want := []string{
		"line 2, column 2: unexpected end",
		"line 4, column 9: unexpected end",
		"line 6, column 5: string without end",
		`line 7, column 1: unexpected "1"`,
		`line 8, column 7: unexpected "5"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors of ParseOldLenient (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"A", "D"}, names(ad)); diff != "" {
		t.Errorf("attributes of ParseOldLenient (-want +got):\n%s", diff)
	}
}

// REQ-AD-6: both rules for escapes in strings.
func TestREQ_AD_6_Escapes(t *testing.T) {
	const in = `"a\nb\t\\ \" \101\x"`
	fresh, _ := parse(t, in).Constant()
	if got, _ := fresh.Str(); got != "a\nb\t\\ \" Ax" {
		t.Errorf("new syntax reads %s as %q", in, got)
	}
	e, err := classad.ParseOldExpr(in)
	if err != nil {
		t.Fatal(err)
	}
	old, _ := e.Constant()
	if got, _ := old.Str(); got != `a\nb\t\\ " \101\x` {
		t.Errorf("old syntax reads %s as %q", in, got)
	}
}

// REQ-AD-6, REQ-AD-13: whatever a string holds, it stays on its line and comes back.
func TestREQ_AD_6_OldStrings(t *testing.T) {
	for _, s := range []string{"", `\`, `a\`, `"`, `a"\`, `\"`, "a\nB = 1", "\r", "\x00", "a\n\"\\", "é\xff", "\t"} {
		want := classad.New(attr("A", classad.String(s)), attr("L", classad.List(classad.String(s), classad.Int(1))))
		text := want.OldString()
		if n := strings.Count(text, "\n"); n != 2 || strings.ContainsAny(text, "\r\x00") {
			t.Errorf("%q is printed as %q, not on one line", s, text)
		}
		if got := parseOld(t, text); !got.Equal(want) {
			t.Errorf("%q is printed as %q and read as %s", s, text, got)
		}
	}
}

// REQ-AD-6: nested ads and lists, quoted names, comments, and what is none of it.
func TestREQ_AD_6_NewSyntax(t *testing.T) {
	ad := parseAd(t, "/* x */ [ a = 1; ; B = [c = {1,\"2\"}; 'd e' = 'f\\'g']; ] // end")
	if got, want := ad.String(), `[ a = 1; B = [ c = { 1,"2" }; 'd e' = 'f\'g' ] ]`; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	for _, bad := range []string{"", "a = 1", "[a = 1", "[a 1]", "[a = 1 b = 2]", "[a = 1] x", "[true = 1]", "['' = 1]", "[a = 1 /* ]", "[\xff = 1]"} {
		if ad, err := classad.ParseAd(bad); err == nil {
			t.Errorf("ParseAd(%q) = %s; want an error", bad, ad)
		}
	}
	_, err := classad.ParseAd("[ a = 1;\n  b = ) ]")
	var at *classad.SyntaxError
	if !errors.As(err, &at) || at.Line != 2 || at.Column != 7 {
		t.Errorf("ParseAd = %v; want an error at line 2, column 7", err)
	}
}

// REQ-AD-7: names do not differ by case, spelling and order stay.
func TestREQ_AD_7_Names(t *testing.T) {
	ad := parseOld(t, "Zeta = 1\nalpha = 2\nZETA = 3\n")
	if got, want := ad.OldString(), "Zeta = 3\nalpha = 2\n"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
	more := ad.With(attr("ALPHA", classad.Int(5)), attr("Beta", classad.Int(6)))
	less := more.Without("zeta")
	if got, want := less.OldString(), "alpha = 5\nBeta = 6\n"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
	if _, ok := less.Lookup("Zeta"); ok || less.Len() != 2 || ad.Len() != 2 {
		t.Errorf("With and Without changed the ad they were called on, or not their copy")
	}
	if e, ok := ad.Lookup("aLPHa"); !ok || e.String() != "2" {
		t.Errorf("Lookup finds %s, %v; want 2", e, ok)
	}
}

// REQ-AD-7: ads of all sizes around that at which they get an index, and long names.
func TestREQ_AD_7_ManyNames(t *testing.T) {
	for _, n := range []int{0, 1, 8, 9, 32, 33, 1000, 10000} {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "Name%d%s = %d\n", i, strings.Repeat("X", i%100), i)
		}
		ad := parseOld(t, text.String())
		if ad.Len() != n {
			t.Fatalf("%d attributes of %d", ad.Len(), n)
		}
		for i := range n {
			e, ok := ad.Lookup(fmt.Sprintf("NAME%d%s", i, strings.Repeat("x", i%100)))
			if v, _ := e.Constant(); !ok || v.String() != fmt.Sprint(i) {
				t.Fatalf("attribute %d of %d is %v, %v", i, n, v, ok)
			}
		}
		if !ad.Without("none").Equal(ad) || !ad.With(attr("x", classad.Int(1))).Without("X").Equal(ad) {
			t.Errorf("a copy of %d attributes is another ad", n)
		}
	}
}

// REQ-AD-10: true and numbers but zero suit, and nothing else.
func TestREQ_AD_10_Match(t *testing.T) {
	for _, test := range []struct {
		my, target string
		want       bool
	}{
		{"[Requirements = true]", "[Requirements = true]", true},
		{"[Requirements = 2]", "[Requirements = 0.5]", true},
		{"[Requirements = true]", "[Requirements = 0]", false},
		{"[Requirements = true]", "[Requirements = \"true\"]", false},
		{"[Requirements = true]", "[]", false},
		{"[Requirements = NoSuch]", "[Requirements = true]", false},
		{"[Requirements = 1/0]", "[Requirements = true]", false},
		{"[Requirements = TARGET.M > 5; M = 1]", "[Requirements = MY.M > TARGET.M; M = 6]", true},
		{"[Requirements = M > 5]", "[Requirements = true; M = 6]", true},
	} {
		env := &classad.Env{My: parseAd(t, test.my), Target: parseAd(t, test.target)}
		if got := env.Match(); got != test.want {
			t.Errorf("Match of %s and %s = %v; want %v", test.my, test.target, got, test.want)
		}
	}
	if (&classad.Env{My: parseAd(t, "[Requirements = true]")}).Match() {
		t.Error("an ad matches nothing")
	}
}

// REQ-AD-10: a rank is a number, or 0.
func TestREQ_AD_10_Rank(t *testing.T) {
	for text, want := range map[string]float64{
		"3": 3, "2.5": 2.5, "true": 1, "undefined": 0, "error": 0, `"7"`: 0, "{1}": 0, `real("nan")`: 0,
	} {
		if got := (&classad.Env{}).Eval(parse(t, text)).Rank(); got != want {
			t.Errorf("Rank of %s = %v; want %v", text, got, want)
		}
	}
}

// REQ-AD-13: no parentheses but those that are needed, and what is printed is read
// as itself.
func TestREQ_AD_13_Print(t *testing.T) {
	for in, want := range map[string]string{
		"((a))+(b*c)":            "a + b * c",
		"(a+b)*c":                "(a + b) * c",
		"a-(b-c)":                "a - (b - c)",
		"(a-b)-c":                "a - b - c",
		"a&&(b||c)":              "a && (b || c)",
		"!(a&&b)":                "!(a && b)",
		"-(5)":                   "-5",
		"-(-5)":                  "- -5",
		"(-5)[0]":                "(-5)[0]",
		"(5).x":                  "(5).x",
		"a?b:(c?d:e)":            "a ? b : c ? d : e",
		"(a?b:c)?d:e":            "(a ? b : c) ? d : e",
		"a?:b+c":                 "a ?: b + c",
		"a? :b+c":                "a ?: (b + c)",
		"(a+b)?:c":               "(a + b) ?: c",
		"x is undefined":         "x =?= undefined",
		"f( a;b )":               "f(a,b)",
		"my.A+TARGET . b+.c":     "MY.A + TARGET.b + .c",
		"'my'+'true'+MY.'a\\n'":  `'my' + 'true' + MY.'a\n'`,
		`"a" "b"`:                `"ab"`,
		"1E3":                    "1.000000000000000E+03",
		"123456789012345678.0":   "1.2345678901234568E+17",
		"0.30000000000000004":    "3.0000000000000004E-01",
		"[]":                     "[  ]",
		"{ }":                    "{  }",
		"\"\\001\\177\\n\"":      `"\001\177\n"`,
		"(MY).a":                 "MY.a",
		"a[b].c":                 "a[b].c",
		"-a.b":                   "-a.b",
		"(-a).b":                 "(-a).b",
		"1 < 2 == 3 >= 4":        "1 < 2 == 3 >= 4",
		"1 < (2 == 3)":           "1 < (2 == 3)",
		"a ? b : c ?: d":         "a ? b : c ?: d",
		"-9223372036854775808":   "-9223372036854775808",
		"- -9223372036854775808": "- -9223372036854775808",
	} {
		e := parse(t, in)
		if got := e.String(); got != want {
			t.Errorf("%s is printed as %s; want %s", in, got, want)
		}
		if again := parse(t, e.String()); !again.Equal(e) {
			t.Errorf("%s is printed as %s, which is something else", in, e)
		}
	}
}

// REQ-AD-13: what printing takes grows as the expression does, and not as its
// square, wherever its terms hang.
func TestREQ_AD_13_Linear(t *testing.T) {
	const times = 8
	for name, text := range map[string]func(n int) string{
		"chain":   func(n int) string { return "a" + strings.Repeat(" + a", 10*n) },
		"nested":  func(n int) string { return strings.Repeat("f(a,", n) + "a" + strings.Repeat(")", n) },
		"choices": func(n int) string { return strings.Repeat("a ? b : ", n) + "c" },
		"lists":   func(n int) string { return "{" + strings.Repeat("{a, \"x\"}, ", 10*n) + "a}" },
	} {
		taken := func(n int) uint64 {
			e := parse(t, text(n))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range 10 { // so that what others allocate meanwhile is little of it
				_ = e.String()
			}
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		few, many := taken(40), taken(40*times)
		if many > 3*times*few {
			t.Errorf("%s: %d bytes for an expression, %d for one %d times as long", name, few, many, times)
		}
	}
}

// REQ-AD-14: secrets are printed only when asked for, nested ones too.
func TestREQ_AD_14_Secrets(t *testing.T) {
	ad := parseOld(t, "A = 1\nClaimId = \"id\"\ncapability = \"c\"\n_Condor_PrivX = 1\nN = [ClaimIdList = 1; b = 2]\nGPU = [Capability = 8.0]\n")
	if got, want := ad.OldString(), "A = 1\nN = [ b = 2 ]\nGPU = [ Capability = 8.0 ]\n"; got != want {
		t.Errorf("OldString = %q; want %q", got, want)
	}
	if got, want := ad.String(), "[ A = 1; N = [ b = 2 ]; GPU = [ Capability = 8.000000000000000E+00 ] ]"; got != want {
		t.Errorf("String = %q; want %q", got, want)
	}
	if got := parseOld(t, ad.SecretString()); !got.Equal(ad) {
		t.Errorf("SecretString = %q; want all of %s", ad.SecretString(), names(ad))
	}
	for _, name := range []string{"ClaimId", "CLAIMIDS", "ChildClaimIds", "PairedClaimId", "TransferKey", "Capability"} {
		if !classad.Private(name) {
			t.Errorf("%s is not private", name)
		}
	}
	for _, name := range []string{"", "PublicClaimId", "ClaimIdX", "Condor_priv"} {
		if classad.Private(name) {
			t.Errorf("%s is private", name)
		}
	}
}

func TestReferences(t *testing.T) {
	my := parseAd(t, "[Start = Idle && TARGET.Owner == \"ann\"; Idle = LoadAvg < 0.3 || KeyboardIdle > Limit; LoadAvg = 0.1; Limit = 60; Now = time(); Loop = Loop; Swap = TARGET.Back; N = [a = b; b = LoadAvg]]")
	target := parseAd(t, "[Owner = \"ann\"; Back = TARGET.Limit + MY.Owner + Dice; Dice = random(6)]")
	for _, test := range []struct {
		expr string
		want classad.References
	}{
		{"1 + 2", classad.References{}},
		{"Start", classad.References{My: []string{"Idle", "Limit", "LoadAvg", "Start"}, Target: []string{"KeyboardIdle", "Owner"}}},
		{"MY.start", classad.References{My: []string{"Idle", "Limit", "LoadAvg", "start"}, Target: []string{"KeyboardIdle", "Owner"}}},
		{"Now - 5", classad.References{My: []string{"Now"}, Time: true}},
		{"CurrentTime", classad.References{Time: true}},
		{"formatTime()", classad.References{Time: true}},
		{"currentTime() < absTime(5)", classad.References{Time: true}},
		{"dayTime() + timeZoneOffset()", classad.References{Time: true}},
		{`SlotEval("slot2@h", State)`, classad.References{My: []string{"slot2_State"}}},
		{"SlotEval(strcat(\"slot\", Limit), State)", classad.References{My: []string{"Limit"}, Any: true}},
		{"formatTime(5)", classad.References{}},
		{"Loop", classad.References{My: []string{"Loop"}}},
		{"Swap", classad.References{My: []string{"Limit", "Swap"}, Target: []string{"Back", "Dice", "Owner"}, Random: true}},
		{"eval(\"Limit\")", classad.References{My: []string{"Limit"}}},
		{"eval(Limit)", classad.References{My: []string{"Limit"}, Time: true, Any: true}},
		{"MY[\"x\"]", classad.References{Any: true}},
		{"N.a", classad.References{My: []string{"LoadAvg", "N"}}},
		{"a ? b : c ? .d : PARENT.e", classad.References{My: []string{"d", "e"}, Target: []string{"a", "b", "c"}}},
		{"-x[1] + {y}", classad.References{Target: []string{"x", "y"}}},
	} {
		got := parse(t, test.expr).References(my, target)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("References of %s (-want +got):\n%s", test.expr, diff)
		}
		if constant := test.expr == "1 + 2" || test.expr == "formatTime(5)"; got.Constant() != constant {
			t.Errorf("Constant of %s = %v; want %v", test.expr, got.Constant(), constant)
		}
	}
	refs := parse(t, "Start").References(my, nil)
	if !refs.Has("loadavg") || !refs.Has("owner") || refs.Has("Memory") {
		t.Errorf("Start refers to %v", refs)
	}
}

// REQ-AD-1: values are what a caller takes apart.
func TestREQ_AD_1_Values(t *testing.T) {
	env := &classad.Env{My: parseAd(t, "[L = {1, 2.5, \"x\", true, {A}, [b = A], undefined, error}; A = 7]")}
	vals := env.Attr("l").List()
	var kinds []string
	for _, v := range vals {
		kinds = append(kinds, v.Kind().String())
	}
	want := []string{"integer", "real", "string", "boolean", "list", "ad", "undefined", "error"}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Fatalf("kinds (-want +got):\n%s", diff)
	}
	if i, ok := vals[0].Int(); i != 1 || !ok {
		t.Errorf("Int = %v, %v", i, ok)
	}
	if r, ok := vals[1].Number(); r != 2.5 || !ok {
		t.Errorf("Number = %v, %v", r, ok)
	}
	if s, ok := vals[2].Str(); s != "x" || !ok {
		t.Errorf("Str = %v, %v", s, ok)
	}
	if b, ok := vals[3].Bool(); !b || !ok {
		t.Errorf("Bool = %v, %v", b, ok)
	}
	if in := vals[4].List(); len(in) != 1 || in[0].String() != "7" {
		t.Errorf("List = %v", in)
	}
	if ad := vals[5].Ad(); ad == nil || ad.Len() != 1 {
		t.Errorf("Ad = %v", ad)
	}
	if vals[0].List() != nil || vals[0].Ad() != nil || vals[0].Reason() != "" {
		t.Error("an integer is a list, an ad or an error")
	}
	for _, v := range slices.Concat(vals, []classad.Value{classad.Undefined(), classad.Real(-0.5), classad.Error("x")}) {
		if got := (&classad.Env{}).Eval(v.Expr()); v.Ad() == nil && got.String() != v.String() {
			t.Errorf("the expression of %s is worth %s", v, got)
		}
	}
	if got := (&classad.Env{}).Eval(parse(t, "1 + \"x\"")).Reason(); got != "cannot apply + to integer and string" {
		t.Errorf("Reason = %q", got)
	}
	if got := (&classad.Env{}).Eval(classad.Expr{}); got.Kind() != classad.UndefinedKind {
		t.Errorf("the zero expression is worth %s", got)
	}
}

// REQ-AD-2: nothing comes from outside but through the environment.
func TestREQ_AD_2_Environment(t *testing.T) {
	env := &classad.Env{}
	for _, text := range []string{"time()", "CurrentTime", "formatTime()", "random()", "currentTime()", "dayTime()", "timeZoneOffset()"} {
		if got := env.Eval(parse(t, text)); got.Kind() != classad.ErrorKind {
			t.Errorf("%s = %s without a source; want an error", text, got)
		}
	}
	env.Random = func() float64 { return 0.999999999999999999 }
	env.Home = func(user string) string { return "/home/" + user }
	for text, want := range map[string]string{
		"random(1)": "0", "random(10)": "9", "random(0)": "error", "random(\"x\")": "error", "userHome(\"ann\",\"/\")": `"/home/ann"`,
	} {
		if got := env.Eval(parse(t, text)); got.String() != want {
			t.Errorf("%s = %s; want %s", text, got, want)
		}
	}
	if got, _ := env.Eval(parse(t, "random()")).Number(); got < 0 || got > 1 {
		t.Errorf("random() = %v", got)
	}
}

// REQ-AD-2, REQ-AD-15: many evaluate the same ads at once. The race detector
// looks on.
func TestREQ_AD_15_Goroutines(t *testing.T) {
	env := &classad.Env{
		Now:    epoch,
		My:     parseAd(t, `[Requirements = TARGET.Memory > Need && member(Owner, {"ann", Owner}) && regexp("a.*", Owner); Need = 5; Owner = "ann"; Deep = [x = Need].x]`),
		Target: parseAd(t, `[Requirements = TARGET.Need + size(split("a b")) == 7 && eval("Memory") > 1 && TARGET.Deep == 5; Memory = 10]`),
	}
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			for range 50 {
				if !env.Match() {
					t.Error("no match")
					return
				}
			}
		})
	}
	group.Wait()
}
