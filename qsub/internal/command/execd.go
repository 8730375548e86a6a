package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/internal/backoff"
	"paddock/qrsh/client"
)

// CallFailed returns the error of a call of execd in the form of Grid Engine's
// commands.
func (inv *Invocation) CallFailed(err error) error {
	if errors.Is(err, api.ErrUnreachable) {
		return Failf("error: %s%s", api.Visible(err.Error()), inv.StartIt(err))
	}
	return err
}

// StartIt returns a line about how to start execd if err says that nobody
// listens; else "".
func (inv *Invocation) StartIt(err error) string {
	switch {
	case !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED):
		return ""
	case inv.Places.Dev:
		return "\nIs it not running? Start it: execd -dev " + api.Visible(inv.Places.State) + " &"
	case inv.Places == api.RootPlaces():
		return "\nIs it not running? Start it, as root: systemctl start execd"
	}
	return "\nIs it not running? Start one of your own: execd &"
}

// Host asks execd for the host and its queues.
func (inv *Invocation) Host(ctx context.Context, request *api.HostRequest) (*api.HostReply, error) {
	var reply api.HostReply
	err := inv.Client.Call(ctx, api.VerbHost, request, &reply)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code != api.CodeInternal {
		return nil, Failf("error: %s", api.Visible(e.Text)) // such as a resource that does not exist
	}
	if err != nil {
		return nil, inv.CallFailed(err)
	}
	return &reply, nil
}

// Report prints the lines of a reply. If some of them tell of failures, it
// returns a failure with the exit status for the first of these.
func (inv *Invocation) Report(lines []api.Line, exit func(api.Code) int) error {
	var failed error
	for _, line := range lines {
		fmt.Fprintln(inv.Out, api.Visible(line.Text))
		if line.Failed && failed == nil {
			failed = &Failure{Exit: exit(line.Code)}
		}
	}
	return failed
}

// noticeAfter is the pause before which the user is told.
const noticeAfter = 2 * time.Second

// Patiently calls execd, and calls it again while it is being restarted. The
// user is told if that takes long.
func (inv *Invocation) Patiently(ctx context.Context, line *StatusLine, verb string, request, reply any) error {
	return inv.Retry(ctx, line, api.ErrUnreachable, func() error { return inv.Client.Call(ctx, verb, request, reply) })
}

// Retry makes a call again as long as its error is restarts.
func (inv *Invocation) Retry(ctx context.Context, line *StatusLine, restarts error, call func() error) error {
	for pause, told := backoff.Restart.First, false; ; pause = backoff.Restart.Next(pause) {
		err := call()
		if !errors.Is(err, restarts) {
			return err
		}
		if pause > noticeAfter && !told {
			line.Hold()
			fmt.Fprintf(inv.Err, "%s: %s; waiting for it\n", inv.Command, api.Visible(err.Error()))
			line.Release()
			told = true
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// Interruptible calls do, whose context the first of the signals ends. The
// error is a [client.Signaled] then.
func Interruptible(ctx context.Context, do func(context.Context) error, signals ...os.Signal) error {
	heard := make(chan os.Signal, 1)
	client.Heed(heard, signals...)
	defer signal.Stop(heard)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	select {
	case err := <-done:
		return err
	case sig := <-heard:
		signal.Stop(heard) // the next signal ends the program
		by := client.Signaled{Signal: sig.(syscall.Signal)}
		cancel(by)
		if err := <-done; err == nil {
			return nil // it had succeeded before the signal
		}
		return by
	}
}
