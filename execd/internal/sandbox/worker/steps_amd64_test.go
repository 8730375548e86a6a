package worker

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/sandbox/order"
	"paddock/test/harness"
)

// stepped runs a worker with a debugger, and calls do before its step at, which
// it may have fail by returning an error number. It reports whether
// the step was reached, and the worker's last word, nil if it had none.
func (r *rig) stepped(o *order.Orders, opens bool, at int, do func(pid int) unix.Errno) (reached bool, last *order.Result) {
	r.Helper()
	o.ID, o.Base, o.Root = r.id, r.home, r.owner.UID == 0
	text, err := o.Encode()
	r.must(err)
	in, err := os.CreateTemp(r.TempDir(), "orders")
	r.must(err)
	defer in.Close()
	_, err = in.Write(text)
	r.must(err)
	_, err = in.Seek(0, 0)
	r.must(err)
	out, err := os.CreateTemp(r.TempDir(), "report")
	r.must(err)
	defer out.Close()
	files, err := openDir(r.dir, order.DirFiles)
	r.must(err)
	defer files.Close()
	say, err := openDir(r.dir, order.DirSay)
	r.must(err)
	defer say.Close()

	cmd := exec.Command(program, "copy")
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.Stdin, cmd.ExtraFiles = in, []*os.File{in, out, files, say}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(r.owner.UID), Gid: uint32(r.owner.GID)}
	}
	reached = harness.Stepped(r, cmd, opens, at, do)
	text, err = os.ReadFile(out.Name())
	r.must(err)
	for l := range strings.Lines(string(text)) {
		var line order.Line
		if json.Unmarshal([]byte(l), &line) == nil && line.Result != nil {
			last = line.Result
		}
	}
	return reached, last
}

// full makes a sandbox with something of everything, and returns the destination and
// what is to be in it.
func full(t *testing.T, far bool) (r *rig, o *order.Orders, to string, want []string) {
	r = newRigIn(t, harness.Memory(t))
	r.put(r.home, "data/a", "data/b")
	r.ok(bring(order.Named{From: "data"}))
	r.put(r.files(), "new", "link>new", "data/new", "there/added", "there/deep/x", "empty/", "set/up", "p|", "one")
	r.must(os.Link(filepath.Join(r.files(), "one"), filepath.Join(r.files(), "set/two")))
	r.must(os.WriteFile(filepath.Join(r.files(), "data/b"), []byte("changed"), 0))
	to = filepath.Join(r.home, "out")
	if far {
		r.elsewhere()
		to = filepath.Join(r.other, "out")
	}
	r.mine(to)
	r.put(to, "there/old", "there/deep/old", "there/added", "data/mine")
	r.must(os.WriteFile(filepath.Join(to, "there/added"), []byte("old"), 0))
	want = []string{
		"new", "link>new", "data/new", "data/b=changed", "data/mine", "there/added", "there/old",
		"there/deep/old", "there/deep/x", "empty/", "set/up", "one", "set/two=one",
	}
	return r, send(order.Send{Select: order.All, To: to}), to, want
}

// A worker is killed at each of its steps. What is at the destination then is whole, and
// the next one goes on from there, in the same boot or in another one that has lost all
// that was not synced.
func TestFaultCrashAtEveryStep(t *testing.T) {
	first, every := harness.Steps(t, 3)
	for _, far := range []bool{false, true} {
		for _, reboot := range []bool{false, true} {
			if far != reboot && !harness.Soak {
				continue
			}
			t.Run(fmt.Sprintf("far %v, reboot %v", far, reboot), func(t *testing.T) {
				for at, reached := first, true; reached; at += every {
					r, o, to, want := full(t, far)
					reached, _ = r.stepped(o, false, at, func(pid int) unix.Errno {
						r.must(unix.Kill(pid, unix.SIGKILL))
						return 0
					})
					part := filepath.Join(to, ".paddock-"+r.id+".part")
					for _, name := range r.tree(to) {
						if !strings.HasPrefix(name, ".paddock-") && !slices.Contains(want, name) && name != "there/added=old" {
							t.Errorf("killed at step %d: %q is at the destination", at, name)
						}
					}
					if reboot {
						r.lose(part)
					}
					if _, err := r.copy(o); err != nil {
						t.Fatalf("killed at step %d, and then: %v", at, err)
					}
					r.want(to, want...)
					if t.Failed() {
						t.Fatalf("killed at step %d", at)
					}
				}
			})
		}
	}
}

// lose does to what was gathered what a power cut may: what was copied and not synced has
// its size and its time, and nothing in it.
func (r *rig) lose(part string) {
	r.Helper()
	if _, err := os.Stat(filepath.Join(part, "boot")); err != nil {
		return
	}
	r.must(os.WriteFile(filepath.Join(part, "boot"), []byte("another"), 0o600))
	if _, err := os.Stat(filepath.Join(part, "commit")); err == nil {
		return // all of it was synced
	}
	tree := filepath.Join(part, "tree")
	for _, name := range r.tree(tree) {
		name, _, _ = strings.Cut(name, "=")
		path := filepath.Join(tree, name)
		st, err := os.Lstat(path)
		if _, there := os.Lstat(filepath.Join(r.files(), name)); err != nil || !st.Mode().IsRegular() || there != nil {
			continue
		}
		r.must(os.WriteFile(path, make([]byte, st.Size()), 0))
		r.must(os.Chtimes(path, st.ModTime(), st.ModTime()))
	}
}

// Each step fails once. The worker says so or gets by, and the next one has no trouble.
func TestFaultFailureOfEveryStep(t *testing.T) {
	first, every := harness.Steps(t, 3)
	for _, far := range []bool{false, true} {
		for _, errno := range []unix.Errno{unix.ENOSPC, unix.EINTR} {
			if far != (errno == unix.ENOSPC) && !harness.Soak {
				continue
			}
			t.Run(fmt.Sprintf("far %v, %v", far, errno), func(t *testing.T) {
				for at, reached := first, true; reached; at += every {
					r, o, to, want := full(t, far)
					var last *order.Result
					reached, last = r.stepped(o, false, at, func(int) unix.Errno { return errno })
					switch {
					case last == nil:
						// The Go runtime reads the size of a page before there is a main.
						t.Logf("step %d fails: no word", at)
					case last.OK:
						r.want(to, want...)
					case last.Permanent != (errno == unix.ENOSPC) && unix.Errno(last.Errno) == errno:
						t.Errorf("step %d: %+v", at, last)
					}
					if _, err := r.copy(o); err != nil {
						t.Fatalf("step %d fails (%+v), and then: %v", at, last, err)
					}
					r.want(to, want...)
					if t.Failed() {
						t.Fatalf("step %d fails: %+v", at, last)
					}
				}
			})
		}
	}
}

// The owner swaps a directory for a link at each of the steps. Nothing is read from where
// the link leads to, and nothing written there.
func TestFaultSwapAtEveryStep(t *testing.T) {
	first, every := harness.Steps(t, 3)
	paths := []string{
		"SANDBOX/files/there/deep", "SANDBOX/files/data", "SANDBOX/files", "TO/PART/tree/there", "TO/PART/tree/data",
		"TO/PART/tree", "TO/PART/links", "TO/PART", "TO/there", "TO/there/deep",
	}
	for _, far := range []bool{false, true} {
		for shift := range paths {
			t.Run(fmt.Sprintf("far %v, %d", far, shift), func(t *testing.T) {
				for at, reached := first, true; reached; at += every {
					r, o, to, _ := full(t, far)
					victim := filepath.Join(r.home, "victim")
					r.mine(victim)
					r.put(victim, "secret", "deep/secret", "added")
					before := r.tree(victim)
					path := paths[(shift+at)%len(paths)]
					path = strings.NewReplacer("SANDBOX", r.dir, "TO", to, "PART", ".paddock-"+r.id+".part").Replace(path)
					reached, _ = r.stepped(o, true, at, func(int) unix.Errno {
						if os.Rename(path, path+".old") == nil {
							r.must(os.Symlink(victim, path))
							r.own(path)
						}
						return 0
					})
					if after := r.tree(victim); !slices.Equal(before, after) {
						t.Fatalf("step %d, %s: the victim has %q; want %q", at, path, after, before)
					}
					for _, name := range r.tree(to) {
						if strings.Contains(name, "secret") {
							t.Fatalf("step %d, %s: %q has arrived", at, path, name)
						}
					}
				}
			})
			if !harness.Soak {
				break // each step with one of them
			}
		}
	}
}

// A worker is killed at each of its steps that brings to its place what another host has sent. What
// was written to a standard stream is appended once.
func TestFaultCrashBeside(t *testing.T) {
	first, every := harness.Steps(t, 3)
	for at, reached := first, true; reached; at += every {
		r := newRig(t)
		to, land := r.pulled("a", "d/b", api.NameStdout)
		r.put(r.home, "o")
		o := land()
		o.ID, o.Base, o.Root = r.id, r.home, r.owner.UID == 0
		reached, _ = r.stepped(o, false, at, func(pid int) unix.Errno {
			r.must(unix.Kill(pid, unix.SIGKILL))
			return 0
		})
		if _, err := r.copy(o); err != nil {
			t.Fatalf("killed at step %d, and then: %v", at, err)
		}
		r.want(to, "a", "d/b")
		if text, err := os.ReadFile(filepath.Join(r.home, "o")); err != nil || string(text) != "o"+api.NameStdout {
			t.Errorf("-o has %q, %v", text, err)
		}
		if t.Failed() {
			t.Fatalf("killed at step %d", at)
		}
	}
}
