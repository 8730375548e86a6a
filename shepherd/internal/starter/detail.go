package starter

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What follows is traced for an administrator who hunts something: the state
// that the steps of the starter begin with and leave. Of the environment there
// are names alone, since values may be secrets.

// detailStart traces what the starter was born with.
func (s *starter) detailStart() {
	if !s.log.Detailed() {
		return
	}
	for _, field := range []string{"SigBlk", "SigIgn", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Cpus_allowed_list"} {
		s.log.Detail("born with " + field + " " + statusField(field))
	}
	if v, err := readSmall(fileOOM); err == nil {
		s.log.Detail("oom_score_adj is " + v)
	}
	if v, err := readSmall("/proc/self/cgroup"); err == nil {
		s.log.Detail("control groups: " + v)
	}
	s.log.Detail("ordered user " + strconv.Quote(s.order.User) + ", variables added: " + names(s.order.Env))
}

// detailIDs traces whose rights this thread has.
func (s *starter) detailIDs(when string) {
	if !s.log.Detailed() {
		return
	}
	r, e, saved := unix.Getresuid()
	rg, eg, sg := unix.Getresgid()
	groups, _ := unix.Getgroups()
	nice, _ := unix.Getpriority(unix.PRIO_PROCESS, 0)
	s.log.Detail(when + " the switch of users: uid " + joinInts([]int{r, e, saved}) + ", gid " + joinInts([]int{rg, eg, sg}) +
		", groups " + joinInts(groups) + ", nice " + strconv.Itoa(20-nice)) // the system call counts from 40 down
}

// detailReady traces what is open and known before the exec.
func (s *starter) detailReady() {
	if !s.log.Detailed() {
		return
	}
	if cwd, err := unix.Getwd(); err == nil {
		s.log.Detail("directory " + cwd)
	}
	for fd := range 3 {
		if path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err == nil {
			flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			s.log.Detail("descriptor " + strconv.Itoa(fd) + ": " + path + ", flags 0" + strconv.FormatInt(int64(flags), 8))
		}
	}
	s.log.Detail("environment: " + names(s.env.list))
}

// detailLimits traces the limits that are still in force.
func (s *starter) detailLimits() {
	if !s.log.Detailed() {
		return
	}
	for _, l := range s.limits {
		var was unix.Rlimit
		if unix.Prlimit(0, l.resource, nil, &was) == nil {
			s.log.Detail(l.name + " was: (soft " + string(appendLimit(nil, was.Cur)) + " hard " + string(appendLimit(nil, was.Max)) + ")")
		}
	}
	s.log.Flush()
}

// names returns the names of variables.
func names(list []string) string {
	var out []string
	for _, v := range list {
		name, _, _ := strings.Cut(v, "=")
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

// statusField returns a line of /proc/thread-self/status.
func statusField(name string) string {
	text, err := readSmall("/proc/thread-self/status")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}
