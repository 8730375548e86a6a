package provision

import (
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	pool := Pool{Size: Size{CPUs: 4, Memory: 8000, GPUs: 1}, Lasts: time.Hour, Grace: 2 * time.Minute, MaxPilots: 10, MaxQueued: 3}
	jobs := func(n, cpus, seconds int64) Demand {
		return Demand{Ready: n, Size: Size{CPUs: cpus, Memory: 1}, Seconds: seconds}
	}
	queued := Pilot{State: Queued}
	running := func(left time.Duration, free int64) Pilot {
		return Pilot{State: Running, Ends: now.Add(left), Free: free}
	}
	for _, tt := range []struct {
		what           string
		demand         []Demand
		pilots         []Pilot
		last           int
		submit, cancel int
	}{
		{"nothing waits", nil, nil, 0, 0, 0},
		{"the first time one", []Demand{jobs(100, 1, 0)}, nil, 0, 1, 0},
		{"then two", []Demand{jobs(100, 1, 0)}, []Pilot{running(time.Hour, 0)}, 1, 2, 0},
		{"no more than may be queued", []Demand{jobs(1000, 1, 0)}, []Pilot{running(time.Hour, 0), queued}, 8, 2, 0},
		{"as many are queued as may be", []Demand{jobs(1000, 1, 0)}, []Pilot{queued, queued, queued}, 8, 0, 0},
		{"as many as there may be", []Demand{jobs(1000, 1, 0)}, []Pilot{
			running(time.Hour, 0), running(time.Hour, 0), running(time.Hour, 0), running(time.Hour, 0), running(time.Hour, 0),
			running(time.Hour, 0), running(time.Hour, 0), running(time.Hour, 0), running(time.Hour, 0),
		}, 8, 1, 0},
		{"one has room", []Demand{jobs(3, 1, 0)}, []Pilot{running(time.Hour, 4)}, 8, 0, 0},
		{"its room is not enough", []Demand{jobs(5, 1, 0)}, []Pilot{running(time.Hour, 4)}, 8, 1, 0},
		{"it is about to leave", []Demand{jobs(3, 1, 0)}, []Pilot{running(time.Minute, 4)}, 8, 1, 0},
		{"one that is queued will do", []Demand{jobs(4, 1, 0)}, []Pilot{queued}, 8, 0, 0},
		{"more are queued than needed", []Demand{jobs(4, 1, 0)}, []Pilot{queued, queued, running(time.Hour, 4)}, 8, 0, 2},
		{"none is needed any more", nil, []Pilot{queued, running(time.Hour, 0)}, 8, 0, 1},
		{"too large for a pilot", []Demand{jobs(9, 5, 0)}, nil, 8, 0, 0},
		{"too much memory", []Demand{{Ready: 9, Size: Size{CPUs: 1, Memory: 8001}}}, nil, 8, 0, 0},
		{"too long for a pilot", []Demand{jobs(9, 1, 3500)}, nil, 8, 0, 0},
		{"just as long as a pilot may", []Demand{jobs(9, 1, 3480)}, nil, 8, 3, 0},
		{"one after another", []Demand{jobs(400, 1, 34)}, nil, 8, 1, 0},
		{"memory keeps processors from others", []Demand{{Ready: 2, Size: Size{CPUs: 1, Memory: 5000}}}, nil, 8, 2, 0},
		{"so do GPUs", []Demand{{Ready: 3, Size: Size{CPUs: 1, GPUs: 1}}}, nil, 8, 3, 0},
	} {
		if got := Decide(&pool, tt.demand, tt.pilots, tt.last, now); got.Submit != tt.submit || got.Cancel != tt.cancel {
			t.Errorf("%s: submit %d, cancel %d (%s); want %d, %d", tt.what, got.Submit, got.Cancel, got.Why, tt.submit, tt.cancel)
		}
	}
}
