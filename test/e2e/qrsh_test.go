package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"paddock/qrsh/wire"
	"paddock/spool"
	"paddock/test/harness"
)

// TestQrsh is an interactive job with a terminal: the prompt, what is typed, the
// size of the window, ^C and ^Z, and the terminal as it was behind it all.
func TestQrsh(t *testing.T) {
	parallel(t)
	d := newDesk(t)
	// What somebody's own profile does at a login may take any time.
	cmd := d.command("qrsh", "-pty", "y", "-noshell", "/bin/bash", "--noprofile", "--norc", "-i")
	term := d.start(cmd)
	d.press(term, "PS1='<%s> '; unset PROMPT_COMMAND\n")
	n := d.await(term, 0, `<%s> $`)
	d.press(term, "tty && stty size && echo $TERM\n")
	n = d.await(term, n, `/dev/pts/\d+\r\n24 80\r\nxterm\r\n`)
	if err := term.Resize(100, 30); err != nil {
		t.Fatal(err)
	}
	d.press(term, "until test \"$(stty size)\" = '30 100'; do :; done; echo resized\n")
	n = d.await(term, n, `[\r\n]resized\r\n`)
	d.press(term, "sh -c 'echo is $((1+1)); exec cat'\n")
	n = d.await(term, n, `is 2\r\n`)
	d.press(term, "\x03") // ^C ends cat, and nothing else
	n = d.await(term, n, `<%s> $`)
	// One process: a shell that has just forked to run something cannot be stopped
	// before that is stopped, which is before it runs.
	d.press(term, `perl -e '$| = 1; $SIG{CONT} = sub { print "again\n"; exit }; print "up\n"; select undef, undef, undef, 0.02 while 1'`+"\n")
	n = d.await(term, n, `[\r\n]up\r\n`)
	d.press(term, "\x1a") // ^Z stops it
	n = d.await(term, n, `Stopped`)
	d.press(term, "fg\n")
	n = d.await(term, n, `[\r\n]again\r\n`)
	d.await(term, n, `<%s> $`)
	d.press(term, "exit 7\n")
	d.ends(term, 7)
}

// TestQrshLost loses its qrsh, and another goes on where it stood.
func TestQrshLost(t *testing.T) {
	parallel(t)
	d := newDesk(t)
	// It may have printed what it has not yet acknowledged, and no more than a window of
	// that.
	many := strconv.Itoa(2 * wire.Window)
	first := d.start(d.command("qrsh", "-pty", "y", "-N", "kept",
		"read a; echo got $a; head -c "+many+" /dev/zero | tr '\\0' .; echo behind; read b; echo then $b; exit 9"))
	d.press(first, "one\n")
	n := d.await(first, 0, `got one`)
	d.await(first, n, `behind`)
	jobs, err := d.Jobs()
	if err != nil || len(jobs) != 1 {
		t.Fatalf("jobs %v, %v", jobs, err)
	}
	d.lose(first)
	second := d.start(d.command("qrsh", "-reconnect", strconv.Itoa(jobs[0].Job)))
	d.press(second, "two\n")
	d.await(second, 0, `then two`)
	if text := d.ends(second, 9); strings.Contains(text, "got one") {
		t.Errorf("the second is told again:\n%q", strings.ReplaceAll(text, strings.Repeat(".", 80), ""))
	}
}

// TestQrshRestart restarts execd under a session, which goes on.
func TestQrshRestart(t *testing.T) {
	parallel(t)
	dir := place(t, "restart")
	d := &desk{t: t, dir: dir}
	d.begin()
	term := d.start(d.command("qrsh", "-pty", "y", "echo begun; read a; echo got $a; exit 4"))
	n := d.await(term, 0, `begun`)
	d.Kill()
	d.press(term, "word\n")
	d.await(term, n, `got word`)
	d.begin()
	d.ends(term, 4)
	if err := d.WaitJob(1); err != nil { // qrsh waits only so long for the accounting
		t.Error(err)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	lines, err := harness.Accounting(dir)
	if err != nil || len(lines) != 1 {
		t.Errorf("accounted %v, %v", lines, err)
	}
}

// TestQrshStop loses a qrsh whose job is to be stopped then, restarts execd, and
// has another go on with it.
func TestQrshStop(t *testing.T) {
	parallel(t)
	dir := place(t, "stop")
	configure(t, dir, "execd_params QRSH_GRACE=0,QRSH_LOST=end:stop\n")
	d := &desk{t: t, dir: dir}
	d.begin()
	state := func(want string) int {
		t.Helper()
		job := 0
		if err := harness.WaitFor(harness.Patience, "the job to be in state "+want, func() (bool, error) {
			jobs, err := d.Jobs()
			if err != nil || len(jobs) != 1 {
				return false, fmt.Errorf("jobs %v, %w", jobs, err)
			}
			if job = jobs[0].Job; jobs[0].State != want {
				return false, fmt.Errorf("it is %s", jobs[0].State)
			}
			return true, nil
		}); err != nil {
			t.Fatal(err)
		}
		return job
	}
	first := d.start(d.command("qrsh", "-pty", "y", "-lost", "stop", "read a; echo got $a; read b; echo then $b; exit 9"))
	d.press(first, "one\n")
	d.await(first, 0, `got one`)
	d.lose(first)
	number := strconv.Itoa(state("s"))
	why := regexp.MustCompile(`(?m)^suspended +1: +the client has closed the connection$`)
	if text := d.run("qstat", "-j", number); !why.MatchString(text) {
		t.Errorf("qstat -j says\n%s", text)
	}
	d.Kill()
	d.begin()
	state("s")
	// Somebody lets it go on, and after a loss it is stopped again.
	d.run("qmod", "-usj", number)
	state("r")
	second := d.start(d.command("qrsh", "-reconnect", number))
	d.press(second, "two\n")
	d.await(second, 0, `two`)
	d.await(second, 0, `then two`)
	d.ends(second, 9)
	if err := d.WaitJob(1); err != nil { // qrsh waits only so long for the accounting
		t.Error(err)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	lines, err := harness.Accounting(dir)
	if err != nil || len(lines) != 1 {
		t.Errorf("accounted %v, %v", lines, err)
	}
}

// TestQrshStopResume has the one who comes back resume the job.
func TestQrshStopResume(t *testing.T) {
	parallel(t)
	dir := place(t, "resume")
	configure(t, dir, "execd_params QRSH_GRACE=0,QRSH_LOST=stop\n")
	d := deskIn(t, dir, "-dev")
	term := d.start(d.command("qrsh", "-pty", "y", "echo up; while read a; do echo got $a; done"))
	for turn := range 3 {
		d.await(term, 0, `up|again`)
		d.lose(term)
		if err := harness.WaitFor(harness.Patience, "the job to be suspended", func() (bool, error) {
			jobs, err := d.Jobs()
			return len(jobs) == 1 && jobs[0].State == "s", err
		}); err != nil {
			t.Fatal(turn, err)
		}
		term = d.start(d.command("qrsh", "-reconnect", "1"))
		d.press(term, "again\n")
		d.await(term, 0, `got again`)
	}
	d.press(term, "\x04")
	d.ends(term, 0)
}

// TestQrshHostile has another user look for the token, attach, and wait where the
// client was for what the session has to say.
func TestQrshHostile(t *testing.T) {
	if second == nil {
		t.Skip("another user is needed, and so root")
	}
	t.Run("unix", func(t *testing.T) { checkHostile(t, "unix") })
	t.Run("tcp", func(t *testing.T) { checkHostile(t, "tcp", "-listen", "127.0.0.1") })
}

func checkHostile(t *testing.T, network string, options ...string) {
	parallel(t)
	d := newDeskWith(t, plenty, "-root")
	term := d.start(d.command("qrsh", append(options, "-pty", "y", "echo begun; read a")...))
	d.await(term, 0, `begun`)
	jobs, err := d.Jobs()
	if err != nil || len(jobs) != 1 {
		t.Fatalf("jobs %v, %v", jobs, err)
	}
	job := strconv.Itoa(jobs[0].Job)
	token := regexp.MustCompile(`[0-9a-f]{64}`)
	if text := d.run("qstat", "-j", job, "-json"); token.MatchString(text) {
		t.Errorf("qstat shows %q", token.FindString(text))
	}
	// Neither arguments nor environments have it; what only root can read, he
	// who owns the job cannot.
	processes, err := harness.Processes(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	closed := []string{d.sessionFile(job)}
	for _, p := range processes {
		for _, name := range []string{"cmdline", "environ"} {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID, name))
			if token.Match(b) {
				t.Errorf("%v has a token in its %s", p, name)
			}
		}
		closed = append(closed, fmt.Sprintf("/proc/%d/environ", p.PID), fmt.Sprintf("/proc/%d/mem", p.PID))
	}
	for _, name := range closed {
		out, err := d.as(second, "/bin/cat", name)
		if _, gone := os.Stat(name); gone != nil {
			continue // it has ended meanwhile
		}
		if err == nil || !strings.Contains(out, "Permission denied") {
			t.Errorf("another user reads %s: %q, %v", name, out, err)
		}
	}
	if out, err := d.as(second, filepath.Join(bin, "qrsh"), "-reconnect", job); err == nil || !strings.HasSuffix(out, "denied: job "+job+" is not yours\n") {
		t.Errorf("another user attaches: %q, %v", out, err)
	}
	b, err := os.ReadFile(d.sessionFile(job))
	if err != nil {
		t.Fatal(err)
	}
	session, err := spool.ParseSession(b)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(d.sessionFile(job)); err != nil || info.Mode().Perm() != 0o600 || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the file with the token: %v, %v", info, err)
	}
	d.lose(term)
	var impostor net.Listener
	harness.InThread(second.UID, func() { impostor, err = net.Listen(network, session.Address) })
	if err != nil {
		t.Fatal(err)
	}
	defer impostor.Close()
	identity, _, err := wire.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	var seen sync.WaitGroup
	seen.Go(func() {
		for {
			conn, err := impostor.Accept()
			if err != nil {
				return
			}
			if _, _, err := wire.New(nil).Accept(conn, identity, wire.Token{}); !errors.Is(err, wire.ErrUnauthenticated) || strings.Contains(err.Error(), "token") {
				t.Errorf("the session speaks to who is not its client: %v", err)
			}
			conn.Close()
		}
	})
	// Its shepherd is told of the old client once more, as after a signal that was sent
	// twice, and then of the new one.
	shepherd, err := os.ReadFile(filepath.Join(filepath.Dir(d.sessionFile(job)), spool.FilePID))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := spool.ParseNumber(shepherd)
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGTTIN)
	}
	if err != nil {
		t.Fatal(err)
	}
	term = d.start(d.command("qrsh", "-reconnect", job))
	d.press(term, "\n")
	d.ends(term, 0)
	impostor.Close()
	seen.Wait()
}

// as runs a program as another user and returns all that it prints.
func (d *desk) as(user *harness.User, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Env = "/", plainEnv(d.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user.Credential()}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// sessionFile is where a job's shepherd has the token.
func (d *desk) sessionFile(job string) string {
	d.t.Helper()
	names, err := filepath.Glob(filepath.Join(d.dir, "spool/active_jobs", job+".1", spool.FileSession))
	if err != nil || len(names) != 1 {
		d.t.Fatalf("session files of job %s: %q, %v", job, names, err)
	}
	return names[0]
}

// stranger is one who connects to qrsh and is not the session.
type stranger struct {
	name   string
	secure bool // speaks TLS
	says   []byte
}

// refused has a stranger connect, and returns when it is hung up on.
func (s *stranger) refused(network, address string) error {
	conn, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(harness.Patience))
	if s.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is a stranger
	}
	_, _ = conn.Write(s.says) // as much as is taken
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("it is not hung up on: %w", err)
	}
	return nil
}

// TestQrshStrangers has all kinds of others connect to a qrsh, which goes on,
// keeps nothing of them and says who they were.
func TestQrshStrangers(t *testing.T) {
	t.Run("unix", func(t *testing.T) { checkStrangers(t, "unix", "this host:") })
	t.Run("tcp", func(t *testing.T) { checkStrangers(t, "tcp", "127.0.0.1:", "-listen", "127.0.0.1") })
}

func checkStrangers(t *testing.T, network, from string, options ...string) {
	parallel(t)
	d := newDesk(t)
	cmd := exec.Command(filepath.Join(bin, "qrsh"), append(options, "-verbose", "cat")...)
	cmd.Dir, cmd.Env = d.dir, plainEnv(d.dir)
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(2*harness.Patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, "Your job 1 ") {
		t.Fatalf("it prints %q, %v", line, err)
	}
	echoed := func(text string) {
		t.Helper()
		if _, err := io.WriteString(in, text); err != nil {
			t.Fatal(err)
		}
		if line, err := lines.ReadString('\n'); err != nil || line != text {
			t.Fatalf("the job writes %q, %v; want %q", line, err, text)
		}
	}
	echoed("one\n")
	b, err := os.ReadFile(d.sessionFile("1"))
	if err != nil {
		t.Fatal(err)
	}
	session, err := spool.ParseSession(b)
	if err != nil {
		t.Fatal(err)
	}

	hello := append([]byte{1, 0, 0, 0x42}, append([]byte("paddock\x00\x00"), make([]byte, 57)...)...)
	strangers := []stranger{
		{name: "one that says nothing"},
		{name: "a browser", says: []byte("GET / HTTP/1.0\r\n\r\n")},
		{name: "random bytes", says: someNoise(1 << 20)},
		{name: "half a beginning of TLS", says: []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")},
		{name: "TLS and nothing", secure: true},
		{name: "TLS and random bytes", secure: true, says: someNoise(1 << 20)},
		{name: "a giant frame", secure: true, says: append([]byte{1, 0xff, 0xff, 0xff}, someNoise(1<<20)...)},
		{name: "an old version", secure: true, says: hello},
	}
	var all sync.WaitGroup
	for i := range strangers {
		all.Go(func() {
			if err := strangers[i].refused(network, session.Address); err != nil {
				t.Errorf("%s: %v", strangers[i].name, err)
			}
		})
	}
	all.Wait()
	// The token that was used, by one who knows all that root knows.
	var fingerprint wire.Fingerprint
	var token wire.Token
	for _, pair := range []struct {
		to   []byte
		from string
	}{{fingerprint[:], session.Fingerprint}, {token[:], session.Token}} {
		if _, err := hex.Decode(pair.to, []byte(pair.from)); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := net.Dial(network, session.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(harness.Patience))
	if _, _, err := wire.New(nil).Offer(conn, fingerprint, token); err == nil {
		t.Error("a token serves twice")
	}
	if l, err := net.Listen(network, session.Address); err == nil {
		l.Close()
		t.Error("somebody else listens at the same address")
	}
	// More than it talks to at once.
	silent := stranger{name: "a scanner"}
	for range 200 {
		all.Go(func() {
			if err := silent.refused(network, session.Address); err != nil {
				t.Errorf("%s: %v", silent.name, err)
			}
		})
	}
	echoed("two\n")
	all.Wait()
	peak, err := harness.StatusField(cmd.Process.Pid, "VmHWM")
	if err != nil || peak > 64<<10 {
		t.Errorf("qrsh has used %d kB, %v", peak, err)
	}
	in.Close()
	if _, err := lines.ReadString('\n'); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(said.String(), "qrsh: refused a connection from "+from); n < len(strangers)+1 {
		t.Errorf("it tells of %d strangers:\n%s", n, said.String())
	}
}

// TestQrshInto enters a batch job with a terminal, which the job has not.
func TestQrshInto(t *testing.T) {
	parallel(t)
	d := newDesk(t)
	script, open := d.gate("tty; exit 0")
	d.run("qsub", "-cwd", "-S", "/bin/sh", "-N", "batch", "-j", "y", "-o", "out", script)
	d.waitRunning(1)
	// What somebody's own profile does at a login may take any time.
	term := d.start(d.command("qrsh", "-into", "1", "-pty", "y", "-noshell", "/bin/bash", "--noprofile", "--norc", "-i"))
	d.press(term, "PS1='<%s> '; unset PROMPT_COMMAND\n")
	n := d.await(term, 0, `<%s> $`)
	d.press(term, "tty && stty size && echo $TERM in $JOB_NAME\n")
	n = d.await(term, n, `/dev/pts/\d+\r\n24 80\r\nxterm in batch\r\n`)
	d.press(term, "sh -c 'echo is $((1+1)); exec cat'\n")
	n = d.await(term, n, `is 2\r\n`)
	d.press(term, "\x03")
	d.await(term, n, `<%s> $`)
	d.press(term, "exit 5\n")
	d.ends(term, 5)
	// Its end is the job's at the latest.
	term = d.start(d.command("qrsh", "-into", "1", "-pty", "y", "echo up; exec sleep 1000"))
	d.await(term, 0, `up\r\n`)
	d.open(open)
	d.ends(term, 137)
}

// TestQrshProcedures has a prolog, which takes a while, and an epilog around a
// job with a terminal: what they say, ^C ahead of the job, a deletion, and the loss
// of qrsh.
func TestQrshProcedures(t *testing.T) {
	parallel(t)
	dir := place(t, "procedures")
	prolog, epilog, gate := filepath.Join(dir, "prolog"), filepath.Join(dir, "epilog"), filepath.Join(dir, "gate")
	for path, text := range map[string]string{
		prolog: "echo prolog says; echo and warns >&2; until [ -e " + gate + " ]; do sleep 0.4; done; echo go on\n",
		epilog: "echo epilog says\necho over >>" + dir + "/over\n",
	} {
		if err := harness.WriteExecutable(path, "#!/bin/sh\n"+text); err != nil {
			t.Fatal(err)
		}
	}
	configure(t, dir, "execd_params QRSH_GRACE=0\nprolog "+prolog+"\nepilog "+epilog+"\n")
	d := deskIn(t, dir, "-dev")
	begin := func(command string) (*harness.Terminal, int) {
		t.Helper()
		if err := os.Remove(gate); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		term := d.start(d.command("qrsh", "-pty", "y", "-S", "/bin/sh", command))
		return term, d.await(term, 0, `^prolog says\r\nand warns\r\n`)
	}

	job := 0
	for caught := false; !caught; {
		job++
		term, n := begin("trap 'echo caught; exit 4' INT; while :; do sleep 0.4; done")
		d.press(term, "\x03")
		n = d.await(term, n, `\^C`)
		d.open(gate)
		// What procedures say comes by another stream than what the job writes to its terminal,
		// and may come before it.
		for _, text := range []string{`go on\r\n`, `epilog says\r\n`} {
			d.await(term, n, text)
		}
		status, err := term.Wait()
		// A busy host may leave a shell nothing of the second that it has for its trap.
		if caught = err != nil || status != 130 || job == 5; !caught {
			continue
		}
		if err != nil || status != 4 || !strings.Contains(term.Text()[n:], "caught\r\n") {
			t.Errorf("exit status %d, %v; want 4 and a trap\n%q", status, err, term.Text())
		}
	}

	job++
	term, n := begin("echo job")
	d.run("qdel", strconv.Itoa(job))
	d.await(term, n, `epilog says\r\n`)
	if text := d.ends(term, 1); strings.Contains(text, "job\r\n") {
		t.Errorf("a job that was deleted during its prolog ran:\n%q", text)
	}

	job++
	term, _ = begin("echo job >" + dir + "/ran")
	d.lose(term)
	trace := filepath.Join(filepath.Dir(d.sessionFile(strconv.Itoa(job))), spool.FileTrace)
	if err := harness.WaitFor(harness.Patience, "the client to be lost", func() (bool, error) {
		text, err := os.ReadFile(trace)
		return strings.Contains(string(text), "the client is lost: "), err
	}); err != nil {
		t.Fatal(err)
	}
	d.open(gate)
	if err := harness.WaitFor(harness.Patience, "an epilog of each job", func() (bool, error) {
		text, err := os.ReadFile(dir + "/over")
		return strings.Count(string(text), "over\n") == job, err
	}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir + "/ran"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a job whose qrsh was lost during its prolog ran: %v", err)
	}
}
