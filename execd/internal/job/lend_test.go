package job

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A file stays root's where the user's group is his alone or the file system has
// lists, and is his elsewhere. What Lent says of it is so, before and after somebody
// has taken the rights away.
func TestLend(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it gives files away")
	}
	plain := t.TempDir()
	if err := unix.Mount("ramfs", plain, "ramfs", 0, ""); err != nil {
		t.Skipf("cannot mount a ramfs: %v", err)
	}
	defer func() {
		if err := unix.Unmount(plain, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	for _, tt := range []struct {
		what, dir, group string
		uid              int
		ours             bool
		owner, gid       uint32
		mode             uint32
	}{
		{"own group", t.TempDir(), "ann", 54321, true, 0, 54322, 0o550},
		{"own group, no lists", plain, "ann", 54321, true, 0, 54322, 0o550},
		{"shared group", t.TempDir(), "staff", 54321, true, 0, 0, 0o550},
		{"shared group, no lists", plain, "staff", 54321, false, 54321, 54322, 0o500},
		{"root", t.TempDir(), "root", 0, true, 0, 54322, 0o500},
	} {
		path := filepath.Join(tt.dir, tt.group)
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, ScriptMode)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		ours, err := Lend(f, tt.uid, 54322, "ann", tt.group, ScriptMode)
		if err != nil || ours != tt.ours {
			t.Errorf("%s: %v, %v; want %v", tt.what, ours, err, tt.ours)
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Uid != tt.owner || st.Gid != tt.gid || st.Mode&0o7777 != tt.mode {
			t.Errorf("%s: owner %d, group %d, mode %o, %v; want %d, %d, %o", tt.what, st.Uid, st.Gid, st.Mode&0o7777, err, tt.owner, tt.gid, tt.mode)
		}
		if owner, mode := Lent(path, tt.uid, "ann", tt.group, ScriptMode); owner != int(tt.owner) || uint32(mode) != tt.mode {
			t.Errorf("%s: Lent says %d, %o", tt.what, owner, mode)
		}
		if tt.what != "shared group" {
			continue
		}
		if err := f.Chmod(0o500); err != nil { // which empties the list
			t.Fatal(err)
		}
		if owner, mode := Lent(path, tt.uid, "ann", tt.group, ScriptMode); owner != tt.uid || mode != ScriptMode {
			t.Errorf("%s, taken away: Lent says %d, %o", tt.what, owner, mode)
		}
	}
}
