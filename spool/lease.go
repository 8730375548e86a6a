package spool

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// A Lease is until when a run may go on that nobody renews. It is told by the clock that
// nobody sets and that goes on while the host is suspended, CLOCK_BOOTTIME, which begins
// anew at each boot.
type Lease struct {
	Boot string        // id of the boot
	End  time.Duration // since then, in whole ticks
}

// LeaseTick is how exactly the end of a lease is written down, and LeaseMost the last end
// that can be.
const (
	LeaseTick = 10 * time.Millisecond
	LeaseMost = maxID * time.Second
)

// bootIDLen is the length of the id of a boot, which is a UUID.
const bootIDLen = 36

// ParseLease parses the file lease: the id of a boot, and seconds with two decimals.
func ParseLease(b []byte) (Lease, error) {
	line, rest, whole := cutLine(b)
	boot, end, _ := strings.Cut(string(line), " ")
	seconds, ticks, _ := strings.Cut(end, ".")
	s, ok1 := decimal(seconds, maxID)
	t, ok2 := decimal(strings.TrimPrefix(ticks, "0"), 99)
	if !whole || len(rest) > 0 || !ok1 || !ok2 || len(ticks) != 2 || !isBootID(boot) {
		return Lease{}, syntax(FileLease, 0, "want the id of a boot and seconds with two decimals, got "+short(b))
	}
	return Lease{boot, time.Duration(s)*time.Second + time.Duration(t)*LeaseTick}, nil
}

// Append appends the content of the file lease.
func (l Lease) Append(b []byte) []byte {
	b = append(append(b, l.Boot...), ' ')
	b = append(strconv.AppendInt(b, int64(l.End/time.Second), 10), '.')
	ticks := l.End % time.Second / LeaseTick
	return append(b, '0'+byte(ticks/10), '0'+byte(ticks%10), '\n')
}

// Lease reads lease. Without the file there is none, and the error matches
// fs.ErrNotExist.
func (d Dir) Lease() (Lease, error) { return parsed(d, FileLease, ParseLease) }

func isBootID(s string) bool {
	if len(s) != bootIDLen {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// BootID returns the kernel's id of this boot: processes of another are gone, and its
// clock means nothing.
func BootID() (string, error) {
	const path = "/proc/sys/kernel/random/boot_id"
	b, err := ReadFile(path, bootIDLen+1)
	id := strings.TrimSuffix(string(b), "\n")
	if err == nil && !isBootID(id) {
		err = errors.New("it is none")
	}
	if err != nil {
		return "", cannot("read boot id from", path, err)
	}
	return id, nil
}
