package knob

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// item matches a knob of hooks.conf(5): name, kind, what is said of it.
var item = regexp.MustCompile(`(?ms)^\.It Va (\S+) Ar (\S+)\n(.*?)(?:^\.It|^\.El)`)

// fallback matches the default that is said.
var fallback = regexp.MustCompile(`(?m)^Default:\n\.Li (.*) \.$`)

// TestManualElsewhere: from_condor(7) says of every knob that is refused or has no effect
// what is for it.
func TestManualElsewhere(t *testing.T) {
	text, err := os.ReadFile("../../../../man/man7/from_condor.7")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ToUpper(string(text))
	for name := range elsewhere {
		if !strings.Contains(page, name) {
			t.Errorf("%s is not in the page", name)
		}
	}
	for _, k := range identity {
		if !slices.ContainsFunc(strings.FieldsFunc(page, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' }), k.names.MatchString) {
			t.Errorf("nothing in the page is of %v", k.names)
		}
	}
}

// TestManualTemplates: every template that can be used is in hooks.conf(5).
func TestManualTemplates(t *testing.T) {
	text, err := os.ReadFile("../../../../man/man5/hooks.conf.5")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ToUpper(string(text))
	for category, named := range templates {
		for name, template := range named {
			if template.refused+template.warning == "" && !strings.Contains(page, category+" \\&: "+name) && !strings.HasPrefix(name, "GET_HTCONDOR") && !strings.Contains(page, " , "+name) {
				t.Errorf("%s : %s is not in the page", category, name)
			}
		}
	}
}

// TestManual holds the table against hooks.conf(5): each knob is there once, with
// its kind and its default.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("../../../../man/man5/hooks.conf.5")
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Kind    Kind
		Default string
	}
	want, got := map[string]row{}, map[string]row{}
	for _, k := range Table() {
		if _, twice := want[k.Name]; twice {
			t.Errorf("%s is in the table twice", k.Name)
		}
		want[k.Name] = row{k.Kind, k.Default}
	}
	// An item ends where the next one begins.
	for _, m := range item.FindAllStringSubmatch(strings.ReplaceAll(string(text), "\n.It", "\n.It\n.It"), -1) {
		r := row{Kind: Kind(m[2])}
		if d := fallback.FindStringSubmatch(m[3]); d != nil {
			r.Default = d[1]
		}
		if _, twice := got[m[1]]; twice {
			t.Errorf("%s is in the page twice", m[1])
		}
		got[m[1]] = r
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the table and the page differ (-table +page):\n%s", diff)
	}
}
