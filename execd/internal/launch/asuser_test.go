package launch

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"paddock/execd/internal/user"
)

// fakeShepherd writes a program that is asked in the shepherd's place. No
// process is forked meanwhile: it would hold the file open for writing.
func fakeShepherd(t *testing.T, text string) *Launcher {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shepherd")
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return &Launcher{Shepherd: "/no/shepherd/of/ours", OwnShepherd: path}
}

func TestTail(t *testing.T) {
	owner := &user.User{Name: "alice", UID: 1001, GID: 100, Groups: []int{100, 200}}
	l := fakeShepherd(t, `[ $# = 7 ] && echo "$@" && env`)
	got, err := l.Tail(t.Context(), owner, "/home/a b", 200)
	if want := "-as-user 1001 100 100,200 -tail 200 /home/a b\n"; err != nil || !strings.HasPrefix(string(got), want) || strings.Contains(string(got), "HOME=") {
		t.Errorf("Tail = %q, %v; want %q with no environment of ours", got, err, want)
	}
	l = fakeShepherd(t, "echo 123456789; echo no >&2; exit 1")
	if _, err := l.Tail(t.Context(), owner, "/x", 5); err == nil || !strings.Contains(err.Error(), `"/x"`) || !strings.Contains(err.Error(), "no") {
		t.Errorf("Tail = %v; want the path and why", err)
	}
	l = fakeShepherd(t, "echo 123456789; echo more")
	if got, err := l.Tail(t.Context(), owner, "/x", 5); string(got) != "12345" || err != nil {
		t.Errorf("Tail = %q, %v; want no more than was asked for", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fakeShepherd(t, "exec cat /dev/zero").Tail(ctx, owner, "/x", 5); err == nil {
		t.Error("Tail = nil; want an end with its context")
	}
}
