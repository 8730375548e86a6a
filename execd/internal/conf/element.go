package conf

import (
	"slices"
	"strings"

	"paddock/execd/api"
)

// elementOf are the kinds whose parameters can be changed one by one, by Grid Engine's
// words for them.
var elementOf = map[string]string{
	kindQueue: "queue", kindHost: "exechost", kindPE: "pe", kindCkpt: "ckpt", kindHostGroup: "hostgroup", kindUserList: "userset", kindProject: "project",
}

// isList reports whether the elements of a parameter can be changed one by one.
func isList(p *parameter) bool {
	return (p.form == spaced || p.form == commas) && p.name != "qtype" && p.name != "type"
}

// elements changes elements of lists, and single values.
func (e *edit) elements() error {
	label := elementOf[e.Kind]
	if label == "" {
		return rejected("Modification of object %q not supported", e.Kind)
	}
	where := ""
	if e.Kind == kindQueue {
		e.Name, where, _ = strings.Cut(e.Name, "@")
		label = e.Name
	}
	object := speech[e.Kind].object
	if err := e.checkName(); err != nil || !e.there() {
		if e.Kind == kindHost {
			return api.Errorf(api.CodeNotFound, "can't resolve hostname %q", e.Name)
		}
		return e.absent(object)
	}
	entries, err := parse("", []byte(e.Text))
	if err != nil {
		return rejected("%v", err)
	}
	if strings.HasPrefix(where, "@") && where != allHosts && e.old.objects[kindHostGroup][where] == nil {
		for _, n := range entries {
			e.fails("Did not modify %q for host group %q which does not exist.", n.name, where)
		}
		return nil
	}
	set := map[string]string{}
	for _, n := range entries {
		i := slices.IndexFunc(schemas[e.Kind], func(p parameter) bool { return p.name == n.name })
		switch {
		case i < 0 || slices.Contains(measured, n.name) && e.Kind == kindHost || strings.Trim(n.value, listSeparators) == "":
			return rejected("The attribute name (%q) and/or value (%q) is invalid", n.name, n.value)
		case i == 0:
			return rejected("qconf: cannot change %s", n.name)
		}
		if err := e.element(&schemas[e.Kind][i], n, label, where, set); err != nil {
			return err
		}
		n.value = set[n.name]
		if err := e.references([]entry{n}); err != nil {
			return err
		}
	}
	e.modified()
	e.textIs = e.path(e.Kind, e.Name)
	return e.set(set)
}

// element changes one parameter, for all hosts or for one.
func (e *edit) element(p *parameter, n entry, label, where string, set map[string]string) error {
	current := ""
	for _, l := range e.old.objects[e.Kind][e.Name] {
		if l.name == p.name {
			current = l.written
		}
	}
	if v, ok := set[p.name]; ok {
		current = v
	}
	if e.Kind != kindQueue {
		now, err := e.combine(p, current, n.value, label)
		set[p.name] = now
		return err
	}
	is, err := parseOverrides(current)
	if err != nil {
		return rejected("%s: %v", p.name, err)
	}
	given := overrides{standard: n.value}
	if strings.Contains(n.value, "[") && where == "" {
		// The value may have none for all other hosts.
		if given, err = parseOverrides("NONE," + n.value); err != nil {
			return rejected("%s: %v", p.name, err)
		}
		given.standard = before(n.value)
	}
	if where != "" {
		given = overrides{others: []override{{where, given.standard}}}
	}
	if given.standard != "" {
		if is.standard, err = e.combine(p, is.standard, given.standard, label); err != nil {
			return err
		}
	}
	for _, g := range given.others {
		i := slices.IndexFunc(is.others, func(o override) bool { return o.who == g.who })
		if i < 0 {
			if e.Action == api.ConfigureDelete {
				e.tell("%q does not exist in %q of %q", g.value, p.name, label)
				continue
			}
			is.others = append(is.others, override{g.who, "NONE"})
			i = len(is.others) - 1
		}
		if is.others[i].value, err = e.combine(p, is.others[i].value, g.value, label); err != nil {
			return err
		}
	}
	set[p.name] = is.print(p.form)
	return nil
}

// before returns what stands before the first override.
func before(value string) string {
	return strings.TrimRight(value[:strings.IndexByte(value, '[')], listSeparators)
}

// combine returns a value after the elements of another were added, changed or removed.
func (e *edit) combine(p *parameter, current, given, label string) (string, error) {
	if !isList(p) || e.Action == api.ConfigureReplace {
		if e.Action == api.ConfigureDelete {
			return "", rejected("%q is no list: -dattr takes elements off lists, and -purge forgets what is set for a host", p.name)
		}
		return given, nil
	}
	words := elements("", current)
	if isNone(given) {
		if e.Action == api.ConfigureChange {
			return "", rejected("%q is not a valid list attribute value for -mattr.  Try using -rattr instead.", "NONE")
		}
		return current, nil
	}
	if len(words) == 0 && e.Action == api.ConfigureChange {
		e.tell("%q of %q is empty - Adding new element(s).", p.name, label)
		return p.form.canonical(given), nil
	}
	for _, word := range list(given) {
		key := keyOf(p, word)
		i := slices.IndexFunc(words, func(w string) bool { return keyOf(p, w) == key })
		switch {
		case e.Action == api.ConfigureDelete && i < 0:
			e.tell("%q does not exist in %q of %q", key, p.name, label)
		case e.Action == api.ConfigureDelete:
			words = slices.Delete(words, i, i+1)
		case e.Action == api.ConfigureInsert && i >= 0:
			e.tell("No modification because %q already exists in %q of %q", key, p.name, label)
		case i < 0:
			if e.Action == api.ConfigureChange {
				e.tell("Unable to find %q in %q of %q - Adding new element.", key, p.name, label)
			}
			words = append(words, word)
		default:
			words[i] = word
		}
	}
	if len(words) == 0 {
		return "NONE", nil
	}
	return p.form.canonical(strings.Join(words, ",")), nil
}

// keyOf returns the part of an element that identifies it in its list.
func keyOf(p *parameter, word string) string {
	if p.form != commas {
		return word
	}
	key, _, _ := strings.Cut(word, "=")
	return key
}

// purge removes what a queue has for one host or host group.
func (e *edit) purge() error {
	instance := e.Name
	name, where, ok := strings.Cut(instance, "@")
	e.Name = name
	switch {
	case e.Kind != kindQueue:
		return rejected("error: Modification of object %q not supported", e.Kind)
	case !ok || where == "":
		return rejected("error: Given object_instance %q is incomplete", instance)
	case e.checkName() != nil || !e.there():
		return api.Errorf(api.CodeNotFound, "error: Cluster queue entry %q does not exist", name)
	}
	wanted := strings.Fields(e.Text)
	set, all := map[string]string{}, slices.Equal(wanted, []string{"*"})
	found := map[string]bool{}
	for _, l := range e.old.objects[kindQueue][name] {
		o, err := parseOverrides(l.written)
		if err != nil || !all && !slices.Contains(wanted, l.name) {
			continue
		}
		others := slices.DeleteFunc(o.others, func(o override) bool { return o.who == where })
		if len(others) == len(o.others) {
			continue
		}
		found[l.name], o.others = true, others
		set[l.name] = o.print(l.form)
	}
	for _, attribute := range wanted {
		if !all && !found[attribute] {
			e.reply.Lines = append(e.reply.Lines, api.Line{Code: api.CodeNotFound, Text: "Attribute name (\"" + attribute + "\") and/or value (\"" + where + "\") not found"})
		}
	}
	if len(found) > 0 || all {
		e.modified()
	}
	return e.set(set)
}
