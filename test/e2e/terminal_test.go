package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/test/harness"
)

// desk is an execd of one's own with a terminal before it.
type desk struct {
	t         *testing.T
	dir, mode string
	via       []string // see harness.Options
	*harness.Daemon
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	return newDeskWith(t, plenty, "-dev")
}

// plenty is more slots than a test has jobs: qrsh is refused where the last one has its
// slot still, and how many slots there are otherwise is for the host to say.
const plenty = 20

// newDeskWith has a desk whose execd has so many slots and is started in this mode.
func newDeskWith(t *testing.T, slots int, mode string) *desk {
	t.Helper()
	dir := place(t, "terminal")
	if err := os.MkdirAll(dir+"/etc/queues", 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"queues/all.q": "qname all.q\nslots " + strconv.Itoa(slots) + "\n"}
	if mode == "-root" {
		files["sge_conf"] = "min_uid 0\nmin_gid 0\n"
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return deskIn(t, dir, mode)
}

// begin starts execd for a desk that may have had one before; the test stops it.
func (d *desk) begin() {
	d.t.Helper()
	needHome(d.t)
	next, err := harness.Start(d.options())
	if err != nil {
		d.t.Fatal(err) // what the test has to clean up asks the last one, which is dead
	}
	d.Daemon = next
}

// options are those of its execd.
func (d *desk) options() harness.Options {
	o := harness.Options{Bin: bin, Dir: d.dir, Mode: d.mode, Via: d.via, Env: plainEnv(d.dir), Args: []string{"-debug"}}
	if len(d.via) > 0 && d.via[0] == "nsenter" { // a host with a network of its own
		o.Notify = d.dir + ".notify"
	}
	return o
}

// lose kills a command at its terminal.
func (d *desk) lose(term *harness.Terminal) {
	d.t.Helper()
	if err := term.Signal(os.Kill); err != nil {
		d.t.Fatal(err)
	}
	if _, err := term.Wait(); err != nil {
		d.t.Fatal(err)
	}
}

// deskIn is a desk in a directory where there may be a configuration.
func deskIn(t *testing.T, dir, mode string, via ...string) *desk {
	t.Helper()
	needHome(t)
	d := &desk{t: t, dir: dir, mode: mode, via: via}
	var err error
	if d.Daemon, err = harness.Start(d.options()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.run("qdel", "-u", "*")
		for _, err := range []error{
			harness.WaitFor(harness.Patience, "all jobs to be over", func() (bool, error) {
				jobs, err := d.Jobs()
				return len(jobs) == 0, err
			}),
			d.Stop(),
		} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return d
}

func (d *desk) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Dir, cmd.Env = d.dir, append(plainEnv(d.dir), "TERM=xterm")
	return cmd
}

// run runs a command without a terminal and returns what it prints.
func (d *desk) run(name string, args ...string) string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	c := d.command(name, args...)
	cmd := exec.CommandContext(ctx, c.Path, c.Args[1:]...)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	out, err := cmd.Output()
	if err != nil && name != "qdel" {
		d.t.Errorf("%s %q: %v", name, args, err)
	}
	return string(out)
}

func (d *desk) start(cmd *exec.Cmd) *harness.Terminal {
	d.t.Helper()
	term, err := harness.StartOnTerminal(cmd, 80, 24)
	if err != nil {
		d.t.Fatal(err)
	}
	return term
}

// await waits for a text and returns the place behind it.
func (d *desk) await(term *harness.Terminal, n int, pattern string) int {
	d.t.Helper()
	end, err := term.Await(n, pattern)
	if err != nil {
		_ = term.Signal(os.Kill)
		d.t.Fatal(err)
	}
	return end
}

func (d *desk) press(term *harness.Terminal, keys string) {
	d.t.Helper()
	if err := term.Type(keys); err != nil {
		d.t.Fatal(err)
	}
}

// ends waits for the end of the program and compares its exit status.
func (d *desk) ends(term *harness.Terminal, want int) string {
	d.t.Helper()
	got, err := term.Wait()
	if err != nil || got != want {
		d.t.Errorf("exit status %d, %v; want %d\n%q", got, err, want, term.Text())
	}
	return term.Text()
}

// gate is a script whose tasks go on when a file is there.
func (d *desk) gate(text string) (script, open string) {
	d.t.Helper()
	script, open = filepath.Join(d.dir, "gate.sh"), filepath.Join(d.dir, "open")
	if err := os.WriteFile(script, []byte("until [ -e "+open+" ]; do sleep 0.4; done\n"+text), 0o644); err != nil {
		d.t.Fatal(err)
	}
	return script, open
}

func (d *desk) open(file string) {
	d.t.Helper()
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) waitRunning(n int) {
	d.t.Helper()
	if err := harness.WaitFor(harness.Patience, "tasks to run", func() (bool, error) {
		jobs, err := d.Jobs()
		running := 0
		for _, j := range jobs {
			if j.State == "r" {
				running++
			}
		}
		return running == n, err
	}); err != nil {
		d.t.Fatal(err)
	}
}

const (
	enters = `\x1b\[\?1049h`
	leaves = "\x1b[?25h\x1b[?1049l"
)

// TestQtop takes the terminal, shows jobs, follows keys and the size, and gives
// the terminal back however it ends.
func TestQtop(t *testing.T) {
	parallel(t)
	d := newDesk(t)
	d.run("qsub", "-b", "y", "-N", "watched", "-o", "/dev/null", "-e", "/dev/null", "sleep", "600")
	d.waitRunning(1)

	term := d.start(d.command("qtop", "-d", "0.2"))
	at := d.await(term, 0, enters)
	at = d.await(term, at, `watched +\x1b\[32mr\x1b\[0m`)
	if now, err := term.Modes(); err != nil || now.Lflag&(unix.ICANON|unix.ECHO) != 0 || now.Lflag&unix.ISIG == 0 {
		t.Errorf("modes %x, %v; want single keys that are not shown, and signals", now.Lflag, err)
	}
	d.press(term, "unobody-else")
	at = d.await(term, at, `users, .*: nobody-else_`)
	d.press(term, "\x7f\x7f\r")
	at = d.await(term, at, "slots: [0-9]+ of [0-9]+ used; jobs of nobody-el\x1b")
	if _, jobs, _ := strings.Cut(term.Text()[at:], "\x1b[H"); strings.Contains(jobs, "watched") {
		t.Errorf("jobs of others are shown: %q", jobs)
	}
	d.press(term, "u"+strings.Repeat("\b", 20)+"\r")
	at = d.await(term, at, "watched")
	if err := term.Resize(40, 10); err != nil {
		t.Fatal(err)
	}
	at = d.await(term, at, `\x1b\[H[^\n]*\n(?:[^\n]*\n){8}q quit  c m t j sort by cpu, memory, ti\x1b`)
	d.press(term, "g")
	at = d.await(term, at, `all\.q +1 +1=+`)
	d.press(term, "-+g")
	at = d.await(term, at, "watched")
	d.press(term, "mrtcj \x1b[B\x1b[A\x1b[5~\x1b[6~\x1b[H\x1b[99~x")
	d.await(term, at, "watched")
	d.press(term, "q")
	text := d.ends(term, 0)
	if !strings.HasSuffix(text, leaves) {
		t.Errorf("the screen is left with %q", text[max(len(text)-100, 0):])
	}
}

// TestQtopSignals ends and stops it from outside.
func TestQtopSignals(t *testing.T) {
	parallel(t)
	d := newDesk(t)
	for _, tt := range []struct {
		name string
		key  string // or the signal
		sig  syscall.Signal
		exit int
	}{
		{"^C", "\x03", 0, 130},
		{`^\`, "\x1c", 0, 131},
		{"TERM", "", syscall.SIGTERM, 143},
		{"HUP", "", syscall.SIGHUP, 129},
	} {
		// The shell looks at the terminal before and after.
		script := `stty -g; qtop -d 60; e=$?; stty -g; exit $e`
		cmd := d.command("qtop")
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "trap : INT QUIT; " + script}
		term := d.start(cmd)
		at := d.await(term, 0, enters)
		at = d.await(term, at, "q quit")
		if tt.key != "" {
			d.press(term, tt.key)
		} else if err := syscall.Kill(child(t, term.PID()), tt.sig); err != nil {
			t.Fatal(err)
		}
		text := d.ends(term, tt.exit)
		lines := regexp.MustCompile(`[0-9a-f]+(?::[0-9a-f]+){10,}`).FindAllString(text, -1)
		if len(lines) != 2 || lines[0] != lines[1] {
			t.Errorf("%s: the terminal was %q; want the same before and after", tt.name, lines)
		}
		if !strings.Contains(text[at:], leaves) {
			t.Errorf("%s: the screen is left with %q", tt.name, text[at:])
		}
	}

	term := d.start(d.command("qtop", "-d", "60"))
	at := d.await(term, 0, "q quit")
	before, err := term.Modes()
	if err != nil {
		t.Fatal(err)
	}
	if err := term.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	at = d.await(term, at, regexp.QuoteMeta(leaves))
	if err := harness.WaitFor(harness.Patience, "qtop to stop", func() (bool, error) { return state(term.PID()) == "T", nil }); err != nil {
		t.Error(err)
	}
	if now, err := term.Modes(); err != nil || now.Lflag&unix.ICANON == 0 {
		t.Errorf("modes %x, %v while it is stopped", now.Lflag, err)
	}
	if err := term.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	d.await(term, at, enters)
	if err := harness.WaitFor(harness.Patience, "the terminal to be taken again", func() (bool, error) {
		now, err := term.Modes()
		return now == before, err
	}); err != nil {
		t.Error(err)
	}
	d.press(term, "q")
	d.ends(term, 0)
}

// child returns the one child of a process.
func child(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(pid) + "/children")
	n, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || err2 != nil {
		t.Fatalf("children of %d: %q, %v", pid, text, err)
	}
	return n
}

// state returns the letter of a process's state.
func state(pid int) string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if i := bytes.LastIndexByte(text, ')'); i >= 0 && i+2 < len(text) {
		return string(text[i+2 : i+3])
	}
	return ""
}

// TestProgress shows how far an array is on one line of the terminal, which is
// gone before anything else is printed, and only there.
func TestProgress(t *testing.T) {
	parallel(t)
	d := newDesk(t)
	for _, tt := range []struct {
		name string
		cmd  func(script string) *exec.Cmd
		said string
		exit int
	}{
		{"qsub", func(script string) *exec.Cmd { return d.command("qsub", "-cwd", "-sync", "y", "-t", "1-3", script) }, "Job 1.1 exited with exit code 4.\r\n", 4},
		{"qwait", func(script string) *exec.Cmd {
			d.run("qsub", "-cwd", "-t", "1-3", script)
			return d.command("qwait", "2")
		}, "Job 2.1 exited with exit code 4.\r\n", 4},
	} {
		script, open := d.gate("exit 4\n")
		term := d.start(tt.cmd(script))
		d.await(term, 0, `\r0 of 3 done, [0-9] running, [0-9] pending, [0-9]+s\x1b\[K`)
		d.open(open)
		text := d.ends(term, tt.exit)
		if !strings.Contains(text, tt.said) {
			t.Errorf("%s: %q; want %q", tt.name, text, tt.said)
		}
		for line := range strings.Lines(text) {
			if i := strings.Index(line, "Job "); i > 0 && !strings.HasSuffix(line[:i], "\r\x1b[K") {
				t.Errorf("%s: printed behind the line: %q", tt.name, line)
			}
		}
		if err := os.Remove(open); err != nil {
			t.Fatal(err)
		}
	}

	// ^C ends the waiting, not the job.
	script, open := d.gate("")
	d.run("qsub", "-cwd", script)
	term := d.start(d.command("qwait", "3"))
	d.await(term, 0, "0 of 1 done")
	d.press(term, "\x03")
	if text := d.ends(term, 130); !strings.Contains(text, "\r\x1b[Kqwait: interrupted; job 3 goes on\r\n") {
		t.Errorf("after ^C: %q", text)
	}
	d.waitRunning(1)

	// A restart of execd does not, nor does the line go wrong by it.
	term = d.start(d.command("qwait", "3"))
	d.await(term, 0, "0 of 1 done")
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	daemon, err := harness.Start(harness.Options{Bin: bin, Dir: d.dir, Mode: d.mode, Env: plainEnv(d.dir)})
	if err != nil {
		t.Fatal(err)
	}
	d.Daemon = daemon
	d.open(open)
	if text := d.ends(term, 0); !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("after a restart of execd: %q", text)
	}
}

// TestColours has colours around states on a terminal, and besides them the
// bytes that others get.
func TestColours(t *testing.T) {
	parallel(t)
	d := newDesk(t)
	d.run("qsub", "-b", "y", "-o", "/dev/null", "-e", "/dev/null", "sleep", "600")
	d.run("qsub", "-b", "y", "-h", "sleep", "600")
	d.waitRunning(1)
	plain := d.run("qstat")
	for _, tt := range []struct {
		args     []string
		env      string
		coloured bool
	}{{nil, "A=b", true}, {[]string{"-f"}, "A=b", true}, {nil, "NO_COLOR=1", false}, {nil, "TERM=dumb", false}} {
		cmd := d.command("qstat", tt.args...)
		cmd.Env = append(cmd.Env, tt.env)
		text := strings.ReplaceAll(d.ends(d.start(cmd), 0), "\r\n", "\n")
		if got := strings.Contains(text, " \x1b[32mr\x1b[0m     ") && strings.Contains(text, " \x1b[34mhqw\x1b[0m   "); got != tt.coloured {
			t.Errorf("qstat %q %s: coloured %v; want %v:\n%q", tt.args, tt.env, got, tt.coloured, text)
		}
		text = regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(text, "")
		// The load of the host is another one by the second call.
		load := regexp.MustCompile(`[0-9]+\.[0-9]{2} +lx-`)
		if want := d.run("qstat", tt.args...); load.ReplaceAllString(text, "LOAD lx-") != load.ReplaceAllString(want, "LOAD lx-") {
			t.Errorf("qstat %q on a terminal:\n%q\nwant\n%q", tt.args, text, want)
		}
	}
	if strings.Contains(plain, "\x1b") {
		t.Errorf("qstat without a terminal: %q", plain)
	}
	d.run("qsub", "-b", "y", "-cwd", "-sync", "y", "echo out; echo err >&2")
	if text := d.ends(d.start(d.command("qlog", "3")), 0); text != "out\r\n\x1b[31merr\x1b[0m\r\n" {
		t.Errorf("qlog: %q", text)
	}
}

// configure writes the configuration of an execd that is to be started, of plenty of
// slots.
func configure(t *testing.T, dir, text string) {
	t.Helper()
	etc := filepath.Join(dir, "etc")
	err := errors.Join(os.MkdirAll(filepath.Join(etc, "queues"), 0o755),
		os.WriteFile(filepath.Join(etc, "sge_conf"), []byte(text), 0o644),
		os.WriteFile(filepath.Join(etc, "queues", "all.q"), []byte("qname all.q\nslots "+strconv.Itoa(plenty)+"\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
}
