package conf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/internal/conf/knob"
)

// TestKnobs reads hooks.conf with what belongs to it.
// TestAllPartitionable: every queue of the host may be one slot.
func TestAllPartitionable(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "hooks.conf", "use FEATURE : PartitionableSlot\n")
	write(t, dir, "queues/all.q", "qname all.q\nslots 2\n")
	write(t, dir, "queues/b.q", "qname b.q\nslots 3\n")
	c, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range c.Queues {
		if !q.Partitionable {
			t.Errorf("%s is not", q.Name)
		}
	}
	if len(c.Queues) != 2 || len(c.Warnings) > 0 {
		t.Errorf("%d queues, warnings %v", len(c.Queues), c.Warnings)
	}
}

func TestKnobs(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "hooks.conf", "LOCAL_CONFIG_DIR = frag\nSTART = $(X) > 1\nNUM_SLOTS = 3\nPARTITIONABLE_QUEUES = all.q, al.q\n")
	write(t, dir, "frag/b", "X = 2\n")
	write(t, dir, "frag/a", "X = 1\n")
	for _, name := range []string{".c", "c~", "c.rpmsave", "c.dpkg-old"} {
		write(t, dir, "frag/"+name, "X = 9\n")
	}
	write(t, dir, "hook.conf", "")
	c, err := Load(Options{Dir: dir, Tmpdir: "/tmp", Host: "gehost", Environ: []string{"_CONDOR_RANK=7"}})
	if err != nil {
		t.Fatal(err)
	}
	var warnings []string
	for _, w := range c.Warnings {
		warnings = append(warnings, strings.TrimPrefix(w.Error(), dir+"/"))
	}
	want := []string{
		`hook.conf: not read by anything, did you mean "hooks.conf"?`, "hooks.conf:3: NUM_SLOTS: has no effect here: slots are those of the queues",
		`hooks.conf:4: PARTITIONABLE_QUEUES: there is no queue "al.q"`,
	}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	text := ""
	for _, pattern := range []string{"st[a]rt", "Rank", "kill"} {
		shown, err := c.Show("knob", pattern)
		if err != nil {
			t.Fatal(err)
		}
		text += shown
	}
	shown := `START = 2 > 1
 # written: $(X) > 1
 # from: DIR/hooks.conf:2
RANK = 7
 # from: environment _CONDOR_RANK
KILL = false
 # from: default
`
	if diff := cmp.Diff(shown, strings.ReplaceAll(text, dir, "DIR")); diff != "" {
		t.Errorf("shown (-want +got):\n%s", diff)
	}
	if _, err := c.Show("knob", "[x"); err == nil || err.Error() != `"[x" is no pattern` {
		t.Errorf("a bad pattern: %v", err)
	}
	all, err := c.Show("knob", "")
	if err != nil || strings.Count(all, " # from: default\n") < len(knob.Table())/2 {
		t.Errorf("all knobs: %v\n%s", err, all)
	}
}

// TestNoKnobs reads a configuration without hooks.conf.
func TestNoKnobs(t *testing.T) {
	c, err := Load(Options{Dir: t.TempDir(), Tmpdir: "/tmp", Host: "gehost"})
	if err != nil || len(c.Knobs.Names()) != 0 || c.Knobs.Get("START").Value != "true" {
		t.Errorf("%v, %v", c, err)
	}
}

// TestShownAgain prints a value of several lines so that it can be read.
func TestShownAgain(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "hooks.conf", "A @=x\none\n@end\n two\n@END_\n@x\n")
	show := func() string {
		c, err := Load(Options{Dir: dir, Tmpdir: "/tmp", Host: "gehost"})
		if err != nil {
			t.Fatal(err)
		}
		text, err := c.Show("knob", "A")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first := show()
	if !strings.HasPrefix(first, "A @=end__\none\n@end\n two\n@END_\n@end__\n # from: ") {
		t.Errorf("shown as %q", first)
	}
	write(t, dir, "hooks.conf", first)
	if again := show(); again != first {
		t.Errorf("read again it is %q", again)
	}
}

// TestKnobsTrusted has files and directories that others can write: they name
// programs.
func TestKnobsTrusted(t *testing.T) {
	for name, c := range map[string]struct{ path, want string }{
		"the file":     {"etc/hooks.conf", "hooks.conf: may be written by others (mode 0666): it decides what is run as the user of execd"},
		"a fragment":   {"etc/frag/a", "frag/a: may be written by others (mode 0666)"},
		"its place":    {"etc/frag", "frag: may be written by others (mode 0777)"},
		"an included":  {"far/b", "far/b: may be written by others (mode 0666)"},
		"that's place": {"far", "far: may be written by others (mode 0777)"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "etc/hooks.conf", "LOCAL_CONFIG_DIR = frag\ninclude : ../far/b\n")
			write(t, dir, "etc/frag/a", "A = 1\n")
			write(t, dir, "far/b", "B = 1\n")
			for _, d := range []string{"etc", "etc/frag", "far"} {
				if err := os.Chmod(filepath.Join(dir, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			o := Options{Dir: filepath.Join(dir, "etc"), Tmpdir: "/tmp", Host: "gehost"}
			if _, err := Load(o); err != nil {
				t.Fatalf("before: %v", err)
			}
			path := filepath.Join(dir, c.path)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, info.Mode().Perm()|0o666); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Load: %v, want %q", err, c.want)
			}
		})
	}
	// A pipe in its place blocks nobody.
	dir := t.TempDir()
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "hooks.conf")); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(Options{Dir: dir, Tmpdir: "/tmp", Host: "gehost"}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a device: %v", err)
	}
}

// TestKnobsReload changes knobs: each is told.
func TestKnobsReload(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	write(t, dir, "hooks.conf", "X = 1\nSTART = $(X)\n")
	changed, err := l.Reload()
	if diff := cmp.Diff([]string{"hooks.conf: START default -> 1", "hooks.conf: X default -> 1"}, changed); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	write(t, dir, "hooks.conf", "X = 2\nSTART = $(X)\n")
	changed, err = l.Reload()
	if diff := cmp.Diff([]string{"hooks.conf: START 1 -> 2", "hooks.conf: X 1 -> 2"}, changed); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	write(t, dir, "hooks.conf", "START = (\n")
	if _, err = l.Reload(); err == nil || l.Current().Knobs.Get("START").Value != "2" {
		t.Errorf("a mistake: %v, START is %q", err, l.Current().Knobs.Get("START").Value)
	}
}
