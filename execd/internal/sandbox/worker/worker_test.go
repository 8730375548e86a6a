package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/user"
	"paddock/test/harness"
	"paddock/test/props"
)

var shepherd, program string

func TestMain(m *testing.M) {
	if pid := os.Getenv(holdPID); pid != "" {
		debug(pid)
		return
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "worker")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil {
			panic(err)
		}
		program = filepath.Join(dir, Program)
		if err := props.Build(program); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return harness.RunWithShepherd(m, &shepherd)
	}())
}

// rig is a sandbox, and a directory of the user's.
type rig struct {
	*testing.T
	*Runner
	owner *user.User
	dir   string // the sandbox
	home  string
	other string // a directory on another file system
	id    string
}

// Somebody who is not root, and whom no other test uses.
const stranger = 64123

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigIn(t, t.TempDir())
}

// newRigIn makes one in a directory.
func newRigIn(t *testing.T, base string) *rig {
	t.Helper()
	r := &rig{T: t, Runner: &Runner{Starter: &asuser.Starter{Shepherd: shepherd}, Program: program}, id: "0123456789abcdef"}
	r.owner = &user.User{Name: "alice", UID: os.Getuid(), GID: os.Getgid()}
	if os.Getuid() == 0 {
		r.owner.UID, r.owner.GID = stranger, stranger
	}
	r.must(os.Chmod(filepath.Dir(base), 0o755)) // the user is another
	r.dir, r.home = filepath.Join(base, "1.1.0-0123"), filepath.Join(base, "home")
	r.must(os.Mkdir(r.dir, 0o711))
	r.mine(r.home, r.files(), filepath.Join(r.dir, order.DirSay))
	return r
}

// elsewhere makes a directory of the user's on another file system than the sandbox's.
func (r *rig) elsewhere() {
	r.Helper()
	dir := r.TempDir()
	r.must(os.Chmod(filepath.Dir(dir), 0o755))
	if !strings.HasPrefix(r.dir, "/dev/shm/") {
		var err error
		if dir, err = os.MkdirTemp("/dev/shm", "sandbox"); err != nil {
			r.Skip("needs another file system at /dev/shm: ", err)
		}
		r.Cleanup(func() { os.RemoveAll(dir) })
	}
	r.must(os.Chmod(dir, 0o755))
	r.other = filepath.Join(dir, "other")
	r.mine(r.other)
}

func (r *rig) files() string { return filepath.Join(r.dir, order.DirFiles) }

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// mine makes directories of the owner's.
func (r *rig) mine(dirs ...string) {
	r.Helper()
	for _, dir := range dirs {
		r.must(os.MkdirAll(dir, 0o700))
		r.own(dir)
	}
}

func (r *rig) own(path string) {
	r.Helper()
	r.must(os.Lchown(path, r.owner.UID, r.owner.GID))
}

// put makes files with their names in them; a name that ends with a slash is a
// directory, NAME>TARGET a link, NAME| a pipe.
func (r *rig) put(dir string, names ...string) {
	r.Helper()
	for _, name := range names {
		link, target, isLink := strings.Cut(name, ">")
		path := filepath.Join(dir, strings.TrimSuffix(link, "|"))
		at := dir
		for part := range strings.SplitSeq(filepath.Dir(strings.TrimSuffix(link, "/")), "/") {
			if at = filepath.Join(at, part); part != "." {
				r.mine(at)
			}
		}
		switch {
		case strings.HasSuffix(name, "/"):
			r.mine(path)
		case isLink:
			r.must(os.Symlink(target, path))
		case strings.HasSuffix(name, "|"):
			r.must(syscall.Mkfifo(path, 0o644))
		default:
			r.must(os.WriteFile(path, []byte(name), 0o640))
			r.must(os.Chmod(path, 0o640))
		}
		r.own(path)
	}
}

// tree lists what is below a directory, in put's words, with what files have in them.
func (r *rig) tree(dir string) []string {
	r.Helper()
	var names []string
	r.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		switch {
		case err != nil || path == dir:
			return err
		case d.IsDir():
			if left, err := os.ReadDir(path); err == nil && len(left) == 0 {
				names = append(names, name+"/")
			}
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			r.must(err)
			names = append(names, name+">"+target)
		case d.Type().IsRegular():
			text, err := os.ReadFile(path)
			r.must(err)
			if string(text) != name {
				name += "=" + string(text)
			}
			names = append(names, name)
		default:
			names = append(names, name+"|")
		}
		return nil
	}))
	return names
}

func (r *rig) want(dir string, names ...string) {
	r.Helper()
	slices.Sort(names)
	got := r.tree(dir)
	slices.Sort(got)
	if diff := cmp.Diff(names, got); diff != "" {
		r.Errorf("%s differs (-want +got):\n%s", dir, diff)
	}
}

func (r *rig) copy(o *order.Orders) (order.Result, error) {
	r.Helper()
	o.ID, o.Base, o.Root = r.id, r.home, r.owner.UID == 0
	ctx, cancel := context.WithTimeout(r.Context(), harness.Patience)
	defer cancel()
	return r.Copy(ctx, r.owner, r.dir, o, nil, func(order.Progress) {})
}

func (r *rig) ok(o *order.Orders) order.Result {
	r.Helper()
	got, err := r.copy(o)
	if err != nil {
		r.Fatalf("%+v: %v", o, err)
	}
	return got
}

func bring(names ...order.Named) *order.Orders { return &order.Orders{Bring: names, Turn: true} }
func send(s order.Send) *order.Orders          { return &order.Orders{Send: &s, Turn: true} }

// What is sent, from where it was brought in, and where it lands.
func TestSelect(t *testing.T) {
	in := []order.Named{{From: "data"}, {From: "in", To: "input"}, {From: "other"}}
	for what, test := range map[string]struct {
		send order.Send
		want []string
		left []string
	}{
		"new or changed files of the sandbox itself": {
			order.Send{Select: order.Changed},
			[]string{"new", "link>new", "other=changed", ".dot"},
			[]string{"input=in", "data/a", "data/b=changed", "data/new", "dir/deep/x", "empty/", "pipe|"},
		},
		"all that is new or changed": {
			order.Send{Select: order.All},
			[]string{"new", "link>new", "other=changed", ".dot", "data/b=changed", "data/new", "dir/deep/x", "empty/"},
			nil,
		},
		"nothing": {order.Send{Select: order.Listed}, nil, nil},
		"what is listed": {
			order.Send{Select: order.Listed, Names: []order.Named{
				{From: "dir/deep/x"}, {From: "new", To: "sub/renamed"}, {From: "data", To: "sub/"}, {From: "link", To: "followed"},
			}},
			[]string{"x=dir/deep/x", "sub/renamed=new", "sub/data/a=data/a", "sub/data/b=changed", "sub/data/new=data/new", "followed=new"},
			nil,
		},
		"what is listed, with its directories": {
			order.Send{Select: order.Listed, Keep: true, Names: []order.Named{{From: "dir/deep/x"}, {From: "new"}}},
			[]string{"dir/deep/x", "new"},
			nil,
		},
		"all, one of them by another name": {
			order.Send{Select: order.All, Names: []order.Named{{From: "new", To: "sub/renamed"}, {From: "missing", To: "y"}}},
			[]string{"sub/renamed=new", "link>new", "other=changed", ".dot", "data/b=changed", "data/new", "dir/deep/x", "empty/"},
			nil,
		},
		"not a dot file into the home": {
			order.Send{Select: order.All, Home: "HOME", Names: []order.Named{{From: "data", To: "d"}}},
			[]string{"new", "link>new", "other=changed", "d/b=changed", "d/new=data/new", "dir/deep/x", "empty/"},
			nil,
		},
		"unless it is named": {
			order.Send{Select: order.Listed, Home: "HOME", Names: []order.Named{{From: ".dot"}}},
			[]string{".dot"},
			nil,
		},
	} {
		for _, far := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", what, far), func(t *testing.T) {
				r := newRig(t)
				r.put(r.home, "data/a", "data/b", "in", "other")
				r.ok(bring(in...))
				r.want(r.files(), "data/a", "data/b", "input=in", "other")
				r.put(r.files(), "new", "link>new", "data/new", "dir/deep/x", "empty/", ".dot", "pipe|")
				for _, name := range []string{"data/b", "other"} {
					r.must(os.WriteFile(filepath.Join(r.files(), name), []byte("changed"), 0))
				}
				to := filepath.Join(r.home, "out")
				r.mine(to, filepath.Join(to, "sub"))
				if far {
					r.elsewhere()
					to = filepath.Join(r.other, "out")
					r.mine(to, filepath.Join(to, "sub"))
				}
				s := test.send
				s.To = to
				s.Names = slices.Clone(s.Names)
				if s.Home != "" {
					s.Home = to
				}
				r.ok(send(s))
				want := test.want
				if !slices.ContainsFunc(want, func(n string) bool { return strings.HasPrefix(n, "sub/") }) {
					want = append(slices.Clone(want), "sub/")
				}
				r.want(to, want...)
				if test.left != nil && !far {
					r.want(r.files(), test.left...)
				}
			})
		}
	}
}

func isPermanent(err error, errno unix.Errno) bool {
	p, ok := errors.AsType[*exit.Permanent](err)
	return ok && p.Errno == int(errno)
}

// What cannot be is said at once, and nothing is at the destination.
func TestRefused(t *testing.T) {
	for what, test := range map[string]struct {
		prepare func(r *rig)
		send    order.Send
		max     int64
		errno   unix.Errno
		says    string
	}{
		"a name that is missing": {nil, order.Send{Select: order.Listed, Names: []order.Named{{From: "new"}, {From: "gone"}}}, 0, unix.ENOENT, `output "gone" is missing`},
		"no destination":         {nil, order.Send{Select: order.All, To: "nowhere"}, 0, unix.ENOENT, "nowhere"},
		"a destination of others": {
			func(r *rig) { r.must(os.Chmod(r.home, 0o500)) }, order.Send{Select: order.All}, 0, unix.EACCES, "cannot make",
		},
		"too much": {nil, order.Send{Select: order.All}, 2, unix.EFBIG, "at most 2"},
		"a directory in the place of a file": {
			func(r *rig) { r.put(r.home, "new/x") }, order.Send{Select: order.All}, 0, unix.EISDIR, "new",
		},
		"a name that leads out": {nil, order.Send{Select: order.Listed, Names: []order.Named{{From: "../1"}}}, 0, unix.EINVAL, "no name in a sandbox"},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			if r.owner.UID == 0 {
				t.Skip("needs a user whom modes hold")
			}
			r.put(r.files(), "new")
			if test.prepare != nil {
				test.prepare(r)
			}
			o := send(test.send)
			o.Max = test.max
			_, err := r.copy(o)
			if !isPermanent(err, test.errno) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v (%T); want %v and %q", err, err, test.errno, test.says)
			}
		})
	}
}

// Modes, times, links and holes arrive; what is no file does not.
func TestKinds(t *testing.T) {
	for _, far := range []bool{false, true} {
		t.Run(fmt.Sprint(far), func(t *testing.T) {
			r := newRig(t)
			to := r.home
			if far {
				r.elsewhere()
				to = r.other
			}
			at := func(name string) string { return filepath.Join(r.files(), name) }
			r.put(r.files(), "d/file", "d/pipe|", "d/link>/etc/passwd", "d/set", "closed/inner", "new\nline")
			r.must(os.Link(at("d/file"), at("d/same")))
			r.must(os.Chmod(at("d/set"), 0o4755|fs.ModeSetuid))
			when := unix.Timespec{Sec: 1000000000, Nsec: 123456789}
			r.must(unix.UtimesNanoAt(unix.AT_FDCWD, at("d/file"), []unix.Timespec{when, when}, 0))
			hole, err := os.Create(at("hole"))
			r.must(err)
			_, err = hole.WriteAt([]byte("end"), 1<<30)
			r.must(errors.Join(err, hole.Close()))
			r.own(at("hole"))
			r.must(os.Chmod(at("closed"), 0o555))
			got := r.ok(send(order.Send{Select: order.All, To: to}))
			if got.Skipped != 1 || !slices.Equal(got.Skips, []string{`pipe "d/pipe"`}) {
				t.Errorf("skipped %d: %q; want the pipe", got.Skipped, got.Skips)
			}
			var file, same, h, set, closed unix.Stat_t
			for name, st := range map[string]*unix.Stat_t{"d/file": &file, "d/same": &same, "hole": &h, "d/set": &set, "closed": &closed} {
				r.must(unix.Lstat(filepath.Join(to, name), st))
			}
			if file.Mtim != when || file.Mode != unix.S_IFREG|0o640 || int(file.Uid) != r.owner.UID {
				t.Errorf("the file has the time %v, the mode %o and the owner %d", file.Mtim, file.Mode, file.Uid)
			}
			if file.Ino != same.Ino {
				t.Error("two names of a file are two files")
			}
			if h.Size != 1<<30+3 || h.Blocks > 100 {
				t.Errorf("the file with the hole has %d bytes in %d blocks", h.Size, h.Blocks)
			}
			if set.Mode&0o7777 != 0o755 {
				t.Errorf("the mode %o has arrived", set.Mode)
			}
			if closed.Mode&0o7777 != 0o555 {
				t.Errorf("the closed directory has the mode %o", closed.Mode)
			}
			if link, err := os.Readlink(filepath.Join(to, "d/link")); link != "/etc/passwd" {
				t.Errorf("the link is %q, %v", link, err)
			}
			if left, _ := filepath.Glob(filepath.Join(to, ".paddock*")); len(left) > 0 {
				t.Errorf("left at the destination: %v", left)
			}
			r.must(os.Chmod(filepath.Join(to, "closed"), 0o700))
		})
	}
}

// Directories come in with what is in them, but the sandbox not into itself.
func TestBring(t *testing.T) {
	r := newRig(t)
	r.put(r.home, "d/deep/file", "d/empty/", "d/link>deep", "d/pipe|", "file", "named>file", "fifo|")
	r.must(os.Link(filepath.Join(r.home, "d/deep/file"), filepath.Join(r.home, "d/same")))
	r.put(r.files(), "x/left by an attempt", "d>/etc")
	got := r.ok(bring(order.Named{From: "d"}, order.Named{From: "named", To: "x"}, order.Named{From: "file", To: "a/b/"}))
	r.want(r.files(), "d/deep/file", "d/same=d/deep/file", "d/empty/", "d/link>deep", "x=file", "a/b/file=file")
	if got.Files != 4 || got.Skipped != 1 {
		t.Errorf("%+v; want 4 files and the pipe skipped", got)
	}
	one, err := os.Stat(filepath.Join(r.files(), "d/same"))
	r.must(err)
	two, err := os.Stat(filepath.Join(r.files(), "d/deep/file"))
	r.must(err)
	if !os.SameFile(one, two) {
		t.Error("two names of a file are two files")
	}
	r.want(filepath.Join(r.dir, order.DirSay), r.tree(filepath.Join(r.dir, order.DirSay))[0])
	if _, err := r.copy(bring(order.Named{From: "fifo"})); !isPermanent(err, unix.EINVAL) || !strings.Contains(err.Error(), "it is a pipe") {
		t.Errorf("%v; want that a pipe cannot be brought", err)
	}
	if _, err := r.copy(bring(order.Named{From: "gone"})); !isPermanent(err, unix.ENOENT) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("%v; want that it is missing", err)
	}
	r.put(r.home, "spool/1/")
	r.must(os.Rename(r.dir, filepath.Join(r.home, "spool/1/s")))
	r.dir = filepath.Join(r.home, "spool/1/s")
	r.must(os.Chmod(r.dir, 0o755))
	r.must(os.Chmod(filepath.Join(r.dir, order.FileLock), 0o644))
	r.ok(bring(order.Named{From: "spool"}))
	if got := r.tree(filepath.Join(r.files(), "spool/1/s")); slices.ContainsFunc(got, func(n string) bool { return strings.HasPrefix(n, "files/") && n != "files/" }) {
		t.Errorf("the sandbox has itself in it: %q", got)
	}
}
