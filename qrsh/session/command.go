package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"paddock/qrsh/wire"
	"paddock/spool"
)

// wordCommand is the first argument when the daemon of a job has started this
// program as the owner, to run the job's command. The second one is the handle
// by which it finds the session.
const wordCommand = "command"

// runCommand runs the command of an interactive job whose daemon has started
// this program, in the job's directory and with its environment. It tells the
// session how the command has ended, and returns the exit status.
func runCommand(handle string) (int, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: atHandle(handle)})
	if err != nil {
		return 1, errors.New("cannot find the job: it has ended, or was never one of yours")
	}
	defer conn.Close()
	// Anybody can have a socket of this name; only the owner's session has the
	// command.
	if err := wire.SameUser(conn); err != nil {
		return 1, fmt.Errorf("cannot find the job: %w", err)
	}
	submitted, err := spool.ReadCommand(conn)
	if err == nil && len(submitted.Argv) < 2 {
		err = errors.New("no command")
	}
	if err != nil {
		return 1, fmt.Errorf("cannot fetch the command: %w", err)
	}
	// Signals that end or stop the command must not end this program, which
	// reports its end.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGXCPU, unix.SIGPIPE)
	status, err := execute(&submitted)
	if _, e := conn.Write([]byte{byte(status >> 8), byte(status)}); e == nil {
		_, _ = conn.Read(make([]byte, 1)) // the session has passed it on
	}
	if status.Signaled() {
		return 128 + int(status.Signal()), err
	}
	return status.ExitStatus(), err
}

// Exit statuses for a command that cannot be run, the second as in shells.
const (
	cannotEnter = syscall.WaitStatus(1 << 8)
	notExecuted = syscall.WaitStatus(127 << 8)
)

// execute runs a command to its end.
func execute(submitted *spool.Command) (syscall.WaitStatus, error) {
	if err := os.Chdir(submitted.Dir); err != nil {
		return cannotEnter, err
	}
	env := environment(submitted.Env, os.Environ())
	// A name without a slash is looked up in the PATH of the job.
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			_ = os.Setenv("PATH", value)
		}
	}
	path, err := exec.LookPath(submitted.Argv[0])
	if err != nil {
		return notExecuted, err
	}
	cmd := exec.Cmd{Path: path, Args: submitted.Argv[1:], Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return notExecuted, err
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus), nil
}

// ofConnection are the prefixes of variables that belong to the connection and
// not to the job: programs find what the daemon forwards by them.
var ofConnection = []string{"SSH_", "DISPLAY=", "XAUTHORITY=", "KRB5CCNAME="}

// environment returns the environment of the job with what the daemon has added to it.
func environment(job, daemon []string) []string {
	env := slices.Clone(job)
	for _, v := range daemon {
		if slices.ContainsFunc(ofConnection, func(prefix string) bool { return strings.HasPrefix(v, prefix) }) {
			name, _, _ := strings.Cut(v, "=")
			env = slices.DeleteFunc(env, func(old string) bool { return strings.HasPrefix(old, name+"=") })
			env = append(env, v)
		}
	}
	return env
}
