package conf

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// item matches a list item of a page whose subject are parameters. What stands
// between Va and the next macro are their names.
var item = regexp.MustCompile(`(?m)^\.It Va (.*)$`)

// inPage returns the names of the parameters that a page documents.
func inPage(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile("../../../man/man5/" + page)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range item.FindAllStringSubmatch(string(text), -1) {
		for word := range strings.FieldsSeq(m[1]) {
			if slices.Contains([]string{"Ar", "Cm", "Oo", "Ta"}, word) {
				break
			}
			if word != "," {
				names = append(names, word)
			}
		}
	}
	slices.Sort(names)
	return names
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

// TestManual holds the parameters against their pages: each is in the one of
// its file, once, and nothing else is.
func TestManual(t *testing.T) {
	if diff := cmp.Diff(sorted(names(queueParams)), inPage(t, "queue_conf.5")); diff != "" {
		t.Errorf("queue_conf.5 and queueParams differ (-table +page):\n%s", diff)
	}
	if diff := cmp.Diff(sorted(names(globalParams)), inPage(t, "sge_conf.5")); diff != "" {
		t.Errorf("sge_conf.5 and globalParams differ (-table +page):\n%s", diff)
	}
}
