package starter

import (
	"strconv"
	"strings"
)

// environment is a list of NAME=value in which a later value takes the place
// of an earlier one of that name.
type environment struct {
	list  []string
	index map[string]int
}

// newEnvironment returns the environment made of the given lists; words
// without a name are left out.
func newEnvironment(lists ...[]string) environment {
	e := environment{index: make(map[string]int)}
	for _, l := range lists {
		for _, v := range l {
			if name, value, ok := strings.Cut(v, "="); ok && name != "" {
				e.set(name, value)
			}
		}
	}
	return e
}

func (e *environment) set(name, value string) {
	if i, ok := e.index[name]; ok {
		e.list[i] = name + "=" + value
		return
	}
	e.index[name] = len(e.list)
	e.list = append(e.list, name+"="+value)
}

func (e *environment) lookup(name string) (string, bool) {
	if i, ok := e.index[name]; ok {
		return e.list[i][len(name)+1:], true
	}
	return "", false
}

// environment makes the environment of what the starter becomes.
func (s *starter) environment() {
	kind := s.order.Kind
	switch {
	case s.privileged():
		s.env = s.fromNothing()
	case kind.procedure():
		s.env = newEnvironment(s.given)
	default:
		// What the shepherd was started with is the job's, and its methods' with it.
		lists := [][]string{s.inherited, s.given}
		if s.owner.UID == 0 || s.owner.GID == 0 {
			for i, l := range lists {
				lists[i] = filter(l, harmless)
			}
		}
		s.env = newEnvironment(lists...)
	}
	set := func(name, value string) { setPlain(&s.env, name, value, "") }
	if !s.privileged() {
		set = s.env.set
	}
	if s.request.Starter != "" {
		set("SGE_STARTER_SHELL_PATH", s.request.Shell)
		set("SGE_STARTER_SHELL_START_MODE", s.request.Mode)
		set("SGE_STARTER_USE_LOGIN_SHELL", strconv.FormatBool(s.request.LoginShell))
	}
	if kind != Method {
		set("SGE_STDIN_PATH", s.streams.in.path)
		set("SGE_STDOUT_PATH", s.streams.out.path)
		stderr := s.streams.err
		if s.streams.merge {
			stderr = s.streams.out
		}
		set("SGE_STDERR_PATH", stderr.path)
		set("SGE_CWD_PATH", s.streams.cwd)
	}
	if s.bound != "" {
		set("SGE_BINDING", s.bound)
	}
	// The shepherd's own words, and so for all.
	for _, v := range s.order.Env {
		if name, value, ok := strings.Cut(v, "="); ok && name != "" {
			set(name, value)
		}
	}
}

func filter(list []string, keep func(string) bool) []string {
	var out []string
	for _, v := range list {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}
