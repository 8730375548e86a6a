package parent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// standing is a shepherd on standby.
type standing struct {
	*running
	socket int
}

func (r *rig) standby() *standing {
	r.t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	far := os.NewFile(uintptr(ends[1]), "far")
	defer far.Close()
	s := &standing{r.startWith(far, "/", spool.StandbyArgs()[1:]...), ends[0]}
	r.t.Cleanup(s.close)
	return s
}

func (s *standing) close() {
	if s.socket >= 0 {
		unix.Close(s.socket)
		s.socket = -1
	}
}

func (s *standing) send(text, rights []byte) {
	s.t.Helper()
	if err := unix.Sendmsg(s.socket, text, rights, nil, unix.MSG_NOSIGNAL); err != nil {
		s.t.Fatal(err)
	}
}

// assign gives it the directory of the rig, and the lock of it.
func (s *standing) assign(name string) {
	s.t.Helper()
	s.fill()
	lock, err := s.dir.Lock()
	if err != nil {
		s.t.Fatal(err)
	}
	defer lock.Close()
	a := spool.Assignment{Name: name, Dir: s.dir.Path()}
	s.send(a.Append(nil), unix.UnixRights(int(lock.Fd())))
}

// settled waits until it says that its run has settled.
func (s *standing) settled() {
	s.t.Helper()
	if n, err := unix.Read(s.socket, make([]byte, 1)); n != 0 || err != nil {
		s.t.Fatalf("read %d bytes, %v; want the end", n, err)
	}
}

// A shepherd on standby does for a job what one does that is started for it.
func TestStandby(t *testing.T) {
	r := newRig(t, "kill -9 0")
	s := r.standby()
	s.assign("shepherd-7.1")
	s.settled()
	r.ended(s.wait(), 0, 128+9)
}

// It is called as the job's shepherd in the list of processes, holds its lock, and takes what
// execd tells it; and execd hears when the run has settled, though the job goes on.
func TestStandbyRuns(t *testing.T) {
	r := newRig(t, `trap 'exit 3' TERM; mkfifo never; echo up; read x <>never`)
	said := r.pipe()
	s := r.standby()
	s.assign("shepherd-7.1")
	s.settled()
	said()
	if held, err := r.dir.Held(); !held || err != nil {
		t.Errorf("held: %v, %v", held, err)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.cmd.Process.Pid))
	if text := string(bytes.TrimRight(line, "\x00")); err != nil || text != "shepherd-7.1\x00-bg" {
		t.Errorf("it is called %q, %v", line, err)
	}
	if err := r.dir.Append(spool.FileSignals, spool.AppendSignals(nil, []spool.Signal{{Signal: int(unix.SIGTERM), Seq: 1}})); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Process.Signal(unix.SIGTTIN); err != nil {
		t.Fatal(err)
	}
	r.ended(s.wait(), 0, 3)
}

// gate makes a pipe, and returns its path. Who opens it to read waits for settlesAhead.
func (r *rig) gate() string {
	r.t.Helper()
	path := r.base + "/wait"
	if err := unix.Mkfifo(path, 0o666); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// settlesAhead has one on standby run the job, whose run is to settle while something waits
// at the gate, and returns how it has ended.
func (r *rig) settlesAhead(gate string) int {
	r.t.Helper()
	s := r.standby()
	s.assign("shepherd-7.1")
	s.settled()
	f, err := os.OpenFile(gate, os.O_WRONLY, 0) // until somebody has it
	if err != nil {
		r.t.Fatal(err)
	}
	f.Close()
	return s.wait()
}

// Where a procedure may take long, the run has settled when that has begun.
func TestStandbySettlesInProlog(t *testing.T) {
	r := newRig(t, "exit 0")
	gate := r.gate()
	r.set("prolog=/bin/cat " + gate)
	r.ended(r.settlesAhead(gate), 0, 0)
}

// A client may take long, too.
func TestStandbySettlesBeforeClient(t *testing.T) {
	r := newRig(t, "exit 0")
	gate, session := r.gate(), r.base+"/session"
	if err := os.WriteFile(session, []byte("#!/bin/sh\nexec cat "+gate+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	secret := strings.Repeat("0", 64)
	client := spool.Session{Number: 1, Address: "127.0.0.1:1", Fingerprint: secret, Token: secret}
	if err := r.dir.Write(spool.FileSession, client.Append(nil)); err != nil {
		t.Fatal(err)
	}
	r.set(spool.KeySession+"="+session, spool.KeySessionGrace+"=0")
	r.ended(r.settlesAhead(gate), spool.FailedBeforeStart, -1)
}

// It ends when there is no job to come.
func TestStandbyDismissed(t *testing.T) {
	for what, end := range map[string]func(*standing) error{
		"execd is gone": func(s *standing) error { s.close(); return nil },
		"a signal":      func(s *standing) error { return s.cmd.Process.Signal(syscall.SIGUSR2) },
	} {
		s := newRig(t, "exit 0").standby()
		if err := end(s); err != nil {
			t.Fatal(err)
		}
		if code := s.wait(); code != 0 || s.stderr.Len() > 0 {
			t.Errorf("%s: exit code %d, %q", what, code, &s.stderr)
		}
	}
}

// What is no assignment is refused, and no directory touched.
func TestStandbyRefuses(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	rights := func(n int) (fds []int) {
		for range n {
			fds = append(fds, int(null.Fd()))
		}
		return fds
	}
	for _, c := range []struct {
		text  string
		files int
	}{{"x\x00/tmp", 0}, {"x\x00/tmp", 2}, {"x\x00tmp", 1}, {"x", 1}, {"\x00", 1}, {"x\x00/tmp\x00", 1}} {
		s := newRig(t, "exit 0").standby()
		s.send([]byte(c.text), unix.UnixRights(rights(c.files)...))
		if code := s.wait(); code != ExitNotStarted || !strings.HasPrefix(s.stderr.String(), "shepherd: cannot wait for a job of execd: ") {
			t.Errorf("%q with %d files: exit code %d, %q", c.text, c.files, code, &s.stderr)
		}
	}
	r := newRig(t, "exit 0")
	p := r.startWith(null, "/", spool.StandbyOption)
	if code := p.wait(); code != ExitNotStarted || p.stderr.Len() == 0 {
		t.Errorf("without a socket: exit code %d, %q", code, &p.stderr)
	}
	if _, err := os.Stat(r.dir.Path(spool.FileTrace)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
