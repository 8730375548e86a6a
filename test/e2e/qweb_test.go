package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"paddock/execd/api"
	"paddock/test/harness"
)

// A web is a qweb that runs.
type web struct {
	t       *testing.T
	address string // of the page
	token   string
}

// newWeb starts a qweb as a user; nil: as who runs the test.
func (d *desk) newWeb(user *harness.User) *web {
	d.t.Helper()
	cmd := exec.CommandContext(context.Background(), filepath.Join(bin, "qweb"))
	cmd.Dir, cmd.Env = "/", plainEnv(d.dir)
	if user != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user.Credential()}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			d.t.Errorf("qweb: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	address, token, ok := strings.Cut(strings.TrimSpace(line), "/#")
	if err != nil || !ok || len(token) != 32 {
		d.t.Fatalf("qweb prints %q, %v", line, err)
	}
	return &web{d.t, address, token}
}

// get asks for something, and returns an answer that is still to be read.
func (w *web) get(path string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.address+path, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { reply.Body.Close() })
	return reply
}

// text asks for something small.
func (w *web) text(path string) (status int, text string) {
	w.t.Helper()
	reply := w.get(path)
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply.StatusCode, string(body)
}

// TestQweb has the owner of a job and another user look at it: both see it, live, and the owner alone
// what it has written.
func TestQweb(t *testing.T) {
	parallel(t)
	mode := "-dev"
	if second != nil {
		mode = "-root"
	}
	d := newDeskWith(t, 2, mode)
	owner := second
	submit := func(args ...string) (string, error) {
		if owner == nil {
			return d.run("qsub", args...), nil
		}
		return d.as(owner, filepath.Join(bin, "qsub"), args...)
	}
	output := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(output, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(output); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if owner != nil {
		if err := os.Chown(output, owner.UID, owner.GID); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := submit("-terse", "-wd", "/", "-o", output, "-j", "y", "-N", "seen", "-b", "y", "echo what only its owner sees; exec sleep 600"); err != nil || strings.TrimSpace(out) != "1" {
		t.Fatalf("qsub: %v\n%s", err, out)
	}
	t.Cleanup(func() { d.run("qdel", "1") })
	if err := harness.WaitFor(patience, "the job to write", func() (bool, error) {
		text, err := os.ReadFile(output)
		return strings.Contains(string(text), "owner"), err
	}); err != nil {
		t.Fatalf("%v\n%s", err, d.Log())
	}
	w := d.newWeb(owner)
	live := bufio.NewScanner(w.get("/api/live").Body)
	live.Buffer(nil, 1<<20)
	for seen, listed := false, false; !seen || !listed; {
		if !live.Scan() {
			t.Fatalf("told no more: %v", live.Err())
		}
		var m struct {
			Timeline *api.TimelineReply
			Top      *api.TopReply
			Error    string
		}
		if err := json.Unmarshal(live.Bytes(), &m); err != nil || m.Error != "" {
			t.Fatalf("%v: %s", err, live.Text())
		}
		if m.Timeline != nil {
			for _, r := range m.Timeline.Runs {
				seen = seen || r.Name == "seen"
			}
		}
		listed = listed || m.Top != nil && len(m.Top.Jobs) == 1 && m.Top.Jobs[0].Name == "seen"
	}
	if status, text := w.text("/api/output?job=1"); status != http.StatusOK || !strings.Contains(text, "only its owner sees") {
		t.Errorf("the owner is shown %d %s", status, text)
	}
	if owner == nil {
		return
	}
	other := d.newWeb(nil)
	if status, text := other.text("/api/job?job=1"); status != http.StatusOK || !strings.Contains(text, `"name":"seen"`) {
		t.Errorf("the other is shown %d %s", status, text)
	}
	if status, text := other.text("/api/output?job=1"); status != http.StatusForbidden || strings.Contains(text, "sees") {
		t.Errorf("the other is shown %d %s", status, text)
	}
}
