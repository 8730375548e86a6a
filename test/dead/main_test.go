package main

import (
	"slices"
	"testing"
)

// What is dead must be in the list with a reason, and what is in the list be dead.
func TestCompare(t *testing.T) {
	dead := map[string]string{"a.F": "a/a.go:1", "a.T.m": "a/a.go:2", "a.T.n": "a/a.go:3", "b.G": "b/b.go:4"}
	list := "# comment\n\na.F: tests see it\na.T.*: later\nb.H: gone\nb.I\n"
	want := []string{
		"test/dead/list: b.I: is there twice, or without a reason",
		"b/b.go:4: no program uses b.G",
		"test/dead/list: b.H: is used, or is gone",
		"test/dead/list: b.I: is used, or is gone",
	}
	if got := compare(dead, list); !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

// The names are found of what nothing calls and of what nothing sets, in the module
// that this is.
func TestUnnamed(t *testing.T) {
	p, err := load([]string{"paddock/execd"})
	if err != nil {
		t.Fatal(err)
	}
	dead := p.unnamed()
	for name, want := range map[string]bool{
		"execd/internal/stage/exit.Ending.Fast": true, "execd/internal/stage.Runner.Journal": false,
		"spool/atomicfile.Inject": true, "spool/atomicfile.Write": false, "spool.Root.ListCorrupt": true, "spool.Root.ListActive": false,
	} {
		if _, ok := dead[name]; ok != want {
			t.Errorf("%s: found %v; want %v", name, ok, want)
		}
	}
}
