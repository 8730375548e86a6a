package shadow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/account"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob/knobtest"
	"paddock/execd/internal/job"
	"paddock/execd/internal/mail"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/timeline"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// node is a host that executes, as its API shows it.
type node struct {
	mu      sync.Mutex
	slots   int
	carves  bool                  // out of one partitionable slot as large
	asked   []api.ClaimRequest    // for claims
	refuses string                // why it takes no jobs
	fails   error                 // why it begins none
	down    bool                  // it does not listen
	holds   bool                  // a claim until the output of its run is pulled
	methods string                // the schemes of its plugins
	deaf    bool                  // what it does is done, and the answer lost
	forgets bool                  // it tells no end, and knows of no run
	claims  map[api.ClaimID]*held // guarded by mu, as all of it
	made    int
	begun   map[api.SandboxID]*api.ActivateRequest
	fenced  map[api.SandboxID]bool
	events  []api.ActivationEvent
	news    chan struct{}
	killed  []api.ClaimID
	log     []string
	boxes   map[api.SandboxID]*box // guarded by mu; of runs whose files travel
	kept    int                    // claims that were released and have left output
}

type held struct {
	until   time.Time
	sandbox api.SandboxID // that runs
}

var errDial = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// post answers a request.
func (n *node) post() func(ctx context.Context, path string, body []byte, read func(string, io.Reader) error) error {
	return func(ctx context.Context, path string, body []byte, read func(string, io.Reader) error) error {
		verb := path[strings.LastIndexByte(path, '/')+1:]
		n.mu.Lock()
		if n.down {
			n.mu.Unlock()
			return errDial
		}
		n.mu.Unlock()
		reply, err := n.answer(ctx, verb, body)
		n.mu.Lock()
		deaf := n.deaf
		n.mu.Unlock()
		if deaf {
			<-ctx.Done()
			return ctx.Err()
		}
		status := "200 OK"
		if err != nil {
			if e, ok := errors.AsType[*api.Error](err); ok {
				reply, status = e, "409 Conflict"
			} else {
				return err
			}
		}
		text, err := json.Marshal(reply)
		if err != nil {
			return err
		}
		return read(status, bytes.NewReader(text))
	}
}

func decode[T any](body []byte) (r T) {
	if err := json.Unmarshal(body, &r); err != nil {
		panic(err)
	}
	return r
}

func (n *node) answer(ctx context.Context, verb string, body []byte) (any, error) {
	if verb == api.VerbFollow {
		return n.follow(ctx, decode[api.FollowRequest](body))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for id, h := range n.claims {
		if now.After(h.until) {
			if h.sandbox != "" {
				n.end(h.sandbox, 112, 137, "lease")
			}
			delete(n.claims, id)
		}
	}
	n.log = append(n.log, verb)
	switch verb {
	case api.VerbSlots:
		r := api.SlotsReply{Host: "node"}
		if n.carves {
			s := api.SlotStatus{Slot: "1", Queue: "all.q", State: "Unclaimed", Activity: "Idle", Type: "Partitionable", Cpus: int64(n.left())}
			s.Ad = n.whole()
			r.Slots = append(r.Slots, s)
			return r, nil
		}
		for i := range n.slots {
			s := api.SlotStatus{Slot: api.SlotID(fmt.Sprint(i + 1)), Queue: "all.q", State: "Unclaimed", Activity: "Idle"}
			s.Ad = fmt.Sprintf("Start = true\nFileSystemDomain = \"cluster\"\nHasFileTransferPluginMethods = %q\n", n.methods)
			r.Slots = append(r.Slots, s)
		}
		return r, nil
	case api.VerbClaim:
		r := decode[api.ClaimRequest](body)
		n.asked = append(n.asked, r)
		if n.refuses != "" {
			return nil, api.Refusef(api.RefusedRequirements, "%s", n.refuses)
		}
		if len(n.claims) == n.slots || n.carves && n.left() == 0 {
			return nil, api.Refusef(api.RefusedBusy, "no slot is free")
		}
		n.made++
		id := api.ClaimID(fmt.Sprintf("<node>#1#%d#secret%d", n.made, n.made))
		n.claims[id] = &held{until: now.Add(time.Duration(r.Lease) * time.Second)}
		if n.carves {
			reply := api.ClaimReply{ID: id, Slot: api.SlotID(fmt.Sprintf("1_%d", n.made)), Lease: r.Lease, Ad: "Queue = \"all.q\"\n"}
			if r.LeftOvers && n.left() > 0 {
				n.claims[theRest] = &held{until: now.Add(time.Duration(r.Lease) * time.Second)}
				reply.LeftOvers = &api.ClaimReply{ID: theRest, Slot: "1", Lease: r.Lease, Ad: n.whole()}
			}
			return reply, nil
		}
		return api.ClaimReply{ID: id, Slot: api.SlotID(fmt.Sprint(n.made)), Lease: r.Lease, Ad: "Queue = \"all.q\"\n"}, nil
	case api.VerbActivate:
		r := decode[api.ActivateRequest](body)
		h := n.claims[r.ID]
		switch {
		case h == nil:
			return nil, api.Refusef(api.RefusedUnknown, "no such claim")
		case n.begun[r.Sandbox] != nil:
		case n.fenced[r.Sandbox]:
			return nil, api.Refusef(api.RefusedFenced, "fenced")
		case n.fails != nil:
			return nil, n.fails
		case h.sandbox != "":
			return nil, api.Refusef(api.RefusedBusy, "a job runs")
		default:
			n.begun[r.Sandbox], h.sandbox = &r, r.Sandbox
			if r.Carriage != nil {
				n.boxes[r.Sandbox] = &box{key: r.Carriage.Key, input: r.Carriage.Input, may: make(chan bool)}
			}
			n.say(api.ActivationEvent{Sandbox: r.Sandbox, Kind: api.ActivationStarted})
		}
		return api.ActivateReply{Job: len(n.begun)}, nil
	case api.VerbAlterRun:
		r := decode[api.AlterRunRequest](body)
		if n.begun[r.Sandbox] == nil {
			return nil, api.Refusef(api.RefusedUnknown, "no such activation")
		}
		n.begun[r.Sandbox].Request.Attributes = r.Attributes
		return struct{}{}, nil
	case api.VerbRunState:
		r := decode[api.RunStateRequest](body)
		if n.begun[r.Sandbox] != nil && !n.forgets {
			return api.RunStateReply{State: api.RunRunning}, nil
		}
		n.fenced[r.Sandbox] = true
		return api.RunStateReply{State: api.RunUnknown, Fenced: true, Over: n.claims[r.ID] == nil}, nil
	case api.VerbDeactivate:
		r := decode[api.DeactivateRequest](body)
		n.killed = append(n.killed, r.ID)
		if h := n.claims[r.ID]; h != nil && h.sandbox != "" {
			n.end(h.sandbox, 100, 137, "deleted")
		}
		return api.Permit{Start: true}, nil
	case api.VerbRelease:
		r := decode[api.ClaimOrder](body)
		delete(n.claims, r.ID)
		if r.Keep {
			n.kept++
		}
		return api.ClaimState{}, nil
	case api.VerbRenewAll:
		var reply api.RenewAllReply
		q := decode[api.RenewAllRequest](body)
		for _, o := range q.Sandboxes {
			if b := n.boxes[o.Sandbox]; b == nil || b.key != o.Key || b.lost {
				reply.Sandboxes = append(reply.Sandboxes, api.RenewedSandbox{Error: api.Refusef(api.RefusedUnknown, "nothing is kept")})
			} else {
				b.renewed++
				reply.Sandboxes = append(reply.Sandboxes, api.RenewedSandbox{Lease: wanted})
			}
		}
		for _, id := range q.IDs {
			if h := n.claims[id]; h != nil {
				h.until = now.Add(wanted * time.Second)
				reply.Claims = append(reply.Claims, api.Renewed{})
			} else {
				reply.Claims = append(reply.Claims, api.Renewed{Error: api.Refusef(api.RefusedUnknown, "no such claim")})
			}
		}
		return reply, nil
	}
	return n.stage(verb, body)
}

// theRest is the claim on what is left of the partitionable slot.
const theRest api.ClaimID = "<node>#1#999#rest"

// left is how many processors are left of the partitionable slot. n.mu is held.
func (n *node) left() int {
	left := n.slots - len(n.claims)
	if n.claims[theRest] != nil {
		left++
	}
	return left
}

// whole is the ad of the partitionable slot. n.mu is held.
func (n *node) whole() string {
	return fmt.Sprintf("Start = true\nQueue = \"all.q\"\nFileSystemDomain = \"cluster\"\nPartitionableSlot = true\nCpus = %d\n", n.left())
}

// say has something followed. n.mu is held.
func (n *node) say(e api.ActivationEvent) {
	e.Seq = uint64(len(n.events) + 1)
	n.events = append(n.events, e)
	close(n.news)
	n.news = make(chan struct{})
}

// end ends a run. n.mu is held.
func (n *node) end(id api.SandboxID, failed, exit int, cause string) {
	for _, h := range n.claims {
		if h.sandbox == id {
			h.sandbox = ""
		}
	}
	rec := accounting.Record{QName: "all.q", Hostname: "node", Owner: "x", JobNumber: 300, StartTime: 1000, EndTime: 1005, RuWallclock: 5, Failed: failed, ExitStatus: exit, CPU: 4, Group: "g", JobName: "n", Account: "a", Project: "NONE", Department: "d", GrantedPE: "NONE", Slots: 1, Category: "NONE", PETaskID: "NONE"}
	line, err := accounting.Append(nil, rec)
	if err != nil {
		panic(err)
	}
	end := api.ActivationEnd{Failed: failed, Exit: exit, Cause: cause, Fate: "done"}
	over := api.ActivationEvent{Sandbox: id, Kind: api.ActivationOver, End: &end}
	whole := end
	whole.Accounting = strings.TrimSuffix(string(line), "\n")
	if b := n.boxes[id]; b != nil && failed == 0 {
		end.Started, end.Ended = time.Unix(1000, 0), time.Unix(1005, 0)
		over.Outcome, b.end = &api.Outcome{Pull: true, Held: n.holds}, &whole
		n.say(over)
		return
	}
	n.say(over)
	n.say(api.ActivationEvent{Sandbox: id, Kind: api.ActivationFinal, End: &whole})
}

func (n *node) follow(ctx context.Context, r api.FollowRequest) (any, error) {
	enough := time.After(time.Minute)
	for {
		n.mu.Lock()
		var had int
		_, _ = fmt.Sscan(r.Cursor, &had)
		for i := range n.events {
			for _, a := range r.Acks {
				if n.events[i].Sandbox == a.Sandbox && n.events[i].Seq <= a.Seq {
					n.events[i].Kind = ""
				}
			}
		}
		reply := api.FollowReply{Cursor: fmt.Sprint(len(n.events))}
		for _, e := range n.events[had:] {
			if e.Kind != "" {
				reply.Events = append(reply.Events, e)
			}
		}
		news := n.news
		n.mu.Unlock()
		if len(reply.Events) > 0 {
			return reply, nil
		}
		select {
		case <-news:
		case <-enough:
			return reply, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// home is a submit host without a slot of its own, beside a node.
type home struct {
	t     *testing.T
	dir   string
	knobs string
	keep  time.Duration // what is stuck
	node  *node
	files *files

	backwards bool // what an earlier one has left is found in the other order
	root      *spool.Root
	store     *job.Store
	s         *Shadows
	stop      func()
}

// newHome has a home with a node of so many slots.
func newHome(t *testing.T, slots int) *home {
	h := &home{t: t, dir: t.TempDir(), node: &node{slots: slots, claims: map[api.ClaimID]*held{}, begun: map[api.SandboxID]*api.ActivateRequest{}, boxes: map[api.SandboxID]*box{}, fenced: map[api.SandboxID]bool{}, news: make(chan struct{})}}
	h.begin()
	return h
}

// begin starts it, and what an earlier one has left.
func (h *home) begin() {
	h.t.Helper()
	log := slog.New(slog.DiscardHandler)
	var err error
	if h.root, err = spool.OpenRoot(h.dir, true); err != nil {
		h.t.Fatal(err)
	}
	if h.store, err = job.Open(h.root, false, log); err != nil {
		h.t.Fatal(err)
	}
	config := &conf.Config{Queues: []conf.Queue{{Name: "all.q"}}, Knobs: knobtest.Parse(h.t, h.knobs)}
	now := func() *conf.Config { return config }
	host := &base.Host{
		Name: "login", Store: h.store, Book: account.New(filepath.Join(h.dir, "accounting"), h.store), Users: &user.Directory{}, Config: now, Mail: mail.New(now, "login", log), Counts: &metrics.Counts{}, Timeline: &timeline.Timeline{}, Log: log,
	}
	h.s = New(Execd{
		Host: host, Root: h.root, Domain: func() string { return "cluster" },
		On: func(host, _ string) *api.Client { return api.NewClientOver(host, h.node.post(), h.node.streams) },
		Peers: func() []api.PeerStatus {
			h.node.mu.Lock()
			defer h.node.mu.Unlock()
			p := api.PeerStatus{Name: "node", State: api.PeerUp, Free: h.node.slots - len(h.node.claims)}
			if h.node.down {
				p.State, p.Error = api.PeerDown, "it is down"
			}
			return []api.PeerStatus{p}
		},
		Foremost: func(int) (list []schedule.Waiting) {
			jobs := h.store.Pending()
			slices.SortFunc(jobs, func(a, b *job.Job) int { return a.Number - b.Number })
			for _, j := range jobs {
				if n, _, _ := h.store.Ready(j, time.Now()); n > 0 {
					list = append(list, schedule.Waiting{Job: j.Number, Tasks: n})
				}
			}
			return list
		},
		JobAd: func(j *job.Job) *classad.Ad {
			ad, _ := classad.ParseOld("Requirements = true\nRequestCpus = 1\nOwner = \"" + j.Owner + "\"\n" + strings.Join(j.Terms().Needs.Attributes(), "\n") + "\n")
			return ad
		},
	})
	host.Patience, host.Keep = func() time.Duration { return time.Hour }, func() time.Duration { return h.keep }
	if h.files == nil {
		h.files = &files{landed: map[spool.RunID]string{}, here: map[spool.RunID]string{}}
	}
	h.files.store, h.s.Files = h.store, h.files
	host.JobAd = func(t *job.Task) *classad.Ad { return h.s.JobAd(t.Job) }
	h.s.Changed, h.s.Queues = func(*job.Job) {}, func() {}
	h.s.Depart, h.s.Back = func(*job.Task, bool) bool { return true }, func(*job.Task, schedule.Used) {}
	h.store.OnWork(func(*job.Job) { h.s.Wake() })
	if err := h.s.Load(); err != nil {
		h.t.Fatal(err)
	}
	tasks := h.store.Unfinished()
	if h.backwards {
		slices.Reverse(tasks)
	}
	for _, t := range tasks {
		h.s.Recover(t)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	var group sync.WaitGroup
	book, stopBook := context.WithCancel(h.t.Context())
	group.Go(func() { host.Book.Run(book) })
	done := make(chan struct{})
	go func() { h.s.Run(ctx); close(done) }()
	h.stop = func() {
		cancel()
		<-done
		stopBook()
		group.Wait()
	}
}

func (h *home) submit(req api.SubmitRequest) *job.Job {
	h.t.Helper()
	req.Name, req.Binary, req.Command = "j", true, "true"
	j, _, err := h.store.Submit(&user.User{Name: "anna", UID: 1001, Group: "users"}, 100, &req, job.Limits{}, time.Now())
	if err != nil {
		h.t.Fatal(err)
	}
	h.s.Wake()
	synctest.Wait()
	return j
}

// lines returns the accounting lines.
func (h *home) lines() (list []accounting.Record) {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.dir, "accounting"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line[0] != '#' {
			rec, err := accounting.Parse([]byte(line))
			if err != nil {
				h.t.Fatal(err)
			}
			list = append(list, rec)
		}
	}
	return list
}

// endAll ends all that runs on the node.
func (h *home) endAll(exit int) (n int) {
	h.node.mu.Lock()
	for _, c := range h.node.claims {
		if c.sandbox != "" {
			h.node.end(c.sandbox, 0, exit, "exit")
			n++
		}
	}
	h.node.mu.Unlock()
	synctest.Wait()
	return n
}

// change changes something of the node, of which the home hears.
func (h *home) change(f func(n *node)) {
	h.node.mu.Lock()
	f(h.node)
	h.node.mu.Unlock()
	h.s.Wake()
	synctest.Wait()
}

func (h *home) records() int {
	names, err := h.root.ListRemote()
	if err != nil {
		h.t.Fatal(err)
	}
	return len(names)
}

// REQ-XFER-1, REQ-XFER-2, REQ-FLOW-1: what waits is offered with its ad, a slot is claimed for
// it, and one job after the other started there.
//
// A job that finds no slot at home runs on the node, and its end is accounted at home, with
// the name of the node and what it has used there. Its claim is used for the next job and
// given back when there is none.
func TestAwayAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 2)
		defer func() { h.stop() }()
		j := h.submit(api.SubmitRequest{Tasks: api.Tasks{First: 1, Last: 5, Step: 2}})
		if n := h.endAll(3); n != 2 {
			t.Fatalf("%d tasks run, want one in each slot; %q", n, h.node.log)
		}
		if n := h.endAll(0); n != 1 || h.node.made != 2 {
			t.Fatalf("%d tasks run under %d claims, want the last under one of two", n, h.node.made)
		}
		for _, a := range h.node.begun {
			if a.Home == nil || a.Home.Job != j.Number || a.Home.Array != j.Tasks || a.Request.Tasks.IsArray() {
				t.Errorf("%+v %+v", a.Home, a.Request.Tasks)
			}
		}
		exits := 0
		for _, rec := range h.lines() {
			if rec.Hostname != "node" || rec.QName != "all.q" || rec.JobNumber != j.Number || rec.TaskNumber == 0 || rec.Owner != "anna" || rec.CPU != 4 || rec.RuWallclock != 5 {
				t.Errorf("%+v", rec)
			}
			exits += rec.ExitStatus
		}
		if len(h.lines()) != 3 || exits != 6 || h.store.Get(j.Number) != nil {
			t.Errorf("%d lines, exit codes %d, job %v", len(h.lines()), exits, h.store.Get(j.Number))
		}
		if h.records() != 2 {
			t.Errorf("%d claims are recorded, want 2", h.records())
		}
		time.Sleep(2 * idleFor)
		synctest.Wait()
		if len(h.node.claims) != 0 || h.records() != 0 {
			t.Errorf("%d claims are held, %d recorded; want none without work", len(h.node.claims), h.records())
		}
	})
}

// REQ-XFER-46: the next job has a claim as soon as the processes of the last one are gone,
// before its end is accounted.
func TestNextBeforeEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.submit(api.SubmitRequest{Tasks: api.Tasks{First: 1, Last: 2, Step: 1}})
		var first api.SandboxID
		h.change(func(n *node) {
			for _, c := range n.claims {
				first, c.sandbox = c.sandbox, ""
				n.say(api.ActivationEvent{Sandbox: first, Kind: api.ActivationOver, End: &api.ActivationEnd{Cause: "exit"}})
			}
		})
		if len(h.node.begun) != 2 || h.node.made != 1 || len(h.lines()) != 0 {
			t.Fatalf("%d runs under %d claims, %d accounted; want the second, and no end", len(h.node.begun), h.node.made, len(h.lines()))
		}
		h.change(func(n *node) {
			n.say(api.ActivationEvent{Sandbox: first, Kind: api.ActivationFinal, End: &api.ActivationEnd{Cause: "exit"}})
		})
		if n := h.endAll(0); n != 1 || len(h.lines()) != 2 {
			t.Errorf("%d run, and %d ends are accounted", n, len(h.lines()))
		}
	})
}

// What a host refuses it is not asked again for a while, and qstat -j says why.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 2)
		defer func() { h.stop() }()
		h.change(func(n *node) { n.refuses = "START is false" })
		j := h.submit(api.SubmitRequest{})
		if why := h.s.Why(j); why != "node: START is false" {
			t.Errorf("why not: %q", why)
		}
		n := len(h.node.log)
		for range 10 {
			h.s.Wake()
			synctest.Wait()
		}
		if len(h.node.log) != n {
			t.Errorf("it is asked again: %q", h.node.log)
		}
		h.change(func(n *node) { n.refuses = "" })
		time.Sleep(refusedFor + time.Second)
		synctest.Wait()
		if n := h.endAll(0); n != 1 {
			t.Errorf("%d run after a while; %q", n, h.node.log)
		}
		for _, req := range []api.SubmitRequest{{PE: "mpi", Slots: []api.Slots{{Min: 2, Max: 2, Step: 1}}}, {Sandbox: api.SandboxYes, Attributes: []string{`TransferPlugins="x=y"`}}, {Attributes: []string{"A=1", `hookkeyword="x"`}}} {
			if j := h.submit(req); h.store.Running(j) != 0 || !strings.Contains(h.s.Why(j), "this host alone") {
				t.Errorf("%+v: %q", req, h.s.Why(j))
			}
		}
	})
}

// REQ-XFER-3: a claim under which a job is refused is given back.
//
// A host that gives a slot and then refuses the job is asked more and more seldom, whatever
// it refuses it for.
func TestActivationRefused(t *testing.T) {
	for _, why := range []api.Refusal{api.RefusedRequirements, api.RefusedTryAgain} {
		synctest.Test(t, func(t *testing.T) {
			h := newHome(t, 2)
			defer func() { h.stop() }()
			h.change(func(n *node) { n.fails = api.Refusef(why, "not that job") })
			j := h.submit(api.SubmitRequest{})
			for range 60 {
				time.Sleep(time.Minute)
				h.s.Wake()
			}
			synctest.Wait()
			if h.node.made < 3 || h.node.made > 8 || len(h.node.claims) != 0 || h.s.Why(j) != "node: not that job" || h.records() != 0 {
				t.Errorf("%d claims were made, %d are held: %q", h.node.made, len(h.node.claims), h.s.Why(j))
			}
			h.change(func(n *node) { n.fails = nil })
			time.Sleep(2 * time.Hour)
			if synctest.Wait(); h.endAll(0) != 1 || len(h.lines()) != 1 {
				t.Errorf("%+v", h.lines())
			}
		})
	}
}

// event has the node tell something of the run that it has begun.
func (h *home) event(e api.ActivationEvent) {
	h.node.mu.Lock()
	for id := range h.node.begun {
		e.Sandbox = id
	}
	h.node.say(e)
	h.node.mu.Unlock()
	synctest.Wait()
}

// What a host says of a run, true or not, becomes what can be said of one that ended here.
func TestEnds(t *testing.T) {
	over := func(end api.ActivationEnd) []api.ActivationEvent {
		return []api.ActivationEvent{{Kind: api.ActivationOver, End: &end}, {Kind: api.ActivationFinal, End: &end}}
	}
	for _, tt := range []struct {
		name   string
		rerun  api.Rerun
		events []api.ActivationEvent
		failed int
		exit   int
		reason string
		state  string // of the job then; empty: it is over
	}{
		{name: "evicted, rerun", rerun: api.RerunYes, events: over(api.ActivationEnd{Failed: 100, Exit: 137, Cause: "evicted", Reason: "PREEMPT is true"}), failed: 25, exit: 0, reason: "rescheduled by node", state: "qw"},
		{name: "evicted", rerun: api.RerunNo, events: over(api.ActivationEnd{Failed: 100, Exit: 137, Cause: "evicted", Reason: "PREEMPT is true"}), failed: 100, reason: "evicted by node before the job started"},
		{name: "its lease, rerun", rerun: api.RerunYes, events: over(api.ActivationEnd{Failed: 112, Exit: 137, Cause: "lease"}), failed: 112, reason: "node has ended it: the lease of its claim was over; it may have run", state: "qw"},
		{name: "its lease", rerun: api.RerunNo, events: over(api.ActivationEnd{Failed: 112, Exit: 137, Cause: "lease"}), failed: 112, reason: "node has ended it: the lease of its claim was over; it may have run", state: "Eqw"},
		{name: "no directory", events: over(api.ActivationEnd{Failed: 28, Cause: "failed", Reason: "cannot enter /x"}), failed: 28, reason: "cannot enter /x", state: "Eqw"},
		{name: "a prolog", events: over(api.ActivationEnd{Failed: 8, Cause: "failed", Reason: "r"}), failed: 8, reason: "r", state: "qw"},
		{name: "nonsense", events: over(api.ActivationEnd{Failed: -5, Exit: 1 << 40, Cause: "x", Reason: "\x1b[2J", Fate: "?", Accounting: "NaN:::"}), failed: 20, reason: "its host has told of an end that cannot be", state: "Eqw"},
		{name: "control characters", events: over(api.ActivationEnd{Failed: 28, Cause: "failed", Reason: "a\x1b[2J\nb:c"}), failed: 28, reason: `a\x1b[2J\nb:c`, state: "Eqw"},
		{name: "gone, and it ran", rerun: api.RerunNo, events: []api.ActivationEvent{{Kind: api.ActivationGone, Reason: "power cut"}}, failed: 112, reason: "node knows nothing of it any more: power cut; it may have run", state: "Eqw"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHome(t, 1)
				defer func() { h.stop() }()
				j := h.submit(api.SubmitRequest{Rerun: tt.rerun})
				h.node.mu.Lock()
				h.node.refuses = "it is full" // the next run would hide the state
				h.node.mu.Unlock()
				for _, e := range tt.events {
					h.event(e)
				}
				l := h.lines()
				if len(l) != 1 || l[0].Failed != tt.failed || l[0].Reason != tt.reason || l[0].JobNumber != j.Number {
					t.Fatalf("%+v", l)
				}
				h.change(func(n *node) {
					for _, c := range n.claims {
						c.sandbox = ""
					}
				})
				state := ""
				for _, l := range h.store.List(&api.JobsRequest{Users: []string{"*"}}, job.Caller{Manager: true}, "login", 10).Waiting {
					state = l.State
				}
				if h.store.Running(j) > 0 { // under the claim that it had
					state = "qw"
				}
				if state != tt.state {
					t.Errorf("it is %q, want %q", state, tt.state)
				}
			})
		})
	}
}

// An update tells what a run uses; one that is no ad, or too large, is passed over.
func TestUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		j := h.submit(api.SubmitRequest{})
		run := spool.RunID{Job: j.Number, Task: 1}
		if u, said := h.s.Used()[run]; said {
			t.Errorf("before an update: %+v", u)
		}
		h.event(api.ActivationEvent{Kind: api.ActivationUpdate, Ad: "RemoteUserCpu = 2.5\nRemoteSysCpu = 0.5\nImageSize = 4\nResidentSetSize = -1\n"})
		for _, bad := range []string{"[", strings.Repeat("A = 1\n", 10000)} {
			h.event(api.ActivationEvent{Kind: api.ActivationUpdate, Ad: bad})
		}
		if u := h.s.Used()[run]; u.CPU != 3 || u.VMem != 4096 || u.RSS != 0 {
			t.Errorf("%+v", u)
		}
	})
}

// REQ-FLOW-27: the end of a run is recorded once where it was submitted.
//
// However the submit host ends, its next execd goes on with what runs, and gives back what
// was not begun.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		j := h.submit(api.SubmitRequest{})
		h.stop()
		h.begin()
		synctest.Wait()
		if n := h.endAll(7); n != 1 || len(h.lines()) != 1 || h.lines()[0].ExitStatus != 7 || h.store.Get(j.Number) != nil {
			t.Fatalf("%d ran; %+v", n, h.lines())
		}
		// It ends while nobody is there to hear it.
		h.submit(api.SubmitRequest{})
		h.stop()
		h.endAll(8)
		h.begin()
		synctest.Wait()
		if l := h.lines(); len(l) != 2 || l[1].ExitStatus != 8 {
			t.Fatalf("%+v", l)
		}
		// The start is recorded, and the node has not heard of it.
		h.change(func(n *node) { n.down = true })
		time.Sleep(time.Minute)
		h.change(func(n *node) { n.down = false })
		time.Sleep(time.Minute) // the claim is given back
		h.submit(api.SubmitRequest{})
		h.stop()
		h.change(func(n *node) { clear(n.begun) })
		h.begin()
		time.Sleep(time.Minute)
		synctest.Wait()
		if h.endAll(9) != 1 || len(h.lines()) != 3 || h.lines()[2].ExitStatus != 9 || len(h.node.fenced) != 1 {
			t.Errorf("%+v, fenced %v", h.lines(), h.node.fenced)
		}
	})
}

// A host that has not heard that the end of a run is recorded tells of it again, to the next execd,
// which has nothing more to do with it than that.
func TestEndToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		task := h.task(h.submit(api.SubmitRequest{}))
		h.stop()
		h.endAll(7)
		end := &job.End{Exit: 7, Fate: job.FateDone, Accounting: "recorded"}
		if err := errors.Join(h.store.End([]job.Ending{{Task: task, End: end, Time: time.Now()}})...); err != nil {
			t.Fatal(err)
		}
		book := filepath.Join(h.dir, "accounting")
		if err := os.Mkdir(book, 0o700); err != nil { // so that its line is not written yet
			t.Fatal(err)
		}
		h.begin()
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := os.Remove(book); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		text, err := os.ReadFile(book)
		if h.store.Get(task.Job.Number) != nil || !strings.HasSuffix(string(text), "recorded\n") {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// A claim is that of the run that was begun last under it, also after a restart that finds the
// one before as well: its end is not told yet.
func TestTwoOfOneClaim(t *testing.T) {
	for _, backwards := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newHome(t, 1)
			defer func() { h.stop() }()
			h.submit(api.SubmitRequest{})
			var first api.SandboxID
			h.change(func(n *node) {
				for _, c := range n.claims {
					first = c.sandbox
					n.say(api.ActivationEvent{Sandbox: c.sandbox, Kind: api.ActivationOver, End: &api.ActivationEnd{Fate: "done"}})
					c.sandbox = ""
				}
			})
			h.submit(api.SubmitRequest{})
			h.stop()
			h.backwards = backwards
			h.begin()
			synctest.Wait()
			h.change(func(n *node) { n.end(first, 0, 0, "exit") })
			h.submit(api.SubmitRequest{})
			time.Sleep(time.Minute)
			synctest.Wait()
			h.node.mu.Lock()
			defer h.node.mu.Unlock()
			if len(h.node.begun) != 2 || len(h.node.claims) != 1 || slices.Contains(h.node.log, api.VerbRelease) {
				t.Errorf("backwards %v: %d runs, %d claims; %q", backwards, len(h.node.begun), len(h.node.claims), h.node.log)
			}
		})
	}
}

// A run of which a host knows nothing may have been one if its claim is over there: it was
// forgotten, with its end. So it is not run again as one that was never begun.
func TestForgotten(t *testing.T) {
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newHome(t, 1)
			defer func() { h.stop() }()
			h.submit(api.SubmitRequest{})
			h.endAll(0) // and the claim is there for the next
			h.change(func(n *node) { n.deaf = !restart })
			j := h.submit(api.SubmitRequest{Rerun: api.RerunNo})
			if restart {
				h.stop()
			}
			h.node.mu.Lock()
			if len(h.node.begun) != 2 {
				t.Errorf("%d runs", len(h.node.begun))
			}
			clear(h.node.begun)
			clear(h.node.claims)
			h.node.deaf = false
			h.node.mu.Unlock()
			if restart {
				h.begin()
				j = h.store.Get(j.Number)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			l := h.lines()
			if len(l) != 2 || l[1].Failed != spool.FailedLease || !strings.Contains(l[1].Reason, "it may have run") || len(h.node.begun) != 0 || h.store.Running(j) != 0 {
				t.Errorf("restart %v: %d runs; %+v", restart, len(h.node.begun), l)
			}
		})
	}
}

// A job for which a claim was over before it was begun is begun under another one, and has no
// record of that.
func TestClaimOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.submit(api.SubmitRequest{})
		h.endAll(0) // and the claim is there for the next
		h.change(func(n *node) { clear(n.claims) })
		h.submit(api.SubmitRequest{Rerun: api.RerunNo})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n, l := h.endAll(4), h.lines(); n != 1 || len(l) != 2 || l[1].ExitStatus != 4 {
			t.Errorf("%d runs; %+v", n, l)
		}
	})
}

// A claim that was over while nobody renewed it is not held against its host: the job that ran under
// it runs there again at once.
func TestClaimOverMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.submit(api.SubmitRequest{Rerun: api.RerunYes})
		h.stop()
		h.change(func(n *node) {
			clear(n.begun)
			clear(n.claims)
		})
		h.begin()
		time.Sleep(refusedFor / 2)
		synctest.Wait()
		if n, l := h.endAll(0), h.lines(); n != 1 || len(l) != 2 || l[0].Failed != spool.FailedLease || l[1].Failed != 0 {
			t.Errorf("%d runs; %+v", n, l)
		}
	})
}

// A job whose host is silent is run again when the lease is over there for certain, and
// waits for somebody to look unless it may be run again. If the host comes back before,
// nothing has happened.
func TestSilent(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rerun api.Rerun
		off   time.Duration
		deaf  bool
		runs  int // in the end
		state job.State
	}{
		{"back in time", api.RerunYes, 20 * time.Minute, false, 1, job.Started},
		{"gone, rerun", api.RerunYes, 3 * time.Hour, false, 2, job.Started},
		{"gone, not rerun", api.RerunNo, 3 * time.Hour, false, 1, job.Errored},
		{"answers are lost", api.RerunYes, 3 * time.Hour, true, 2, job.Started},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHome(t, 1)
				defer func() { h.stop() }()
				j := h.submit(api.SubmitRequest{Rerun: tt.rerun})
				h.change(func(n *node) { n.down, n.deaf = !tt.deaf, tt.deaf })
				begun := time.Now()
				var over time.Time
				for time.Since(begun) < tt.off {
					time.Sleep(10 * time.Second)
					synctest.Wait()
					if over.IsZero() && len(h.lines()) > 0 {
						over = time.Now()
					}
				}
				if !over.IsZero() {
					// The node has ended it before.
					h.node.mu.Lock()
					for _, c := range h.node.claims {
						if c.until.Add(killing).After(over) {
							t.Errorf("given up at %v, and the lease ends at %v", over, c.until)
						}
					}
					clear(h.node.claims)
					h.node.mu.Unlock()
				}
				h.change(func(n *node) { n.down, n.deaf = false, false })
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if len(h.node.begun) != tt.runs {
					t.Errorf("%d runs, want %d", len(h.node.begun), tt.runs)
				}
				var state job.State
				for _, l := range h.store.List(&api.JobsRequest{Users: []string{"*"}}, job.Caller{Manager: true}, "login", 10).Waiting {
					if state = job.Pending; strings.HasPrefix(l.State, "E") {
						state = job.Errored
						if !strings.Contains(l.Reason, "node has not answered since") || !strings.Contains(l.Reason, "it may have run") {
							t.Errorf("reason %q", l.Reason)
						}
					}
				}
				if h.store.Running(j) > 0 {
					state = job.Started
				}
				if state != tt.state {
					t.Errorf("it is %v, want %v", state, tt.state)
				}
			})
		})
	}
}

// qdel ends a run on the node, whatever the node does meanwhile, and no other job.
func TestKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		j := h.submit(api.SubmitRequest{Rerun: api.RerunYes})
		kill := func(t *job.Task) { h.s.Look(t) }
		h.change(func(n *node) { n.down = true })
		if _, err := h.store.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{fmt.Sprint(j.Number)}}, job.Caller{Name: "anna", UID: 1001}, kill); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if len(h.lines()) > 0 {
			t.Fatalf("%+v", h.lines())
		}
		h.change(func(n *node) { n.down = false })
		time.Sleep(time.Minute)
		synctest.Wait()
		l := h.lines()
		if len(l) != 1 || l[0].Reason != "deleted by anna" || l[0].Failed != 100 || len(h.node.killed) != 1 || h.store.Get(j.Number) != nil {
			t.Errorf("%+v, killed %v", l, h.node.killed)
		}
	})
}
