package daemon

import (
	"fmt"

	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/job"
)

// disk is what there is of the disk for jobs, in KiB.
type disk struct {
	free    int64 // beyond what is reserved; never negative
	leaving int64 // in sandboxes whose output leaves them: it will be free
}

// knobReserved says how many MB of the disk jobs leave free.
const (
	knobReserved    = "RESERVED_DISK"
	defaultReserved = 1024
)

// reserved returns how many KiB stay free of a file system with so many bytes. Where nobody
// says so they are not most of a small one.
func reserved(knobs *knob.Set, size int64) int64 {
	if mb := knobs.Int(knobReserved, -1); mb >= 0 {
		return int64(mb) << 10
	}
	return enough(size)
}

// enough returns how many KiB of a file system with so many bytes are to be free.
func enough(size int64) int64 { return min(defaultReserved<<10, size>>10/10) }

// disk returns it as it was when the file system was asked last.
func (a *slotAds) disk() disk {
	last := a.d.gauge.Last()
	_, leaving := a.d.sandboxes.Pending()
	return disk{free: max(last.Disk>>10-reserved(a.d.config.Current().Knobs, last.DiskSize), 0), leaving: leaving}
}

func kib(list []job.Leaving) (n int64) {
	for i := range list {
		n += list[i].KiB
	}
	return n
}

// of returns the share of so many of all slots, when the output that leaves is gone.
func (d disk) of(slots int, n int64) int64 { return (d.free + d.leaving) / int64(slots) * n }

// left returns what is left of a share out of which output leaves. Nobody gets what is not
// free.
func (d disk) left(share int64, out []job.Leaving) int64 {
	return max(min(share-kib(out), d.free), 0)
}

// room says why no run with a sandbox can be started: its place is full. It is empty when
// there is room.
func (d *daemon) room() string {
	last := d.gauge.Last()
	free, reserved := last.Disk>>10, reserved(d.config.Current().Knobs, last.DiskSize)
	if last.DiskSize == 0 || free > reserved {
		return ""
	}
	n, kib := d.sandboxes.Pending()
	return full(d.sandboxes.Place(), free, reserved, n, kib)
}

// full says in words that too little of a place is free, and what leaves it.
func full(place string, free, reserved int64, n int, kib int64) string {
	switch n {
	case 0:
		return fmt.Sprintf("%s are free in %s, RESERVED_DISK is %s", size(free), place, size(reserved))
	case 1:
		return fmt.Sprintf("output of 1 job (%s) still leaves %s, RESERVED_DISK is %s", size(kib), place, size(reserved))
	default:
		return fmt.Sprintf("output of %d jobs (%s) still leaves %s, RESERVED_DISK is %s", n, size(kib), place, size(reserved))
	}
}

// size returns an amount of KiB as people read it.
func size(kib int64) string {
	n, units := float64(kib), []string{"KB", "MB", "GB", "TB"}
	for n >= 1024 && len(units) > 1 {
		n, units = n/1024, units[1:]
	}
	if n == float64(int64(n)) {
		return fmt.Sprintf("%d %s", int64(n), units[0])
	}
	return fmt.Sprintf("%.1f %s", n, units[0])
}
