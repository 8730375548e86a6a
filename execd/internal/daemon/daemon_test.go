package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

// The other programs are where `make install` puts them, or all beside execd.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		find                     func(string) string
		execd, name, there, want string
	}{
		{CommandDir, "sbin", "qsub", "bin", "bin"},
		{CommandDir, "build", "qsub", "build", "build"},
		{CommandDir, "sbin", "qsub", "elsewhere", "sbin"},
		{helperDir, "sbin", "shepherd", "lib/paddock", "lib/paddock"},
		{helperDir, "build", "shepherd", "build", "build"},
		{helperDir, "sbin", "shepherd", "elsewhere", "lib/paddock"},
	} {
		base := t.TempDir()
		program := filepath.Join(base, test.there, test.name)
		if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(program, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if got := test.find(filepath.Join(base, test.execd)); got != filepath.Join(base, test.want) {
			t.Errorf("execd in %s, %s in %s: got %s", test.execd, test.name, test.there, got)
		}
	}
}
