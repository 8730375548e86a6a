package slot

import (
	"iter"
	"time"

	"paddock/classad"
)

// Config is what a Machine is made of.
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
	Backfill   bool // FillerStarted will answer StartFiller

	// Restored is what is known of the claim when execd was started again, nil for a
	// slot in which nothing ran. Its job has a supervisor that is alive.
	Restored *Saved
	Job      Job // of Restored
}

// claim is the right to use the slot, or the offer of it.
type claim struct {
	number Number
	kind   Kind
	holder string
	job    Job // of the request, then what was activated last
	rank   float64

	since         time.Time // claimed; zero: nobody has come yet
	activated     int
	runTime       time.Duration // of activations that have ended
	stopTime      time.Duration
	lease         time.Duration // 0: for ever
	leaseEnd      time.Time
	matchEnd      time.Time // until when who was matched must come; zero: nobody
	patience      time.Time // until when who asked waits for the answer; zero: nobody waits
	unanswered    bool      // who asked has been told HeldBack only
	whileDraining bool      // accepted while the slot was being drained
	awaiting      bool      // fetched work was accepted, and has not been started
	accepted      time.Time // when that was
	why           Reason    // for which it takes the slot from another
}

// waits reports whether somebody asked for the claim and waits for it.
func (c *claim) waits() bool { return c != nil && c.unanswered }

// run is the activation of the current claim.
type run struct {
	alive         bool // there is a supervisor
	final         bool // which has told how the job ended
	begun         time.Time
	suspended     time.Time     // since when; zero: it runs
	suspendedFor  time.Duration // before that
	preempted     bool          // PREEMPT was true
	answerJobDone time.Time     // until when Deactivated may wait; zero: it does not
}

// The causes of a suspension.
type suspension uint8

const (
	byPolicy suspension = iota
	byCommand
	byDemand
)

// ladder is how far the end of what runs has been forced.
type ladder struct {
	step ladderStep
	next time.Time // when the next step is due
}

type ladderStep uint8

const (
	notStopping ladderStep = iota
	asked
	killed
	familyKilled // and again, as long as something lives
)

// remembered is an order that waits for the supervisor to be gone.
type remembered struct {
	why  Reason // noReason: none
	hard bool
	lost bool
}

// Machine is one slot. Its methods must not be called by two goroutines at once.
type Machine struct {
	cfg    Config
	policy *Policy

	place           Place
	now             time.Time
	enteredState    time.Time
	enteredActivity time.Time
	total           [states][activities]time.Duration

	last        Number
	cur         *claim
	pre, prePre *claim // offered to whom would displace cur, and then pre; nil unless Claimed or Preempting
	run         run
	suspendedBy suspension

	irreversible bool // retirement that has begun does not end but with the claim
	noRetirement bool // and takes no time
	demand       bool // work on demand runs beside it
	held         bool // and the job was stopped by command before
	leaving      Reason
	lost         bool // the holder of the claim that ends does not know it
	atReap       remembered
	stop         ladder

	drain struct {
		on bool
		Drain
	}
	cause      backfillCause
	fillerNext time.Time

	fetching int // how often FetchBegan has come and not its end
	broken   string

	actions     []Action
	moved       bool      // within this Handle
	tick        time.Time // when a policy is looked at that may have changed
	retireAt    time.Time // when retirement is over
	ads         ads
	asking      bool // for the slot's ad
	steps       *int // that a look at a job has; nil: each evaluation has its own
	watched     bool // refs and changes belong to the place and the job
	refs        classad.References
	changes     bool
	notedOwner  bool
	notedVacate bool
}

// ads are those of one call.
type ads struct {
	slot *classad.Ad
	of   Job
	job  *classad.Ad
}

// New returns a slot in Owner/Idle, or one in which a job runs that is restored.
// The first Handle, with Evaluate or whatever comes, lets the policy speak.
func New(cfg Config, now time.Time) *Machine {
	m := &Machine{cfg: cfg, policy: cfg.Policy, now: now, enteredState: now, enteredActivity: now}
	if m.policy == nil {
		m.policy = NewPolicy(nil)
	}
	m.cur = m.newClaim()
	if cfg.Restored != nil {
		m.restore(cfg.Restored, cfg.Job)
	}
	return m
}

// SetPolicy changes the policy. Evaluate should follow.
func (m *Machine) SetPolicy(p *Policy) {
	m.policy, m.watched, m.notedOwner, m.notedVacate = p, false, false, false
}

// Handle says what comes of an event. The time must not be before that of the
// call before. The actions are valid until the next call.
func (m *Machine) Handle(now time.Time, e Event) []Action {
	m.begin(now)
	clear(m.actions)
	m.actions, m.moved = m.actions[:0], false
	if m.place.State == Deleted {
		refuseAll(m, e)
		return m.actions
	}
	e.happen(m)
	m.deadlines()
	m.evaluate()
	m.ads = ads{}
	return m.actions
}

// begin sets the time, and forgets the ads of another.
func (m *Machine) begin(now time.Time) {
	if now.After(m.now) {
		m.now = now
	}
	m.ads = ads{}
}

// refuseAll answers what comes too late.
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

// Place returns the state and the activity.
func (m *Machine) Place() Place { return m.place }

// State returns the state.
func (m *Machine) State() State { return m.place.State }

// EnteredState returns since when the slot is in its state.
func (m *Machine) EnteredState() time.Time { return m.enteredState }

// EnteredActivity returns since when the slot has its activity.
func (m *Machine) EnteredActivity() time.Time { return m.enteredActivity }

// Spent yields how long the slot has been in each place since it was made.
func (m *Machine) Spent(now time.Time) iter.Seq2[Place, time.Duration] {
	return func(yield func(Place, time.Duration) bool) {
		for s, list := range allowed {
			for _, a := range list {
				p := Place{State(s), a}
				d := m.total[s][a]
				if p == m.place {
					d += max(now.Sub(m.enteredActivity), 0)
				}
				if d > 0 && !yield(p, d) {
					return
				}
			}
		}
	}
}

// Broken returns why the slot must not be used, empty if it may.
func (m *Machine) Broken() string { return m.broken }

// Draining returns how the slot is being drained, and false if it is not.
func (m *Machine) Draining() (Drain, bool) { return m.drain.Drain, m.drain.on }

// Claim is what is known of a claim.
type Claim struct {
	Number Number
	Kind   Kind
	Holder string
	Job    Job     // of the request, then what was activated last
	Rank   float64 // of it

	Since         time.Time // zero: it is only offered
	Activations   int
	Lease         time.Duration // 0: for ever
	LeaseEnd      time.Time
	WhileDraining bool // accepted while the slot was being drained
	Waiting       bool // who asked waits for the slot
}

func (c *claim) exported() Claim {
	if c == nil {
		return Claim{}
	}
	return Claim{
		Number: c.number, Kind: c.kind, Holder: c.holder, Job: c.job, Rank: c.rank, Since: c.since,
		Activations: c.activated, Lease: c.lease, LeaseEnd: c.leaseEnd, WhileDraining: c.whileDraining, Waiting: c.waits(),
	}
}

// Current returns the claim on the slot, or the one that is offered as such.
func (m *Machine) Current() Claim { return m.cur.exported() }

// Preempting returns the claim that takes over, or is offered as such: number 0
// if there is none.
func (m *Machine) Preempting() Claim { return m.pre.exported() }

// Offer returns the number of the claim that a newcomer must present.
func (m *Machine) Offer() Number {
	switch {
	case m.prePre != nil:
		return m.prePre.number
	case m.pre != nil:
		return m.pre.number
	}
	return m.cur.number
}

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
		r.Job, r.Suspended = m.runTimes(now)
	}
	r.Claim += r.Job
	r.Stopped += r.Suspended
	return r
}

// runTimes returns how long the job has run and been suspended.
func (m *Machine) runTimes(now time.Time) (ran, suspended time.Duration) {
	suspended = m.run.suspendedFor
	if !m.run.suspended.IsZero() {
		suspended += max(now.Sub(m.run.suspended), 0)
	}
	return max(now.Sub(m.run.begun)-suspended, 0), suspended
}

// Saved is what a claim under which a job runs is made of again when execd has
// been started anew.
type Saved struct {
	Kind        Kind
	Holder      string
	Since       time.Time
	Activations int
	Lease       time.Duration
	LeaseEnd    time.Time
	Begun       time.Time // zero: nothing runs
	Ending      *Ending   // of what runs; nil: nobody has asked for it
}

// Ending is how far the end of what runs has been forced.
type Ending struct {
	Reason Reason
	Until  time.Time // when it is killed that was asked to end; zero: it is being killed
	Hold   *Hold     // what it is put on hold for by that; nil: it is not. It is the table's to tell.
}

// Hold is why a job is put on hold, with the numbers of ads.
type Hold struct {
	Code, Subcode int
	Text          string
}

func (m *Machine) restore(s *Saved, job Job) {
	c := m.cur
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

// resumeEnding goes on with the end of what runs where it was. That who holds the claim
// has asked for ends no claim.
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

// refuse answers that something is not to be had.
func (m *Machine) refuse(n Number, why Reason, text string) {
	if text == "" {
		text = why.String()
	}
	m.do(Action{Do: Refused, Claim: n, Reason: why, Text: text})
}

// move changes the place by a row of the table.
func (m *Machine) move(to Place, row int, why Reason) {
	from := m.place
	m.total[from.State][from.Activity] += m.now.Sub(m.enteredActivity)
	m.place, m.enteredActivity = to, m.now
	if from.State != to.State {
		m.enteredState = m.now
	}
	m.moved, m.watched, m.tick, m.ads = true, false, time.Time{}, ads{}
	m.do(Action{Do: Moved, Claim: m.cur.number, Kind: m.cur.kind, Reason: why, From: from, To: to, Row: row})
}

// newClaim makes a claim to offer.
func (m *Machine) newClaim() *claim {
	m.last++
	return &claim{number: m.last}
}

// offer makes a claim to offer, and tells of it.
func (m *Machine) offer() *claim {
	c := m.newClaim()
	m.about(NewClaim, c, noReason)
	return c
}

// role returns the claim of a number, nil if it is none of the slot's.
func (m *Machine) role(n Number) *claim {
	for _, c := range [...]*claim{m.cur, m.pre, m.prePre} {
		if c != nil && c.number == n && n != 0 {
			return c
		}
	}
	return nil
}

// slotAd returns the slot's ad, made once in a call between two moves.
func (m *Machine) slotAd() *classad.Ad {
	if m.ads.slot == nil && m.cfg.Slot != nil && !m.asking {
		// Whoever makes it may ask what an expression says that refers to it.
		m.asking = true
		ad := m.cfg.Slot()
		m.asking, m.ads.slot = false, ad
	}
	return m.ads.slot
}

// jobAd returns the ad of a job, made once in a call.
func (m *Machine) jobAd(j Job) *classad.Ad {
	if j == nil {
		return nil
	}
	if m.ads.of != j {
		m.ads.of, m.ads.job = j, j.Ad()
	}
	return m.ads.job
}

// eval returns the value of an expression of the policy for a job, which may be
// nil.
func (m *Machine) eval(x Expression, j Job) classad.Value {
	var r *rule
	if m.policy.special && j != nil && int(x) < byUniverse {
		r = m.policy.rule(x, m.jobAd(j))
	} else {
		r = &m.policy.rules[x]
	}
	if r.constant {
		return r.value
	}
	return m.value(r.expr, j)
}

// value evaluates an expression of the slot's side.
func (m *Machine) value(e classad.Expr, j Job) classad.Value {
	env := classad.Env{My: m.slotAd(), Target: m.jobAd(j), Now: m.now, Random: m.cfg.Random, Steps: m.steps}
	return env.Eval(e)
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

// jobValue returns an attribute of a job, as the slot lets it have one.
func (m *Machine) jobValue(j Job, name string) classad.Value {
	env := classad.Env{My: m.jobAd(j), Target: m.slotAd(), Now: m.now, Random: m.cfg.Random}
	return env.Attr(name)
}

// note adds a line for the log.
func (m *Machine) note(text string) { m.do(Action{Do: Note, Text: text}) }

// isOwner reports whether the owner wants the slot for himself. What is no
// condition means that he does: to run nothing is the smaller evil.
func (m *Machine) isOwner() bool {
	v := m.eval(IsOwner, m.job())
	if condition(v) {
		return v.True()
	}
	if !m.notedOwner {
		m.notedOwner = true
		m.note("IS_OWNER is " + Told(v) + ", taken for true")
	}
	return true
}

// wantVacate reports whether the job may be asked to end before it is killed.
func (m *Machine) wantVacate() bool {
	j := m.job()
	if j == nil {
		return true
	}
	v := m.eval(WantVacate, j)
	if condition(v) {
		return v.True()
	}
	if !m.notedVacate {
		m.notedVacate = true
		m.note("WANT_VACATE is " + Told(v) + ", taken for true")
	}
	return true
}

// start returns the value of START, or of what is in its place while the slot is
// being drained.
func (m *Machine) start(j Job) classad.Value {
	if m.drain.on {
		if m.drain.Start == nil {
			return classad.Bool(false)
		}
		return m.value(*m.drain.Start, j)
	}
	return m.eval(Start, j)
}

// mayStart reports whether START without a job leaves hope.
func (m *Machine) mayStart() bool { return !isFalse(m.start(nil)) }

// maxLook is how many steps of evaluation it may cost to find out whether slot and job
// suit each other, and as many what the slot thinks of it: whoever may claim writes ads,
// and others wait meanwhile.
const maxLook = 50_000

// costs is the text of a refusal for an ad that takes more.
const costs = "the ad of the job costs too much to be looked at"

// spare has evaluations take their steps of maxLook together, unless they have others,
// until the function that it returns is called.
func (m *Machine) spare() (done func()) {
	if m.steps != nil {
		return func() {}
	}
	left := maxLook
	m.steps = &left
	return func() { m.steps = nil }
}

// willing reports whether slot and job suit each other.
func (m *Machine) willing(j Job) (bool, string) {
	defer m.spare()()
	ok, text := m.suits(j)
	if *m.steps <= 0 {
		return false, costs
	}
	return ok, text
}

func (m *Machine) suits(j Job) (bool, string) {
	if v := m.start(j); v.Kind() == classad.ErrorKind {
		return false, "START is " + Told(v)
	} else if !v.True() {
		return false, "START is not true for the job"
	}
	ad := m.jobAd(j)
	if ad == nil {
		return true, ""
	}
	if _, ok := ad.Lookup("Requirements"); ok {
		env := classad.Env{My: ad, Target: m.slotAd(), Now: m.now, Random: m.cfg.Random, Steps: m.steps}
		if v := env.Attr("Requirements"); v.Kind() == classad.ErrorKind {
			return false, "the Requirements of the job are " + Told(v)
		} else if !v.True() {
			return false, "the Requirements of the job are not met"
		}
	}
	return m.fits(ad)
}

// Suits reports whether slot and job suit each other now, whoever has the slot, and
// what the slot thinks of the job, for no more than these steps of evaluation
// altogether, of which it takes what it needs. It changes nothing else.
func (m *Machine) Suits(now time.Time, j Job, steps *int) (ok bool, rank float64, text string) {
	m.begin(now)
	m.steps = steps
	defer func() { m.steps, m.ads = nil, ads{} }()
	if ok, text = m.willing(j); ok {
		rank = m.rank(j)
	}
	return ok, rank, text
}

// sizes are what a job may request of a slot.
var sizes = [...]struct{ request, has string }{
	{"RequestCpus", "Cpus"}, {"RequestMemory", "Memory"}, {"RequestDisk", "Disk"}, {"RequestGPUs", "GPUs"},
}

// fits reports whether the slot is as large as a job requests.
func (m *Machine) fits(ad *classad.Ad) (bool, string) {
	for _, s := range sizes {
		if _, ok := ad.Lookup(s.request); !ok {
			continue
		}
		slot := m.slotAd()
		if slot == nil {
			return true, ""
		}
		job := classad.Env{My: ad, Target: slot, Now: m.now, Steps: m.steps}
		asked := job.Attr(s.request)
		want, ok := asked.Number()
		switch {
		case asked.Kind() == classad.ErrorKind:
			return false, s.request + " of the job is " + Told(asked)
		case !ok || want <= 0:
			continue
		}
		env := classad.Env{My: slot, Target: ad, Now: m.now, Steps: m.steps}
		v := env.Attr(s.has)
		have, ok := v.Number()
		if !ok && v.Kind() == classad.UndefinedKind && s.has != "GPUs" {
			continue // not said
		}
		if want > have {
			return false, s.request + " is more than the slot has"
		}
	}
	return true, ""
}

// rank returns what the slot thinks of a job.
func (m *Machine) rank(j Job) float64 {
	defer m.spare()()
	return m.eval(Rank, j).Rank()
}
