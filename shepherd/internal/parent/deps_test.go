package parent

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestDeps holds the shepherd to what it may link: every running job pays for
// it in memory, and every short one in time.
func TestDeps(t *testing.T) {
	cmd := exec.Command("go", "list", "-buildvcs=false", "-deps", "paddock/shepherd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	why := map[string]string{
		"net":           "memory and start-up time of every job",
		"crypto":        "start-up time of every job",
		"encoding/json": "start-up time; the spool is key=value",
		"os/exec":       "Cmd.Wait races with the one wait loop",
		"os/signal":     "two threads in every shepherd; a signalfd does it",
		"os/user":       "knows the passwd file only without cgo",
		"log":           "trace lines are plain",
		"regexp":        "start-up time",
		"text/template": "start-up time",
		"paddock/execd": "the shepherd outlives execd",
	}
	for dep := range strings.FieldsSeq(string(out)) {
		for banned, reason := range why {
			if dep == banned || strings.HasPrefix(dep, banned+"/") {
				t.Errorf("the shepherd links %s: %s", dep, reason)
			}
		}
		first, _, _ := strings.Cut(dep, "/")
		if strings.Contains(first, ".") && !strings.HasPrefix(dep, "golang.org/x/sys/") {
			t.Errorf("the shepherd links %s: golang.org/x/sys is all it needs", dep)
		}
	}
}

// TestManPage holds options and actions together with the manual page.
func TestManPage(t *testing.T) {
	b, err := os.ReadFile("../../../man/man8/shepherd.8")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	help, err := exec.Command(binary, "-help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(help)) {
		f := strings.Fields(line)
		if len(f) > 0 && strings.HasPrefix(f[0], "-") && !strings.Contains(page, "Fl "+f[0][1:]) {
			t.Errorf("shepherd.8 lacks option %s", f[0])
		}
	}
	for _, k := range unsupportedKeys {
		if !strings.Contains(page, "Cm "+k.key) {
			t.Errorf("shepherd.8 does not say that %s is refused", k.key)
		}
	}
}
