package conf

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// words returns the elements of a list parameter, for all hosts and for some.
func (c *Config) words(kind, object, parameter string) []string {
	for _, l := range c.objects[kind][object] {
		if l.name == parameter {
			return elements(kind, l.written)
		}
	}
	return nil
}

// elements splits the value of a list with its overrides.
func elements(kind, value string) []string {
	words := list(value)
	if kind == kindQueue {
		if o, err := parseOverrides(value); err == nil {
			words = list(o.standard)
			for _, other := range o.others {
				words = append(words, list(other.value)...)
			}
		}
	}
	return slices.DeleteFunc(words, isNone)
}

// interfaces are the lists of a queue whose words name other objects, but may name none
// in a file.
var interfaces = []struct{ parameter, kind, missing string }{
	{"pe_list", kindPE, "Parallel environment %q does not exist"},
	{"ckpt_list", kindCkpt, "Ckpt %q does not exist"},
}

// references refuses new words that should name an object and do not. Those that are
// already in the file may stay, as in files of real clusters.
func (e *edit) references(entries []entry) error {
	for _, n := range entries {
		if e.Kind == kindHostGroup && n.name == "hostlist" {
			for _, member := range elements(kindHostGroup, n.value) {
				if err := e.member(member); err != nil {
					return err
				}
			}
		}
		for _, i := range interfaces {
			if e.Kind != kindQueue || n.name != i.parameter {
				continue
			}
			before := e.old.words(kindQueue, e.Name, n.name)
			for _, word := range elements(kindQueue, n.value) {
				// The queues of every installation list make.
				if e.old.objects[i.kind][word] == nil && !slices.Contains(before, word) && (i.kind != kindPE || word != "make") {
					return rejected("%v", inWords(i.missing, word))
				}
			}
		}
	}
	return nil
}

// member refuses a group in a host group that does not exist, or contains the host
// group.
func (e *edit) member(member string) error {
	within := []string{member}
	for i := 0; i < len(within); i++ {
		switch name := within[i]; {
		case name == e.Name:
			return rejected("Hostgroup %q in specification of %q would create a cycle", member, e.Name)
		case !strings.HasPrefix(name, "@") || slices.Contains(within[:i], name):
		case e.old.objects[kindHostGroup][name] != nil:
			within = append(within, e.old.words(kindHostGroup, name, "hostlist")...)
		case name != allHosts:
			return rejected("denied: host group %q does not exist", name)
		}
	}
	return nil
}

// referred refuses to remove an object that another refers to, in Grid Engine's words.
// References that a file may not have are found when the configuration is read without
// the object.
func (e *edit) referred() error {
	switch e.Kind {
	case kindPE:
		return e.listed("pe_list", "denied: Parallel environment %q is still referenced in queue %q.")
	case kindCkpt:
		return e.listed("ckpt_list", "denied: Ckpt %q is still referenced in queue %q.")
	case kindUserList:
		return e.listedUsers()
	case kindProject:
		return e.listedIn([]string{kindQueue, kindHost, kindConf}, map[string]string{"projects": "projects", "xprojects": "xprojects"}, "denied: project %q is still referenced in %s of %s %q")
	case kindQueue:
		for _, queue := range e.old.List(kindQueue) {
			for _, word := range e.old.words(kindQueue, queue, "subordinate_list") {
				if name, _, _ := strings.Cut(word, "="); name == e.Name {
					return rejected("Cluster queue %q is referenced in cluster queue %q as a subordinate. Deletion denied", e.Name, queue)
				}
			}
		}
	case kindHostGroup:
		return e.listedGroup()
	case kindHost:
		for _, queue := range e.old.List(kindQueue) {
			words := e.old.words(kindQueue, queue, "hostlist")
			own := sameHost(e.Name, e.options.Host) && !slices.Contains(e.old.Elsewhere, queue)
			if own || slices.ContainsFunc(words, func(w string) bool { return sameHost(w, e.Name) }) {
				return rejected("Host object %q is still referenced in cluster queue %q.", e.Name, queue)
			}
		}
		for _, group := range e.old.List(kindHostGroup) {
			if slices.ContainsFunc(e.old.words(kindHostGroup, group, "hostlist"), func(w string) bool { return sameHost(w, e.Name) }) {
				return rejected("Host object %q is still referenced in host group %q.", e.Name, group)
			}
		}
	}
	return nil
}

// listed refuses to remove an object that is on a list of a queue.
func (e *edit) listed(parameter, format string) error {
	for _, queue := range e.old.List(kindQueue) {
		if slices.Contains(e.old.words(kindQueue, queue, parameter), e.Name) {
			return rejected("%v", inWords(format, e.Name, queue))
		}
	}
	return nil
}

// listedUsers refuses to remove a user list that is in use.
func (e *edit) listedUsers() error {
	const format = "denied: userset %q is still referenced in %s of %s %q"
	return cmp.Or(
		e.listedIn([]string{kindQueue, kindPE, kindHost, kindConf}, map[string]string{"user_lists": "user list", "xuser_lists": "xuser list"}, format),
		e.listedIn([]string{kindProject}, map[string]string{"acl": "user list", "xacl": "xuser list"}, format),
	)
}

// listedIn refuses to remove an object that is in one of these parameters of these
// kinds; parameters has Grid Engine's names for them.
func (e *edit) listedIn(kinds []string, parameters map[string]string, format string) error {
	objects := map[string]string{
		kindQueue: "queue", kindPE: "parallel environment", kindHost: "exechost", kindConf: "configuration", kindProject: "project",
	}
	for _, kind := range kinds {
		names := e.old.List(kind)
		switch kind {
		case kindHost:
			names = append(slices.Clone(names), "global")
		case kindConf:
			names = []string{""}
		}
		for _, name := range names {
			for parameter, text := range parameters {
				if slices.Contains(e.old.words(kind, name, parameter), e.Name) {
					return rejected(format, e.Name, text, objects[kind], cmp.Or(name, "global"))
				}
			}
		}
	}
	return nil
}

// listedGroup refuses to remove a host group that is in use, on a list or in brackets.
func (e *edit) listedGroup() error {
	var groups, queues []string
	for _, group := range e.old.List(kindHostGroup) {
		if slices.Contains(e.old.words(kindHostGroup, group, "hostlist"), e.Name) {
			groups = append(groups, group)
		}
	}
	for _, queue := range e.old.List(kindQueue) {
		if slices.ContainsFunc(e.old.objects[kindQueue][queue], func(l line) bool {
			o, err := parseOverrides(l.written)
			has := func(o override) bool { return o.who == e.Name }
			return err == nil && slices.ContainsFunc(o.others, has) || l.name == "hostlist" && slices.Contains(elements(kindQueue, l.written), e.Name)
		}) {
			queues = append(queues, queue)
		}
	}
	switch {
	case len(groups) > 0:
		return rejected("denied: these hostgroups still reference %q: %s", e.Name, strings.Join(groups, " "))
	case len(queues) > 0:
		return rejected("denied: these cluster queues still reference %q: %s", e.Name, strings.Join(queues, " "))
	}
	return nil
}

// referredAttribute refuses to remove an attribute that an object has a value of.
func (e *edit) referredAttribute(a *Attribute) error {
	has := func(word string) bool {
		name, _, _ := strings.Cut(word, "=")
		return name == a.Name || name == a.Shortcut
	}
	for _, where := range []struct {
		kind, object string
		parameters   []string
	}{
		{kindQueue, "queue", []string{"complex_values", "load_thresholds", "suspend_thresholds"}},
		{kindHost, "host", []string{"complex_values", "load_scaling"}},
	} {
		names := e.old.List(where.kind)
		if where.kind == kindHost {
			names = append(slices.Clone(names), "global")
		}
		for _, name := range names {
			for _, parameter := range where.parameters {
				if slices.ContainsFunc(e.old.words(where.kind, name, parameter), has) {
					return rejected("denied: Complex attribute %q is still referenced in %s %q.", a.Name, where.object, name)
				}
			}
		}
	}
	for term := range strings.FieldsFuncSeq(e.old.Scheduling.LoadFormula, func(r rune) bool { return r == '+' || r == '-' || r == '*' }) {
		if has(term) {
			return rejected("%s", fmt.Sprintf("denied: Complex attribute %q is still referenced in scheduler configuration.", a.Name))
		}
	}
	return nil
}
