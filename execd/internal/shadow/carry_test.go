package shadow

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/stage/exit"
	"paddock/spool"
)

// box is the sandbox of a run on a node.
type box struct {
	key       api.SandboxKey
	input     bool   // it waits for its input
	got       string // what has come
	end       *api.ActivationEnd
	may       chan bool // closed when its output may be sent
	renewed   int
	done      string // the root that was said
	discarded string
	stuck     string
	lost      bool
	denied    bool // its home may ask for nothing
}

// stage answers what is asked about files. n.mu is held.
func (n *node) stage(verb string, body []byte) (any, error) {
	of := func(id api.SandboxID, key api.SandboxKey) (*box, error) {
		if b := n.boxes[id]; b != nil && b.key == key && !b.lost {
			return b, nil
		}
		return nil, api.Refusef(api.RefusedUnknown, "no such activation")
	}
	switch verb {
	case api.VerbStageHave:
		r := decode[api.StageHaveRequest](body)
		b, err := of(r.Sandbox, r.Key)
		if err != nil || !b.input {
			return api.StageHaveReply{}, err
		}
		return api.StageHaveReply{Part: api.PartInput, Have: b.got}, nil
	case api.VerbStageDone:
		r := decode[api.StageDoneRequest](body)
		b, err := of(r.Sandbox, r.Key)
		if err != nil {
			return struct{}{}, nil
		}
		if b.denied {
			return nil, api.Errorf(api.CodeDenied, "denied: it has not the role submit")
		}
		if again := b.done != "" || b.discarded != ""; !again {
			end := *b.end
			if b.done, b.discarded = r.Root, r.Reason; r.Discard {
				end.Failed, end.Reason = 111, r.Reason
			}
			if !n.forgets {
				n.say(api.ActivationEvent{Sandbox: r.Sandbox, Kind: api.ActivationFinal, End: &end})
			}
		}
		return struct{}{}, nil
	case api.VerbStageStuck:
		r := decode[api.StageStuckRequest](body)
		b, err := of(r.Sandbox, r.Key)
		if err == nil {
			b.stuck = r.Reason
		}
		return struct{}{}, err
	}
	return nil, fmt.Errorf("nobody asks a host to %s", verb)
}

// streams answers a request with a stream.
func (n *node) streams(ctx context.Context, path string, body io.Reader, read func(string, io.Reader) error) error {
	verb := path[strings.LastIndexByte(path, '/')+1:]
	in := bufio.NewReader(body)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.log = append(n.log, verb)
	var r api.StageOutRequest
	_ = json.Unmarshal(line, &r)
	b, down := n.boxes[r.Sandbox], n.down
	n.mu.Unlock()
	refuse := func(e *api.Error) error {
		text, _ := json.Marshal(e)
		return read("409 Conflict", strings.NewReader(string(text)))
	}
	switch {
	case down:
		return errDial
	case b == nil || b.key != r.Key || b.lost:
		return refuse(api.Refusef(api.RefusedUnknown, "no such activation"))
	case verb == api.VerbStageIn:
		data, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		b.got, b.input = string(data), false
		return read("200 OK", strings.NewReader(`{"bytes":5}`))
	}
	select {
	case ok := <-b.may:
		if ok {
			return errors.New("connection reset by peer")
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	return read("200 OK", strings.NewReader("output of "+string(r.Sandbox)))
}

// files has the files of home.
type files struct {
	store *job.Store

	mu      sync.Mutex
	input   bool
	fails   error // to be packed
	full    error // why nothing can land
	broken  error // why nothing can come
	here    map[spool.RunID]string
	landed  map[spool.RunID]string
	gone    []spool.RunID // whose sandbox was removed
	dropped int
}

func (f *files) Plan(t *job.Task, _ *api.SubmitRequest, _ int, _ uint64) error {
	f.store.Box(t, &job.Sandbox{Dir: "/boxes/" + t.RunID().String()})
	return nil
}

func (f *files) Pushes(*job.Task, *api.SubmitRequest) bool { return f.input }

func (f *files) PushAway(_ context.Context, _ *job.Task, part api.StagePart, _ string, _ bool, to io.Writer, _ func(), report func(order.Progress)) error {
	if f.fails != nil {
		return f.fails
	}
	n, err := io.WriteString(to, "the "+string(part))
	report(order.Progress{Bytes: int64(n)})
	return err
}

func (f *files) PullAway(ctx context.Context, t *job.Task, open func(context.Context, string, func(io.Reader) error) error, report func(order.Progress)) (string, error) {
	f.mu.Lock()
	text, broken := f.here[t.RunID()], f.broken
	f.mu.Unlock()
	if broken != nil {
		return "", broken
	}
	if text != "" {
		return "root of " + text, nil
	}
	report(order.Progress{})
	err := open(ctx, "", func(r io.Reader) error {
		data, err := io.ReadAll(r)
		text = string(data)
		report(order.Progress{Bytes: int64(len(data))})
		return err
	})
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.here[t.RunID()] = text
	}
	return "root of " + text, err
}

func (f *files) LandAway(_ context.Context, t *job.Task, _ func(order.Progress)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full != nil {
		return f.full
	}
	f.landed[t.RunID()] = f.here[t.RunID()]
	return nil
}

func (f *files) DiscardAway(context.Context, *job.Task) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped++
	return nil
}

func (f *files) Remove(t *job.Task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = append(f.gone, t.RunID())
}

func (f *files) Unbox(*job.Sandbox) {}

// boxed returns the sandboxes of the node in the order of their runs.
func (h *home) boxed() (list []*box) {
	h.node.mu.Lock()
	defer h.node.mu.Unlock()
	ids := make([]api.SandboxID, 0, len(h.node.boxes))
	for id := range h.node.boxes {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b api.SandboxID) int {
		return h.node.begun[a].Home.Task - h.node.begun[b].Home.Task
	})
	for _, id := range ids {
		list = append(list, h.node.boxes[id])
	}
	return list
}

// renewals returns how often the lease of a sandbox was renewed.
func (h *home) renewals(b *box) int {
	h.node.mu.Lock()
	defer h.node.mu.Unlock()
	return b.renewed
}

// send lets the output of a run come.
func (h *home) send(b *box) {
	close(b.may)
	synctest.Wait()
}

func sandboxed(tasks int) api.SubmitRequest {
	r := api.SubmitRequest{Sandbox: api.SandboxYes}
	if tasks > 1 {
		r.Tasks = api.Tasks{First: 1, Last: tasks, Step: 1}
	}
	return r
}

// REQ-XFER-30, REQ-XFER-39, REQ-XFER-41, REQ-XFER-46, REQ-XFER-47, REQ-XFER-48, REQ-XFER-49,
// REQ-XFER-78: when a run is over its job transfers its output, the next one is started under the
// claim before that begins, and no third while two travel. The claim lasts until the last is over.
func TestCarryNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.s.Domain = func() string { return "" } // they share nothing
		j := h.submit(sandboxed(4))
		h.endAll(0)
		h.endAll(0)
		if n := len(h.node.begun); n != 2 || h.node.made != 1 {
			t.Fatalf("%d were begun under %d claims; want two, while two outputs travel", n, h.node.made)
		}
		first, second := -1, -1
		for i, verb := range h.node.log {
			if verb == api.VerbStageOut && first < 0 {
				first = i
			}
			if verb == api.VerbActivate {
				second = i
			}
		}
		if first < 0 || second > first {
			t.Errorf("the pull begins before the next is started: %q", h.node.log)
		}
		for _, task := range h.store.Unfinished() {
			if state := h.store.State(task); state != job.Over {
				t.Errorf("%v is %s", task, state)
			}
		}
		time.Sleep(3 * idleFor)
		synctest.Wait()
		if len(h.node.begun) != 2 || len(h.node.claims) != 1 {
			t.Fatalf("%d were begun, and %d claims are held", len(h.node.begun), len(h.node.claims))
		}
		boxes := h.boxed()
		h.send(boxes[1])
		if len(h.node.begun) != 3 || boxes[1].done == "" || boxes[0].done != "" {
			t.Errorf("%d were begun when one has arrived", len(h.node.begun))
		}
		h.send(boxes[0])
		h.endAll(0)
		h.endAll(0)
		for _, b := range h.boxed()[2:] {
			h.send(b)
		}
		if len(h.lines()) != 4 || h.store.Get(j.Number) != nil || h.node.made != 1 || len(h.files.landed) != 4 || len(h.files.gone) != 4 {
			t.Errorf("%d lines, %d claims, %d have landed, %d sandboxes are gone", len(h.lines()), h.node.made, len(h.files.landed), len(h.files.gone))
		}
		for _, rec := range h.lines() {
			if rec.Failed != 0 || rec.CPU != 4 || rec.Hostname != "node" {
				t.Errorf("%+v", rec)
			}
		}
	})
}

// Without more work a claim is given back, and the output that travels is kept under a lease of
// its own, which is renewed.
func TestCarryDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.submit(sandboxed(1))
		h.endAll(7)
		time.Sleep(2 * idleFor)
		synctest.Wait()
		if len(h.node.claims) != 0 || h.node.kept != 1 || h.records() != 0 {
			t.Fatalf("%d claims are held, %d released with output, %d recorded", len(h.node.claims), h.node.kept, h.records())
		}
		time.Sleep(3 * wanted * time.Second)
		synctest.Wait()
		b := h.boxed()[0]
		if n := h.renewals(b); n < 6 || len(h.lines()) != 0 {
			t.Errorf("its lease was renewed %d times; %d lines", n, len(h.lines()))
		}
		// An execd that is started anew goes on with it.
		h.stop()
		h.begin()
		synctest.Wait()
		was := h.renewals(b)
		time.Sleep(wanted * time.Second)
		synctest.Wait()
		if n := h.renewals(b) - was; n < 2 {
			t.Errorf("after the restart its lease was renewed %d times", n)
		}
		h.send(b)
		if l := h.lines(); len(l) != 1 || l[0].ExitStatus != 7 || b.done == "" {
			t.Errorf("%+v, done %q", l, b.done)
		}
	})
}

// What cannot land waits until somebody has looked; meanwhile its host knows that, and it counts
// no more. What somebody deletes is discarded on both hosts.
func TestCarryStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.files.full = &exit.Permanent{Errno: int(syscall.EACCES), Err: errors.New("cannot open /there")}
		h.submit(sandboxed(4))
		for range 3 {
			h.endAll(0)
			for _, b := range h.boxed() {
				select {
				case <-b.may:
				default:
					h.send(b)
				}
			}
		}
		if len(h.node.begun) != 4 {
			t.Fatalf("%d were begun: what is stuck counts", len(h.node.begun))
		}
		stuck := 0
		for _, task := range h.store.Unfinished() {
			if s := h.store.Stuck(task); s != nil && s.Errno == int(syscall.EACCES) && strings.Contains(s.Text, "/there") {
				stuck++
			}
		}
		if b := h.boxed()[0]; stuck != 3 || b.stuck == "" || b.done != "" {
			t.Fatalf("%d are stuck, %+v", stuck, b)
		}
		h.files.mu.Lock()
		h.files.full = nil
		h.files.mu.Unlock()
		task := h.store.Unfinished()[0]
		if err := h.store.Unstick(task); err != nil {
			t.Fatal(err)
		}
		h.s.Look(task)
		synctest.Wait()
		if len(h.lines()) != 1 || h.boxed()[0].done == "" {
			t.Errorf("%d lines when somebody has looked", len(h.lines()))
		}
		task = h.store.Unfinished()[0]
		if _, err := h.store.GiveUp(task, job.Want{By: "anna", Signal: 9}); err != nil {
			t.Fatal(err)
		}
		h.s.Look(task)
		synctest.Wait()
		l := h.lines()
		if len(l) != 2 || l[1].Failed != 111 || !strings.Contains(l[1].Reason, "anna") || h.files.dropped != 1 || h.boxed()[1].discarded == "" {
			t.Errorf("%+v; %d dropped, %+v", l, h.files.dropped, h.boxed()[1])
		}
	})
}

// stopWhileCut has a job leave output, cuts it off on its way, and stops this execd.
func (h *home) stopWhileCut() *box {
	h.submit(sandboxed(1))
	h.endAll(0)
	b := h.boxed()[0]
	b.may <- true // the connection is cut
	synctest.Wait()
	h.stop()
	return b
}

// wantDelivered holds that the only job has run once, and its output has arrived and been told so.
func (h *home) wantDelivered(b *box) {
	h.t.Helper()
	synctest.Wait()
	if l := h.lines(); len(l) != 1 || l[0].Failed != 0 || len(h.node.begun) != 1 || b.done == "" {
		h.t.Errorf("%+v after %d runs, done %q", l, len(h.node.begun), b.done)
	}
}

// REQ-XFER-71: home is started anew while output travels, has arrived, or its host was told so:
// the run counts once, and is not repeated.
func TestCarryRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		b := h.stopWhileCut()
		h.begin()
		synctest.Wait()
		if task := h.store.Unfinished()[0]; h.store.State(task) != job.Over || len(h.lines()) != 0 {
			t.Fatalf("%v is %s", task, h.store.State(task))
		}
		h.change(func(n *node) { n.down = true })
		close(b.may)
		time.Sleep(time.Minute)
		h.change(func(n *node) { n.down = false })
		time.Sleep(time.Minute)
		h.wantDelivered(b)
	})
}

// The output of a job is here, and its host tells the end no more, since nobody was there to hear it
// before the lease was over: the job has ended as it was said when it was over.
func TestCarryForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		b := h.stopWhileCut()
		h.node.forgets = true
		close(b.may)
		h.begin()
		time.Sleep(time.Minute)
		h.wantDelivered(b)
	})
}

// REQ-XFER-73: output that its host has no more is lost, and its job runs again if it may.
func TestCarryLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		req := sandboxed(1)
		req.Rerun = api.RerunYes
		h.submit(req)
		h.endAll(0)
		time.Sleep(2 * idleFor)
		synctest.Wait()
		h.change(func(n *node) {
			for _, b := range n.boxes {
				b.lost = true
			}
		})
		h.boxed()[0].may <- true
		time.Sleep(time.Minute)
		synctest.Wait()
		l := h.lines()
		if len(l) != 1 || l[0].Failed != 112 || !strings.Contains(l[0].Reason, "its output is lost") || len(h.node.begun) != 2 || h.files.dropped != 1 {
			t.Fatalf("%+v, %d runs, what has come in part was removed %d times", l, len(h.node.begun), h.files.dropped)
		}
		// The host gives it up, and says so.
		h.endAll(0)
		h.change(func(n *node) {
			for id, b := range n.boxes {
				if b.lost || b.end == nil {
					continue
				}
				b.lost = true
				end := *b.end
				end.Failed, end.Reason = 111, "the lease of its claim is over"
				n.say(api.ActivationEvent{Sandbox: id, Kind: api.ActivationFinal, End: &end})
			}
		})
		for _, b := range h.boxed() {
			select {
			case b.may <- true:
			default:
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if l := h.lines(); len(l) != 2 || l[1].Failed != 112 || !strings.Contains(l[1].Reason, "the lease of its claim is over") || len(h.node.begun) != 3 {
			t.Fatalf("%+v, %d runs", l, len(h.node.begun))
		}
		// It says so before it was heard that the job was over.
		h.change(func(n *node) {
			for id, b := range n.boxes {
				if !b.lost {
					n.end(id, 111, 0, "")
				}
			}
		})
		if l := h.lines(); len(l) != 3 || l[2].Failed != 112 || !strings.Contains(l[2].Reason, "its output is lost") || len(h.node.begun) != 4 {
			t.Errorf("%+v, %d runs", l, len(h.node.begun))
		}
	})
}

// A host that does not let this one ask for a while is told that output has arrived when it does.
func TestCarryDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.submit(sandboxed(1))
		h.endAll(0)
		b := h.boxed()[0]
		h.change(func(*node) { b.denied = true })
		h.send(b)
		time.Sleep(time.Minute)
		h.change(func(*node) { b.denied = false })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if l := h.lines(); len(l) != 1 || l[0].Failed != 0 || b.done == "" {
			t.Errorf("%+v, done %q", l, b.done)
		}
	})
}

// A job that is deleted as it comes to its own end has not delivered its output, and says so.
func TestCarryDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		j := h.submit(sandboxed(1))
		h.change(func(n *node) { n.down = true })
		kill := func(t *job.Task) { h.s.Look(t) }
		if _, err := h.store.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{fmt.Sprint(j.Number)}}, job.Caller{Name: "anna", UID: 1001}, kill); err != nil {
			t.Fatal(err)
		}
		h.endAll(0)
		h.change(func(n *node) { n.down = false })
		time.Sleep(time.Minute)
		synctest.Wait()
		h.send(h.boxed()[0])
		if l := h.lines(); len(l) != 1 || l[0].Failed != 111 || !strings.Contains(l[0].Reason, "deleted by anna while its output was transferred") {
			t.Errorf("%+v", l)
		}
	})
}

// What an earlier execd has left may have a lease that is nearly over: it is renewed soon.
func TestCarryRenewedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.submit(sandboxed(1))
		h.stop()
		h.begin()
		synctest.Wait()
		seen := 0
		h.change(func(n *node) { seen = len(n.log) })
		time.Sleep(2 * time.Second)
		h.change(func(n *node) {
			if !slices.Contains(n.log[seen:], api.VerbRenewAll) {
				t.Error("it is not renewed")
			}
		})
	})
}

// REQ-XFER-5: what a job needs is pushed; what cannot be packed has it wait for somebody to look.
func TestCarryInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.files.input = true
		h.submit(sandboxed(1))
		if b := h.boxed()[0]; b.got != "the input" {
			t.Errorf("%q has come", b.got)
		}
		h.endAll(0)
		h.send(h.boxed()[0])
		h.files.fails = &exit.Permanent{Errno: int(syscall.ENOENT), Err: errors.New("cannot open /data")}
		j := h.submit(sandboxed(1))
		time.Sleep(time.Minute)
		synctest.Wait()
		if held := h.store.Running(j); held != 0 || len(h.node.killed) != 1 {
			t.Errorf("%d run, %d were ended there", held, len(h.node.killed))
		}
		if len(h.lines()) != 1 || len(h.files.gone) != 2 {
			t.Errorf("%d lines, %d sandboxes are gone", len(h.lines()), len(h.files.gone))
		}
	})
}

// A host that holds its slot until output has gone holds it also for a home that was started anew
// meanwhile: the claim is neither given back nor used for the next before.
func TestCarryHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.node.holds = true
		h.submit(sandboxed(2))
		h.endAll(0)
		for range 2 {
			time.Sleep(3 * idleFor)
			synctest.Wait()
			if len(h.node.begun) != 1 || len(h.node.claims) != 1 || h.node.kept != 0 {
				t.Fatalf("%d were begun, %d claims are held, %d were released with output", len(h.node.begun), len(h.node.claims), h.node.kept)
			}
			h.stop()
			h.begin()
			synctest.Wait()
		}
		h.send(h.boxed()[0])
		if len(h.lines()) != 1 || len(h.node.begun) != 2 || h.node.made != 1 {
			t.Errorf("%d lines, %d were begun under %d claims", len(h.lines()), len(h.node.begun), h.node.made)
		}
		h.endAll(0)
		h.send(h.boxed()[1])
		if len(h.lines()) != 2 {
			t.Errorf("%d lines", len(h.lines()))
		}
	})
}

// Output that is stuck is given up when its time has come, and no later.
func TestCarryExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.keep = 100 * time.Minute
		h.files.full = &exit.Permanent{Errno: int(syscall.EACCES), Err: errors.New("cannot open /there")}
		h.submit(sandboxed(1))
		h.endAll(0)
		h.send(h.boxed()[0])
		time.Sleep(h.keep - time.Second)
		synctest.Wait()
		if l := h.lines(); len(l) != 0 {
			t.Fatalf("it is given up too early: %+v", l)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if l := h.lines(); len(l) != 1 || l[0].Failed != 111 || !strings.Contains(l[0].Reason, "stuck for") {
			t.Errorf("%+v", l)
		}
	})
}

// Output that is stuck, and nothing of which is here, is lost when the lease is under which its
// host has it, and no later.
func TestCarryStuckLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.files.broken = &exit.Permanent{Errno: int(syscall.EACCES), Err: errors.New("cannot open /there")}
		h.submit(sandboxed(1))
		h.endAll(0)
		time.Sleep(2 * idleFor)
		h.change(func(n *node) { n.down = true })
		time.Sleep(wanted * time.Second)
		synctest.Wait()
		if l := h.lines(); len(l) != 0 {
			t.Fatalf("it is lost too early: %+v", l)
		}
		time.Sleep(renewPatience + killing + wanted*time.Second/100 + time.Minute)
		synctest.Wait()
		if l := h.lines(); len(l) != 1 || l[0].Failed != 112 {
			t.Errorf("%+v", l)
		}
	})
}

// A job that has something brought by a URL is asked for where a plugin takes that, and nowhere
// else.
func TestCarryURLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.node.methods = "data,http,https"
		req := sandboxed(1)
		req.StageIn = []api.Staged{{Place: "s3://there/a"}, {Place: "/b"}}
		j := h.submit(req)
		time.Sleep(2 * refusedFor)
		synctest.Wait()
		if why := h.s.Why(j); len(h.node.asked) != 0 || why != "node: no plugin there takes s3://" {
			t.Errorf("a claim was asked for %d times; it waits for: %q", len(h.node.asked), why)
		}
		req.StageIn[0].Place = "http://there/a"
		req.StageOut = []api.Staged{{Name: "a", Place: "s3://there/b"}}
		h.submit(req)
		if len(h.node.begun) != 1 {
			t.Errorf("%d were begun", len(h.node.begun))
		}
	})
}
