package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/test/harness"
)

// TestReadme types the five minutes of the README and compares what comes out
// with what stands there.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(harness.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), "## Five minutes")
	if !ok {
		t.Fatal("the README has no five minutes")
	}
	_, block, _ = strings.Cut(block, "```\n")
	block, _, _ = strings.Cut(block, "```")

	dir := place(t, "readme")
	var script bytes.Buffer
	var want []string
	for line := range strings.Lines(block) {
		command, typed := strings.CutPrefix(line, "$ ")
		if !typed {
			want = append(want, strings.TrimSpace(line))
			continue
		}
		command = strings.ReplaceAll(command, "make build && export PATH=$PWD/bin:$PATH", "export")
		command = strings.ReplaceAll(command, "/tmp/pd", filepath.Join(dir, "pd"))
		script.WriteString(command)
		if strings.HasPrefix(command, "execd ") {
			// Nobody types so fast.
			script.WriteString("until [ -S $PADDOCK_DIR/execd.sock ]; do kill -0 $!; sleep 0.01; done\n")
		}
	}
	script.WriteString("wait\n")
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = plainEnv(dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	var got []string
	for line := range strings.Lines(stdout.String()) {
		got = append(got, strings.TrimSpace(line))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the README shows something else (-README +got):\n%s\n%s", diff, stderr.String())
	}
}
