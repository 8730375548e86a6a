package worker

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/stage/exit"
	"paddock/test/harness"
)

// both runs a test with a destination to which is renamed, and one to which is copied.
func both(t *testing.T, test func(t *testing.T, r *rig, to string)) {
	t.Helper()
	for _, far := range []bool{false, true} {
		t.Run(fmt.Sprintf("far %v", far), func(t *testing.T) {
			r := newRig(t)
			to := r.home
			if far {
				r.elsewhere()
				to = r.other
			}
			test(t, r, to)
		})
	}
}

// wantLine checks that a text is one line that can be shown anywhere.
func (r *rig) wantLine(text, want string) {
	r.Helper()
	const most = 1000
	if len(text) > most || strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) || !strings.Contains(text, want) {
		r.Errorf("%q; want %q in one line", text, want)
	}
}

// victim makes a file of somebody else's, and returns what must not change of it.
func (r *rig) victim(path string, mode uint32) func() {
	r.Helper()
	r.must(os.WriteFile(path, []byte("secret"), 0o600))
	r.must(unix.Chmod(path, mode))
	look := func() unix.Stat_t {
		var st unix.Stat_t
		r.must(unix.Stat(path, &st))
		return st
	}
	before := look()
	return func() {
		r.Helper()
		after := look()
		if after.Size != before.Size || after.Mode != before.Mode || after.Uid != before.Uid || after.Gid != before.Gid || after.Mtim != before.Mtim {
			r.Errorf("the file of somebody else is %+v; want %+v", after, before)
		}
	}
}

// another makes what follows another transfer than what was before.
func (r *rig) another() { r.id = r.id[1:] + r.id[:1] }

// onlyRoot skips a test that needs somebody else.
func onlyRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, who makes files of somebody else")
	}
}

// A kernel may let users link to files of others. Such a name can be moved, as the user
// could do himself; it is never read with more than his rights, and never changed.
func TestLinkToFileOfOthers(t *testing.T) {
	onlyRoot(t)
	both(t, func(t *testing.T, r *rig, to string) {
		for name, mode := range map[string]uint32{"closed": 0o600, "set": 0o4700, "group": 0o2640} {
			unchanged := r.victim(filepath.Join(filepath.Dir(r.home), name), mode)
			r.must(os.Link(filepath.Join(filepath.Dir(r.home), name), filepath.Join(r.files(), name)))
			got, err := r.copy(send(order.Send{Select: order.Listed, To: to, Names: []order.Named{{From: name}}}))
			switch {
			case to == r.home && name == "closed":
				if err != nil || got.Files != 1 {
					t.Errorf("%s: %+v, %v; want it renamed", name, got, err)
				}
			case !isPermanent(err, unix.EACCES):
				t.Errorf("%s: %v; want that it is denied", name, err)
			default:
				r.wantLine(err.Error(), fmt.Sprintf("cannot copy %q: permission denied", name))
			}
			o := send(order.Send{Select: order.All, To: to})
			o.Discard = true
			r.ok(o)
			unchanged()
			r.another()
		}
	})
}

// What the worker itself writes into the directories of the user is never written into a
// file that lies there.
func TestLinkInPlaceOfReport(t *testing.T) {
	onlyRoot(t)
	r := newRig(t)
	path := filepath.Join(filepath.Dir(r.home), "victim")
	unchanged := r.victim(path, 0o666)
	say := filepath.Join(r.dir, order.DirSay)
	for _, name := range []string{order.FileResult, order.FileResult + ".new", order.FileInputs, "links"} {
		r.must(os.Link(path, filepath.Join(say, name)))
	}
	r.put(r.home, "in")
	r.ok(bring(order.Named{From: "in"}))
	unchanged()
	r.put(r.files(), "out")
	part := filepath.Join(r.home, ".paddock-"+r.id+".part")
	r.mine(part)
	for _, name := range []string{"boot", "boot.new", "commit", "commit.new"} {
		r.must(os.Link(path, filepath.Join(part, name)))
	}
	r.ok(send(order.Send{Select: order.All}))
	unchanged()
	r.want(r.home, "in", "out")
}

// Devices, sockets and pipes stay where they are and are told of. Nobody opens them.
func TestSpecial(t *testing.T) {
	both(t, func(t *testing.T, r *rig, to string) {
		r.put(r.files(), "d/file", "pipe|", "d/two\nlines\x1b[2J|")
		l, err := net.Listen("unix", filepath.Join(r.files(), "s"))
		r.must(err)
		defer l.Close()
		skipped, kinds := 3, []string{"pipe", "socket"}
		if os.Getuid() == 0 {
			// The machine has no such devices: who opens one fails.
			r.must(unix.Mknod(filepath.Join(r.files(), "d/tty"), unix.S_IFCHR|0o666, int(unix.Mkdev(240, 7))))
			r.must(unix.Mknod(filepath.Join(r.files(), "disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(240, 7))))
			skipped, kinds = 5, append(kinds, "device")
		}
		got := r.ok(send(order.Send{Select: order.All, To: to}))
		r.want(to, "d/file")
		if got.Skipped != skipped || len(got.Skips) != skipped {
			t.Errorf("%d left out: %q; want %d", got.Skipped, got.Skips, skipped)
		}
		all := strings.Join(got.Skips, " ")
		for _, kind := range kinds {
			r.wantLine(all, kind+` "`)
		}
		r.wantLine(all, `pipe "d/two\nlines\x1b[2J"`)
		for _, name := range []string{"s", "pipe"} {
			_, err := r.copy(bring(order.Named{From: filepath.Join(r.files(), name), To: "x"}))
			if !isPermanent(err, unix.EINVAL) {
				t.Errorf("%s: %v; want that it cannot be brought", name, err)
			}
		}
	})
}

// Names may have any bytes. They arrive as they are, and what is said of them is one line.
func TestNames(t *testing.T) {
	names := []string{
		"two\nlines", "\x1b]0;title\a", "\x7f\x01", "\xff\xfe", "  ", "-rf", "a\tb", "\u202etxt.exe", "\u2028line", "\u0085next",
		`{"result":{"ok":true}}`, strings.Repeat("\n", 255),
	}
	both(t, func(t *testing.T, r *rig, to string) {
		r.put(r.files(), names...)
		r.ok(send(order.Send{Select: order.All, To: to}))
		r.want(to, names...)
		for _, name := range names {
			r.another()
			_, err := r.copy(send(order.Send{Select: order.Listed, To: to, Names: []order.Named{{From: "d/" + name}}}))
			if !isPermanent(err, unix.ENOENT) {
				t.Fatalf("%q: %v; want that it is missing", name, err)
			}
			r.wantLine(err.Error(), "is missing")
		}
	})
}

// What is said by who has taken the place of the worker is shown as one line, and no more
// of it than of another.
func TestForgedWords(t *testing.T) {
	for what, test := range map[string]struct{ line, want string }{
		"failure": {`{"result":{"error":"a\u001b[2J\u0085\u202e\u2028b\r` + strings.Repeat("é", 3000) + `"}}`, "a?[2J???b?é"},
		"skipped": {`{"result":{"ok":true,"skipped":9,"skips":["a\u001b\nb"` + strings.Repeat(`,"`+strings.Repeat("x", 1200)+`"`, 30) + `]}}`, "a?"},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			r.fake("cat >&4 <<'EOF'\n" + test.line + "\nEOF\n")
			got, err := r.copy(send(order.Send{Select: order.All}))
			if err != nil {
				r.wantLine(err.Error(), test.want)
				return
			}
			if len(got.Skips) != order.MaxSkips {
				t.Errorf("%d names; want %d", len(got.Skips), order.MaxSkips)
			}
			for i, text := range got.Skips {
				r.wantLine(text, []string{test.want, "xxx"}[min(i, 1)])
			}
		})
	}
}

// A file that has no more than its size costs no more than its name.
func TestLargestHole(t *testing.T) {
	r := newRig(t)
	r.elsewhere()
	huge := func(dir string) (size int64) {
		f, err := os.Create(filepath.Join(dir, "huge"))
		r.must(err)
		defer f.Close()
		size = 1<<63 - 1
		for f.Truncate(size) != nil {
			size >>= 1
		}
		r.own(f.Name())
		return size
	}
	size := huge(r.files())
	here := filepath.Join(r.other, "files")
	r.mine(here)
	most := huge(here)
	t.Logf("%d bytes, and in memory %d", size, most)
	to := filepath.Join(r.other, "to")
	r.mine(to)
	if got := r.ok(send(order.Send{Select: order.All, To: to})); got.Bytes != 0 {
		t.Errorf("%+v; want nothing copied", got)
	}
	// From memory it comes only where the file system takes it.
	_, err := r.copy(bring(order.Named{From: filepath.Join(here, "huge")}, order.Named{From: filepath.Join(to, "huge"), To: "two"}))
	switch {
	case size < most && !isPermanent(err, unix.EFBIG):
		t.Errorf("%v; want that it is too large", err)
	case size < most:
		r.wantLine(err.Error(), "cannot copy ")
	case err != nil:
		t.Error(err)
	}
	// In memory there may be two of the largest size.
	r.must(os.Rename(filepath.Join(here, "huge"), filepath.Join(to, "twin")))
	r.dir, r.id = r.other, "00000000000000aa"
	r.mine(filepath.Join(r.other, order.DirSay))
	out := filepath.Join(r.other, "out")
	r.mine(out)
	for range 2 {
		got, err := r.copy(bring(order.Named{From: to, To: "in"}))
		if err != nil || got.Bytes != 0 || got.Files != 2 {
			t.Fatalf("%+v, %v; want two files without a byte", got, err)
		}
	}
}

// deep makes a chain of directories with a file at its end, below a directory.
func (r *rig) deep(dir, name string, depth int) {
	r.Helper()
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	r.must(err)
	defer func() { unix.Close(at) }()
	for range depth {
		r.must(unix.Mkdirat(at, name, 0o700))
		r.must(unix.Fchownat(at, name, r.owner.UID, r.owner.GID, unix.AT_SYMLINK_NOFOLLOW))
		fd, err := unix.Openat(at, name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		r.must(err)
		unix.Close(at)
		at = fd
	}
	fd, err := unix.Openat(at, "end", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	r.must(err)
	r.must(unix.Fchown(fd, r.owner.UID, r.owner.GID))
	unix.Close(fd)
}

// depth returns how deep a chain is, -1 if no file is at its end.
func (r *rig) depth(dir, name string) (n int) {
	r.Helper()
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	r.must(err)
	defer func() { unix.Close(at) }()
	for ; ; n++ {
		fd, err := unix.Openat(at, name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		unix.Close(at)
		at = fd
	}
	var st unix.Stat_t
	if unix.Fstatat(at, "end", &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return -1
	}
	return n
}

// depthTried is more levels than fit into a path.
func depthTried() int {
	if harness.Soak {
		return 10000
	}
	return 2000
}

// A tree may be deeper than any path is long.
func TestDepth(t *testing.T) {
	depth := depthTried()
	name := strings.Repeat("n", 255)
	r := newRig(t)
	r.elsewhere() // where directories are cheap
	r.dir = r.other
	to := filepath.Join(r.other, "to")
	r.mine(r.files(), filepath.Join(r.dir, order.DirSay), to)
	r.deep(r.files(), name, depth)
	r.must(os.Chmod(filepath.Join(r.files(), name), 0o700|fs.ModeSetuid)) // so that it is copied
	got := r.ok(send(order.Send{Select: order.All, To: to}))
	if n := r.depth(to, name); n != depth || got.Files != 1 {
		t.Errorf("%+v with %d levels; want %d", got, n, depth)
	}
	if n := r.depth(r.files(), name); n != depth {
		t.Errorf("%d levels are left; want it copied and not renamed", n)
	}
}

// So may one that is brought in, of which nothing is output.
func TestDepthOfInput(t *testing.T) {
	depth := depthTried()
	name := strings.Repeat("n", 255)
	r := newRig(t)
	r.elsewhere()
	r.dir = r.other
	in, to := filepath.Join(r.other, "in"), filepath.Join(r.other, "to")
	r.mine(r.files(), filepath.Join(r.dir, order.DirSay), in, to)
	r.deep(in, name, depth)
	got := r.ok(bring(order.Named{From: in}))
	if n := r.depth(filepath.Join(r.files(), "in"), name); n != depth || got.Files != 1 {
		t.Errorf("%+v with %d levels; want %d", got, n, depth)
	}
	r.put(r.files(), "in/new")
	r.ok(send(order.Send{Select: order.All, To: to}))
	r.want(to, "in/new")
}

// A sandbox may have many files.
func TestMany(t *testing.T) {
	both(t, func(t *testing.T, r *rig, to string) {
		many := 2000
		switch {
		case harness.Soak && to == r.home:
			many = 1e6
		case harness.Soak: // in memory
			many = 1e5
		}
		r.mine(filepath.Join(r.files(), "d"))
		for i := range many {
			path := filepath.Join(r.files(), "d", fmt.Sprint(i))
			r.must(os.WriteFile(path, nil, 0o644))
			r.own(path)
		}
		got := r.ok(send(order.Send{Select: order.All, To: to}))
		left, err := os.ReadDir(filepath.Join(to, "d"))
		if err != nil || len(left) != many || got.Files != many {
			t.Errorf("%+v, %d names, %v; want %d", got, len(left), err, many)
		}
	})
}

// Who stops his own worker, or has a debugger hold it, gains nothing: it is ended when
// patience is, and others are not held up by it meanwhile.
func TestHeld(t *testing.T) {
	for what, hold := range map[string]func(r *rig, pid int){
		"stopped": func(r *rig, pid int) { r.must(unix.Kill(pid, unix.SIGSTOP)) },
		"traced":  (*rig).trace,
	} {
		t.Run(what, func(t *testing.T) {
			r, other := newRig(t), newRig(t)
			r.elsewhere()
			r.put(r.files(), "file")
			r.must(os.WriteFile(filepath.Join(r.files(), "file"), make([]byte, order.Brief+1), 0o640))
			r.Pace = &Pace{Total: func() int64 { return 1 }}
			r.Stall, r.Grace = 5*time.Second, 500*time.Millisecond // the other is served meanwhile
			ended := make(chan error, 1)
			go func() {
				_, err := r.copy(send(order.Send{Select: order.All, To: r.other}))
				ended <- err
			}()
			r.await(filepath.Join(r.other, ".paddock-"+r.id+".part/tree/file"))
			hold(r, r.holder())
			other.put(other.files(), "file")
			other.ok(send(order.Send{Select: order.All}))
			select {
			case err := <-ended:
				t.Fatalf("%v before its time", err)
			default:
			}
			err := <-ended
			if _, permanent := errors.AsType[*exit.Permanent](err); !errors.Is(err, ErrStalled) || permanent {
				t.Fatalf("%v; want that it has stalled, and is tried again", err)
			}
			r.wantLine(err.Error(), "nothing was done for too long: execd-transfer is ended")
			r.Pace = nil
			r.ok(send(order.Send{Select: order.All, To: r.other}))
		})
	}
}

// holdPID has the test program trace a process, as its user could.
const holdPID = "PADDOCK_TEST_HOLD"

// trace has the owner's debugger hold a process until the end of the test.
func (r *rig) trace(pid int) {
	r.Helper()
	self, err := os.Executable()
	r.must(err)
	cmd := exec.Command("/proc/self/fd/3")
	cmd.Env = []string{holdPID + "=" + strconv.Itoa(pid)}
	f, err := os.Open(self) // which the user may not reach
	r.must(err)
	defer f.Close()
	cmd.ExtraFiles = []*os.File{f}
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(r.owner.UID), Gid: uint32(r.owner.GID)}}
	}
	in, err := cmd.StdinPipe()
	r.must(err)
	out, err := cmd.StdoutPipe()
	r.must(err)
	r.must(cmd.Start())
	r.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	said, err := bufio.NewReader(out).ReadString('\n')
	switch said {
	case "held\n":
	case "denied\n":
		r.Skip("nobody may trace a process here that he has not started")
	default:
		r.Fatalf("the debugger says %q, %v", said, err)
	}
}

// debug is the program of trace: it stops all threads of a process until its input ends.
func debug(pid string) {
	runtime.LockOSThread()
	tasks, _ := filepath.Glob("/proc/" + pid + "/task/[0-9]*")
	for _, task := range tasks {
		tid, _ := strconv.Atoi(filepath.Base(task))
		err := unix.PtraceSeize(tid)
		if err == nil {
			err = unix.PtraceInterrupt(tid)
		}
		if errors.Is(err, unix.EPERM) {
			fmt.Println("denied")
			return
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// holder returns who has the lock of the sandbox.
func (r *rig) holder() (pid int) {
	r.Helper()
	r.must(harness.WaitFor(harness.Patience, "its number", func() (bool, error) {
		text, err := os.ReadFile(filepath.Join(r.dir, order.FileLock))
		if err != nil {
			return false, err
		}
		n, _ := fmt.Sscanf(string(text), "%d", &pid)
		return n == 1, nil
	}))
	return pid
}

// A worker that does not count, or that does what it may not with the memory that it shares with
// execd, harms its own stream alone.
func TestHostileRing(t *testing.T) {
	const done = `; echo '{"result":{"ok":true}}' >&4`
	for what, test := range map[string]struct {
		script    string
		out       bool // it is to send
		says      string
		delivered int
	}{
		"says too much":          {`printf '\377\377\377\377' >&7` + done, true, "meddled", 0},
		"says nothing":           {`printf '\0\0\0\0' >&7` + done, true, "meddled", 0},
		"has read what is not":   {`printf '\377\377\377\377' >&7` + done, false, "", 0},
		"does not fill":          {`printf '\1\0\0\1' >&7` + done, true, "meddled", 0},
		"sends zeros":            {`printf '\0\1\0\0' >&7` + done, true, "", 256},
		"makes it smaller":       {`truncate -s 0 /proc/self/fd/8 && exit 3; printf '\0\1\0\0' >&7` + done, true, "", 256},
		"makes it larger":        {`head -c 2000000 /dev/zero >&8 && exit 3; printf '\0\1\0\0' >&7` + done, true, "", 256},
		"closes":                 {`exec 7>&- 8>&-` + done, true, "", 0},
		"closes, and says more":  {`printf '\0\1\0\0' >&7; exec 7>&-` + done, true, "", 256},
		"leaves somebody":        {`sleep 1000 & true` + done, true, "", 0},
		"is silent":              {`exec sleep 1000`, true, "nothing was done", 0},
		"is silent, and to read": {`exec sleep 1000`, false, "nothing was done", 0},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.fake(test.script)
			r.patience(strings.Contains(test.says, "nothing was done"))
			var got bytes.Buffer
			o, via := &order.Orders{Pack: &order.Pack{}, Bring: []order.Named{{From: "f"}}}, &Stream{To: &got}
			if !test.out {
				b := &blocked{stop: make(chan struct{})}
				o, via = &order.Orders{Unpack: &order.Unpack{Part: "input"}}, &Stream{From: io.MultiReader(bytes.NewReader(make([]byte, 3<<20)), b), Stop: b.Stop}
			}
			_, err := r.by(o, via)
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("%v; want %q", err, test.says)
			}
			if got.Len() != test.delivered || len(bytes.Trim(got.Bytes(), "\x00")) > 0 {
				t.Errorf("%d bytes were delivered; want %d zeros", got.Len(), test.delivered)
			}
		})
	}
}
