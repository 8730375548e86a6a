package conf

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// realFiles are a configuration that qconf of Grid Engine 8.1.9 printed, on a host
// gehost. test/interop has a cluster print it.
const realFiles = "testdata/8.1.9"

var realDir = flag.String("real", realFiles, "the configuration of TestShow, as qconf printed it")

// TestShow holds what we print against what Grid Engine printed of the same.
func TestShow(t *testing.T) {
	c, err := load(*realDir)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for kind, place := range places {
		kinds[place] = kind
	}
	shown := map[string]int{}
	err = filepath.WalkDir(*realDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(*realDir, path)
		place, name, _ := strings.Cut(rel, "/")
		got, err := c.Show(kinds[place], name)
		if diff := cmp.Diff(string(want), got); err != nil || diff != "" {
			t.Errorf("Show(%s, %s): %v (-Grid Engine +ours):\n%s", kinds[place], name, err, diff)
		}
		shown[kinds[place]]++
		return nil
	})
	if err != nil || len(shown) != len(places)-2 { // it has no operators and no projects
		t.Errorf("shown: %v, %v", shown, err)
	}
}

// What Grid Engine prints of a queue on a host has two oddities: qtype ends with
// a blank, and a subordinate has its numbers four times.
func TestShowInstance(t *testing.T) {
	c, err := load(realFiles)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/instance")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer("BATCH ", "BATCH", "low.q=2=0=0=0", "low.q=2", "hostname              gehost", "hostname              gehost.example.org").Replace(string(text))
	got, err := c.Show("queue", "odd.q@gehost")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-Grid Engine +ours):\n%s", err, diff)
	}
}

func TestShowUnknown(t *testing.T) {
	c, err := load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ kind, name, want string }{
		{"queue", "x", `No cluster queue or queue instance matches the phrase "x"`},
		{"queue", "all.q@elsewhere", `No cluster queue or queue instance matches the phrase "all.q@elsewhere"`},
		{"pe", "x", "x is not a parallel environment"},
		{"ckpt", "x", "x is not a checkpointing interface definition"},
		{"userlist", "x", `denied: access list "x" does not exist`},
		{"hostgroup", "@x", `Host group "@x" does not exist`},
		{"host", "x", `can't resolve hostname "x"`},
		{"conf", "x", `can't resolve hostname "x": can't resolve host name`},
		{"calendar", "x", `"calendar" is no kind of configuration`},
	} {
		if text, err := c.Show(tt.kind, tt.name); err == nil || err.Error() != tt.want {
			t.Errorf("Show(%s, %s) = %q, %v; want %q", tt.kind, tt.name, text, err, tt.want)
		}
	}
}

// TestShowDefaults reads what is shown without any file.
func TestShowDefaults(t *testing.T) {
	c, err := load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for kind, name := range map[string]string{"queue": "all.q", "pe": "smp", "conf": "", "sched": "", "complex": "", "host": "gehost.example.org"} {
		text, err := c.Show(kind, name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, filepath.Join(places[kind], name), text)
	}
	again, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	// Places differ.
	diff := cmp.Diff(c, again, cmp.AllowUnexported(Config{}, line{}), cmpopts.IgnoreTypes([]file{}, &kept{}),
		cmpopts.IgnoreFields(Config{}, "dir"), cmpopts.IgnoreFields(line{}, "number"))
	if diff != "" {
		t.Errorf("(-without files +with what was shown):\n%s", diff)
	}
}

func TestList(t *testing.T) {
	c, err := load(realFiles)
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]string{
		"queue": "low.q odd.q", "pe": "odd odd2", "ckpt": "odd odd2", "userlist": "odddept oddothers oddusers",
		"hostgroup": "@odd @oddnone @oddsub", "host": "gehost", "manager": "root sgeadmin", "operator": "", "conf": "", "nothing": "",
	} {
		if got := strings.Join(c.List(kind), " "); got != want {
			t.Errorf("List(%s) = %q; want %q", kind, got, want)
		}
	}
	if n := len(c.List("complex")); n != 61 {
		t.Errorf("List(complex) has %d names; want 61", n)
	}
}
