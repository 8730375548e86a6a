package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// execd is a stand-in for the daemon: a real socket, and a function for each
// verb.
type execd struct {
	dir  string
	mu   sync.Mutex
	seen map[string][]json.RawMessage // guarded by mu
	// verbs return a status and a body for a request; guarded by mu.
	verbs map[string]func(body []byte) (int, any)
	*httptest.Server
}

// newExecd starts a stand-in and points the commands at it, in a directory and
// a home of their own and with no variables that they could take for options.
func newExecd(t testing.TB) *execd {
	t.Helper()
	isolate(t)
	e := &execd{dir: os.Getenv("PADDOCK_DIR"), seen: map[string][]json.RawMessage{}, verbs: map[string]func([]byte) (int, any){}}
	e.listen(t)
	t.Cleanup(func() { e.Close() })
	return e
}

func isolate(t testing.TB) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"home", "cwd", "etc"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PADDOCK_DIR", dir)
	t.Setenv("HOME", filepath.Join(dir, "home"))
	t.Setenv("SGE_ROOT", "")
	t.Setenv("SGE_CELL", "")
	t.Setenv("TZ", "UTC")
	t.Chdir(filepath.Join(dir, "cwd"))
}

func (e *execd) listen(t testing.TB) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(e.dir, "execd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	e.Server.Listener.Close()
	e.Server.Listener = l
	e.Server.Start()
}

func (e *execd) serve(w http.ResponseWriter, r *http.Request) {
	verb, ok := strings.CutPrefix(r.URL.Path, "/"+api.Version+"/")
	var body bytes.Buffer
	_, err := body.ReadFrom(r.Body)
	e.mu.Lock()
	answer := e.verbs[verb]
	e.mu.Unlock()
	if !ok || err != nil || answer == nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, "what?", http.StatusNotFound)
		return
	}
	e.mu.Lock()
	e.seen[verb] = append(e.seen[verb], body.Bytes())
	e.mu.Unlock()
	status, reply := answer(body.Bytes())
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(reply)
}

// on sets what a verb does; nil: it is not there.
func (e *execd) on(verb string, do func(body []byte) (int, any)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.verbs[verb] = do
}

// replies makes a verb answer with these, one after the other, and then with
// the last one again.
func (e *execd) replies(verb string, list ...any) {
	n := 0 // guarded by e.mu
	e.on(verb, func([]byte) (int, any) {
		e.mu.Lock()
		defer e.mu.Unlock()
		reply := list[min(n, len(list)-1)]
		n++
		if err, ok := reply.(*api.Error); ok {
			return http.StatusBadRequest, err
		}
		return http.StatusOK, reply
	})
}

// forget drops the requests so far.
func (e *execd) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = map[string][]json.RawMessage{}
}

// last decodes the last request of a verb.
func last[T any](t *testing.T, e *execd, verb string) T {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	var request T
	list := e.seen[verb]
	if len(list) == 0 {
		t.Fatalf("no request %s", verb)
	}
	if err := json.Unmarshal(list[len(list)-1], &request); err != nil {
		t.Fatal(err)
	}
	return request
}

// result is what a command left.
type result struct {
	Exit     int
	Out, Err string
}

func call(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errout bytes.Buffer
	exit := (&command.Program{Version: version, Tables: commands}).Run(t.Context(), args, strings.NewReader(stdin), &out, &errout)
	return result{exit, out.String(), errout.String()}
}

func want(t *testing.T, want, got result) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCalledByAnotherName(t *testing.T) {
	isolate(t)
	want(t, result{2, "", "qfoo: cannot tell what to do: the program wants to be called qsub qstat qdel qhold qrls qmod qhost qselect qconf qacct qalter qrsh qlogin qsh qresub qwait qlog qtop\n"}, call(t, "", "/usr/bin/qfoo"))
}

func TestHelpAndVersion(t *testing.T) {
	isolate(t)
	for _, c := range option.Commands() {
		command := c.String()
		for _, option := range []string{"-help", "--help"} {
			got := call(t, "", command, option)
			if got.Exit != 0 || got.Err != "" || !strings.HasPrefix(got.Out, "SGE 8.1.9 (Paddock "+version+")\nusage: "+command+" [options]") || !strings.Contains(got.Out, "   [-help] ") {
				t.Errorf("%s %s: %+v", command, option, got)
			}
			for line := range strings.Lines(got.Out) {
				if len(line) > 81 {
					t.Errorf("%s %s: %d columns: %s", command, option, len(line)-1, line)
				}
			}
		}
		want(t, result{0, command + " version " + version + "\n", ""}, call(t, "", command, "-version"))
	}
}

func TestNotThere(t *testing.T) {
	isolate(t)
	socket := filepath.Join(os.Getenv("PADDOCK_DIR"), "execd.sock")
	cause := ": connect: no such file or directory\nIs it not running? Start it: execd -dev " + filepath.Dir(socket) + " &\n"
	want(t, result{1, "", "Unable to initialize environment because of error: cannot reach execd at " + socket + cause + "Exiting.\n"},
		call(t, "true", "qsub"))
	for _, args := range [][]string{
		{"qstat"},
		{"qstat", "-j", "1"},
		{"qstat", "-f"},
		{"qstat", "-g", "c"},
		{"qdel", "1"},
		{"qhold", "1"},
		{"qrls", "1"},
		{"qmod", "-sj", "1"},
		{"qmod", "-s", "q"},
		{"qhost"},
		{"qselect"},
		{"qconf", "-sql"},
		{"qconf", "-reload"},
		{"qwait", "1"},
		{"qlog", "1"},
		{"qlog", "-f", "1"},
		{"qtop"},
	} {
		want(t, result{1, "", "error: cannot reach execd at " + socket + cause}, call(t, "", args...))
	}
}

// failing is a standard output on a full disk.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrInvalid }

func TestOutputCannotBeWritten(t *testing.T) {
	isolate(t)
	var errout bytes.Buffer
	exit := (&command.Program{Version: version, Tables: commands}).Run(t.Context(), []string{"qacct", "-f", "/dev/null"}, strings.NewReader(""), failing{}, &errout)
	if want := "qacct: cannot write standard output: invalid argument\n"; exit != 1 || errout.String() != want {
		t.Errorf("exit %d, %q; want 1, %q", exit, errout.String(), want)
	}
}
