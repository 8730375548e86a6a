package hook

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// The test's binary is the parent of hooks, too, as main makes it one.
const parentWord = "parent-of-a-hook"

func init() {
	if len(os.Args) > 3 && os.Args[1] == parentWord {
		n, _ := strconv.Atoi(os.Args[2])
		os.Exit(Run(Options{Processes: n, Dir: os.Args[3], Argv: os.Args[4:]}))
	}
}

// talk runs a hook, sends what is given and no more, and returns what it was
// told, what the hook has printed, and the exit code. hold keeps the hook from
// hearing of the end.
func talk(t *testing.T, sent []byte, hold bool, argv ...string) (report, out string, code int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	var stdout strings.Builder
	cmd := exec.Command(os.Args[0], append([]string{parentWord}, argv...)...)
	cmd.Env = spool.StartEnvironment
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stdout = &stdout
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Write(sent); err != nil {
		t.Fatal(err)
	}
	if !hold {
		if err := unix.Shutdown(pair[0], unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
	}
	b, err := io.ReadAll(ours)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return string(b), stdout.String(), cmd.ProcessState.ExitCode()
}

// TestRun sees what is told of hooks.
func TestRun(t *testing.T) {
	env := spool.AppendHookEnvironment(nil, []string{"WORD=hello", "PATH=/usr/bin:/bin"})
	sh := func(text string) []string { return []string{"10", "/", "/bin/sh", "-c", text} }
	for _, test := range []struct {
		argv []string
		sent []byte
		hold bool
		want string // of the report, behind the line with the pid
		out  string
		code int
	}{
		{sh("echo $WORD; exit 3"), env, true, "status 3\n", "hello\n", 0},
		{sh("kill -9 $$"), env, true, "status -9\n", "", 0},
		{sh("sleep 1000"), env, false, "stopped told to\nstatus -15\n", "", 0},
		{sh("sleep 1000 & sleep 1000 & sleep 1000"), env, false, "stopped told to\nstatus -15\n", "", 0},
		{sh("while :; do sleep 1000 & done"), env, true, "stopped more than 10 processes\nstatus -9\n", "", 0},
		{[]string{"10", "/no/dir", "/bin/sh"}, env, true, "failed cannot work in \"/no/dir\": no such file or directory\n", "", 1},
		{[]string{"10", "/", "/no/program"}, env, true, "failed cannot execute \"/no/program\": no such file or directory\n", "", 1},
		{sh("echo never"), nil, false, "", "", 1},
		{sh("echo never"), env[:len(env)-1], false, "", "", 1},
	} {
		report, out, code := talk(t, test.sent, test.hold, test.argv...)
		if first, rest, _ := strings.Cut(report, "\n"); strings.HasPrefix(first, "started ") {
			report = rest
		} else if test.code == 0 {
			t.Errorf("%q: no pid is told: %q", test.argv, report)
		}
		if report != test.want || out != test.out || code != test.code {
			t.Errorf("%q: report %q, output %q, exit code %d; want %q, %q, %d", test.argv, report, out, code, test.want, test.out, test.code)
		}
	}
}

func TestReason(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(path, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path string
		err  error
		want string
	}{
		{path, unix.ENOENT, "its interpreter is missing"},
		{path + "-", unix.ENOENT, "no such file or directory"},
		{path, unix.ENOEXEC, "no program, and no script with a line #! at its beginning"},
		{path, unix.EACCES, "permission denied"},
	} {
		if got := reason(test.path, test.err); got != test.want {
			t.Errorf("%v: %q; want %q", test.err, got, test.want)
		}
	}
}

// The number of processes is looked at often while it changes, and seldom while a
// hook waits.
func TestPace(t *testing.T) {
	between, looks := firstLook, 0
	for at := time.Duration(0); at < 10*time.Minute; at += between {
		between = pace(between, false, 0)
		looks++
	}
	if between != quietLook || looks > 130 {
		t.Errorf("%d looks in ten quiet minutes, the last after %v", looks, between)
	}
	if got := pace(between, true, 0); got != busyLook {
		t.Errorf("after a change the next look comes after %v; want %v", got, busyLook)
	}
	if got := pace(firstLook, true, 0); got != 2*firstLook {
		t.Errorf("at the beginning the next look comes after %v; want %v", got, 2*firstLook)
	}
	if got := pace(between, true, time.Second); got != lookShare*time.Second {
		t.Errorf("where a look takes a second the next one comes after %v; want %v", got, lookShare*time.Second)
	}
}
