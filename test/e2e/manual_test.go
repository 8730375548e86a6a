package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/test/harness"
)

// TestManualSandbox types the sessions of sandbox(7) and compares what comes out with what
// stands there.
func TestManualSandbox(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(harness.Root(), "man/man7/sandbox.7"))
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	var want []string
	for _, block := range strings.Split(string(page), "\n.Bd -literal")[1:] {
		_, block, _ = strings.Cut(block, "\n")
		block, _, _ = strings.Cut(block, ".Ed\n")
		if !strings.HasPrefix(block, "$ ") {
			continue // no session
		}
		for line := range strings.Lines(block) {
			typed, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				typed, ok = strings.CutPrefix(line, "> ")
			}
			if ok {
				script.WriteString(typed)
				continue
			}
			want = append(want, strings.TrimSuffix(line, "\n"))
		}
	}
	dir := place(t, "manual")
	d, err := harness.Start(harness.Options{Bin: bin, Dir: filepath.Join(dir, "pd"), Env: plainEnv(dir)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	work := filepath.Join(dir, "ann")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir, cmd.Env = work, append(plainEnv(dir), "PADDOCK_DIR="+d.Dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	got := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(out), work, "/home/ann")), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sandbox(7) shows something else (-page +got):\n%s", diff)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}
