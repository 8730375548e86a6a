package quota

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/test/harness"
)

// TestQuota needs a file system with project quotas, at PADDOCK_QUOTA_DIR: the
// machine of test/vm has one.
func TestQuota(t *testing.T) {
	base := os.Getenv("PADDOCK_QUOTA_DIR")
	if base == "" {
		t.Skip("needs root and a file system mounted with prjquota at PADDOCK_QUOTA_DIR (make vm has one)")
	}
	if err := Available(base); err != nil {
		t.Fatal(err)
	}
	path, err := os.MkdirTemp(base, "") //nolint:usetesting // must be in that file system
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(path) })
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	const id, limit = 4242, 1 << 20
	if err := errors.Join(Assign(dir, id), Limit(dir, id, limit)); err != nil {
		t.Fatal(err)
	}
	sub := filepath.Join(path, "a", "b")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	// As anybody but root, whom ext4 does not hold: see CAP_SYS_RESOURCE. The
	// thread ends with the test.
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	caps[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	if err := unix.Capset(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	much, err := os.Create(filepath.Join(sub, "much"))
	if err != nil {
		t.Fatal(err)
	}
	// Piece by piece: XFS takes a write as a whole or not at all.
	for n := 0; n < 2*limit && err == nil; n += limit / 16 {
		_, err = much.Write(make([]byte, limit/16))
	}
	much.Close()
	if !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing twice the limit: %v; want EDQUOT", err)
	}
	used, err := Used(dir, id)
	if err != nil || used < limit/2 || used > limit {
		t.Errorf("Used = %d, %v; want up to %d", used, err, limit)
	}
	if err := os.RemoveAll(filepath.Join(path, "a")); err != nil {
		t.Fatal(err)
	}
	// XFS counts what is removed a little later.
	err = harness.WaitFor(harness.Patience, "that nothing is used", func() (bool, error) {
		used, err := Used(dir, id)
		return used <= limit/8, err
	})
	if err != nil {
		t.Error(err)
	}
	if err := Limit(dir, id, 0); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(path, "much"), bytes.Repeat([]byte("x"), 2*limit), 0o644); err != nil {
		t.Errorf("without a limit: %v", err)
	}
}

func TestAvailable(t *testing.T) {
	if err := Available("/proc"); err == nil {
		t.Error("/proc has project quotas")
	}
	if err := Available("/nowhere"); err == nil {
		t.Error("what is not there has project quotas")
	}
}
