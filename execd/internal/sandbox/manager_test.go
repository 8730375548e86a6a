package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/job"
	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/user"
	"paddock/spool"
	"paddock/test/harness"
)

var shepherd string

func TestMain(m *testing.M) { os.Exit(harness.RunWithShepherd(m, &shepherd)) }

// Somebody who is not root, and whom no other test uses.
const stranger = 64124

// rig is a manager, with the pauses of which a test is through when it says so.
type rig struct {
	*testing.T
	*Manager
	job   *job.Job
	owner *user.User
	log   bytes.Buffer

	pauses []time.Duration
	due    []func()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	base := t.TempDir()
	for dir := base; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // the owner passes through
			t.Fatal(err)
		}
	}
	return newRigIn(t, base)
}

func newRigIn(t *testing.T, base string) *rig {
	t.Helper()
	r := &rig{T: t, owner: &user.User{Name: "alice", UID: os.Getuid(), GID: os.Getgid()}}
	if os.Getuid() == 0 {
		r.owner.UID, r.owner.GID = stranger, stranger
	}
	root, err := spool.OpenRoot(filepath.Join(base, "spool"), true)
	r.must(err)
	store, err := job.Open(root, false, slog.New(slog.DiscardHandler))
	r.must(err)
	config := configured("")
	r.Manager = &Manager{
		Host: "h", Boot: "b00t", Root: root, Privileged: os.Getuid() == 0, Store: store,
		Config: func() *conf.Config { return config },
		Owner:  func(*job.Task) (*user.User, error) { return r.owner, nil },
		AsUser: &asuser.Starter{Shepherd: shepherd},
		Aside:  alone, Throttle: NewThrottle(func() *knob.Set { return config.Knobs }, false),
		Later: func(after time.Duration, do func()) { r.pauses, r.due = append(r.pauses, after), append(r.due, do) },
		Log:   slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	req := &api.SubmitRequest{Name: "j", Binary: true, Command: "true", Sandbox: api.SandboxYes, Tasks: api.Tasks{First: 1, Last: 9, Step: 1}}
	r.job, _, err = store.Submit(r.owner, r.owner.GID, req, job.Limits{}, time.Now())
	r.must(err)
	return r
}

// configured is a configuration with lines of hooks.conf.
func configured(text string) *conf.Config {
	set, _ := knob.Parse("hooks.conf", text)
	return &conf.Config{Knobs: set}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// planned is a task that was taken, and has a sandbox that is not made.
func (r *rig) planned(claim string) *job.Task {
	r.Helper()
	t := r.Store.Take(r.job, job.Start{Queue: "all.q", Claim: claim}, time.Now())
	request, err := r.Store.RequestFor(t)
	r.must(err)
	r.must(r.Plan(t, request, 1, 0))
	return t
}

// made is one whose sandbox is made.
func (r *rig) made() *job.Task {
	r.Helper()
	t := r.planned("")
	r.must(r.make(t.Start.Sandbox, r.owner))
	return t
}

// passed lets the pauses pass that were begun until now.
func (r *rig) passed() {
	due := r.due
	r.due = nil
	for _, do := range due {
		do()
	}
}

func (r *rig) isGone(path string) bool {
	_, err := os.Lstat(path)
	return os.IsNotExist(err)
}

// empty reports whether a run has left nothing in a sandbox.
func (r *rig) empty(s *job.Sandbox) (bool, error) {
	box, err := openDir(s.Dir)
	r.must(err)
	defer box.Close()
	return isEmpty(box)
}

// asOwner runs a function with the rights of the owner.
func (r *rig) asOwner(do func()) {
	r.Helper()
	if os.Getuid() != 0 {
		do()
		return
	}
	r.must(harness.As(r.owner.UID, r.owner.GID, do))
}

func files(t *job.Task) string { return t.Start.Sandbox.Files() }

// REQ-XFER-14, REQ-XFER-20, REQ-XFER-21, REQ-XFER-22, REQ-XFER-23: the id of a sandbox is
// made of the public id of the claim and of a word that nobody can guess, so that the
// sandboxes of a claim are found by it.
func TestPlan(t *testing.T) {
	r := newRig(t)
	const claim = "<h>#b00t#7#"
	a, b, own := r.planned(claim+"..."), r.planned(claim+"..."), r.planned("")
	form := regexp.MustCompile(`^s[0-9a-f]+#[0-9a-f]{8,}[0-9a-f]{32}$`)
	for _, tt := range []struct {
		task   *job.Task
		prefix string
	}{{a, claim}, {b, claim}, {own, "<h>#b00t#1.3.0#"}} {
		s := tt.task.Start.Sandbox
		rest, ok := strings.CutPrefix(s.ID, tt.prefix)
		if !ok || !form.MatchString(rest) {
			t.Errorf("id %q; want %s and a word", s.ID, tt.prefix)
		}
		run, word, ok := parse(filepath.Base(s.Dir))
		if !ok || run != tt.task.RunID() || !strings.Contains(rest, word) || idOf(s) != word {
			t.Errorf("directory %s of %s", s.Dir, s.ID)
		}
		if filepath.Dir(s.Dir) != r.Root.Path(spool.DirSandboxes) || !r.isGone(s.Dir) || time.Since(s.Created) > time.Hour {
			t.Errorf("it is planned as %+v", s)
		}
	}
	if a.Start.Sandbox.ID == b.Start.Sandbox.ID || a.Start.Sandbox.Dir == b.Start.Sandbox.Dir {
		t.Error("two sandboxes of a claim are one")
	}
	plain := r.Store.Take(r.job, job.Start{Queue: "all.q"}, time.Now())
	if r.must(r.Plan(plain, &api.SubmitRequest{Sandbox: api.SandboxNo}, 1, 0)); plain.Start.Sandbox != nil || r.Has(plain) {
		t.Error("a job has a sandbox that it did not ask for")
	}
	r.Remove(plain)
	r.Remove(a)
}

// The next run goes on in a sandbox that was kept for it, unless that is lost. Who does not
// start after all leaves it.
func TestPlanKept(t *testing.T) {
	r := newRig(t)
	for _, lost := range []bool{false, true} {
		task := r.made()
		was := *task.Start.Sandbox
		r.must(r.Store.Begin(task))
		end := &job.End{Fate: job.FateRequeue, Sandbox: task.Start.Sandbox, Accounting: "x"}
		r.must(r.Store.End([]job.Ending{{Task: task, End: end, Time: time.Now()}})[0])
		r.must(r.Store.Settle(task))
		if lost {
			r.must(os.RemoveAll(was.Dir))
		}
		for range 2 {
			next := r.planned("")
			s := next.Start.Sandbox
			if next.Number != task.Number || next.Run != 1 || s.Kept == lost || (s.Dir == was.Dir) == lost || s.ID == was.ID {
				t.Errorf("lost %v: run %d of task %d has %+v after %+v", lost, next.Run, next.Number, s, was)
			}
			r.Store.Untake(next)
		}
		r.Recover()
		if r.isGone(was.Files()) != lost || len(r.left) > 0 {
			t.Errorf("lost %v: what is left: %v", lost, r.left)
		}
		r.Store.OnUnbox(r.Unbox)
		_, err := r.Store.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{fmt.Sprintf("1.%d", task.Number)}}, job.Caller{UID: r.owner.UID, Name: "alice"}, func(*job.Task) {})
		r.must(err)
		if r.passed(); !r.isGone(was.Dir) {
			t.Errorf("lost %v: it is deleted, and its sandbox is there", lost)
		}
	}
}

// Only execd's own directory is used, by one execd alone.
func TestPlace(t *testing.T) {
	r := newRig(t)
	r.made()
	place := r.Root.Path(spool.DirSandboxes)
	other := newRig(t)
	plans := func(dir string) error {
		other.Config = func() *conf.Config { return configured(knobExecute + " = " + dir) }
		return other.Plan(other.Store.Take(other.job, job.Start{Queue: "all.q"}, time.Now()), &api.SubmitRequest{Sandbox: api.SandboxYes}, 1, 0)
	}
	open, link := filepath.Join(t.TempDir(), "open"), filepath.Join(t.TempDir(), "link")
	r.must(os.Mkdir(open, 0o755))
	r.must(os.Chmod(open, 0o775))
	r.must(os.Symlink(t.TempDir(), link))
	for _, tt := range []struct{ dir, want string }{
		{place, "another execd does"},
		{open, "others may write to it"},
		{link, "not a directory"},
		{filepath.Join(open, "none"), "no such file"},
		{t.TempDir(), ""},
	} {
		err := plans(tt.dir)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v; want %q", tt.dir, err, tt.want)
		}
	}
	if os.Getuid() == 0 {
		theirs := t.TempDir()
		r.must(os.Chown(theirs, stranger, stranger))
		if err := plans(theirs); err == nil || !strings.Contains(err.Error(), "belongs to uid") {
			t.Errorf("a user's directory: %v", err)
		}
	}
}

// A sandbox is made as often as execd is killed over it, and is its owner's; nothing is
// made where somebody has put something else.
func TestMake(t *testing.T) {
	r := newRig(t)
	task := r.made()
	s := task.Start.Sandbox
	r.asOwner(func() { r.must(os.WriteFile(filepath.Join(s.Files(), "mine"), nil, 0o600)) })
	r.must(r.make(s, r.owner))
	for range 2 {
		r.must(r.makeSay(s, r.owner))
	}
	for name, want := range map[string]struct {
		uid  int
		mode uint32
	}{
		"": {os.Getuid(), modeOfSandbox}, order.DirFiles: {r.owner.UID, 0o700}, order.DirSay: {r.owner.UID, 0o700},
	} {
		var st unix.Stat_t
		r.must(unix.Lstat(filepath.Join(s.Dir, name), &st))
		if int(st.Uid) != want.uid || st.Mode != unix.S_IFDIR|want.mode {
			t.Errorf("%q belongs to %d and has mode %o", name, st.Uid, st.Mode)
		}
	}
	if empty, err := r.empty(s); empty || err != nil {
		t.Errorf("empty: %v, %v; want what is in it seen", empty, err)
	}

	// Half made: execd was killed in between.
	half := r.planned("").Start.Sandbox
	r.must(os.MkdirAll(half.Files(), 0o700))
	r.must(r.make(half, r.owner))
	if empty, err := r.empty(half); !empty || err != nil {
		t.Errorf("empty: %v, %v", empty, err)
	}

	victim := t.TempDir()
	for what, put := range map[string]func(*job.Sandbox) error{
		"a link":             func(s *job.Sandbox) error { return os.Symlink(victim, s.Dir) },
		"a file":             func(s *job.Sandbox) error { return os.WriteFile(s.Dir, nil, 0o600) },
		"a link in it":       func(s *job.Sandbox) error { return cmpOr(os.Mkdir(s.Dir, 0o711), os.Symlink(victim, s.Files())) },
		"a user's directory": func(s *job.Sandbox) error { return cmpOr(os.Mkdir(s.Dir, 0o711), os.Chown(s.Dir, stranger, stranger)) },
		"another's in it": func(s *job.Sandbox) error {
			return cmpOr(os.MkdirAll(s.Files(), 0o711), os.Chown(s.Files(), stranger+1, stranger))
		},
	} {
		if strings.HasSuffix(what, "directory") || strings.HasPrefix(what, "another") {
			if os.Getuid() != 0 {
				continue // nobody else is there
			}
		}
		s := r.planned("").Start.Sandbox
		r.must(put(s))
		if err := r.make(s, r.owner); err == nil {
			t.Errorf("%s in its place: it is made all the same", what)
		}
		r.must(os.RemoveAll(s.Dir))
	}
	var st unix.Stat_t
	if r.must(unix.Stat(victim, &st)); int(st.Uid) != os.Getuid() {
		t.Errorf("what a link led to belongs to %d", st.Uid)
	}
}

func cmpOr(errs ...error) error {
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return errs[i]
}

// REQ-XFER-8, REQ-XFER-19, REQ-XFER-44: a sandbox is removed whatever is in it, and once
// more does no harm. What it links to stays.
func TestRemove(t *testing.T) {
	r := newRigIn(t, harness.Memory(t))
	task := r.made()
	r.must(r.makeSay(task.Start.Sandbox, r.owner))
	keep := filepath.Join(t.TempDir(), "keep")
	r.must(os.WriteFile(keep, nil, 0o600))
	r.asOwner(func() {
		at := files(task)
		r.must(os.Symlink(filepath.Dir(keep), filepath.Join(at, "link")))
		r.must(unix.Mkfifo(filepath.Join(at, "pipe"), 0o600))
		r.must(os.WriteFile(filepath.Join(at, "a name\nwith a line"), nil, 0))
		r.must(os.MkdirAll(filepath.Join(at, "closed/deep"), 0o700))
		r.must(os.WriteFile(filepath.Join(at, "closed/deep/file"), nil, 0o600))
		r.must(os.Chmod(filepath.Join(at, "closed/deep"), 0))
		r.must(os.Chmod(filepath.Join(at, "closed"), 0o500))
		defer func() { r.must(os.Chmod(at, 0)) }()
		for n := range 5000 { // a million takes too long here
			r.must(os.WriteFile(filepath.Join(at, fmt.Sprint(n)), nil, 0o600))
		}
		r.must(os.WriteFile(filepath.Join(task.Start.Sandbox.Dir, order.DirSay, order.FileResult), []byte("{"), 0o600))
	})
	r.Remove(task)
	r.Remove(task)
	if !r.isGone(task.Start.Sandbox.Dir) || r.isGone(keep) || len(r.due) > 0 {
		t.Errorf("it is there, or more went than it: %s", r.log.String())
	}
}

// No process is started for a sandbox with nothing but files of standard streams that are
// empty, and root removes nothing else of its owner's.
func TestRemoveEmptyStreams(t *testing.T) {
	for what, put := range map[string]func(path string) error{
		"":                func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"what is written": func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"a link":          func(path string) error { return os.Symlink("/dev/null", path) },
		"a pipe":          func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a directory":     func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		r := newRig(t)
		r.AsUser = &asuser.Starter{Shepherd: "/bin/false"}
		task := r.made()
		r.must(r.makeSay(task.Start.Sandbox, r.owner))
		path := filepath.Join(task.Start.Sandbox.Dir, order.DirSay, order.FileStdout)
		r.asOwner(func() { r.must(put(path)) })
		if r.Remove(task); r.isGone(path) != (what == "") {
			t.Errorf("%s: gone: %v\n%s", what, what != "", r.log.String())
		}
	}
}

// Depth is the owner's to choose.
func TestRemoveDeep(t *testing.T) {
	r := newRigIn(t, harness.Memory(t))
	task := r.made()
	r.asOwner(func() {
		fd, err := unix.Open(files(task), unix.O_DIRECTORY, 0)
		for range 10000 {
			r.must(err)
			r.must(unix.Mkdirat(fd, "d", 0o700))
			var down int
			down, err = unix.Openat(fd, "d", unix.O_DIRECTORY, 0)
			unix.Close(fd)
			fd = down
		}
		unix.Close(fd)
	})
	if r.Remove(task); !r.isGone(task.Start.Sandbox.Dir) {
		t.Errorf("it is there: %s", r.log.String())
	}
}

// A worker that an earlier execd has left has the sandbox to its end.
func TestRemoveWaitsForWorker(t *testing.T) {
	r := newRig(t)
	task := r.made()
	lock, err := os.OpenFile(filepath.Join(task.Start.Sandbox.Dir, order.FileLock), os.O_RDWR|os.O_CREATE, 0o600)
	r.must(err)
	r.must(unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	for range 2 {
		r.Remove(task)
		if r.isGone(files(task)) || len(r.due) != 1 {
			t.Fatalf("it was taken away from under a worker, or is tried again %d times", len(r.due))
		}
	}
	lock.Close()
	if r.passed(); !r.isGone(task.Start.Sandbox.Dir) || len(r.left) > 0 {
		t.Errorf("it is there: %s", r.log.String())
	}
}

// What cannot be removed is tried again for ever, less and less often, and nothing else
// waits for it.
func TestRemoveLater(t *testing.T) {
	r := newRig(t)
	task, other := r.made(), r.made()
	held := filepath.Join(files(task), "held")
	r.must(os.WriteFile(held, nil, 0o600))
	undo, err := hold(held)
	if err != nil {
		t.Skip("needs a file that cannot be removed: ", err)
	}
	defer undo()
	r.Remove(task)
	if r.Remove(other); !r.isGone(other.Start.Sandbox.Dir) {
		t.Error("another sandbox is not removed any more")
	}
	for range 20 {
		r.passed()
	}
	l := r.left[task.Start.Sandbox.Dir]
	if l == nil || l.tries != 21 || !strings.Contains(l.why, "held") || len(r.due) != 1 {
		t.Fatalf("it is left as %+v: %s", l, r.log.String())
	}
	if first, last := r.pauses[0], r.pauses[len(r.pauses)-1]; first != time.Second || last != 24*time.Hour || !slices.IsSorted(r.pauses) {
		t.Errorf("pauses %v", r.pauses)
	}
	undo()
	if r.passed(); !r.isGone(task.Start.Sandbox.Dir) || len(r.left) > 0 || len(r.due) > 0 {
		t.Errorf("it is there: %s", r.log.String())
	}
}

// hold has a file not be removed until undo is called.
func hold(path string) (undo func(), err error) {
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("only root can make it so")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	const immutable = 0x10
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|immutable)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() {
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
		f.Close()
	}, nil
}

// REQ-XFER-9, REQ-XFER-40, REQ-XFER-107: at its start execd removes the sandboxes that no
// run has, and nothing that it may not have made.
func TestRecover(t *testing.T) {
	r := newRig(t)
	used, old := r.made(), r.made()
	r.must(r.Store.Begin(used))
	r.must(os.WriteFile(filepath.Join(files(used), "output"), nil, 0o600))
	r.must(r.Store.Begin(old))
	r.must(r.Store.Withdraw(old))
	place := filepath.Dir(used.Start.Sandbox.Dir)
	put := func(name string) string {
		path := filepath.Join(place, name)
		r.must(os.MkdirAll(filepath.Join(path, order.DirFiles), 0o711))
		return path
	}
	goes := []string{old.Start.Sandbox.Dir, put("1.7.0-0123456789abcdef"), put("1.8.2-fedcba9876543210")}
	stays := map[string]string{
		put("2.1.0-0123456789abcdef"):                  "no job had that number",
		put("1.7.0-0123456789ABCDEF"):                  "no name of a sandbox",
		put("1.7-0123456789abcdef"):                    "no name of a sandbox",
		put("lost+found"):                              "no name of a sandbox",
		filepath.Join(place, "1.7.1-0123456789abcdef"): "no directory",
		filepath.Join(place, "1.7.2-0123456789abcdef"): "no directory",
		filepath.Join(place, "1.7.3-0123456789abcdef"): "belongs to uid",
		filepath.Join(place, "1.7.4-0123456789abcdef"): "mount point",
	}
	victim := t.TempDir()
	r.must(os.WriteFile(filepath.Join(place, "1.7.1-0123456789abcdef"), nil, 0o600))
	r.must(os.Symlink(victim, filepath.Join(place, "1.7.2-0123456789abcdef")))
	theirs, mounted := put("1.7.3-0123456789abcdef"), put("1.7.4-0123456789abcdef")
	if os.Getuid() == 0 {
		r.must(os.Chown(theirs, stranger, stranger))
		r.must(unix.Mount("paddock-test", mounted, "tmpfs", 0, "size=1m"))
		defer func() { r.must(unix.Unmount(mounted, 0)) }()
	} else { // nobody else is there, and nothing can be mounted
		for _, path := range []string{theirs, mounted} {
			delete(stays, path)
			goes = append(goes, path)
		}
	}
	r.Recover()
	r.passed()
	for _, path := range goes {
		if !r.isGone(path) {
			t.Errorf("%s is there", path)
		}
	}
	for path, why := range stays {
		if l := r.left[path]; r.isGone(path) || l == nil || !l.alone || l.tries != 0 || !strings.Contains(l.why, why) {
			t.Errorf("%s is left as %+v; want %s", path, l, why)
		}
	}
	if r.isGone(filepath.Join(files(used), "output")) || r.isGone(filepath.Join(place, fileOurs)) || r.isGone(victim) {
		t.Error("what is in use is removed")
	}
	if left := r.Left(); len(left) != len(stays) || left[0].State != api.SandboxAlone || left[0].Error == "" {
		t.Errorf("left are %+v: %s", left, r.log.String())
	}
}

// A sandbox in which nothing was left is that of the next run of its owner, unless he has
// changed it; and nothing is left of it after a restart.
func TestSpare(t *testing.T) {
	r := newRig(t)
	if !r.Privileged {
		t.Skip("needs root: only the sandboxes of others are used again")
	}
	inode := func(path string) uint64 {
		t.Helper()
		var st unix.Stat_t
		r.must(unix.Lstat(path, &st))
		return st.Ino
	}
	next := func() (*job.Task, uint64) {
		t.Helper()
		task := r.made()
		return task, inode(files(task))
	}
	task, first := next()
	place := filepath.Dir(task.Start.Sandbox.Dir)
	keep, other := next()
	if first == other {
		t.Fatal("two runs have one sandbox")
	}
	for what, change := range map[string]func(dir string) error{
		"nothing": func(string) error { return nil },
		"a file":  func(dir string) error { return os.WriteFile(filepath.Join(dir, "left"), nil, 0o600) },
		"mode":    func(dir string) error { return os.Chmod(dir, 0o755) },
		"ACL": func(dir string) error { // user::rwx, group::---, other::---
			acl := []byte{2, 0, 0, 0}
			for tag, perm := range map[byte]byte{1: 7} {
				acl = append(acl, tag, 0, perm, 0, 0xff, 0xff, 0xff, 0xff)
			}
			acl = append(acl, 4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff)
			err := unix.Setxattr(dir, "system.posix_acl_default", acl, 0)
			if errors.Is(err, unix.ENOTSUP) {
				return os.Chmod(dir, 0o711)
			}
			return err
		},
	} {
		r.asOwner(func() { r.must(change(files(task))) })
		old := inode(files(task))
		r.Remove(task)
		if names, err := filepath.Glob(place + "/[^.]*"); err != nil || len(names) != 1 {
			t.Errorf("%s: %q, %v; want one sandbox", what, names, err)
		}
		// Another directory may get the number of one that is gone: only a spare is there yet.
		spares, err := filepath.Glob(place + "/.spare-*")
		if err != nil || (len(spares) == 1) != (what == "nothing") {
			t.Errorf("%s: spares %q, %v", what, spares, err)
		}
		var st unix.Stat_t
		now := uint64(0)
		task, now = next()
		r.must(unix.Lstat(files(task), &st))
		if what == "nothing" && now != old || st.Mode&0o7777 != 0o700 || int(st.Uid) != r.owner.UID {
			t.Errorf("%s: inode %d mode %o after %d", what, now, st.Mode, old)
		}
	}
	// One that was changed while it was a spare, one of somebody else, and a restart.
	r.Remove(task)
	r.Remove(keep)
	spares, err := filepath.Glob(place + "/.spare-*")
	if err != nil || len(spares) != 2 {
		t.Fatalf("spares %q, %v", spares, err)
	}
	r.must(os.WriteFile(filepath.Join(spares[0], "files", "late"), nil, 0o600))
	r.must(os.WriteFile(filepath.Join(spares[1], "files", "late"), nil, 0o600))
	task, _ = next()
	if names, err := os.ReadDir(files(task)); err != nil || len(names) > 0 {
		t.Errorf("a new sandbox has %v, %v", names, err)
	}
	r.passed()
	r.owner.UID++
	r.Remove(task)
	next()
	r.owner.UID--
	r.spares = nil // as those of a new execd
	r.Recover()
	r.passed()
	r.passed()
	if spares, err = filepath.Glob(place + "/.spare-*"); err != nil || spares != nil || len(r.left) > 0 {
		t.Errorf("after a restart: %q, %v, %v", spares, err, r.left)
	}
	if strings.Contains(r.log.String(), spared) {
		t.Errorf("log:\n%s", &r.log)
	}
}
