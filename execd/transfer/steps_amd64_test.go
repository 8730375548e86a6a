package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// as returns a command of the stranger's, if root is there to start it, and makes a
// directory his with all that is in it.
func as(t testing.TB, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: stranger, Gid: stranger}
		must(t, os.Chmod(filepath.Dir(dir), 0o755))
		must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, stranger, stranger))
		}))
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

// receiver is a destination with a file in it, and streams of a tree to it.
type receiver struct {
	testing.TB
	from, to string
	memory   string // where to is
	full     []byte // the stream of all
	root     pack.Digest
	want     []string
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	r := &receiver{TB: t, from: t.TempDir(), memory: harness.Memory(t)}
	fill(t, r.from, noted+1000)
	full, p := packed(t, r.from, pack.Have{})
	r.full, r.root, r.want = full, p.root, r.list(r.from)
	return r
}

// again makes another destination in the place of the last. With begun, most of the stream has come. It returns
// what is to come.
func (r *receiver) again(begun bool) []byte {
	r.Helper()
	must(r, os.RemoveAll(r.to))
	var err error
	r.to, err = os.MkdirTemp(r.memory, "to")
	must(r, err)
	must(r, os.Chmod(r.to, 0o755))
	path := filepath.Join(r.to, "file")
	must(r, os.WriteFile(path, []byte("old"), 0o644))
	must(r, os.Chmod(path, 0o644))
	if !begun {
		return r.full
	}
	cmd := r.unpack(r.full[:len(r.full)-100])
	if cmd.Run() == nil {
		r.Fatal("half a stream is taken for a whole one")
	}
	return r.rest()
}

// list is [list] without the times of links, which not all file systems can set, so that unpack goes
// on when it cannot.
func (r *receiver) list(dir string) []string {
	r.Helper()
	lines := list(r, dir)
	for i, line := range lines {
		lines[i] = linkTime.ReplaceAllString(line, "$1")
	}
	return lines
}

var linkTime = regexp.MustCompile(`(" 120777) \S+`)

func (r *receiver) unpack(b []byte) *exec.Cmd {
	r.Helper()
	cmd := as(r, r.to, "unpack", "-id", someID, r.to)
	cmd.Stdin = stream(r, b)
	return cmd
}

func (r *receiver) have() pack.Have {
	r.Helper()
	out, err := as(r, r.to, "unpack", "-have", "-id", someID, r.to).Output()
	must(r, err)
	have, err := pack.ParseHave(string(out))
	must(r, err)
	return have
}

// rest returns what goes on behind what has come.
func (r *receiver) rest() []byte {
	r.Helper()
	b, p := packed(r, r.from, r.have())
	if p.root != r.root {
		r.Errorf("the root %v; want %v", p.root, r.root)
	}
	return b
}

// whole looks whether nothing is at the destination but what belongs there.
func (r *receiver) whole() {
	r.Helper()
	for _, line := range r.list(r.to) {
		dir := strings.Contains(line, `" 4`)
		if !strings.HasPrefix(line, `".paddock-`) && !strings.HasPrefix(line, `"file" 100644 `) && !dir && !slices.Contains(r.want, line) {
			r.Errorf("%s is at the destination", line)
		}
	}
}

// finish lets the rest come, and looks for all, but for the times of directories that
// were merged.
func (r *receiver) finish() {
	r.Helper()
	cmd := r.unpack(r.rest())
	var said bytes.Buffer
	cmd.Stderr = &said
	if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), "blake3:"+r.root.String()+" ") {
		r.Fatalf("%s, %v\n%s", out, err, said.String())
	}
	files := func(lines []string) []string {
		return slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.Contains(l, `" 4`) })
	}
	if got := files(r.list(r.to)); !slices.Equal(got, files(r.want)) {
		r.Errorf("there is %q; want %q", got, files(r.want))
	}
}

// Unpack is killed at each of its steps, in an attempt that begins and in one that goes
// on. What is at the destination then is whole; the next one goes on from there, and no
// more than a block is sent twice.
func TestFaultUnpackCrashAtEveryStep(t *testing.T) {
	first, every := harness.Steps(t, 3)
	r := newReceiver(t)
	for _, begun := range []bool{false, true} {
		for at, reached := first, true; reached; at += every {
			b := r.again(begun)
			cmd := r.unpack(b)
			reached = harness.Stepped(t, cmd, false, at, func(pid int) unix.Errno {
				must(t, unix.Kill(pid, unix.SIGKILL))
				return 0
			})
			taken, err := cmd.Stdin.(*os.File).Seek(0, io.SeekCurrent)
			must(t, err)
			r.whole()
			rest := r.rest()
			if twice := len(rest) - (len(b) - int(taken)); reached && r.have() != (pack.Have{}) && twice > noted+readAhead {
				t.Errorf("%d bytes are sent again", twice)
			}
			r.finish()
			if t.Failed() {
				t.Fatalf("begun %v, killed at step %d", begun, at)
			}
		}
	}
}

// Each step fails once. Unpack says so or gets by, and the next one has no trouble.
func TestFaultUnpackFailureOfEveryStep(t *testing.T) {
	first, every := harness.Steps(t, 3)
	r := newReceiver(t)
	for _, begun := range []bool{false, true} {
		for _, errno := range []unix.Errno{unix.ENOSPC, unix.EINTR} {
			if begun != (errno == unix.EINTR) && !harness.Soak {
				continue
			}
			for at, reached := first, true; reached; at += every {
				cmd := r.unpack(r.again(begun))
				said := stream(t, nil)
				cmd.Stderr = said
				reached = harness.Stepped(t, cmd, false, at, func(int) unix.Errno { return errno })
				r.whole()
				r.finish()
				if t.Failed() {
					text, _ := os.ReadFile(said.Name())
					t.Fatalf("begun %v, step %d fails with %v: %s", begun, at, errno, text)
				}
			}
		}
	}
}

// The owner of the destination swaps a directory for a link at each of the steps. Nothing
// is written where it leads to.
func TestFaultUnpackSwapAtEveryStep(t *testing.T) {
	first, every := harness.Steps(t, 3)
	r := newReceiver(t)
	const part = ".paddock-" + someID + ".part"
	paths := []string{part + "/tree/a", part + "/tree/a/b", part + "/tree", part + "/links", part, "a", "a/b"}
	for _, begun := range []bool{false, true} {
		for at, reached := first, true; reached; at += every {
			cmd := r.unpack(r.again(begun))
			victim := filepath.Join(t.TempDir(), "victim")
			must(t, os.Mkdir(victim, 0o777))
			must(t, os.Chmod(victim, 0o777))
			must(t, os.WriteFile(filepath.Join(victim, "mine"), nil, 0o666))
			before := list(t, victim)
			path := filepath.Join(r.to, paths[at/every%len(paths)])
			reached = harness.Stepped(t, cmd, true, at, func(int) unix.Errno {
				if os.Rename(path, path+".old") == nil {
					must(t, os.Symlink(victim, path))
					if os.Getuid() == 0 {
						must(t, os.Lchown(path, stranger, stranger))
					}
				}
				return 0
			})
			if after := list(t, victim); !slices.Equal(before, after) {
				t.Fatalf("begun %v, step %d, %s: the victim has %q; want %q", begun, at, path, after, before)
			}
		}
	}
}

// The owner of the source does that to pack, and nothing is sent from where it leads to.
func TestFaultPackSwapAtEveryStep(t *testing.T) {
	first, every := harness.Steps(t, 1)
	victim := t.TempDir()
	must(t, os.Chmod(victim, 0o755))
	must(t, os.Chmod(filepath.Dir(victim), 0o755))
	for _, name := range []string{"b/c/link", "b/readonly", "hole", "nothing", "\x01"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(victim, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(victim, name), []byte("secret"), 0o644))
	}
	memory := harness.Memory(t)
	for _, name := range []string{"a", "a/b", "a/b/readonly", "a/hole", "odd \n\xff"} {
		for at, reached := first, true; reached; at += every {
			from, err := os.MkdirTemp(memory, "from") //nolint:usetesting // thousands of files
			must(t, err)
			fill(t, from, 1000)
			cmd := as(t, from, "pack", from)
			out := stream(t, nil)
			cmd.Stdout = out
			reached = harness.Stepped(t, cmd, true, at, func(int) unix.Errno {
				path := filepath.Join(from, name)
				must(t, os.Rename(path, path+".old"))
				must(t, os.Symlink(filepath.Join(victim, strings.TrimPrefix(name, "a")), path))
				return 0
			})
			text, err := os.ReadFile(out.Name())
			must(t, err)
			if bytes.Contains(text, []byte("secret")) {
				t.Fatalf("%q is swapped at step %d: what it leads to is sent", name, at)
			}
		}
	}
}

// readAhead is what a process has read ahead, and how a stream begins.
const readAhead = pack.MaxRecord + 16<<10
