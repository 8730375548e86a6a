package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/qsub/internal/option"
	"paddock/qsub/internal/qtest"
)

func call(t *testing.T, stdin string, args ...string) qtest.Result {
	t.Helper()
	return qtest.Call(t, &program, stdin, args...)
}

func TestCalledByAnotherName(t *testing.T) {
	qtest.Isolate(t)
	qtest.Want(t, qtest.Result{Exit: 2, Err: "qfoo: cannot tell what to do: the program wants to be called qsub qstat qdel qhold qrls qmod qhost qselect qconf qacct qalter qrsh qlogin qsh qresub qwait qlog qtop\n"}, call(t, "", "/usr/bin/qfoo"))
}

func TestHelpAndVersion(t *testing.T) {
	qtest.Isolate(t)
	for _, c := range option.Commands() {
		command := c.String()
		for _, option := range []string{"-help", "--help"} {
			got := call(t, "", command, option)
			if got.Exit != 0 || got.Err != "" || !strings.HasPrefix(got.Out, "SGE 8.1.9 (Paddock "+version+")\nusage: "+command+" [options]") || !strings.Contains(got.Out, "   [-help] ") {
				t.Errorf("%s %s: %+v", command, option, got)
			}
			for line := range strings.Lines(got.Out) {
				if len(line) > 81 {
					t.Errorf("%s %s: %d columns: %s", command, option, len(line)-1, line)
				}
			}
		}
		qtest.Want(t, qtest.Result{Out: command + " version " + version + "\n"}, call(t, "", command, "-version"))
	}
}

func TestNotThere(t *testing.T) {
	qtest.Isolate(t)
	socket := filepath.Join(os.Getenv("PADDOCK_DIR"), "execd.sock")
	cause := ": connect: no such file or directory\nIs it not running? Start it: execd -dev " + filepath.Dir(socket) + " &\n"
	for _, args := range [][]string{{"qsub"}, {"qrsh", "true"}} {
		qtest.Want(t, qtest.Result{Exit: 1, Err: "Unable to initialize environment because of error: cannot reach execd at " + socket + cause + "Exiting.\n"},
			call(t, "true", args...))
	}
	for _, args := range [][]string{
		{"qstat"},
		{"qstat", "-j", "1"},
		{"qstat", "-f"},
		{"qstat", "-g", "c"},
		{"qdel", "1"},
		{"qhold", "1"},
		{"qrls", "1"},
		{"qmod", "-sj", "1"},
		{"qmod", "-s", "q"},
		{"qhost"},
		{"qselect"},
		{"qconf", "-sql"},
		{"qconf", "-reload"},
		{"qwait", "1"},
		{"qlog", "1"},
		{"qlog", "-f", "1"},
		{"qtop"},
	} {
		qtest.Want(t, qtest.Result{Exit: 1, Err: "error: cannot reach execd at " + socket + cause}, call(t, "", args...))
	}
	// Starting execd would not help.
	t.Setenv("PADDOCK_DIR", "/"+strings.Repeat("x", 200))
	qtest.Want(t, qtest.Result{Exit: 1, Err: "error: cannot reach execd at " + os.Getenv("PADDOCK_DIR") + "/execd.sock: connect: invalid argument\n"}, call(t, "", "qstat"))
}

// failing is a standard output on a full disk.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrInvalid }

func TestOutputCannotBeWritten(t *testing.T) {
	qtest.Isolate(t)
	var errout bytes.Buffer
	exit := program.Run(t.Context(), []string{"qacct", "-f", "/dev/null"}, strings.NewReader(""), failing{}, &errout)
	if want := "qacct: cannot write standard output: invalid argument\n"; exit != 1 || errout.String() != want {
		t.Errorf("exit %d, %q; want 1, %q", exit, errout.String(), want)
	}
}
