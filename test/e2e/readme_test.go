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
	parallel(t)
	typeReadme(t, "## Five minutes")
}

// TestReadmeFirst types what the README has for readers who know no batch system.
func TestReadmeFirst(t *testing.T) {
	parallel(t)
	typeReadme(t, "## The first ten minutes")
}

// TestReadmeHooks types what the README has of slots that fetch their work.
func TestReadmeHooks(t *testing.T) {
	parallel(t)
	typeReadme(t, "## Slots, claims and hooks")
}

// typeReadme types the first block of a section, where the binaries are built and
// PADDOCK_DIR is set.
func typeReadme(t *testing.T, section string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), section)
	if !ok {
		t.Fatalf("the README has no section %q", section)
	}
	_, block, _ = strings.Cut(block, "```\n")
	block, _, _ = strings.Cut(block, "```")

	dir := place(t, "readme")
	if err := os.Mkdir(filepath.Join(dir, "pd"), 0o700); err != nil {
		t.Fatal(err)
	}
	var script bytes.Buffer
	var want []string
	for line := range strings.Lines(block) {
		if n := len(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("a line of %d columns does not fit into a terminal: %s", n, line)
		}
		command, typed := strings.CutPrefix(line, "$ ")
		if !typed {
			want = append(want, strings.TrimSpace(line))
			continue
		}
		command = strings.ReplaceAll(command, "make build && export PATH=$PWD/bin:$PATH", "export PADDOCK_DIR")
		// One that root starts would be the host's, and a user may have his own already.
		command = strings.ReplaceAll(command, "execd >", "execd -dev $PADDOCK_DIR >")
		command = strings.ReplaceAll(command, "$(mktemp -d)", filepath.Join(dir, "pd"))
		command = strings.ReplaceAll(command, " packaging/", " "+filepath.Join(harness.Root(), "packaging")+"/")
		script.WriteString(command)
		if strings.HasPrefix(command, "execd ") && strings.HasSuffix(command, " &\n") {
			// Nobody types so fast. The socket is there before anybody listens.
			script.WriteString("until qstat >/dev/null 2>&1; do kill -0 $!; sleep 0.4; done\n")
		}
	}
	script.WriteString("wait\n")
	ctx, cancel := context.WithTimeout(t.Context(), 3*harness.Patience) // there are many commands
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = append(plainEnv(dir), "PADDOCK_DIR="+filepath.Join(dir, "pd"))
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
