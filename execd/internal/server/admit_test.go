package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/spool"
	"paddock/spool/atomicfile"
	"paddock/test/harness"
)

// submitAs submits a good job as whoever the kernel would have named.
func submitAs(t *testing.T, s *Server, uid int, change func(*api.SubmitRequest)) (api.SubmitReply, error) {
	t.Helper()
	req := good()
	if change != nil {
		change(&req)
	}
	body, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	in := &incoming{
		uid: uid, body: bytes.NewReader(body), size: int64(len(body)), limit: int64(len(body)), admission: s.admission, gate: &s.admission.submits,
	}
	defer in.done()
	reply, err := verbs[api.VerbSubmit].handle(s, t.Context(), job.Caller{UID: uid, Name: fmt.Sprint("u", uid)}, in)
	sub, _ := reply.(api.SubmitReply)
	return sub, err
}

// rooted is a server in root mode, with a configuration.
func rooted(t *testing.T, c *conf.Config) *Server {
	t.Helper()
	s, _ := newServer(t)
	s.OwnerOnly, s.Config, s.admission = -1, func() *conf.Config { return c }, newAdmission()
	return s
}

func TestAdmission(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	group, err := user.LookupGroupId(me.Gid)
	if err != nil {
		t.Fatal(err)
	}
	lists := map[string]*conf.UserList{
		"me":    {Name: "me", ACL: true, Entries: []string{me.Username}},
		"mine":  {Name: "mine", ACL: true, Entries: []string{"@" + group.Name}},
		"other": {Name: "other", ACL: true, Entries: []string{"somebody-else"}},
	}
	notAllowed := "job rejected: " + me.Username + "@h is not allowed to submit jobs"
	tasks := func(first, last, step int) func(*api.SubmitRequest) {
		return func(r *api.SubmitRequest) { r.Tasks = api.Tasks{First: first, Last: last, Step: step} }
	}
	for _, tt := range []struct {
		name   string
		global conf.Global
		change func(*api.SubmitRequest)
		want   string // empty: accepted
	}{
		{"nothing set", conf.Global{}, nil, ""},
		{"on the list", conf.Global{UserLists: []string{"other", "me"}}, nil, ""},
		{"group on the list", conf.Global{UserLists: []string{"mine"}}, nil, ""},
		{"not on the list", conf.Global{UserLists: []string{"other"}}, nil, notAllowed},
		{"banned", conf.Global{UserLists: []string{"me"}, XUserLists: []string{"mine"}}, nil, notAllowed},
		{"others are banned", conf.Global{XUserLists: []string{"other"}}, nil, ""},
		{"min_gid", conf.Global{MinGID: os.Getgid() + 1}, nil, "is lower than minimum group id"},
		{"as many tasks as there may be", conf.Global{MaxTasks: 10}, tasks(2, 20, 2), ""},
		{"too many tasks", conf.Global{MaxTasks: 10}, tasks(1, 11, 1), "job rejected: you tried to submit a job with more than 10 tasks"},
		{"no array", conf.Global{MaxTasks: 1}, nil, ""},
	} {
		s := rooted(t, &conf.Config{Global: tt.global, UserLists: lists})
		_, err := submitAs(t, s, os.Getuid(), tt.change)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
	}
}

// The limit is on submissions, whatever becomes of them, and is a user's own.
func TestSubmitRate(t *testing.T) {
	// By the clock of a bubble, which stands while they are written.
	synctest.Test(t, func(t *testing.T) {
		s := rooted(t, &conf.Config{Global: conf.Global{SubmitRate: 1}})
		const burst = 10
		for i := range burst {
			if _, err := submitAs(t, s, os.Getuid(), nil); err != nil {
				t.Fatalf("job %d: %v", i, err)
			}
		}
		_, err := submitAs(t, s, os.Getuid(), nil)
		e, ok := errors.AsType[*api.Error](err)
		want := fmt.Sprintf("job rejected: user u%d submits more than 1 jobs a second; try again in 1 s", os.Getuid())
		if !ok || e.Code != api.CodeLimit || e.Text != want {
			t.Errorf("job %d at once: %v; want %q", burst+1, err, want)
		}
		if _, err := submitAs(t, s, 1, nil); err != nil {
			t.Errorf("another user: %v", err)
		}
	})
}

// Records that cannot be written hold up who submits them. Whoever comes
// behind a flood of another user's is not behind it.
func TestFloodDelaysNobodyElse(t *testing.T) {
	s := rooted(t, &conf.Config{})
	var mu sync.Mutex
	begun := map[string]bool{}
	blocked := make(chan struct{})
	defer atomicfile.Inject(func(op atomicfile.Op, path string) error {
		if op == atomicfile.OpCreate && filepath.Base(filepath.Dir(path)) == spool.DirJobs {
			mu.Lock()
			begun[filepath.Base(path)] = true
			mu.Unlock()
			<-blocked
		}
		return nil
	})()
	// Users that every system has.
	const flooder, other, flood = 1, 2, 300
	results := make(chan error, flood)
	number := make(chan int, 1)
	var wg sync.WaitGroup
	release := sync.OnceFunc(func() { close(blocked); wg.Wait() })
	defer release()
	for range flood {
		wg.Go(func() {
			_, err := submitAs(t, s, flooder, nil)
			results <- err
		})
	}
	reach := func(what string, ok func() bool) {
		t.Helper()
		if err := harness.WaitFor(harness.Patience, what, func() (bool, error) { return ok(), nil }); err != nil {
			t.Fatal(err)
		}
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(begun)
	}
	reach("the flood", func() bool {
		return count() == maxUserSubmits && s.admission.submits.Waiting(flooder) == flood-maxUserSubmits
	})
	wg.Go(func() {
		reply, err := submitAs(t, s, other, nil)
		if err != nil {
			t.Error(err)
		}
		number <- reply.Job
	})
	reach("the other user's job", func() bool { return count() == maxUserSubmits+1 })
	release()
	if got := <-number; got != maxUserSubmits+1 {
		t.Errorf("the other user's job is number %d; want %d: those of the flood that were under way come first, and no more", got, maxUserSubmits+1)
	}
	for range flood {
		if err := <-results; err != nil {
			t.Fatalf("of the flood: %v", err)
		}
	}
	if s.admission.submits.Waiting(flooder) != 0 {
		t.Error("somebody waits still")
	}
}
