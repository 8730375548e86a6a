package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/qrsh/wire"
	"paddock/spool"
)

// daemonScript executes the line that comes, and says nothing of how that ended.
const daemonScript = "#!/bin/sh\nIFS= read -r line\n/bin/sh -c \"$line\"\nexit 255\n"

// startDaemon starts a job that is a daemon.
func startDaemon(t *testing.T, script, daemon string, set ...string) *job {
	t.Helper()
	path := filepath.Join(t.TempDir(), "daemon")
	if err := os.WriteFile(path, []byte(daemon), 0o755); err != nil {
		t.Fatal(err)
	}
	return startJob(t, script, append([]string{spool.KeySessionDaemon + "=" + path + " -i", spool.KeyHost + "=node7"}, set...)...)
}

// where waits until the client is told where the daemon is.
func (j *job) where() wire.Daemon {
	j.Helper()
	select {
	case m := <-j.said:
		d, ok := m.(wire.Daemon)
		if !ok || d.Host != "node7" {
			j.Fatalf("the session says %+v", m)
		}
		return d
	case <-time.After(patience):
		trace, _ := j.dir.Read(spool.FileTrace)
		j.Fatalf("the session says nothing; trace:\n%s", trace)
	}
	return wire.Daemon{}
}

// ask connects to the daemon, sends a line and returns what comes back.
func (j *job) ask(d wire.Daemon, line string) string {
	j.Helper()
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(d.Port))))
	if err != nil {
		j.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, line+"\n"); err != nil {
		j.Fatal(err)
	}
	return j.all(conn)
}

// The program that the daemon starts fetches the command, whose exit code is the job's,
// whatever the client's program says.
func TestJobDaemon(t *testing.T) {
	j := startDaemon(t, "read a; echo got $a; exit 7\n", daemonScript)
	d := j.where()
	command := fmt.Sprintf("echo input | exec '%s' 'command' '%s'", d.Program, d.Handle)
	if out := j.ask(d, command); out != "got input\n" {
		t.Errorf("it wrote %q", out)
	}
	j.link.Post(wire.Status{Status: 3})
	if e, reason := j.end(); e != (wire.Exit{Status: 7}) || reason != "" {
		t.Errorf("it ended with %v, %q", e, reason)
	}
	if usage, err := j.dir.Usage(); err != nil || usage.ExitStatus != 7 {
		t.Errorf("accounted is %v, %v", usage.ExitStatus, err)
	}
	// Nobody has it twice, and nobody finds it by another name.
	for _, handle := range []string{d.Handle, "0123", ""} {
		if status, err := runCommand(handle); status != 1 || err == nil || !strings.HasPrefix(err.Error(), "cannot find the job") {
			t.Errorf("the command of %q: %d, %v", handle, status, err)
		}
	}
}

// Of a login the client's program knows the exit code.
func TestJobDaemonLogin(t *testing.T) {
	j := startDaemon(t, "", daemonScript, spool.KeyScriptFile+"="+spool.ScriptLogin)
	d := j.where()
	if d.Program != "" || d.Handle != "" {
		t.Errorf("for a login there is a command: %+v", d)
	}
	if out := j.ask(d, "echo login"); out != "login\n" {
		t.Errorf("it wrote %q", out)
	}
	j.link.Post(wire.Status{Status: 9})
	if e, _ := j.end(); e != (wire.Exit{Status: 9}) {
		t.Errorf("it ended with %v", e)
	}
}

// A daemon that is killed has ended so, whatever anybody says.
func TestJobDaemonKilled(t *testing.T) {
	j := startDaemon(t, "", "#!/bin/sh\nread line\nkill -TERM $$\n", spool.KeyScriptFile+"="+spool.ScriptLogin)
	d := j.where()
	j.ask(d, "")
	j.link.Post(wire.Status{Status: 0})
	if e, _ := j.end(); e.Status != 128+uint16(unix.SIGTERM) {
		t.Errorf("it ended with %v", e)
	}
}

// Who deletes the job does not wait for what nobody says.
func TestJobDaemonDeleted(t *testing.T) {
	j := startDaemon(t, "", daemonScript, spool.KeyScriptFile+"="+spool.ScriptLogin)
	j.ask(j.where(), "exit 0")
	j.await("waiting to be told")
	j.signal(unix.SIGKILL)
	if e, _ := j.end(); e.Status != 255 {
		t.Errorf("it ended with %v", e)
	}
	trace, err := j.dir.Read(spool.FileTrace)
	if err != nil || !strings.Contains(string(trace), "nobody says how has ended") {
		t.Errorf("the trace is\n%s%v", trace, err)
	}
}

// One that is not there is the host's failure, before anybody is told a port.
func TestJobDaemonMissing(t *testing.T) {
	for daemon, want := range map[string]string{
		"/nonexistent/sshd -i": "cannot execute the daemon /nonexistent/sshd: No such file or directory",
		"sshd -i":              `cannot start the daemon: "sshd" is not an absolute path`,
	} {
		j := startJob(t, "", spool.KeySessionDaemon+"="+daemon, spool.KeyHost+"=node7")
		e, reason := j.end()
		if e.Status != 1 || !strings.Contains(e.Reason, want) || !strings.Contains(reason, want) {
			t.Errorf("it ended with %v, %q", e, reason)
		}
		if status, err := j.dir.Read(spool.FileExitStatus); err != nil || strings.TrimSpace(string(status)) != strconv.Itoa(spool.FailedDaemons) {
			t.Errorf("exit_status is %q, %v", status, err)
		}
	}
}

// A program that has ended, or a client that is lost, connects no more.
func TestJobDaemonNobody(t *testing.T) {
	j := startDaemon(t, "", daemonScript)
	j.where()
	j.link.Post(wire.Status{Status: 3})
	if e, _ := j.end(); e.Status != 1 || e.Reason != "no connection to the daemon: the client's program has ended with status 3 before" {
		t.Errorf("it ended with %v", e)
	}
	j = startDaemon(t, "", daemonScript)
	j.where()
	j.conn.Close()
	if reason := j.wait(); !strings.Contains(reason, "no connection to the daemon: the client is lost: ") {
		t.Errorf("the reason is %q", reason)
	}
}

// Who does not come in time is not waited for.
func TestDaemonTimeout(t *testing.T) {
	told := make(chan wire.Message, 1)
	d := &daemon{post: func(m wire.Message) { told <- m }, host: "node7", limit: time.Millisecond}
	conn, err := d.await(&spool.Command{})
	if err == nil || err.Error() != "the client's program has not connected within 1ms" {
		t.Errorf("await returned %v, %v", conn, err)
	}
	where := (<-told).(wire.Daemon)
	if conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(where.Port)))); err == nil {
		conn.Close()
		t.Error("somebody still listens")
	}
}

// What the daemon forwards takes the place of the job's own.
func TestEnvironment(t *testing.T) {
	got := environment(
		[]string{"PATH=/job", "DISPLAY=:0", "JOB_ID=1"},
		[]string{"PATH=/sshd", "DISPLAY=localhost:10.0", "SSH_AUTH_SOCK=/tmp/s", "HOME=/sshd", "DISPLAYS=x"})
	want := []string{"PATH=/job", "JOB_ID=1", "DISPLAY=localhost:10.0", "SSH_AUTH_SOCK=/tmp/s"}
	if !slices.Equal(got, want) {
		t.Errorf("the environment is %q; want %q", got, want)
	}
}
