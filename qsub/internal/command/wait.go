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

// Interruptible does something that the first signal ends, with an interrupted
// as its error.
func (inv *Invocation) Interruptible(ctx context.Context, do func(context.Context) error) error {
	signals := make(chan os.Signal, 1)
	client.Heed(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	select {
	case err := <-done:
		return err
	case sig := <-signals:
		signal.Stop(signals) // the next one ends the program
		cancel(Interrupted{sig})
		if err := <-done; err == nil {
			return nil // it was just done
		}
		return Interrupted{sig}
	}
}
