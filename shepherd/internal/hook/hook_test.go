package hook

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// The test's binary is the parent of hooks, too, as main makes it one.
const parentWord = "parent-of-hooks"

func init() {
	if len(os.Args) > 1 && os.Args[1] == parentWord {
		os.Exit(Run())
	}
}

// parentOf starts a parent of hooks, which gets its calls by the socket.
func parentOf(t *testing.T) (*exec.Cmd, *os.File) {
	t.Helper()
	ours, theirs := socketPair(t)
	cmd := exec.Command(os.Args[0], parentWord)
	cmd.Env = spool.StartEnvironment
	cmd.ExtraFiles = []*os.File{theirs}
	err := cmd.Start()
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ours.Close()
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd, ours
}

func socketPair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
}

// talk has a parent run a hook, sends what is given and no more, and returns what
// it was told and what the hook has printed. hold keeps the hook from hearing of the
// end.
func talk(t *testing.T, parent *os.File, sent []byte, hold bool) (report, out string) {
	t.Helper()
	ours, theirs := socketPair(t)
	defer ours.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	files := unix.UnixRights(int(null.Fd()), int(to.Fd()), int(to.Fd()), int(theirs.Fd()))
	err = unix.Sendmsg(int(parent.Fd()), []byte{0}, files, nil, unix.MSG_NOSIGNAL)
	to.Close()
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Write(sent); err != nil {
		t.Fatal(err)
	}
	if !hold {
		if err := unix.Shutdown(int(ours.Fd()), unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
	}
	b, err := io.ReadAll(ours)
	if err != nil {
		t.Fatal(err)
	}
	printed, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), string(printed)
}

// calling is a call as execd sends it.
func calling(processes int, dir string, argv ...string) []byte {
	c := spool.HookCall{Processes: processes, Dir: dir, Argv: argv, Env: []string{"WORD=hello", "PATH=/usr/bin:/bin"}}
	return c.Append(nil)
}

func sh(text string) []byte { return calling(10, "/", "/bin/sh", "-c", text) }

// asleep ends when its parent has slept for a while: the runtime of Go sleeps for a moment
// at any time.
const asleep = `ulimit -t 9
n=0
while [ $n -lt 200 ]; do
	read -r _ _ state _ </proc/$PPID/stat
	case $state in S) n=$((n+1)) ;; *) n=0 ;; esac
done`

// TestRun sees what is told of hooks, and which parents wait for another.
func TestRun(t *testing.T) {
	whole := sh("echo never")
	for _, test := range []struct {
		sent []byte
		hold bool
		want string // of the report, without the line with the pid
		out  string
		code int // -1: it waits
	}{
		{sh("echo $WORD; exit 3"), true, "taken\nwaits\nstatus 3\n", "hello\n", -1},
		{sh("kill -9 $$"), true, "taken\nwaits\nstatus -9\n", "", -1},
		// It sees its parent sleep. One that does not has the hook use up its time.
		{sh(asleep), true, "taken\nwaits\nstatus 0\n", "", -1},
		{sh("sleep 1000 & exit 3"), true, "taken\nstatus 3\n", "", 0},
		{sh("sleep 1000"), false, "taken\nstopped told to\nstatus -15\n", "", 0},
		{sh("sleep 1000 & sleep 1000 & sleep 1000"), false, "taken\nstopped told to\nstatus -15\n", "", 0},
		{sh("while :; do sleep 1000 & done"), true, "taken\nstopped more than 10 processes\nstatus -9\n", "", 0},
		{calling(0, "/", "/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.3 & done; wait; exit 4"), true, "taken\nwaits\nstatus 4\n", "", -1},
		{calling(10, "/no/dir", "/bin/sh"), true, "taken\nfailed cannot work in \"/no/dir\": no such file or directory\n", "", 1},
		{calling(10, "/", "/no/program"), true, "taken\nfailed cannot execute \"/no/program\": no such file or directory\n", "", 1},
		{nil, false, "", "", 1},
		{whole[:len(whole)-1], false, "", "", 1},
	} {
		cmd, socket := parentOf(t)
		report, out := talk(t, socket, test.sent, test.hold)
		head, rest, ok := strings.Cut(report, "started ")
		if ok {
			_, rest, _ = strings.Cut(rest, "\n")
		} else if test.code <= 0 {
			t.Errorf("%q: no pid is told: %q", test.sent, report)
		}
		if head+rest != test.want || out != test.out {
			t.Errorf("%q: report %q, output %q; want %q, %q", test.sent, report, out, test.want, test.out)
		}
		if test.code < 0 {
			if again, out := talk(t, socket, sh("echo again"), true); !strings.HasSuffix(again, "\nwaits\nstatus 0\n") || out != "again\n" {
				t.Errorf("%q: after it another hook is reported as %q, and has printed %q", test.sent, again, out)
			}
			socket.Close()
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != max(test.code, 0) {
			t.Errorf("%q: exit code %d; want %d", test.sent, got, max(test.code, 0))
		}
	}
}

// TestCondition has something done to a parent that the next hook would inherit: it
// does not run that, nor says that it would.
func TestCondition(t *testing.T) {
	for what, do := range map[string]func(pid int) error{
		"a limit": func(pid int) error {
			return unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{Cur: 0, Max: 4096}, nil)
		},
		"the nice value": renice,
		"the processors": func(pid int) error { return oneProcessor(pid) },
		"the policy": func(pid int) error {
			return unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH}, 0)
		},
		"the io priority": func(pid int) error { return idleIO(pid) },
	} {
		cmd, socket := parentOf(t)
		if report, _ := talk(t, socket, sh("exit 0"), true); !strings.Contains(report, "\nwaits\n") {
			t.Fatalf("it does not wait: %q", report)
		}
		if err := do(cmd.Process.Pid); err != nil {
			t.Logf("%s: %v", what, err)
			continue
		}
		if report, out := talk(t, socket, sh("echo ran"), true); report != "" || out != "" {
			t.Errorf("%s was changed: report %q, output %q; want neither", what, report, out)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s was changed: %v", what, err)
		}
	}
}

// renice gives a process another nice value than it has, whoever started the tests.
func renice(pid int) error {
	const zero = 20 // of the kernel, which counts down from there
	had, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	if err != nil {
		return err
	}
	nice := 19
	if had == zero-nice {
		nice--
	}
	return unix.Setpriority(unix.PRIO_PROCESS, pid, nice)
}

func oneProcessor(pid int) error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &set); err != nil {
		return err
	}
	if set.Count() < 2 {
		return errors.New("there is one alone")
	}
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			set.Clear(i)
			break
		}
	}
	return unix.SchedSetaffinity(pid, &set)
}

func idleIO(pid int) error {
	const process, idle = 1, 3 << 13
	if _, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, process, uintptr(pid), idle); errno != 0 {
		return errno
	}
	return nil
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
