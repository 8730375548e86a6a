package conf

import (
	"maps"
	"slices"
	"strings"

	"paddock/execd/api"
)

// Template returns the text of a new object of a kind: its name, and the standard of
// each parameter.
func (l *Live) Template(kind, name string) (string, error) {
	if name == "" {
		name = "template"
	}
	var b strings.Builder
	if kind == api.KindAttribute {
		for i, value := range []string{name, name, "INT", "<=", "YES", "NO", "0", "0"} {
			show(&b, attributeParams[i], value, plain, attributeWidth)
		}
		return b.String(), nil
	}
	if !slices.Contains(named, kind) {
		return "", rejected("there is no template of %q", kind)
	}
	schema := schemas[kind]
	standard := map[string]string{schema[0].name: name}
	if kind == kindQueue {
		maps.Copy(standard, l.options.absent())
	}
	for _, p := range schema {
		value := p.standard
		if v, ok := standard[p.name]; ok {
			value = v
		}
		if value != "" && (kind != kindHost || !slices.Contains(measured, p.name)) {
			show(&b, p.name, p.form.canonical(value), p.form, width[kind])
		}
	}
	return b.String(), nil
}

// Tree returns a host group with the groups and hosts in it, as a tree.
func (c *Config) Tree(group string) (string, error) {
	if c.objects[kindHostGroup][group] == nil {
		return "", inWords(unknown[kindHostGroup], group)
	}
	var b strings.Builder
	c.tree(&b, group, "")
	return b.String(), nil
}

func (c *Config) tree(b *strings.Builder, name, indent string) {
	b.WriteString(indent + name + "\n")
	for _, member := range c.words(kindHostGroup, name, "hostlist") {
		c.tree(b, member, indent+"   ")
	}
}

// Resolved returns the hosts of a host group, including those of the groups in it.
func (c *Config) Resolved(group string) (string, error) {
	if c.objects[kindHostGroup][group] == nil {
		return "", inWords(unknown[kindHostGroup], group)
	}
	hosts := c.members(group)
	slices.Sort(hosts)
	return strings.Join(hosts, " ") + "\n", nil
}

// GroupsOf returns the names of the host groups that another host is in, with their @, as
// HostGroups has those of this one.
func (c *Config) GroupsOf(host string) (groups []string) {
	for group := range c.objects[kindHostGroup] {
		if slices.ContainsFunc(c.members(group), func(member string) bool { return sameHost(member, host) }) {
			groups = append(groups, group)
		}
	}
	if c.objects[kindHostGroup][allHosts] == nil {
		groups = append(groups, allHosts)
	}
	slices.Sort(groups)
	return groups
}

// members returns the hosts of a host group, including those of the groups in it.
func (c *Config) members(group string) (hosts []string) {
	seen := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		if !strings.HasPrefix(name, "@") {
			hosts = append(hosts, name)
		}
		for _, member := range c.words(kindHostGroup, name, "hostlist") {
			add(member)
		}
	}
	add(group)
	return hosts
}

// Having returns the objects that have a parameter whose name and value match, the
// value as a whole or one of its words. For queues it is the value for all hosts; the
// kinds queue_domain and queue_instance look at the values for host groups and for
// hosts, and return queue@@hostgroup and queue@host.
func (c *Config) Having(kind, parameter, value string, matches func(pattern, text string) bool) ([]string, error) {
	of := kind
	switch kind {
	case kindQueue, kindHost:
	case "queue_domain", "queue_instance":
		of = kindQueue
	default:
		return nil, rejected("%q is none of queue, queue_domain, queue_instance and exechost", kind)
	}
	has := func(l *line, v string) bool {
		return matches(value, v) || l.form != plain && slices.ContainsFunc(list(v), func(w string) bool { return matches(value, w) })
	}
	names := map[string]bool{}
	for object, lines := range c.objects[of] {
		for i := range lines {
			l := &lines[i]
			if !matches(parameter, l.name) {
				continue
			}
			o := overrides{standard: l.written}
			if of == kindQueue {
				if parsed, err := parseOverrides(l.written); err == nil {
					o = parsed
				}
			}
			if of == kind {
				names[object] = names[object] || has(l, o.standard)
				continue
			}
			for _, other := range o.others {
				if strings.HasPrefix(other.who, "@") == (kind == "queue_domain") && has(l, other.value) {
					names[object+"@"+other.who] = true
				}
			}
		}
	}
	var found []string
	for name, yes := range names {
		if yes {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found, nil
}
