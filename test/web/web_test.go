// Package web has others judge what a host shows: Prometheus its metrics and the alerts that are
// shipped for them, and a browser the page of qweb. It runs by `make web`, which installs both
// from Debian's packages. Nobody imports it.
package web

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"paddock/test/harness"
)

func TestMain(m *testing.M) {
	if os.Getenv("PADDOCK_WEB") == "" {
		fmt.Println("web: not run: it installs Prometheus and a browser; use make web")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patience is for how long another program may take.
const patience = harness.Patience

// run runs a program to its end.
func run(t *testing.T, stdin, dir, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%v: make web installs it", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// start starts an execd with files of its configuration.
func start(t *testing.T, files map[string]string) *harness.Daemon {
	t.Helper()
	dir := filepath.Join(harness.Memory(t), "pd")
	for name, text := range files {
		name = filepath.Join(dir, "etc", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d, err := harness.Start(harness.Options{Bin: os.Getenv("PADDOCK_BIN"), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// command runs a command of ours to its end.
func command(t *testing.T, d *harness.Daemon, stdin, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience) // also at the end of the test
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("PADDOCK_BIN"), name), args...)
	cmd.Dir, cmd.Env, cmd.Stdin = d.Dir, append(os.Environ(), "PADDOCK_DIR="+d.Dir), strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestMetrics has promtool look at what an execd tells that has something of everything to tell:
// runs, transfers, and work that is fetched, with a lease and an end that nobody hears.
func TestMetrics(t *testing.T) {
	hook := filepath.Join(t.TempDir(), "hook")
	const script = `#!/bin/sh
case $0 in
*fetch) [ -e "$0.given" ] && exit 0; : >"$0.given"; echo 'Cmd = "/bin/true"'; echo "Owner = \"$(id -un)\""; echo 'WorkIdentity = "one"'; echo 'Iwd = "/tmp"' ;;
*report) exit 1 ;;
esac
`
	for _, name := range []string{"fetch", "renew", "report"} {
		if err := os.WriteFile(hook+"-"+name, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	port := freePort(t)
	d := start(t, map[string]string{
		"sge_conf":     fmt.Sprintf("execd_params METRICS=127.0.0.1:%d\n", port),
		"queues/all.q": "qname all.q\nslots 2\n",
		"hooks.conf": strings.ReplaceAll("SLOT2_JOB_HOOK_KEYWORD = KW\nKW_HOOK_FETCH_WORK = @-fetch\nKW_HOOK_RENEW_CLAIM = @-renew\nKW_HOOK_REPORT_WORK = @-report\nFetchWorkDelay = 5\n",
			"@", hook),
	})
	command(t, d, "", "qsub", "-cwd", "-sync", "y", "-b", "y", "true")
	address := fmt.Sprintf("http://127.0.0.1:%d/metrics", port)
	text := ""
	if err := harness.WaitFor(patience, "the end of fetched work to be unheard", func() (bool, error) {
		_, body, err := get(t, address, "")
		text = body
		return strings.Contains(body, `paddock_reports_waiting{keyword="KW"} 1`), err
	}); err != nil {
		t.Fatalf("%v\n%s\n%s", err, text, d.Log())
	}
	for _, want := range []string{`paddock_fetch_total{keyword="KW",result="work"} 1`, "paddock_fetch_seconds_count ", `paddock_tasks_ended_total{outcome="done"} `} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics have no %q\n%s", want, text)
		}
	}
	if out := run(t, text, "", "promtool", "check", "metrics"); out != "" {
		t.Errorf("promtool finds: %s", out)
	}
	if status, body, err := get(t, address, "rebound.example"); err != nil || status != http.StatusMisdirectedRequest || strings.Contains(body, "paddock_") {
		t.Errorf("asked for by another name: %d %q, %v", status, body, err)
	}
}

// get asks for an address, as a host when one is named.
func get(t *testing.T, address, host string) (status int, body string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	r.Host = host
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	return reply.StatusCode, string(text), err
}

// TestAlerts has promtool read the examples, and evaluate the alerts on figures that are to raise
// them and on others that are not.
func TestAlerts(t *testing.T) {
	examples := filepath.Join(harness.Root(), "packaging", "examples", "prometheus")
	run(t, "", examples, "promtool", "check", "config", "scrape.yml")
	run(t, "", examples, "promtool", "check", "rules", "alerts.yml")
	run(t, "", filepath.Join(harness.Root(), "test", "web"), "promtool", "test", "rules", "alerts_test.yml")
}
