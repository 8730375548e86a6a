package conf

import (
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
