package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/execd/api"
)

// fake is an execd that answers what a test says.
type fake struct {
	site  *site
	guard *guard
}

// newFake has a site of the user alice, and answers of execd by their verbs.
func newFake(t *testing.T, replies map[string]any) *fake {
	t.Helper()
	f := &fake{}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verb := strings.TrimPrefix(r.URL.Path, "/"+api.Version+"/")
		if verb == api.VerbTimeline {
			var req api.TimelineRequest
			_ = json.NewDecoder(r.Body).Decode(&req)
			if req.Since == "e.1" { // nothing is new
				<-r.Context().Done()
				return
			}
		}
		reply, ok := replies[verb]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			reply = api.Errorf(api.CodeNotFound, "no %s", verb)
		}
		_ = json.NewEncoder(w).Encode(reply)
	})}
	go func() { _ = h.Serve(l) }()
	t.Cleanup(func() { h.Close() })
	client := api.NewClient(path)
	f.site = &site{client: client, hub: newHub(client), owner: "alice"}
	f.guard = &guard{hosts: []string{"127.0.0.1:8090", "localhost:8090", "[::1]:8090"}, token: "secret", next: f.site.routes()}
	return f
}

// get asks as a browser does, with headers in pairs.
func (f *fake) get(t *testing.T, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	r.Host = "127.0.0.1:8090"
	r.Header.Set("Authorization", "Bearer secret")
	for i := 0; i < len(headers); i += 2 {
		switch {
		case headers[i] == "Host":
			r.Host = headers[i+1]
		case headers[i] == "Method":
			r.Method = headers[i+1]
		case headers[i+1] == "":
			r.Header.Del(headers[i])
		default:
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	w := httptest.NewRecorder()
	f.guard.ServeHTTP(w, r)
	return w
}

var replies = map[string]any{
	api.VerbDetail: &api.DetailReply{Jobs: []api.Detail{{Job: 1, Owner: "alice", Request: api.SubmitRequest{Name: "render", Env: []string{"PASSWORD=hunter2"}, Args: []string{"hunter2"}}}}},
}

// TestGuard attacks each rule by which qweb answers.
func TestGuard(t *testing.T) {
	f := newFake(t, replies)
	for _, x := range []struct {
		what, path string
		want       int
		headers    []string
	}{
		{"the page", "/", 200, []string{"Authorization", ""}},
		{"its own page", "/api/job?job=1", 200, []string{"Origin", "http://127.0.0.1:8090", "Sec-Fetch-Site", "same-origin"}},
		{"by another of its names", "/api/job?job=1", 200, []string{"Host", "localhost:8090", "Origin", "http://localhost:8090"}},
		{"by another of its names", "/api/job?job=1", 200, []string{"Host", "[::1]:8090"}},

		// A page whose name was resolved to this host anew.
		{"rebound", "/", 421, []string{"Host", "evil.example:8090"}},
		{"rebound", "/api/job?job=1", 421, []string{"Host", "evil.example"}},
		{"rebound to what looks like it", "/api/job?job=1", 421, []string{"Host", "127.0.0.1.evil.example:8090"}},
		{"rebound to what looks like it", "/api/job?job=1", 421, []string{"Host", "localhost:8090.evil.example"}},
		{"another port", "/api/job?job=1", 421, []string{"Host", "127.0.0.1:80"}},
		{"no host", "/api/job?job=1", 421, []string{"Host", ""}},

		// A page of another origin, which has a browser ask.
		{"another origin", "/api/job?job=1", 403, []string{"Origin", "http://evil.example"}},
		{"another port of this host", "/api/job?job=1", 403, []string{"Origin", "http://127.0.0.1:3000"}},
		{"a file", "/api/job?job=1", 403, []string{"Origin", "null"}},
		{"another of its own names", "/api/job?job=1", 403, []string{"Origin", "http://localhost:8090"}},
		{"an image of another site", "/api/job?job=1", 403, []string{"Sec-Fetch-Site", "cross-site"}},
		{"an image of the same site", "/", 403, []string{"Sec-Fetch-Site", "same-site"}},

		// Another user of this host.
		{"no token", "/api/job?job=1", 401, []string{"Authorization", ""}},
		{"no token", "/api/live", 401, []string{"Authorization", ""}},
		{"no token", "/api/output?job=1", 401, []string{"Authorization", ""}},
		{"another token", "/api/job?job=1", 401, []string{"Authorization", "Bearer secreT"}},
		{"a part of it", "/api/job?job=1", 401, []string{"Authorization", "Bearer secre"}},
		{"more than it", "/api/job?job=1", 401, []string{"Authorization", "Bearer secretsecret"}},
		{"not as a token", "/api/job?job=1", 401, []string{"Authorization", "secret"}},
		{"in the address", "/api/job?job=1&token=secret", 401, []string{"Authorization", ""}},
		{"as a cookie", "/api/job?job=1", 401, []string{"Authorization", "", "Cookie", "token=secret"}},
		{"as a password", "/api/job?job=1", 401, []string{"Authorization", "Basic c2VjcmV0"}},

		{"to change something", "/api/job?job=1", 405, []string{"Method", http.MethodPost}},
		{"to change something", "/api/job?job=1", 405, []string{"Method", http.MethodDelete}},
		{"to see what it may", "/api/job?job=1", 405, []string{"Method", http.MethodOptions}},
		{"another file", "/page/index.html", 404, nil},
		{"what is not there", "/api/", 404, nil},
	} {
		w := f.get(t, x.path, x.headers...)
		if w.Code != x.want {
			t.Errorf("%s: %s %q: %d %q; want %d", x.what, x.path, x.headers, w.Code, w.Body, x.want)
		}
		if w.Code != 200 && strings.Contains(w.Body.String(), "render") {
			t.Errorf("%s: the refusal tells: %s", x.what, w.Body)
		}
		h := w.Header()
		if csp := h.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';") {
			t.Errorf("%s: the page may do %q", x.what, csp)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || len(h.Values("Set-Cookie")) > 0 ||
			h.Get("Access-Control-Allow-Origin") != "" || strings.HasPrefix(x.path, "/api/") && h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: the headers are %v", x.what, h)
		}
	}
}

// TestSecrets has nothing told of a job that it was submitted with.
func TestSecrets(t *testing.T) {
	w := newFake(t, replies).get(t, "/api/job?job=1")
	if w.Code != 200 || !strings.Contains(w.Body.String(), "render") || strings.Contains(w.Body.String(), "hunter2") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestMarkup has markup in the name of a job and in what it has written arrive as text: as JSON that
// no browser takes for a page, and put into the page by nothing that reads markup.
func TestMarkup(t *testing.T) {
	const evil = `<img src=x onerror=alert(1)></script><script>alert(2)</script>`
	path := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(path, []byte(evil), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFake(t, map[string]any{
		api.VerbDetail: &api.DetailReply{Jobs: []api.Detail{{Job: 1, Owner: "alice", Request: api.SubmitRequest{Name: evil}, Reasons: []string{evil}}}},
		api.VerbOutput: &api.OutputReply{Job: 1, Owner: "alice", Outputs: []api.Output{{Stdout: api.File{Path: api.Text(path)}}}},
	})
	for _, path := range []string{"/api/job?job=1", "/api/output?job=1"} {
		w := f.get(t, path)
		if kind := w.Header().Get("Content-Type"); w.Code != 200 || kind != "application/json" || strings.Contains(w.Body.String(), "<") {
			t.Errorf("%s: %d %s %s", path, w.Code, kind, w.Body)
		}
	}
	err := fs.WalkDir(page, "page", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.Contains(name, "uplot") {
			return err
		}
		text, err := page.ReadFile(name)
		for _, m := range regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setHTML|DOMParser|\bon[a-z]+="|style="|javascript:|https?://`).FindAll(text, -1) {
			t.Errorf("%s has %q", name, m)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOutput shows a user what his own jobs have written, and nobody else's, whatever their owner has
// put in the place of it.
func TestOutput(t *testing.T) {
	dir := t.TempDir()
	path, fifo := filepath.Join(dir, "job.o1"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(path, []byte(strings.Repeat("x", maxTail)+"the end\n\xff"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	output := func(owner, path, name string) map[string]any {
		return map[string]any{api.VerbOutput: &api.OutputReply{Job: 1, Owner: owner, Outputs: []api.Output{{Stdout: api.File{Path: api.Text(path), Name: api.Text(name)}}}}}
	}
	for what, x := range map[string]struct {
		replies map[string]any
		owner   string // who looks
		status  int
		has     string
	}{
		"one's own":              {output("alice", path, ""), "alice", 200, "the end\\n\uFFFD"},
		"in a directory":         {output("alice", dir, "job.o1"), "alice", 200, "the end"},
		"another user's":         {output("bob", path, ""), "alice", 403, "denied"},
		"on a display":           {output("alice", path, ""), "", 403, "denied"},
		"on a display of nobody": {output("", path, ""), "", 403, "denied"},
		"a pipe":                 {output("alice", fifo, ""), "alice", 200, "is not a regular file"},
		"a device":               {output("alice", "/dev/zero", ""), "alice", 200, "is not a regular file"},
		"not there":              {output("alice", dir+"/no", ""), "alice", 200, "no such file"},
		"no job":                 {map[string]any{}, "alice", 404, "no output"},
		"none that runs":         {map[string]any{api.VerbOutput: &api.OutputReply{Job: 1, Owner: "alice"}}, "alice", 200, "none yet"},
	} {
		f := newFake(t, x.replies)
		f.site.owner = x.owner
		w := f.get(t, "/api/output?job=1&task=2")
		if text := w.Body.String(); w.Code != x.status || !strings.Contains(text, x.has) || w.Code != 200 && strings.Contains(text, "the end") {
			t.Errorf("%s: %d %.200s; want %d with %q", what, w.Code, text, x.status, x.has)
		}
		if w.Body.Len() > 2*maxTail {
			t.Errorf("%s: %d bytes", what, w.Body.Len())
		}
	}
}

// TestLive has two look: each is told all, execd is asked for both together, and not at all when they
// have gone.
func TestLive(t *testing.T) {
	f := newFake(t, map[string]any{
		api.VerbTimeline: &api.TimelineReply{Cursor: "e.1", Whole: true, Runs: []api.TimelineRun{{Job: 7, Name: "render"}}},
		api.VerbTop:      &api.TopReply{Host: "node7"}, api.VerbStatus: &api.StatusReply{Host: "node7"}, api.VerbHost: &api.HostReply{Host: "node7"},
	})
	server := httptest.NewServer(f.guard)
	defer server.Close()
	f.guard.hosts = append(f.guard.hosts, strings.TrimPrefix(server.URL, "http://"))
	look := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/live", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer secret")
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewScanner(reply.Body)
		var m message
		for (m.Timeline == nil || m.Top == nil || m.Status == nil) && in.Scan() {
			if err := json.Unmarshal(in.Bytes(), &m); err != nil {
				t.Fatal(err)
			}
		}
		if m.Timeline == nil || m.Timeline.Runs[0].Name != "render" || m.Top == nil || m.Top.Host != "node7" || m.Status == nil {
			t.Errorf("told: %+v, %v", m, in.Err())
		}
		return func() { cancel(); _, _ = io.Copy(io.Discard, reply.Body); reply.Body.Close() }
	}
	one := look()
	two := look()
	if !f.site.hub.idle().IsZero() {
		t.Error("nobody is said to look")
	}
	one()
	two()
	f.site.hub.asking.Wait() // nothing asks any more
	if f.site.hub.idle().IsZero() {
		t.Error("somebody is said to look")
	}
	if f.site.hub.status != nil {
		t.Error("who comes next is told how the host was when the last one went")
	}
	look()()
	f.site.hub.asking.Wait()
}

// TestSlow has a viewer who does not read be sent away, and the others go on.
func TestSlow(t *testing.T) {
	h := newHub(nil)
	slow, quick := make(chan []byte, backlog), make(chan []byte, backlog)
	h.viewers[slow], h.viewers[quick] = true, true
	for range backlog + 1 {
		h.tell(t.Context(), &message{Error: "x"})
		<-quick
	}
	if len(h.viewers) != 1 || !h.viewers[quick] {
		t.Errorf("there are %d viewers", len(h.viewers))
	}
	h.leave(slow)
	h.leave(quick)
}

// TestAssets holds what is of others to what they have published, and all to what a page may weigh.
func TestAssets(t *testing.T) {
	for name, want := range map[string]string{
		"uplot/uplot.js":  "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
		"uplot/uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
		"uplot/LICENSE":   "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
	} {
		text, err := page.ReadFile("page/" + name)
		if sum := fmt.Sprintf("%x", sha256.Sum256(text)); err != nil || sum != want {
			t.Errorf("%s: %s, %v; want %s", name, sum, err, want)
		}
	}
	f, all := newFake(t, nil), 0
	for path := range files {
		w := f.get(t, path)
		all += w.Body.Len()
		if w.Code != 200 || w.Body.Len() == 0 {
			t.Errorf("%s: %d", path, w.Code)
		}
		if again := f.get(t, path, "If-None-Match", w.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", path, again.Code)
		}
	}
	if all > 160<<10 {
		t.Errorf("the page weighs %d bytes", all)
	}
}

// TestDisplay is behind a web server: that has asked who looks and has the name, and nobody's output
// is shown. A page of another origin is refused all the same.
func TestDisplay(t *testing.T) {
	f := newFake(t, replies)
	f.guard.hosts, f.guard.token, f.site.owner = nil, "", ""
	for _, x := range []struct {
		path    string
		want    int
		headers []string
	}{
		{"/api/job?job=1", 200, []string{"Host", "wall.example", "Authorization", "", "Origin", "https://wall.example"}},
		{"/api/job?job=1", 403, []string{"Host", "wall.example", "Origin", "https://evil.example"}},
		{"/api/job?job=1", 405, []string{"Host", "wall.example", "Method", http.MethodPost}},
		{"/api/output?job=1", 403, []string{"Host", "wall.example"}},
	} {
		if w := f.get(t, x.path, x.headers...); w.Code != x.want {
			t.Errorf("%s %q: %d %q; want %d", x.path, x.headers, w.Code, w.Body, x.want)
		}
	}
}

// TestListenUnix takes the place of a socket that was left, and of no other.
func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	l, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := listenUnix(path); err == nil || !strings.Contains(err.Error(), "another qweb") {
		t.Errorf("a second one: %v", err)
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(file); err == nil {
		t.Error("a file is replaced")
	}
}

// TestIdle ends when nobody has looked for a time.
func TestIdle(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := serve(t.Context(), l, http.NotFoundHandler(), newHub(nil), time.Millisecond); err != nil {
		t.Error(err)
	}
}
