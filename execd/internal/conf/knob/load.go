package knob

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"paddock/execd/internal/conf/spell"
)

// These bound what is read. Files are an administrator's, but one that a broken program
// wrote must not take all memory.
const (
	maxName    = 256      // bytes of a name
	maxValue   = 64 << 10 // bytes of a value, as written and expanded
	maxKnobs   = 10_000
	maxFiles   = 256
	maxText    = 4 << 20  // bytes of all files
	maxDepth   = 100      // expansions within expansions
	maxDefault = 4096     // bytes of the default of a reference
	maxWork    = 16 << 20 // bytes that expanding makes, and one for each reference
	maxDeep    = 10       // files including files
	maxWrong   = 100      // mistakes that are reported, and as many warnings
)

// Source is where knobs are read from.
type Source struct {
	File string // hooks.conf; it may be missing
	// Read returns the contents of a file, or why it is not trusted. For a file that
	// does not exist the error matches fs.ErrNotExist.
	Read func(path string) ([]byte, error)
	// Names returns the names of the files in a directory that are to be read.
	Names func(dir string) ([]string, error)
	// Environ is the environment: _CONDOR_NAME=value overrides all files.
	Environ []string
	// Host is the value of $(FULL_HOSTNAME), and $(HOSTNAME) is its first part.
	Host string
}

// Load reads the file, the files that it includes, those of LOCAL_CONFIG_DIR and the
// environment. The Set has what could be read even if there are problems, and the
// caller decides whether to use it.
func Load(src Source) (*Set, []Problem) {
	r := &reader{
		Source: src, knobs: map[string]*Knob{}, memo: map[string]result{}, refers: map[string]bool{}, read: map[string]bool{}, dirs: map[string]bool{}, work: maxWork,
	}
	r.environ()
	r.read[src.File] = true
	if data, err := src.Read(src.File); err == nil {
		r.file(src.File, data)
	} else if !errors.Is(err, fs.ErrNotExist) {
		r.cannot(src.File, 0, src.File, err)
	}
	r.fragments()
	r.override()
	return r.finish(), r.problems
}

// Parse reads a text as a file that includes nothing.
func Parse(name, text string) (*Set, []Problem) {
	return Load(Source{
		File: name,
		Read: func(path string) ([]byte, error) {
			if path != name {
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
			}
			return []byte(text), nil
		},
		Names: func(dir string) ([]string, error) {
			return nil, &fs.PathError{Op: "open", Path: dir, Err: fs.ErrNotExist}
		},
	})
}

// reader is one Load.
type reader struct {
	Source
	knobs    map[string]*Knob
	env      []assignment      // those of the environment
	memo     map[string]result // what names expand to, until the next definition
	stack    []string          // the names being expanded
	refers   map[string]bool   // names that a value refers to
	read     map[string]bool   // files that were read or looked for
	dirs     map[string]bool   // directories whose files were read
	reading  []string          // the files being read, each included by the one before
	files    int
	text     int
	work     int
	mistakes int
	warnings int
	problems []Problem
}

// assignment is one definition, and its place.
type assignment struct {
	name, value string
	file        string
	line        int
	env         string
}

// add adds a problem. Warnings are counted apart: a Set with a mistake is not used, and
// no number of warnings may hide one.
func (r *reader) add(p Problem) {
	n := &r.mistakes
	if p.Warning {
		n = &r.warnings
	}
	if *n++; *n <= maxWrong {
		r.problems = append(r.problems, p)
	}
}

func (r *reader) problem(file string, line int, format string, args ...any) {
	r.add(Problem{File: file, Line: line, Text: fmt.Sprintf(format, args...)})
}

// cannot reports a file that could not be read at the place that names it, or at the
// file itself where that is wrong.
func (r *reader) cannot(file string, line int, path string, err error) {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		if file == path && line == 0 {
			r.problem(file, 0, "cannot %s: %v", p.Op, p.Err)
		} else {
			r.problem(file, line, "cannot %s %s: %v", p.Op, path, p.Err)
		}
		return
	}
	r.problem(file, line, "%v", err)
}

// file reads a file.
func (r *reader) file(path string, data []byte) {
	r.files++
	r.text += len(data)
	switch {
	case r.files > maxFiles:
		r.problem(path, 0, "more than %d files", maxFiles)
		return
	case r.text > maxText:
		r.problem(path, 0, "more than %d bytes in all files", maxText)
		return
	case slices.Contains(r.reading, path):
		r.problem(path, 0, "includes itself: %s", strings.Join(append(r.reading, path), " -> "))
		return
	case len(r.reading) == maxDeep:
		r.problem(path, 0, "more than %d files include each other", maxDeep)
		return
	}
	r.reading = append(r.reading, path)
	defer func() { r.reading = r.reading[:len(r.reading)-1] }()
	l := &lines{r: r, file: path, text: string(data)}
	l.read()
}

// define adds a definition. References of the definition to itself are replaced at once
// by the earlier value, as it was written.
func (r *reader) define(a assignment) {
	k := key(a.name)
	switch {
	case !validName(a.name):
		r.problem(a.file, a.line, "%q is no name of a knob: letters, digits, underscores and dots", shorten(a.name))
		return
	case len(r.knobs) >= maxKnobs && r.knobs[k] == nil:
		r.problem(a.file, a.line, "more than %d knobs", maxKnobs)
		return
	}
	raw, err := r.ownValue(k, a.value)
	if err != nil {
		r.problem(a.file, a.line, "%s: %v", cmp.Or(a.env, a.name), err)
		return
	}
	name := a.name
	if d := Find(name); d != nil && !d.pattern() && key(d.Name) == k {
		name = d.Name
	} else if was := r.knobs[k]; was != nil {
		name = was.Name
	}
	r.knobs[k] = &Knob{Name: name, Raw: raw, File: a.file, Line: a.line, Env: a.env}
	if a.env != "" {
		r.knobs[k].File = ""
	}
	clear(r.memo)
}

// validName reports whether a knob may have a name: words with dots between them.
func validName(name string) bool {
	for part := range strings.SplitSeq(name, ".") {
		if !IsKeyword(part) {
			return false
		}
	}
	return len(name) <= maxName
}

// shorten shortens a text for a message.
func shorten(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}

// environment is the file in problems of environment variables.
const environment = "environment"

// ofJobs are the variables that tell jobs and their hooks about themselves, here and in
// HTCondor.
var ofJobs = []string{
	"_CONDOR_SCRATCH_DIR", "_CONDOR_SLOT", "_CONDOR_JOB_AD", "_CONDOR_MACHINE_AD", "_CONDOR_JOB_IWD", "_CONDOR_JOB_PIDS", "_CONDOR_CREDS",
	"_CONDOR_BIN", "_CONDOR_CHIRP_CONFIG", "_CONDOR_WRAPPER_ERROR_FILE",
}

// OfJob reports whether a variable tells a job about itself. In an execd that a job has
// started, such a variable is no knob.
func OfJob(variable string) bool { return slices.Contains(ofJobs, variable) }

// environ reads the definitions in the environment.
func (r *reader) environ() {
	for _, e := range r.Environ {
		variable, value, _ := strings.Cut(e, "=")
		if len(variable) > len("_CONDOR_") && strings.EqualFold(variable[:len("_CONDOR_")], "_CONDOR_") && !OfJob(variable) {
			r.env = append(r.env, assignment{name: variable[len("_CONDOR_"):], value: strings.TrimSpace(value), file: environment, env: variable})
		}
	}
	slices.SortFunc(r.env, func(a, b assignment) int { return cmp.Compare(a.env, b.env) })
}

// override adds the definitions of the environment, which come last.
func (r *reader) override() {
	for _, a := range r.env {
		r.define(a)
	}
}

const localDir = "LOCAL_CONFIG_DIR"

// fragments reads the directories of LOCAL_CONFIG_DIR. A definition of it in their
// files comes too late.
func (r *reader) fragments() {
	at := Knob{}
	if found := r.resolve(localDir); found != "" {
		at = *r.knobs[found]
	}
	text := at.Raw
	for _, a := range r.env {
		if strings.EqualFold(a.name, localDir) {
			text, at = a.value, Knob{}
		}
	}
	dirs, err := r.expand(text)
	if err != nil {
		return // finish reports it at the knob
	}
	for _, dir := range words(dirs) {
		dir = r.path(r.File, dir)
		r.dirs[dir] = true
		names, err := r.Names(dir)
		if err != nil {
			r.cannot(cmp.Or(at.File, environment), at.Line, dir, err)
			continue
		}
		slices.Sort(names)
		for _, name := range names {
			path := filepath.Join(dir, name)
			r.read[path] = true
			data, err := r.Read(path)
			if err != nil {
				r.cannot(path, 0, path, err)
				continue
			}
			r.file(path, data)
		}
	}
}

// path resolves a path in a file relative to the directory of the file.
func (r *reader) path(file, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(filepath.Dir(file), path)
}

// finish expands every knob, and checks the values of known ones.
func (r *reader) finish() *Set {
	all := slices.Sorted(maps.Keys(r.knobs))
	for _, name := range all {
		k := r.knobs[name]
		v, err := r.value(name)
		k.Value = v
		if err != nil {
			if err.at == name {
				r.problem(k.place(), k.Line, "%s", k.told(err.Error()))
			}
			continue
		}
		if d := Find(name); d != nil && v != "" {
			if err := d.check(v); err != nil {
				r.problem(k.place(), k.Line, "%s", k.told(err.Error()))
			} else if odd := d.odd(name, v); odd != "" {
				r.add(Problem{File: k.place(), Line: k.Line, Text: k.told(odd), Warning: true})
			}
		}
		if why := refused(bare(name), v); why != "" {
			r.problem(k.place(), k.Line, "%s", k.told("cannot be had here: "+why))
		}
		if why := unread(bare(name)); why != "" && v != "" && !r.refers[name] {
			r.add(Problem{File: k.place(), Line: k.Line, Text: k.told("has no effect here: " + why), Warning: true})
		}
	}
	s := &Set{knobs: r.knobs, refers: r.refers, files: slices.Sorted(maps.Keys(r.read)), dirs: slices.Sorted(maps.Keys(r.dirs))}
	r.attributes(s)
	for _, name := range all {
		if k := r.knobs[name]; k.Value != "" && !r.refers[bare(name)] && Find(name) == nil {
			r.misspelt(k)
		}
	}
	return s
}

// shortest is how long a name is that is taken for a mistake in writing another:
// short words are near each other without meaning the same, unless their letters are.
const shortest = 8

// misspelt warns of a knob that is neither read nor referred to, and whose name is
// close to that of a known one.
func (r *reader) misspelt(k *Knob) {
	name := bare(key(k.Name))
	var names []string
	for i := range known {
		if !known[i].pattern() && (len(k.Name) >= shortest || letters(key(known[i].Name)) == letters(name)) {
			names = append(names, known[i].Name)
		}
	}
	if meant := spell.Nearest(names, name, 3); meant != "" {
		r.add(Problem{File: k.place(), Line: k.Line, Text: k.told("not read by anything, did you mean " + meant + "?"), Warning: true})
	}
}

// letters are those of a name, in order.
func letters(name string) string {
	b := []byte(name)
	slices.Sort(b)
	return string(b)
}

// told describes a mistake of the knob.
func (k *Knob) told(what string) string {
	if k.Env != "" {
		return k.Env + ": " + what
	}
	return k.Name + ": " + what
}

// place is the file at which a problem of the knob is reported.
func (k *Knob) place() string {
	if k.Env != "" {
		return environment
	}
	return k.File
}

// attributes checks the knobs that become attributes of slots.
func (r *reader) attributes(s *Set) {
	list := s.Get("STARTD_ATTRS")
	for _, name := range words(list.Value) {
		r.refers[key(name)] = true
		v, ok := s.Lookup(name)
		at := s.Get(name)
		if !ok {
			r.problem(list.place(), list.Line, "STARTD_ATTRS: nothing says what %s is", shorten(name))
		} else if e, err := parse(v); err != nil {
			r.problem(at.place(), at.Line, "%s: %v", at.Name, err)
		} else if wrong := mistakes(e); wrong != "" && Find(name) == nil { // known knobs were checked
			r.add(Problem{File: at.place(), Line: at.Line, Text: at.told(wrong), Warning: true})
		}
	}
}
