package classad_test

import (
	"fmt"
	"strings"
	"testing"

	"paddock/classad"
)

// REQ-AD-3: what is too much is an error, whichever way it is too much.
func TestREQ_AD_3_ParserBudgets(t *testing.T) {
	repeat := strings.Repeat
	for name, text := range map[string]string{
		"parentheses": repeat("(", 500) + "1" + repeat(")", 500),
		"open":        repeat("(", 60000),
		"signs":       repeat("-", 60000) + "1",
		"nots":        repeat("!", 500) + "a",
		"lists":       repeat("{", 500) + repeat("}", 500),
		"ads":         repeat("[a=", 500) + "1" + repeat("]", 500),
		"selections":  "a" + repeat(".a", 500),
		"subscripts":  "a" + repeat("[0]", 500),
		"conditions":  repeat("a?", 500) + "1" + repeat(":2", 500),
		"calls":       repeat("f(", 500) + repeat(")", 500),
		"elvises":     repeat("a? :", 500) + "1",
		"length":      repeat("1+", 40000) + "1",
	} {
		if _, err := classad.Parse(text); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := classad.ParseAd("[a = " + text + "]"); err == nil {
			t.Errorf("%s in an ad: no error", name)
		}
		if _, err := classad.ParseOld("a = " + text); err == nil {
			t.Errorf("%s on a line: no error", name)
		}
	}
	var many strings.Builder
	for i := range 10_001 {
		fmt.Fprintf(&many, "a%d=1;", i)
	}
	for name, text := range map[string]string{
		"attributes":   "[" + many.String() + "]",
		"inner ad":     "[x = [" + many.String() + "]]",
		"ads in a row": "[" + repeat("x = [a = 1; b = 2; c = 3];", 4000) + "]",
		"text":         "[a = 1" + repeat(" ", 8<<20) + "]",
	} {
		if _, err := classad.ParseAd(text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, text := range map[string]string{
		"lines": strings.ReplaceAll(many.String(), ";", "\n"),
		"text":  "a = 1" + repeat("\n", 8<<20),
	} {
		if _, err := classad.ParseOld(text); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, errs := classad.ParseOldLenient(text); len(errs) == 0 {
			t.Errorf("%s: no errors", name)
		}
	}
	// A hundred thousand levels: too deep for every parser, and for the stack if one went
	// down before it looked.
	for name, pair := range map[string][2]string{
		"parentheses": {"(", ")"}, "lists": {"{", "}"}, "ads": {"[a=", "]"}, "nots": {"!", ""}, "calls": {"f(", ")"},
		"conditions": {"a?", ":1"}, "subscripts": {"a[", "]"}, "lists of ads": {"{[a=", "]}"},
	} {
		deep := repeat(pair[0], 100_000) + "1" + repeat(pair[1], 100_000)
		if _, err := classad.Parse(deep); err == nil {
			t.Errorf("%s: 100000 of them", name)
		}
		if _, err := classad.ParseAd("[x = " + deep + "]"); err == nil {
			t.Errorf("%s in an ad: 100000 of them", name)
		}
		if _, errs := classad.ParseOldLenient("x = " + deep); len(errs) != 1 {
			t.Errorf("%s on a line: %d errors", name, len(errs))
		}
	}
	if _, errs := classad.ParseOldLenient(repeat("x\n", 1<<20)); len(errs) > 10_001 {
		t.Errorf("%d errors of one ad", len(errs))
	}
}

// hostile are ads whose attribute x would cost more than anybody has.
var hostile = map[string]string{
	"doubling string":     doubling(`"0123456789abcdef"`, "strcat(%[1]s,%[1]s)"),
	"doubling steps":      doubling("1", "%[1]s + %[1]s"),
	"doubling list":       doubling("{1}", "{%[1]s,%[1]s}"),
	"joined list":         doubling(`"0123456789abcdef"`, "join(\",\",{%[1]s,%[1]s})"),
	"deep attributes":     chain(3000),
	"calls in circles":    "[x = {x}; y = x; z = {size(x), x, x}; x = z[0] + z[1] + z[2] + x]",
	"eval of itself":      `[x = eval("x") + eval("x")]`,
	"eval of eval":        `[e = "eval(e) + eval(e)"; x = eval(e)]`,
	"list in itself":      "[x = {x, x, x}]",
	"ad in itself":        "[x = [y = x.y + x.y]; z = x.y; w = x; x = {w, w}]",
	"many evals":          `[e = "` + strings.Repeat("1+", 30000) + `1"; x = evalInEachContext(eval(e), {` + strings.Repeat("[],", 5000) + `[]})]`,
	"list over list":      `[l = {` + strings.Repeat("1,", 15000) + `1}; x = evalInEachContext(member(2, l), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"long comparisons":    `[s = "` + strings.Repeat("a", 60000) + `"; x = evalInEachContext(s < strcat(s, "b"), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"long identities":     `[s = "` + strings.Repeat("a", 60000) + `"; x = evalInEachContext(s =?= s, {` + strings.Repeat("[],", 9000) + `[]})]`,
	"pattern over text":   `[s = "` + strings.Repeat("a", 60000) + `"; x = regexp("(a|a|a|a)*(a?){200}b$", s)]`,
	"large pattern":       `[x = regexp("((a{10}){10}){10}((b{10}){10}){10}((c{10}){10}){10}((d{10}){10}){10}((e{10}){10}){10}((f{10}){10}){10}", "x")]`,
	"pattern too long":    `[x = regexp("` + strings.Repeat("a", 5000) + `", "x")]`,
	"many patterns":       `[x = sum(evalInEachContext(size(regexps(strcat(p, "(a{900})"), "aaaa", "x")), {` + patterns(4000) + `}))]`,
	"grown by groups":     `[s = "` + strings.Repeat("a", 30000) + `"; x = replaceAll("a", s, "` + strings.Repeat(`\\0`, 3000) + `")]`,
	"many groups":         `[s = "` + strings.Repeat("a", 60000) + `"; x = replaceAll("` + strings.Repeat("()", 1000) + `a", s, "x")]`,
	"splits":              `[s = "` + strings.Repeat("a ", 30000) + `"; x = evalInEachContext(split(s), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"hard splits":         `[s = "` + strings.Repeat(",", 60000) + `"; x = evalInEachContext(size(split(s)), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"split by many":       `[s = "` + strings.Repeat("a", 30000) + `"; x = evalInEachContext(size(split(s, strcat("` + strings.Repeat("b", 30000) + `"))), {` + strings.Repeat("[],", 3000) + `[]})]`,
	"string lists":        `[s = "` + strings.Repeat("a,", 30000) + `"; x = evalInEachContext(stringListSize(s), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"formats":             `[x = evalInEachContext(formatTime(0, "` + strings.Repeat("%c", 10000) + `"), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"environments":        `[s = "` + strings.Repeat("a=1;", 10000) + `"; x = evalInEachContext(envV1ToV2(s), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"unresolved":          `[r = ` + strings.Repeat("a+", 30000) + `a; x = evalInEachContext(unresolved(r), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"unparse":             `[r = ` + strings.Repeat("a+", 30000) + `a; x = evalInEachContext(unparse(r), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"versions":            `[s = "` + strings.Repeat("1", 60000) + `"; x = evalInEachContext(versioncmp(s, s), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"arguments":           `[s = "` + strings.Repeat("a ", 30000) + `"; x = evalInEachContext(size(argsToList(s)), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"argument lists":      `[l = argsToList("` + strings.Repeat("' ' ", 15000) + `"); x = evalInEachContext(size(listToArgs(l)), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"matches in matches":  "[e = countMatches(e, l) + countMatches(e, l); l = {[], []}; x = e]",
	"long times":          `[s = "` + strings.Repeat("1", 60000) + `"; x = evalInEachContext(relTime(s) > absTime(s), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"names of slots":      `[s = "` + strings.Repeat("a", 60000) + `"; x = evalInEachContext(SlotEval(s, y), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"times of ads":        `[t = [Year = ` + strings.Repeat("1+", 30000) + `1]; x = evalInEachContext(formatTime(t), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"stars in stars":      `[s = "` + strings.Repeat("a", 60000) + `"; x = regexp("^((((a*)*)*)*)*b$", s) || regexp("(x+x+)+y(a|aa)+$", s) || regexp("([a-z]+)*[^a-z]{100}", s)]`,
	"folded alphabets":    `[s = "` + strings.Repeat("é", 30000) + `"; x = evalInEachContext(regexp("(\\pL\\PN){3}$", s, "i"), {` + strings.Repeat("[],", 9000) + `[]})]`,
	"repeated repetition": `[x = regexp("(((((x{1,10}){1,10}){1,10}){1,10}){1,10}){1,10}", "x")]`,
	"bad patterns":        `[x = sum(evalInEachContext(regexp(strcat(p, "(((("), "a"), {` + patterns(4000) + `}))]`,
	"contexts in context": doubling("[a = 1]", "evalInEachContext(%[1]s, {[], []})"),
}

// doubling is an ad of 60 attributes each of which is twice the one before.
func doubling(first, form string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[a0 = %s;", first)
	for i := 1; i < 60; i++ {
		fmt.Fprintf(&b, "a%d = %s;", i, fmt.Sprintf(form, fmt.Sprintf("a%d", i-1)))
	}
	return b.String() + "x = a59]"
}

// chain is an ad whose attributes refer to each other, the last to nothing.
func chain(n int) string {
	var b strings.Builder
	b.WriteString("[x = c0 + 1;")
	for i := range n {
		fmt.Fprintf(&b, "c%d = c%d;", i, i+1)
	}
	return b.String() + "]"
}

// patterns is that many ads with different patterns.
func patterns(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[p=\"%d\"],", i)
	}
	return b.String() + "[p=\"\"]"
}

// REQ-AD-3, REQ-AD-15: evaluation of hostile ads ends, as an error. That this
// takes no time worth mentioning is what the steps are for: the test would not
// end if they were not counted.
func TestREQ_AD_3_EvaluationBudgets(t *testing.T) {
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) {
			ad, err := classad.ParseAd(text)
			if err != nil {
				t.Fatalf("cannot parse: %v", err)
			}
			v := (&classad.Env{My: ad, Now: epoch}).Attr("x")
			if v.Kind() != classad.ErrorKind {
				s := v.String()
				t.Errorf("x = %.100s; want an error", s)
			}
			t.Log(v.Reason())
			// Whatever else is done with it comes to an end as well.
			req := ad.With(classad.Attr{Name: "Requirements", Expr: parse(t, "x")})
			if (&classad.Env{My: req, Target: req, Now: epoch}).Match() || (&classad.Env{My: parseAd(t, "[Requirements = TARGET.x]"), Target: req, Now: epoch}).Match() {
				t.Error("it matches")
			}
			parse(t, "x").References(req, req)
			for _, e := range req.All() {
				e.Mistakes()
			}
		})
	}
}

// REQ-AD-3: what a hostile ad refers to is anything, before it has been counted.
func TestREQ_AD_3_References(t *testing.T) {
	deep := strings.Repeat("[a=", 190) + "{" + strings.Repeat("b,", 31000) + "b}" + strings.Repeat("]", 190)
	var b strings.Builder
	b.WriteString("[x = y0")
	for i := range 15 {
		fmt.Fprintf(&b, " + y%d", i)
	}
	for i := range 15 {
		fmt.Fprintf(&b, "; y%d = %s", i, deep)
	}
	ad := parseAd(t, b.String()+"]")
	if r := parse(t, "TARGET.x").References(nil, ad); !r.Any || !r.Time || r.Constant() {
		t.Errorf("any %t, time %t", r.Any, r.Time)
	}
	if r := parse(t, "TARGET.y0 + 1").References(nil, parseAd(t, "[y0 = {"+strings.Repeat("b,", 31000)+"b}]")); r.Any || !r.Has("b") {
		t.Error("what is merely long is anything")
	}
}

// REQ-AD-3: an ordinary ad is far from every bound, and one evaluation does
// not pay for another.
func TestREQ_AD_3_Fresh(t *testing.T) {
	env := &classad.Env{My: parseAd(t, hostile["doubling steps"])}
	for range 3 {
		if got := env.Attr("x"); got.Reason() != "too many steps" {
			t.Errorf("x = %s, %q; want too many steps", got, got.Reason())
		}
		if got := env.Eval(parse(t, "a5")); got.String() != "32" {
			t.Errorf("a5 = %s; want 32", got)
		}
	}
}

// REQ-AD-4: a long chain is not deep.
func TestREQ_AD_4_Chains(t *testing.T) {
	env := &classad.Env{My: parseAd(t, "[a = 1; t = true; f = false]")}
	for op, want := range map[string]string{
		"t && t": "true", "f || f": "false", "a + a": "2101", "a ?: a": "1", "a == a": "error", "f ? 1 : 5": "5",
	} {
		var parts []string
		sep, last := strings.SplitN(op, " ", 2)[1], ""
		switch op {
		case "f ? 1 : 5":
			parts, sep, last = []string{"f ? 1"}, ":", " : 5"
		case "a == a":
			// 1 == 1 is true, which is 1 too.
			parts, sep, want = []string{"a"}, "==", "true"
		default:
			parts, sep = []string{op[:1]}, sep[:2]
		}
		sep = strings.TrimSpace(sep)
		text := parts[0] + strings.Repeat(" "+sep+" "+parts[0], 2100) + last
		e := parse(t, text)
		if got := env.Eval(e); got.String() != want {
			t.Errorf("2100 of %q = %s (%s); want %s", op, got, got.Reason(), want)
		}
		if e.String() != text {
			t.Errorf("2100 of %q is printed as something else", op)
		}
		if !parse(t, text).Equal(e) {
			t.Errorf("2100 of %q does not equal itself", op)
		}
	}
}

// Evaluations that share their steps cost no more than these together.
func TestSharedSteps(t *testing.T) {
	e := parse(t, "size({1, 2, 3}) > 2")
	steps := 50
	env := &classad.Env{Steps: &steps}
	n := 0
	for ; env.Eval(e).True(); n++ {
		if n > 50 {
			t.Fatal("the steps do not come to an end")
		}
	}
	if v := env.Eval(e); n < 3 || steps != 0 || v.Kind() != classad.ErrorKind {
		t.Errorf("after %d times %d steps are left, and the value is %v; want an error", n, steps, v)
	}
	if !(&classad.Env{}).Eval(e).True() {
		t.Error("an evaluation on its own is bound by what others have taken")
	}
}
