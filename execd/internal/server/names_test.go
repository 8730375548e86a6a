package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/user"
	"paddock/test/harness"
)

// Who was known an hour ago sees the jobs while the name services do not answer.
func TestJobsWithoutNameServices(t *testing.T) {
	dir := t.TempDir()
	answer := filepath.Join(dir, "answer")
	for name, text := range map[string]string{
		"getent": "if test -e " + answer + "; then read line <" + answer + "; fi; exec /usr/bin/getent \"$@\"\n",
		"id":     "exec /usr/bin/id \"$@\"\n",
	} {
		if err := harness.WriteExecutable(filepath.Join(dir, name), "#!/bin/sh\n"+text); err != nil {
			t.Fatal(err)
		}
	}
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
