package schedule

import (
	"strings"

	"paddock/execd/internal/conf"
)

// maxExpression bounds an expression of a user, in bytes, since it is matched by
// recursion.
const maxExpression = 1000

// Matches reports whether a text matches a wildcard expression, as in -q and -l.
func Matches(expression, text string) bool { return matches(expression, text, false) }

// MatchesQueue reports whether a pattern of -q matches a queue, by its name, on this
// host. A pattern without a name matches all queues.
func MatchesQueue(c *conf.Config, pattern, queue string) bool {
	if strings.HasPrefix(pattern, "@") {
		pattern = "*" + pattern
	}
	return matchesQueue(c, []string{pattern}, queue)
}

// matches reports whether a value matches a wildcard expression of sge_types(5):
// patterns joined by & and |, negated by !, grouped by parentheses. & binds tighter. An
// expression that is not well-formed matches nothing.
func matches(expression, value string, fold bool) bool {
	if fold {
		expression, value = strings.ToLower(expression), strings.ToLower(value)
	}
	if !strings.ContainsAny(expression, `!&|()[*?\`) {
		return expression == value
	}
	e := matcher{rest: expression, value: value}
	return len(expression) <= maxExpression && e.or() && e.rest == "" && !e.bad
}

// matcher evaluates an expression while it reads it.
type matcher struct {
	rest, value string
	bad         bool
}

func (e *matcher) or() bool {
	yes := e.and()
	for strings.HasPrefix(e.rest, "|") {
		e.rest = e.rest[1:]
		yes = e.and() || yes
	}
	return yes
}

func (e *matcher) and() bool {
	yes := e.not()
	for strings.HasPrefix(e.rest, "&") {
		e.rest = e.rest[1:]
		yes = e.not() && yes
	}
	return yes
}

func (e *matcher) not() bool {
	switch {
	case strings.HasPrefix(e.rest, "!"):
		e.rest = e.rest[1:]
		return !e.not()
	case strings.HasPrefix(e.rest, "("):
		e.rest = e.rest[1:]
		yes := e.or()
		e.bad = e.bad || !strings.HasPrefix(e.rest, ")")
		e.rest = strings.TrimPrefix(e.rest, ")")
		return yes
	}
	end := 0
	for inSet := false; end < len(e.rest) && (inSet || !strings.ContainsRune("&|()", rune(e.rest[end]))); end++ {
		switch e.rest[end] {
		case '\\':
			end = min(end+1, len(e.rest)-1)
		case '[':
			inSet = true
		case ']':
			inSet = false
		}
	}
	pattern := e.rest[:end]
	e.rest = e.rest[end:]
	e.bad = e.bad || pattern == ""
	return glob(pattern, e.value)
}

// glob matches a pattern of *, ?, [a-z] and \. It goes back to the last * only, which
// suffices, and keeps a hostile pattern from taking long.
func glob(pattern, s string) bool {
	star, from := -1, 0
	p, i := 0, 0
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			star, from = p, i
			p++
			continue
		}
		if n, ok := one(pattern[p:], s[i]); ok {
			p += n
			i++
			continue
		}
		if star < 0 {
			return false
		}
		from++
		p, i = star+1, from
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// one matches the first element of a pattern, which is not *, with a byte, and returns
// the length of the element.
func one(pattern string, c byte) (int, bool) {
	switch {
	case pattern == "":
		return 0, false
	case pattern[0] == '?':
		return 1, true
	case pattern[0] == '\\' && len(pattern) > 1:
		return 2, pattern[1] == c
	case pattern[0] != '[':
		return 1, pattern[0] == c
	}
	set, _, ok := strings.Cut(pattern[1:], "]")
	found := false
	for i := 0; i < len(set); i++ {
		if i+2 < len(set) && set[i+1] == '-' {
			found = found || set[i] <= c && c <= set[i+2]
			i += 2
			continue
		}
		found = found || set[i] == c
	}
	return len(set) + 2, ok && found
}

// matchesQueue reports whether a queue of this host matches one of the patterns of -q.
func matchesQueue(c *conf.Config, patterns []string, queue string) bool {
	return matchesPlace(c, patterns, Place{c.Hostname, queue})
}

// matchesPlace reports whether a queue of a host matches one of the patterns of -q: of its
// name, of name@host or of name@@hostgroup.
func matchesPlace(c *conf.Config, patterns []string, at Place) bool {
	for _, p := range patterns {
		name, host, has := strings.Cut(p, "@")
		if matches(name, at.Queue, false) && (!has || MatchesHost(c, at.Host, host)) {
			return true
		}
	}
	return false
}

// MatchesHost reports whether a host matches an expression of host names, short or long, or,
// behind an @, of the names of its groups.
func MatchesHost(c *conf.Config, host, expression string) bool {
	if strings.HasPrefix(expression, "@") {
		groups := c.HostGroups
		if host != c.Hostname {
			groups = c.GroupsOf(host)
		}
		for _, group := range groups {
			if matches(expression, group, true) {
				return true
			}
		}
		return false
	}
	short, _, _ := strings.Cut(host, ".")
	return matches(expression, host, true) || matches(expression, short, true)
}
