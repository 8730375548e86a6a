package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// MountImage mounts a new file system, of a size in bytes that the disk does not have to
// have, on a directory, until the end of the test. Mkfs makes it in the file that is its
// last argument. The error says what this host cannot do.
func MountImage(t *testing.T, dir string, size int64, options string, mkfs ...string) error {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size)); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{append(mkfs, image), {"mount", "-o", options, image, dir}} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", command[0], err, out)
		}
	}
	t.Cleanup(func() {
		if err := WaitFor(Patience, "the unmount of "+dir, func() (bool, error) {
			err := unix.Unmount(dir, 0)
			return err == nil, err
		}); err != nil {
			t.Error(err)
		}
	})
	return nil
}
