package engine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/test/harness"
)

// TestManual types the session of postgres(7), as a user who may make databases, and compares what comes
// out with what stands there.
func TestManual(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(harness.Root(), "man/man7/postgres.7"))
	must(t, err)
	script := ""
	var want []string
	for _, block := range strings.Split(string(page), "\n.Bd -literal")[1:] {
		_, block, _ = strings.Cut(block, "\n")
		block, _, _ = strings.Cut(block, ".Ed\n")
		if !strings.HasPrefix(block, "$ ") || strings.HasPrefix(block, "$ qsub") {
			continue // no part of the session
		}
		for line := range strings.Lines(strings.ReplaceAll(block, `\e`, `\`)) {
			typed, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				typed, ok = strings.CutPrefix(line, "> ")
			}
			if ok {
				script += typed
			} else {
				want = append(want, strings.TrimSuffix(line, "\n"))
			}
		}
	}
	u, err := harness.AddUser(fmt.Sprintf("pdem%d", os.Getpid()%10000))
	must(t, err)
	t.Cleanup(func() { must(t, u.Remove()) })
	super := connect(t, "postgres", "postgres")
	must(t, exec1(super, "create role "+u.Name+" superuser login"))
	h := &host{base: filepath.Join(top, "manual")}
	must(t, os.MkdirAll(h.base, 0o755))
	must(t, os.Chown(h.base, u.UID, u.GID))
	dir := filepath.Join(h.base, "pd")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.Chown(dir, u.UID, u.GID))
	env := []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + u.Home, "USER=" + u.Name, "PGHOST=" + server.Dir, "PADDOCK_DIR=" + dir}
	h.o = harness.Options{Bin: bin, Dir: dir, User: u, Env: env}
	h.start(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", h.Log())
		}
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir, cmd.Env = u.Home, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.Credential()}
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(err.Error(), "exit status") {
		t.Error(err)
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(string(out)), "\n")); diff != "" {
		t.Errorf("the session is not as it is printed (-page +typed):\n%s", diff)
	}
}
