package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

// cluster is a scheduler and a queue in memory.
type cluster struct {
	states   map[string]State
	known    map[string]Known
	memory   Memory
	demand   []Demand
	next     int
	deaf     bool // the scheduler says nothing
	refuses  bool // it takes no job
	most     int  // that were queued at a time
	canceled []string
}

func (c *cluster) Submit(context.Context, string, []string) (string, error) {
	if c.refuses {
		return "", errors.New("no")
	}
	c.next++
	id := fmt.Sprintf("%03d", c.next)
	c.states[id] = Queued
	queued := 0
	for _, s := range c.states {
		if s == Queued {
			queued++
		}
	}
	c.most = max(c.most, queued)
	return id, nil
}

func (c *cluster) States(context.Context, string) (map[string]State, error) {
	if c.deaf {
		return nil, errors.New("cannot reach the controller")
	}
	return maps.Clone(c.states), nil
}

func (c *cluster) Cancel(_ context.Context, _, id string) (bool, error) {
	if c.states[id] == Running {
		return false, nil
	}
	delete(c.states, id)
	c.canceled = append(c.canceled, id)
	return true, nil
}

func (c *cluster) Pool(context.Context, string) (Memory, map[string]Known, error) {
	return c.memory, maps.Clone(c.known), nil
}

func (c *cluster) Demand(context.Context, []string) ([]Demand, error) { return c.demand, nil }

func (c *cluster) Submitted(_ context.Context, _, id string) error {
	c.known[id] = Known{}
	return nil
}

func (c *cluster) Over(_ context.Context, _, id string) error {
	delete(c.known, id)
	return nil
}

func (c *cluster) Remember(_ context.Context, _ string, m Memory) error {
	c.memory = m
	return nil
}

func newCluster(ready int64) *cluster {
	return &cluster{states: map[string]State{}, known: map[string]Known{}, demand: []Demand{{Ready: ready, Size: Size{CPUs: 1}}}}
}

// tick has the cluster looked after and returns what was said.
func (c *cluster) tick(t *testing.T, dry bool) (said string, err error) {
	t.Helper()
	pool := &Config{Name: "big", Submit: []string{"sbatch", "pilot.sh"}, Pool: Pool{
		Size: Size{CPUs: 4, Memory: 8000}, Lasts: time.Hour, Grace: time.Minute, MaxPilots: 20, MaxQueued: 2,
	}}
	var out strings.Builder
	err = Tick(t.Context(), pool, c, c, dry, &out)
	return out.String(), err
}

// start has the scheduler start all that is queued, each with work on all its processors.
func (c *cluster) start() {
	for id, s := range c.states {
		if s == Queued {
			c.states[id] = Running
			c.known[id] = Known{Started: true, Used: 4}
		}
	}
}

// TestBurst has a thousand jobs come at once.
func TestBurst(t *testing.T) {
	c := newCluster(1000)
	for range 40 {
		if _, err := c.tick(t, false); err != nil {
			t.Fatal(err)
		}
		c.start()
	}
	if len(c.states) != 20 || c.most != 2 {
		t.Errorf("%d pilots, at most %d of them queued; want 20, and 2", len(c.states), c.most)
	}
}

// TestNotKnown has nothing submitted while the scheduler does not answer.
func TestNotKnown(t *testing.T) {
	c := newCluster(1000)
	c.deaf = true
	if _, err := c.tick(t, false); err == nil || !strings.Contains(err.Error(), "cannot reach the controller") || c.next > 0 {
		t.Errorf("%v, %d submitted", err, c.next)
	}
}

// TestDry has nothing changed.
func TestDry(t *testing.T) {
	c := newCluster(1000)
	c.known["000"] = Known{}
	said, err := c.tick(t, true)
	if err != nil || c.next > 0 || len(c.known) != 1 || c.memory != (Memory{}) {
		t.Errorf("%v, %d submitted, known %v, remembers %v", err, c.next, c.known, c.memory)
	}
	for _, want := range []string{"pilot 000 is over and never took part", `would submit a pilot: ["sbatch" "pilot.sh"]`} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in %s", want, said)
		}
	}
}

// TestPaused has a pool paused by submissions and by starts that fail.
func TestPaused(t *testing.T) {
	c := newCluster(1000)
	c.refuses = true
	for range maxSubmitFailures {
		if _, err := c.tick(t, false); err == nil {
			t.Fatal("no error")
		}
	}
	c.refuses = false
	if said, err := c.tick(t, false); err != nil || c.next > 0 || !strings.Contains(said, "10 submissions in a row failed, the last: no") {
		t.Errorf("%v, %d submitted: %s", err, c.next, said)
	}
	c = newCluster(1000)
	for range 10 {
		if _, err := c.tick(t, false); err != nil {
			t.Fatal(err)
		}
		clear(c.states) // they have ended at once
	}
	if c.memory.Paused == "" || c.next > 6 {
		t.Errorf("%d submitted, paused: %q", c.next, c.memory.Paused)
	}
}

// TestSurplus has pilots that are queued canceled when nothing waits any more, and those that run let be.
func TestSurplus(t *testing.T) {
	c := newCluster(1000)
	for range 2 {
		if _, err := c.tick(t, false); err != nil {
			t.Fatal(err)
		}
		if c.next == 1 {
			c.start()
		}
	}
	c.demand = nil
	if _, err := c.tick(t, false); err != nil {
		t.Fatal(err)
	}
	if len(c.canceled) != 2 || len(c.states) != 1 || c.states["001"] != Running {
		t.Errorf("canceled %v, left %v", c.canceled, c.states)
	}
}
