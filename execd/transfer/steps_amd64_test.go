package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/pack"
	"paddock/test/harness"
)

// Somebody who is not root, and whom no other test uses.
const stranger = 64124

// as returns a command of the stranger's, if root is there to start it, and makes the
// directory his.
func as(t testing.TB, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: stranger, Gid: stranger}
		must(t, os.Chown(dir, stranger, stranger))
		must(t, os.Chmod(filepath.Dir(dir), 0o755))
	}
	return cmd
}

// stream is a file that has a stream in it.
func stream(t testing.TB, b []byte) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "stream")
	must(t, err)
	t.Cleanup(func() { f.Close() })
	_, err = f.Write(b)
	must(t, err)
	_, err = f.Seek(0, io.SeekStart)
	must(t, err)
	return f
}

// It is killed at each of its steps, in an attempt that begins and in one that goes on.
// What is at the destination then is whole; the next one goes on from there, and no more
// than a block is sent twice.
func TestUnpackCrashAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a process for every step")
	}
	from := t.TempDir()
	fill(t, from, pack.MaxBlock+1000)
	full, p := packed(t, from, pack.Have{})
	want := list(t, from)
	for _, begun := range []bool{false, true} {
		for at, reached := 1, true; reached; at++ {
			to := t.TempDir()
			must(t, os.WriteFile(filepath.Join(to, "file"), []byte("old"), 0o644))
			must(t, os.Chmod(filepath.Join(to, "file"), 0o644))
			if os.Getuid() == 0 {
				must(t, os.Chown(filepath.Join(to, "file"), stranger, stranger))
			}
			have, b := func() pack.Have {
				cmd := as(t, to, "unpack", "-have", "-id", someID, to)
				out, err := cmd.Output()
				must(t, err)
				have, err := pack.ParseHave(string(out))
				must(t, err)
				return have
			}, full
			if begun {
				cmd := as(t, to, "unpack", "-id", someID, to)
				cmd.Stdin = stream(t, full[:len(full)-100])
				if cmd.Run() == nil {
					t.Fatal("half a stream is taken for a whole one")
				}
				b, _ = packed(t, from, have())
			}
			cmd := as(t, to, "unpack", "-id", someID, to)
			in := stream(t, b)
			cmd.Stdin = in
			reached = harness.Stepped(t, cmd, false, at, func(pid int) unix.Errno {
				must(t, unix.Kill(pid, unix.SIGKILL))
				return 0
			})
			taken, err := in.Seek(0, io.SeekCurrent)
			must(t, err)
			for _, line := range list(t, to) {
				if !strings.HasPrefix(line, `".paddock-`) && !strings.HasPrefix(line, `"file" 100644 `) && !slices.Contains(want, line) && !strings.Contains(line, `" 4`) {
					t.Errorf("killed at step %d: %s is at the destination", at, line)
				}
			}
			rest, again := packed(t, from, have())
			if twice := len(rest) - (len(b) - int(taken)); !begun && reached && have() != (pack.Have{}) && twice > pack.MaxBlock+bufferSlack {
				t.Errorf("killed at step %d: %d bytes are sent again", at, twice)
			}
			if again.root != p.root {
				t.Errorf("killed at step %d: the root %v; want %v", at, again.root, p.root)
			}
			cmd = as(t, to, "unpack", "-id", someID, to)
			cmd.Stdin = stream(t, rest)
			var said bytes.Buffer
			cmd.Stderr = &said
			if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), "sha256:"+p.root.String()+" ") {
				t.Fatalf("killed at step %d, and then: %s, %v\n%s", at, out, err, said.String())
			}
			wantArrived(t, want, to)
			if t.Failed() {
				t.Fatalf("begun %v, killed at step %d", begun, at)
			}
		}
	}
}

// bufferSlack is what a process has read ahead, and how a stream begins.
const bufferSlack = 80 << 10

// wantArrived looks whether a tree has arrived, but for the times of directories that
// were merged.
func wantArrived(t testing.TB, want []string, to string) {
	t.Helper()
	files := func(lines []string) []string {
		return slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.Contains(l, `" 4`) })
	}
	if got := files(list(t, to)); !slices.Equal(got, files(want)) {
		t.Errorf("there is %q; want %q", got, files(want))
	}
}
