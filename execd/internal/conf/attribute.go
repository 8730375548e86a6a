package conf

import (
	"slices"
	"strings"

	"paddock/execd/api"
)

// attributeParams are the columns of the complex, in order, as parameters of an
// attribute.
var attributeParams = []string{"name", "shortcut", "type", "relop", "requestable", "consumable", "default", "urgency"}

// attributeWidth is the width of their names.
const attributeWidth = 12

// showAttribute writes an attribute with a line for each column.
func (c *Config) showAttribute(name string) (string, error) {
	i := slices.IndexFunc(c.Complex, func(a Attribute) bool { return a.Name == name })
	if i < 0 {
		return "", inWords("Complex attribute %q does not exist", name)
	}
	var b strings.Builder
	for j, cell := range strings.Fields(c.Complex[i].text()) {
		show(&b, attributeParams[j], cell, plain, attributeWidth)
	}
	return b.String(), nil
}

// complex changes the complex as a whole or one attribute.
func (e *edit) complex() error {
	entries, err := parse("", []byte(e.Text))
	if err != nil {
		return rejected("%v", err)
	}
	switch {
	case e.Kind == kindComplex && e.Action == api.ConfigureModify:
		if is, _ := e.old.Show(kindComplex, ""); e.Was != "" && is != e.Was {
			return rejected("cannot modify the complex: somebody has changed it since you began to edit it")
		}
		return e.attributes(entries)
	case e.Kind == kindComplex:
		return rejected("the complex can only be modified")
	case e.Action == api.ConfigureRemove:
		i := slices.IndexFunc(e.old.Complex, func(a Attribute) bool { return a.Name == e.Name })
		if i < 0 {
			return e.absent("complex attribute")
		}
		set := map[string]string{}
		if err := e.removeAttribute(&e.old.Complex[i], set); err != nil {
			return err
		}
		return e.setAttributes(set)
	case e.Action != api.ConfigureAdd && e.Action != api.ConfigureModify:
		return rejected("an attribute can be added, modified and removed")
	}
	line, err := e.attributeLine(entries)
	if err != nil || len(e.reply.Problems) > 0 {
		return err
	}
	there := slices.ContainsFunc(e.old.Complex, func(a Attribute) bool { return a.Name == e.Name })
	if is, _ := e.old.Show(api.KindAttribute, e.Name); e.Was != "" && is != e.Was {
		return rejected("cannot modify complex attribute %q: somebody has changed it since you began to edit it", e.Name)
	}
	switch {
	case there && e.Action == api.ConfigureAdd:
		return rejected("complex attribute %q already exists", e.Name)
	case !there && e.Action == api.ConfigureModify:
		return e.absent("complex attribute")
	}
	a, err := parseAttribute(line)
	if err != nil {
		return rejected("%v", err)
	}
	set := map[string]string{}
	e.setAttribute(&a, set)
	if len(set) == 0 {
		e.done("modified", "%q in %s", e.Name, speech[e.Kind].list)
	}
	return e.setAttributes(set)
}

// attributeLine makes a line of the file complexes from parameters.
func (e *edit) attributeLine(entries []entry) (string, error) {
	cells := make([]string, len(attributeParams))
	for _, n := range entries {
		i := slices.Index(attributeParams, n.name)
		switch {
		case i < 0:
			e.problem(n.line, "unknown attribute name %q", n.name)
			continue
		case cells[i] != "":
			e.problem(n.line, "attribute %q is given twice", n.name)
		case n.value == "" || strings.ContainsAny(n.value, " \t"):
			e.problem(n.line, "%s: %q is not one word", n.name, n.value)
		}
		cells[i] = n.value
	}
	for i, cell := range cells {
		if cell == "" {
			e.missing(attributeParams[i])
		}
	}
	e.Name = cells[0]
	if len(e.reply.Problems) == 0 && checkName("", e.Name) != nil {
		return "", rejected("%q is not a name of an attribute", e.Name)
	}
	return strings.Join(cells, " "), nil
}

// attributes makes the lines of the text the complex.
func (e *edit) attributes(entries []entry) error {
	o := e.options
	e.textIs = e.path(kindComplex, "")
	o.instead = map[string][]byte{e.textIs: []byte(e.Text)}
	l := newLoader(o)
	l.conf.Complex = defaultComplex()
	l.complexes(e.textIs, []byte(e.Text))
	if len(l.problems) > 0 {
		e.reply.Problems = problems(l.problems, e.textIs)
		return nil
	}
	set := map[string]string{}
	for _, n := range entries {
		a, err := parseAttribute(n.name + " " + n.value)
		if err != nil {
			return rejected("%v", err)
		}
		e.setAttribute(&a, set)
	}
	for i := range e.old.Complex {
		a := &e.old.Complex[i]
		if slices.ContainsFunc(entries, func(n entry) bool { return n.name == a.Name }) {
			continue
		}
		if err := e.removeAttribute(a, set); err != nil {
			return err
		}
	}
	if len(set) == 0 {
		e.reply.Lines = append(e.reply.Lines, api.Line{Text: "Complex attribute configuration has not been changed"})
	}
	return e.setAttributes(set)
}

// setAttribute notes the line of an attribute that is new or has changed.
func (e *edit) setAttribute(a *Attribute, set map[string]string) {
	i := slices.IndexFunc(e.old.Complex, func(b Attribute) bool { return b.Name == a.Name })
	about := speech[kindComplex]
	switch {
	case i < 0:
		e.done("added", "%q to %s", a.Name, about.list)
	case e.old.Complex[i].text() != a.text():
		e.done("modified", "%q in %s", a.Name, about.list)
	default:
		return
	}
	_, set[a.Name], _ = strings.Cut(a.text(), " ")
}

// removeAttribute notes that an attribute is removed.
func (e *edit) removeAttribute(a *Attribute, set map[string]string) error {
	if slices.ContainsFunc(defaultComplex(), func(b Attribute) bool { return b.Name == a.Name }) {
		return rejected("The built-in complex %q cannot be deleted", a.Name)
	}
	if err := e.referredAttribute(a); err != nil {
		return err
	}
	e.done("removed", "%q from %s", a.Name, speech[kindComplex].from)
	set[a.Name] = ""
	return nil
}

// setAttributes plans the lines of the file complexes.
func (e *edit) setAttributes(set map[string]string) error {
	if len(set) == 0 {
		return nil
	}
	path := e.path(kindComplex, "")
	data, err := e.read(path)
	if err != nil {
		return err
	}
	if data, err = rewrite(data, set); err != nil {
		return err
	}
	return e.put(path, data)
}
