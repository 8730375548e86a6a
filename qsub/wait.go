package main

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

// patiently is Call over restarts of execd. The user is told of long ones.
func (inv *invocation) patiently(ctx context.Context, line *statusLine, verb string, request, reply any) error {
	return inv.retried(ctx, line, api.ErrUnreachable, func() error { return inv.client.Call(ctx, verb, request, reply) })
}

// retried makes a call again as long as its error is one of execd being restarted.
func (inv *invocation) retried(ctx context.Context, line *statusLine, restarts error, call func() error) error {
	for delay, told := firstRetry, false; ; delay = min(2*delay, lastRetry) {
		err := call()
		if !errors.Is(err, restarts) {
			return err
		}
		if delay > noticeAfter && !told {
			line.hold()
			fmt.Fprintf(inv.err, "%s: %s; waiting for it\n", inv.command, api.Visible(err.Error()))
			line.release()
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

// interrupted is a signal as an error.
type interrupted struct{ os.Signal }

func (i interrupted) Error() string { return "interrupted" }

// exitInterrupted and the number of the signal is the exit status of what a signal
// has ended, as shells have it.
const exitInterrupted = 128

// exit returns the exit status.
func (i interrupted) exit() int {
	n, _ := i.Signal.(syscall.Signal)
	return exitInterrupted + int(n)
}

// interruptible does something that the first signal ends, with an interrupted
// as its error.
func (inv *invocation) interruptible(ctx context.Context, do func(context.Context) error) error {
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
		cancel(interrupted{sig})
		if err := <-done; err == nil {
			return nil // it was just done
		}
		return interrupted{sig}
	}
}
