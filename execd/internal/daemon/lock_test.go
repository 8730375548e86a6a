package daemon

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"paddock/spool"
	"paddock/spool/atomicfile"
)

// What an execd was starting when it was killed has its lock for as long as the
// host takes: the next one waits for it, but not for an execd that runs.
func TestLockOfTheDead(t *testing.T) {
	const nobody = 1 << 30 // no process has such a number
	for _, tt := range []struct {
		name string
		pid  int // in the file; 0: there is none
		want error
	}{
		{"killed", nobody, nil},
		{"runs", os.Getpid(), ErrRunning},
		{"starts", 0, ErrRunning},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, err := spool.OpenRoot(t.TempDir(), true)
			if err != nil {
				t.Fatal(err)
			}
			if tt.pid > 0 {
				if err := atomicfile.Write(root.Path(spool.FileExecdPID), spool.AppendNumber(nil, tt.pid), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				held, err := lockSpool(root)
				if err != nil {
					t.Fatal(err)
				}
				defer held.Close()
				time.AfterFunc(30*time.Second, func() { held.Close() })
				lock, err := lockSpool(root)
				if !errors.Is(err, tt.want) {
					t.Errorf("lockSpool = %v; want %v", err, tt.want)
				}
				if err == nil {
					lock.Close()
				}
			})
		})
	}
}

// The number of an execd that was killed may be another's by now.
func TestLastIsGone(t *testing.T) {
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	path := root.Path(spool.FileExecdPID)
	if err := atomicfile.Write(path, spool.AppendNumber(nil, os.Getpid()), 0o644); err != nil {
		t.Fatal(err)
	}
	if lastIsGone(root) {
		t.Error("the process of the file is there, and is taken to be gone")
	}
	then := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
	if !lastIsGone(root) {
		t.Error("a process that is younger than the file is taken for the one that wrote it")
	}
}
