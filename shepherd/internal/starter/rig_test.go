package starter

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
	"paddock/spool/spooltest"
)

// A rig is a job directory with what a test needs to start starters in it. The
// owner is one whom no user of the machine is; besides, there are the users
// of the files passwd and group.
type rig struct {
	t      *testing.T
	base   string // passable by every user
	dir    spool.Dir
	config *spool.Config
	env    []string
	uid    int          // of the shepherd
	before func() error // is done in its thread; nil: nothing
	files  []int        // come with the order
}

// Users that exist for starters of rigs alone.
const (
	testPasswd = "root:x:0:0:root:/root:/bin/bash\nowner:x:54321:54322::/home/owner:/bin/dash\n" +
		"site:x:54401:54402::/home/site:/bin/ksh\nwheel:x:54321:54322::/home/owner:/bin/sh\n"
	testGroup = "root:x:0:\nowner:x:54322:\nmore:x:54323:owner\nsite:x:54402:\nsite1:x:54403:site\nsite2:x:54404:site,wheel\n"
)

func needRoot(t *testing.T, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it " + why)
	}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	needRoot(t, "becomes another user")
	base, err := os.MkdirTemp("", "starter") //nolint:usetesting // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	r := &rig{t: t, base: base, dir: spool.OpenDir(base + "/job")}
	for _, d := range []string{"job", "out", "etc"} {
		if err := os.Mkdir(base+"/"+d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(base, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(base+"/out", 54321, 54322); err != nil {
		t.Fatal(err)
	}
	r.file("etc/passwd", testPasswd, 0o644)
	r.file("etc/group", testGroup, 0o644)
	r.config = spooltest.Config(t, spooltest.Job{Cwd: base + "/out", Stdout: base + "/out/o", Stderr: base + "/out/e"})
	r.set("paddock_uid=54321", "paddock_gid=54322", "paddock_groups=54322,54323", "paddock_home=/home/owner", "job_owner=owner")
	r.env = []string{"PATH=/usr/bin:/bin", "JOB_ID=1", "MINE=yes"}
	return r
}

// file writes a file below base and returns its path.
func (r *rig) file(name, text string, mode os.FileMode) string {
	r.t.Helper()
	path := r.base + "/" + name
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// empty makes a file below base that everybody may write to.
func (r *rig) empty(name string) {
	r.t.Helper()
	if err := os.Chmod(r.file(name, "", 0o666), 0o666); err != nil {
		r.t.Fatal(err)
	}
}

// script writes a procedure and returns its path.
func (r *rig) script(text string) string { return r.file("procedure", "#!/bin/sh\n"+text, 0o755) }

// set sets keys, given as NAME=value.
func (r *rig) set(pairs ...string) *rig {
	r.t.Helper()
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		if err := r.config.Set(k, v); err != nil {
			r.t.Fatal(err)
		}
	}
	return r
}

// without takes keys away.
func (r *rig) without(keys ...string) *rig {
	r.t.Helper()
	c := &spool.Config{}
	for _, e := range r.config.Entries() {
		if !slices.Contains(keys, e.Key) {
			if err := c.Set(e.Key, e.Value); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	r.config = c
	return r
}

// ended is what became of a starter.
type ended struct {
	fail   *Failure
	exec   bool // it said that exec is next
	status syscall.WaitStatus
	trace  string
}

// run runs a starter to its end, in a directory filled anew.
func (r *rig) run(o Order) ended {
	r.t.Helper()
	if o.State == 0 {
		o.State = 7
	}
	if err := os.RemoveAll(r.dir.Path()); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Mkdir(r.dir.Path(), 0o711); err != nil {
		r.t.Fatal(err)
	}
	if err := spooltest.Fill(r.dir, r.config, r.env); err != nil {
		r.t.Fatal(err)
	}
	r.file("job/trace", "", 0o644)
	if r.uid != 0 {
		for _, name := range []string{"", spool.FileConfig, spool.FileEnvironment, spool.FileTrace} {
			if err := os.Chown(r.dir.Path(name), r.uid, -1); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	s, end := r.launch(o)
	defer end()
	defer unix.Close(s.PIDFD)
	defer s.Close()
	timer := time.AfterFunc(time.Minute, func() { _ = unix.PidfdSendSignal(s.PIDFD, unix.SIGKILL, nil, 0) })
	defer timer.Stop()
	var e ended
	for closed := false; !closed; {
		fds := []unix.PollFd{{Fd: int32(s.Socket), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			r.t.Fatal(err)
		}
		m := s.Next()
		if m.Failure != nil {
			e.fail = m.Failure
		}
		e.exec = e.exec || m.Exec
		closed = m.Closed
	}
	if err := ignoringEINTR(func() error { _, err := syscall.Wait4(s.PID, &e.status, 0, nil); return err }); err != nil {
		r.t.Fatal(err)
	}
	b, err := os.ReadFile(r.dir.Path(spool.FileTrace))
	if err != nil {
		r.t.Fatal(err)
	}
	e.trace = string(b)
	return e
}

// launch starts a process and tells it what to become, from a thread that works in
// the job directory, sees the users of the rig, and is who the shepherd is to be. The
// process dies with the thread, which ends when end is called.
func (r *rig) launch(o Order) (s *Process, end func()) {
	r.t.Helper()
	type launched struct {
		starter *Process
		err     error
	}
	c, over := make(chan launched), make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked
		err := r.enter()
		if err != nil {
			c <- launched{nil, err}
			return
		}
		s, err := Launch(Place{Group: -1, Inherited: -1, Keyring: UsesAFS(r.config)})
		if err == nil {
			err = s.Go(o, r.files...)
		}
		c <- launched{s, err}
		<-over
	}()
	l := <-c
	if l.err != nil {
		r.t.Fatal(l.err)
	}
	return l.starter, func() { close(over) }
}

func (r *rig) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return errors.New("unshare: " + err.Error())
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return errors.New("make mounts private: " + err.Error())
	}
	// The whole directory: a file that is replaced, as useradd does it, loses what is
	// mounted on it in every namespace.
	if err := unix.Mount(r.base+"/etc", "/etc", "", unix.MS_BIND, ""); err != nil {
		return errors.New("mount /etc: " + err.Error())
	}
	if err := unix.Chdir(r.dir.Path()); err != nil {
		return err
	}
	if r.before != nil {
		if err := r.before(); err != nil {
			return err
		}
	}
	if r.uid != 0 {
		u := uint32(r.uid)
		return setResUID(u, u, u)
	}
	return nil
}

// ran runs a starter that is to become what is ordered and exit with 0.
func (r *rig) ran(o Order) ended {
	r.t.Helper()
	e := r.run(o)
	if e.fail != nil || !e.exec || e.status != 0 {
		r.t.Fatalf("failure %+v, exec %v, status %v; want it to run\n%s%s", e.fail, e.exec, e.status, e.trace, r.read("out/e"))
	}
	return e
}

// refused runs a starter that is to fail with the number and text.
func (r *rig) refused(o Order, number int, text string) ended {
	r.t.Helper()
	e := r.run(o)
	if e.fail == nil || e.fail.Number != number || e.fail.Text != text {
		r.t.Errorf("failure %+v; want %d, %s\n%s", e.fail, number, text, e.trace)
	}
	if e.status.ExitStatus() != number {
		r.t.Errorf("status %v; want exit %d", e.status, number)
	}
	return e
}

// read returns the content of a file below base, "" if there is none.
func (r *rig) read(name string) string {
	r.t.Helper()
	b, err := os.ReadFile(r.base + "/" + name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	return string(b)
}

// lines checks that a text has the given lines.
func (r *rig) lines(text string, want ...string) {
	r.t.Helper()
	have := strings.Split(text, "\n")
	for _, w := range want {
		if !slices.Contains(have, w) {
			r.t.Errorf("no line %q in:\n%s", w, text)
		}
	}
}

// texts returns the texts of a trace with the numbers that differ made letters.
func texts(t *testing.T, trace string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(trace) {
		l, err := spool.ParseTraceLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(l.Text, fmt.Sprintf("pid=%[1]d pgrp=%[1]d sid=%[1]d old pgrp=%[2]d ", l.PID, unix.Getpgrp()), "pid=P pgrp=P sid=P old pgrp=O ", 1)
		out = append(out, "["+strconv.Itoa(l.EUID)+"] "+text)
	}
	return out
}
