package shadow

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/shadow/remote"
	"paddock/execd/internal/stage/base"
)

// While jobs of a user wait, what is left of the slot in which the first one runs is his: the
// others are carved there without a look at what else is free, and then it is given back.
func TestLeftOvers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 4)
		defer func() { h.stop() }()
		h.node.carves = true
		h.submit(api.SubmitRequest{Tasks: api.Tasks{First: 1, Last: 3, Step: 1}})
		var named []string
		for _, r := range h.node.asked {
			named = append(named, string(r.Slot))
		}
		if !h.node.asked[0].LeftOvers {
			t.Errorf("the first request does not ask for what is left: %+v", h.node.asked[0])
		}
		if got := strings.Join(named, ","); got != ",1,1" || strings.Count(strings.Join(h.node.log, " "), api.VerbSlots) != 1 {
			t.Errorf("slots %q are asked for; %q", named, h.node.log)
		}
		if n := h.endAll(0); n != 3 || h.node.claims[theRest] != nil || h.records() != 3 {
			t.Errorf("%d tasks run, %d claims are recorded; the rest is held: %t", n, h.records(), h.node.claims[theRest] != nil)
		}
		// One that is left by an execd that was killed is given back by the next.
		h.node.mu.Lock()
		h.node.claims[theRest] = &held{until: h.node.claims[h.node.any()].until}
		h.node.mu.Unlock()
		if err := (&remote.Store{Root: h.root}).Put(&remote.Claim{ID: theRest, Host: "node", User: "anna", Slot: "1", Queue: "all.q", Lease: 2400}); err != nil {
			t.Fatal(err)
		}
		h.stop()
		h.begin()
		synctest.Wait()
		if h.node.claims[theRest] != nil {
			t.Error("it is held after a restart")
		}
	})
}

// any returns a claim that is held.
func (n *node) any() (id api.ClaimID) {
	for id = range n.claims {
		break
	}
	return id
}

// A user who may have no more running is not given another host's slot, and a run counts until
// it is over.
func TestUserLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 4)
		defer func() { h.stop() }()
		synctest.Wait()
		there := map[*job.Task]bool{}
		denied, foremost := false, h.s.Foremost
		var mu sync.Mutex
		h.s.Foremost = func(int) (list []schedule.Waiting) { // one more the first time, as if that started at home now
			mu.Lock()
			defer mu.Unlock()
			for _, w := range foremost(1) {
				if w.Tasks = min(w.Tasks, 2-len(there)); !denied {
					w.Tasks = 3
				}
				list = append(list, w)
			}
			return list
		}
		h.s.Depart = func(t *job.Task, _ bool) bool {
			mu.Lock()
			defer mu.Unlock()
			if len(there) == 2 {
				denied = true
				return false
			}
			there[t] = true
			return true
		}
		h.s.Back = func(t *job.Task, _ schedule.Used) {
			mu.Lock()
			defer mu.Unlock()
			delete(there, t)
		}
		h.submit(api.SubmitRequest{Tasks: api.Tasks{First: 1, Last: 3, Step: 1}})
		if n := h.endAll(0); n != 2 || !denied {
			t.Errorf("%d tasks run at once, want 2; one more was denied: %t", n, denied)
		}
		if n := h.endAll(0); n != 1 || len(there) != 0 {
			t.Errorf("%d tasks run then, want the last; %d are counted afterwards", n, len(there))
		}
	})
}

// A job that refers to what its slot has not waits in error, and counts among the running ones of its
// user no more.
func TestUnmatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		var mu sync.Mutex
		there := 0
		h.s.Depart = func(*job.Task, bool) bool {
			mu.Lock()
			defer mu.Unlock()
			there++
			return true
		}
		h.s.Back = func(*job.Task, schedule.Used) {
			mu.Lock()
			defer mu.Unlock()
			there--
		}
		j := h.submit(api.SubmitRequest{Attributes: []string{`On="$$(NoSuch)"`}})
		if h.store.Running(j) != 0 || len(h.node.begun) != 0 || there != 0 {
			t.Errorf("%d run, %d were begun, %d are counted", h.store.Running(j), len(h.node.begun), there)
		}
		if list := h.store.List(&api.JobsRequest{Users: []string{"*"}}, job.Caller{Manager: true}, "login", 10).Waiting; len(list) != 1 || list[0].State != "Eqw" {
			t.Errorf("%+v", list)
		}
	})
}

// A job of -now y starts on another host at once, or is refused.
func TestStartNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		synctest.Wait()
		foremost := h.s.Foremost
		h.s.Foremost = func(int) []schedule.Waiting { return nil }
		start := func() bool { return h.s.StartNow(context.Background(), h.submit(api.SubmitRequest{Now: true})) }
		if !start() {
			t.Error("the first is not started")
		}
		if start() {
			t.Error("another is started in the same slot")
		}
		h.s.Foremost = foremost
	})
}

// What a request names is meant as at home and on each host.
func TestAwayAlone(t *testing.T) {
	config := &conf.Config{Hostname: "login", Queues: []conf.Queue{{Name: "all.q"}}, Complex: []conf.Attribute{
		{Name: "hostname", Shortcut: "h", Kind: conf.KindHost, Relop: "=="}, {Name: "qname", Shortcut: "q", Kind: conf.KindString, Relop: "=="},
	}}
	domain := "cluster"
	s := New(Execd{
		Host: &base.Host{Config: func() *conf.Config { return config }}, Domain: func() string { return domain },
		Peers: func() []api.PeerStatus {
			return []api.PeerStatus{
				{Name: "node7", Address: "192.0.2.7:6445", Queues: []api.QueueStatus{{Name: "all.q"}, {Name: "gpu.q"}}},
				{Name: "node8", Address: "192.0.2.8:6445"}, // it was never heard of
			}
		},
	})
	h := func(name string) []api.Resource { return []api.Resource{{Name: "h", Value: name}} }
	for _, c := range []struct {
		what  string
		r     api.SubmitRequest
		away  bool
		error string
	}{
		{"nothing", api.SubmitRequest{PE: "mpi"}, false, ""},
		{"a queue of all", api.SubmitRequest{Queues: []string{"all.q"}, PE: "mpi"}, false, ""},
		{"a queue elsewhere", api.SubmitRequest{Queues: []string{"gpu.q"}}, true, ""},
		{"a host", api.SubmitRequest{Queues: []string{"*@node*"}}, true, ""},
		{"home or a host", api.SubmitRequest{Queues: []string{"all.q@login", "*@node7"}, Sandbox: api.SandboxYes}, false, ""},
		{"another host", api.SubmitRequest{Hard: h("node7")}, true, ""},
		{"any host", api.SubmitRequest{Hard: h("*"), Sandbox: api.SandboxYes}, false, ""},
		{"a host that nobody knows", api.SubmitRequest{Hard: h("nosuch"), PE: "mpi"}, false, ""},
		{"a host that was not heard of", api.SubmitRequest{Queues: []string{"x.q@node8"}}, true, ""},
		{"with a sandbox", api.SubmitRequest{Hard: h("node7"), Sandbox: api.SandboxYes}, true, ""},
		{"with plugins", api.SubmitRequest{Hard: h("node7"), Sandbox: api.SandboxYes, Attributes: []string{`TransferPlugins="x=y"`}}, true, "jobs with file transfer plugins of their own run on this host alone"},
		{"parallel", api.SubmitRequest{Queues: []string{"gpu.q"}, PE: "mpi"}, true, "parallel jobs run on this host alone"},
		{"with qrsh", api.SubmitRequest{Hard: h("node7"), Interactive: &api.Interactive{Client: api.Listener{Address: "127.0.0.1:5"}}}, true, "qrsh listens at an address of this host alone (-listen)"},
		{"with qrsh -listen", api.SubmitRequest{Hard: h("node7"), Interactive: &api.Interactive{Client: api.Listener{Address: "192.0.2.1:5"}}}, true, ""},
		{"with qsh", api.SubmitRequest{Hard: h("node7"), Interactive: &api.Interactive{Display: ":0"}}, true, "jobs of qsh run on this host alone"},
	} {
		away, err := s.Away(&c.r)
		if away != c.away || (err == nil) != (c.error == "") || err != nil && !strings.HasSuffix(err.Error(), ", and "+c.error) {
			t.Errorf("%s: %t, %v", c.what, away, err)
		}
	}
	domain = ""
	if _, err := s.Away(&api.SubmitRequest{Queues: []string{"gpu.q"}}); err == nil || !strings.Contains(err.Error(), "FILESYSTEM_DOMAIN of this host is not set") {
		t.Errorf("without FILESYSTEM_DOMAIN: %v", err)
	}
	for pattern, want := range map[string]bool{"gpu.q": true, "g*@node7": true, "x.q@node7": false, "x.q@node8": true, "all.q@login2": false} {
		if got := s.Elsewhere(pattern); got != want {
			t.Errorf("%s is one elsewhere: %t; want %t", pattern, got, want)
		}
	}
}
