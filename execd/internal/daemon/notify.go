package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// notify tells the service manager the state of execd, if it wants to know
// (sd_notify(3)). It is a hint, so that errors do not matter.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}

// watchdog tells the service manager that execd lives, until ctx is done: twice in the
// time after which it would kill execd, each time when the queue has gone round and the
// store has answered. Where nobody wants to hear that it does nothing.
func (d *daemon) watchdog(ctx context.Context) {
	limit := watchdogLimit(os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID"))
	if limit == 0 {
		return
	}
	ticker := time.NewTicker(limit / 2)
	defer ticker.Stop()
	for d.queue.Round(ctx) {
		n := d.store.Tally()
		notify(fmt.Sprintf("WATCHDOG=1\nSTATUS=running=%d pending=%d", n.Started(), n.Waiting()))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// watchdogLimit reads how long execd may be silent (sd_watchdog_enabled(3)); 0: as long
// as it likes.
func watchdogLimit(usec, pid string) time.Duration {
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 1 || n > int64(maxWatchdog/time.Microsecond) || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	return time.Duration(n) * time.Microsecond
}

// maxWatchdog is more than anybody waits.
const maxWatchdog = 365 * 24 * time.Hour
