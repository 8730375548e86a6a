package finish

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/job"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/stage/exit"
	"paddock/internal/backoff"
)

// deliveries are the pauses before attempts at output that could not be delivered.
var deliveries = backoff.Doubling{First: time.Second, Most: 5 * time.Minute}

// Undelivered decides what follows an attempt at output that has failed: what may pass is tried
// again after a while, for as long as there is patience since the first failure; all else is
// recorded as stuck, and waits until somebody has looked, but for a disk that was full. Stuck is
// nil if it is only tried again, after 0 if it is not by itself. Looked says that somebody has
// since the attempt was begun. An error says that it is stuck and that is not recorded.
func (f *Tail) Undelivered(x *Transit, failing time.Time, looked bool, attempt int, err error) (after time.Duration, stuck *job.Stuck, unrecorded error) {
	permanent, forGood := errors.AsType[*exit.Permanent](err)
	if looked || !forGood && time.Since(failing) <= f.host.Patience() {
		after = deliveries.After(attempt)
		f.host.Counts.Transfer(true, metrics.Again, 0, 0, 0)
		f.host.Log.Warn(fmt.Sprintf("job %v: output: %v (tried again in %v)", f.of, err, after))
		return after, nil, nil
	}
	stuck = &job.Stuck{Text: "output transfer: " + err.Error(), Since: time.Now(), KiB: (x.Standing().Total + 1023) >> 10}
	if was := f.host.Store.Stuck(f.of); was != nil {
		stuck.Since = was.Since // nobody has looked since
	}
	if forGood {
		stuck.Errno = permanent.Errno
	}
	if stuck.Errno == int(unix.ENOSPC) || stuck.Errno == int(unix.EDQUOT) {
		after = deliveries.Most
	}
	if unrecorded = f.host.Store.Stick(f.of, *stuck); unrecorded != nil {
		f.host.Log.Error(fmt.Sprintf("job %v: %v", f.of, unrecorded))
		return deliveries.Most, stuck, unrecorded
	}
	f.host.Log.Error(fmt.Sprintf("job %v: output: %v (waits for qmod -cj)", f.of, err))
	return after, stuck, nil
}

// Expire gives up output that is stuck when nobody has looked for as long as it is kept, and
// reports whether it has. If not, it is to be called again after a while; 0: it need not.
func (f *Tail) Expire() (given bool, after time.Duration) {
	stuck, keep := f.host.Store.Stuck(f.of), f.host.Keep()
	if stuck == nil || keep == 0 {
		return false, 0
	}
	if left := time.Until(stuck.Since.Add(keep)); left > 0 {
		return false, left
	}
	given, err := f.host.Store.GiveUp(f.of, job.Want{Signal: int(unix.SIGKILL), Cause: fmt.Sprintf("it was stuck for %v", keep)})
	if err != nil {
		f.host.Log.Error(fmt.Sprintf("job %v: %v", f.of, err))
		return false, deliveries.Most
	}
	if given {
		f.host.Log.Error(fmt.Sprintf("job %v: output: given up, since nobody has looked for %v (SANDBOX_KEEP)", f.of, keep))
	}
	return given, 0
}
