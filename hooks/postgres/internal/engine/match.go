package engine

import (
	"time"

	"paddock/classad"
)

// class is a class of jobs that are equal to who has to place them.
type class struct {
	id                   int32
	queue, owner         string
	cpus                 int32
	memory, disk         int64 // MiB, KiB
	gpus                 int32
	seconds              int64 // 0: not said
	ad                   *classad.Ad
	requirements         classad.Expr
	demanding, malformed bool // it has Requirements; its ad cannot be read
}

// read reads what submit has picked of the ads of the class.
func (c *class) read(text string) {
	ad, err := classad.ParseOld(text)
	if err != nil {
		c.malformed = true
		return
	}
	c.requirements, c.demanding = ad.Lookup("Requirements")
	c.ad = ad.With(
		classad.Attr{Name: "Owner", Expr: classad.String(c.owner).Expr()},
		classad.Attr{Name: "Queue", Expr: classad.String(c.queue).Expr()},
		classad.Attr{Name: "RequestCpus", Expr: classad.Int(int64(c.cpus)).Expr()},
		classad.Attr{Name: "RequestMemory", Expr: classad.Int(c.memory).Expr()},
		classad.Attr{Name: "RequestDisk", Expr: classad.Int(c.disk).Expr()},
	)
}

// slot is what FETCH_WORK was asked for.
type slot struct {
	name         string
	ad           *classad.Ad
	cpus         int64
	memory, disk int64
	gpus         int64
	timeToLive   int64 // seconds; 0: for ever
	busy         bool  // it runs something, and would refuse whatever does not rank higher
	kept         bool  // its claim waits for the next work, and is given back when there is none
	start        classad.Expr
	picky        bool // it has a condition on jobs
}

func readSlot(ad *classad.Ad) *slot {
	env := &classad.Env{My: ad}
	number := func(name string) int64 {
		n, _ := env.Attr(name).Number()
		return int64(n)
	}
	s := &slot{
		ad: ad, cpus: max(number("Cpus"), 1), memory: number("Memory"), disk: number("Disk"), gpus: number("GPUs"),
		timeToLive: number("TimeToLive"),
	}
	s.name, _ = env.Attr("Name").Str()
	state, _ := env.Attr("State").Str()
	activity, _ := env.Attr("Activity").Str()
	s.busy = state == "Claimed" && activity != "Idle"
	s.kept = state == "Claimed" && activity == "Idle"
	s.start, s.picky = ad.Lookup("Start")
	return s
}

// ownerSteps is what the evaluation of all classes of an owner may cost together for a slot. Who has many that are dear is not to
// keep the host from what it does for others.
const ownerSteps = 500_000

// may reports whether a class of jobs may run in a slot, and takes what that costs from steps. Execd decides for good; what is found
// out here need not be handed out and come back.
func (s *slot) may(c *class, now time.Time, steps *int) bool {
	if c.malformed {
		return true // one of its jobs is taken, so that it can be said what is wrong
	}
	if int64(c.cpus) > s.cpus || int64(c.gpus) > s.gpus ||
		c.memory > 1 && c.memory > s.memory || c.disk > 1 && c.disk > s.disk ||
		s.timeToLive > 0 && c.seconds > s.timeToLive {
		return false
	}
	if c.demanding && !(&classad.Env{My: c.ad, Target: s.ad, Now: now, Steps: steps}).Eval(c.requirements).True() {
		return false
	}
	if s.picky {
		// What it asks of attributes that the class does not have is not known here.
		v := (&classad.Env{My: s.ad, Target: c.ad, Now: now, Steps: steps}).Eval(s.start)
		if is, ok := v.Bool(); ok && !is {
			return false
		}
	}
	return true
}
