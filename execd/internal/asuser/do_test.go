package asuser

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"paddock/execd/internal/user"
)

// fakeShepherd writes a program that is asked in the shepherd's place. No
// process is forked meanwhile: it would hold the file open for writing.
func fakeShepherd(t *testing.T, text string) *Starter {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shepherd")
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return &Starter{Shepherd: path}
}

func TestTail(t *testing.T) {
	owner := &user.User{Name: "alice", UID: 1001, GID: 100, Groups: []int{100, 200}}
	s := fakeShepherd(t, `[ $# = 7 ] && echo "$@" && env`)
	got, err := s.Tail(t.Context(), owner, "/home/a b", 200)
	if want := "-as-user 1001 100 100,200 -tail 200 /home/a b\n"; err != nil || !strings.HasPrefix(string(got), want) || strings.Contains(string(got), "HOME=") {
		t.Errorf("Tail = %q, %v; want %q with no environment of ours", got, err, want)
	}
	s = fakeShepherd(t, "echo 123456789; echo no >&2; exit 1")
	if _, err := s.Tail(t.Context(), owner, "/x", 5); err == nil || !strings.Contains(err.Error(), `"/x"`) || !strings.Contains(err.Error(), "no") {
		t.Errorf("Tail = %v; want the path and why", err)
	}
	s = fakeShepherd(t, "echo 123456789; echo more")
	if got, err := s.Tail(t.Context(), owner, "/x", 5); string(got) != "12345" || err != nil {
		t.Errorf("Tail = %q, %v; want no more than was asked for", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fakeShepherd(t, "exec cat /dev/zero").Tail(ctx, owner, "/x", 5); err == nil {
		t.Error("Tail = nil; want an end with its context")
	}
}

// What is written as a user goes through the shepherd's standard input.
func TestWriteAs(t *testing.T) {
	owner := &user.User{Name: "alice", UID: 1001, GID: 100, Groups: []int{100, 200}}
	out := filepath.Join(t.TempDir(), "out")
	s := fakeShepherd(t, `(echo "$@"; cat) >>`+out)
	if err := s.AppendAs(t.Context(), owner, "/home/a b", []byte("record\n")); err != nil {
		t.Error(err)
	}
	if err := s.WriteAs(t.Context(), owner, "/home/ad", []byte("ad\n")); err != nil {
		t.Error(err)
	}
	want := "-as-user 1001 100 100,200 -append /home/a b\nrecord\n-as-user 1001 100 100,200 -write /home/ad\nad\n"
	if got, err := os.ReadFile(out); string(got) != want || err != nil {
		t.Errorf("the shepherd was asked %q, %v; want %q", got, err, want)
	}
	refused, full, odd := fakeShepherd(t, "echo shepherd: no >&2; exit 1"), fakeShepherd(t, "echo full >&2; exit 75"), fakeShepherd(t, "echo; echo odd; echo more >&2; exit 3")
	for what, err := range map[string]error{
		"no":                  refused.AppendAs(t.Context(), owner, "/x", []byte("a")),
		"full":                full.WriteAs(t.Context(), owner, "/x", []byte("a")),
		"exit status 3: more": odd.WriteAs(t.Context(), owner, "/x", []byte("a")),
		`cannot write "/y": more than 1048576 bytes`: refused.WriteAs(t.Context(), owner, "/y",
			make([]byte, MaxWrite+1)),
	} {
		if err == nil || err.Error() != what || errors.Is(err, ErrRefused) != (what == "no") {
			t.Errorf("%v; want %s", err, what)
		}
	}
}

// What was written stays written, though somebody else holds the shepherd's standard
// error: who is told of a failure writes it once more.
func TestWriteAsHeldOpen(t *testing.T) {
	dir := t.TempDir()
	s := fakeShepherd(t, "cat; exec >/dev/null; sleep 1000 & echo $! >"+dir+"/pid")
	defer func() {
		text, _ := os.ReadFile(filepath.Join(dir, "pid"))
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || syscall.Kill(pid, syscall.SIGKILL) != nil {
			t.Errorf("cannot kill %q: %v", text, err)
		}
	}()
	if err := s.AppendAs(t.Context(), &user.User{Name: "alice", UID: 1001, GID: 100}, "/x", []byte("a")); err != nil {
		t.Error(err)
	}
}

// A process that does not even die by SIGKILL, as in a file system that hangs, is
// not waited for longer than its time.
func TestOutlived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		gone, err := outlived(ctx, make(chan error))
		if d := time.Since(began); gone || !errors.Is(err, context.DeadlineExceeded) || d != time.Minute+lastWait {
			t.Errorf("after %v: gone=%t, %v; want an error after %v", d, gone, err, time.Minute+lastWait)
		}
		ended := make(chan error, 1)
		ended <- nil
		if gone, err := outlived(ctx, ended); !gone || err != nil {
			t.Errorf("one that has ended: gone=%t, %v", gone, err)
		}
	})
}
