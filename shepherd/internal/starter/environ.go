package starter

import (
	"strconv"
	"strings"
	"unsafe"
)

// environment is a list of NAME=value in which a later value takes the place
// of an earlier one of that name.
type environment struct {
	list  []string
	index map[string]int // nil while there are few
	words words          // what was set
}

// words has the bytes of strings that are put together. Strings of their own, each as long as
// it is, would take pages of each size from every shepherd.
type words []byte

// join returns the parts as one string.
func (w *words) join(parts ...string) string {
	return w.written(func(b []byte) []byte {
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	})
}

// written returns what a function appends.
func (w *words) written(by func([]byte) []byte) string {
	if *w == nil {
		*w = make(words, 0, 1<<10)
	}
	at := len(*w)
	*w = by(*w)
	return unsafe.String(unsafe.SliceData((*w)[at:]), len(*w)-at)
}

// few is how many variables are looked through one by one.
const few = 100

// newEnvironment returns the environment made of the given lists; words
// without a name are left out.
func newEnvironment(lists ...[]string) environment {
	n := 8 // what the shepherd adds
	for _, l := range lists {
		n += len(l)
	}
	e := environment{list: make([]string, 0, n)}
	for _, l := range lists {
		for _, v := range l {
			if name, _, ok := strings.Cut(v, "="); ok && name != "" {
				e.put(name, v)
			}
		}
	}
	return e
}

func (e *environment) set(name, value string) { e.put(name, e.words.join(name, "=", value)) }

// put sets the variable of that name, given as a whole.
func (e *environment) put(name, variable string) {
	if i, ok := e.find(name); ok {
		e.list[i] = variable
		return
	}
	e.list = append(e.list, variable)
	if e.index != nil {
		e.index[name] = len(e.list) - 1
	}
}

// find returns where in the list a variable is.
func (e *environment) find(name string) (int, bool) {
	if e.index == nil && len(e.list) < few {
		for i, v := range e.list {
			if len(v) > len(name) && v[len(name)] == '=' && v[:len(name)] == name {
				return i, true
			}
		}
		return 0, false
	}
	if e.index == nil {
		e.index = make(map[string]int, cap(e.list))
		for i, v := range e.list {
			e.index[v[:strings.IndexByte(v, '=')]] = i
		}
	}
	i, ok := e.index[name]
	return i, ok
}

func (e *environment) lookup(name string) (string, bool) {
	if i, ok := e.find(name); ok {
		return e.list[i][len(name)+1:], true
	}
	return "", false
}

// turn is a variable that has another value if a stream is a file in a directory.
type turn struct {
	index int     // in the environment
	isDir uintptr // register
	inDir string  // the whole variable
}

// environment makes the environment of what the process becomes.
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
		turning := func(name string, f *stream) {
			set(name, f.path)
			if i, ok := s.env.find(name); ok && f.isDir != 0 {
				s.turns = append(s.turns, turn{i, f.isDir, s.words.join(name, "=", f.inDir)})
			}
		}
		turning("SGE_STDOUT_PATH", &s.streams.out)
		stderr := &s.streams.err
		if s.streams.merge {
			stderr = &s.streams.out
		}
		turning("SGE_STDERR_PATH", stderr)
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
	out := make([]string, 0, len(list))
	for _, v := range list {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}
