package spool_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"paddock/spool"
)

// What the shepherd links is paid by every job.
func TestDependencies(t *testing.T) {
	for _, pkg := range []string{"paddock/spool", "paddock/spool/atomicfile"} {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}} {{.Standard}}", pkg).CombinedOutput()
		if err != nil {
			t.Fatalf("go list -deps %s: %v\n%s", pkg, err, out)
		}
		for line := range strings.Lines(string(out)) {
			dep, std, _ := strings.Cut(strings.TrimSpace(line), " ")
			if std != "true" {
				switch dep {
				case "paddock/spool", "paddock/spool/atomicfile", "golang.org/x/sys/unix":
				default:
					t.Errorf("%s imports %s: only the standard library and x/sys/unix", pkg, dep)
				}
			}
			first, _, _ := strings.Cut(dep, "/")
			switch {
			case first == "net", first == "crypto", first == "regexp", first == "text", first == "log", first == "testing",
				dep == "os/exec", dep == "os/user", dep == "os/signal", dep == "encoding/json", dep == "fmt", dep == "context":
				t.Errorf("%s imports %s: start-up time and memory of every job", pkg, dep)
			}
		}
	}
}

// The names in spool(5) are those of the code.
func TestManualPage(t *testing.T) {
	page, err := os.ReadFile("../man/man5/spool.5")
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	for word := range strings.FieldsSeq(string(page)) {
		words[strings.Trim(word, ",.;:()/")] = true
	}
	for _, f := range spool.Files {
		if !words[strings.Trim(f.Name, ".")] {
			t.Errorf("spool(5) does not name the file %s", f.Name)
		}
	}
	for _, p := range spool.Places {
		if !words[p.Name] {
			t.Errorf("spool(5) does not name the directory %s", p.Name)
		}
	}
}

func TestTables(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range spool.Files {
		if f.Name == "" || f.Writer == "" || f.Reader == "" || f.When == "" || f.Mode == 0 || seen[f.Name] {
			t.Errorf("bad row of Files: %+v", f)
		}
		seen[f.Name] = true
	}
	for _, p := range spool.Places {
		if p.Name == "" || p.Means == "" || p.Mode == 0 || seen[p.Name] {
			t.Errorf("bad row of Places: %+v", p)
		}
		seen[p.Name] = true
	}
	// A constant that is in neither table would be a file nobody knows of.
	source, err := os.ReadFile("names.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(source)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || !strings.HasPrefix(name, "File") && !strings.HasPrefix(name, "Dir") {
			continue
		}
		n++
		if value = strings.Trim(value, ` "`); !seen[value] {
			t.Errorf("%s is in no table", value)
		}
	}
	if n != len(seen) {
		t.Errorf("%d names, %d rows", n, len(seen))
	}
}
