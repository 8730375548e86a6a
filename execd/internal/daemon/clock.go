package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// never is a time that does not come: the year 2242.
const never = 1 << 33

// watchClock calls set whenever the clock is set, until ctx is done. The kernel reports
// that through timers for a time of the day (timerfd_create(2)).
func watchClock(ctx context.Context, set func()) error {
	wrap := func(err error) error { return fmt.Errorf("cannot watch the clock: %w", err) }
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return wrap(err)
	}
	f := os.NewFile(uintptr(fd), "timerfd")
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()
	raw, err := f.SyscallConn()
	if err != nil {
		return wrap(err)
	}
	for ctx.Err() == nil {
		var armed error
		err := raw.Control(func(fd uintptr) {
			armed = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET,
				&unix.ItimerSpec{Value: unix.Timespec{Sec: never}}, nil)
		})
		if err = errors.Join(err, armed); err == nil {
			_, err = f.Read(make([]byte, 8))
		}
		switch {
		case errors.Is(err, unix.ECANCELED):
			set()
		case ctx.Err() == nil && err != nil:
			return wrap(err)
		}
	}
	return nil
}
