package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a body each of whose bytes takes a time.
type slow time.Duration

func (s slow) Read([]byte) (int, error) {
	time.Sleep(time.Duration(s))
	return 1, nil
}

// A stream that comes is given up when nothing comes for long, and one that goes when nothing
// goes; not when there is nothing to be sent, or who receives does something else.
func TestStall(t *testing.T) {
	for _, test := range []struct {
		send    bool
		inside  time.Duration // what a read takes
		outside time.Duration // between two
		stalls  bool
	}{
		{false, Stall - time.Second, 2 * Stall, false},
		{false, Stall + time.Second, 0, true},
		{true, 2 * Stall, Stall - time.Second, false},
		{true, 0, Stall + time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			timer := time.AfterFunc(Stall, func() { cancel(errStalled) })
			var r io.Reader = &receiving{slow(test.inside), timer}
			if test.send {
				r = &sending{slow(test.inside), timer}
			} else {
				timer.Stop()
			}
			for range 3 {
				_, _ = r.Read(make([]byte, 1))
				time.Sleep(test.outside)
			}
			timer.Stop()
			if stalled := context.Cause(ctx) != nil; stalled != test.stalls {
				t.Errorf("%+v: stalled %t", test, stalled)
			}
			err := why(ctx, fmt.Errorf("of the connection: %w", context.Canceled))
			if errors.Is(err, errStalled) != test.stalls || why(ctx, nil) != nil {
				t.Errorf("%+v: %v", test, err)
			}
		})
	}
}
