package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"paddock/test/harness"
)

// longest is how long one command may take, of which all take seconds.
const longest = 2 * harness.Patience

// tries is how often Grid Engine is asked: now and then its commands fail for no
// reason of ours.
const tries = 3

// limited returns a command that is killed when it hangs.
func limited(within time.Duration, args ...string) *exec.Cmd {
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(within, cancel)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error {
		fmt.Fprintf(os.Stderr, "bench: killed after %v: %s\n", within, strings.Join(args, " "))
		return cmd.Process.Kill()
	}
	// What it has left may hold its output.
	cmd.WaitDelay = harness.Patience / 6
	return cmd
}

// theirs returns a shell command line of the user's among Grid Engine's commands.
func (b *bench) theirs(within time.Duration, line string) *exec.Cmd {
	cmd := limited(within, b.ge.Command("as", b.user.Name, line).Args...)
	// su ends what it has started when it is asked to.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := cmd.Cancel
	cmd.Cancel = func() error {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		return kill()
	}
	return cmd
}

// repeat does something of Grid Engine's until it has succeeded, or failed so many times.
func repeat(times int, do func() error) error {
	for n := 1; ; n++ {
		err := do()
		if err == nil || n >= times {
			return err
		}
		fmt.Fprintf(os.Stderr, "bench: try %d of %d: %v\n", n, times, err)
	}
}

// ask runs a shell command line of the user's among Grid Engine's commands, and
// returns what it prints.
func (b *bench) ask(line string) (out string, err error) {
	err = repeat(tries, func() (err error) {
		out, err = b.ge.As(b.user.Name, line)
		return err
	})
	return out, err
}

// submit runs a shell command line that submits to Grid Engine, and returns how long
// that took. What a try that failed has submitted is deleted.
func (b *bench) submit(within time.Duration, line string) (took time.Duration, err error) {
	err = repeat(tries, func() error {
		begin := time.Now()
		out, err := b.theirs(within, line).CombinedOutput()
		took = time.Since(begin)
		if err == nil {
			return nil
		}
		return errors.Join(fmt.Errorf("cannot submit to Grid Engine: %w\n%s", err, out), b.deleteTheirs(b.user.Name))
	})
	return took, err
}

// deleteTheirs deletes Grid Engine's jobs of a user, or of all for *.
func (b *bench) deleteTheirs(user string, options ...string) error {
	return repeat(tries, func() error {
		_, complaint := b.ge.Run(slices.Concat([]string{"qdel"}, options, []string{"-u", user})...) // there may be none
		err := harness.WaitFor(harness.Patience, "Grid Engine's jobs to be gone", func() (bool, error) {
			out, err := b.ge.Run("qstat", "-u", user)
			return out == "", err
		})
		if err == nil {
			return nil
		}
		return errors.Join(err, complaint)
	})
}
