package conf

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What was kept says what the files said, of each kind, and of all files of the knobs.
func TestOpenKept(t *testing.T) {
	dir, more := t.TempDir(), t.TempDir()
	write(t, dir, "sge_conf", "min_uid 200\n")
	write(t, dir, "sched_conf", "maxujobs 7\n")
	write(t, dir, "queues/all.q", "slots 2,[@big=4]\nhostlist gehost\npe_list mpi\nckpt_list ck\nuser_lists staff\n")
	write(t, dir, "pes/mpi", "slots 3\n")
	write(t, dir, "ckpts/ck", "interface userdefined\n")
	write(t, dir, "userlists/staff", "entries ann\n")
	write(t, dir, "projects/alpha", "acl staff\n")
	write(t, dir, "hosts/gehost", "complex_values lic=3\n")
	write(t, dir, "hostgroups/@big", "hostlist gehost\n")
	write(t, dir, "complexes", "lic l INT <= YES YES 0 0\n")
	write(t, dir, "managers", "alice\n")
	write(t, dir, "operators", "bob\n")
	write(t, dir, "hooks.conf", "include : other.conf\nLOCAL_CONFIG_DIR = "+more+"\n")
	write(t, dir, "other.conf", "KEPT_A = 1\n")
	write(t, more, "10-b", "KEPT_B = 2\n")
	before := open(t, dir)
	data := before.Current().Kept()
	if again := open(t, dir).Current().Kept(); !bytes.Equal(again, data) {
		t.Errorf("the same files make other bytes:\n%s\n%s", data, again)
	}
	if err := os.RemoveAll(more); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sched_conf", "queues", "pes", "ckpts", "userlists", "projects", "hosts", "hostgroups", "complexes", "managers", "operators", "other.conf"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "sge_conf", "min_uid many\n")
	write(t, dir, "queues/new.q", "slots 2\n")
	o := Options{Dir: dir, Tmpdir: "/tmp", Host: "gehost"}
	l, err := OpenKept(o, data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string(nil), changes(before.Current(), l.Current())); diff != "" {
		t.Errorf("OpenKept (-want +got):\n%s", diff)
	}
	if l.Current().Kept() != nil || len(l.Mistakes()) == 0 {
		t.Errorf("Kept %q, mistakes %q: want none, and those of the files", l.Current().Kept(), l.Mistakes())
	}
	if _, err := l.Reload(); err == nil {
		t.Error("Reload: no error for the files as they are")
	}
	// What does not say it is refused: damage, and what this execd takes for a mistake.
	for _, text := range []string{"", "null x", `{"Files":{"` + filepath.Join(dir, "sge_conf") + `":"eA=="}}`, `{"Files":1}`} {
		if _, err := OpenKept(o, []byte(text)); err == nil {
			t.Errorf("OpenKept(%q): no error", text)
		}
	}
	// Mended: the files count, and are kept.
	write(t, dir, "sge_conf", "min_uid 300\n")
	if err := os.RemoveAll(filepath.Join(dir, "hooks.conf")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Reload(); err != nil || l.Current().Global.MinUID != 300 || l.Current().Kept() == nil || l.Mistakes() != nil {
		t.Errorf("Reload of mended files: %v, min_uid %d", err, l.Current().Global.MinUID)
	}
}
