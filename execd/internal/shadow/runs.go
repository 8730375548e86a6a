package shadow

import (
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/spool"
)

// runs are those that are led.
type runs struct {
	list map[api.SandboxID]*run // guarded by core.mu
	last uint64                 // guarded by core.mu; number of the last one
}

// find returns the run of a name; nil: it is over, or on this host. core.mu is held.
func (l *runs) find(id spool.RunID) *run {
	for _, r := range l.list {
		if r.task.RunID() == id {
			return r
		}
	}
	return nil
}

// of returns the run of a task. core.mu is held.
func (l *runs) of(t *job.Task) *run {
	if r := l.list[api.SandboxID(t.Start.Remote.Sandbox)]; r != nil && r.task == t {
		return r
	}
	return nil
}

// on returns the runs on a host. core.mu is held.
func (l *runs) on(host string) (list []*run) {
	for _, r := range l.list {
		if r.host.name == host {
			list = append(list, r)
		}
	}
	return list
}

// number returns the number of the next run: it is greater than those of all before, also than
// those of earlier execds, unless the clock was set back. core.mu is held.
func (l *runs) number() uint64 {
	l.last = max(l.last+1, uint64(time.Now().UnixNano()))
	return l.last
}
