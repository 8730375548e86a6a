package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"paddock/execd/internal/aside"
	"paddock/execd/internal/schedule"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// sharesInterval is how often the shares of users are stored while they change. A crash
// loses at most that much usage.
const sharesInterval = 10 * time.Minute

// maxShares bounds the file of the shares, in bytes.
const maxShares = 64 << 20

// loadShares reads what users have used before execd was started. Its error ends the
// start, since the file would be overwritten.
func (d *daemon) loadShares() error {
	shares, err := aside.Read[map[string]schedule.Share](d.root, d.log, d.root.Path(spool.FileShares), maxShares, "all users begin with the same share")
	if err != nil {
		return fmt.Errorf("cannot read the shares of users: %w", err)
	}
	if len(shares) > 0 {
		d.queue.SetShares(shares)
	}
	return nil
}

// keepShares stores the shares until ctx is done, and once more then. It sleeps while
// no job ends.
func (d *daemon) keepShares(ctx context.Context) {
	var last string
	store := func() {
		data, err := json.MarshalIndent(d.queue.Shares(), "", "\t")
		if err != nil || string(data) == last {
			return
		}
		last = string(data)
		// Otherwise a power cut could leave nothing of the first file.
		if err := atomicfile.WriteDurable(d.root.Path(spool.FileShares), append(data, '\n'), 0o644); err != nil {
			d.log.Warn(err.Error())
		}
	}
	for {
		select {
		case <-ctx.Done():
			store()
			return
		case <-d.queue.SharesChanged():
		}
		select {
		case <-ctx.Done():
		case <-time.After(sharesInterval):
		}
		store()
	}
}
