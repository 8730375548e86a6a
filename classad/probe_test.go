package classad_test

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"

	"paddock/classad"
)

// epoch is the clock of the tests.
var epoch = time.Unix(1_000_000, 0).UTC()

func parse(t testing.TB, text string) classad.Expr {
	t.Helper()
	e, err := classad.Parse(text)
	if err != nil {
		t.Fatalf("Parse(%q): %v", text, err)
	}
	return e
}

func parseAd(t testing.TB, text string) *classad.Ad {
	t.Helper()
	ad, err := classad.ParseAd(text)
	if err != nil {
		t.Fatalf("ParseAd(%q): %v", text, err)
	}
	return ad
}

// probed are the requirements that the probes are for, and the least number of
// them for each: REQ-AD-1, REQ-AD-6, REQ-AD-8 scopes, REQ-AD-9 three-valued logic,
// REQ-AD-11 functions, REQ-AD-12 regular expressions, REQ-AD-14.
var probed = map[string]int{
	"REQ-AD-1": 20, "REQ-AD-6": 6, "REQ-AD-8": 30, "REQ-AD-9": 80, "REQ-AD-11": 180, "REQ-AD-12": 18, "REQ-AD-14": 9,
}

// TestProbes, REQ-AD-15, evaluates the expressions of testdata/probes. Its lines
// are "[requirement]", "my [ad]", "target [ad]" and "expression => value", in which
// a value of < is any number below zero.
func TestProbes(t *testing.T) {
	f, err := os.Open("testdata/probes")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	env := &classad.Env{Now: epoch}
	section := ""
	tried := map[string]int{}
	lines := bufio.NewScanner(f)
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		text, want, probe := strings.Cut(line, " => ")
		switch {
		case line == "" || line[0] == '#':
		case probe:
			requirement, _, _ := strings.Cut(section, " ")
			tried[requirement]++
			t.Run(section+"/"+text, func(t *testing.T) { tryProbe(t, env, number, text, want) })
		case strings.HasPrefix(line, "my "):
			env = &classad.Env{Now: epoch, My: parseAd(t, line[len("my "):]), Target: env.Target}
		case strings.HasPrefix(line, "target "):
			env = &classad.Env{Now: epoch, My: env.My, Target: parseAd(t, line[len("target "):])}
		case line[0] == '[':
			section, env = strings.Trim(line, "[]"), &classad.Env{Now: epoch}
		default:
			t.Fatalf("testdata/probes:%d: %q is no probe", number, line)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for requirement, least := range probed {
		if tried[requirement] < least {
			t.Errorf("%d probes for %s; want at least %d", tried[requirement], requirement, least)
		}
	}
}

func tryProbe(t *testing.T, env *classad.Env, number int, text, want string) {
	e, err := classad.Parse(text)
	if err != nil {
		if want != "syntax error" {
			t.Errorf("line %d: Parse(%q): %v", number, text, err)
		}
		return
	}
	got := env.Eval(e)
	if want == "<" {
		if n, ok := got.Int(); !ok || n >= 0 {
			t.Errorf("line %d: %s = %s; want a number below zero", number, text, got)
		}
		return
	}
	if got.String() != want {
		t.Errorf("line %d: %s = %s (%s); want %s", number, text, got, got.Reason(), want)
	}
}
