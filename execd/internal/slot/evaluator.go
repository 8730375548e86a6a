package slot

import (
	"time"

	"paddock/classad"
)

// evaluator evaluates the policy with the ads of the slot and of jobs. It knows nothing
// of states and claims.
type evaluator struct {
	policy  *Policy
	slot    func() *classad.Ad // see Config
	random  func() float64
	now     time.Time
	instead *classad.Expr // of START; nil: START itself
	ads     ads
	asking  bool // for the slot's ad
	steps   *int // that a look at a job has; nil: each evaluation has its own
}

// ads are those of one call.
type ads struct {
	slot *classad.Ad
	of   Job
	job  *classad.Ad
}

// begin sets the time, and forgets the ads of another.
func (e *evaluator) begin(now time.Time) {
	if now.After(e.now) {
		e.now = now
	}
	e.ads = ads{}
}

// slotAd returns the slot's ad, made once in a call between two moves.
func (e *evaluator) slotAd() *classad.Ad {
	if e.ads.slot == nil && e.slot != nil && !e.asking {
		// Whoever makes it may ask what an expression says that refers to it.
		e.asking = true
		ad := e.slot()
		e.asking, e.ads.slot = false, ad
	}
	return e.ads.slot
}

// jobAd returns the ad of a job, made once in a call.
func (e *evaluator) jobAd(j Job) *classad.Ad {
	if j == nil {
		return nil
	}
	if e.ads.of != j {
		e.ads.of, e.ads.job = j, j.Ad()
	}
	return e.ads.job
}

// eval returns the value of an expression of the policy for a job, which may be
// nil.
func (e *evaluator) eval(x Expression, j Job) classad.Value {
	var r *rule
	if e.policy.special && j != nil && int(x) < byUniverse {
		r = e.policy.rule(x, e.jobAd(j))
	} else {
		r = &e.policy.rules[x]
	}
	if r.constant {
		return r.value
	}
	return e.value(r.expr, j)
}

// value evaluates an expression of the slot's side.
func (e *evaluator) value(x classad.Expr, j Job) classad.Value {
	env := classad.Env{My: e.slotAd(), Target: e.jobAd(j), Now: e.now, Random: e.random, Steps: e.steps}
	return env.Eval(x)
}

// jobValue returns an attribute of a job, as the slot lets it have one.
func (e *evaluator) jobValue(j Job, name string) classad.Value {
	env := classad.Env{My: e.jobAd(j), Target: e.slotAd(), Now: e.now, Random: e.random}
	return env.Attr(name)
}

// start returns the value of START, or of what is in its place.
func (e *evaluator) start(j Job) classad.Value {
	if e.instead != nil {
		return e.value(*e.instead, j)
	}
	return e.eval(Start, j)
}

// rank returns what the slot thinks of a job.
func (e *evaluator) rank(j Job) float64 {
	defer e.spare()()
	return e.eval(Rank, j).Rank()
}

// maxLook is how many steps of evaluation it may cost to find out whether slot and job
// suit each other, and as many what the slot thinks of it: whoever may claim writes ads,
// and others wait meanwhile.
const maxLook = 50_000

// costs is the text of a refusal for an ad that takes more.
const costs = "the ad of the job costs too much to be looked at"

// spare has evaluations take their steps of maxLook together, unless they have others,
// until the function that it returns is called.
func (e *evaluator) spare() (done func()) {
	if e.steps != nil {
		return func() {}
	}
	left := maxLook
	e.steps = &left
	return func() { e.steps = nil }
}

// Suits reports whether slot and job suit each other now, whoever has the slot, and
// what the slot thinks of the job, for no more than these steps of evaluation
// altogether, of which it takes what it needs. It changes nothing else.
func (e *evaluator) Suits(now time.Time, j Job, steps *int) (ok bool, rank float64, text string) {
	e.begin(now)
	e.steps = steps
	defer func() { e.steps, e.ads = nil, ads{} }()
	if ok, text = e.willing(j); ok {
		rank = e.rank(j)
	}
	return ok, rank, text
}

// willing reports whether slot and job suit each other.
func (e *evaluator) willing(j Job) (bool, string) {
	defer e.spare()()
	ok, text := e.suits(j)
	if *e.steps <= 0 {
		return false, costs
	}
	return ok, text
}

func (e *evaluator) suits(j Job) (bool, string) {
	if v := e.start(j); v.Kind() == classad.ErrorKind {
		return false, "START is " + Told(v)
	} else if !v.True() {
		return false, "START is not true for the job"
	}
	ad := e.jobAd(j)
	if ad == nil {
		return true, ""
	}
	if _, ok := ad.Lookup("Requirements"); ok {
		env := classad.Env{My: ad, Target: e.slotAd(), Now: e.now, Random: e.random, Steps: e.steps}
		if v := env.Attr("Requirements"); v.Kind() == classad.ErrorKind {
			return false, "the Requirements of the job are " + Told(v)
		} else if !v.True() {
			return false, "the Requirements of the job are not met"
		}
	}
	return e.fits(ad)
}

// sizes are what a job may request of a slot.
var sizes = [...]struct{ request, has string }{
	{"RequestCpus", "Cpus"}, {"RequestMemory", "Memory"}, {"RequestDisk", "Disk"}, {"RequestGPUs", "GPUs"},
}

// fits reports whether the slot is as large as a job requests.
func (e *evaluator) fits(ad *classad.Ad) (bool, string) {
	for _, s := range sizes {
		if _, ok := ad.Lookup(s.request); !ok {
			continue
		}
		slot := e.slotAd()
		if slot == nil {
			return true, ""
		}
		job := classad.Env{My: ad, Target: slot, Now: e.now, Steps: e.steps}
		asked := job.Attr(s.request)
		want, ok := asked.Number()
		switch {
		case asked.Kind() == classad.ErrorKind:
			return false, s.request + " of the job is " + Told(asked)
		case !ok || want <= 0:
			continue
		}
		env := classad.Env{My: slot, Target: ad, Now: e.now, Steps: e.steps}
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
