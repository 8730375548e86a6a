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
	"paddock/qrsh/client"
)

// CallFailed gives an error of execd's, or of reaching it, the form in which
// Grid Engine's commands say it.
func (inv *Invocation) CallFailed(err error) error {
	if errors.Is(err, api.ErrUnreachable) {
		return Failf("error: %s%s", api.Visible(err.Error()), inv.StartIt(err))
	}
	return err
}

// StartIt tells how to start an execd where nobody listens, in a line of its own.
func (inv *Invocation) StartIt(err error) string {
	switch {
	case !errors.Is(err, api.ErrNotSent):
		return ""
	case inv.Places.Dev:
		return "\nIs it not running? Start it: execd -dev " + api.Visible(inv.Places.State) + " &"
	case inv.Places == api.RootPlaces():
		return "\nIs it not running? Start it, as root: systemctl start execd"
	}
	return "\nIs it not running? Start one of your own: execd &"
}

// Host asks for the host and its queues.
func (inv *Invocation) Host(ctx context.Context, request *api.HostRequest) (*api.HostReply, error) {
	var reply api.HostReply
	err := inv.Client.Call(ctx, api.VerbHost, request, &reply)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code != api.CodeInternal {
		return nil, Failf("error: %s", api.Visible(e.Text)) // what was asked for is not known here
	}
	if err != nil {
		return nil, inv.CallFailed(err)
	}
	return &reply, nil
}

// Report prints the lines of a reply. The error is a failure with the exit
// status of the first line that tells of one.
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

// Delays of qsub -sync when execd does not answer: it is being restarted.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	// noticeAfter is the delay from which on the user is told.
	noticeAfter = 2 * time.Second
)

// Patiently is Call over restarts of execd. The user is told of long ones.
func (inv *Invocation) Patiently(ctx context.Context, line *StatusLine, verb string, request, reply any) error {
	return inv.Retry(ctx, line, api.ErrUnreachable, func() error { return inv.Client.Call(ctx, verb, request, reply) })
}

// Retry makes a call again as long as its error is one of execd being restarted.
func (inv *Invocation) Retry(ctx context.Context, line *StatusLine, restarts error, call func() error) error {
	for delay, told := firstRetry, false; ; delay = min(2*delay, lastRetry) {
		err := call()
		if !errors.Is(err, restarts) {
			return err
		}
		if delay > noticeAfter && !told {
			line.Hold()
			fmt.Fprintf(inv.Err, "%s: %s; waiting for it\n", inv.Command, api.Visible(err.Error()))
			line.Release()
			told = true
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// Interrupted is a signal as an error.
type Interrupted struct{ os.Signal }

func (i Interrupted) Error() string { return "interrupted" }

// ExitInterrupted and the number of the signal is the exit status of what a signal
// has ended, as shells have it.
const ExitInterrupted = 128

// Exit returns the exit status.
func (i Interrupted) Exit() int {
	n, _ := i.Signal.(syscall.Signal)
	return ExitInterrupted + int(n)
}

// Interruptible does something that the first signal ends, with an Interrupted
// as its error.
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
		signal.Stop(heard) // the next one ends the program
		cancel(Interrupted{sig})
		if err := <-done; err == nil {
			return nil // it was just done
		}
		return Interrupted{sig}
	}
}
