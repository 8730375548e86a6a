package argument

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// List splits a list at its commas.
func List(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

// AddResources adds the resources name[=value],... to a list, in which they
// replace those of the same names.
func AddResources(to *[]api.Resource, o *option.Setting) error {
	for _, item := range strings.FieldsFunc(o.Value(), func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
		name, value, has := strings.Cut(item, "=")
		switch {
		case name == "":
			return o.Errorf(option.ExitValue, "Wrong resource list format \"%s\" specified to -l option", o.Value())
		case !has:
			value = "TRUE"
		case value == "":
			text := fmt.Sprintf("denied: missing value for resource %q", name)
			if o.Commands&(option.Qstat|option.Qacct) != 0 { // these commands submit no job
				return command.Failf("error: %s", api.Visible(text))
			}
			return command.Rejected(option.ExitFailed, text)
		}
		*to = slices.DeleteFunc(*to, func(r api.Resource) bool { return r.Name == name })
		*to = append(*to, api.Resource{Name: name, Value: value})
	}
	return nil
}

// AddList adds those words of a list that to does not have. The error of an
// empty list calls its kind what.
func AddList(to *[]string, o *option.Setting, what string) error {
	words := List(o.Value())
	if len(words) == 0 {
		return o.Errorf(option.ExitValue, "Wrong %s list format \"%s\" specified to %s option", what, o.Value(), o.Name)
	}
	for _, w := range words {
		if !slices.Contains(*to, w) {
			*to = append(*to, w)
		}
	}
	return nil
}

// Letters returns the letters of known that are in text, in the order of known.
// It reports whether text has no other letters.
func Letters(text, known string) (string, bool) {
	var found strings.Builder
	for i := range len(known) {
		if strings.IndexByte(text, known[i]) >= 0 {
			found.WriteByte(known[i])
		}
	}
	return found.String(), text != "" && strings.Trim(text, known) == ""
}

// IsNumber reports whether text is a number without sign.
func IsNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// IsRange reports whether text is first[-last[:step]].
func IsRange(text string) bool {
	span, step, hasStep := strings.Cut(text, ":")
	first, last, hasLast := strings.Cut(span, "-")
	return IsNumber(first) && (!hasLast || IsNumber(last)) && (!hasStep || IsNumber(step))
}

// MatchQueue reports whether a queue matches a pattern of its name, of
// queue@host or of queue@@hostgroup.
func MatchQueue(pattern string, host *api.HostReply, q *api.QueueStatus) bool {
	name, at, _ := strings.Cut(host.Instance(q), "@")
	queue, where, has := strings.Cut(pattern, "@")
	return matchName(queue, name) && (!has || matchName(where, at) || inGroup(where, host))
}

// inGroup reports whether the host is in a host group that matches a pattern
// beginning with @.
func inGroup(pattern string, host *api.HostReply) bool {
	return strings.HasPrefix(pattern, "@") && slices.ContainsFunc(host.HostGroups, func(group string) bool {
		return matchName(strings.ToLower(pattern), strings.ToLower(group))
	})
}

func matchName(pattern, text string) bool {
	ok, err := path.Match(pattern, text)
	return ok && err == nil
}
