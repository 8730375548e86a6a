package parent

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A tail is read with the user's rights: his own files and what he may read,
// nothing else, and no waiting on what is no file.
func TestTailAsUser(t *testing.T) {
	needRoot(t, "becomes another user")
	base, err := os.MkdirTemp("", "tail") //nolint:usetesting // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	if err := os.Chmod(base, 0o711); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 100<<10) + "the end\n"
	for name, text := range map[string]string{"own": "one\ntwo\n", "long": long, "secret": "root's\n"} {
		if err := os.WriteFile(base+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(base+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"own", "long", "fifo"} {
		if err := os.Chown(base+"/"+name, 54321, 54322); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link": "own", "steal": "secret"} {
		if err := os.Symlink(to, base+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, bytes string
		code        int
		want        string
	}{
		{"own", "100", 0, "one\ntwo\n"},
		{"own", "4", 0, "two\n"},
		{"own", "0", 0, ""},
		{"own", "-5", 0, ""},
		{"link", "100", 0, "one\ntwo\n"},
		{"long", "8", 0, "the end\n"},
		{"long", "99999999", 0, long[len(long)-64<<10:]},
		{"secret", "100", 1, "permission denied"},
		{"steal", "100", 1, "permission denied"},
		{"fifo", "100", 1, "not a regular file"},
		{"missing", "100", 1, "no such file"},
		{"../..", "100", 1, "not a regular file"},
	} {
		cmd := exec.CommandContext(t.Context(), binary, "-as-user", "54321", "54322", "54322,54323", "-tail", c.bytes, base+"/"+c.name)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, _ := cmd.Output()
		code, got := cmd.ProcessState.ExitCode(), string(out)
		if code != c.code || c.code == 0 && got != c.want || c.code != 0 && (got != "" || !strings.Contains(stderr.String(), c.want)) {
			t.Errorf("-tail %s %q: exit code %d, %d bytes, %q; want %d, %q", c.bytes, c.name, code, len(got), stderr.String(), c.code, c.want[:min(40, len(c.want))])
		}
	}
}
