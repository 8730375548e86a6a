package classad_test

import (
	"slices"
	"strings"
	"testing"

	"paddock/classad"
)

// TestMistakes finds what is an error whatever the ads are, wherever it stands.
func TestMistakes(t *testing.T) {
	chain := strings.Repeat("F(1) ? 2 : ", 5_000) + "3"
	for text, want := range map[string][]string{
		"1 + 2":                          nil,
		"A.B[C] + size({D})":             nil,
		"f(1) + F(2)":                    {"no function f", "no function F"},
		"true || F(1)":                   {"no function F"},
		"A.B[F(1)]":                      {"no function F"},
		"{ 1, -F(1) }.A":                 {"no function F"},
		"[ a = [ b = F(1) ] ]":           {"no function F"},
		"ifThenElse(A, 1)":               {"wrong number of arguments to ifThenElse"},
		"time(1) + substr()":             {"wrong number of arguments to time", "wrong number of arguments to substr"},
		"F(member(1))":                   {"no function F", "wrong number of arguments to member"},
		`regexp("(", A)`:                 {"error parsing regexp: missing closing ): `(`"},
		`regexp(A, "(")`:                 nil,
		`stringListRegexpMember("*", A)`: {"error parsing regexp: missing argument to repetition operator: `*`"},
		`eval("F(A)")`:                   {"no function F"},
		`eval("1 +")`:                    {"line 1, column 4: unexpected end"},
		`eval(strcat("F", "(A)"))`:       nil,
		chain:                            {"no function F"},
	} {
		e := parse(t, text)
		if got := e.Mistakes(); !slices.Equal(got, want) {
			t.Errorf("%.40s: %q; want %q", text, got, want)
		}
		// What is one is an error indeed.
		if v := (&classad.Env{Now: epoch}).Eval(e); len(want) == 1 && text != "true || F(1)" && v.Kind() == classad.ErrorKind && v.Reason() != want[0] {
			t.Errorf("%.40s is an error for another reason: %s", text, v.Reason())
		}
	}
}

// TestReasonIsALine: what is said of an error may come from who wrote the ad, and goes
// to logs and terminals.
func TestReasonIsALine(t *testing.T) {
	name := "'a\\n\\033[31m" + strings.Repeat("b", 300) + "'"
	ad := parseAd(t, "["+name+" = "+name+"]")
	for n := range ad.All() {
		got := (&classad.Env{My: ad}).Attr(n).Reason()
		if len(got) > 200 || strings.ContainsAny(got, "\n\033") || !strings.HasPrefix(got, "circular reference to a??[31mbbb") {
			t.Errorf("%q", got)
		}
	}
}
