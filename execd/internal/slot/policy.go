package slot

import (
	"math"
	"strings"
	"time"

	"paddock/classad"
)

// Knobs is what a policy is made from.
type Knobs interface {
	// Expr returns the expression of a knob, and false if it is not set.
	Expr(name string) (classad.Expr, bool)
	Int(name string, def int) int
	Duration(name string, def time.Duration) time.Duration
}

// Expression is an expression of the policy.
type Expression uint8

// The expressions of the policy. Those up to WantVacate have forms for universes:
// WANT_SUSPEND_VANILLA replaces WANT_SUSPEND for vanilla jobs, and WANT_SUSPEND_VM for
// virtual machines.
const (
	WantSuspend Expression = iota
	SuspendWhen
	ContinueWhen
	PreemptWhen
	KillWhen
	WantVacate
	Start
	Rank
	IsOwner
	MaxJobRetirementTime
	MachineMaxVacateTime
	WantHold
	WantHoldReason
	WantHoldSubcode
	StartBackfill
	EvictBackfill
	RunBenchmarks
	expressions = int(RunBenchmarks) + 1
	byUniverse  = int(WantVacate) + 1
)

// knob is the name of an expression's knob and its default.
type knob struct{ name, def string }

var knobs = [expressions]knob{
	WantSuspend:          {"WANT_SUSPEND", "false"},
	SuspendWhen:          {"SUSPEND", "false"},
	ContinueWhen:         {"CONTINUE", "true"},
	PreemptWhen:          {"PREEMPT", "false"},
	KillWhen:             {"KILL", "false"},
	WantVacate:           {"WANT_VACATE", "true"},
	Start:                {"START", "true"},
	Rank:                 {"RANK", "0.0"},
	IsOwner:              {"IS_OWNER", "false"},
	MaxJobRetirementTime: {"MaxJobRetirementTime", "0"},
	MachineMaxVacateTime: {"MachineMaxVacateTime", "600"},
	WantHold:             {"WANT_HOLD", "undefined"},
	WantHoldReason:       {"WANT_HOLD_REASON", "undefined"},
	WantHoldSubcode:      {"WANT_HOLD_SUBCODE", "undefined"},
	StartBackfill:        {"START_BACKFILL", "undefined"},
	EvictBackfill:        {"EVICT_BACKFILL", "undefined"},
	RunBenchmarks:        {"RunBenchmarks", "LastBenchmark == 0"},
}

// String returns the name of the expression's knob.
func (x Expression) String() string { return knobs[x].name }

// Universes that have forms of their own of some expressions.
const (
	universeVanilla = 5
	universeVM      = 13
)

// The times that are not expressions, and how often policies that change with time are
// evaluated.
const (
	defaultPoll     = 5 * time.Second
	defaultUpdate   = 300 * time.Second
	defaultWorkLife = 1200 // seconds
	defaultMatch    = 120 * time.Second
	defaultKilling  = 30 * time.Second

	// patienceMargin is how long before the timeout of a match a claimant that waits
	// must have its answer.
	patienceMargin = 10 * time.Second
	// activationDelay is how long before the end of a drain a slot can last be claimed,
	// and how long a claim that was made meanwhile may stay idle.
	activationDelay = 20 * time.Second
	// jobDoneWait is how long the answer to a Deactivate of a job that has ended
	// waits for the shepherd.
	jobDoneWait = 10 * time.Second
)

// rule is one expression of a policy.
type rule struct {
	expr     classad.Expr
	set      bool
	constant bool // its value never changes
	value    classad.Value
}

func makeRule(e classad.Expr, set bool) rule {
	r := rule{expr: e, set: set}
	if e.References(nil, nil).Constant() {
		r.constant, r.value = true, (&classad.Env{}).Eval(e)
	}
	return r
}

// Policy is the policy of the owner of a host for its slots. It does not change.
type Policy struct {
	rules   [expressions]rule
	vanilla [byUniverse]rule
	vm      [byUniverse]rule
	special bool // a rule for vanilla or vm is set
	plain   bool
	modify  [4]classad.Expr // of the resources of a request

	poll, update   time.Duration
	match, killing time.Duration
	workLife       time.Duration // negative: for ever
}

// NewPolicy returns the policy of knobs, which may be nil.
func NewPolicy(k Knobs) *Policy {
	if k == nil {
		k = noKnobs{}
	}
	p := &Policy{
		plain:   true,
		modify:  modifiers(k),
		poll:    atLeastASecond(k.Duration("POLLING_INTERVAL", defaultPoll)),
		update:  atLeastASecond(k.Duration("UPDATE_INTERVAL", defaultUpdate)),
		match:   k.Duration("MATCH_TIMEOUT", defaultMatch),
		killing: atLeastASecond(k.Duration("KILLING_TIMEOUT", defaultKilling)),
	}
	p.workLife = time.Duration(k.Int("CLAIM_WORKLIFE", defaultWorkLife)) * time.Second
	for x := range knobs {
		e, set := k.Expr(knobs[x].name)
		if !set {
			e, _ = classad.Parse(knobs[x].def)
		} else {
			p.plain = false
		}
		p.rules[x] = makeRule(e, set)
	}
	for x := range byUniverse {
		if e, set := k.Expr(knobs[x].name + "_VANILLA"); set {
			p.vanilla[x] = makeRule(e, true)
			p.special, p.plain = true, false
		}
		if e, set := k.Expr(knobs[x].name + "_VM"); set {
			p.vm[x] = makeRule(e, true)
			p.special, p.plain = true, false
		}
	}
	return p
}

// Plain reports whether no expression is set: such a slot accepts every job and lets it
// end by itself.
func (p *Policy) Plain() bool { return p.plain }

// Expr returns an expression that is in force, for the slot's ad.
func (p *Policy) Expr(x Expression) classad.Expr { return p.rules[x].expr }

// Patience is how long a claimant waits for a slot that has to be freed first.
func (p *Policy) Patience() time.Duration { return max(p.match-patienceMargin, time.Second) }

type noKnobs struct{}

func (noKnobs) Expr(string) (classad.Expr, bool)                   { return classad.Expr{}, false }
func (noKnobs) Int(_ string, def int) int                          { return def }
func (noKnobs) Duration(_ string, def time.Duration) time.Duration { return def }

func atLeastASecond(d time.Duration) time.Duration { return max(d, time.Second) }

// rule returns the form of an expression that is for a job, which may be nil.
func (p *Policy) rule(x Expression, job *classad.Ad) *rule {
	if !p.special || job == nil || int(x) >= byUniverse {
		return &p.rules[x]
	}
	env := classad.Env{My: job}
	switch u, ok := env.Attr("JobUniverse").Int(); {
	case (!ok || u == universeVanilla) && p.vanilla[x].set:
		return &p.vanilla[x]
	case ok && u == universeVM && p.vm[x].set:
		return &p.vm[x]
	}
	return &p.rules[x]
}

// isFalse reports whether a value is false or the number zero. Undefined is not false.
func isFalse(v classad.Value) bool {
	n, ok := v.Number()
	return ok && n == 0
}

// condition reports whether a value can be a condition at all.
func condition(v classad.Value) bool {
	_, ok := v.Number()
	return ok
}

// Told formats a value for a message: for an error, with its reason.
func Told(v classad.Value) string {
	if v.Kind() == classad.ErrorKind {
		return "an error: " + v.Reason()
	}
	return v.String()
}

// forever is longer than any job runs, and can be added to a time.
const forever = 100 * 365 * 24 * time.Hour

// seconds returns a value in seconds as a duration, 0 if it is not a number.
func seconds(v classad.Value) time.Duration {
	n, ok := v.Number()
	switch {
	case !ok || math.IsNaN(n):
		return 0
	case n >= forever.Seconds():
		return forever
	case n <= -forever.Seconds():
		return -forever
	}
	return time.Duration(int64(n)) * time.Second
}

// selfChanging are the attributes that change without an event.
var selfChanging = map[string]bool{}

func init() {
	for name := range strings.FieldsSeq(`
		MyCurrentTime LoadAvg CondorLoadAvg TotalLoadAvg TotalCondorLoadAvg OwnerLoadAvg KeyboardIdle ConsoleIdle
		ClockMin ClockDay CpusUsage MemoryUsage DiskUsage GPUsUsage VirtualMemory TotalVirtualMemory Disk TotalDisk
		ImageSize ResidentSetSize ProportionalSetSizeKb NumPids RemoteUserCpu RemoteSysCpu RetirementTimeRemaining
		TotalJobRunTime TotalJobSuspendTime TotalClaimRunTime TotalClaimSuspendTime
		PendingSandboxes PendingSandboxDisk JobDuration`) {
		selfChanging[strings.ToLower(name)] = true
	}
}

// StartChanges reports whether START may change for a job in a slot with this ad without
// an event.
func (p *Policy) StartChanges(ad *classad.Ad) bool {
	return !p.rules[Start].constant && changesBySelf(p.rules[Start].expr.References(ad, nil))
}

// ofAnother reports whether an attribute, by its name in lower case, is that of any slot of
// the host, as slot2_state: its changes are not events for other slots.
func ofAnother(name string) bool {
	rest, ok := strings.CutPrefix(name, "slot")
	return ok && rest != "" && '0' <= rest[0] && rest[0] <= '9' && strings.Contains(rest, "_")
}

// changesBySelf reports whether one of the references changes without an event.
func changesBySelf(r classad.References) bool {
	if r.Time || r.Random || r.Any {
		return true
	}
	for _, list := range [][]string{r.My, r.Target} {
		for _, name := range list {
			name = strings.ToLower(name)
			if selfChanging[name] || strings.HasPrefix(name, "totaltime") || ofAnother(name) {
				return true
			}
		}
	}
	return false
}
