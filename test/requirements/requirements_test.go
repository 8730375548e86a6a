package requirements

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"paddock/test/harness"
)

//go:generate go test -run ^TestTable$ -update .

var update = flag.Bool("update", false, "write TABLE.md anew, and take out of missing what has a test")

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every row has a test or is known to have none, and TABLE.md says so.
func TestTable(t *testing.T) {
	rows, err := ParseRows(read(t, "rows"))
	if err != nil {
		t.Fatal(err)
	}
	missing, err := ParseMissing(read(t, "missing"))
	if err != nil {
		t.Fatal(err)
	}
	found, err := Scan(os.DirFS(harness.Root()), rows)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		text := Shrink(rows, found, missing)
		if missing, err = ParseMissing(text); err == nil {
			err = os.WriteFile("missing", []byte(text), 0o644)
		}
		if err := errors.Join(err, os.WriteFile("TABLE.md", []byte(Table(rows, found, missing)), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, problem := range slices.Concat(found.Problems, Compare(rows, found, missing)) {
		t.Error(problem)
	}
	if diff := cmp.Diff(Table(rows, found, missing), read(t, "TABLE.md")); diff != "" {
		t.Errorf("TABLE.md is stale; run make requirements (-want +got):\n%s", diff)
	}
}

const someRows = `# comment
## First
REQ-HOOK-1 one | two
REQ-HOOK-2 two
SLOT-1 a
## Second
CLAIM-REQUEST b
CLAIM-REQUEST-CLAIMED c
POLICY-MaxJobRetirementTime d
PSLOT e
`

func TestScan(t *testing.T) {
	rows, err := ParseRows(someRows)
	if err != nil {
		t.Fatal(err)
	}
	tree := fstest.MapFS{
		"a/a_test.go": {Data: []byte(`// Package a REQ-HOOK-2.
package a

// REQ-HOOK-1, CLAIM-REQUEST: doc.
func TestA(t *testing.T) {
	check("SLOT-1") // SLOT-1
}

// SLOT-1 in a helper.
func helper() {}

// PSLOT stands alone.

// The table, POLICY-MAXJOBRETIREMENTTIME.
var table = []string{"CLAIM-REQUEST-CLAIMED"}

// SLOT-1, but no test.
func BenchmarkA(b *testing.B) {}

// By its name.
func TestREQ_HOOK_1_B(t *testing.T) {}

func helperREQ_HOOK_2() {}

// REQ-HOOK-1..2 and REQ-HOOK-9.
func FuzzA(f *testing.F) {}
`)},
		"a/a.go":                         {Data: []byte("package a // REQ-HOOK-2\n")},
		"a/testdata/x_test.go":           {Data: []byte("// REQ-HOOK-2\n")},
		"bin/x_test.go":                  {Data: []byte("// REQ-HOOK-2\n")},
		".git/x_test.go":                 {Data: []byte("// REQ-HOOK-2\n")},
		"test/requirements/x_test.go":    {Data: []byte("// REQ-HOOK-2\n")},
		"nested/go.mod":                  {Data: []byte("module nested\n")},
		"nested/broken_test.go":          {Data: []byte("package // PSLOT\n")},
		"test/e2e/script/fetch_it.txtar": {Data: []byte("# REQ-HOOK-1\nexec echo SLOT-1\n  # SLOT-1/2\n-- f --\n# PSLOT\n")},
	}
	found, err := Scan(tree, rows)
	if err != nil {
		t.Fatal(err)
	}
	want := &Found{
		Tests: map[string][]string{
			"REQ-HOOK-1":                  {"a/a_test.go FuzzA", "a/a_test.go TestA", "a/a_test.go TestREQ_HOOK_1_B", "test/e2e/script/fetch_it.txtar"},
			"CLAIM-REQUEST":               {"a/a_test.go TestA"},
			"CLAIM-REQUEST-CLAIMED":       {"a/a_test.go table"},
			"POLICY-MaxJobRetirementTime": {"a/a_test.go table"},
			"SLOT-1":                      {"a/a_test.go TestA", "test/e2e/script/fetch_it.txtar"},
		},
		Other: map[string][]string{
			"REQ-HOOK-2": {"a/a_test.go:1"},
			"PSLOT":      {"a/a_test.go:12"},
			"SLOT-1":     {"a/a_test.go:17", "a/a_test.go:9"},
		},
		Problems: []string{
			"a/a_test.go:25: REQ-HOOK-1..2: name each row",
			"a/a_test.go:25: no such row: REQ-HOOK-9",
			"nested/broken_test.go:1:18: expected 'IDENT', found 'EOF'",
			"test/e2e/script/fetch_it.txtar:3: SLOT-1/2: name each row",
		},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("Scan (-want +got):\n%s", diff)
	}
	missing, err := ParseMissing("# c\nREQ-HOOK-1\nREQ-HOOK-2: too hard\nSLOT-9\n")
	if err != nil {
		t.Fatal(err)
	}
	wantProblems := []string{
		"REQ-HOOK-1 is missing no more: a/a_test.go FuzzA, a/a_test.go TestA, a/a_test.go TestREQ_HOOK_1_B, test/e2e/script/fetch_it.txtar; run make requirements",
		"PSLOT has no test: e (named outside of tests: a/a_test.go:12)",
		"missing: no such row: SLOT-9",
	}
	if diff := cmp.Diff(wantProblems, Compare(rows, found, missing)); diff != "" {
		t.Errorf("Compare (-want +got):\n%s", diff)
	}
	if got := Shrink(rows, found, missing); !strings.HasSuffix(got, "none in.\nREQ-HOOK-2: too hard\n") {
		t.Errorf("Shrink = %q", got)
	}
	table := Table(rows, found, missing)
	for _, line := range []string{
		"5 of 7 rows have a test.",
		"## Second",
		"2 have one that runs the programs; those marked units are held by tests of packages alone,",
		`| REQ-HOOK-1 | one \| two | programs | a/a_test.go FuzzA<br>a/a_test.go TestA<br>a/a_test.go TestREQ_HOOK_1_B<br>test/e2e/script/fetch_it.txtar |`,
		"| REQ-HOOK-2 | two |  | none: too hard |",
		"| CLAIM-REQUEST | b | units | a/a_test.go TestA |",
		"| PSLOT | e |  | none |",
	} {
		if !strings.Contains(table, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, table)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"REQ-HOOK-1":                   "rows:1: REQ-HOOK-1 asks for nothing",
		"# x\nHOOK-1 a":                "rows:2: HOOK-1 is no name of a row",
		"SLOT-1 a\n\nSLOT-1 b":         "rows:3: SLOT-1 is there twice",
		"POLICY-KILL a\nPOLICY-kill b": "rows:2: POLICY-kill is there twice",
	} {
		if rows, err := ParseRows(text); err == nil || err.Error() != want {
			t.Errorf("ParseRows(%q) = %v, %v; want %s", text, rows, err, want)
		}
	}
	if missing, err := ParseMissing("SLOT-1\nSLOT-1: x\n"); err == nil || err.Error() != "missing:2: SLOT-1 is there twice" {
		t.Errorf("ParseMissing = %v, %v", missing, err)
	}
}

// A tree that cannot be read is no tree without tests.
func TestScanFails(t *testing.T) {
	if _, err := Scan(os.DirFS("/nonexistent"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Scan = %v; want that there is nothing", err)
	}
}
