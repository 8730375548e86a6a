package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/test/harness"
)

// shadow is the execd of desk, another host that submits, as node sees it, for a job of a user.
type shadow struct {
	*pool
	m      material
	user   string
	node   *api.Client // for itself
	claims *api.Client // for the user
	counts uint64

	cursor string
	acks   []api.Ack
	unread []api.ActivationEvent // that came with one which was awaited
}

// newShadow returns that of a pool whose hosts are up.
func (p *pool) newShadow() *shadow {
	p.t.Helper()
	p.state(api.PeerUp, "")
	s := &shadow{pool: p, m: materialOf(p.t, p.pool(p.t, p.login.dir, "host", "desk", "-submit")), user: username(p.t)}
	if second != nil {
		s.user = second.Name
	}
	s.node, s.claims = s.client(""), s.client(s.user)
	return s
}

// username is the name of the user who runs the test.
func username(t *testing.T) string {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}

// client asks node as desk, for a user or for itself. Each request has a connection of its
// own.
func (s *shadow) client(user string) *api.Client {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialTLSContext:    func(context.Context, string, string) (net.Conn, error) { return s.dial(s.m) },
	}
	stream := func(ctx context.Context, path string, body io.Reader, read func(string, io.Reader) error) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://node"+path, body)
		if err != nil {
			return err
		}
		if user != "" {
			r.Header.Set("Paddock-User", user)
		}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		return read(answer.Status, answer.Body)
	}
	return api.NewClientOver("node", func(ctx context.Context, path string, body []byte, read func(string, io.Reader) error) error {
		return stream(ctx, path, bytes.NewReader(body), read)
	}, stream)
}

// reach makes a request until node answers: it may be being started, or so busy that a
// handshake takes too long.
func (s *shadow) reach(what string, request func() error) {
	s.t.Helper()
	if err := harness.WaitFor(patience, what, func() (bool, error) {
		err := request()
		if errors.Is(err, api.ErrUnreachable) {
			return false, nil
		}
		return err == nil, err
	}); err != nil {
		s.t.Fatalf("%v\n%s", err, s.pool.node.Log())
	}
}

// claim claims a slot for the user.
func (s *shadow) claim() (c *api.Claim) {
	s.t.Helper()
	s.reach("a claim", func() (err error) {
		c, err = s.claims.Claim(s.ctx, api.ClaimRequest{})
		return err
	})
	return c
}

// next is the next activation of a claim, with a command and the numbers of a job.
func (s *shadow) next(c *api.Claim, home *api.Home, command string) api.ActivateRequest {
	s.counts++
	return api.ActivateRequest{Request: s.sh(command), Sandbox: api.NewSandboxID(c.Reply.ID, s.counts), Home: home}
}

// start begins an activation.
func (s *shadow) start(c *api.Claim, r api.ActivateRequest) int {
	s.t.Helper()
	reply, err := c.Activate(s.ctx, r)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.pool.node.Log())
	}
	return reply.Job
}

// follow asks for events once, and is to acknowledge them with the next request.
func (s *shadow) follow() []api.ActivationEvent {
	s.t.Helper()
	var reply api.FollowReply
	s.reach("an answer", func() (err error) {
		reply, err = s.node.Follow(s.ctx, api.FollowRequest{Cursor: s.cursor, Acks: s.acks})
		return err
	})
	s.cursor, s.acks = reply.Cursor, nil
	for _, e := range reply.Events {
		s.acks = append(s.acks, api.Ack{Sandbox: e.Sandbox, Seq: e.Seq})
	}
	return reply.Events
}

// await waits for an event of an activation, and returns it. It fails the test if another one
// of an activation comes twice, or in the wrong order.
func (s *shadow) await(id api.SandboxID, kind api.ActivationKind) api.ActivationEvent {
	s.t.Helper()
	last := uint64(0)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		events := s.unread
		if s.unread = nil; len(events) == 0 {
			events = s.follow()
		}
		for i, e := range events {
			if e.Seq <= last {
				s.t.Errorf("event %d after %d", e.Seq, last)
			}
			if last = e.Seq; e.Sandbox == id && e.Kind == kind {
				s.unread = events[i+1:]
				return e
			}
		}
	}
	s.t.Fatalf("no event %q of %s\n%s", kind, id, s.pool.node.Log())
	return api.ActivationEvent{}
}

// quick has updates come at once.
const quick = "STARTER_INITIAL_UPDATE_INTERVAL = 1\nSTARTER_UPDATE_INTERVAL = 1\n"

// REQ-FLOW-9, REQ-FLOW-11, REQ-FLOW-12, REQ-FLOW-13, REQ-FLOW-14, REQ-FLOW-18, REQ-FLOW-102, REQ-FLOW-106: what
// becomes of a job is told by the clock of UPDATE_JOB_INFO, when it is suspended and at
// its end, and the job sees the numbers of the submit host alone.
func TestFollow(t *testing.T) {
	parallel(t)
	if second == nil && os.Geteuid() == 0 {
		t.Skip("work of other hosts never runs as root")
	}
	s := newPool(t, knobsOf{node: quick}).newShadow()
	c := s.claim()
	home := &api.Home{Job: 4712, Task: 3, Run: 1, Array: api.Tasks{First: 1, Last: 9, Step: 2}, Host: "forged"}
	r := s.next(c, home, `echo $JOB_ID.$SGE_TASK_ID.$SGE_TASK_LAST.$RESTARTED $SGE_O_HOST; touch u/up; while ! test -e u/go; do sleep 0.4; done; exit 3`)
	r.Request.Stdout, r.Request.Cwd = "", s.pool.node.dir+"/u"
	r.Request.Args[1] = strings.ReplaceAll(r.Request.Args[1], "u/", "")
	number := s.start(c, r)
	if e := s.await(r.Sandbox, api.ActivationStarted); e.Job != number || e.Time.IsZero() {
		t.Errorf("started: %+v", e)
	}
	s.file("u/up")
	e := s.await(r.Sandbox, api.ActivationUpdate)
	for _, want := range []string{`JobState = "Running"`, "RemoteUserCpu = ", "RemoteSysCpu = ", "ImageSize = ", "JobInfoMaxInterval = 1\n"} {
		if !strings.Contains(e.Ad, want) {
			t.Errorf("update: %s has not %s", e.Ad, want)
		}
	}
	if _, err := c.Suspend(s.ctx); err != nil {
		t.Fatal(err)
	}
	if e = s.await(r.Sandbox, api.ActivationSuspended); !strings.Contains(e.Ad, `JobState = "Suspended"`) {
		t.Errorf("suspended: %+v", e)
	}
	if state, err := s.node.RunState(s.ctx, api.RunStateRequest{Sandbox: r.Sandbox}); err != nil || state.State != api.RunSuspended || state.Job != number {
		t.Errorf("%+v, %v; want it suspended", state, err)
	}
	if _, err := c.Continue(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.await(r.Sandbox, api.ActivationResumed)
	if out := s.pool.node.run("qstat", "-j", fmt.Sprint(number)); !strings.Contains(out, "desk 4712.3") {
		t.Errorf("qstat -j:\n%s", out)
	}
	if out := s.pool.node.run("qhost", "-slots"); !strings.Contains(out, "desk 4712.3") {
		t.Errorf("qhost -slots:\n%s", out)
	}
	write(t, s.pool.node.dir+"/u/go", "", 0o644)
	if e := s.await(r.Sandbox, api.ActivationOver).End; e == nil || e.Exit != 3 || e.Failed != 0 || e.Cause != "exit" {
		t.Errorf("over: %+v", e)
	}
	// The slot takes the next one now, whatever is acknowledged.
	after := s.next(c, &api.Home{Job: 4713, Task: 1}, "exit 0")
	s.start(c, after)
	e = s.await(r.Sandbox, api.ActivationFinal)
	line, err := accounting.Parse([]byte(e.End.Accounting))
	if err != nil || line.JobNumber != number || line.ExitStatus != 3 || line.Account != "from=desk" || !strings.Contains(e.Ad, "ExitCode = 3") {
		t.Errorf("final: %+v, %+v, %v", e, line, err)
	}
	s.await(after.Sandbox, api.ActivationFinal)
	s.acknowledge()
	s.settled(number)
	if text := read(t, s.pool.node.dir+"/u/held.o4712.3"); text != "4712.3.9.1 desk\n" {
		t.Errorf("the job said %q", text)
	}
	for _, want := range []string{`started: pid=`, `ended: failed=0 exit=3`} {
		if log := s.pool.node.Log(); !strings.Contains(log, want) || !strings.Contains(log, `from="desk 4712.3"`) {
			t.Errorf("the log has not %q and the submit host's numbers:\n%s", want, log)
		}
	}
	// What has ended is not started again.
	if _, err := c.Activate(s.ctx, r); api.RefusalOf(err) != api.RefusedFenced {
		t.Errorf("activated again: %v", err)
	}
}

// acknowledge sends what is to be acknowledged, and does not wait.
func (s *shadow) acknowledge() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan error, 1)
	request := api.FollowRequest{Cursor: s.cursor, Acks: s.acks}
	go func() {
		_, err := s.node.Follow(ctx, request)
		done <- err
	}()
	s.acks = nil
	for _, a := range request.Acks {
		if err := harness.WaitFor(patience, "it to be acknowledged", func() (bool, error) {
			state, err := s.node.RunState(s.ctx, api.RunStateRequest{Sandbox: a.Sandbox})
			return state.State != api.RunFinal && state.State != api.RunGone, err
		}); err != nil {
			s.t.Fatal(err)
		}
	}
	cancel()
	select {
	case <-done:
	case <-time.After(patience):
	}
}

// settled waits until node has no record of a job any more.
func (s *shadow) settled(number int) {
	s.t.Helper()
	record := filepath.Join(api.DevPlaces(s.pool.node.dir).Spool, "jobs", fmt.Sprint(number))
	if err := harness.WaitFor(patience, "the record to go", func() (bool, error) {
		_, err := os.Stat(record)
		return os.IsNotExist(err), nil
	}); err != nil {
		s.t.Fatalf("%v\n%s", err, s.pool.node.Log())
	}
}

// An activation that is repeated, since the answer was lost or several times at once, gives
// the same job, also after kill -9 of execd; one that was given up starts none, ever.
func TestActivateTwice(t *testing.T) {
	parallel(t)
	if second == nil && os.Geteuid() == 0 {
		t.Skip("work of other hosts never runs as root")
	}
	s := newPool(t, knobsOf{}).newShadow()
	c := s.claim()
	r := s.next(c, &api.Home{Job: 7, Task: 1}, "echo ran >>u/ran; exec sleep 1000")
	numbers := make([]int, 8)
	var group sync.WaitGroup
	for i := range numbers {
		group.Go(func() {
			reply, err := s.claims.ClaimOf(c.Reply.ID).Activate(s.ctx, r)
			if err != nil {
				t.Error(err)
			}
			numbers[i] = reply.Job
		})
	}
	group.Wait()
	for _, n := range numbers {
		if n != numbers[0] {
			t.Fatalf("the jobs are %v", numbers)
		}
	}
	s.file("u/ran")
	s.pool.node.Daemon.Kill()
	s.pool.node.begin()
	s.state(api.PeerUp, "")
	if again := s.start(c, r); again != numbers[0] {
		t.Errorf("after the restart: job %d; want %d", again, numbers[0])
	}
	s.await(r.Sandbox, api.ActivationStarted)
	known := api.RunStateRequest{ID: c.Reply.ID, Sandbox: r.Sandbox, Fence: true}
	if state, err := s.node.RunState(s.ctx, known); err != nil || state.State != api.RunRunning || state.Fenced {
		t.Errorf("a fence for what runs: %+v, %v", state, err)
	}
	if _, err := c.Deactivate(s.ctx, api.Forcible); err != nil {
		t.Fatal(err)
	}
	e := s.await(r.Sandbox, api.ActivationFinal)
	if e.End.Failed == 0 {
		t.Errorf("killed: %+v", e.End)
	}
	if text := read(t, s.pool.node.dir+"/u/ran"); text != "ran\n" {
		t.Errorf("it ran: %q", text)
	}

	// One that never came is given up.
	lost := s.next(c, &api.Home{Job: 8, Task: 1}, "echo ran >>u/lost")
	fence := api.RunStateRequest{ID: c.Reply.ID, Sandbox: lost.Sandbox, Fence: true}
	for range 2 {
		if state, err := s.node.RunState(s.ctx, fence); err != nil || state.State != api.RunUnknown || !state.Fenced || state.Over {
			t.Fatalf("%+v, %v; want it fenced", state, err)
		}
		s.pool.node.Daemon.Kill()
		s.pool.node.begin()
		s.state(api.PeerUp, "")
	}
	if _, err := c.Activate(s.ctx, lost); api.RefusalOf(err) != api.RefusedFenced {
		t.Errorf("what was given up: %v", err)
	}
	next := s.next(c, &api.Home{Job: 9, Task: 1}, "true")
	s.start(c, next)
	s.await(next.Sandbox, api.ActivationFinal)
	if err := c.Release(s.ctx); err != nil {
		t.Fatal(err)
	}
	if state, err := s.node.RunState(s.ctx, fence); err != nil || state.State != api.RunUnknown || !state.Fenced || !state.Over {
		t.Errorf("%+v, %v; want it to say that the claim is over", state, err)
	}
	fences := filepath.Join(api.DevPlaces(s.pool.node.dir).Spool, "fences")
	if err := harness.WaitFor(patience, "the fence to go", func() (bool, error) {
		entries, err := os.ReadDir(fences)
		return len(entries) == 0, err
	}); err != nil {
		t.Error(err)
	}
}

// REQ-FLOW-16, REQ-FLOW-17: the end of a job is told until it is acknowledged, also by the next execd; when its claim
// is over, for as long as a lease.
func TestEndIsKept(t *testing.T) {
	t.Parallel()
	if second == nil && os.Geteuid() == 0 {
		t.Skip("work of other hosts never runs as root")
	}
	s := newPool(t, knobsOf{}).newShadow()
	c := s.claim()
	r := s.next(c, &api.Home{Job: 7, Task: 1}, "while ! test -e u/go; do sleep 0.4; done; exit 5")
	number := s.start(c, r)
	s.await(r.Sandbox, api.ActivationStarted)
	s.pool.node.Daemon.Kill() // the job ends while there is none
	write(t, s.pool.node.dir+"/u/go", "", 0o644)
	if err := harness.WaitFor(patience, "the end of the job", func() (bool, error) {
		_, err := s.active(number).ExitStatus()
		return err == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.pool.node.begin()
		s.state(api.PeerUp, "")
		e := s.await(r.Sandbox, api.ActivationFinal)
		line, err := accounting.Parse([]byte(e.End.Accounting))
		if e.End.Exit != 5 || e.End.Ended.IsZero() || err != nil || line.JobNumber != number {
			t.Errorf("final: %+v, %+v, %v", e.End, line, err)
		}
		s.acks = nil // they do not arrive
		s.pool.node.Daemon.Kill()
	}
	s.pool.node.begin()
	s.state(api.PeerUp, "")
	s.await(r.Sandbox, api.ActivationFinal)
	s.acknowledge()
	s.settled(number)
	if out := s.pool.node.run("qacct", "-j", fmt.Sprint(number)); strings.Count(out, "jobnumber") != 1 {
		t.Errorf("qacct:\n%s", out)
	}

	// Nobody acknowledges, and the lease ends.
	s = newPool(t, knobsOf{node: "ALIVE_INTERVAL = 15\nMAX_CLAIM_ALIVES_MISSED = 1\n"}).newShadow()
	c = s.claim()
	r = s.next(c, &api.Home{Job: 8, Task: 1}, "exec sleep 1000")
	number = s.start(c, r)
	if e := s.await(r.Sandbox, api.ActivationFinal).End; e.Failed != 112 && e.Failed != 100 {
		t.Errorf("at the end of its lease: %+v", e)
	}
	s.acks = nil
	s.settled(number)
	if state, err := s.node.RunState(s.ctx, api.RunStateRequest{Sandbox: r.Sandbox}); err != nil || state.State != api.RunUnknown {
		t.Errorf("forgotten: %+v, %v", state, err)
	}
}

// Who hears that a job is over may activate the claim again: that is so while its output is on
// its way, unless the slot is kept until it has arrived.
func TestFollowOutput(t *testing.T) {
	parallel(t)
	if second == nil && os.Geteuid() == 0 {
		t.Skip("work of other hosts never runs as root")
	}
	for knobs, over := range map[string]bool{"": true, "ASYNC_STAGEOUT = false\n": false} {
		s := newPool(t, knobsOf{node: knobs}).newShadow()
		c := s.claim()
		r := s.next(c, &api.Home{Job: 7, Task: 1}, "echo out >out")
		r.Request.Cwd, r.Request.Sandbox = s.pool.node.dir+"/u", "y"
		s.start(c, r)
		told := false
		for done := false; !done; {
			for _, e := range s.follow() {
				if told = told || e.Kind == api.ActivationOver; e.Kind == api.ActivationOver || e.Kind == api.ActivationFinal {
					if permit, err := c.Check(s.ctx); err != nil || !permit.Start {
						t.Errorf("%s: %s, and then %+v, %v", knobs, e.Kind, permit, err)
					}
				}
				done = done || e.Kind == api.ActivationFinal
			}
		}
		if told != over {
			t.Errorf("%q: it was told that it is over: %t", knobs, told)
		}
		if text := read(t, s.pool.node.dir+"/u/out"); text != "out\n" {
			t.Errorf("%s: the output is %q", knobs, text)
		}
		next := s.next(c, &api.Home{Job: 8, Task: 1}, "true")
		s.start(c, next)
	}
}

// A user follows what he has activated, without the numbers of another job, which his execd
// does not pass on. Nobody sees, acknowledges or fences another's.
func TestFollowHostile(t *testing.T) {
	parallel(t)
	if second == nil && os.Geteuid() == 0 {
		t.Skip("work of other hosts never runs as root")
	}
	p := newPool(t, knobsOf{login: "CLAIM_USERS = *\n", node: "CLAIM_USERS = *\n"})
	s := p.newShadow()
	c := s.claim()
	r := s.next(c, &api.Home{Job: 7, Task: 1}, "exit 4")
	number := s.start(c, r)
	final := s.await(r.Sandbox, api.ActivationFinal)
	p.asUser(func() {
		remote := p.login.Client.On("node")
		own, err := remote.Claim(p.ctx, api.ClaimRequest{})
		if err != nil {
			t.Error(err)
			return
		}
		forged := s.next(own, &api.Home{Job: 7, Task: 1}, "true")
		if _, err := own.Activate(p.ctx, forged); codeOf(err) != api.CodeDenied || !strings.Contains(err.Error(), "only execd says") {
			t.Errorf("with numbers of a job: %v", err)
		}
		if _, err := own.Activate(p.ctx, api.ActivateRequest{Request: forged.Request, Sandbox: r.Sandbox}); api.RefusalOf(err) != api.RefusedMessage {
			t.Errorf("with an id of another claim: %v", err)
		}
		mine := forged
		mine.Home = nil
		reply, err := own.Activate(p.ctx, mine)
		if err != nil {
			t.Error(err)
			return
		}
		if again, err := own.Activate(p.ctx, mine); err != nil || again.Job != reply.Job {
			t.Errorf("again: %+v, %v; want job %d", again, err, reply.Job)
		}
		cursor := ""
		for done := false; !done; {
			news, err := remote.Follow(p.ctx, api.FollowRequest{Cursor: cursor, Acks: []api.Ack{{Sandbox: r.Sandbox, Seq: final.Seq}}})
			if err != nil {
				t.Error(err)
				return
			}
			for _, e := range news.Events {
				if done = done || e.Kind == api.ActivationFinal; e.Sandbox != mine.Sandbox || e.Job != reply.Job {
					t.Errorf("sees %+v", e)
				}
			}
			cursor = news.Cursor
		}
		if state, err := remote.RunState(p.ctx, api.RunStateRequest{Sandbox: r.Sandbox}); err != nil || state != (api.RunStateReply{State: api.RunUnknown}) {
			t.Errorf("the state of another's: %+v, %v", state, err)
		}
		fence := api.RunStateRequest{ID: withSecret(c.Reply.ID), Sandbox: api.NewSandboxID(c.Reply.ID, 99), Fence: true}
		for range 100 {
			if state, err := remote.RunState(p.ctx, fence); err != nil || state.State != api.RunUnknown {
				t.Errorf("a fence for a claim of another's: %+v, %v", state, err)
				break
			}
		}
		// Of a local user's own claim only its host may be another.
		local, err := p.node.Client.Claim(p.ctx, api.ClaimRequest{NoWait: true})
		if err == nil {
			if _, err := local.Activate(p.ctx, s.next(local, &api.Home{Job: 7, Task: 1}, "true")); codeOf(err) != api.CodeDenied {
				t.Errorf("a user of node with numbers of a job: %v", err)
			}
		}
	})
	entries, err := os.ReadDir(filepath.Join(api.DevPlaces(p.node.dir).Spool, "fences"))
	if err != nil || len(entries) != 0 {
		t.Errorf("%d fences, %v", len(entries), err)
	}
	// It is still to be acknowledged, and the claim to be used.
	if state, err := s.node.RunState(s.ctx, api.RunStateRequest{Sandbox: r.Sandbox}); err != nil || state.State != api.RunFinal || state.Job != number {
		t.Errorf("%+v, %v", state, err)
	}
	next := s.next(c, &api.Home{Job: 8, Task: 1}, "true")
	s.start(c, next)
	s.await(next.Sandbox, api.ActivationFinal)
}
