package boot

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// service returns the directives of the section Service.
func service(text string) map[string]string {
	directives := map[string]string{}
	_, text, _ = strings.Cut(text, "\n[Service]\n")
	text, _, _ = strings.Cut(text, "\n[")
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			directives[key] = value
		}
	}
	return directives
}

// The unit of a user says what that of root says, but for what only root can have, and the
// directories, which execd finds itself.
func TestUnitLikeThatOfRoot(t *testing.T) {
	t.Parallel()
	root, err := os.ReadFile(filepath.Join("..", "..", "..", "packaging", "systemd", Unit))
	if err != nil {
		t.Fatal(err)
	}
	text, err := (&Service{Program: "/usr/sbin/execd", Qconf: "/usr/bin/qconf"}).unit()
	if err != nil {
		t.Fatal(err)
	}
	got, want := service(text), service(string(root))
	for _, key := range []string{"OOMScoreAdjust", "ConfigurationDirectory", "StateDirectory", "RuntimeDirectory", "RuntimeDirectoryPreserve"} {
		if _, ok := want[key]; !ok {
			t.Errorf("the unit of root has no %s", key)
		}
		delete(want, key)
	}
	for key := range want {
		if value := strings.ReplaceAll(got[key], `"`, ""); value != want[key] {
			t.Errorf("%s=%s; the unit of root has %q", key, value, want[key])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d directives; the unit of root has %d", len(got), len(want))
	}
}

// systemd reads words as they were, or they are refused.
func TestQuote(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"/usr/sbin/execd":        `"/usr/sbin/execd"`,
		"/home/a b/100%/execd":   `"/home/a b/100%%/execd"`,
		"XDG_STATE_HOME=/home/ä": `"XDG_STATE_HOME=/home/ä"`,
		"/a\nExecStartPre=/b":    "",
		`/a"b`:                   "",
		`/a\b`:                   "",
		"/$HOME":                 "",
	} {
		if got, err := quote(word); got != want || (err != nil) != (want == "") {
			t.Errorf("quote(%q) = %s, %v; want %s", word, got, err, want)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze")
	}
	dir := filepath.Join(t.TempDir(), "a b%h")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "execd")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := (&Service{Program: program, Qconf: program, Environment: []string{"XDG_STATE_HOME=/home/a b%h"}}).unit()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), Unit)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	// As for the unit of root, a systemd before 254 does not know DelegateSubgroup.
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", "--recursive-errors=no", path).CombinedOutput()
	allowed := regexp.MustCompile(`^` + regexp.QuoteMeta(path) + `:\d+: Unknown key '?DelegateSubgroup'? in section \[Service\], ignoring\.\n$`)
	if (err != nil || len(out) > 0) && !allowed.Match(out) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
