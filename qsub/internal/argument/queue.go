package argument

import (
	"path"
	"slices"
	"strings"

	"paddock/execd/api"
)

// MatchQueue reports whether a pattern of a queue's name, of queue@host or of
// queue@@hostgroup, is one of the queue.
func MatchQueue(pattern string, host *api.HostReply, q *api.QueueStatus) bool {
	name, at, _ := strings.Cut(host.Instance(q), "@")
	queue, where, has := strings.Cut(pattern, "@")
	return matchName(queue, name) && (!has || matchName(where, at) || inGroup(where, host))
}

// inGroup reports whether the host is in a group that a pattern with @ in front
// is one of.
func inGroup(pattern string, host *api.HostReply) bool {
	return strings.HasPrefix(pattern, "@") && slices.ContainsFunc(host.HostGroups, func(group string) bool {
		return matchName(strings.ToLower(pattern), strings.ToLower(group))
	})
}

func matchName(pattern, text string) bool {
	ok, err := path.Match(pattern, text)
	return ok && err == nil
}
