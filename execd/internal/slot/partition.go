package slot

import (
	"fmt"
	"math"
	"strings"
	"time"

	"paddock/classad"
)

// PartitionableLease is the longest lease of a claim on a partitionable slot
// itself: while it lasts nobody else may carve.
const PartitionableLease = 3600 * time.Second

// Resources are what a slot has, or a job requests.
type Resources struct {
	Cpus   int64 `json:"cpus"`
	Memory int64 `json:"memory"` // MB
	Disk   int64 `json:"disk"`   // KiB
	GPUs   int64 `json:"gpus,omitempty"`
}

// each are the resources with their names, and what a request without them has
// before it is modified.
func (r *Resources) each() [4]resource {
	return [...]resource{
		{"Cpus", &r.Cpus, "1", "quantize(RequestCpus, {1})", 1},
		{"Memory", &r.Memory, "128", "quantize(RequestMemory, {128})", 0},
		{"Disk", &r.Disk, "1", "quantize(RequestDisk, {1024})", 0},
		{"GPUs", &r.GPUs, "0", "RequestGPUs", 0},
	}
}

type resource struct {
	name    string
	amount  *int64
	missing string // the request, if there is none
	modify  string // default of MODIFY_REQUEST_EXPR_REQUEST...
	least   int64
}

// maxAmount is more than any host has, and so small that sums do not overflow.
const maxAmount = 1 << 50

// take subtracts, or returns the resource of which there is too little, and takes
// nothing.
func (r *Resources) take(other Resources) (short string) {
	left := *r
	amounts := other.each()
	for i, x := range left.each() {
		if *amounts[i].amount > *x.amount {
			return x.name
		}
		*x.amount -= *amounts[i].amount
	}
	*r = left
	return ""
}

// Short returns the resource of which there is less than wanted; empty: none.
func (r Resources) Short(want Resources) string { return r.take(want) }

// Add gives back.
func (r *Resources) Add(other Resources) {
	amounts := other.each()
	for i, x := range r.each() {
		*x.amount += *amounts[i].amount
	}
}

// Partitionable is a slot out of which dynamic slots are carved, each as large as
// its job requests. It is not safe for several goroutines.
type Partitionable struct {
	policy *Policy
	total  Resources
	left   Resources
	free   int64             // of Disk, which others use as well: no more is left
	slots  map[int]Resources // dynamic ones, by their second number

	holder  string    // who alone may carve; empty: anybody
	holdEnd time.Time // until when
}

// Dynamic is a slot that was carved.
type Dynamic struct {
	Number    int // the second one, from 1; used again when the slot is gone
	Resources Resources
}

// NewPartitionable returns a slot with these resources.
func NewPartitionable(policy *Policy, total Resources) *Partitionable {
	return &Partitionable{policy: policy, total: total, left: total, free: maxAmount, slots: map[int]Resources{}}
}

// SetPolicy changes how requests are rounded up.
func (p *Partitionable) SetPolicy(policy *Policy) { p.policy = policy }

// modifiers returns how the policy has requests rounded up.
func modifiers(k Knobs) (list [4]classad.Expr) {
	for i, x := range new(Resources).each() {
		e, set := k.Expr("MODIFY_REQUEST_EXPR_REQUEST" + strings.ToUpper(x.name))
		if !set {
			e, _ = classad.Parse(x.modify)
		}
		list[i] = e
	}
	return list
}

// Request returns what a job is given that has this ad: what it requests, rounded
// up by MODIFY_REQUEST_EXPR_REQUESTCPUS and its like. Fetched work must name Cpus,
// Memory and Disk. Slot is the ad of the partitionable slot.
func (p *Partitionable) Request(job, slot *classad.Ad, fetched bool) (Resources, error) {
	var want Resources
	var asked []classad.Attr
	for _, x := range want.each() {
		name := "Request" + x.name
		if _, ok := job.Lookup(name); ok {
			continue
		}
		if fetched && x.name != "GPUs" {
			return want, fmt.Errorf("the work has no %s", name)
		}
		e, _ := classad.Parse(x.missing)
		asked = append(asked, classad.Attr{Name: name, Expr: e})
	}
	env := classad.Env{My: job.With(asked...), Target: slot}
	for i, x := range want.each() {
		// To round up must not make something of a request that is nonsense.
		if n, ok := env.Attr("Request" + x.name).Number(); ok && n < 0 {
			return want, fmt.Errorf("the job's Request%s is %g", x.name, n)
		}
		v := env.Eval(p.policy.modify[i])
		n, ok := v.Number()
		if !ok || math.IsNaN(n) {
			return want, fmt.Errorf("the job's Request%s is %s", x.name, Told(v))
		}
		n = math.Ceil(n)
		if n < float64(x.least) || n > maxAmount {
			return want, fmt.Errorf("the job's Request%s is %g, which is none of %d to %d", x.name, n, x.least, int64(maxAmount))
		}
		*x.amount = int64(n)
	}
	return want, nil
}

// References returns the attributes of a job, as target, that decide what it is given.
func (p *Partitionable) References() (r classad.References) {
	for _, e := range p.policy.modify {
		of := e.References(nil, nil) // to it the job is its own side
		of.My, of.Target = nil, of.My
		r = r.And(of)
	}
	return r
}

// Carve makes a dynamic slot for a holder. The error is the end of a sentence about
// the slot.
func (p *Partitionable) Carve(now time.Time, holder string, want Resources) (Dynamic, error) {
	if p.holder != "" && p.holder != holder && now.Before(p.holdEnd) {
		return Dynamic{}, fmt.Errorf("it is claimed by %s", p.holder)
	}
	for _, x := range want.each() {
		if *x.amount < x.least {
			return Dynamic{}, fmt.Errorf("%d %s are requested", *x.amount, x.name)
		}
	}
	if short := p.left.take(want); short != "" {
		return Dynamic{}, fmt.Errorf("too little %s is left", short)
	}
	n := 1
	for {
		if _, used := p.slots[n]; !used {
			break
		}
		n++
	}
	p.slots[n] = want
	return Dynamic{Number: n, Resources: want}, nil
}

// Restore takes back a dynamic slot in which a job runs after a restart. What it
// has counts as taken even if the slot has become smaller.
func (p *Partitionable) Restore(d Dynamic) error {
	if _, used := p.slots[d.Number]; used || d.Number < 1 {
		return fmt.Errorf("there is a dynamic slot %d", d.Number)
	}
	p.slots[d.Number] = d.Resources
	p.count()
	return nil
}

// Return takes back what a dynamic slot had that has been deleted, and reports
// whether there was one.
func (p *Partitionable) Return(number int) bool {
	if _, ok := p.slots[number]; !ok {
		return false
	}
	delete(p.slots, number)
	p.count()
	return true
}

// Resize gives the slot other resources, of whose Disk so much is free. What is in use stays.
func (p *Partitionable) Resize(total Resources, free int64) {
	if total == p.total && free == p.free {
		return
	}
	p.total, p.free = total, free
	p.count()
}

// count finds out what is left, which is nothing where more is in use than there
// is.
func (p *Partitionable) count() {
	var used Resources
	for _, r := range p.slots {
		used.Add(r)
	}
	p.left = p.total
	amounts := used.each()
	for i, x := range p.left.each() {
		*x.amount = max(*x.amount-*amounts[i].amount, 0)
	}
	p.left.Disk = min(p.left.Disk, p.free)
}

// Left returns what can still be carved.
func (p *Partitionable) Left() Resources { return p.left }

// Claim lets a holder alone carve, for his lease, which is no longer than
// PartitionableLease. It reports whether nobody else does.
func (p *Partitionable) Claim(now time.Time, holder string, lease time.Duration) bool {
	if p.holder != "" && p.holder != holder && now.Before(p.holdEnd) {
		return false
	}
	if lease <= 0 || lease > PartitionableLease {
		lease = PartitionableLease
	}
	p.holder, p.holdEnd = holder, now.Add(lease)
	return true
}

// Release lets anybody carve again, if the holder is the one who claimed.
func (p *Partitionable) Release(holder string) {
	if p.holder == holder {
		p.holder = ""
	}
}
