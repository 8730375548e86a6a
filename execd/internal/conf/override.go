package conf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// overrides is a value with other values for some hosts, as in queue_conf(5):
// value,[host=value],[@group=value].
type overrides struct {
	standard string
	others   []override
}

type override struct{ who, value string }

// parseOverrides parses a value with its overrides.
func parseOverrides(v string) (overrides, error) {
	at := strings.IndexByte(v, '[')
	for at > 0 && !strings.HasSuffix(strings.TrimRight(v[:at], " \t"), ",") {
		next := strings.IndexByte(v[at+1:], '[')
		if next < 0 {
			return overrides{standard: v}, nil
		}
		at += 1 + next
	}
	if at < 0 {
		return overrides{standard: v}, nil
	}
	o := overrides{standard: strings.TrimRight(v[:at], listSeparators)}
	if o.standard == "" {
		return o, errors.New("the value for all other hosts is missing before the first [")
	}
	for rest := v[at:]; rest != ""; {
		inner, after, closed := strings.Cut(rest[1:], "]")
		who, value, ok := strings.Cut(inner, "=")
		who, value = strings.TrimSpace(who), strings.TrimSpace(value)
		if !closed || !ok || value == "" || checkName("host", strings.TrimPrefix(who, "@")) != nil {
			return o, fmt.Errorf("%q is not [host=value]", rest)
		}
		o.others = append(o.others, override{who, value})
		rest = strings.TrimLeft(after, listSeparators)
		if rest != "" && rest[0] != '[' {
			return o, fmt.Errorf("%q after the overrides for hosts", rest)
		}
	}
	return o, nil
}

// print writes the value as Grid Engine does: groups before hosts.
func (o *overrides) print(f form) string {
	var b strings.Builder
	b.WriteString(f.canonical(o.standard))
	for _, other := range slices.SortedStableFunc(slices.Values(o.others), func(a, b override) int { return cmp.Compare(a.who, b.who) }) {
		fmt.Fprintf(&b, ",[%s=%s]", other.who, f.canonical(other.value))
	}
	return b.String()
}

// resolve returns the value for this host: its own, else that of a group it is in, else
// the one for all. If two groups apply, Grid Engine closes the queue; here it is a
// mistake.
func (o *overrides) resolve(l *loader) (string, error) {
	var host, group *override
	for i := range o.others {
		other := &o.others[i]
		rank := &host
		if strings.HasPrefix(other.who, "@") {
			rank = &group
		}
		switch here, err := l.here(other.who); {
		case err != nil:
			return "", err
		case !here:
		case *rank != nil && (*rank).value != other.value:
			return "", fmt.Errorf("[%s=%s] and [%s=%s] are both for this host", (*rank).who, (*rank).value, other.who, other.value)
		default:
			*rank = other
		}
	}
	switch {
	case host != nil:
		return host.value, nil
	case group != nil:
		return group.value, nil
	}
	return o.standard, nil
}

// allHosts is the group of all hosts that Grid Engine's installation makes. It needs no
// file.
const allHosts = "@allhosts"

// here reports whether a name of a host or host group includes this host.
func (l *loader) here(who string) (bool, error) {
	if !strings.HasPrefix(who, "@") {
		return sameHost(who, l.Host), nil
	}
	hosts, ok := l.groups[who]
	if !ok {
		if who == allHosts {
			return true, nil
		}
		return false, inWords("Host group %q does not exist", who)
	}
	if slices.Contains(l.inGroup, who) {
		return false, fmt.Errorf("host group %q has itself as a member", who)
	}
	l.inGroup = append(l.inGroup, who)
	defer func() { l.inGroup = l.inGroup[:len(l.inGroup)-1] }()
	return l.hereAny(hosts)
}

// hereAny is here for several names.
func (l *loader) hereAny(who []string) (found bool, err error) {
	for _, w := range who {
		here, err := l.here(w)
		if err != nil {
			return false, err
		}
		found = found || here
	}
	return found, nil
}

// sameHost compares names of hosts, one of which may be short.
func sameHost(a, b string) bool {
	shortA, domainA, _ := strings.Cut(a, ".")
	shortB, domainB, _ := strings.Cut(b, ".")
	return strings.EqualFold(shortA, shortB) && (domainA == "" || domainB == "" || strings.EqualFold(domainA, domainB))
}
