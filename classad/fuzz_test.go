package classad_test

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"paddock/classad"
)

// seeds are the expressions of the probes.
func seeds(f *testing.F) []string {
	f.Helper()
	file, err := os.Open("testdata/probes")
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	var texts []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text, _, ok := strings.Cut(lines.Text(), " => "); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// A string of any length is read as it is written, and no text is one that the parser of
// expressions reads as something else.
func FuzzOldString(f *testing.F) {
	read := func(expr string) (string, bool) {
		rest, s, line, err := classad.CutOldString("s = "+expr+"\nT = 1\n", "S")
		return s, err == nil && line == 1 && rest == "\nT = 1\n"
	}
	for _, text := range append(seeds(f), "", "#!/bin/sh\necho \"a\\\"\n", "x\\", "\x00\r\xff", `eval("\"a\nb\"")`, `eval("\"a\" + \"b\"")`, `eval("\"a\"") + 1`, `"a" "b"`, `EVAL ( "\"\"" )`) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, ok := read(classad.String(text).Expr().OldString()); !ok || got != text {
			t.Fatalf("%q is read as %q, %v", text, got, ok)
		}
		if strings.Contains(text, "\n") {
			return // another attribute
		}
		got, ok := read(text)
		if !ok {
			return
		}
		e, err := classad.ParseOldExpr(strings.Trim(text, " \t\r"))
		if len(text) > 64<<10 || err != nil && strings.Contains(err.Error(), "long") {
			return
		}
		v := (&classad.Env{Now: epoch}).Eval(e)
		if s, isText := v.Str(); err != nil || len(text) < 1000 && (!isText || s != got) {
			t.Fatalf("%q is read as %q, and is %v: %v", text, got, v, err)
		}
	})
}

// REQ-AD-13, REQ-AD-15: what can be parsed is printed as itself in both
// syntaxes, and what it evaluates to is the same ever after.
func FuzzParse(f *testing.F) {
	for _, text := range seeds(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := classad.Parse(text)
		if err != nil {
			return
		}
		printed := e.String()
		again, err := classad.Parse(printed)
		if err != nil && len(printed) <= 64<<10 {
			t.Fatalf("%q is printed as %q: %v", text, printed, err)
		}
		if err == nil && (!again.Equal(e) || again.String() != printed) {
			t.Fatalf("%q is printed as %q and then as %q", text, printed, again)
		}
		old := e.OldString()
		if strings.ContainsAny(old, "\n\r\x00") {
			t.Fatalf("%q is printed as %q in old syntax, which is no line", text, old)
		}
		if again, err := classad.ParseOldExpr(old); len(old) <= 64<<10 && (err != nil || !again.Equal(e)) {
			t.Fatalf("%q is printed as %q in old syntax and read as %q: %v", text, old, again, err)
		}
		e.References(nil, nil)
		env := &classad.Env{Now: epoch, My: classad.New(classad.Attr{Name: "a", Expr: e}, classad.Attr{Name: "b", Expr: e})}
		env.Target = env.My
		first, second := env.Eval(e).String(), env.Eval(e).String()
		if first != second && !e.References(env.My, env.My).Random {
			t.Fatalf("%q is worth %s and then %s", text, first, second)
		}
	})
}

// REQ-AD-15: no text makes an ad that does not come back, and none whose
// evaluation does not end.
func FuzzAd(f *testing.F) {
	for _, text := range seeds(f) {
		f.Add("[x = " + text + "; y = x]")
		f.Add("x = " + text + "\n# y\ny = x\n")
	}
	for _, text := range hostile {
		if len(text) < 1<<12 {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if ad, err := classad.ParseAd(text); err == nil {
			comesBack(t, ad)
		}
		ad, errs := classad.ParseOldLenient(text)
		if strict, err := classad.ParseOld(text); (err == nil) != (len(errs) == 0) || err == nil && !strict.Equal(ad) {
			t.Fatalf("%q: %v and %v", text, err, errs)
		}
		comesBack(t, ad)
	})
}

func comesBack(t *testing.T, ad *classad.Ad) {
	t.Helper()
	// A worker is given up after ten seconds of one input, however busy the host is.
	steps := 200_000
	env := &classad.Env{Now: epoch, My: ad, Target: ad, Steps: &steps}
	public := ad
	few := 20
	for name, e := range ad.All() {
		if few--; few > 0 {
			env.Attr(name)
		}
		e.References(ad, ad)
		if classad.Private(name) {
			public = public.Without(name)
		}
	}
	env.Match()
	text := ad.SecretString()
	if again, err := classad.ParseOld(text); err != nil && len(text) <= 64<<10 || err == nil && !again.Equal(ad) {
		t.Fatalf("%q is printed as %q and read as %v: %v", ad, text, again, err)
	}
	if again, err := classad.ParseAd(ad.String()); err == nil && again.Len() != public.Len() {
		t.Fatalf("%q has not the attributes of %q", again, text)
	}
}
