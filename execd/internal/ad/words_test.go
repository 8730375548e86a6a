package ad

import (
	"slices"
	"strings"
	"testing"

	"paddock/classad"
)

// REQ-HOOK-23: the old ways have no quotes, the new ones do.
func TestWords(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, " \t\n": nil, "a": {"a"}, " a  b\tc\n": {"a", "b", "c"}, "'a b' \"c": {"'a", "b'", `"c`},
	} {
		if got := ParseArgs(text); !slices.Equal(got, want) {
			t.Errorf("Args %q are %q; want %q", text, got, want)
		}
	}
	for text, want := range map[string][]string{
		"": nil, "  ": nil, "''": {""}, "a''b": {"ab"}, "'a''b'": {"a'b"}, "''''": {"'"}, "a'b c'd 'e'": {"ab cd", "e"}, `"a b"`: {`"a`, `b"`},
	} {
		if got, err := ParseArguments(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("Arguments %q are %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"'", "a 'b", "'''"} {
		if got, err := ParseArguments(text); err == nil {
			t.Errorf("Arguments %q are %q; want an error", text, got)
		}
	}
	for text, want := range map[string][]string{
		"": nil, ";": nil, "A=1": {"A=1"}, "A=1; B=x y ;": {"A=1", "B=x y "}, "A==;A='": {"A='"},
	} {
		if got, err := ParseEnv(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("Env %q is %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"A", "A=1;=2", "A\nB=1"} {
		if got, err := ParseEnv(text); err == nil {
			t.Errorf("Env %q is %q; want an error", text, got)
		}
	}
}

// FuzzWords: what is written is read as it was, and an environment is the same to
// the functions of the language.
func FuzzWords(f *testing.F) {
	f.Add("a\x00'b c'\x00\x00A=1")
	f.Add("A=x y\x00B='\x00C=\t\n")
	f.Fuzz(func(t *testing.T, text string) {
		words := strings.Split(text, "\x00")
		line := FormatArguments(words)
		got, err := ParseArguments(line)
		if err != nil || !slices.Equal(got, words) {
			t.Fatalf("%q is written as %q and read as %q, %v", words, line, got, err)
		}
		env, err := variables(words)
		if err != nil {
			return
		}
		line = FormatEnvironment(env)
		if again, err := ParseEnvironment(line); err != nil || !slices.Equal(again, env) {
			t.Fatalf("%q is written as %q and read as %q, %v", env, line, again, err)
		}
		call, err := classad.Parse("mergeEnvironment(" + classad.String(line).Expr().String() + ")")
		if err != nil {
			return // too long for an expression
		}
		if same, ok := (&classad.Env{}).Eval(call).Str(); ok && same != line {
			t.Fatalf("%q is %q to the language", line, same)
		}
	})
}

func BenchmarkAds(b *testing.B) {
	slot, job := fullSlots()[0], full()
	job.Environment = true
	b.Run("slot", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Slot(slot)
		}
	})
	b.Run("job", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Job(job)
		}
	})
}
