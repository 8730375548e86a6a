package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
)

// What another could have written, or led us to, is not read.
func TestReadKept(t *testing.T) {
	tests := []struct {
		name   string
		change func(dir, path string) error
		reads  bool
	}{
		{"as it is kept", func(string, string) error { return nil }, true},
		{"others write it", func(_, path string) error { return os.Chmod(path, 0o602) }, false},
		{"others write its directory", func(dir, _ string) error { return os.Chmod(dir, 0o1777) }, false},
		{"a link", func(_, path string) error {
			return errors.Join(os.Rename(path, path+"_"), os.Symlink(path+"_", path))
		}, false},
		{"a pipe", func(_, path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) }, false},
		{"a directory", func(_, path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, false},
	}
	if os.Geteuid() == 0 {
		tests = append(tests, tests[0], tests[0])
		n := len(tests)
		tests[n-2].name, tests[n-2].reads = "another's", false
		tests[n-2].change = func(_, path string) error { return os.Chown(path, 12345, 0) }
		tests[n-1].name, tests[n-1].reads = "in another's directory", false
		tests[n-1].change = func(dir, _ string) error { return os.Chown(dir, 12345, 0) }
	} else {
		t.Log("not root: files of another are not tested")
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			o := Options{Places: api.DevPlaces(dir)}
			path := keptPath(o)
			if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(path, []byte("{}"), 0o600), tt.change(dir, path)); err != nil {
				t.Fatal(err)
			}
			data, err := readKept(o)
			if tt.reads && (err != nil || string(data) != "{}") || !tt.reads && (err == nil || errors.Is(err, fs.ErrNotExist)) {
				t.Errorf("readKept = %q, %v", data, err)
			}
		})
	}
}
