package starter

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/spool"
	"paddock/spool/spooltest"
)

// Where the control group holds h_vmem nothing is left of it but what s_vmem
// asks for.
func TestLeaveVmem(t *testing.T) {
	for _, c := range []struct {
		set        string
		soft, hard spool.Limit // 0: the address space is left alone
	}{
		{"h_vmem=1G", 0, 0},
		{"h_vmem=1G s_vmem=INFINITY", 0, 0},
		{"h_vmem=2G s_vmem=1G", 1 << 30, spool.Infinity},
	} {
		config := spooltest.Config(t, spooltest.Job{})
		for kv := range strings.FieldsSeq(c.set) {
			k, v, _ := strings.Cut(kv, "=")
			if err := config.Set(k, v); err != nil {
				t.Fatal(err)
			}
		}
		all, err := readLimits(config, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := len(all)
		limits := leaveVmem(config, all)
		i := slices.IndexFunc(limits, func(l limit) bool { return l.resource == unix.RLIMIT_AS })
		switch {
		case c.hard == 0 && (i >= 0 || len(limits) != n-1):
			t.Errorf("%s: %+v; want the others alone", c.set, limits)
		case c.hard != 0 && (i < 0 || limits[i].soft != c.soft || limits[i].hard != c.hard):
			t.Errorf("%s: %+v; want soft %d, hard %d", c.set, limits, c.soft, c.hard)
		}
	}
}
