package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"paddock/execd/internal/schedule"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// sharesInterval is how often the shares of users are stored while they change.
// What a crash loses of them is ten minutes of usage.
const sharesInterval = 10 * time.Minute

// loadShares reads what users have consumed before execd was started.
func (d *daemon) loadShares() {
	path := d.root.Path(spool.FileShares)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	shares := map[string]schedule.Share{}
	if err == nil {
		err = json.Unmarshal(data, &shares)
	}
	if err != nil {
		d.log.Warn(fmt.Sprintf("execd: all users begin with the same share: cannot read %s: %v", path, err))
		return
	}
	d.queue.SetShares(shares)
}

// keepShares stores the shares until ctx is done, and once more then. It sleeps
// while no job ends.
func (d *daemon) keepShares(ctx context.Context) {
	var last string
	store := func() {
		data, err := json.MarshalIndent(d.queue.Shares(), "", "\t")
		if err != nil || string(data) == last {
			return
		}
		last = string(data)
		if err := atomicfile.Write(d.root.Path(spool.FileShares), append(data, '\n'), 0o644); err != nil {
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
