package api

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// found is a file of somebody's.
type found struct {
	mode     fs.FileMode
	uid, gid uint32
}

func (f found) Name() string       { return "f" }
func (f found) Size() int64        { return 0 }
func (f found) Mode() fs.FileMode  { return f.mode }
func (f found) ModTime() time.Time { return time.Time{} }
func (f found) IsDir() bool        { return f.mode.IsDir() }
func (f found) Sys() any           { return &syscall.Stat_t{Uid: f.uid, Gid: f.gid} }

func TestUntrusted(t *testing.T) {
	for _, tt := range []struct {
		f    found
		uid  int
		want string
	}{
		{found{0o644, 0, 0}, 0, ""},
		{found{0o644, 0, 50}, 1000, ""},
		{found{0o755, 1000, 50}, 1000, ""},
		{found{0o664, 1000, 1000}, 1000, ""}, // a group of his own
		{found{0o664, 1000, 50}, 1000, "may be written by others (mode 0664)"},
		{found{0o664, 0, 0}, 0, "may be written by others (mode 0664)"},
		{found{0o664, 0, 1000}, 1000, "may be written by others (mode 0664)"},
		{found{0o646, 1000, 1000}, 1000, "may be written by others (mode 0646)"},
		{found{fs.ModeDir | fs.ModeSticky | 0o777, 0, 0}, 1000, "may be written by others (mode 0777)"},
		{found{0o600, 1001, 1000}, 1000, "belongs to user 1001"},
		{found{0o600, 1000, 0}, 0, "belongs to user 1000"},
	} {
		got := ""
		if err := Untrusted(tt.f, tt.uid); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("Untrusted(%+v, %d) = %q; want %q", tt.f, tt.uid, got, tt.want)
		}
	}
}

func TestPrepare(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pd")
	p := DevPlaces(dir)
	if err := p.Prepare(false); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("made with %v, %v; want mode 0700", info.Mode(), err)
	}
	if err := os.Chmod(dir, 0o757); err != nil {
		t.Fatal(err)
	}
	if err := p.Prepare(false); err == nil || !strings.Contains(err.Error(), "cannot use directory "+dir+": may be written by others (mode 0757)") {
		t.Errorf("a directory that others can write: %v", err)
	}
}
