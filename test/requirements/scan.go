// Package requirements tells which tests hold what is asked of slots, claims,
// hooks, the end of a job and the expression language. The file rows has what
// is asked, a row each. A test names the rows that it would fail for, in its
// comment or in its body:
//
//	// REQ-HOOK-27, REQ-HOOK-30: nobody waits for what is told.
//	func TestTold(t *testing.T) {
//
// or by its name, as TestREQ_HOOK_27_Told, and a script in its comments. Each row is
// named in full: there are no ranges and no abbreviations. A name counts in a function
// Test, Fuzz or Example, in a variable of a test file (its table), and in the comments of
// a script. It does not count in a helper or in a comment that stands alone.
//
// TABLE.md, which marks the rows that no test with the programs themselves holds, is
// made from that by `make requirements`, which is also `go generate
// ./test/requirements`. The file missing has the rows without a test, each with
// a reason behind a colon if there is one. It must shrink: `make requirements`
// takes rows out of it and puts none in. A row that loses its last test makes the test of
// this package fail until it has one again, or somebody writes it there.
//
// Nobody imports this package.
package requirements

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Row is something that is asked for.
type Row struct {
	Name    string // REQ-HOOK-1
	Wording string
	Heading string // what it stands below
}

// ParseRows reads the file rows.
func ParseRows(text string) ([]Row, error) {
	var rows []Row
	seen := make(map[string]bool)
	heading := ""
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if after, ok := strings.CutPrefix(line, "## "); ok {
			heading = after
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		name, wording, ok := strings.Cut(line, " ")
		switch {
		case !ok:
			return nil, fmt.Errorf("rows:%d: %s asks for nothing", number, name)
		case rowName.FindString(name) != name:
			return nil, fmt.Errorf("rows:%d: %s is no name of a row", number, name)
		case seen[strings.ToLower(name)]:
			return nil, fmt.Errorf("rows:%d: %s is there twice", number, name)
		}
		seen[strings.ToLower(name)] = true
		rows = append(rows, Row{name, wording, heading})
	}
	return rows, nil
}

// ParseMissing reads the file missing: rows, each with a reason or "".
func ParseMissing(text string) (map[string]string, error) {
	missing := make(map[string]string)
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, reason, _ := strings.Cut(line, ":")
		if _, twice := missing[name]; twice {
			return nil, fmt.Errorf("missing:%d: %s is there twice", number, name)
		}
		missing[name] = strings.TrimSpace(reason)
	}
	return missing, nil
}

// Found is what a tree of sources says of rows.
type Found struct {
	// Tests has the tests of each row, sorted, as "dir/x_test.go TestX" or
	// "dir/x.txtar".
	Tests map[string][]string
	// Other has the places that name a row and do not count, as "dir/x_test.go:12".
	Other map[string][]string
	// Problems are names of no row, ranges, and files that are no Go.
	Problems []string
}

var (
	// rowName is the name of a row.
	rowName = regexp.MustCompile(`\b(?:REQ-(?:HOOK|AD|EXIT|XFER|FLOW)-\d+|SLOT-(?:\d+|ORDER)|CLAIM(?:-[A-Z]+)+|POLICY-[A-Za-z_]+|DRAIN-[A-Z]+|PSLOT)\b`)
	// inName is the name of a row in the name of a test.
	inName = regexp.MustCompile(`REQ_(HOOK|AD|EXIT|XFER)_(\d+)`)
	// more is what follows a name that is meant to stand for several.
	more = regexp.MustCompile(`^(?:\.\.|…|–|-|/|, ?-)\s*\d+`)
)

// Scan looks for rows in all tests and scripts of a tree, but not in those of
// this package, in hidden directories, or in bin.
func Scan(tree fs.FS, rows []Row) (*Found, error) {
	s := scanner{
		Found: Found{Tests: make(map[string][]string), Other: make(map[string][]string)},
		names: make(map[string]string),
	}
	for _, r := range rows {
		s.names[strings.ToLower(r.Name)] = r.Name
	}
	err := fs.WalkDir(tree, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir():
			if file == "test/requirements" || file == "bin" || len(name) > 1 && name[0] == '.' {
				return fs.SkipDir
			}
			return nil
		case strings.HasSuffix(name, "_test.go") && !strings.Contains("/"+path.Dir(file)+"/", "/testdata/"):
			return s.read(tree, file, s.goFile)
		case strings.HasSuffix(name, ".txtar"):
			return s.read(tree, file, s.script)
		}
		return nil
	})
	for _, places := range []map[string][]string{s.Tests, s.Other} {
		for name := range places {
			slices.Sort(places[name])
			places[name] = slices.Compact(places[name])
		}
	}
	slices.Sort(s.Problems)
	return &s.Found, err
}

type scanner struct {
	Found
	names map[string]string // of the rows, by their names in lower case
}

func (s *scanner) read(tree fs.FS, file string, take func(file, text string)) error {
	text, err := fs.ReadFile(tree, file)
	if err == nil {
		take(file, string(text))
	}
	return err
}

// goFile scans a test file: declarations count, with their comments.
func (s *scanner) goFile(file, text string) {
	if !rowName.MatchString(text) && !inName.MatchString(text) {
		return
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		s.Problems = append(s.Problems, err.Error())
		return
	}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && tested(d) != "" {
			for _, m := range inName.FindAllStringSubmatch(f.Name.Name, -1) {
				place := fmt.Sprintf("%s:%d", file, files.Position(f.Pos()).Line)
				s.note(place, "REQ-"+m[1]+"-"+m[2], file+" "+f.Name.Name)
			}
		}
	}
	base := files.File(parsed.FileStart).Base()
	s.tokens(file, text, func(at int) string {
		for _, d := range parsed.Decls {
			if start, end := extent(d); int(start)-base <= at && at < int(end)-base {
				if name := tested(d); name != "" {
					return file + " " + name
				}
			}
		}
		return ""
	})
}

// extent returns where a declaration stands, its comment included.
func extent(d ast.Decl) (start, end token.Pos) {
	start, end = d.Pos(), d.End()
	var doc *ast.CommentGroup
	switch d := d.(type) {
	case *ast.FuncDecl:
		doc = d.Doc
	case *ast.GenDecl:
		doc = d.Doc
	}
	if doc != nil {
		start = doc.Pos()
	}
	return start, end
}

// tested returns the name of a declaration that go test runs, or that may be the table
// of a test; else "".
func tested(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		for _, prefix := range []string{"Test", "Fuzz", "Example"} {
			if d.Recv == nil && strings.HasPrefix(d.Name.Name, prefix) && d.Name.Name != "TestMain" {
				return d.Name.Name
			}
		}
	case *ast.GenDecl:
		if d.Tok == token.VAR {
			return d.Specs[0].(*ast.ValueSpec).Names[0].Name
		}
	}
	return ""
}

// script scans a testscript: its comments count, its files do not.
func (s *scanner) script(file, text string) {
	var comments strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "-- ") && strings.HasSuffix(strings.TrimSpace(line), " --") {
			break
		}
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			line = "\n" // keeps the numbers of lines
		}
		comments.WriteString(line)
	}
	s.tokens(file, comments.String(), func(int) string { return file })
}

// tokens notes the rows that a text names. where returns the test that an offset belongs
// to, or "".
func (s *scanner) tokens(file, text string, where func(at int) string) {
	for _, at := range rowName.FindAllStringIndex(text, -1) {
		place := fmt.Sprintf("%s:%d", file, 1+strings.Count(text[:at[0]], "\n"))
		found := text[at[0]:at[1]]
		if rest := more.FindString(text[at[1]:]); rest != "" {
			s.Problems = append(s.Problems, fmt.Sprintf("%s: %s%s: name each row", place, found, rest))
		}
		s.note(place, found, where(at[0]))
	}
}

// note notes that a row is named at a place, by a test or, if that is "", by
// something else.
func (s *scanner) note(place, found, test string) {
	switch name, ok := s.names[strings.ToLower(found)]; {
	case !ok:
		s.Problems = append(s.Problems, fmt.Sprintf("%s: no such row: %s", place, found))
	case test == "":
		s.Other[name] = append(s.Other[name], place)
	default:
		s.Tests[name] = append(s.Tests[name], test)
	}
}

// Compare returns what is wrong with the file missing: a row in it that has a
// test or is none, and a row without a test that is not in it.
func Compare(rows []Row, found *Found, missing map[string]string) (problems []string) {
	known := make(map[string]bool)
	for _, r := range rows {
		known[r.Name] = true
		_, listed := missing[r.Name]
		tests := found.Tests[r.Name]
		switch {
		case listed && len(tests) > 0:
			problems = append(problems, fmt.Sprintf("%s is missing no more: %s; run make requirements", r.Name, strings.Join(tests, ", ")))
		case !listed && len(tests) == 0:
			text := r.Name + " has no test: " + r.Wording
			if other := found.Other[r.Name]; len(other) > 0 {
				text += " (named outside of tests: " + strings.Join(other, ", ") + ")"
			}
			problems = append(problems, text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if !known[name] {
			problems = append(problems, "missing: no such row: "+name)
		}
	}
	return problems
}

// Shrink returns the file missing without the rows that have a test by now.
func Shrink(rows []Row, found *Found, missing map[string]string) string {
	b := []byte("# Rows without a test, each with a reason if there is one. It must shrink:\n# make requirements takes rows out of it and puts none in.\n")
	for _, r := range rows {
		reason, listed := missing[r.Name]
		if !listed || len(found.Tests[r.Name]) > 0 {
			continue
		}
		b = append(b, r.Name...)
		if reason != "" {
			b = append(append(b, ": "...), reason...)
		}
		b = append(b, '\n')
	}
	return string(b)
}

// Table returns TABLE.md.
func Table(rows []Row, found *Found, missing map[string]string) string {
	b := []byte("# What is asked for, and the tests that hold it\n\nMade by `make requirements` from the file `rows` and the comments of the tests.\n")
	covered, whole := 0, 0
	for _, r := range rows {
		tests := found.Tests[r.Name]
		if len(tests) > 0 {
			covered++
		}
		if slices.ContainsFunc(tests, runsPrograms) {
			whole++
		}
	}
	b = fmt.Appendf(b, "%d of %d rows have a test.\n", covered, len(rows))
	b = fmt.Appendf(b, "%d have one that runs the programs; those marked units are held by tests of packages alone,\nmaybe among stand-ins for the rest.\n", whole)
	heading := ""
	for _, r := range rows {
		if r.Heading != heading {
			heading = r.Heading
			b = fmt.Appendf(b, "\n## %s\n\n| row | what is asked | by | tests |\n|---|---|---|---|\n", heading)
		}
		tests, by := strings.Join(found.Tests[r.Name], "<br>"), "units"
		switch {
		case slices.ContainsFunc(found.Tests[r.Name], runsPrograms):
			by = "programs"
		case tests == "":
			tests, by = "none", ""
			if reason := missing[r.Name]; reason != "" {
				tests += ": " + cell.Replace(reason)
			}
		}
		b = fmt.Appendf(b, "| %s | %s | %s | %s |\n", r.Name, cell.Replace(r.Wording), by, tests)
	}
	return string(b)
}

// runsPrograms reports whether a test runs the programs as they are installed, and no
// part of them by itself: those below test do.
func runsPrograms(test string) bool { return strings.HasPrefix(test, "test/") }

// cell is a text in a table.
var cell = strings.NewReplacer("|", `\|`, "<", "&lt;")
