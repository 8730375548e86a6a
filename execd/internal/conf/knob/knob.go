// Package knob reads hooks.conf, which is written in HTCondor's configuration language:
// the variables ("knobs") by which slots are given to others than the queue, and the
// hooks of a site. It knows which knobs execd reads, and reports mistakes in them by
// file and line. It opens no file: its callers, as package conf for the administrator's
// files, say how one is read and whether it is trusted. Only packages of execd import
// it.
//
// hooks.conf(5) describes the language and the knobs.
package knob

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"paddock/classad"
)

// Set has the knobs of the files. It never changes. A nil Set is valid and empty.
type Set struct {
	knobs  map[string]*Knob // by name in capitals
	refers map[string]bool  // names, in capitals, that a value refers to
	files  []string
	dirs   []string
}

// Knob is one knob, and where it comes from.
type Knob struct {
	Name    string // as it was written first; of a known one, as hooks.conf(5) writes it
	Value   string // expanded
	Raw     string // as written, without the comments and continuations in it
	File    string // "": not from a file
	Line    int    // in File; the first of a value over several lines
	Env     string // the environment variable that it comes from; "": none
	Default bool   // it is not defined, or defined as nothing: Value is execd's default, or ""
}

// Where returns where the knob comes from: a file and line, the environment, or
// "default".
func (k Knob) Where() string {
	switch {
	case k.Default:
		return "default"
	case k.Env != "":
		return "environment " + k.Env
	case k.Line == 0:
		return cmp.Or(k.File, "built in")
	}
	return fmt.Sprintf("%s:%d", k.File, k.Line)
}

// Problem is a mistake in a file.
type Problem struct {
	File    string
	Line    int // 0: the file as a whole
	Text    string
	Warning bool // the file is read, and does less than it seems to
}

func (p Problem) String() string {
	switch {
	case p.File == "":
		return p.Text
	case p.Line == 0:
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// prefixes are the daemon names under which a knob is looked for before its bare
// name: execd's own, and that of the daemon whose files may be shared with it.
var prefixes = []string{"EXECD.", "STARTD."}

// key is a name as it is looked up: case makes no difference.
func key(name string) string { return strings.ToUpper(name) }

// find returns the knob that a name stands for, or nil. One that is defined as nothing
// counts as not defined.
func (s *Set) find(name string) *Knob {
	if s == nil {
		return nil
	}
	name = key(name)
	for _, p := range prefixes {
		if k := s.knobs[p+name]; k != nil && k.Raw != "" {
			return k
		}
	}
	if k := s.knobs[name]; k != nil && k.Raw != "" {
		return k
	}
	return nil
}

// Lookup returns the expanded value of a knob. ok is false if it is not defined, or
// defined as nothing; execd's own defaults do not count. The names of daemons,
// EXECD.NAME and STARTD.NAME, are tried first.
func (s *Set) Lookup(name string) (value string, ok bool) {
	k := s.find(name)
	if k == nil {
		return "", false
	}
	return k.Value, k.Value != ""
}

// Get returns a knob. If it is not defined, Default is true and Value is execd's
// default, "" if there is none.
func (s *Set) Get(name string) Knob {
	if k := s.find(name); k != nil && k.Value != "" {
		return *k
	}
	if d := Find(name); d != nil {
		return Knob{Name: cmp.Or(d.Name, name), Value: d.Default, Raw: d.Default, Default: true}
	}
	return Knob{Name: name, Default: true}
}

// All returns every knob that is defined, or that execd knows, by name.
func (s *Set) All() []Knob {
	all := map[string]Knob{}
	for _, d := range known {
		if !d.pattern() {
			all[key(d.Name)] = Knob{Name: d.Name, Value: d.Default, Raw: d.Default, Default: true}
		}
	}
	if s != nil {
		for name, k := range s.knobs {
			if k.Value != "" || k.Raw != "" {
				all[name] = *k
			}
		}
	}
	list := make([]Knob, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list
}

// Names returns the names of all defined knobs, in capitals, in order, and without the
// names of daemons before them.
func (s *Set) Names() []string {
	if s == nil {
		return nil
	}
	names := map[string]bool{}
	for name := range s.knobs {
		names[bare(name)] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// Refers reports whether any value refers to the knob of a name.
func (s *Set) Refers(name string) bool { return s != nil && s.refers[key(name)] }

// Equal reports whether two Sets define the same in the same places.
func (s *Set) Equal(other *Set) bool {
	return slices.Equal(s.All(), other.All())
}

// Files returns the files that were read, or would have been if they existed, in order.
func (s *Set) Files() []string {
	if s == nil {
		return nil
	}
	return s.files
}

// Dirs returns the directories of LOCAL_CONFIG_DIR, in order.
func (s *Set) Dirs() []string {
	if s == nil {
		return nil
	}
	return s.dirs
}

// Expr returns a knob that is an expression. ok is false if it is not defined: defaults
// do not count.
func (s *Set) Expr(name string) (e classad.Expr, ok bool) {
	v, ok := s.Lookup(name)
	if !ok {
		return e, false
	}
	e, err := classad.ParseOldExpr(v)
	return e, err == nil
}

// Int returns a knob that is a whole number, def if it is not defined. A value may be
// calculated (60 * 5); it was checked when it was read.
func (s *Set) Int(name string, def int) int {
	if v, ok := s.Lookup(name); ok {
		if n, err := number(v); err == nil {
			return int(n)
		}
	}
	return def
}

// Bool returns a knob that is true or false, def if it is not defined.
func (s *Set) Bool(name string, def bool) bool {
	if v, ok := s.Lookup(name); ok {
		if b, err := truth(v); err == nil {
			return b
		}
	}
	return def
}

// Duration returns a knob in whole seconds, def if it is not defined.
func (s *Set) Duration(name string, def time.Duration) time.Duration {
	if v, ok := s.Lookup(name); ok {
		if n, err := number(v); err == nil {
			return time.Duration(n) * time.Second
		}
	}
	return def
}

// Words returns a knob that is a list, with commas or blanks between its elements; nil
// if it is not defined.
func (s *Set) Words(name string) []string {
	v, _ := s.Lookup(name)
	return words(v)
}

// words splits a list.
func words(v string) []string {
	return strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' })
}
