package starter

import "strings"

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
