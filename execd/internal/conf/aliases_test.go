package conf

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestAliases(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "# our hosts\nnode1.site.org node1-ib node1-eth,node1-old\nnode2 node2-ib\n"
	if err := os.WriteFile(filepath.Join(dir, "host_aliases"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Options{Dir: dir, Tmpdir: "/tmp", Host: "node1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"node1": true, "NODE1": true, "node1.site.org": true, "node1-ib": true, "Node1-Eth": true, "node1-old": true,
		"localhost": true, "127.0.0.1": true, "::1": true, "127.1.2.3": true,
		"node2": false, "node2-ib": false, "node1-": false, "10.0.0.1": false, "": false, ".": false,
	} {
		if got := c.IsHere(name); got != want {
			t.Errorf("IsHere(%q) = %t; want %t", name, got, want)
		}
	}
	if len(c.Warnings) > 0 {
		t.Errorf("warnings %v", c.Warnings)
	}
}

// FuzzAliases reads any text for host_aliases: whatever it says, this host has
// its own name, and no name that does not stand there.
func FuzzAliases(f *testing.F) {
	f.Add([]byte("node1 a b,c\nnode2 d\n"))
	f.Add([]byte("a node1\\\n b\n#node1 x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l := newLoader(Options{Dir: "/none", Host: "node1", instead: map[string][]byte{"/none/host_aliases": text}})
		l.aliases()
		if !l.conf.IsHere("node1") || l.conf.IsHere("\x00") {
			t.Errorf("names %q", l.conf.Aliases)
		}
		for _, name := range l.conf.Aliases {
			if name == "" || !bytes.Contains(text, []byte(name)) {
				t.Errorf("name %q does not stand in %q", name, text)
			}
		}
	})
}
