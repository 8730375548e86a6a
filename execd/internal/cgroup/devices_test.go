package cgroup

import (
	"io"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A device is opened as far as the run may, by whatever node.
func TestKernelDevices(t *testing.T) { eachTier(t, testKernelDevices) }

func testKernelDevices(t *testing.T, tree *Tree) {
	need(t, tree, devices)
	dir := t.TempDir()
	for name, minor := range map[string]uint32{"urandom": 9, "zero": 5, "full": 7, "random": 8} {
		if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))); err != nil {
			t.Skip("needs the right to make device nodes: ", err)
		}
	}
	const script = `cd "$1" || exit
for node in urandom zero full random; do
	(: <$node) 2>/dev/null && echo $node read
	(: >$node) 2>/dev/null && echo $node write
done
(: <>zero) 2>/dev/null && echo zero both
mknod other c 1 5 2>/dev/null && (: <other) 2>/dev/null && echo other read
(: <>full) 2>/dev/null && echo full both
`
	char := func(minor uint32, read, write bool) Device {
		return Device{Major: 1, Minor: minor, Read: read, Write: write}
	}
	limits := []Device{char(5, false, false), char(9, true, false), char(7, true, true), {Block: true, Major: 1, Minor: 8}}
	for _, tt := range []struct {
		name   string
		limits []Device
		want   string
	}{
		{"limited", limits, "urandom read\nfull read\nfull write\nrandom read\nrandom write\nfull both\n"},
		{"writes", []Device{char(9, false, true)}, "urandom write\nzero read\nzero write\nfull read\nfull write\nrandom read\nrandom write\nzero both\nother read\nfull both\n"},
	} {
		g := mustMake(t, tree, Limits{Devices: tt.limits})
		cmd, out := start(t, g, "/bin/sh", "-c", script, "sh", dir)
		text, err := io.ReadAll(out)
		if err != nil || string(text) != tt.want {
			t.Errorf("%s: in the group a process can\n%swant\n%s%v", tt.name, text, tt.want, err)
		}
		_ = cmd.Wait()
		if err := tree.Remove(g); err != nil {
			t.Error(err)
		}
	}
}
