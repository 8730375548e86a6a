package worker

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/quota"
	"paddock/execd/internal/sandbox/order"
	"paddock/test/harness"
)

// withProjects returns a directory on a file system that has projects.
func withProjects(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	const least = 300 << 20 // that XFS takes
	if err := harness.MountImage(t, dir, least, "loop", "mkfs.xfs", "-q"); err != nil {
		t.Skipf("this host has no XFS, the machine of make vm has project quotas: %v", err)
	}
	return dir
}

// assign puts an empty directory into a project.
func (r *rig) assign(dir string, id uint32) {
	r.Helper()
	f, err := os.Open(dir)
	r.must(err)
	defer f.Close()
	r.must(quota.Assign(f, id))
}

// project returns the project of a file or directory, and whether what is made in it is in
// that, too.
func (r *rig) project(path string) (id uint32, inherited bool) {
	r.Helper()
	f, err := os.Open(path)
	r.must(err)
	defer f.Close()
	var a [28]byte // struct fsxattr
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), 0x801c581f, uintptr(unsafe.Pointer(&a))); errno != 0 {
		r.Fatal(errno)
	}
	return binary.NativeEndian.Uint32(a[12:]), binary.NativeEndian.Uint32(a[:])&0x200 != 0
}

// What lies on the file system of its destination is renamed, also out of a sandbox that a
// quota limits, and into a directory that another one does: it is put into the project of
// that before. What cannot be is copied. Nothing stays in the project of the sandbox.
func TestProjects(t *testing.T) {
	const ofSandbox, ofPlace = 7, 9
	top := withProjects(t)
	long := "long>" + strings.Repeat("x/", 400) + "x" // takes a block
	for what, to := range map[string]uint32{"no project": 0, "another project": ofPlace} {
		t.Run(what, func(t *testing.T) {
			base := filepath.Join(top, "base")
			if err := os.Mkdir(base, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(base) })
			r := newRigIn(t, base)
			r.assign(r.files(), ofSandbox)
			if to != 0 {
				r.assign(r.home, to)
			}
			renamed := []string{"file", "dir", "dir/a", "dir/deep", "dir/deep/b", "many", "many/x"}
			copied := []string{"odd", "odd/c", "far", "far/d", "alien", "alien/e"}
			r.put(r.files(), "file", "link>file", "dir/a", "dir/deep/b", "dir/link>a", "many/x", "odd/c", "odd/pipe|", "far/d", "far/"+long, "alien/e")
			r.must(os.Link(filepath.Join(r.files(), "many/x"), filepath.Join(r.files(), "many/y")))
			alien := filepath.Join(r.files(), "alien/e")
			r.must(os.Lchown(alien, 0, 0))
			r.must(os.Chmod(alien, 0o644))
			inodes := map[string]uint64{}
			inode := func(path string) uint64 {
				var st unix.Stat_t
				r.must(unix.Lstat(path, &st))
				return st.Ino
			}
			for _, name := range append(renamed, copied...) {
				inodes[name] = inode(filepath.Join(r.files(), name))
			}
			if got := r.ok(send(order.Send{Select: order.All})); got.Skipped != 1 {
				t.Errorf("%+v; want one name to be left out", got)
			}
			r.want(r.home, "file", "link>file", "dir/a", "dir/deep/b", "dir/link>a", "many/x", "many/y=many/x", "odd/c", "far/d", "far/"+long, "alien/e")
			for _, name := range append(renamed, copied...) {
				path := filepath.Join(r.home, name)
				info, err := os.Stat(path)
				r.must(err)
				if id, inherited := r.project(path); id != to || inherited != (to != 0 && info.IsDir()) {
					t.Errorf("%s is in project %d, inherited %v", name, id, inherited)
				}
			}
			for _, name := range renamed {
				if inode(filepath.Join(r.home, name)) != inodes[name] {
					t.Errorf("%s is copied", name)
				}
			}
			for _, name := range copied {
				if inode(filepath.Join(r.home, name)) == inodes[name] {
					t.Errorf("%s is renamed", name)
				}
			}
			if inode(filepath.Join(r.home, "many/x")) != inode(filepath.Join(r.home, "many/y")) {
				t.Error("two names of a file are two files")
			}
		})
	}
}
