package harness

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// BuildTest builds the binary of a package's tests, which is to run in a machine.
func BuildTest(path, of string) error {
	build := exec.Command("go", "test", "-c", "-ldflags=-s -w", "-o", path, of)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build what runs in the machine: %w\n%s", err, out)
	}
	return nil
}

// RunMachine boots a machine by the script test/vm/vm, and passes on what is found in
// it. Each of parts ends with a line "vm: PARTexit 0" on the console if nothing was wrong.
func RunMachine(t *testing.T, root, disk string, parts []string, env ...string) {
	t.Helper()
	machine := exec.Command(filepath.Join(Root(), "test", "vm", "vm"), "run", root, disk)
	machine.Env = append(os.Environ(), env...)
	out, err := machine.CombinedOutput()
	out = bytes.ReplaceAll(out, []byte{'\r'}, nil)
	for _, part := range parts {
		if err != nil || !bytes.Contains(out, []byte("\nvm: "+part+"exit 0\n")) {
			// First what matters: of a long message a log may keep the beginning only.
			wrong := regexp.MustCompile(`(?m)^.*(?:_test\.go:\d+: |--- FAIL|panic: |exit [1-9]).*$`).FindAllString(string(out), -1)
			last := out[max(0, len(out)-2000):]
			t.Fatalf("the machine: %v\n%s\nit ends with:\n%s\nall of it:\n%s", err, strings.Join(wrong, "\n"), last, out)
		}
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "vm: ") || strings.Contains(line, "--- ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
