package spool_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"paddock/spool"
	"paddock/spool/atomicfile"
	"paddock/spool/spooltest"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	d := spool.OpenDir(dir)
	for _, size := range []int{0, 1, 4096, 16 << 20} {
		want := bytes.Repeat([]byte{'x'}, size)
		write(t, d.Path("file"), string(want))
		if got, err := d.Read("file"); !bytes.Equal(got, want) || err != nil {
			t.Errorf("Read of %d bytes: got %d, %v", size, len(got), err)
		}
	}
	write(t, d.Path("large"), strings.Repeat("x", 16<<20+1))
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, "1\n")
	for _, err := range []error{
		os.Symlink(outside, d.Path("link")),
		os.Symlink("nowhere", d.Path("dangling")),
		os.Mkdir(d.Path("directory"), 0o700),
		unix.Mkfifo(d.Path("pipe"), 0o600),
		os.Symlink(dir, filepath.Join(filepath.Dir(outside), "dirlink")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"large", "link", "dangling", "directory", "pipe", "missing", "", ".", "..", "../x", "directory/x", "/etc/passwd", "a\x00b"} {
		if got, err := d.Read(name); err == nil {
			t.Errorf("Read(%q) = %.20q; want an error", name, got)
		}
		if name != "missing" && name != "large" {
			for what, err := range map[string]error{"Append": d.Append(name, []byte("evil\n")), "WriteNew": d.WriteNew(name, nil)} {
				// To create a file behind a dangling link would be as bad.
				if err == nil {
					t.Errorf("%s(%q) succeeded", what, name)
				}
			}
		}
	}
	if got, _ := os.ReadFile(outside); string(got) != "1\n" {
		t.Errorf("the file behind the link has %q", got)
	}
	// An atomic write replaces a link by a file.
	if err := d.Write("link", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(outside); string(got) != "1\n" || !modeOf(t, d.Path("link")).IsRegular() {
		t.Errorf("Write went through the link: %q", got)
	}
	if _, err := (spool.Dir{}).Read("file"); err == nil {
		t.Error("Read of no directory succeeded")
	}
	if err := (spool.Dir{}).Admit(-1); err == nil {
		t.Error("Admit of no directory succeeded")
	}
}

// Modes are those of the table whatever the umask is.
func TestModes(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	for _, umask := range []int{0, 0o077, 0o777} {
		syscall.Umask(old)
		parent := t.TempDir()
		syscall.Umask(umask)
		if umask == 0o777 && os.Geteuid() != 0 {
			continue // cannot even enter what it makes
		}
		r, err := spool.OpenRoot(parent+"/a/spool", true)
		if err != nil {
			t.Fatal(err)
		}
		if got := modeOf(t, r.Path()).Perm(); got != 0o711 {
			t.Errorf("umask %03o: root has mode %o; want 711", umask, got)
		}
		for _, p := range spool.Places {
			if got := modeOf(t, r.Path(p.Name)).Perm(); got != p.Mode {
				t.Errorf("umask %03o: %s has mode %o; want %o", umask, p.Name, got, p.Mode)
			}
		}
		run := spool.RunID{Job: 42, Task: 1}
		d, err := r.Stage(run, -1)
		if err != nil {
			t.Fatal(err)
		}
		if got := modeOf(t, d.Path()).Perm(); got != 0o700 {
			t.Errorf("umask %03o: staged directory has mode %o; want 700", umask, got)
		}
		if err := d.Admit(-1); err != nil {
			t.Fatal(err)
		}
		if got := modeOf(t, d.Path()).Perm(); got != 0o711 {
			t.Errorf("umask %03o: admitted directory has mode %o; want 711", umask, got)
		}
		for i, f := range spool.Files {
			var err error
			switch i % 3 {
			case 0:
				err = d.Write(f.Name, nil)
			case 1:
				err = d.WriteNew(f.Name, nil)
			case 2:
				err = d.Append(f.Name, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := modeOf(t, d.Path(f.Name)).Perm(); got != f.Mode {
				t.Errorf("umask %03o: %s has mode %o; want %o", umask, f.Name, got, f.Mode)
			}
		}
	}
	for name, want := range map[string]fs.FileMode{
		"pe_hostfile": 0o444, "config": 0o600, "environment": 0o600, "args": 0o600, "lock": 0o600, "signals": 0o600,
		"session": 0o600, "exit_status": 0o644, "error": 0o644, "usage": 0o644, "trace": 0o644, "unknown": 0o600,
	} {
		if got := spool.ModeOf(name); got != want {
			t.Errorf("ModeOf(%s) = %o; want %o", name, got, want)
		}
	}
}

func TestAdmitGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	d := spool.OpenDir(t.TempDir())
	if err := d.Admit(54321); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); st.Uid != 0 || st.Gid != 54321 || info.Mode().Perm() != 0o711 {
		t.Errorf("got %d:%d %o; want 0:54321 711", st.Uid, st.Gid, info.Mode().Perm())
	}
}

func TestOutcome(t *testing.T) {
	start := time.Unix(1795190461, 0)
	usage := spool.NewUsage(9, start, start, &syscall.Rusage{})
	exit3 := spool.NewUsage(0x300, start, start, &syscall.Rusage{})
	foreign := func(d spool.Dir) error {
		c, err := d.Config()
		if err == nil {
			err = c.SetBool(spool.KeyForeign, true)
		}
		return errors.Join(err, d.Write(spool.FileConfig, c.Append(nil)))
	}
	checkpointed := func(content string) func(d spool.Dir) error {
		return func(d spool.Dir) error {
			return errors.Join(d.WriteNew(spool.FileCheckpointed, []byte(content)), spooltest.End(d, 0, "", usage))
		}
	}
	for _, tt := range []struct {
		name string
		make func(d spool.Dir) error
		want spool.Outcome
		err  error // nil: none
	}{
		{"nothing", func(spool.Dir) error { return nil }, spool.Outcome{}, spool.ErrNoStatus},
		{"empty", func(d spool.Dir) error { return d.WriteNew(spool.FileExitStatus, nil) }, spool.Outcome{}, spool.ErrNoStatus},
		{"torn", func(d spool.Dir) error { return d.WriteNew(spool.FileExitStatus, []byte("2")) }, spool.Outcome{}, spool.ErrNoStatus},
		{"garbage", func(d spool.Dir) error { return d.WriteNew(spool.FileExitStatus, []byte("x\n")) }, spool.Outcome{}, spool.ErrSyntax},
		{"exit 3", func(d spool.Dir) error { return spooltest.End(d, 0, "", exit3) }, spool.Outcome{Usage: exit3}, nil},
		{"first of two", func(d spool.Dir) error {
			return errors.Join(spooltest.End(d, 10, "first", nil), spooltest.End(d, 13, "second", nil))
		}, spool.Outcome{Failed: 10, Blame: spool.BlameQueue, Reason: "first"}, nil},
		{
			"signal", func(d spool.Dir) error { return spooltest.End(d, 0, "", usage) },
			spool.Outcome{Failed: 100, Blame: spool.BlameJob, Reason: "job 7.3 died through signal KILL (9)", Usage: usage},
			nil,
		},
		{
			"signal and reason", func(d spool.Dir) error { return spooltest.End(d, 37, "limit", usage) },
			spool.Outcome{Failed: 37, Blame: spool.BlameJob, Reason: "limit", Usage: usage},
			nil,
		},
		{"two lines, the job ran", func(d spool.Dir) error {
			return errors.Join(spooltest.End(d, 37, "first", usage), spooltest.End(d, 15, "second", nil))
		}, spool.Outcome{Failed: 37, Blame: spool.BlameJob, Reason: "first", Usage: usage}, nil},
		{
			"why a signal", func(d spool.Dir) error {
				return errors.Join(d.Append(spool.FileError, []byte("something before\n")), spooltest.End(d, 0, "job used up its processor time: h_cpu 2 s", usage))
			},
			spool.Outcome{Failed: 100, Blame: spool.BlameJob, Reason: "job used up its processor time: h_cpu 2 s", Usage: usage},
			nil,
		},
		{"why an exit", func(d spool.Dir) error { return spooltest.End(d, 0, "odd", exit3) }, spool.Outcome{Reason: "odd", Usage: exit3}, nil},
		{
			"unexpected error of a foreign shepherd", func(d spool.Dir) error { return errors.Join(foreign(d), spooltest.End(d, 0, "odd", exit3)) },
			spool.Outcome{Failed: 20, Blame: spool.BlameSystem, Reason: "odd", Usage: exit3},
			nil,
		},
		{
			"unexpected error under a foreign execd", func(d spool.Dir) error {
				return errors.Join(d.Write(spool.FileConfig, []byte("job_id=7\nja_task_id=3\n")), spooltest.End(d, 0, "odd", usage))
			},
			spool.Outcome{Failed: 20, Blame: spool.BlameSystem, Reason: "odd", Usage: usage},
			nil,
		},
		{
			"unexpected error, no config", func(d spool.Dir) error {
				return errors.Join(os.Remove(d.Path(spool.FileConfig)), spooltest.End(d, 0, "odd", exit3))
			},
			spool.Outcome{Failed: 20, Blame: spool.BlameSystem, Reason: "odd", Usage: exit3},
			nil,
		},
		{"migrates with a checkpoint", checkpointed("1\n"), spool.Outcome{Failed: 24, Usage: usage, Checkpoint: true}, nil},
		{"migrates without", checkpointed("0\n"), spool.Outcome{Failed: 24, Usage: usage}, nil},
		{"migrates with whatever", checkpointed("\xff"), spool.Outcome{Failed: 24, Usage: usage}, nil},
		{
			"an empty file of our shepherd is none", checkpointed(""),
			spool.Outcome{Failed: 100, Blame: spool.BlameJob, Reason: "job 7.3 died through signal KILL (9)", Usage: usage},
			nil,
		},
		{
			"an empty file of a foreign one is one", func(d spool.Dir) error { return errors.Join(foreign(d), checkpointed("")(d)) },
			spool.Outcome{Failed: 24, Usage: usage},
			nil,
		},
		{
			"a foreign one with a checkpoint", func(d spool.Dir) error { return errors.Join(foreign(d), checkpointed("1\n")(d)) },
			spool.Outcome{Failed: 24, Usage: usage, Checkpoint: true},
			nil,
		},
		{
			"migrates, and the epilog fails", func(d spool.Dir) error {
				return errors.Join(d.WriteNew(spool.FileCheckpointed, []byte("1\n")), spooltest.End(d, 15, "exit_status of epilog = 1", usage))
			},
			spool.Outcome{Failed: 24, Reason: "exit_status of epilog = 1", Usage: usage, Checkpoint: true},
			nil,
		},
		{"checkpointed is a pipe", func(d spool.Dir) error {
			return errors.Join(unix.Mkfifo(d.Path(spool.FileCheckpointed), 0o600), spooltest.End(d, 0, "", usage))
		}, spool.Outcome{}, atomicfile.ErrNotRegular},
		{"bad usage", func(d spool.Dir) error {
			return errors.Join(d.WriteNew(spool.FileUsage, []byte("signal=0\n")), spooltest.End(d, 0, "", nil))
		}, spool.Outcome{}, spool.ErrSyntax},
		{"usage is a pipe", func(d spool.Dir) error {
			return errors.Join(unix.Mkfifo(d.Path(spool.FileUsage), 0o600), spooltest.End(d, 0, "", nil))
		}, spool.Outcome{}, atomicfile.ErrNotRegular},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := spooltest.New(t, spooltest.Job{Run: spool.RunID{Job: 7, Task: 3}, Array: true}, nil)
			if err := tt.make(d); err != nil {
				t.Fatal(err)
			}
			got, err := d.Outcome()
			if !errors.Is(err, tt.err) || !cmp.Equal(got, tt.want) {
				t.Errorf("Outcome = %+v, %v; want %+v, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestTypedReaders(t *testing.T) {
	env := []string{"A=1", "B=x\ny"}
	d := spooltest.New(t, spooltest.Job{Args: []string{"a", "b c"}}, env)
	for name, content := range map[string]string{spool.FileAddGrpID: "65401\n", spool.FileJobPID: "8\n", spool.FileSignal: "19 2\n", spool.FileSignals: "19 1\n18 2\n1"} {
		if err := d.WriteNew(name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := spooltest.Start(d, 7); err != nil {
		t.Fatal(err)
	}
	c, err := d.Config()
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, got any, err error, want any) {
		t.Helper()
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s = %v, %v; want %v", what, got, err, want)
		}
	}
	args, err := d.Arguments(c)
	check("Arguments", args, err, []string{"a", "b c"})
	gotEnv, err := d.Environment()
	check("Environment", gotEnv, err, env)
	pid, err := d.PID()
	check("PID", pid, err, 7)
	jobPID, err := d.JobPID()
	check("JobPID", jobPID, err, 8)
	sig, err := d.Signal()
	check("Signal", sig, err, spool.Signal{Signal: 19, Seq: 2})
	sigs, err := d.Signals()
	check("Signals", sigs, err, []spool.Signal{{Signal: 19, Seq: 1}, {Signal: 18, Seq: 2}})

	empty := spool.OpenDir(t.TempDir())
	sigs, err = empty.Signals()
	check("Signals without file", sigs, err, []spool.Signal(nil))
	first, last, err := empty.ErrorText()
	check("ErrorText without file", first+last, err, "")
	if _, err := empty.PID(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("PID without file: %v; want fs.ErrNotExist", err)
	}
	// An args file that does not fit config would be other arguments.
	if err := c.SetBool(spool.KeyArgs, true); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(spool.FileArgs, []byte("a\x00")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Arguments(c); !errors.Is(err, spool.ErrSyntax) {
		t.Errorf("Arguments with one of two: %v; want ErrSyntax", err)
	}
}

func TestLock(t *testing.T) {
	d := spool.OpenDir(t.TempDir())
	held := func(want bool) {
		t.Helper()
		if got, err := d.Held(); got != want || err != nil {
			t.Errorf("Held = %t, %v; want %t", got, err, want)
		}
	}
	held(false)
	f, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if got := modeOf(t, d.Path(spool.FileLock)).Perm(); got != 0o600 {
		t.Errorf("lock has mode %o; want 600", got)
	}
	held(true)
	if _, err := d.Lock(); !errors.Is(err, spool.ErrLocked) {
		t.Errorf("second Lock: %v; want ErrLocked", err)
	}
	// A copy of the descriptor keeps it, as a shepherd's does.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	held(true)
	unix.Close(fd)
	held(false)

	// Many who look at once do not see each other.
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if got, err := d.Held(); got || err != nil {
					t.Errorf("Held = %t, %v; want false", got, err)
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(os.Remove(d.Path(spool.FileLock)), os.Symlink("/etc/passwd", d.Path(spool.FileLock))); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lock(); err == nil {
		t.Error("Lock went through a link")
	}
	if _, err := d.Held(); err == nil {
		t.Error("Held went through a link")
	}
}

func newRoot(t *testing.T) *spool.Root {
	t.Helper()
	r, err := spool.OpenRoot(t.TempDir()+"/spool", true)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tree returns what is below the root, directories with a slash behind.
func tree(t *testing.T, r *spool.Root) []string {
	t.Helper()
	var names []string
	for _, p := range spool.Places {
		entries, err := os.ReadDir(r.Path(p.Name))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := p.Name + "/" + e.Name()
			if e.IsDir() {
				name += "/"
			}
			names = append(names, name)
		}
	}
	return names
}

func wantTree(t *testing.T, r *spool.Root, want ...string) {
	t.Helper()
	if got := tree(t, r); !cmp.Equal(got, want) {
		t.Errorf("the spool has %q; want %q", got, want)
	}
}

func TestLife(t *testing.T) {
	r := newRoot(t)
	run := spool.RunID{Job: 42, Task: 1, Run: 3}
	d, err := r.Stage(run, -1)
	if err != nil {
		t.Fatal(err)
	}
	write(t, d.Path("left-over"), "")
	// Staged again, it starts from nothing.
	if d, err = r.Stage(run, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(d.Path("left-over")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left-over is still there: %v", err)
	}
	wantTree(t, r, "staging/42.1.3/")
	if got, err := r.ListStaging(); !cmp.Equal(got, []string{"42.1.3"}) || err != nil {
		t.Errorf("ListStaging = %q, %v", got, err)
	}
	write(t, d.Path(spool.FilePID), "7\n")
	if d, err = r.Activate(run); err != nil || d != r.Active(run.ID()) {
		t.Fatalf("Activate = %v, %v; want %v", d, err, r.Active(run.ID()))
	}
	if pid, err := d.PID(); pid != 7 || err != nil {
		t.Errorf("PID = %d, %v; want 7", pid, err)
	}
	wantTree(t, r, "active_jobs/42.1/")
	if _, err := r.Activate(run); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Activate of what is not staged: %v; want fs.ErrNotExist", err)
	}
	for range 2 { // the second time after a crash before it was recorded
		if d, err = r.Finish(run); err != nil || d != r.Finished(run) {
			t.Fatalf("Finish = %v, %v; want %v", d, err, r.Finished(run))
		}
	}
	wantTree(t, r, "finished/42.1.3/")
	if _, err := r.Finish(spool.RunID{Job: 42, Task: 1, Run: 4}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Finish of what is not active: %v; want fs.ErrNotExist", err)
	}
	for range 2 {
		if err := r.Remove(d); err != nil {
			t.Fatal(err)
		}
	}
	wantTree(t, r)
}

// A directory of an earlier run is never taken for, nor lost to, a later one.
func TestStaleDirectories(t *testing.T) {
	r := newRoot(t)
	run := spool.RunID{Job: 42, Task: 1}
	for n := range 3 {
		run.Run = n
		d, err := r.Stage(run, -1)
		if err != nil {
			t.Fatal(err)
		}
		if n != 1 { // an empty one is kept as well
			write(t, d.Path(spool.FileExitStatus), fmt.Sprintf("%d\n", n))
		}
		if _, err := r.Activate(run); err != nil {
			t.Fatal(err)
		}
	}
	wantTree(t, r, "active_jobs/42.1/", "corrupt/42.1/", "corrupt/42.1.1/")
	if n, err := r.Active(run.ID()).ExitStatus(); n != 2 || err != nil {
		t.Errorf("active run has status %d, %v; want 2", n, err)
	}
	if err := os.Mkdir(r.Finished(run).Path(), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Finish(run); err != nil {
		t.Fatal(err)
	}
	wantTree(t, r, "finished/42.1.2/", "corrupt/42.1/", "corrupt/42.1.1/", "corrupt/42.1.2/")
}

func TestSetAside(t *testing.T) {
	r := newRoot(t)
	write(t, r.Path(spool.DirJobs, "x"), "first")
	write(t, r.Path(spool.FileSeqNum), "")
	if err := os.MkdirAll(r.Path(spool.DirActive, "x/1.host/x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", r.Path(spool.DirActive, "..x")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range [][2]string{
		{"jobs/x", "x"}, {"active_jobs/x/1.host/x", "x.1"}, {"active_jobs/x", "x.2"}, {"active_jobs/..x", "x.3"}, {spool.FileSeqNum, spool.FileSeqNum},
	} {
		got, err := r.SetAside(r.Path(tt[0]))
		if want := r.Path(spool.DirCorrupt, tt[1]); got != want || err != nil {
			t.Errorf("SetAside(%s) = %s, %v; want %s", tt[0], got, err, want)
		}
	}
	names, err := r.ListCorrupt()
	if !cmp.Equal(names, []string{"job_seq_num", "x", "x.1", "x.2", "x.3"}) || err != nil {
		t.Errorf("ListCorrupt = %q, %v", names, err)
	}
	if b, err := os.ReadFile(r.Path(spool.DirCorrupt, "x")); string(b) != "first" || err != nil {
		t.Errorf("corrupt/x has %q, %v; want first", b, err)
	}
	for _, path := range []string{
		r.Path(), r.Path("active_jobs"), r.Path("corrupt", "x"), r.Path("corrupt"), r.Path("active_jobs", "..", "jobs"), r.Path("."), r.Path(".."), r.Path("active_jobs", ""),
		"/etc", "active_jobs/x", "", r.Path() + "x/y",
	} {
		if got, err := r.SetAside(path); err == nil {
			t.Errorf("SetAside(%q) = %s; want an error", path, got)
		}
	}
	if _, err := r.SetAside(r.Path("jobs", "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("SetAside of nothing: %v; want fs.ErrNotExist", err)
	}
}

func TestRemoveStaysInside(t *testing.T) {
	r := newRoot(t)
	outside := t.TempDir()
	write(t, outside+"/file", "")
	for _, d := range []spool.Dir{
		{},
		spool.OpenDir(outside), spool.OpenDir(r.Path()), spool.OpenDir(r.Path("active_jobs")), spool.OpenDir(r.Path("active_jobs", "..", "..", filepath.Base(outside))),
		spool.OpenDir(r.Path("active_jobs", "..")), spool.OpenDir(r.Path("jobs", "x")), spool.OpenDir(r.Path("corrupt", "x")), r.Active(spool.ID{Job: 1, Task: 1, PETask: "../../.."}),
		r.Finished(spool.RunID{}),
	} {
		if err := r.Remove(d); err == nil {
			t.Errorf("Remove(%q) succeeded", d.Path())
		}
	}
	// A link is removed, what is behind it stays, at the top and further in.
	run := spool.RunID{Job: 1, Task: 1}
	d, err := r.Stage(run, -1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(outside, d.Path("link")), os.Symlink(outside, r.Active(run.ID()).Path())); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Remove(d), r.Remove(r.Active(run.ID()))); err != nil {
		t.Error(err)
	}
	wantTree(t, r)
	if _, err := os.Stat(outside + "/file"); err != nil {
		t.Errorf("the file behind the link: %v", err)
	}
	for _, bad := range []spool.RunID{{}, {Job: -1, Task: 1}, {Job: 1, Task: 1, Run: -1}} {
		if _, err := r.Stage(bad, -1); err == nil {
			t.Errorf("Stage(%v) succeeded", bad)
		}
		if _, err := r.Activate(bad); err == nil {
			t.Errorf("Activate(%v) succeeded", bad)
		}
		if _, err := r.Finish(bad); err == nil {
			t.Errorf("Finish(%v) succeeded", bad)
		}
	}
}

// Links and files in the places of directories are refused.
func TestWrongKinds(t *testing.T) {
	for _, place := range spool.Places {
		r := newRoot(t)
		if err := errors.Join(os.Rename(r.Path(place.Name), r.Path("elsewhere")), os.Symlink(r.Path("elsewhere"), r.Path(place.Name))); err != nil {
			t.Fatal(err)
		}
		for _, create := range []bool{false, true} {
			if _, err := spool.OpenRoot(r.Path(), create); err == nil {
				t.Errorf("OpenRoot took a link in the place of %s", place.Name)
			}
		}
		if place.Name == spool.DirActive {
			if _, err := r.ListActive(); err == nil {
				t.Error("ListActive went through a link")
			}
		}
	}
	r := newRoot(t)
	run := spool.RunID{Job: 1, Task: 1}
	if err := errors.Join(os.Symlink(t.TempDir(), r.Staging(run).Path()), os.Symlink(t.TempDir(), r.Active(run.ID()).Path())); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Activate(run); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("Activate of a link: %v; want ENOTDIR", err)
	}
	if _, err := r.Finish(run); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("Finish of a link: %v; want ENOTDIR", err)
	}
	if d, err := r.Stage(run, -1); err != nil || !modeOf(t, d.Path()).IsDir() {
		t.Errorf("Stage over a link: %v", err)
	}

	file := t.TempDir() + "/file"
	write(t, file, "")
	for _, path := range []string{"", "/", file, file + "/spool", "/nonexistent/spool"} {
		if _, err := spool.OpenRoot(path, false); err == nil {
			t.Errorf("OpenRoot(%q) succeeded", path)
		}
	}
	if _, err := spool.OpenRoot(file+"/spool", true); err == nil {
		t.Error("OpenRoot made a spool below a file")
	}
	if _, err := spool.OpenRoot(t.TempDir(), false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OpenRoot of an empty directory: %v; want fs.ErrNotExist", err)
	}
}

func TestSweepDots(t *testing.T) {
	r := newRoot(t)
	if err := os.MkdirAll(r.Path(spool.DirFinished, ".1.1.0", "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"jobs/.1.tmp-7-1", "jobs/1", ".job_seq_num.tmp-7-2", ".snapshot", "corrupt/.keep"} {
		write(t, r.Path(name), "")
	}
	if names, err := r.ListJobs(); !cmp.Equal(names, []string{"1"}) || err != nil {
		t.Errorf("ListJobs = %q, %v; want 1 alone", names, err)
	}
	if names, err := r.ListScripts(); len(names) != 0 || err != nil {
		t.Errorf("ListScripts = %q, %v; want none", names, err)
	}
	if err := r.SweepDots(); err != nil {
		t.Fatal(err)
	}
	wantTree(t, r, "corrupt/.keep", "jobs/1")
	if _, err := os.Lstat(r.Path(".job_seq_num.tmp-7-2")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("temporary file in the root: %v", err)
	}
	if _, err := os.Lstat(r.Path(".snapshot")); err != nil {
		t.Errorf("a stranger's dot name in the root: %v", err)
	}
}

// life brings a run from staging to its removal.
func life(r *spool.Root, run spool.RunID, c *spool.Config) error {
	d, err := r.Stage(run, -1)
	if err != nil {
		return err
	}
	if err := spooltest.Fill(d, c, []string{"A=1"}); err != nil {
		return err
	}
	if err := d.Admit(-1); err != nil {
		return err
	}
	if d, err = r.Activate(run); err != nil {
		return err
	}
	if err := spooltest.Start(d, 7); err != nil {
		return err
	}
	now := time.Now()
	if err := spooltest.End(d, 0, "", spool.NewUsage(0, now, now, &syscall.Rusage{})); err != nil {
		return err
	}
	if d, err = r.Finish(run); err != nil {
		return err
	}
	return r.Remove(d)
}

var lifeRun = spool.RunID{Job: 42, Task: 1, Run: 2}

// understood checks that the spool can be listed and that the run, if it is
// anywhere, is in one place whose meaning holds.
func understood(t *testing.T, r *spool.Root) (place string) {
	t.Helper()
	r, err := spool.OpenRoot(r.Path(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SweepDots(); err != nil {
		t.Fatal(err)
	}
	staging, err1 := r.ListStaging()
	active, err2 := r.ListActive()
	finished, err3 := r.ListFinished()
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	names := tree(t, r)
	if len(names) > 1 || len(staging)+len(active)+len(finished) != len(names) {
		t.Fatalf("the spool has %q; want the run in one place", names)
	}
	complete := func(d spool.Dir) {
		t.Helper()
		if _, err := d.Config(); err != nil {
			t.Error(err)
		}
		if _, err := d.Environment(); err != nil {
			t.Error(err)
		}
		if got := modeOf(t, d.Path()).Perm(); got != 0o711 {
			t.Errorf("mode %o; want 711", got)
		}
	}
	switch {
	case len(staging) == 1:
		// It may vanish: half-built is as good as not begun.
		if run, err := spool.ParseRunID(staging[0]); run != lifeRun || err != nil {
			t.Errorf("staging has %q, %v", staging, err)
		}
		return spool.DirStaging
	case len(active) == 1:
		id, err := spool.ParseID(active[0])
		if id != lifeRun.ID() || err != nil {
			t.Errorf("active_jobs has %q, %v", active, err)
		}
		d := r.Active(id)
		complete(d)
		o, err := d.Outcome()
		switch {
		case errors.Is(err, spool.ErrNoStatus):
		case err != nil:
			t.Error(err)
		case o.Failed != 0 || o.Usage == nil:
			t.Errorf("outcome %+v; want a usage and no failure", o)
		}
		return spool.DirActive
	case len(finished) == 1:
		run, err := spool.ParseRunID(finished[0])
		if run != lifeRun || err != nil {
			t.Errorf("finished has %q, %v", finished, err)
		}
		complete(r.Finished(run))
		if o, err := r.Finished(run).Outcome(); err != nil || o.Failed != 0 || o.Usage == nil {
			t.Errorf("outcome %+v, %v; want a usage and no failure", o, err)
		}
		return spool.DirFinished
	}
	return ""
}

func TestFaultCrashAtEveryStep(t *testing.T) {
	c := spooltest.Config(t, spooltest.Job{Run: lifeRun})
	var places []string
	spooltest.EachCrash(t, newRoot,
		func(t *testing.T, r *spool.Root) {
			if err := life(r, lifeRun, c); err != nil {
				t.Fatal(err)
			}
		},
		func(t *testing.T, r *spool.Root, crashed bool) {
			place := understood(t, r)
			if len(places) == 0 || places[len(places)-1] != place {
				places = append(places, place)
			}
			if !crashed && place != "" {
				t.Errorf("a whole life ends in %s", place)
			}
			// And whatever it was, the next run is not hindered.
			next := lifeRun
			next.Run++
			if err := life(r, next, c); err != nil {
				t.Error(err)
			}
		})
	if want := []string{"", "staging", "active_jobs", "finished", ""}; !cmp.Equal(places, want) {
		t.Errorf("crashes left the run in %q; want %q", places, want)
	}
}

func TestFaultAtEveryStep(t *testing.T) {
	c := spooltest.Config(t, spooltest.Job{Run: lifeRun})
	for _, fault := range []error{unix.ENOSPC, unix.EIO} {
		t.Run(fault.Error(), func(t *testing.T) {
			spooltest.EachFault(t, fault, newRoot,
				func(_ *testing.T, r *spool.Root) error { return life(r, lifeRun, c) },
				func(t *testing.T, r *spool.Root, got error) {
					if got != nil && !errors.Is(got, fault) {
						t.Errorf("got error %v; want %v", got, fault)
					}
					if got != nil && !strings.HasPrefix(got.Error(), "cannot ") {
						t.Errorf("got error %q; want it to begin with cannot", got)
					}
					if place := understood(t, r); got == nil && place != "" {
						t.Errorf("no error, and the run is in %s", place)
					}
				})
		})
	}
}

// A directory that is used again is as good as new: nothing of the earlier run
// can be read in it, and what is not ordinary is never used again.
func TestRecycle(t *testing.T) {
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	finished := func(job int) spool.Dir {
		t.Helper()
		run := spool.RunID{Job: job, Task: 1}
		d, err := root.Stage(run, -1)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{spool.FileConfig, spool.FileLock, spool.FilePID, spool.FileExitStatus, spool.FileUsage, spool.FileHooks} {
			if err := d.WriteNew(name, []byte("1\n")); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Admit(-1); err != nil {
			t.Fatal(err)
		}
		if _, err := root.Activate(run); err != nil {
			t.Fatal(err)
		}
		d, err = root.Finish(run)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	inode := func(path string) uint64 {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}

	d := finished(1)
	before := inode(d.Path())
	if err := root.Recycle(d, 0); err != nil {
		t.Fatal(err)
	}
	d, err = root.Stage(spool.RunID{Job: 2, Task: 1}, -1)
	if err != nil {
		t.Fatal(err)
	}
	if inode(d.Path()) != before {
		t.Error("Stage made a new directory; want the spare one")
	}
	if _, err := d.PID(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("PID = %v; want none", err)
	}
	if _, err := d.Usage(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Usage = %v; want none", err)
	}
	if _, err := d.Config(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Config = %v; want none", err)
	}
	if _, err := d.Outcome(); !errors.Is(err, spool.ErrNoStatus) {
		t.Errorf("Outcome = %v; want ErrNoStatus", err)
	}
	if info, err := os.Stat(d.Path()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v; want 0700", info.Mode(), err)
	}

	for what, spoil := range map[string]func(d spool.Dir) error{
		"another file": func(d spool.Dir) error { return d.WriteNew(spool.FileSignal, []byte("9\n")) },
		// Emptied it would say that the next job migrates.
		"a checkpoint":  func(d spool.Dir) error { return d.WriteNew(spool.FileCheckpointed, []byte("1\n")) },
		"another mode":  func(d spool.Dir) error { return os.Chmod(d.Path(spool.FileUsage), 0o666) },
		"a second name": func(d spool.Dir) error { return os.Link(d.Path(spool.FileUsage), root.Path("kept")) },
		"a link": func(d spool.Dir) error {
			return errors.Join(os.Remove(d.Path(spool.FileUsage)), os.Symlink("config", d.Path(spool.FileUsage)))
		},
	} {
		d := finished(3)
		was := inode(d.Path())
		if err := spoil(d); err != nil {
			t.Fatal(err)
		}
		if err := root.Recycle(d, 0); err != nil {
			t.Errorf("%s: Recycle: %v", what, err)
		}
		next, err := root.Stage(spool.RunID{Job: 4, Task: 1}, -1)
		if err != nil {
			t.Fatal(err)
		}
		names, err := os.ReadDir(next.Path())
		if err != nil || len(names) > 0 {
			t.Errorf("%s: the next directory has %v, %v (was inode %d); want a new one", what, names, err, was)
		}
		if err := root.Remove(next); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(root.Path("kept")); err != nil || string(b) != "1\n" {
		t.Errorf("a file with a second name was emptied: %q, %v", b, err)
	}

	// What was lent stays for a run of the same owner, and for nobody else.
	for _, tc := range []struct {
		what  string
		owner int
		spoil func(path string) error
		same  bool
	}{
		{"the same owner", 7, func(string) error { return nil }, true},
		{"the same owner, other rights", 7, func(path string) error { return os.Chmod(path, 0o640) }, true},
		{"another owner", 8, func(string) error { return nil }, false},
		{"a second name", 7, func(path string) error { return os.Link(path, root.Path("kept too")) }, false},
	} {
		d := finished(7)
		path := d.Path(spool.FileHookJobAd)
		if err := errors.Join(d.WriteNew(spool.FileHookJobAd, []byte("secret\n")), tc.spoil(path)); err != nil {
			t.Fatal(err)
		}
		was := inode(path)
		if err := root.Recycle(d, 7); err != nil {
			t.Errorf("%s: Recycle: %v", tc.what, err)
		}
		next, err := root.Stage(spool.RunID{Job: 8, Task: 1}, tc.owner)
		if err != nil {
			t.Fatal(err)
		}
		there, err := next.Has(spool.FileHookJobAd)
		if err != nil || there != tc.same {
			t.Errorf("%s: the next run has the file: %v, %v; want %v", tc.what, there, err, tc.same)
		}
		f, err := next.Refill(spool.FileHookJobAd, []byte("new\n"))
		if err != nil {
			t.Fatalf("%s: %v", tc.what, err)
		}
		f.Close()
		b, err := next.Read(spool.FileHookJobAd)
		if err != nil || string(b) != "new\n" || tc.same && inode(next.Path(spool.FileHookJobAd)) != was {
			t.Errorf("%s: the file has %q, %v", tc.what, b, err)
		}
		if _, err := next.Refill(spool.FileHookJobAd, nil); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: Refill of a file that is not empty: %v", tc.what, err)
		}
		if err := root.Remove(next); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(root.Path("kept too")); err != nil || string(b) != "secret\n" {
		t.Errorf("a lent file with a second name was emptied: %q, %v", b, err)
	}

	// After a crash, spares are swept away like all that was half removed.
	if err := root.Recycle(finished(5), 0); err != nil {
		t.Fatal(err)
	}
	if err := root.SweepDots(); err != nil {
		t.Fatal(err)
	}
	if _, err := root.Stage(spool.RunID{Job: 6, Task: 1}, -1); err != nil {
		t.Errorf("Stage after the spare was swept: %v", err)
	}
}

// What the system cannot read now says nothing of what is there.
func TestUnread(t *testing.T) {
	dir := t.TempDir()
	for name, put := range map[string]func(path string) error{
		"none": func(string) error { return nil },
		"dir":  func(path string) error { return os.Mkdir(path, 0o700) },
		"link": func(path string) error { return os.Symlink("none", path) },
		"pipe": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"sock": func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"big":  func(path string) error { return os.WriteFile(path, make([]byte, 11), 0o600) },
	} {
		path := filepath.Join(dir, name)
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		if _, err := spool.ReadFile(path, 10); err == nil || spool.Unread(err) {
			t.Errorf("%s: %v counts as unread", name, err)
		}
	}
	for _, errno := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EIO, unix.EINTR, unix.EAGAIN, unix.ESTALE, unix.EACCES} {
		if !spool.Unread(&os.PathError{Op: "open", Path: "x", Err: errno}) || !spool.Unread(fmt.Errorf("x: %w", errno)) {
			t.Errorf("%v does not count as unread", errno)
		}
	}
	if spool.Unread(nil) || spool.Unread(&spool.SyntaxError{}) {
		t.Error("what was read counts as unread")
	}
}
