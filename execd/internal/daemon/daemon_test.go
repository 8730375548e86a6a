package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

// The commands are beside execd, or in bin beside its directory.
func TestCommandDir(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ execd, qsub, want string }{
		{"sbin", "bin", "bin"},
		{"build", "build", "build"},
		{"sbin", "elsewhere", "sbin"},
	} {
		base := t.TempDir()
		qsub := filepath.Join(base, test.qsub, "qsub")
		if err := os.Mkdir(filepath.Dir(qsub), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(qsub, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if got := commandDir(filepath.Join(base, test.execd)); got != filepath.Join(base, test.want) {
			t.Errorf("execd in %s, qsub in %s: got %s", test.execd, test.qsub, got)
		}
	}
}
