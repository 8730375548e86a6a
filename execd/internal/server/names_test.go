package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/user"
	"paddock/test/harness"
)

// nameServices puts scripts into a directory that answer as the name services do.
func nameServices(t *testing.T, dir, getent, id string) {
	t.Helper()
	for name, text := range map[string]string{"getent": getent, "id": id} {
		if err := harness.WriteExecutable(filepath.Join(dir, name), "#!/bin/sh\n"+text); err != nil {
			t.Fatal(err)
		}
	}
}

// Who was known an hour ago sees the jobs while the name services do not answer.
func TestJobsWithoutNameServices(t *testing.T) {
	dir := t.TempDir()
	answer := filepath.Join(dir, "answer")
	nameServices(t, dir, "if test -e "+answer+"; then read line <"+answer+"; fi; exec /usr/bin/getent \"$@\"\n", "exec /usr/bin/id \"$@\"\n")
	c := serve(t, func(s *Server) { s.Users = &user.Directory{Keep: 1, Path: dir} })
	jobs := func() error {
		return c.Jobs(t.Context(), &api.JobsRequest{}, func(*api.JobStatus) {})
	}
	if err := jobs(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(answer, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := jobs(); err != nil {
		t.Errorf("without the name services: %v", err)
	}
	// Whoever asks is let go.
	f, err := os.OpenFile(answer, os.O_RDWR, 0)
	if err == nil {
		defer f.Close()
		_, err = f.WriteString("\n\n\n\n")
	}
	if err = errors.Join(err, os.Remove(answer)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Jobs(ctx, &api.JobsRequest{}, func(*api.JobStatus) {}); err != nil {
		t.Error(err)
	}
}

// A name may be another user's, or a number, while the name services do not answer: it
// gives nobody the rights of a manager or an operator, or the right to claim slots.
func TestRightsWithoutNameServices(t *testing.T) {
	const uid = 54321
	dir := t.TempDir()
	fails := filepath.Join(dir, "fails")
	nameServices(t, dir, "test -e "+fails+" && exit 1; echo alice:x:54321:54321::/:/bin/sh\n", "echo 54321\n")
	s := withKnobs(t, "CLAIM_USERS = alice\n")
	config := *s.Config()
	s.Config = func() *conf.Config { return &config }
	s.Users = &user.Directory{Keep: 1, Path: dir}
	ctx := context.WithValue(t.Context(), peerKey{}, &unix.Ucred{Uid: uid, Gid: uid})
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody)
	for _, failing := range []bool{false, true, false} {
		if failing {
			if err := os.WriteFile(fails, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Remove(fails); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		config.Managers, config.Operators = nil, nil
		c, err := s.caller(request, true)
		if denied := s.Programs.MayClaim(c); err != nil || c.Name != "alice" || (denied != nil) != failing {
			t.Errorf("the name services fail: %t: %+v, %v; claims: %v", failing, c, err, denied)
		}
		config.Managers, config.Operators = []string{"alice"}, []string{"alice"}
		if c, err = s.caller(request, true); err != nil || c.Manager == failing || c.Operator == failing {
			t.Errorf("the name services fail: %t: %+v, %v", failing, c, err)
		}
	}
}

// A manager who changes something while the name services are slow is waited for, and
// refused nothing; one who looks is not held up.
func TestRightsWithSlowNameServices(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	answer := filepath.Join(dir, "answer")
	nameServices(t, dir, "test ! -e "+answer+" || read x <"+answer+"\necho alice:x:54321:54321::/:/bin/sh\n", "echo 54321\n")
	s := withKnobs(t, "")
	config := *s.Config()
	config.Managers = []string{"alice"}
	s.Config = func() *conf.Config { return &config }
	s.Users = &user.Directory{Keep: 1, Path: dir}
	ctx := context.WithValue(t.Context(), peerKey{}, &unix.Ucred{Uid: 54321, Gid: 54321})
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody)
	if c, err := s.caller(request, false); err != nil || !c.Manager {
		t.Fatalf("%+v, %v; want a manager", c, err)
	}
	if err := unix.Mkfifo(answer, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(answer, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if c, err := s.caller(request, false); err != nil || c.Manager || c.Name != "alice" {
		t.Errorf("while they are slow: %+v, %v; want who he was, without rights", c, err)
	}
	done := make(chan job.Caller, 1)
	go func() {
		c, err := s.caller(request, true)
		if err != nil {
			t.Error(err)
		}
		done <- c
	}()
	select {
	case c := <-done:
		t.Errorf("%+v before they have answered", c)
	case <-time.After(1500 * time.Millisecond): // more than who looks waits
	}
	if _, err := f.WriteString("\n\n\n\n\n\n"); err != nil {
		t.Fatal(err)
	}
	if c := <-done; !c.Manager {
		t.Errorf("%+v; want a manager", c)
	}
}
