package slot

import (
	"time"

	"paddock/classad"
)

// Config is what a Machine is made from.
type Config struct {
	Policy *Policy // nil: that of no knobs

	// Slot returns the ad of the slot as it is now. It is called within Handle and
	// the other methods, only when an expression needs it, and may ask the Machine
	// for its state. Nil: an empty ad.
	Slot func() *classad.Ad
	// Random returns a number of [0, 1) for random(). Nil: that is an error.
	Random func() float64

	Dynamic    bool // carved out of a partitionable slot: deleted when it is free
	KeepBroken bool // not even deleted when it is broken
	Benchmarks bool // BenchmarksDone will answer StartBenchmarks
	Backfill   bool // BackfillStarted will answer StartBackfillJob

	// Restored is the claim that an earlier execd has left, nil for a free slot. Its job
	// has a shepherd that is alive.
	Restored *Saved
	Job      Job // of Restored
}

// run is the activation of the current claim.
type run struct {
	alive         bool // there is a shepherd
	final         bool // which has reported how the job ended
	begun         time.Time
	suspended     time.Time     // since when; zero: it runs
	suspendedFor  time.Duration // before that
	suspendedBy   suspension
	held          bool      // it was suspended by command before work on demand came
	preempted     bool      // PREEMPT was true
	answerJobDone time.Time // until when Deactivated may wait; zero: it does not
}

// The causes of a suspension.
type suspension uint8

const (
	byPolicy suspension = iota
	byCommand
	byDemand
)

// ladder is how far the end of the job has been forced.
type ladder struct {
	step ladderStep
	next time.Time // when the next step is due
}

type ladderStep uint8

const (
	notStopping ladderStep = iota
	asked
	killed
	familyKilled // again and again, as long as a process lives
)

// remembered is an order that waits until the shepherd is gone.
type remembered struct {
	why  Reason // noReason: none
	hard bool
	lost bool
}

// Machine is one slot. Its methods must not be called by two goroutines at once.
type Machine struct {
	evaluator
	history
	claims
	cfg Config

	run run

	irreversible bool // retirement ends only with the claim
	noRetirement bool // there is no retirement time
	demand       bool // work on demand runs beside it
	leaving      Reason
	lost         bool // the holder of the claim that ends no longer knows it
	held         bool // until Settle
	atReap       remembered
	stop         ladder

	drain struct {
		on bool
		Drain
	}
	cause        backfillCause
	backfillNext time.Time

	fetching int // how many FetchBegan have had no end yet
	broken   string

	actions  []Action
	moved    bool      // within this Handle
	tick     time.Time // when a policy that may have changed is evaluated
	retireAt time.Time // when retirement is over
	watched  bool      // refs and changes belong to the place and the job
	refs     classad.References
	changes  bool
	noted    [expressions]bool // that they are not conditions
}

// New returns a slot in Owner/Idle, or one with a restored claim. The first Handle, with
// Evaluate or any event, evaluates the policy.
func New(cfg Config, now time.Time) *Machine {
	if cfg.Policy == nil {
		cfg.Policy = NewPolicy(nil)
	}
	m := &Machine{
		evaluator: evaluator{policy: cfg.Policy, slot: cfg.Slot, random: cfg.Random, now: now},
		history:   history{enteredState: now, enteredActivity: now},
		cfg:       cfg,
	}
	m.cur = m.newClaim()
	if cfg.Restored != nil {
		m.restore(cfg.Restored, cfg.Job)
	}
	return m
}

// SetPolicy changes the policy. Evaluate should follow.
func (m *Machine) SetPolicy(p *Policy) {
	m.policy, m.watched, m.noted = p, false, [expressions]bool{}
}

// Handle returns the actions that follow from an event. The time must not be before that
// of the previous call. The actions are valid until the next call.
func (m *Machine) Handle(now time.Time, e Event) []Action {
	m.begin(now)
	clear(m.actions)
	m.actions, m.moved = m.actions[:0], false
	if m.place.State == Deleted {
		refuseAll(m, e)
		return m.actions
	}
	e.happen(m)
	if !m.held {
		m.deadlines()
		m.evaluate()
	}
	m.ads = ads{}
	return m.actions
}

// refuseAll answers events that come after the slot was deleted.
func refuseAll(m *Machine, e Event) {
	switch e := e.(type) {
	case Request:
		m.refuse(e.Claim, ReasonUnknownClaim, "")
	case Activate:
		m.refuse(e.Claim, ReasonUnknownClaim, "")
	case Deactivate:
		m.refuse(e.Claim, ReasonUnknownClaim, "")
	case FetchEnded:
		if e.Job != nil {
			m.refuse(0, ReasonUnknownClaim, "")
		}
	}
}

// Broken returns why the slot must not be used, empty if it may.
func (m *Machine) Broken() string { return m.broken }

// Draining returns how the slot is being drained, and false if it is not.
func (m *Machine) Draining() (Drain, bool) { return m.drain.Drain, m.drain.on }

// Run says how long the current claim and its job have run and been suspended.
type Run struct {
	Begun          time.Time // of the activation; zero: none
	Job, Suspended time.Duration
	Claim, Stopped time.Duration // of all activations of the claim
}

// Run returns the times of the job that runs and of its claim.
func (m *Machine) Run(now time.Time) Run {
	r := Run{Claim: m.cur.runTime, Stopped: m.cur.stopTime}
	if m.run.alive {
		r.Begun = m.run.begun
		r.Job, r.Suspended = m.run.times(now)
	}
	r.Claim += r.Job
	r.Stopped += r.Suspended
	return r
}

// wake ends a suspension, if there is one.
func (r *run) wake(now time.Time) {
	if !r.suspended.IsZero() {
		r.suspendedFor += now.Sub(r.suspended)
	}
	r.suspended, r.suspendedBy, r.held = time.Time{}, byPolicy, false
}

// times returns how long the job has run and been suspended.
func (r *run) times(now time.Time) (ran, suspended time.Duration) {
	suspended = r.suspendedFor
	if !r.suspended.IsZero() {
		suspended += max(now.Sub(r.suspended), 0)
	}
	return max(now.Sub(r.begun)-suspended, 0), suspended
}

// Saved is what the next execd needs to restore a claim, and the job that runs under it.
type Saved struct {
	Kind        Kind
	Holder      string
	Since       time.Time
	Activations int
	Lease       time.Duration
	LeaseEnd    time.Time
	Begun       time.Time // zero: nothing runs
	Ending      *Ending   // of the job; nil: nobody has asked for it
	// Held says that nothing happens by time or policy before Settle: it is not known yet
	// what runs.
	Held bool
}

// Ending is how far the end of a job has been forced.
type Ending struct {
	Reason Reason
	Until  time.Time // when the job, which was asked to end, is killed; zero: it is being killed
	Hold   *Hold     // why the job is put on hold, which the Machine does not use; nil: it is not
}

// Hold is why a job is put on hold, with the numbers of ads.
type Hold struct {
	Code, Subcode int
	Text          string
}

func (m *Machine) restore(s *Saved, job Job) {
	c := m.cur
	m.held = s.Held
	c.kind, c.holder, c.since, c.activated, c.lease, c.leaseEnd = s.Kind, s.Holder, s.Since, s.Activations, s.Lease, s.LeaseEnd
	c.job = job
	m.place = Place{Claimed, Idle}
	m.pre = m.newClaim()
	if s.Begun.IsZero() {
		return
	}
	m.run = run{alive: true, begun: s.Begun}
	m.place.Activity = Busy
	m.tick = m.now
	if s.Ending != nil {
		m.resumeEnding(s.Ending)
	}
}

// resumeEnding goes on with the end of a job at the step where it was. An end for which the
// holder of the claim has asked does not end the claim.
func (m *Machine) resumeEnding(e *Ending) {
	activity := Vacating
	m.stop = ladder{asked, e.Until}
	if e.Until.IsZero() {
		activity = Killing
		m.stop = ladder{killed, m.now.Add(m.policy.killing)}
	}
	if e.Reason != ReasonDeactivated {
		m.place, m.leaving = Place{Preempting, activity}, e.Reason
	}
}

// do adds an action.
func (m *Machine) do(a Action) { m.actions = append(m.actions, a) }

// about adds an action that concerns a claim.
func (m *Machine) about(v Verb, c *claim, why Reason) {
	m.do(Action{Do: v, Claim: c.number, Kind: c.kind, Reason: why})
}

// refuse adds a refusal.
func (m *Machine) refuse(n Number, why Reason, text string) {
	if text == "" {
		text = why.String()
	}
	m.do(Action{Do: Refused, Claim: n, Reason: why, Text: text})
}

// move changes the place by a row of the table.
func (m *Machine) move(to Place, row int, why Reason) {
	from := m.place
	m.enter(to, m.now)
	m.moved, m.watched, m.tick, m.ads = true, false, time.Time{}, ads{}
	m.do(Action{Do: Moved, Claim: m.cur.number, Kind: m.cur.kind, Reason: why, From: from, To: to, Row: row})
}

// offer makes a claim to offer, and adds the action for it.
func (m *Machine) offer() *claim {
	c := m.newClaim()
	m.about(NewClaim, c, noReason)
	return c
}

// is reports whether an expression of the policy is true for the job that runs.
func (m *Machine) is(x Expression) bool { return m.eval(x, m.job()).True() }

// job returns the job that runs, nil if there is none.
func (m *Machine) job() Job {
	if m.run.alive {
		return m.cur.job
	}
	return nil
}

// isOwner reports whether the owner uses the slot. A value that is not a condition means
// that he does: to run nothing is the smaller evil.
func (m *Machine) isOwner() bool { return m.isOrTaken(IsOwner, m.job()) }

// isOrTaken reports whether an expression of the policy is true. A value that is not a
// condition counts as true, and is noted once.
func (m *Machine) isOrTaken(x Expression, j Job) bool {
	v := m.eval(x, j)
	if condition(v) {
		return v.True()
	}
	if !m.noted[x] {
		m.noted[x] = true
		m.do(Action{Do: Note, Text: x.String() + " is " + Told(v) + ", taken for true"})
	}
	return true
}
