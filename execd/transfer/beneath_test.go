package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// With openat2 and without it the same is opened.
func TestOpenBeneath(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o700), os.WriteFile(filepath.Join(dir, "a/b/file"), nil, 0o600),
		os.Symlink("b", filepath.Join(dir, "a/link")), os.Symlink("/", filepath.Join(dir, "root")),
	); err != nil {
		t.Fatal(err)
	}
	top, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(top)
	for _, parts := range []bool{false, true} {
		old.Store(parts)
		for name, want := range map[string]error{
			"a": nil, "a/b/file": nil, "a/b/c": nil, ".": nil,
			"a/link": unix.ELOOP, "a/link/file": unix.ELOOP, "root/etc": unix.ELOOP,
			"..": unix.EXDEV, "a/../..": unix.EXDEV, "/etc": unix.EXDEV,
			"a/gone": unix.ENOENT, "a/b/file/x": unix.ENOTDIR,
		} {
			fd, err := openBeneath(top, name, unix.O_RDONLY, 0, true)
			if err == nil {
				unix.Close(fd)
			}
			// Without openat2 a link on the way is no directory.
			if !errors.Is(err, want) && (!errors.Is(want, unix.ELOOP) || !errors.Is(err, unix.ENOTDIR)) {
				t.Errorf("by parts %v: %q: %v; want %v", parts, name, err, want)
			}
		}
	}
	old.Store(false)
}
