package conf

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/api"
)

// width is the width of the names of parameters that qconf prints, by kind.
var width = map[string]int{
	kindQueue: 22, kindPE: 19, kindCkpt: 19, kindConf: 29, kindSched: 34, kindHost: 22, kindUserList: 8,
}

// unknown has qconf's messages for objects that do not exist.
var unknown = map[string]string{
	kindQueue:     "No cluster queue or queue instance matches the phrase %q",
	kindPE:        "%s is not a parallel environment",
	kindCkpt:      "%s is not a checkpointing interface definition",
	kindUserList:  "denied: access list %q does not exist",
	kindHostGroup: "Host group %q does not exist",
	kindHost:      "can't resolve hostname %q",
	kindProject:   "%s is not known as a project",
	kindConf:      "configuration %s not defined",
}

// Show returns an object of the configuration in force as qconf of Grid Engine 8.1.9
// prints it. The kinds queue, pe, ckpt, userlist, hostgroup, host and project have
// names; complex, conf, sched, manager and operator have none; the name of a knob is a
// pattern, or empty for all. A queue is shown with its overrides, queue@host without.
// The error is qconf's.
func (c *Config) Show(kind, name string) (string, error) {
	var b strings.Builder
	switch kind {
	case kindComplex:
		c.showComplex(&b)
		return b.String(), nil
	case api.KindAttribute:
		return c.showAttribute(name)
	case api.KindKnob:
		return c.showKnobs(name)
	case kindManager, kindOperator:
		for _, user := range c.List(kind) {
			b.WriteString(user + "\n")
		}
		return b.String(), nil
	}
	cluster, host, instance := strings.Cut(name, "@")
	if kind != kindQueue {
		cluster, instance = name, false
	}
	if kind == kindConf {
		switch {
		case name == "global":
			cluster = ""
		case name != "" && !c.IsHere(name) && !strings.ContainsAny(name, "*?["):
			return "", fmt.Errorf("can't resolve hostname %q: can't resolve host name", name)
		}
	}
	lines, ok := c.objects[kind][cluster]
	if !ok || instance && (!sameHost(host, c.Hostname) || slices.Contains(c.Elsewhere, cluster)) {
		if unknown[kind] == "" {
			return "", fmt.Errorf("%q is no kind of configuration", kind)
		}
		return "", inWords(unknown[kind], name)
	}
	if kind == kindConf {
		b.WriteString("#global:\n")
	}
	for _, l := range lines {
		switch {
		case !instance:
			show(&b, l.name, l.written, l.form, width[kind])
		case l.name == "hostlist":
			show(&b, "hostname", c.Hostname, plain, width[kind])
		case l.form == commas: // as Grid Engine prints lists of a queue on one host
			show(&b, l.name, strings.ReplaceAll(l.inForce, ",", " "), spaced, width[kind])
		default:
			show(&b, l.name, l.inForce, l.form, width[kind])
		}
	}
	if kind == kindConf {
		b.WriteString("\n")
	}
	return b.String(), nil
}

// ShowHost is Show for a host; this host also has measured values.
func (c *Config) ShowHost(name string, load map[string]Value) (string, error) {
	lines, ok := c.objects[kindHost][name]
	if !ok || !sameHost(name, c.Hostname) {
		return c.Show(kindHost, name)
	}
	var b strings.Builder
	for _, l := range lines {
		switch l.name {
		case "load_values":
			l.written = cmp.Or(c.loadValues(load), l.written)
		case "processors":
			if n, ok := load["num_proc"]; ok {
				l.written = n.Text
			}
		}
		show(&b, l.name, l.written, l.form, width[kindHost])
	}
	return b.String(), nil
}

// measuredFirst are the values that Grid Engine measures, in the order in which it
// prints them.
var measuredFirst = []string{
	"arch", "num_proc", "mem_total", "swap_total", "virtual_total", "m_topology", "m_socket", "m_core", "m_thread",
	"load_avg", "load_short", "load_medium", "load_long", "mem_free", "swap_free", "virtual_free", "mem_used", "swap_used", "virtual_used",
	"cpu", "m_topology_inuse", "np_load_avg", "np_load_short", "np_load_medium", "np_load_long",
}

// loadValues prints load values, those of sensors after the host's own.
func (c *Config) loadValues(load map[string]Value) string {
	names := slices.Concat(measuredFirst, slices.Sorted(maps.Keys(load)))
	var words []string
	for i, name := range names {
		v, ok := load[name]
		if !ok || slices.Contains(names[:i], name) {
			continue
		}
		text := v.Text
		a := c.Attribute(name)
		switch {
		case i >= len(measuredFirst) || a == nil: // as the sensor reported it
		case a.Kind == KindMemory:
			text = fmt.Sprintf("%fM", v.Number/(1<<20))
		case a.Kind == KindDouble:
			text = fmt.Sprintf("%f", v.Number)
		}
		words = append(words, name+"="+text)
	}
	return strings.Join(words, ",")
}

// List returns the names of the objects of a kind, in order.
func (c *Config) List(kind string) []string {
	switch kind {
	case kindManager:
		// root is one whatever the files say.
		return slices.Compact(slices.Sorted(slices.Values(append([]string{"root"}, c.Managers...))))
	case kindOperator:
		return c.Operators
	case kindConf, kindSched:
		return nil
	case api.KindAttribute:
		kind = kindComplex
	case kindHost:
		return slices.DeleteFunc(slices.Sorted(maps.Keys(c.objects[kind])), func(name string) bool { return name == "global" })
	}
	return slices.Sorted(maps.Keys(c.objects[kind]))
}

// lineWidth is the length of Grid Engine's lines, which are longer only if a value
// cannot be broken.
const lineWidth = 80

// show prints a parameter. A long value goes on in the next line, behind a blank or, in
// a list, a comma. The break is read as a blank, which means nothing behind a comma of
// a list.
func show(b *strings.Builder, name, value string, f form, indent int) {
	indent = max(indent, len(name)+1)
	line := fmt.Sprintf("%-*s", indent, name)
	for {
		if len(line)+len(value) <= lineWidth {
			b.WriteString(line + value + "\n")
			return
		}
		at := 0 // the last place for a break
		for i := range len(value) {
			mark := 1 // the length of the backslash, and of a blank before it behind a comma
			switch {
			case value[i] == ',' && (f == commas || f == spaced):
				mark = 2
			case value[i] != ' ' || strings.ContainsAny(value[max(i-1, 0):i]+value[i+1:min(i+2, len(value))], " \t"):
				continue
			}
			if at > 0 && len(line)+i+1+mark > lineWidth {
				break
			}
			at = i + 1
		}
		if at == 0 || at == len(value) {
			b.WriteString(line + value + "\n")
			return
		}
		b.WriteString(line + strings.TrimSuffix(value[:at], " ") + " \\\n")
		line, value = strings.Repeat(" ", indent), value[at:]
	}
}

// showComplex prints the attributes, in columns as wide as needed.
func (c *Config) showComplex(b *strings.Builder) {
	head := []string{"#name", "shortcut", "type", "relop", "requestable", "consumable", "default", "urgency"}
	rows := make([][]string, len(c.Complex))
	wide := make([]int, len(head))
	for i := range head {
		wide[i] = len(head[i]) + 1
	}
	for i := range c.Complex {
		rows[i] = strings.Fields(c.Complex[i].text())
		for j, cell := range rows[i] {
			wide[j] = max(wide[j], len(cell)+4)
		}
	}
	total := 0
	for i := range head {
		fmt.Fprintf(b, "%-*s", wide[i], head[i])
		total += wide[i]
	}
	b.WriteString("\n#" + strings.Repeat("-", total-1) + "\n")
	for _, row := range rows {
		for j, cell := range row[:len(row)-1] {
			fmt.Fprintf(b, "%-*s", wide[j], cell)
		}
		b.WriteString(row[len(row)-1] + "\n")
	}
	b.WriteString("# >#< starts a comment but comments are not saved across edits --------\n")
}

// text returns the attribute as a line of the file complexes.
func (a *Attribute) text() string {
	return strings.Join([]string{
		a.Name, a.Shortcut, string(a.Kind), a.Relop, string(a.Requestable), string(a.Consumable), a.Default,
		strconv.FormatFloat(a.Urgency, 'g', -1, 64),
	}, " ")
}
