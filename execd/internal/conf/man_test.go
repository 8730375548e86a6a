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
	for page, table := range map[string][]string{
		"queue_conf.5": names(queueParams), "sge_conf.5": names(globalParams), "sched_conf.5": names(schedParams),
		"sge_pe.5": names(peParams), "checkpoint.5": names(ckptParams), "access_list.5": names(userListParams),
		"hostgroup.5": names(hostGroupParams), "host_conf.5": names(hostParams),
	} {
		if diff := cmp.Diff(sorted(table), inPage(t, page)); diff != "" {
			t.Errorf("%s and its table differ (-table +page):\n%s", page, diff)
		}
	}
}

// TestManualOptions looks for the words of execd_params and the like, and for
// the types of attributes.
func TestManualOptions(t *testing.T) {
	for page, words := range map[string][]string{
		"sge_conf.5": optionNames(slices.Concat(execdOptions, qmasterOptions, reportingOptions)), "complex.5": kinds,
	} {
		text, err := os.ReadFile("../../../man/man5/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range words {
			if !regexp.MustCompile(`(?m)^(\.It |\.)Cm .*\b` + word + `\b`).Match(text) {
				t.Errorf("%s does not name %s", page, word)
			}
		}
	}
}
