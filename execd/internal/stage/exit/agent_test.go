package exit

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// agent is a controller as one for a submit host will be: it has a connection
// that may break, a transfer, and somebody who ends the activation. Time and
// network are the test's.
type agent struct {
	Base
	t        *testing.T
	p        *Pipeline
	trace    []string
	link     bool // connected
	transfer *Transfer
	done     func(error) // of the transfer that runs
	queued   []func()    // events that wait for their turn
	lease    time.Duration

	noWork      bool
	notify      Marks
	knowsFinal  bool // the agent says that nothing further comes
	deactivated bool
	ended       bool
}

func newAgent(t *testing.T) *agent {
	a := &agent{t: t, link: true, lease: 40 * time.Minute}
	a.p = ended(a)
	a.transfer = &Transfer{
		Most:  MaxTransfers,
		Code:  HoldOutput,
		Start: func(done func(error)) { a.note("transfer begins"); a.done = done },
		Event: func(f func()) { a.queued = append(a.queued, func() { f(); a.enter() }) },
		Lost:  func(int, error) { a.link = false },
	}
	return a
}

func (a *agent) note(s string) { a.trace = append(a.trace, s) }

// enter is the one way in.
func (a *agent) enter() Result {
	a.note("enter")
	result, _ := a.p.AllDone()
	return result
}

// finish ends the transfer that runs, and has its events happen.
func (a *agent) finish(err error) {
	done := a.done
	a.done = nil
	done(err)
	for len(a.queued) > 0 {
		event := a.queued[0]
		a.queued = a.queued[1:]
		event()
	}
}

// reconnect is the agent's request.
func (a *agent) reconnect() Result {
	a.link, a.lease = true, 40*time.Minute
	a.transfer.Reconnected()
	return a.enter()
}

// wait lets time pass. Without a connection the lease ends it all.
func (a *agent) wait(d time.Duration) {
	if a.lease -= d; a.lease <= 0 {
		a.ended = true
	}
}

func (a *agent) Hook() (Result, error) { a.note("hook"); return Done, nil }

func (a *agent) Transfer() (Result, error) {
	if a.noWork {
		return Nothing, nil
	}
	return a.transfer.Step()
}

func (a *agent) Notify(Process) (Result, error) {
	one := func(name string) Step {
		return Step{name, func() (Result, error) {
			if name == "remote exit" && !a.link {
				return Failed, errors.New("waits: reconnect")
			}
			a.note(name)
			return Done, nil
		}}
	}
	return a.notify.Run([]Step{one("event log"), one("final ad"), one("remote exit")})
}

func (a *agent) Gone() (Result, error) {
	if !a.knowsFinal && !a.deactivated {
		return InProgress, nil
	}
	a.note("ends")
	a.ended = true
	return Done, nil
}

func (a *agent) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(a.trace, want) {
		t.Errorf("trace %q; want %q", a.trace, want)
	}
}

// REQ-EXIT-21, REQ-EXIT-109: while the output is transferred nothing else
// happens, an entry starts no second transfer, and the end of it enters again by
// an event of its own.
func TestAgentTransfers(t *testing.T) {
	a := newAgent(t)
	a.knowsFinal = true
	if r := a.enter(); r != InProgress {
		t.Fatalf("the transfer is %v", r)
	}
	a.enter()
	a.note("its child ends")
	a.finish(nil)
	a.want(t, "enter", "hook", "transfer begins", "enter", "its child ends", "enter", "event log", "final ad", "remote exit", "ends")
}

// REQ-EXIT-13, REQ-EXIT-26, REQ-HOOK-53: the event log, the ad and the call come
// in this order, all behind hook and transfer.
func TestAgentNotifiesInOrder(t *testing.T) {
	a := newAgent(t)
	a.noWork, a.knowsFinal = true, true
	a.enter()
	a.want(t, "enter", "hook", "event log", "final ad", "remote exit", "ends")
}

// REQ-EXIT-22: nothing to transfer is success; a connection that breaks is not.
func TestAgentTransferFails(t *testing.T) {
	a := newAgent(t)
	a.noWork = true
	if r, err := a.p.Controller.Transfer(); !r.Over() || err != nil {
		t.Errorf("nothing to transfer: %v, %v", r, err)
	}
	a.noWork = false
	a.enter()
	a.finish(errors.New("connection reset"))
	if r, err := a.p.AllDone(); r != Failed || err.Error() != "transfer: waits: reconnect" {
		t.Errorf("after a break: %v, %v", r, err)
	}
}

// REQ-EXIT-23, REQ-EXIT-31, REQ-EXIT-40: after a failure it waits for an event
// and does nothing by itself; the agent's reconnect enters at the top, the hook
// answers done, and the transfer is tried again.
func TestAgentReconnects(t *testing.T) {
	a := newAgent(t)
	a.knowsFinal = true
	a.enter()
	a.finish(errors.New("connection reset"))
	before := len(a.trace)
	for range 10 {
		a.enter() // whatever else enters
	}
	if slices.Contains(a.trace[before:], "transfer begins") {
		t.Fatalf("transferred without a connection: %q", a.trace)
	}
	a.trace = nil
	if r := a.reconnect(); r != InProgress {
		t.Fatalf("after the reconnect: %v", r)
	}
	a.finish(nil)
	a.want(t, "enter", "transfer begins", "enter", "event log", "final ad", "remote exit", "ends")
}

// REQ-EXIT-31, REQ-EXIT-35: without an agent that comes back the lease ends the
// wait, which is the loss of the agent.
func TestAgentIsLost(t *testing.T) {
	a := newAgent(t)
	a.enter()
	a.finish(errors.New("connection reset"))
	a.wait(time.Hour)
	if !a.ended {
		t.Error("it has not ended")
	}
}

// REQ-EXIT-35: when all is told it waits until the agent ends the activation.
func TestAgentDeactivates(t *testing.T) {
	a := newAgent(t)
	a.noWork = true
	if r := a.enter(); r != InProgress || a.ended {
		t.Fatalf("%v, ended %v; want it to wait", r, a.ended)
	}
	a.deactivated = true
	if r := a.enter(); r != Done || !a.ended {
		t.Errorf("%v, ended %v; want the end", r, a.ended)
	}
	if n := strings.Count(strings.Join(a.trace, " "), "remote exit"); n != 1 {
		t.Errorf("told %d times", n)
	}
}

// REQ-EXIT-108: with an agent that knows what is final it ends by itself.
func TestAgentKnowsFinal(t *testing.T) {
	a := newAgent(t)
	a.noWork, a.knowsFinal = true, true
	if r := a.enter(); r != Done || !a.ended {
		t.Errorf("%v, ended %v; want the end at once", r, a.ended)
	}
}

// REQ-EXIT-38, REQ-EXIT-116: a call that fails is repeated, and nothing before it.
func TestAgentCallIsRepeated(t *testing.T) {
	a := newAgent(t)
	a.noWork, a.knowsFinal, a.link = true, true, false
	if r := a.enter(); r != Failed {
		t.Fatalf("without a connection: %v", r)
	}
	a.reconnect()
	a.want(t, "enter", "hook", "event log", "final ad", "enter", "remote exit", "ends")
}

// REQ-EXIT-111: five failures that may pass give the transfer up and the job runs
// again; one that will not holds the job with 12 or 13 and the errno.
func TestTransferIsGivenUp(t *testing.T) {
	a := newAgent(t)
	a.knowsFinal = true
	a.enter()
	for n := 1; n < MaxTransfers; n++ {
		a.finish(errors.New("connection reset"))
		if a.link || a.transfer.GivenUp() != nil {
			t.Fatalf("after %d failures: connected %v, given up %v", n, a.link, a.transfer.GivenUp())
		}
		a.reconnect()
	}
	a.finish(errors.New("connection reset"))
	if g := a.transfer.GivenUp(); g == nil || g.Hold || !a.ended {
		t.Errorf("after %d failures: %+v, ended %v; want it to run again", MaxTransfers, g, a.ended)
	}
	for _, code := range []int{HoldOutput, HoldInput} {
		b := newAgent(t)
		b.knowsFinal, b.transfer.Code = true, code
		b.enter()
		b.finish(&Permanent{Errno: 13, Err: errors.New("permission denied")})
		if g := b.transfer.GivenUp(); g == nil || !g.Hold || g.Code != code || g.Subcode != 13 || !b.ended {
			t.Errorf("a failure for good: %+v, ended %v; want a hold with code %d, 13", g, b.ended, code)
		}
	}
}
