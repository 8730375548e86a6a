package main

import (
	"crypto/tls"
	"encoding/hex"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/qrsh/wire"
	"paddock/spool"
	"paddock/spool/spooltest"
	"paddock/test/harness"
	"paddock/test/props"
)

// shepherd is the real one, built once.
var shepherd = sync.OnceValues(func() (string, error) {
	path := filepath.Join(base, "shepherd")
	return path, props.Build(path)
})

// job is an interactive job under the real shepherd, and its client.
type job struct {
	*testing.T
	dir      spool.Dir
	cmd      *exec.Cmd
	listener net.Listener
	pipes
	*client
}

// startJob starts the shepherd for a script and connects to it.
func startJob(t *testing.T, script string, set ...string) *job {
	t.Helper()
	j, identity, token := callJob(t, script, set...)
	j.answer(identity, token)
	return j
}

// answer lets the session connect.
func (j *job) answer(identity tls.Certificate, token wire.Token) {
	j.Helper()
	j.client = &client{said: make(chan wire.Message, 10), gone: make(chan error, 1)}
	j.link = wire.New(func(m wire.Message) { j.said <- m })
	j.Cleanup(j.link.Close)
	var err error
	if j.conn, err = j.listener.Accept(); err != nil {
		j.Fatal(err)
	}
	secure, has, err := j.link.Accept(j.conn, identity, token)
	if err != nil {
		j.Fatal(err)
	}
	j.begin(j.link)
	go func() { j.gone <- j.link.Run(secure, has) }()
}

// callJob starts the shepherd for a script, and returns by what its client is
// known.
func callJob(t *testing.T, script string, set ...string) (*job, tls.Certificate, wire.Token) {
	t.Helper()
	path, err := shepherd()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	place := t.TempDir()
	session := filepath.Join(place, "qrsh-session")
	if err := os.Symlink(self, session); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(place+"/job", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(place+"/script", []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	j := &job{T: t, dir: spool.OpenDir(place + "/job")}
	config := spooltest.Config(t, spooltest.Job{Script: place + "/script", Cwd: place, Stdout: "/dev/null", Stderr: "/dev/null"})
	for _, pair := range append([]string{spool.KeySession + "=" + session, spool.KeySessionGrace + "=5"}, set...) {
		k, v, _ := strings.Cut(pair, "=")
		if err := config.Set(k, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := spooltest.Fill(j.dir, config, []string{"PATH=/usr/bin:/bin", "SGE_JOB_SPOOL_DIR=" + j.dir.Path()}); err != nil {
		t.Fatal(err)
	}
	if j.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.listener.Close() })
	identity, fingerprint, err := wire.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	token := wire.NewToken()
	file := spool.Session{
		Number: 1, Address: j.listener.Addr().String(), Fingerprint: hex.EncodeToString(fingerprint[:]), Token: hex.EncodeToString(token[:]),
	}
	if err := j.dir.Write(spool.FileSession, file.Append(nil)); err != nil {
		t.Fatal(err)
	}
	j.cmd = exec.Command(path)
	j.cmd.Dir, j.cmd.Stderr = j.dir.Path(), os.Stderr
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if j.cmd.ProcessState == nil {
			_ = j.cmd.Process.Kill()
			_ = j.cmd.Wait()
		}
	})
	return j, identity, token
}

// end waits for the exit, says goodbye and returns what the job has come to.
func (j *job) end() (wire.Exit, string) {
	j.Helper()
	var e wire.Exit
	select {
	case m := <-j.said:
		e, _ = m.(wire.Exit)
	case <-time.After(patience):
		trace, _ := j.dir.Read(spool.FileTrace)
		j.Fatalf("the session says nothing; trace:\n%s", trace)
	}
	j.link.Post(wire.Bye{})
	j.link.Close()
	return e, j.wait()
}

// wait waits for the shepherd and returns what it says of the end.
func (j *job) wait() string {
	j.Helper()
	timer := time.AfterFunc(patience, func() { _ = j.cmd.Process.Kill() })
	defer timer.Stop()
	_ = j.cmd.Wait()
	reason, _ := j.dir.Read(spool.FileError)
	return string(reason)
}

func (j *job) all(r io.Reader) string {
	j.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		j.Fatal(err)
	}
	return string(b)
}

func TestJobStreams(t *testing.T) {
	j := startJob(t, "cat; echo diagnostics >&2; exit 7\n")
	if _, err := io.WriteString(j.stdin, "through and back"); err != nil {
		t.Fatal(err)
	}
	j.stdin.Close()
	if out, diag := j.all(j.stdout), j.all(j.stderr); out != "through and back" || diag != "diagnostics\n" {
		t.Errorf("it wrote %q and %q", out, diag)
	}
	if e, reason := j.end(); e != (wire.Exit{Status: 7}) || reason != "" {
		t.Errorf("it ended with %v, %q", e, reason)
	}
}

func TestJobTerminal(t *testing.T) {
	j := startJob(t, `trap 'stty size; exit 3' WINCH
tty -s && test -t 0 && test -t 1 && test -t 2 && stat -c %u $(tty)
while :; do sleep 0.4; done
`, spool.KeyPTY+"=1")
	_ = j.stderr.Close()
	j.link.Post(wire.WindowSize{Rows: 24, Columns: 80})
	j.expectLine(strconv.Itoa(os.Getuid()) + "\r\n")
	j.link.Post(wire.WindowSize{Rows: 44, Columns: 101})
	if out := j.all(j.stdout); out != "44 101\r\n" {
		t.Errorf("it wrote %q", out)
	}
	if e, _ := j.end(); e != (wire.Exit{Status: 3}) {
		t.Errorf("it ended with %v", e)
	}
}

// A client that is lost for good ends the job, which has heard of it.
func TestJobLost(t *testing.T) {
	j := startJob(t, "trap 'exit 5' HUP\necho ready\nwhile :; do sleep 0.2; done\n", spool.KeySessionGrace+"=0")
	j.expectLine("ready\n")
	j.conn.Close()
	j.listener.Close()
	if reason := j.wait(); !strings.Contains(reason, "job was ended: it has lost its client: ") {
		t.Errorf("the reason is %q", reason)
	}
	j.exited(5)
}

// A client that has gone may find its job again: ended, or as it was.
func TestJobKept(t *testing.T) {
	j := startJob(t, "echo ready\nuntil test -e go; do sleep 0.2; done\nexit 6\n",
		spool.KeySessionGrace+"=0", spool.KeySessionLost+"="+spool.LostKeep)
	j.expectLine("ready\n")
	j.conn.Close()
	j.await("the job goes on without its client")
	j.open("go")
	if reason := j.wait(); reason != "" {
		t.Errorf("the reason is %q", reason)
	}
	j.exited(6)
}

// What is to be stopped for want of a client is not any more when somebody says
// so.
func TestJobStopped(t *testing.T) {
	j := startJob(t, "echo ready\nuntil test -e go; do sleep 0.2; done\nexit 6\n",
		spool.KeySessionGrace+"=0", spool.KeySessionLost+"="+spool.LostStop)
	j.expectLine("ready\n")
	j.conn.Close()
	j.await("the job is to be stopped, it has lost its client: ")
	if has, err := j.dir.Has(spool.FileLost); !has || err != nil {
		t.Errorf("there is a file lost: %v, %v", has, err)
	}
	j.signal(unix.SIGCONT)
	j.await(", CONT)")
	j.open("go")
	_ = j.wait()
	if has, err := j.dir.Has(spool.FileLost); has || err != nil {
		t.Errorf("there is a file lost: %v, %v", has, err)
	}
}

// A job that waits for its client is not wanted any more.
func TestJobCancelled(t *testing.T) {
	j, _, _ := callJob(t, "exit 0\n")
	conn, err := j.listener.Accept() // who says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	j.signal(unix.SIGKILL)
	j.wait()
	trace, _ := j.dir.Read(spool.FileTrace)
	if !strings.Contains(string(trace), "got SIGKILL before job start") {
		t.Errorf("the trace is\n%s", trace)
	}
	if has, err := j.dir.Has(spool.FileUsage); has || err != nil {
		t.Errorf("there is a usage: %v, %v", has, err)
	}
}

// Whoever kills a job that has ended means the wait for its client.
func TestJobHangUp(t *testing.T) {
	j := startJob(t, "exit 3\n")
	j.all(j.stdout) // and no goodbye
	j.await("waiting for qrsh-session")
	j.signal(unix.SIGKILL)
	j.wait()
	j.exited(3)
}

// A deleted job waits for no client that is lost.
func TestJobDeletedWithoutClient(t *testing.T) {
	j := startJob(t, "echo ready\nexec sleep 1000\n", spool.KeySessionGrace+"=3600")
	j.expectLine("ready\n")
	j.conn.Close()
	j.listener.Close()
	j.signal(unix.SIGKILL)
	j.wait()
	j.exited(137)
}

// Without qrsh-session a job ends, whatever is to become of one whose client is
// lost.
func TestJobSessionDies(t *testing.T) {
	j := startJob(t, "trap 'exit 5' HUP\necho ready\nwhile :; do sleep 0.2; done\n", spool.KeySessionLost+"="+spool.LostKeep)
	j.expectLine("ready\n")
	j.killSession()
	if reason := j.wait(); !strings.Contains(reason, "job was ended: it has lost its client: qrsh-session has ended") {
		t.Errorf("the reason is %q", reason)
	}
}

// killSession ends qrsh-session.
func (j *job) killSession() {
	j.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		j.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if parent, _ := harness.StatusField(pid, "PPid"); err != nil || parent != j.cmd.Process.Pid {
			continue
		}
		if comm, _ := os.ReadFile("/proc/" + e.Name() + "/comm"); string(comm) == "qrsh-session\n" {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// signal does as execd.
func (j *job) signal(sig syscall.Signal) {
	j.Helper()
	if err := j.dir.Write(spool.FileSignal, spool.AppendSignal(nil, int(sig), 1)); err != nil {
		j.Fatal(err)
	}
	if err := j.cmd.Process.Signal(syscall.SIGTTIN); err != nil {
		j.Fatal(err)
	}
}

// await waits for a line of the trace.
func (j *job) await(text string) {
	j.Helper()
	if err := harness.WaitFor(patience, strconv.Quote(text)+" in the trace", func() (bool, error) {
		trace, err := j.dir.Read(spool.FileTrace)
		return strings.Contains(string(trace), text), err
	}); err != nil {
		j.Fatal(err)
	}
}

// open makes a file in the job's working directory.
func (j *job) open(name string) {
	j.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(j.dir.Path()), name), nil, 0o644); err != nil {
		j.Fatal(err)
	}
}

// Signals of the client reach the job, and a deletion the client.
func TestJobSignals(t *testing.T) {
	j := startJob(t, "trap 'echo caught' INT\necho ready\nwhile :; do sleep 0.2; done\n")
	j.expectLine("ready\n")
	j.link.Post(wire.Signal{Number: uint8(unix.SIGINT)})
	j.expectLine("caught\n")
	j.signal(unix.SIGKILL)
	if e, _ := j.end(); e.Status != 137 {
		t.Errorf("it ended with %v", e)
	}
}

// exited looks at how the job has ended.
func (j *job) exited(want int) {
	j.Helper()
	usage, err := j.dir.Usage()
	if err != nil || usage.ExitStatus != want {
		j.Errorf("the exit status is %v, %v; want %d", usage.ExitStatus, err, want)
	}
}

func (j *job) expectLine(want string) {
	j.Helper()
	j.expectFrom(j.stdout, want)
}

func (j *job) expectFrom(r io.Reader, want string) {
	j.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		j.Fatalf("it wrote %q, %v; want %q", got, err, want)
	}
}

// A job that cannot be started says why.
func TestJobNotStarted(t *testing.T) {
	j := startJob(t, "exit 0\n", "cwd=/nonexistent")
	if e, _ := j.end(); e.Status != 1 || !strings.Contains(e.Reason, "can't chdir to /nonexistent") {
		t.Errorf("it ended with %v", e)
	}
}

// procedure makes a script of the administrator's.
func procedure(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "procedure")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// waiting is a prolog that goes on when there is a file.
const waiting = "echo waiting\nuntil test -e go; do sleep 0.2; done\n"

// noted are the keys of a job whose procedures say all to its client.
func noted(t *testing.T, prolog, epilog string) []string {
	t.Helper()
	return []string{
		spool.KeySessionGrace + "=0", spool.KeySessionNotes + "=" + spool.NotedStdout + " " + spool.NotedStderr,
		spool.KeyProlog + "=" + procedure(t, prolog), spool.KeyEpilog + "=" + procedure(t, epilog),
	}
}

// What procedures say is the client's, unless there is a file for it.
func TestJobNotes(t *testing.T) {
	for _, tt := range []struct {
		set  []string
		want string
	}{
		{nil, "prolog\nwarns\nepilog\nwarns\n"},
		{[]string{spool.KeySessionNotes + "=" + spool.NotedStderr}, "warns\nwarns\n"},
		{[]string{spool.KeySessionNotes + "=" + spool.NotedStderr, spool.KeyMergeStderr + "=1"}, ""},
		{[]string{spool.KeySessionNotes + "=" + spool.NotedStdout, spool.KeyMergeStderr + "=1"}, "prolog\nwarns\nepilog\nwarns\n"},
		{[]string{spool.KeySessionNotes + "=none"}, ""},
		{[]string{spool.KeyPTY + "=1"}, "prolog\nwarns\nepilog\nwarns\n"},
	} {
		j := startJob(t, "echo job\n", append(noted(t, "echo prolog; echo warns >&2", "echo epilog; echo warns >&2"), tt.set...)...)
		j.link.Post(wire.WindowSize{Rows: 24, Columns: 80})
		if out := j.all(j.stdout); strings.TrimRight(out, "\r\n") != "job" {
			t.Errorf("%q: the job wrote %q", tt.set, out)
		}
		if diag := j.all(j.stderr); diag != tt.want {
			t.Errorf("%q: the procedures wrote %q; want %q", tt.set, diag, tt.want)
		}
		if e, reason := j.end(); e != (wire.Exit{}) || reason != "" {
			t.Errorf("%q: it ended with %v, %q", tt.set, e, reason)
		}
	}
}

// Without a client nothing is begun, and so nothing is undone.
func TestJobNoClient(t *testing.T) {
	j, _, _ := callJob(t, "touch ran\n", noted(t, "touch ran\n", "touch ran\n")...)
	conn, err := j.listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	j.listener.Close()
	conn.Close()
	if reason := j.wait(); !strings.Contains(reason, "cannot connect to the client") && !strings.Contains(reason, "with the client at") {
		t.Errorf("the reason is %q", reason)
	}
	if j.ran("ran") {
		t.Error("something was run")
	}
}

func (j *job) ran(name string) bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(j.dir.Path()), name))
	return err == nil
}

// A client that is lost during the prolog is seen to when the job would start.
func TestJobLostEarly(t *testing.T) {
	for _, tt := range []struct {
		policy string
		ran    bool
	}{{spool.LostEnd, false}, {spool.LostKeep, true}, {spool.LostStop, true}} {
		j := startJob(t, "touch ran\n", append(noted(t, waiting, "touch undone\n"), spool.KeySessionLost+"="+tt.policy)...)
		j.expectFrom(j.stderr, "waiting\n")
		j.conn.Close()
		j.listener.Close()
		j.await("the client is lost: ")
		j.open("go")
		reason := j.wait()
		if j.ran("ran") != tt.ran || !j.ran("undone") {
			t.Errorf("%s: the job ran: %v, the epilog: %v", tt.policy, j.ran("ran"), j.ran("undone"))
		}
		if strings.Contains(reason, "job was not started: it has lost its client: ") == tt.ran {
			t.Errorf("%s: the reason is %q", tt.policy, reason)
		}
	}
}

// Signals that come during the prolog are the job's, and a kill ends it.
func TestJobSignalEarly(t *testing.T) {
	const interrupted = 128 + uint16(unix.SIGINT)
	for status, tries := interrupted, 5; status == interrupted && tries > 0; tries-- {
		// Of the second that a job is given to be ready a busy host may leave it nothing.
		j := startJob(t, "trap 'echo caught; exit 4' INT\nwhile :; do sleep 0.2; done\n", noted(t, waiting, "")...)
		j.expectFrom(j.stderr, "waiting\n")
		j.link.Post(wire.Signal{Number: uint8(unix.SIGINT)})
		j.await("the client sends signal INT, ahead of the job")
		j.open("go")
		out := j.all(j.stdout)
		e, _ := j.end()
		if status = e.Status; status != interrupted && (out != "caught\n" || e != (wire.Exit{Status: 4})) || tries == 1 && status == interrupted {
			t.Errorf("it wrote %q and ended with %v", out, e)
		}
	}

	j := startJob(t, "touch ran\n", noted(t, waiting, "echo undone\n")...)
	j.expectFrom(j.stderr, "waiting\n")
	j.signal(unix.SIGKILL)
	j.expectFrom(j.stderr, "undone\n")
	if e, _ := j.end(); e.Status != 1 || j.ran("ran") {
		t.Errorf("it ended with %v, and ran: %v", e, j.ran("ran"))
	}
}

// Who does not read the notes, or has killed qrsh-session, breaks no procedure.
func TestJobDeaf(t *testing.T) {
	const much = waiting + "set -e\nhead -c 4000000 /dev/zero >&2\ntouch prepared\n"
	for _, set := range [][]string{nil, {spool.KeyPTY + "=1"}} {
		j := startJob(t, "touch ran\n", append(noted(t, much, "head -c 4000000 /dev/zero && touch undone\n"), set...)...)
		j.link.Post(wire.WindowSize{Rows: 24, Columns: 80})
		j.expectFrom(j.stderr, "waiting\n")
		_ = j.stderr.Close()
		j.open("go")
		if e, reason := j.end(); e != (wire.Exit{}) || reason != "" || !j.ran("ran") || !j.ran("undone") {
			t.Errorf("%q: it ended with %v, %q", set, e, reason)
		}

		j = startJob(t, "touch ran\n", append(noted(t, much, "touch undone\n"), set...)...)
		j.link.Post(wire.WindowSize{Rows: 24, Columns: 80})
		j.expectFrom(j.stderr, "waiting\n")
		j.killSession()
		j.open("go")
		reason := j.wait()
		if j.ran("ran") || !j.ran("prepared") || !j.ran("undone") || !strings.Contains(reason, "job was not started: it has lost its client: qrsh-session has ended") {
			t.Errorf("%q: the reason is %q", set, reason)
		}
	}
}
