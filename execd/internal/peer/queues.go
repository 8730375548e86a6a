package peer

import (
	"slices"
	"strings"

	"paddock/execd/api"
)

// maxQueues bounds the queues that are kept of a host.
const maxQueues = 256

// queuesOf returns the queues of a host by name, as its slots show them. It may say anything.
func queuesOf(reply *api.SlotsReply) []api.QueueStatus {
	list := []api.QueueStatus{}
	find := func(name string) *api.QueueStatus {
		i, found := slices.BinarySearchFunc(list, name, func(q api.QueueStatus, name string) int { return strings.Compare(q.Name, name) })
		switch {
		case found:
		case len(list) == maxQueues || !api.IsName(name):
			return nil
		default:
			list = slices.Insert(list, i, api.QueueStatus{Name: name, Load: -1})
		}
		return &list[i]
	}
	for i := range reply.Queues {
		if q := find(reply.Queues[i].Name); q != nil {
			q.Type, q.States = letters(reply.Queues[i].Type), letters(reply.Queues[i].States)
		}
	}
	for i := range reply.Slots {
		t := &reply.Slots[i]
		q := find(t.Queue)
		if q == nil {
			continue
		}
		n := t.Size()
		q.Total += n
		switch {
		case t.Job != "":
			q.Used += n
		case t.Holder != "" && t.Holder != "queue":
			q.Reserved += n
		}
	}
	return list
}

// letters returns a word of another host if it is a few letters, as those of a state are.
func letters(word string) string {
	if len(word) > 16 || strings.ContainsFunc(word, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }) {
		return ""
	}
	return word
}
