package launch

import (
	"strings"
	"testing"

	"paddock/execd/internal/cgroup"
	"paddock/spool"
)

func TestGroupLimit(t *testing.T) {
	for _, tt := range []struct {
		set  string
		want uint64
	}{
		{"", 0},
		{"h_vmem=INFINITY", 0},
		{"h_vmem=UNDEFINED", 0},
		{"h_vmem=nonsense", 0},
		{"h_vmem=1G", 1 << 30},
		{"h_vmem=1G host_slots=4", 4 << 30},
		{"h_vmem=1G host_slots=4 h_vmem_is_consumable_job=1", 1 << 30},
		{"h_vmem=1K", leastMemory},
		{"h_vmem=9000000000G host_slots=1000", 0},
	} {
		c := &spool.Config{}
		for word := range strings.FieldsSeq(tt.set) {
			key, value, _ := strings.Cut(word, "=")
			if err := c.Set(key, value); err != nil {
				t.Fatal(err)
			}
		}
		if got := groupLimit(c, spool.KeyHVmem, leastMemory); got != tt.want {
			t.Errorf("%q: %d; want %d", tt.set, got, tt.want)
		}
	}
}

// On a host without groups config says nothing of them, and what a config says
// that another host made concerns nobody.
func TestNoGroups(t *testing.T) {
	l, o := goldenOrder()
	c, _, err := l.config(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.makeGroup(o, c); err != nil {
		t.Fatal(err)
	}
	if g := cgroup.Of(c); len(g) > 0 {
		t.Errorf("groups %q", g)
	}
	if v, ok := c.Lookup(spool.KeyVmem); ok {
		t.Errorf("%s=%s", spool.KeyVmem, v)
	}
	if err := c.Set(spool.KeyCgroup, "/sys/fs/cgroup/paddock/1.1"); err != nil {
		t.Fatal(err)
	}
	l.removeGroup(c)
	if err := l.SweepGroups(); err != nil {
		t.Error(err)
	}
}
