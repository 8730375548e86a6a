package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/test/harness"
)

// try runs qrsh without a terminal, whatever comes of it.
func (d *desk) try(stdin []byte, args ...string) (stdout, stderr []byte, exit int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*harness.Patience) // there are many of them
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "qrsh"), args...)
	cmd.Dir, cmd.Env = d.dir, plainEnv(d.dir)
	var out, diag bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &diag
	err = cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		err = nil
	}
	return out.Bytes(), diag.Bytes(), cmd.ProcessState.ExitCode(), err
}

// someNoise returns bytes of every value.
func someNoise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b) // it never fails
	return b
}

// TestQrshCodes has a hundred sessions at once, each with much to carry both ways
// and an exit code of its own.
func TestQrshCodes(t *testing.T) {
	parallel(t)
	d := newDeskWith(t, 400, "-dev") // more than there are sessions, see plenty
	noise := someNoise(200_000)
	var all sync.WaitGroup
	for n := range 100 {
		code := n * 255 / 99
		all.Go(func() {
			out, diag, exit, err := d.try(noise, "-S", "/bin/sh", "cat; exit "+strconv.Itoa(code))
			if err != nil || exit != code || len(diag) > 0 || !bytes.Equal(out, noise) {
				t.Errorf("exit %d: exit status %d, %v, %d bytes, %q", code, exit, err, len(out), diag)
			}
		})
	}
	all.Wait()
}

// TestFaultQrshCodes has programs of sessions fail with every code, and be killed by
// every signal, a few at once.
func TestFaultQrshCodes(t *testing.T) {
	parallel(t)
	d := newDeskWith(t, 400, "-dev")
	reason := regexp.MustCompile(`^qrsh: job \d+: job .*\n$`)
	type session struct {
		command string
		exit    int
	}
	sessions := make(chan session)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for s := range sessions {
				out, diag, exit, err := d.try(nil, "-S", "/bin/sh", "ulimit -c 0; "+s.command)
				if err != nil || exit != s.exit || len(out) > 0 || len(diag) > 0 && !reason.Match(diag) {
					t.Errorf("%s: exit status %d, %v; want %d; %q %q", s.command, exit, err, s.exit, out, diag)
				}
			}
		})
	}
	for code := range 256 {
		sessions <- session{"exit " + strconv.Itoa(code), code}
	}
	for n := 1; n <= 64; n++ {
		s := session{fmt.Sprintf("kill -%d $$; exit 3", n), 128 + n}
		switch syscall.Signal(n) {
		case unix.SIGCHLD, unix.SIGCONT, unix.SIGURG, unix.SIGWINCH:
			s.exit = 3 // which mean nothing
		case unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
			s.exit = 3 // which stop nobody whom no shell could continue
		case unix.SIGSTOP:
			s = session{`(until grep -q "^State:.T" /proc/$$/status; do :; done; kill -CONT $$) & kill -STOP $$; exit 4`, 4}
		}
		sessions <- s
	}
	close(sessions)
	all.Wait()
}

// shell starts an interactive shell on a terminal.
func (d *desk) shell() (term *harness.Terminal, n int) {
	d.t.Helper()
	cmd := d.command("qrsh")
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-i"}
	cmd.Env = append(cmd.Env, "PS1=<%s> ", "PATH="+bin+":"+os.Getenv("PATH"))
	term = d.start(cmd)
	return term, d.await(term, 0, "<%s> $")
}

// awaitModes waits until the terminal has these modes.
func (d *desk) awaitModes(term *harness.Terminal, want unix.Termios) {
	d.t.Helper()
	if err := harness.WaitFor(harness.Patience, "the terminal to be given back, or taken", func() (bool, error) {
		now, err := term.Modes()
		return now == want, err
	}); err != nil {
		d.t.Error(err)
	}
}

func (d *desk) modes(term *harness.Terminal) unix.Termios {
	d.t.Helper()
	now, err := term.Modes()
	if err != nil {
		d.t.Fatal(err)
	}
	return now
}

// TestQrshEscape is qrsh under a shell: its help, how it is suspended by a key and
// by a signal, and how it leaves a job, that another goes on with.
func TestQrshEscape(t *testing.T) {
	parallel(t)
	d := newDesk(t)
	term, n := d.shell()
	before := d.modes(term)
	d.press(term, "qrsh -pty y -S /bin/sh 'echo up; while read a && test $a != end; do echo got $a; stty size; done; exit 5'\n")
	n = d.await(term, n, `[\r\n]up\r\n`)
	raw := d.modes(term)
	if raw.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != 0 {
		t.Errorf("the terminal's modes are %x", raw.Lflag)
	}
	d.press(term, "~?")
	n = d.await(term, n, `~\^Z +suspend qrsh\r\n(?s:.*)the character itself\r\n`)
	d.press(term, "~~one\r")
	n = d.await(term, n, `got ~one\r\n24 80\r\n`)

	suspend := []func(){
		func() { d.press(term, "~\x1a") },
		func() {
			if err := syscall.Kill(child(t, term.PID()), syscall.SIGTSTP); err != nil {
				t.Fatal(err)
			}
		},
	}
	for i, suspend := range suspend {
		suspend()
		d.await(term, n, `Stopped`)
		d.awaitModes(term, before)
		if err := term.Resize(80+i, 33); err != nil {
			t.Fatal(err)
		}
		n = len(term.Text())
		d.press(term, "fg\n")
		d.awaitModes(term, raw)
		d.press(term, "two\r")
		n = d.await(term, n, `got two\r\n33 `+strconv.Itoa(80+i)+`\r\n`)
	}

	d.press(term, "~.")
	n = d.await(term, n, `qrsh: left job 1, which waits for qrsh -reconnect 1\r\n`)
	d.awaitModes(term, before)
	d.press(term, "echo code $?; qrsh -escape ^a -reconnect 1\n")
	n = d.await(term, n, `code 125\r\n`)
	d.awaitModes(term, raw)
	d.press(term, "~.\r\x01\x01\rthree\r")
	n = d.await(term, n, `got ~\.\r\n(?s:.*)got \x01\r\n(?s:.*)got three\r\n`)
	d.press(term, "end\r")
	d.awaitModes(term, before)
	d.press(term, "echo code $?; exit\n")
	d.await(term, n, `code 5\r\n`)
	d.ends(term, 0)
}

// TestQrshGivesBack ends qrsh while it has the terminal.
func TestQrshGivesBack(t *testing.T) {
	parallel(t)
	d := newDesk(t)
	for _, tt := range []struct {
		sig  syscall.Signal
		exit int
	}{{syscall.SIGTERM, 143}, {syscall.SIGHUP, 129}, {syscall.SIGINT, 9}, {syscall.SIGQUIT, 10}} {
		cmd := d.command("qrsh")
		cmd.Path = "/bin/sh"
		cmd.Args = []string{
			"sh", "-c", `stty -g; "$@"; e=$?; stty -g; exit $e`, "sh", filepath.Join(bin, "qrsh"), "-pty", "y", "-S", "/bin/sh",
			"ulimit -c 0; trap 'exit 9' INT; trap 'exit 10' QUIT; echo up; while :; do sleep 0.4; done",
		}
		term := d.start(cmd)
		d.await(term, 0, `[\r\n]up\r\n`)
		if raw := d.modes(term); raw.Lflag&unix.ICANON != 0 {
			t.Errorf("the terminal's modes are %x", raw.Lflag)
		}
		if err := syscall.Kill(child(t, term.PID()), tt.sig); err != nil {
			t.Fatal(err)
		}
		text := d.ends(term, tt.exit)
		lines := regexp.MustCompile(`[0-9a-f]+(?::[0-9a-f]+){10,}`).FindAllString(text, -1)
		if len(lines) != 2 || lines[0] != lines[1] {
			t.Errorf("%v: the terminal was %q; want the same before and after", tt.sig, lines)
		}
		d.run("qdel", "-u", "*")
	}
}

// TestQrshModes has the job's terminal begin as the user's is.
func TestQrshModes(t *testing.T) {
	parallel(t)
	d := newDesk(t)
	cmd := d.command("qrsh")
	cmd.Path = "/bin/sh"
	cmd.Args = []string{
		"sh", "-c", `stty erase ^H intr ^X quit undef -ixon -echoctl rows 33 cols 99; stty -a; echo =; "$@"`, "sh",
		filepath.Join(bin, "qrsh"), "-pty", "y", "-S", "/bin/sh", `stty -a; printf "=$TERM \033[38;5;9mred\033[m\n"`,
	}
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	parts := strings.Split(d.ends(d.start(cmd), 0), "=\r\n")
	if len(parts) != 2 {
		t.Fatalf("it prints %q", parts)
	}
	if want := parts[0] + "=xterm-256color \x1b[38;5;9mred\x1b[m\r\n"; parts[1] != want {
		t.Errorf("the job's terminal is\n%s\nwant\n%s", parts[1], want)
	}
	// Without a terminal to be like, it has Grid Engine's size.
	if out, _, _, err := d.try(nil, "-pty", "y", "stty", "size"); string(out) != "60 80\r\n" {
		t.Errorf("the size is %q, %v", out, err)
	}
}

// TestQrshPaste types a megabyte of anything.
func TestQrshPaste(t *testing.T) {
	parallel(t)
	d := newDesk(t)
	noise := someNoise(1 << 20)
	term := d.start(d.command("qrsh", "-pty", "y", "-escape", "none", "stty raw -echo; echo ready; head -c 1048576 | sha256sum"))
	n := d.await(term, 0, `ready\n`)
	d.press(term, string(noise))
	d.await(term, n, fmt.Sprintf("%x", sha256.Sum256(noise)))
	d.ends(term, 0)
}

// TestQrshScreens has two programs that take the whole screen.
func TestQrshScreens(t *testing.T) {
	parallel(t)
	for _, name := range []string{"vi", "top"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("there is no %s", name)
		}
	}
	d := newDesk(t)
	note := filepath.Join(d.dir, "note")
	// An editor may keep things at home.
	term := d.start(d.command("qrsh", "-pty", "y", "HOME="+d.dir+" vi "+note))
	d.await(term, 0, `note"?`)
	d.press(term, "ihello from vi\rand again\x1b")
	d.press(term, ":wq\r")
	d.ends(term, 0)
	if text, err := os.ReadFile(note); err != nil || string(text) != "hello from vi\nand again\n" {
		t.Errorf("vi has written %q, %v", text, err)
	}

	cmd := d.command("qrsh", "-pty", "y", "HOME="+d.dir+" top -d 0.3")
	term = d.start(cmd)
	n := d.await(term, 0, `PID(?s:.*)\n(?s:.*)\n`)
	if err := term.Resize(50, 10); err != nil {
		t.Fatal(err)
	}
	if err := harness.WaitFor(harness.Patience, "top to fit the window", func() (bool, error) {
		frames := strings.Split(regexp.MustCompile(`\x1b(?:\[[0-9;?]*[A-GI-Za-z]|\(B)`).ReplaceAllString(term.Text()[n:], ""), "\x1b[H")
		for _, frame := range frames[1:max(len(frames)-1, 1)] { // whole ones
			lines := strings.Split(strings.ReplaceAll(frame, "\r", ""), "\n")
			if len(lines) == 10 && !slices.ContainsFunc(lines, func(l string) bool { return len(l) > 50 }) {
				return true, nil
			}
		}
		return false, fmt.Errorf("there is %q", frames[len(frames)-1])
	}); err != nil {
		t.Error(err)
	}
	d.press(term, "q")
	d.ends(term, 0)
}

// TestQrshWaits has jobs that wait for a slot: what is typed meanwhile is theirs,
// and ^C deletes one. A job that is suspended says so.
func TestQrshWaits(t *testing.T) {
	parallel(t)
	d := newDeskWith(t, 1, "-dev")
	waiting := func() {
		t.Helper()
		if err := harness.WaitFor(harness.Patience, "a job to wait", func() (bool, error) {
			jobs, err := d.Jobs()
			return len(jobs) == 2 && (jobs[0].State == "qw" || jobs[1].State == "qw"), err
		}); err != nil {
			t.Fatal(err)
		}
	}
	d.run("qsub", "-b", "y", "-o", "/dev/null", "-j", "y", "sleep", "1000")
	d.waitRunning(1)
	term := d.start(d.command("qrsh", "-now", "n", "-pty", "y"))
	waiting()
	d.press(term, "\x03")
	if text := d.ends(term, 1); !strings.HasSuffix(text, "Request for interactive job has been canceled.\r\n") {
		t.Errorf("it prints %q", text)
	}
	term = d.start(d.command("qrsh", "-now", "n", "-pty", "y", "-S", "/bin/sh", "read a; read b; echo $a-$b; read a; exit $a"))
	waiting()
	d.press(term, "one\r")
	d.press(term, "two\r")
	d.run("qdel", "1")
	n := d.await(term, 0, `one-two\r\n`)
	d.run("qmod", "-sj", "3")
	n = d.await(term, n, `qrsh: the job is suspended\r\n`)
	d.run("qmod", "-usj", "3")
	d.await(term, n, `qrsh: the job goes on\r\n`)
	d.press(term, "6\r")
	d.ends(term, 6)
}
