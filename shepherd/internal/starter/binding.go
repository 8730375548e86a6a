package starter

import (
	"errors"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/command"
	"paddock/spool"
)

// bind binds the process, and so what it becomes, to the processors that config
// names. What cannot be bound runs unbound: that is slower and not wrong.
func (s *starter) bind() {
	request, err := readBinding(s.config)
	if err == nil && request.none() {
		return
	}
	if err == nil && request.inform {
		if cpus, err := request.processors(sysCPU); err == nil {
			s.bound = joinInts(cpus)
		}
		return
	}
	var bound []int
	if err == nil {
		bound, err = request.apply(sysCPU, s.process.PID)
	}
	if err != nil {
		s.say("do_core_binding: " + err.Error() + ", " + s.order.Name + " is not bound")
		return
	}
	s.bound = joinInts(bound)
	s.say("do_core_binding: " + s.order.Name + " is bound to processors " + s.bound)
}

// A binding is a wish for processors: cores, or the processors themselves. The
// zero value wishes for nothing.
type binding struct {
	cores  []core
	cpus   []int
	inform bool // the job is to know them, and to bind itself
}

// A core is given by two logical numbers, counted from 0 in the order of the
// system's: the socket, and the core of this socket.
type core struct{ socket, core int }

func (b *binding) none() bool { return len(b.cores) == 0 && len(b.cpus) == 0 }

// readBinding returns what config wishes for. Where the parallel environment is
// only to be informed, that is nothing. Open Cluster Scheduler 9 has three keys
// in the place of one, of which the processors say all that the topology does.
func readBinding(c *spool.Config) (binding, error) {
	if v, ok := c.Lookup(spool.KeyBinding); ok {
		return parseBinding(v)
	}
	instance, _ := c.Lookup(spool.KeyBindingInstance)
	list, _ := c.Lookup(spool.KeyBindingCPUSet)
	use, _ := c.Lookup(spool.KeyBindingToUse)
	switch {
	case strings.EqualFold(instance, "pe"), command.IsNone(list) && command.IsNone(use):
		return binding{}, nil
	case command.IsNone(list):
		return binding{}, errors.New("cannot use " + spool.KeyBindingToUse + " " + strconv.Quote(use) + " without " + spool.KeyBindingCPUSet)
	}
	cpus, err := spool.ParseCPUs(list)
	if err != nil {
		return binding{}, errors.New("cannot use " + spool.KeyBindingCPUSet + ": " + err.Error())
	}
	return binding{cpus: cpus, inform: strings.EqualFold(instance, "env")}, nil
}

// parseBinding parses the value of binding: explicit:socket,core:...:topology,
// or a strategy with env_ or pe_ before it.
func parseBinding(v string) (binding, error) {
	if command.IsNone(v) || strings.EqualFold(v, "NULL") || strings.HasPrefix(v, "pe_") {
		return binding{}, nil
	}
	if rest, ok := strings.CutPrefix(v, "env_"); ok {
		b, err := parseBinding(rest)
		if err != nil { // other strategies are the scheduler's to resolve
			return binding{}, nil //nolint:nilerr // nothing is asked for that is not done
		}
		b.inform = true
		return b, nil
	}
	bad := func(why string) (binding, error) {
		return binding{}, errors.New("cannot use " + spool.KeyBinding + " " + strconv.Quote(v) + ": " + why)
	}
	list, ok := strings.CutPrefix(v, "explicit:")
	if !ok {
		return bad("want explicit:socket,core")
	}
	var b binding
	for list != "" {
		pair, rest, more := strings.Cut(list, ":")
		first, second, ok := strings.Cut(pair, ",")
		if !ok {
			// The last is the whole topology as the scheduler saw it. It tells
			// nothing that the host does not.
			if more || len(b.cores) == 0 {
				return bad(strconv.Quote(pair) + " is not socket,core")
			}
			break
		}
		s, err1 := spool.ParseCPU(first)
		c, err2 := spool.ParseCPU(second)
		if err := firstOf(err1, err2); err != nil {
			return bad(err.Error())
		}
		b.cores = append(b.cores, core{s, c})
		list = rest
	}
	if len(b.cores) == 0 {
		return bad("no cores are named")
	}
	return b, nil
}

// apply binds a process to the processors wished for, as far as it may use
// them, and returns which they are. root is the kernel's directory of them.
func (b *binding) apply(root string, pid int) ([]int, error) {
	cpus, err := b.processors(root)
	if err != nil {
		return nil, err
	}
	mine, err := affinity(pid)
	if err != nil {
		return nil, errors.New("cannot see which processors may be used: " + errnoText(err))
	}
	var mask cpuMask
	for _, cpu := range cpus {
		if mine.has(cpu) {
			mask.set(cpu)
		}
	}
	list := mask.list()
	if len(list) == 0 {
		return nil, errors.New("none of the processors " + joinInts(cpus) + " may be used")
	}
	if err := setAffinity(pid, &mask); err != nil {
		return nil, errors.New("cannot bind to processors " + joinInts(list) + ": " + errnoText(err))
	}
	return list, nil
}

// processors returns the numbers of the processors wished for.
func (b *binding) processors(root string) ([]int, error) {
	if len(b.cores) == 0 {
		return b.cpus, nil
	}
	t, err := readTopology(root)
	if err != nil {
		return nil, err
	}
	return t.processors(b.cores)
}

// cpuMask is a set of processors as the kernel has it, and larger than the one
// of package unix, which ends at 1024.
type cpuMask [spool.MaxCPUs / 64]uint64

func (m *cpuMask) set(cpu int)      { m[cpu/64] |= 1 << (cpu % 64) }
func (m *cpuMask) has(cpu int) bool { return m[cpu/64]&(1<<(cpu%64)) != 0 }

func (m *cpuMask) list() []int {
	var out []int
	for cpu := range spool.MaxCPUs {
		if m.has(cpu) {
			out = append(out, cpu)
		}
	}
	return out
}

// affinity returns the processors a process may use.
func affinity(pid int) (*cpuMask, error) {
	m := &cpuMask{}
	_, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETAFFINITY, uintptr(pid), unsafe.Sizeof(*m), uintptr(unsafe.Pointer(m)))
	if errno != 0 {
		return nil, errno
	}
	return m, nil
}

func setAffinity(pid int, m *cpuMask) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETAFFINITY, uintptr(pid), unsafe.Sizeof(*m), uintptr(unsafe.Pointer(m)))
	if errno != 0 {
		return errno
	}
	return nil
}

func joinInts(list []int) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, " ")
}
