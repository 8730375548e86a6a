package daemon

import (
	"testing"

	"paddock/execd/internal/conf/knob/knobtest"
	"paddock/execd/internal/job"
)

// REQ-XFER-26, REQ-XFER-76: what leaves counts once: it is taken off from the slot that it
// leaves, and no other has less for it. Nobody has more than is free, or less than nothing.
func TestDisk(t *testing.T) {
	out := func(kib int64) []job.Leaving { return []job.Leaving{{KiB: kib - 1}, {KiB: 1}} }
	for _, tt := range []struct {
		name          string
		free, leaving int64
		here          int64 // of leaving, out of this slot
		other, mine   int64 // Disk of the other slot and of this one
	}{
		{"nothing leaves", 1000, 0, 0, 500, 500},
		{"it leaves", 800, 200, 200, 500, 300},
		{"it is gone", 1000, 0, 0, 500, 500},
		{"more than its share", 300, 700, 700, 300, 0},
		{"too much to be true", 300, 1 << 50, 1 << 50, 300, 0},
		{"nothing is free", 0, 1000, 500, 0, 0},
	} {
		d := disk{free: tt.free, leaving: tt.leaving}
		share := d.of(2, 1)
		other, mine := d.left(share, nil), d.left(share, nil)
		if tt.here > 0 {
			mine = d.left(share, out(tt.here))
		}
		if other != tt.other || mine != tt.mine {
			t.Errorf("%s: %d and %d; want %d and %d", tt.name, other, mine, tt.other, tt.mine)
		}
	}
}

// What is reserved is what the site says, or else no more than a tenth of a small disk.
func TestReserved(t *testing.T) {
	for _, tt := range []struct {
		knobs     string
		size, kib int64
	}{
		{"", 100 << 30, 1 << 20},
		{"", 10 << 20, 1 << 10},
		{"", 0, 0},
		{"RESERVED_DISK = 0", 100 << 30, 0},
		{"RESERVED_DISK = 5", 10 << 20, 5 << 10},
	} {
		if got := reserved(knobtest.Parse(t, tt.knobs), tt.size); got != tt.kib {
			t.Errorf("%q, of %d bytes: %d KiB; want %d", tt.knobs, tt.size, got, tt.kib)
		}
	}
}

func TestFull(t *testing.T) {
	gb := int64(1 << 20)
	for _, tt := range []struct {
		n    int
		kib  int64
		want string
	}{
		{0, 0, "512 KB are free in /scratch, RESERVED_DISK is 1 GB"},
		{1, 1536, "output of 1 job (1.5 MB) still leaves /scratch, RESERVED_DISK is 1 GB"},
		{3, 21*gb + gb*4/10, "output of 3 jobs (21.4 GB) still leaves /scratch, RESERVED_DISK is 1 GB"},
	} {
		if got := full("/scratch", 512, gb, tt.n, tt.kib); got != tt.want {
			t.Errorf("%q; want %q", got, tt.want)
		}
	}
}
