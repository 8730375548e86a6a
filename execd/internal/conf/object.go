package conf

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"paddock/execd/api"
)

// parameter is a parameter without the type of its object.
type parameter struct {
	name     string
	standard string
	form     form
}

func parameters[T any](params []param[T]) []parameter {
	list := make([]parameter, len(params))
	for i, p := range params {
		list[i] = parameter{p.name, p.standard, p.form}
	}
	return list
}

// schemas are the parameters by kind, the name of the object first.
var schemas = map[string][]parameter{
	kindQueue: parameters(queueParams), kindPE: parameters(peParams), kindCkpt: parameters(ckptParams),
	kindUserList: parameters(userListParams), kindHostGroup: parameters(hostGroupParams), kindHost: parameters(hostParams),
	kindProject: parameters(projectParams), kindConf: parameters(globalParams), kindSched: parameters(schedParams),
}

// named are the kinds that have a directory, with a file for each object.
var named = []string{kindQueue, kindPE, kindCkpt, kindUserList, kindHostGroup, kindHost, kindProject}

// measured are the parameters of a host that qconf -se shows and that cannot be
// configured.
var measured = []string{"load_values", "processors"}

// object finds the object of the text, and parses it.
func (e *edit) object() (entries []entry, err error) {
	entries, err = parse("", []byte(e.Text))
	if err != nil {
		if p, ok := errors.AsType[*Problem](err); ok {
			e.reply.Problems = append(e.reply.Problems, api.Problem{Line: p.Line, Text: p.Text})
			return nil, nil
		}
		return nil, err
	}
	schema := schemas[e.Kind]
	for _, entry := range entries {
		if !slices.ContainsFunc(schema, func(p parameter) bool { return p.name == entry.name }) {
			e.problem(entry.line, "unknown attribute name %q", entry.name)
		}
	}
	if !slices.Contains(named, e.Kind) {
		if e.Name != "" && (e.Kind != kindConf || e.Name != "global") {
			return nil, rejected("%s has no parts: %q is none", speech[e.Kind].object, e.Name)
		}
		e.Name = ""
		return entries, nil
	}
	i := slices.IndexFunc(entries, func(n entry) bool { return n.name == schema[0].name })
	if i < 0 {
		e.missing(schema[0].name)
		return nil, nil
	}
	e.Name = entries[i].value
	return entries, e.checkName()
}

// problem adds a mistake in the text, in Grid Engine's words.
func (e *edit) problem(line int, format string, args ...any) {
	e.reply.Problems = append(e.reply.Problems, api.Problem{Line: line, Text: fmt.Sprintf(format, args...)})
}

// missing adds Grid Engine's error for a parameter that the text lacks.
func (e *edit) missing(name string) { e.problem(0, "required attribute %q is missing", name) }

// checkName refuses what cannot be the name of an object and of its file.
func (e *edit) checkName() error {
	name, ok := e.Name, true
	if e.Kind == kindHostGroup {
		name, ok = strings.CutPrefix(name, "@")
	}
	if e.Kind == kindProject && name == "template" {
		return rejected("Keyword (%q) not allowed as objectname", strings.ToUpper(name))
	}
	// qconf -aq begins with the name template.
	ok = ok && (e.Action != api.ConfigureAdd || name != "template")
	if !ok || checkName("", name) != nil || !isMeant(e.Name) || len(e.Name) > maxObjectName {
		return rejected("%s name %q is not valid", speech[e.Kind].object, e.Name)
	}
	return nil
}

// there reports whether the object exists.
func (e *edit) there() bool { return e.old.objects[e.Kind][e.Name] != nil }

// absent returns the error for an object that does not exist.
func (e *edit) absent(object string) error {
	return api.Errorf(api.CodeNotFound, "denied: %s %q does not exist", object, e.Name)
}

// add makes a new object from the text.
func (e *edit) add() error {
	if !slices.Contains(named, e.Kind) {
		return rejected("%s already exists", strings.TrimSpace(speech[e.Kind].object+" global"))
	}
	entries, err := e.object()
	switch {
	case err != nil || len(e.reply.Problems) > 0:
		return err
	case e.there(), e.Kind == kindHost && sameHost(e.Name, e.options.Host): // this host exists under each of its names
		return rejected("%s %q already exists", speech[e.Kind].object, e.Name)
	}
	data := []byte(e.Text)
	if len(data) > 0 && data[len(data)-1] != '\n' {
		data = append(data, '\n')
	}
	if e.Kind == kindHost {
		if data, err = Rewrite(data, unset(measured)); err != nil {
			return err
		}
	}
	e.textIs = e.path(e.Kind, e.Name)
	e.done("added", "%q to %s", e.Name, speech[e.Kind].list)
	if err := e.put(e.textIs, data); err != nil {
		return err
	}
	return e.references(entries)
}

// unset returns an empty value for each name: Rewrite removes these.
func unset(names []string) map[string]string {
	set := map[string]string{}
	for _, name := range names {
		set[name] = ""
	}
	return set
}

// modify sets all values of an object to those of the text. The values that the text
// was edited from must still be in the files.
func (e *edit) modify() error {
	entries, err := e.object()
	if err != nil || len(e.reply.Problems) > 0 {
		return err
	}
	if !e.there() && e.Kind == kindProject {
		return api.Errorf(api.CodeNotFound, "%v", inWords(unknown[kindProject], e.Name))
	}
	if !e.there() {
		return e.absent(speech[e.Kind].object)
	}
	set, err := e.differences(entries)
	if err != nil || len(e.reply.Problems) > 0 {
		return err
	}
	if e.Kind == kindSched {
		e.reply.Lines = append(e.reply.Lines, api.Line{Text: e.verb("changed") + " scheduler configuration"})
	} else {
		e.modified()
	}
	if err := e.references(entries); err != nil {
		return err
	}
	// Mistakes of the text come first, with its lines.
	e.textIs = e.path(e.Kind, e.Name)
	o := e.with()
	o.instead[e.textIs] = []byte(e.Text)
	if _, mistakes := loadAll(o); len(mistakes) > 0 {
		e.reply = api.ConfigureReply{Problems: problems(mistakes, e.textIs)}
		return nil
	}
	return e.set(set)
}

// modified adds the line about an object that was changed.
func (e *edit) modified() {
	name := e.Name
	if e.Kind == kindConf {
		name = "global"
	}
	e.done("modified", "%q in %s", name, speech[e.Kind].list)
}

// set plans new values of parameters in the object's file. Everything else in it stays
// as it is.
func (e *edit) set(set map[string]string) error {
	if len(set) == 0 {
		return nil
	}
	path := e.path(e.Kind, e.Name)
	data, err := e.base(path)
	if err != nil {
		return err
	}
	if data == nil && slices.Contains(named, e.Kind) {
		data = []byte(schemas[e.Kind][0].name + " " + e.Name + "\n")
	}
	if data, err = Rewrite(data, set); err != nil {
		return rejected("%v", err)
	}
	return e.put(path, data)
}

// differences returns the values of the text that differ from those in the files.
func (e *edit) differences(entries []entry) (map[string]string, error) {
	if e.Was != "" {
		if is, err := e.old.Show(e.Kind, e.Name); err != nil || is != e.Was {
			return nil, rejected("cannot modify %s %q: somebody has changed it since you began to edit it", speech[e.Kind].object, e.Name)
		}
	}
	given, set := map[string]string{}, map[string]string{}
	for _, n := range entries {
		if _, twice := given[n.name]; twice {
			e.problem(n.line, "attribute %q is given twice", n.name)
		}
		given[n.name] = n.value
	}
	for _, l := range e.old.objects[e.Kind][e.Name] {
		value, ok := given[l.name]
		switch {
		case e.Kind == kindHost && slices.Contains(measured, l.name):
		case !ok && (e.Kind == kindConf || standardOf(e.Kind, l.name) == "" && e.Kind != kindQueue):
			set[l.name] = "" // Grid Engine has such lines only where they are set
		case !ok:
			e.missing(l.name) // Grid Engine names the first
			return nil, nil
		case written(e.Kind, l.form, value) != l.written:
			set[l.name] = value
		}
		delete(given, l.name)
	}
	for name, value := range given { // parameters that are shown only if they are set
		if e.Kind != kindHost || !slices.Contains(measured, name) {
			set[name] = value
		}
	}
	return set, nil
}

func standardOf(kind, name string) string {
	for _, p := range schemas[kind] {
		if p.name == name {
			return p.standard
		}
	}
	return ""
}

// written returns a value as it is printed.
func written(kind string, f form, value string) string {
	if kind == kindQueue {
		if o, err := parseOverrides(value); err == nil {
			return o.print(f)
		}
	}
	return f.canonical(value)
}

// remove removes an object, unless another refers to it.
func (e *edit) remove() error {
	about := speech[e.Kind]
	object, from := about.object, about.list
	if about.gone != "" {
		object = about.gone
	}
	if about.from != "" {
		from = about.from
	}
	switch {
	case !slices.Contains(named, e.Kind):
		return rejected("%s cannot be removed", object)
	case e.Kind == kindHost && e.Name == "global":
		return rejected("denied: pseudo host %q may not be deleted", e.Name)
	}
	if err := e.checkName(); err != nil || !e.there() {
		return e.absent(object)
	}
	if err := e.referred(); err != nil {
		return err
	}
	e.done("removed", "%q from %s", e.Name, from)
	return e.put(e.path(e.Kind, e.Name), nil)
}

// check refuses to remove an object that exists without a file, and the last one whose
// place a default object would take.
func (e *edit) check(now *Config) error {
	if e.Action != api.ConfigureRemove || !slices.Contains(named, e.Kind) {
		return nil
	}
	for _, kind := range named {
		for _, name := range slices.Sorted(maps.Keys(now.objects[kind])) {
			itself := kind == e.Kind && name == e.Name
			if itself || e.old.objects[kind][name] == nil {
				return rejected("cannot remove %s %q: without a file in %s there is %s %q",
					speech[e.Kind].object, e.Name, filepath.Join(e.options.Dir, places[e.Kind]), speech[kind].object, name)
			}
		}
	}
	return nil
}
