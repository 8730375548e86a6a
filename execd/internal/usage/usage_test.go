package usage

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/spool"
)

func TestFinal(t *testing.T) {
	ran := &spool.Usage{Wallclock: 20, UTime: 9 * time.Second, STime: time.Second, MaxRSS: 1 << 10}
	for _, c := range []struct {
		name    string
		sampled api.Usage
		ran     *spool.Usage
		want    api.Usage
	}{
		{"nothing is known", api.Usage{}, nil, api.Usage{}},
		{"the shepherd died", api.Usage{Wallclock: 5, CPU: 3, Mem: 1}, nil, api.Usage{Wallclock: 5, CPU: 3, Mem: 1}},
		{"too short for samples", api.Usage{}, ran, api.Usage{Wallclock: 20, CPU: 10, MaxRSS: 1 << 20, MaxVMem: 1 << 20}},
		{
			"the last second was not seen",
			api.Usage{Wallclock: 19, CPU: 9, Mem: 2, IO: 3, IOWait: 4, VMem: 1 << 29, MaxVMem: 1 << 30, RSS: 1 << 28, MaxRSS: 1 << 29, PIDs: 5},
			ran,
			api.Usage{Wallclock: 20, CPU: 10, Mem: 2.5, IO: 3, IOWait: 4, VMem: 1 << 29, MaxVMem: 1 << 30, RSS: 1 << 28, MaxRSS: 1 << 29, PIDs: 5},
		},
		{
			"what nobody waited for",
			api.Usage{CPU: 50, Mem: 2, VMem: 1 << 30, MaxVMem: 1 << 30, MaxRSS: 1 << 30},
			ran,
			api.Usage{Wallclock: 20, CPU: 50, Mem: 2, VMem: 1 << 30, MaxVMem: 1 << 30, MaxRSS: 1 << 30},
		},
	} {
		if diff := cmp.Diff(c.want, Final(c.sampled, c.ran)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestReserve(t *testing.T) {
	u := api.Usage{Wallclock: 100, CPU: 3, Mem: 7, IO: 1}
	Reserve(&u, 4, 0)
	if want := (api.Usage{Wallclock: 100, CPU: 400, Mem: 7, IO: 1}); u != want {
		t.Errorf("without a limit of memory: %+v", u)
	}
	Reserve(&u, 4, 2<<30)
	if want := (api.Usage{Wallclock: 100, CPU: 400, Mem: 200, IO: 1}); u != want {
		t.Errorf("with 2 GB: %+v", u)
	}
}

// The line is that of Grid Engine 8.1.9.
func TestLine(t *testing.T) {
	e := Excess{Limit: "s_cpu", Used: 4.22, Max: 3}
	const want = `job 7.1 exceeds job soft limit "s_cpu" of queue "all.q@gehost" ( 4.22000 > limit: 3.00000) - sending SIGXCPU`
	if got := e.Line(spool.ID{Job: 7, Task: 1}, "all.q@gehost"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
