package shadow

import (
	"context"
	"time"
)

// again tries something until it is done or ctx is, with a pause after each attempt. They are
// counted from 1.
func again(ctx context.Context, pause func(attempt int) time.Duration, try func(attempt int) (done bool)) error {
	for attempt := 1; !try(attempt); attempt++ {
		t := time.NewTimer(pause(attempt))
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
	return nil
}
