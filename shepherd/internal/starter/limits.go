package starter

import (
	"math/bits"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// limit is one resource limit as config asks for it, and what came of it.
type limit struct {
	name       string // as it stands in a trace
	resource   int
	soft, hard spool.Limit
}

// resource is a row of the table of limits.
type resource struct {
	key      string // behind s_ and h_
	name     string
	resource int
	slots    bool   // multiplied by the slots on this host
	least    uint64 // what is smaller is raised to it: with less, no program starts
	optional bool   // UNDEFINED leaves what execd has
}

// resources are in the order of Grid Engine's trace.
var resources = [...]resource{
	{"cpu", "RLIMIT_CPU", unix.RLIMIT_CPU, true, 2, false},
	{"fsize", "RLIMIT_FSIZE", unix.RLIMIT_FSIZE, false, 15 << 10, false},
	{"data", "RLIMIT_DATA", unix.RLIMIT_DATA, true, 10 << 20, false},
	{"stack", "RLIMIT_STACK", unix.RLIMIT_STACK, true, 1 << 20, false},
	{"core", "RLIMIT_CORE", unix.RLIMIT_CORE, false, 0, false},
	{"descriptors", "RLIMIT_NOFILE", unix.RLIMIT_NOFILE, true, 100, true},
	{"maxproc", "RLIMIT_NPROC", unix.RLIMIT_NPROC, true, 20, true},
	{"memorylocked", "RLIMIT_MEMLOCK", unix.RLIMIT_MEMLOCK, true, 4 << 10, true},
	{"locks", "RLIMIT_LOCKS", unix.RLIMIT_LOCKS, true, 2, true},
	{"vmem", "RLIMIT_VMEM/RLIMIT_AS", unix.RLIMIT_AS, true, 10 << 20, false},
	{"rss", "RLIMIT_RSS", unix.RLIMIT_RSS, false, 10 << 20, false},
}

// maxSoftDescriptors is what select(2) and programs that close all descriptors
// one by one can still live with.
const maxSoftDescriptors = 65535

// readLimits appends the limits to set.
func readLimits(c *spool.Config, out []limit) ([]limit, error) {
	slots := uint64(1)
	if n, ok := c.Lookup(spool.KeyHostSlots); ok {
		if v, err := strconv.ParseUint(n, 10, 32); err == nil && v > 0 {
			slots = v
		}
	}
	for _, r := range resources {
		l := limit{name: r.name, resource: r.resource}
		var err error
		if l.soft, err = r.read(c, "s_"+r.key, slots); err != nil {
			return nil, err
		}
		if l.hard, err = r.read(c, "h_"+r.key, slots); err != nil {
			return nil, err
		}
		if l.soft == spool.Undefined {
			l.soft = l.hard
		}
		if l.hard == spool.Undefined {
			l.hard = l.soft
		}
		if l.soft == spool.Undefined {
			continue
		}
		if r.resource == unix.RLIMIT_NOFILE {
			l.soft = min(l.soft, maxSoftDescriptors)
		}
		// The kernel refuses a soft limit above the hard one, and then neither
		// would hold. Infinity is the largest number here and there.
		l.soft = min(l.soft, l.hard)
		out = append(out, l)
	}
	return out, nil
}

// leaveVmem leaves the address space alone of what is in a control group that
// holds h_vmem. What s_vmem says is asked for besides.
func leaveVmem(c *spool.Config, limits []limit) []limit {
	for i := range limits {
		l := &limits[i]
		if l.resource != unix.RLIMIT_AS {
			continue
		}
		text, _ := c.Lookup(spool.KeySVmem)
		if soft, err := spool.ParseLimit(text); err != nil || soft >= spool.Undefined {
			return append(limits[:i], limits[i+1:]...)
		}
		l.hard = spool.Infinity
	}
	return limits
}

// read returns one value, multiplied and raised as the table says. A value
// that cannot be parsed is 0 in Grid Engine, hence the smallest one.
func (r resource) read(c *spool.Config, key string, slots uint64) (spool.Limit, error) {
	text, err := c.String(key)
	if err != nil {
		return 0, err
	}
	l, err := spool.ParseLimit(text)
	if err != nil {
		l = 0
	}
	switch {
	case l == spool.Infinity:
		return l, nil
	case l == spool.Undefined && r.optional:
		return l, nil
	case l == spool.Undefined:
		return spool.Infinity, nil
	}
	if r.slots {
		if whole, _ := c.Lookup(key + spool.KeyConsumableJob); whole != "1" {
			high, low := bits.Mul64(uint64(l), slots)
			if high != 0 || spool.Limit(low) >= spool.Undefined {
				return spool.Infinity, nil
			}
			l = spool.Limit(low)
		}
	}
	return max(l, spool.Limit(r.least)), nil
}

// setLimits sets the limits and says so, or keeps silent about it.
func (s *starter) setLimits(limits []limit, traced bool) {
	regs := s.regs
	for i := range limits {
		l := &limits[i]
		s.regs = regs
		want, got := store(s.plan, unix.Rlimit{Cur: uint64(l.soft), Max: uint64(l.hard)}), s.room(unsafe.Sizeof(unix.Rlimit{}))
		s.call(unix.SYS_PRLIMIT64, 0, uintptr(l.resource), want, 0)
		if !traced {
			continue
		}
		errno := s.errno()
		s.call(unix.SYS_PRLIMIT64, 0, uintptr(l.resource), 0, got)
		s.begins(l.name)
		s.append(func(b []byte) []byte {
			b = appendLimit(append(b, " setting: (soft "...), uint64(l.soft))
			b = appendLimit(append(b, " hard "...), uint64(l.hard))
			return append(b, ") resulting: "...)
		})
		s.sayLimit(got)
		s.either(errno, 0, func() {}, func() {
			s.plan.say(" failed: errno ")
			s.number(errno, 10)
		})
		s.ends("")
	}
}

// sayLimit adds a limit, which is at an address in the plan, to the text.
func (s *starter) sayLimit(at uintptr) {
	word := func(offset uintptr) { s.number(s.load(at+offset, 8, ^uintptr(0)), 0) }
	s.plan.say("(soft ")
	word(unsafe.Offsetof(unix.Rlimit{}.Cur))
	s.plan.say(" hard ")
	word(unsafe.Offsetof(unix.Rlimit{}.Max))
	s.plan.say(")")
}

func appendLimit(b []byte, v uint64) []byte {
	if spool.Limit(v) == spool.Infinity { // RLIM_INFINITY too
		return append(b, "INFINITY"...)
	}
	return strconv.AppendUint(b, v, 10)
}
