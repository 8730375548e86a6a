package job

import (
	"strings"
	"sync"
)

// common has values that are in memory once for all jobs that have the same. They are to be
// read only.
type common[K comparable, V any] struct {
	mu    sync.Mutex
	known map[K]V // guarded by mu
}

// maxShared bounds those that are known: jobs may have nothing in common.
const maxShared = 1000

// of returns the value of a key, which is made if it is not known.
func (s *common[K, V]) of(key K, made func() V) V {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.known[key]; ok {
		return v
	}
	v := made()
	if s.known == nil || len(s.known) >= maxShared {
		s.known = map[K]V{}
	}
	s.known[key] = v
	return v
}

// submitters are by all that they have, their groups as one text.
var submitters common[submitterKey, *Submitter]

type submitterKey struct {
	owner, group, groups string
	uid, gid, submitGID  int
}

// submitter returns who has submitted the job of a header.
func (h *headerOf[R]) submitter() *Submitter {
	key := submitterKey{h.Owner, h.Group, strings.Join(h.Groups, "\x00"), h.UID, h.GID, h.SubmitGID}
	return submitters.of(key, func() *Submitter {
		return &Submitter{Owner: h.Owner, UID: h.UID, Group: h.Group, GID: h.GID, Groups: h.Groups, SubmitGID: h.SubmitGID}
	})
}

// allTerms are those of most jobs.
var allTerms common[Terms, *Terms]

// common returns terms that are equal to these, for all jobs that have the same. Those with what
// no other job has are their own.
func (t *Terms) common() *Terms {
	if t.Session != nil || t.Predecessors != nil {
		return t
	}
	return allTerms.of(*t, func() *Terms { return t })
}
