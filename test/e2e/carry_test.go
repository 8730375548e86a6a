package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/test/harness"
)

// carry is the next activation of a claim whose files travel.
func (s *shadow) carry(c *api.Claim, command string, change func(*api.ActivateRequest)) api.ActivateRequest {
	s.t.Helper()
	r := s.next(c, &api.Home{Job: 4000 + int(s.counts), Task: 1}, command)
	r.Request.Sandbox, r.Request.Cwd, r.Request.Stdout, r.Request.Stderr = api.SandboxYes, "/nowhere", "/nowhere/out", "/nowhere/err"
	r.Carriage = &api.Carriage{Key: api.NewSandboxKey()}
	if change != nil {
		change(&r)
	}
	return r
}

// pack is a directory as a stream, behind what the receiver has.
func (s *shadow) pack(dir, have string) []byte {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "execd-transfer"), "pack", "-have", have, dir)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%v: %s", err, said.String())
	}
	return out
}

// have is what there is of a stream that was cut off below a directory.
func (s *shadow) have(dir string) string {
	s.t.Helper()
	out, err := exec.Command(filepath.Join(bin, "execd-transfer"), "unpack", "-have", dir).Output()
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// unpack makes a stream a tree, and returns its root.
func (s *shadow) unpack(stream io.Reader, dir string) (string, error) {
	cmd := exec.Command(filepath.Join(bin, "execd-transfer"), "unpack", dir)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = stream, &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, said.String())
	}
	root, _, _ := strings.Cut(strings.TrimPrefix(string(out), "blake3:"), " ")
	return root, nil
}

// ready asks which part is awaited until node says so, and it is the turn of so many bytes.
func (s *shadow) ready(r *api.ActivateRequest, size int64) api.StageHaveReply {
	s.t.Helper()
	var reply api.StageHaveReply
	s.patiently("node to wait for input", func() (err error) {
		reply, err = s.node.StageHave(s.ctx, api.StageHaveRequest{Sandbox: r.Sandbox, Key: r.Carriage.Key, Bytes: size})
		return err
	})
	return reply
}

// patiently does something until it succeeds, as long as node is away or asks for it.
func (s *shadow) patiently(what string, do func() error) {
	s.t.Helper()
	var last error
	if err := harness.WaitFor(patience, what, func() (bool, error) {
		if last = do(); last == nil {
			return true, nil
		}
		if errors.Is(last, api.ErrUnreachable) || api.RefusalOf(last) == api.RefusedTryAgain {
			return false, nil
		}
		return false, last
	}); err != nil {
		s.t.Fatalf("%s: %v: %v\n%s", what, err, last, s.pool.node.Log())
	}
}

// push pushes a tree as a part.
func (s *shadow) push(r *api.ActivateRequest, part api.StagePart, dir string) api.StageInReply {
	s.t.Helper()
	var reply api.StageInReply
	s.patiently("the input to be taken", func() (err error) {
		state := s.ready(r, 0)
		if state.Part != part {
			return fmt.Errorf("%+v is awaited", state)
		}
		reply, err = s.node.StageIn(s.ctx, api.StageInRequest{Sandbox: r.Sandbox, Key: r.Carriage.Key, Part: part}, bytes.NewReader(s.pack(dir, state.Have)))
		return err
	})
	return reply
}

// pull pulls the output into a directory, and returns its root and how many bytes came.
func (s *shadow) pull(r *api.ActivateRequest, dir string) (root string, n int64) {
	s.t.Helper()
	s.patiently("the output to come", func() error {
		return s.node.StageOut(s.ctx, api.StageOutRequest{Sandbox: r.Sandbox, Key: r.Carriage.Key, Have: s.have(dir)}, func(stream io.Reader) (err error) {
			count := &counting{Reader: stream}
			root, err = s.unpack(count, dir)
			n = count.n
			return err
		})
	})
	return root, n
}

type counting struct {
	io.Reader
	n int64
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	return n, err
}

// done says that the output is durable.
func (s *shadow) done(r *api.ActivateRequest, root string) {
	s.t.Helper()
	s.patiently("node to hear that it is done", func() error {
		return s.node.StageDone(s.ctx, api.StageDoneRequest{Sandbox: r.Sandbox, Key: r.Carriage.Key, Root: root})
	})
}

// file writes a file below a directory that the test has made.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	write(t, filepath.Join(dir, name), text, 0o644)
}

// gone waits until there is no sandbox on node.
func (s *shadow) gone() {
	s.t.Helper()
	if err := harness.WaitFor(patience, "the sandboxes to go", func() (bool, error) {
		left, err := filepath.Glob(filepath.Join(s.pool.node.dir, "spool", "sandboxes", "[0-9]*"))
		return len(left) == 0, err
	}); err != nil {
		s.t.Fatalf("%v\n%s", err, s.pool.node.Log())
	}
}

func needsUser(t *testing.T) {
	t.Helper()
	if second == nil && os.Geteuid() == 0 {
		t.Skip("work of other hosts never runs as root")
	}
}

// REQ-XFER-5, REQ-XFER-27, REQ-XFER-28, REQ-XFER-32, REQ-XFER-33, REQ-XFER-34, REQ-XFER-36: input is pushed before the job
// runs, what it leaves is pulled when it is over, with what it has said, and the claim is
// idle meanwhile. What was pushed and has not changed does not come back.
func TestCarry(t *testing.T) {
	parallel(t)
	needsUser(t)
	s := newPool(t, knobsOf{}).newShadow()
	in, out := t.TempDir(), t.TempDir()
	put(t, in, "data/a", "input\n")
	put(t, in, "b", "same\n")
	put(t, in, api.NameStdin, "stdin\n")
	c := s.claim()
	r := s.carry(c, `pwd; cat; cat data/a; echo err >&2; echo new >data/new; echo more >>data/a; mkdir empty`, func(r *api.ActivateRequest) {
		r.Carriage.Input, r.Request.Stdin = true, "/nowhere/in"
	})
	number := s.start(c, r)
	s.push(&r, api.PartInput, in)
	if again := s.ready(&r, 0); again.Part != api.PartNone {
		t.Errorf("it waits for %+v behind its input", again)
	}
	e := s.await(r.Sandbox, api.ActivationOver)
	if o := e.Outcome; e.End == nil || e.End.Exit != 0 || o == nil || !o.Pull || o.Spool || o.Held {
		t.Fatalf("over: %+v %+v %+v\n%s", e, e.End, e.Outcome, s.pool.node.Log())
	}
	if permit, err := c.Check(s.ctx); err != nil || !permit.Start || permit.Crowded {
		t.Errorf("the claim: %+v, %v", permit, err)
	}
	root, _ := s.pull(&r, out)
	said := read(t, out+"/"+api.NameStdout)
	if dir, rest, _ := strings.Cut(said, "\n"); !strings.HasSuffix(dir, "/files") || rest != "stdin\ninput\n" {
		t.Errorf("it has said %q", said)
	}
	for name, want := range map[string]string{api.NameStderr: "err\n", "data/a": "input\nmore\n", "data/new": "new\n"} {
		if got := read(t, filepath.Join(out, name)); got != want {
			t.Errorf("%s is %q; want %q", name, got, want)
		}
	}
	for _, name := range []string{"b", api.NameStdin} {
		if _, err := os.Lstat(filepath.Join(out, name)); !os.IsNotExist(err) {
			t.Errorf("%s came back: %v", name, err)
		}
	}
	if info, err := os.Stat(out + "/empty"); err != nil || !info.IsDir() {
		t.Errorf("empty: %v", err)
	}
	state, err := s.node.RunState(s.ctx, api.RunStateRequest{Sandbox: r.Sandbox})
	if err != nil || state.State != api.RunOver || state.Carried == nil || state.Carried.Phase != api.CarriedSent {
		t.Errorf("%+v %+v, %v", state, state.Carried, err)
	}
	if err := s.node.StageDone(s.ctx, api.StageDoneRequest{Sandbox: r.Sandbox, Key: r.Carriage.Key, Root: strings.Repeat("0", 64)}); api.RefusalOf(err) != api.RefusedState {
		t.Errorf("another root: %v", err)
	}
	if out := s.pool.node.run("qhost", "-sandboxes"); !strings.Contains(out, "desk") {
		t.Errorf("qhost -sandboxes:\n%s", out)
	}
	for range 3 {
		s.done(&r, root)
	}
	if e := s.await(r.Sandbox, api.ActivationFinal); e.End.Failed != 0 || e.End.Accounting == "" {
		t.Errorf("final: %+v", e.End)
	}
	s.done(&r, root)
	s.gone()
	s.acknowledge()
	s.settled(number)
	s.done(&r, root)
}

// errCut is why a test breaks a stream off.
var errCut = errors.New("cut off by the test")

// cutting is a stream that breaks off behind some bytes.
type cutting struct {
	io.Reader
	left int64
}

func (c *cutting) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errCut
	}
	n, err := c.Reader.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	return n, err
}

// block is the most that may travel twice, with what the form of a stream takes.
const block = 4<<20 + 64<<10

// crash kills the execd of node, and starts the next.
func (s *shadow) crash() {
	s.t.Helper()
	s.pool.node.Daemon.Kill()
	s.pool.node.begin()
}

// ran fails the test unless a command that has logged its runs did so once.
func (s *shadow) ran() {
	s.t.Helper()
	if text := read(s.t, s.pool.node.dir+"/u/ran"); text != "ran\n" {
		s.t.Errorf("it has run %q\n%s", text, s.pool.node.Log())
	}
}

// REQ-XFER-70, REQ-XFER-71, REQ-XFER-72, REQ-XFER-74: whatever breaks off, a connection or the execd
// where the job runs, in whichever phase, the transfer goes on at the last block and the job
// is not run again.
func TestFaultCarryResumes(t *testing.T) {
	parallel(t)
	needsUser(t)
	s := newPool(t, knobsOf{}).newShadow()
	in, out := t.TempDir(), t.TempDir()
	const size = 24 << 20
	big := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	put(t, in, "big", string(big))
	c := s.claim()
	r := s.carry(c, fmt.Sprintf("echo ran >>%[1]s/u/ran; touch %[1]s/u/up; until test -e %[1]s/u/go; do sleep 0.4; done; cat big big >twice; rm big; echo done", s.pool.node.dir), func(r *api.ActivateRequest) {
		r.Carriage.Input = true
	})
	number := s.start(c, r)
	s.ready(&r, size)
	s.crash() // before its input
	pushed := int64(0)
	for _, cut := range []int64{9 << 20, 6 << 20, 1 << 40} {
		s.patiently("the input to come", func() error {
			state := s.ready(&r, size)
			stream := &counting{Reader: &cutting{bytes.NewReader(s.pack(in, state.Have)), cut}}
			_, err := s.node.StageIn(s.ctx, api.StageInRequest{Sandbox: r.Sandbox, Key: r.Carriage.Key, Part: api.PartInput}, stream)
			pushed += stream.n
			if cut < 1<<40 {
				return nil
			}
			return err
		})
		if cut == 6<<20 {
			s.ready(&r, size) // when node has noticed
			s.crash()         // with a part of it
		}
	}
	if pushed > size+2*block {
		t.Errorf("%d bytes were pushed for %d", pushed, size)
	}
	s.await(r.Sandbox, api.ActivationStarted)
	s.file("u/up")
	s.crash() // while it runs
	write(t, s.pool.node.dir+"/u/go", "", 0o644)
	if e := s.await(r.Sandbox, api.ActivationOver); e.Outcome == nil || !e.Outcome.Pull || e.End.Exit != 0 {
		t.Fatalf("over: %+v, %+v", e.End, e.Outcome)
	}
	s.crash() // before it is pulled
	if e := s.await(r.Sandbox, api.ActivationOver); e.Outcome == nil || !e.Outcome.Pull {
		t.Fatalf("over: %+v, %+v", e.End, e.Outcome)
	}
	pulled := int64(0)
	for _, cut := range []int64{9 << 20, 20 << 20} {
		s.patiently("the output to come", func() error {
			return s.node.StageOut(s.ctx, api.StageOutRequest{Sandbox: r.Sandbox, Key: r.Carriage.Key, Have: s.have(out)}, func(stream io.Reader) error {
				n := &counting{Reader: &cutting{stream, cut}}
				_, err := s.unpack(n, out)
				if pulled += n.n; err == nil || n.n < cut {
					t.Errorf("it was not cut off at %d, but at %d: %v", cut, n.n, err)
				}
				return nil
			})
		})
		if cut == 20<<20 {
			s.crash() // with a part of it
		}
	}
	root, n := s.pull(&r, out)
	if pulled += n; pulled > 2*size+3*block {
		t.Errorf("%d bytes were pulled for %d", pulled, 2*size)
	}
	s.crash() // before it is said to be done
	s.done(&r, root)
	s.crash() // before the end is acknowledged
	s.done(&r, root)
	if e := s.await(r.Sandbox, api.ActivationFinal); e.End.Failed != 0 || e.End.Exit != 0 {
		t.Errorf("final: %+v", e.End)
	}
	if got, err := os.ReadFile(out + "/twice"); err != nil || !bytes.Equal(got, append(big, big...)) {
		t.Errorf("the output has %d bytes, %v", len(got), err)
	}
	s.ran()
	s.gone()
	s.acknowledge()
	s.settled(number)
}

// over runs an activation to its end.
func (s *shadow) over(c *api.Claim, command string, change func(*api.ActivateRequest)) api.ActivateRequest {
	s.t.Helper()
	r := s.carry(c, command, change)
	s.start(c, r)
	s.await(r.Sandbox, api.ActivationOver)
	return r
}

// REQ-XFER-38, REQ-XFER-39, REQ-XFER-79, REQ-XFER-102, REQ-XFER-43: with two outputs that wait to be
// pulled a claim takes no other job, whatever the submit host asks, and is kept; when one is
// pulled it does. What is stuck at the submit host does not count.
func TestCarryCap(t *testing.T) {
	parallel(t)
	needsUser(t)
	s := newPool(t, knobsOf{}).newShadow()
	c := s.claim()
	first := s.over(c, "echo 1 >one", nil)
	second := s.over(c, "echo 2 >two", nil)
	if _, err := c.Suspend(s.ctx); err != nil { // nothing runs that could be stopped
		t.Log(err)
	}
	if _, err := c.Continue(s.ctx); err != nil {
		t.Log(err)
	}
	third := s.carry(c, "echo 3 >three", nil)
	for range 3 {
		if _, err := c.Activate(s.ctx, third); api.RefusalOf(err) != api.RefusedTryAgain {
			t.Fatalf("a third activation: %v", err)
		}
	}
	out := t.TempDir()
	root, _ := s.pull(&first, out)
	s.done(&first, root)
	if err := c.Await(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.start(c, third)
	s.await(third.Sandbox, api.ActivationOver)
	stuck := api.StageStuckRequest{Sandbox: second.Sandbox, Key: second.Carriage.Key, Errno: 28, Reason: "no space left"}
	for range 2 {
		s.patiently("node to hear that it is stuck", func() error { return s.node.StageStuck(s.ctx, stuck) })
	}
	if err := c.Await(s.ctx); err != nil {
		t.Fatal(err)
	}
	if err := harness.WaitFor(patience, "it to be shown as stuck", func() (bool, error) {
		state, err := s.node.RunState(s.ctx, api.RunStateRequest{Sandbox: second.Sandbox})
		return err == nil && state.Carried != nil && state.Carried.Phase == api.CarriedStuck && strings.Contains(state.Carried.Failure, "desk: no space left"), err
	}); err != nil {
		t.Fatalf("%v\n%s", err, s.pool.node.Log())
	}
	fourth := s.over(c, "echo 4 >four", nil)
	for _, r := range []*api.ActivateRequest{&second, &third, &fourth} {
		root, _ := s.pull(r, out)
		s.done(r, root)
	}
	for name, want := range map[string]string{"one": "1\n", "two": "2\n", "three": "3\n", "four": "4\n"} {
		if got := read(t, filepath.Join(out, name)); got != want {
			t.Errorf("%s is %q; want %q", name, got, want)
		}
	}
	s.gone()
}

// REQ-XFER-37, REQ-XFER-40, REQ-XFER-73, REQ-XFER-105: output is discarded with its claim when that is
// released or its lease ends, and kept under a lease of its own when its holder asks for
// that, for as long as he renews it, also over a restart.
func TestFaultCarryLeases(t *testing.T) {
	t.Parallel()
	needsUser(t)
	s := newPool(t, knobsOf{node: "ALIVE_INTERVAL = 10\nMAX_CLAIM_ALIVES_MISSED = 1\n"}).newShadow()
	final := func(r *api.ActivateRequest, failed int, reason string) {
		t.Helper()
		if e := s.await(r.Sandbox, api.ActivationFinal); e.End.Failed != failed || !strings.Contains(e.End.Reason, reason) {
			t.Errorf("final: %+v; want the reason %q", e.End, reason)
		}
	}
	// renewing calls renew again and again until it is stopped: a busy host may need longer
	// for what a test does than a lease lasts.
	renewing := func(renew func()) (stop func()) {
		ctx, cancel := context.WithCancel(s.ctx)
		var all sync.WaitGroup
		all.Go(func() {
			for ctx.Err() == nil {
				renew()
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
		return func() { cancel(); all.Wait() }
	}
	// What fails here is seen by what the claim is used for.
	claimed := func() (c *api.Claim, stop func()) {
		c = s.claim()
		return c, renewing(func() { _, _ = c.Renew(s.ctx) })
	}
	// Released without a word.
	c, stop := claimed()
	r := s.over(c, "echo 1 >one", nil)
	if err := c.Release(s.ctx); err != nil {
		t.Fatal(err)
	}
	stop()
	final(&r, 111, "its claim was released")
	// Not wanted any more, while the claim goes on.
	c, stop = claimed()
	r = s.over(c, "echo 1 >one", nil)
	if err := s.node.StageDone(s.ctx, api.StageDoneRequest{Sandbox: r.Sandbox, Key: r.Carriage.Key, Discard: true, Reason: "it was deleted"}); err != nil {
		t.Fatal(err)
	}
	final(&r, 111, "desk: it was deleted")
	// Kept, over a restart, for longer than a lease.
	r = s.over(c, "echo 1 >one", nil)
	if err := c.ReleaseKeeping(s.ctx); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := harness.WaitFor(patience, "the slot to be free", func() (bool, error) {
		return !strings.Contains(s.pool.node.run("qhost", "-slots"), "@desk"), nil
	}); err != nil {
		t.Fatal(err)
	}
	renew := func(o api.SandboxOrder) (api.RenewedSandbox, error) {
		reply, err := s.node.RenewAll(s.ctx, api.RenewAllRequest{Sandboxes: []api.SandboxOrder{o}})
		if err != nil {
			return api.RenewedSandbox{}, err
		}
		return reply.Sandboxes[0], nil
	}
	mine := api.SandboxOrder{Sandbox: r.Sandbox, Key: r.Carriage.Key}
	end := time.Now().Add(12 * time.Second)
	s.crash()
	for time.Now().Before(end) {
		s.patiently("the lease to be renewed", func() error {
			got, err := renew(mine)
			if err == nil && (got.Error != nil || got.Lease != 10) {
				t.Fatalf("renewed: %+v\n%s", got, s.pool.node.Log())
			}
			return err
		})
		time.Sleep(500 * time.Millisecond)
	}
	if state, err := s.node.RunState(s.ctx, api.RunStateRequest{Sandbox: r.Sandbox}); err != nil || state.Carried == nil || !state.Carried.Detached || state.Carried.Lease < 1 {
		t.Errorf("%+v %+v, %v", state, state.Carried, err)
	}
	if got, err := renew(api.SandboxOrder{Sandbox: r.Sandbox, Key: api.NewSandboxKey()}); err != nil || got.Error == nil || got.Error.Refusal != api.RefusedUnknown {
		t.Errorf("renewed with another key: %+v, %v", got, err)
	}
	out := t.TempDir()
	root, _ := s.pull(&r, out)
	s.done(&r, root)
	final(&r, 0, "")
	if text := read(t, out+"/one"); text != "1\n" {
		t.Errorf("the output is %q", text)
	}
	// Kept, since the slot was taken from its holder; and one who asks again, since he does not
	// know that his connection still stands, is not kept waiting by that.
	c, stop = claimed()
	r = s.over(c, "head -c 30000000 /dev/zero >one; head -c 30000000 /dev/urandom >>one", nil)
	stop()
	if err := s.pool.node.Client.Call(s.ctx, api.VerbVacate, &api.VacateRequest{}, &api.VacateReply{}); err != nil {
		t.Fatal(err)
	}
	if err := harness.WaitFor(patience, "it to be detached", func() (bool, error) {
		state, err := s.node.RunState(s.ctx, api.RunStateRequest{Sandbox: r.Sandbox})
		return state.Carried != nil && state.Carried.Detached, err
	}); err != nil {
		t.Fatalf("%v\n%s", err, s.pool.node.Log())
	}
	hangs, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.node.StageOut(s.ctx, api.StageOutRequest{Sandbox: r.Sandbox, Key: r.Carriage.Key}, func(stream io.Reader) error {
			if _, err := io.CopyN(io.Discard, stream, 1<<20); err != nil {
				return err
			}
			close(hangs)
			<-s.ctx.Done()
			return s.ctx.Err()
		})
	}()
	select {
	case <-hangs:
	case err := <-ended:
		t.Fatal(err)
	}
	mine = api.SandboxOrder{Sandbox: r.Sandbox, Key: r.Carriage.Key}
	stop = renewing(func() { _, _ = renew(mine) })
	again := t.TempDir()
	root, _ = s.pull(&r, again)
	stop()
	s.done(&r, root)
	final(&r, 0, "")
	// Kept, and not renewed; and the lease of a claim.
	c, stop = claimed()
	r = s.over(c, "echo 1 >one", nil)
	if err := c.ReleaseKeeping(s.ctx); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := harness.WaitFor(patience, "node to forget it", func() (bool, error) {
		state, err := s.node.RunState(s.ctx, api.RunStateRequest{Sandbox: r.Sandbox})
		return state.State == api.RunUnknown, err
	}); err != nil {
		t.Fatalf("%v\n%s", err, s.pool.node.Log())
	}
	c, stop = claimed()
	r = s.over(c, "echo 1 >one", nil)
	stop()
	final(&r, 111, "the lease of its claim is over")
	s.gone()
}

// A host has its own sandboxes, by their keys, and nobody else has any. What a host says of a
// tree does not lead out of the sandbox, and is no more than may be.
func TestCarryHostile(t *testing.T) {
	parallel(t)
	needsUser(t)
	p := newPool(t, knobsOf{login: "CLAIM_USERS = *\n", node: "CLAIM_USERS = *\nMAX_TRANSFER_INPUT_MB = 1\n"})
	s := p.newShadow()
	c := s.claim()
	r := s.over(c, "echo secret >out", nil)
	login := &shadow{pool: p, m: materialOf(t, p.pool(t, p.login.dir, "host", "login2", "-submit")), user: s.user}
	login.node, login.claims = login.client(""), login.client(login.user)
	nothing := func(io.Reader) error { t.Error("there is an answer"); return nil }
	all := func(what string, by *api.Client, key api.SandboxKey, is func(error) bool) {
		t.Helper()
		_, have := by.StageHave(s.ctx, api.StageHaveRequest{Sandbox: r.Sandbox, Key: key})
		_, in := by.StageIn(s.ctx, api.StageInRequest{Sandbox: r.Sandbox, Key: key, Part: api.PartInput}, strings.NewReader("x"))
		for verb, err := range map[string]error{
			"have": have, "in": in, "out": by.StageOut(s.ctx, api.StageOutRequest{Sandbox: r.Sandbox, Key: key}, nothing),
			"stuck": by.StageStuck(s.ctx, api.StageStuckRequest{Sandbox: r.Sandbox, Key: key}),
		} {
			if !is(err) {
				t.Errorf("%s: %s: %v", what, verb, err)
			}
		}
	}
	unknown := func(err error) bool { return api.RefusalOf(err) == api.RefusedUnknown }
	denied := func(err error) bool { return codeOf(err) == api.CodeDenied }
	all("another key", s.node, api.NewSandboxKey(), unknown)
	all("another host", login.node, r.Carriage.Key, unknown)
	all("a user", s.claims, r.Carriage.Key, denied)
	p.asUser(func() {
		all("a local user", p.node.Client, r.Carriage.Key, denied)
		all("a user by his execd", p.login.Client.On("node"), r.Carriage.Key, denied)
	})
	for _, by := range []*api.Client{s.node, login.node} { // it is done as far as they know
		key := r.Carriage.Key
		if by == s.node {
			key = api.NewSandboxKey()
		}
		_ = by.StageDone(s.ctx, api.StageDoneRequest{Sandbox: r.Sandbox, Key: key, Discard: true})
	}
	out := t.TempDir()
	root, _ := s.pull(&r, out)
	s.done(&r, root)
	if text := read(t, out+"/out"); text != "secret\n" {
		t.Errorf("the output is %q", text)
	}
	for _, bad := range []func(*api.ActivateRequest){
		func(r *api.ActivateRequest) { r.Carriage.Key = "short" },
		func(r *api.ActivateRequest) { r.Home = nil },
		func(r *api.ActivateRequest) { r.Request.Sandbox = "" },
	} {
		if _, err := c.Activate(s.ctx, s.carry(c, "true", bad)); api.RefusalOf(err) != api.RefusedMessage {
			t.Errorf("an activation that none can be: %v", err)
		}
	}

	dir := t.TempDir()
	put(t, dir, "a", "a")
	good := s.pack(dir, "")
	large := t.TempDir()
	put(t, large, "large", strings.Repeat("x", 2<<20))
	name := func(to string) []byte { return bytes.Replace(good, []byte("\x00a\x08"), []byte("\x00"+to+"\x08"), 1) }
	try := func(what string, stream io.Reader, lasting bool) {
		t.Helper()
		r := s.carry(c, "true", func(r *api.ActivateRequest) { r.Carriage.Input = true })
		s.start(c, r)
		s.ready(&r, 0)
		_, err := s.node.StageIn(s.ctx, api.StageInRequest{Sandbox: r.Sandbox, Key: r.Carriage.Key, Part: api.PartInput}, stream)
		if err == nil {
			t.Errorf("%s: it is taken", what)
		}
		if !lasting { // the host may send something else
			s.push(&r, api.PartInput, dir)
			s.await(r.Sandbox, api.ActivationOver)
			root, _ := s.pullIf(&r, t.TempDir())
			s.done(&r, root)
			s.await(r.Sandbox, api.ActivationFinal)
		} else if e := s.await(r.Sandbox, api.ActivationGone); !strings.Contains(e.Reason, "may be") {
			t.Errorf("%s: gone: %q", what, e.Reason)
		}
		if err := c.Await(s.ctx); err != nil {
			t.Fatal(err)
		}
	}
	try("a slash", bytes.NewReader(name("/")), false)
	try("no stream", strings.NewReader("GET / HTTP/1.0\r\n\r\n"), false)
	try("nothing", strings.NewReader(""), false)
	try("a part", bytes.NewReader(good[:len(good)-1]), false)
	try("another", bytes.NewReader(bytes.Replace(good, []byte("pack 2"), []byte("pack 1"), 1)), false)
	try("too large", bytes.NewReader(s.pack(large, "")), true)
	for _, n := range []string{"a", "large"} {
		if _, err := os.Lstat(filepath.Join(p.node.dir, "u", n)); err == nil {
			t.Errorf("%s is outside of the sandbox", n)
		}
	}
	s.gone()
}

// pullIf is pull, unless nothing is to be pulled.
func (s *shadow) pullIf(r *api.ActivateRequest, dir string) (root string, n int64) {
	s.t.Helper()
	state, err := s.node.RunState(s.ctx, api.RunStateRequest{Sandbox: r.Sandbox})
	if err != nil {
		s.t.Fatal(err)
	}
	if state.State == api.RunOver && state.Carried != nil && state.Carried.Phase != api.CarriedNone {
		return s.pull(r, dir)
	}
	return "", 0
}

// REQ-XFER-45: a job that has to leave its slot, and wants to, leaves all that is new to its
// next run, which is pushed behind its input. Of one whose output is not wanted, what it has
// said is pulled alone.
func TestCarrySpool(t *testing.T) {
	parallel(t)
	needsUser(t)
	s := newPool(t, knobsOf{}).newShadow()
	in, spool, out := t.TempDir(), t.TempDir(), t.TempDir()
	put(t, in, "in", "in\n")
	put(t, in, "state", "0\n")
	c := s.claim()
	r := s.carry(c, fmt.Sprintf("echo said; echo 1 >state; mkdir d; echo new >d/new; touch %s/u/up; exec sleep 1000", s.pool.node.dir), func(r *api.ActivateRequest) {
		r.Carriage.Input, r.Request.WhenOut = true, api.OutEvict
		r.Request.StageOut = []api.Staged{{Name: "result", Place: "/nowhere/result"}}
	})
	s.start(c, r)
	s.push(&r, api.PartInput, in)
	s.file("u/up")
	if _, err := c.Deactivate(s.ctx, api.Graceful); err != nil {
		t.Fatal(err)
	}
	if e := s.await(r.Sandbox, api.ActivationOver); e.Outcome == nil || !e.Outcome.Pull || !e.Outcome.Spool {
		t.Fatalf("over: %+v, %+v\n%s", e.End, e.Outcome, s.pool.node.Log())
	}
	root, _ := s.pull(&r, spool)
	s.done(&r, root)
	s.await(r.Sandbox, api.ActivationFinal)
	if _, err := os.Lstat(spool + "/in"); !os.IsNotExist(err) {
		t.Errorf("what has not changed came back: %v", err)
	}
	if text := read(t, spool+"/"+api.NameStdout); text != "said\n" {
		t.Errorf("it has said %q", text)
	}
	for _, name := range []string{api.NameStdout, api.NameStderr} {
		if err := os.Remove(filepath.Join(spool, name)); err != nil {
			t.Fatal(err)
		}
	}
	r = s.carry(c, "cat in state d/new; cat state d/new >result", func(r *api.ActivateRequest) {
		r.Carriage.Input, r.Carriage.Spool, r.Request.WhenOut = true, true, api.OutEvict
		r.Request.StageOut = []api.Staged{{Name: "result", Place: "/nowhere/result"}}
	})
	s.start(c, r)
	s.push(&r, api.PartInput, in)
	s.push(&r, api.PartSpool, spool)
	if e := s.await(r.Sandbox, api.ActivationOver); e.Outcome == nil || !e.Outcome.Pull || e.Outcome.Spool {
		t.Fatalf("over: %+v, %+v", e.End, e.Outcome)
	}
	root, _ = s.pull(&r, out)
	s.done(&r, root)
	for name, want := range map[string]string{api.NameStdout: "in\n1\nnew\n", "result": "1\nnew\n"} {
		if got := read(t, filepath.Join(out, name)); got != want {
			t.Errorf("%s is %q; want %q", name, got, want)
		}
	}
	if _, err := os.Lstat(out + "/state"); !os.IsNotExist(err) {
		t.Errorf("what is not named came, too: %v", err)
	}
	said := t.TempDir()
	r = s.over(c, "echo said; echo no >file; exit 3", func(r *api.ActivateRequest) { r.Request.WhenOut = api.OutSuccess })
	root, _ = s.pull(&r, said)
	s.done(&r, root)
	if text := read(t, said+"/"+api.NameStdout); text != "said\n" {
		t.Errorf("it has said %q", text)
	}
	if _, err := os.Lstat(said + "/file"); !os.IsNotExist(err) {
		t.Errorf("output that is not wanted came: %v", err)
	}
	if e := s.await(r.Sandbox, api.ActivationFinal); e.End.Exit != 3 {
		t.Errorf("final: %+v", e.End)
	}
	s.gone()
}

// REQ-XFER-7, REQ-XFER-44: where output does not travel while the slot works, it is pulled
// before the claim may be activated again. An administrator of the host where a job has run
// deletes it there: its output is given up, and the submit host is told.
func TestCarryHeld(t *testing.T) {
	parallel(t)
	needsUser(t)
	s := newPool(t, knobsOf{node: "ASYNC_STAGEOUT = false\n"}).newShadow()
	c := s.claim()
	r := s.carry(c, "echo 1 >one", nil)
	s.start(c, r)
	if e := s.await(r.Sandbox, api.ActivationOver); e.Outcome == nil || !e.Outcome.Pull || !e.Outcome.Held {
		t.Fatalf("over: %+v", e.Outcome)
	}
	if _, err := c.Activate(s.ctx, s.carry(c, "true", nil)); err == nil {
		t.Error("the claim is activated while its slot is held")
	}
	out := t.TempDir()
	root, _ := s.pull(&r, out)
	s.done(&r, root)
	s.await(r.Sandbox, api.ActivationFinal)
	if text := read(t, out+"/one"); text != "1\n" {
		t.Errorf("the output is %q", text)
	}
	r = s.carry(c, "echo 2 >two", nil)
	number := s.start(c, r)
	s.await(r.Sandbox, api.ActivationOver)
	shown := s.pool.node.run("qstat", "-j", fmt.Sprint(number))
	if !strings.Contains(shown, "to desk") {
		t.Errorf("qstat -j:\n%s", shown)
	}
	s.pool.node.run("qdel", fmt.Sprint(number))
	if e := s.await(r.Sandbox, api.ActivationFinal); e.End.Failed != 111 {
		t.Errorf("final: %+v", e.End)
	}
	s.gone()
}
