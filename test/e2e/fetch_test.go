package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/test/harness"
)

// service is a small service that has work, as the example's README says.
type service struct {
	exit   string // what /exit wants to see of the caller; "": as of all
	mu     sync.Mutex
	todo   []string          // guarded by mu; ads
	given  string            // guarded by mu; handed out and not accepted
	events []string          // guarded by mu
	ended  map[string]string // guarded by mu; what /exit was told, by identity
	more   chan struct{}     // has something when there is work
}

var identity = regexp.MustCompile(`(?m)^GlobalJobId = "(.*)"$`)

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	token := "Bearer secret"
	if s.exit != "" && strings.HasPrefix(r.URL.Path, "/v1/exit/") {
		token = s.exit
	}
	if err != nil || r.Method != http.MethodPost || r.Header.Get("Authorization") != token {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	id := ""
	if m := identity.FindSubmatch(body); m != nil {
		id = string(m[1])
	}
	if r.URL.Path == "/v1/fetch" {
		s.fetch(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, strings.TrimPrefix(r.URL.Path, "/v1/")+" "+id)
	switch r.URL.Path {
	case "/v1/reply/accept":
		if strings.Contains(s.given, fmt.Sprintf("GlobalJobId = %q", id)) { // it may be told twice, and late
			s.given = ""
		}
	case "/v1/exit/exit", "/v1/exit/evict":
		s.ended[id] = string(body)
	case "/v1/renew":
		w.WriteHeader(http.StatusGone)
	}
}

// fetch holds the question back until there is work.
func (s *service) fetch(w http.ResponseWriter, r *http.Request) {
	for {
		s.mu.Lock()
		if s.given == "" && len(s.todo) > 0 {
			s.given, s.todo = s.todo[0], s.todo[1:]
		}
		given := s.given
		s.mu.Unlock()
		if given != "" {
			fmt.Fprint(w, given)
			return
		}
		select {
		case <-s.more:
		case <-r.Context().Done():
			return
		case <-time.After(20 * time.Second):
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
}

func (s *service) add(ad string) {
	s.mu.Lock()
	s.todo = append(s.todo, ad)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// heard reports whether the service was told something.
func (s *service) heard(event string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.events, event)
}

// end returns what the service was told of the end of a unit.
func (s *service) end(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[id]
}

// TestFetchHTTP runs the example that asks a service, as it is shipped: the service
// holds the question back until there is work, and takes a lease away.
//
// REQ-HOOK-4: execd listens to nothing, and the service connects to nobody.
func TestFetchHTTP(t *testing.T) {
	parallel(t)
	d, s, _ := startHTTP(t, "-dev")
	for _, id := range []string{"one", "two"} {
		s.add("Cmd = \"/bin/sh\"\nArguments = \"-c 'exit 4'\"\nGlobalJobId = \"" + id + "\"\n")
		s.wait(t, d, "the end of "+id, func() bool { return s.end(id) != "" })
		if told := s.end(id); !strings.Contains(told, "\nExitCode = 4\n") {
			t.Errorf("/exit was told\n%s", told)
		}
		s.wait(t, d, "the acceptance of "+id, func() bool { return s.heard("reply/accept " + id) })
	}
	// A lease of fifteen seconds, asked for after five, and refused.
	s.add("Cmd = \"/bin/sleep\"\nArgs = \"1000\"\nGlobalJobId = \"three\"\nJobLeaseDuration = 15\n")
	s.wait(t, d, "a renewal", func() bool { return s.heard("renew three") })
	s.wait(t, d, "the eviction", func() bool { return s.heard("evict three") })
	s.wait(t, d, "the end of the job", func() bool { return s.heard("exit/evict three") && s.end("three") != "" })
	for _, want := range []string{`VacateReason = "its hook says that nobody waits for it"`, "VacateReasonCode = 1017", `ExitReason = "evicted by slot1 (its hook says that nobody waits for it)"`} {
		if told := s.end("three"); !strings.Contains(told, "\n"+want+"\n") {
			t.Errorf("/exit was told\n%s\nwant %s", told, want)
		}
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}

// TestRootFetchHTTP runs the same in root mode, as its README says: the account
// paddock has the token of the host, and the users of jobs one for their reports.
//
// REQ-HOOK-103: the exit hook has what the job's user can read, the others what the
// account can.
func TestRootFetchHTTP(t *testing.T) {
	parallel(t)
	if second == nil {
		t.Skip("running fetched work as somebody else needs root")
	}
	d, s, dir := startHTTP(t, "-root")
	out := filepath.Join(dir, "u", "out")
	s.add(fmt.Sprintf("Cmd = \"/bin/sh\"\nArguments = \"-c 'cat %s/hooks/token; id -u; exit 4'\"\nOut = %q\nErr = \"/dev/null\"\nGlobalJobId = \"his\"\nOwner = %q\n", dir, out, second.Name))
	s.wait(t, d, "the end of the job", func() bool { return s.end("his") != "" })
	if told := s.end("his"); !strings.Contains(told, "\nExitCode = 4\n") {
		t.Errorf("/exit was told\n%s", told)
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != fmt.Sprintln(second.UID) {
		t.Errorf("the job says %q, %v; want that it is %d and cannot read the token", got, err, second.UID)
	}
	s.wait(t, d, "the acceptance", func() bool { return s.heard("reply/accept his") })
	s.add("Cmd = \"/bin/true\"\nGlobalJobId = \"roots\"\nOwner = \"root\"\n")
	s.wait(t, d, "the refusal", func() bool { return s.heard("reply/reject roots") })
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}

// startHTTP starts the service and an execd with the example, in a mode, and
// returns the directory of both.
func startHTTP(t *testing.T, mode string) (*harness.Daemon, *service, string) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	dir := place(t, "http")
	hooks, pd := filepath.Join(dir, "hooks"), filepath.Join(dir, "pd")
	if out, err := exec.Command("cp", "-r", filepath.Join(harness.Root(), "packaging", "examples", "hooks", "http"), hooks).CombinedOutput(); err != nil {
		t.Fatalf("cannot copy the example: %v\n%s", err, out)
	}
	if out, err := exec.Command("chmod", "-R", "go-w", hooks).CombinedOutput(); err != nil {
		t.Fatalf("chmod: %v\n%s", err, out)
	}
	s := &service{ended: map[string]string{}, more: make(chan struct{}, 1)}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	conf, err := os.ReadFile(filepath.Join(hooks, "hooks.conf"))
	if err != nil {
		t.Fatal(err)
	}
	knobs := strings.ReplaceAll(string(conf), "/etc/paddock/hooks/http", hooks)
	o := harness.Options{Bin: bin, Dir: pd, Mode: mode}
	files := map[string]string{
		filepath.Join(hooks, "url"):                 server.URL + "/v1\n",
		filepath.Join(hooks, "token"):               "Authorization: Bearer secret\n",
		filepath.Join(pd, "etc", "queues", "all.q"): "qname all.q\nslots 1\n",
	}
	if mode == "-root" {
		s.exit = "Bearer report"
		files[filepath.Join(hooks, "token.exit")] = "Authorization: " + s.exit + "\n"
		files[filepath.Join(pd, "etc", "sge_conf")] = "min_uid 100\nmin_gid 0\n"
		knobs = regexp.MustCompile(`(?m)^#FETCH_OWNERS .*`).ReplaceAllString(knobs, "FETCH_OWNERS = "+second.Name)
		if o.Via, err = hookAccount[true](); err != nil {
			t.Fatal(err)
		}
	}
	files[filepath.Join(pd, "etc", "hooks.conf")] = knobs
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(hooks, "token"), 0o640); err != nil {
		t.Fatal(err)
	}
	if mode == "-root" {
		if err := os.Chown(filepath.Join(hooks, "token"), 0, accountUID()); err != nil {
			t.Fatal(err)
		}
		u := filepath.Join(dir, "u")
		if err := os.Mkdir(u, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(u, second.UID, second.GID); err != nil {
			t.Fatal(err)
		}
	}
	d, err := harness.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Kill()
		if t.Failed() {
			harness.KillLeft(dir)
		}
	})
	return d, s, dir
}

// wait waits until the service was told something.
func (s *service) wait(t *testing.T, d *harness.Daemon, what string, ok func() bool) {
	t.Helper()
	if err := harness.WaitFor(harness.Patience, what, func() (bool, error) { return ok(), nil }); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.Fatalf("%v\nthe service was told %q\n%s", err, s.events, d.Log())
	}
}

// TestDirectoryOwners: whose file it is runs it, so that a unit which others may
// write, or that has a second name somewhere, is handed out to nobody.
func TestDirectoryOwners(t *testing.T) {
	parallel(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can make files of others")
	}
	dir := filepath.Join(t.TempDir(), "directory")
	if err := os.CopyFS(dir, os.DirFS("../../packaging/examples/hooks/directory")); err != nil {
		t.Fatal(err)
	}
	run := func(stdin, program string, args ...string) string {
		t.Helper()
		cmd := exec.Command("sh", append([]string{filepath.Join(dir, program)}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		return string(out)
	}
	run("", "setup", "-user")
	todo := filepath.Join(dir, "queue", "todo")
	for name, mode := range map[string]os.FileMode{"a": 0o664, "b": 0o646, "c": 0o644, "d": 0o644} {
		path := filepath.Join(todo, name+".ad")
		if err := os.WriteFile(path, []byte("Cmd = \"/bin/true\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, 1, 1); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(todo, "c.ad"), filepath.Join(dir, "second")); err != nil {
		t.Fatal(err)
	}
	if got := run("Name = \"slot1@h\"\nState = \"Unclaimed\"\n", "fetch"); !strings.Contains(got, `GlobalJobId = "d"`) || !strings.Contains(got, `Owner = "daemon"`) {
		t.Errorf("handed out:\n%s\nwant d, of daemon", got)
	}
	for _, name := range []string{"a", "b", "c"} {
		if _, err := os.Stat(filepath.Join(dir, "queue", "done", name+".refused")); err != nil {
			t.Error(err)
		}
	}
}

// TestExamplesBusy: a slot that runs something is handed out nothing by the examples,
// which give a unit up that is refused again and again. One that is about to be free
// says that it is idle.
func TestExamplesBusy(t *testing.T) {
	parallel(t)
	for _, tt := range []struct {
		name  string
		setup [][]string
		fetch []string
	}{
		{"directory", [][]string{{"./setup", "-user"}, {"mv", "u.ad", "queue/todo/"}}, []string{"./fetch"}},
		{"sqlite", [][]string{{"./queue", "setup", "-user"}, {"./queue", "add", "u", "u.ad"}}, []string{"./fetch"}},
	} {
		dir := filepath.Join(t.TempDir(), tt.name)
		if out, err := exec.Command("cp", "-r", filepath.Join(harness.Root(), "packaging", "examples", "hooks", tt.name), dir).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		run := func(stdin string, argv ...string) string {
			t.Helper()
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %v: %v", tt.name, argv, err)
			}
			return string(out)
		}
		if err := os.WriteFile(filepath.Join(dir, "u.ad"), []byte("Cmd = \"/bin/true\"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, argv := range tt.setup {
			run("", argv...)
		}
		for _, activity := range []string{"Busy", "Retiring"} {
			if got := run("Activity = \""+activity+"\"\nName = \"slot1@h\"\nState = \"Claimed\"\n", tt.fetch...); got != "" {
				t.Errorf("%s: to a slot that is %s was handed out %q", tt.name, activity, got)
			}
		}
		if got := run("Activity = \"Idle\"\nName = \"slot1@h\"\nState = \"Claimed\"\n", tt.fetch...); !strings.Contains(got, "Cmd = ") {
			t.Errorf("%s: to a slot that is idle was handed out %q", tt.name, got)
		}
	}
}
