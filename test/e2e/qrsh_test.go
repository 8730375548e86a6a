package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"paddock/test/harness"
)

// TestQrsh is an interactive job with a terminal: the prompt, what is typed, the
// size of the window, ^C and ^Z, and the terminal as it was behind it all.
func TestQrsh(t *testing.T) {
	d := newDesk(t)
	cmd := d.command("qrsh")
	cmd.Env = append(cmd.Env, "HOME="+d.dir)
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
	d := newDesk(t)
	first := d.start(d.command("qrsh", "-pty", "y", "-N", "kept", "read a; echo got $a; read b; echo then $b; exit 9"))
	d.press(first, "one\n")
	d.await(first, 0, `got one`)
	jobs, err := d.Jobs()
	if err != nil || len(jobs) != 1 {
		t.Fatalf("jobs %v, %v", jobs, err)
	}
	if err := first.Signal(os.Kill); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Wait(); err != nil {
		t.Fatal(err)
	}
	second := d.start(d.command("qrsh", "-reconnect", strconv.Itoa(jobs[0].Job)))
	d.press(second, "two\n")
	d.await(second, 0, `then two`)
	if text := d.ends(second, 9); strings.Contains(text, "got one") {
		t.Errorf("the second is told again:\n%q", text)
	}
}

// TestQrshRestart restarts execd under a session, which goes on.
func TestQrshRestart(t *testing.T) {
	dir := place(t, "restart")
	start := func() *harness.Daemon {
		daemon, err := harness.Start(harness.Options{Bin: bin, Dir: dir, Env: plainEnv(dir)})
		if err != nil {
			t.Fatal(err)
		}
		return daemon
	}
	d := &desk{t: t, dir: dir, Daemon: start()}
	term := d.start(d.command("qrsh", "-pty", "y", "echo begun; read a; echo got $a; exit 4"))
	n := d.await(term, 0, `begun`)
	d.Kill()
	d.press(term, "word\n")
	d.await(term, n, `got word`)
	d.Daemon = start()
	d.ends(term, 4)
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	lines, err := harness.Accounting(dir)
	if err != nil || len(lines) != 1 {
		t.Errorf("accounted %v, %v", lines, err)
	}
}

// TestQrshHostile has another user look for the token, and attach.
func TestQrshHostile(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("another user is needed, and so root")
	}
	d := newDesk(t)
	term := d.start(d.command("qrsh", "-pty", "y", "echo begun; read a"))
	d.await(term, 0, `begun`)
	jobs, err := d.Jobs()
	if err != nil || len(jobs) != 1 {
		t.Fatalf("jobs %v, %v", jobs, err)
	}
	token := regexp.MustCompile(`[0-9a-f]{64}`)
	if text := d.run("qstat", "-j", strconv.Itoa(jobs[0].Job), "-json"); token.MatchString(text) {
		t.Errorf("qstat shows %q", token.FindString(text))
	}
	// Neither arguments nor environments have it; what only root can read, he
	// who owns the job cannot.
	processes, err := harness.Processes(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		for _, name := range []string{"cmdline", "environ"} {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID, name))
			if token.Match(b) {
				t.Errorf("%v has a token in its %s", p, name)
			}
		}
	}
	d.press(term, "\n")
	d.ends(term, 0)
}
