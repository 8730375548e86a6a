// Package qtest calls commands in tests, with a stand-in for execd. Only
// tests import it.
package qtest

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
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
)

// Execd is a stand-in for the daemon: a real socket, and a function for each verb.
type Execd struct {
	Dir  string
	mu   sync.Mutex
	Seen map[string][]json.RawMessage // guarded by mu
	// verbs return a status and a body for a request; guarded by mu.
	verbs map[string]func(body []byte) (int, any)
	*httptest.Server
}

// NewExecd starts a stand-in and points the commands at it, in a directory and
// a home of their own and with no variables that they could take for options.
func NewExecd(t testing.TB) *Execd {
	t.Helper()
	Isolate(t)
	e := &Execd{Dir: os.Getenv("PADDOCK_DIR"), Seen: map[string][]json.RawMessage{}, verbs: map[string]func([]byte) (int, any){}}
	e.listen(t)
	t.Cleanup(func() { e.Close() })
	return e
}

// Isolate gives the commands a directory and a home of their own, and no variables
// that they could take for options.
func Isolate(t testing.TB) {
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

func (e *Execd) listen(t testing.TB) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(e.Dir, "execd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	e.Server.Listener.Close()
	e.Server.Listener = l
	e.Server.Start()
}

func (e *Execd) serve(w http.ResponseWriter, r *http.Request) {
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
	e.Seen[verb] = append(e.Seen[verb], body.Bytes())
	e.mu.Unlock()
	status, reply := answer(body.Bytes())
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(reply) // the test sees what came of it
}

// On sets what a verb does; nil: it is not there.
func (e *Execd) On(verb string, do func(body []byte) (int, any)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.verbs[verb] = do
}

// Replies makes a verb answer with these, one after the other, and then with
// the last one again.
func (e *Execd) Replies(verb string, list ...any) {
	n := 0 // guarded by e.mu
	e.On(verb, func([]byte) (int, any) {
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

// Forget drops the requests so far.
func (e *Execd) Forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Seen = map[string][]json.RawMessage{}
}

// Last decodes the last request of a verb.
func Last[T any](t *testing.T, e *Execd, verb string) T {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	var request T
	list := e.Seen[verb]
	if len(list) == 0 {
		t.Fatalf("no request %s", verb)
	}
	if err := json.Unmarshal(list[len(list)-1], &request); err != nil {
		t.Fatal(err)
	}
	return request
}

// Result is what a command left.
type Result struct {
	Exit     int
	Out, Err string
}

// Want compares what a command left with what it should have left.
func Want(t *testing.T, want, got Result) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Write writes a file.
func Write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Call calls a command of a program.
func Call(t *testing.T, p *command.Program, stdin string, args ...string) Result {
	t.Helper()
	var out, errout bytes.Buffer
	exit := p.Run(t.Context(), args, strings.NewReader(stdin), &out, &errout)
	return Result{exit, out.String(), errout.String()}
}

// Asked gathers the requests of a verb, and answers them with reply.
func Asked[T any](t *testing.T, e *Execd, verb string, reply any) func() []T {
	t.Helper()
	var mu sync.Mutex
	var list []T // guarded by mu
	e.On(verb, func(body []byte) (int, any) {
		var request T
		if err := json.Unmarshal(body, &request); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		list = append(list, request)
		return 200, reply
	})
	return func() []T {
		mu.Lock()
		defer mu.Unlock()
		got := list
		list = nil
		return got
	}
}

// UTC makes the tables show UTC.
func UTC(t *testing.T) {
	t.Helper()
	old := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = old })
}
