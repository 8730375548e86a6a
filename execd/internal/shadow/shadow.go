// Package shadow has jobs of this host run on slots of others. It claims them for its
// users, starts what waits under these claims, follows it, and has its end go the way of
// those that ran here. A run on another host is a run like any other in the record of its
// job; remote/ has the claims, with their secrets. Either host may be started anew at any
// time: a run goes on under the lease of its claim, and nobody runs it again before that
// is over.
//
// Which host takes a job that host decides, and only what cannot start here is offered:
// slots of others are none of the scheduler's resources.
//
// Daemon makes it, stage hands it the tasks that are elsewhere, and server asks it what
// qstat shows of them. It imports the parts of stage that follow an end.
//
// Claim.calls is taken before core.mu, and is held while a host is asked to begin or to
// end a run. Under Shadows.mu nothing waits for a disk or a host; it is taken before the
// locks of package queue and of job.Store.
package shadow

import (
	"context"
	"fmt"
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/output"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/shadow/match"
	"paddock/execd/internal/shadow/remote"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/notice"
	"paddock/internal/backoff"
	"paddock/spool"
)

// retries are the pauses after which a host that did not answer is asked again.
var retries = backoff.Doubling{First: time.Second, Most: 30 * time.Second}

// Execd is what is needed of the execd of this host. The fields are set before first use.
type Execd struct {
	Host    *base.Host // what the ends of runs need
	Root    *spool.Root
	Journal notice.Journal // writes what owners want to know; nil: nobody does
	// Streams remembers where jobs write.
	Streams *output.Index
	// Files has files travel where hosts share none.
	Files Files
	// On returns a client of another host for one of this host's users; empty: for this
	// host itself.
	On func(host, user string) *api.Client
	// Peers returns how the hosts are that execute.
	Peers func() []api.PeerStatus
	// Foremost returns the first jobs that wait for a slot here, in the order of their turn.
	Foremost func(most int) []schedule.Waiting
	// Depart enters a run among those of its user, or reports that he may have no more; with
	// runs it has begun already. Back is its end, with what it has used.
	Depart func(t *job.Task, runs bool) bool
	Back   func(t *job.Task, used schedule.Used)
	// Queues is told that other hosts have queues which they had not.
	Queues func()
	// Changed is told that the tasks of a job that wait have become others.
	Changed func(*job.Job)
	// JobAd returns the ad of a job as slots see it, and Domain the FILESYSTEM_DOMAIN of this
	// host; empty: it shares no file system.
	JobAd  func(*job.Job) *classad.Ad
	Domain func() string
}

// core is what the types of this package share: execd, the lock, and the goroutines that wait for
// hosts and disks.
type core struct {
	Execd

	work  sync.WaitGroup
	wake  chan struct{} // capacity 1; there may be something to be done
	renew chan struct{} // capacity 1; there may be another lease to be renewed

	mu  sync.Mutex
	ctx context.Context // guarded by mu; of all that is under way; nil: nothing is done yet
}

// Wake notes that there may be something to be done: a job waits, or the slots of another
// host have changed.
func (c *core) Wake() { hint(c.wake) }

// renewSoon has the leases looked at.
func (c *core) renewSoon() { hint(c.renew) }

// hint wakes up who waits at a channel of capacity 1.
func hint(at chan struct{}) {
	select {
	case at <- struct{}{}:
	default: // a hint is already there
	}
}

// do does something in a goroutine of its own, until execd stops. c.mu is held.
func (c *core) do(f func(ctx context.Context)) {
	if ctx := c.ctx; ctx != nil && ctx.Err() == nil { // else the next execd finds it on disk
		c.work.Go(func() { f(ctx) })
	}
}

func (c *core) debugf(format string, args ...any) { c.Host.Log.Debug(fmt.Sprintf(format, args...)) }

func (c *core) logf(format string, args ...any) { c.Host.Log.Info(fmt.Sprintf(format, args...)) }

func (c *core) warnf(format string, args ...any) { c.Host.Log.Warn(fmt.Sprintf(format, args...)) }

// Shadows are those of all runs on other hosts.
type Shadows struct {
	*core
	hosts  *hosts
	claims map[remote.Name]*claim // guarded by mu
	runs   *runs
	asked  map[match.Class]int    // guarded by mu; claims that hosts are being asked for
	want   map[match.Class]int    // guarded by mu; tasks that wait, as of the last round
	now    map[*job.Job]chan bool // guarded by mu; jobs that are to start now, and where that is told
	stay   map[*job.Job]string    // guarded by mu; why jobs that wait were not taken by any host, as of the last round
}

// These bound what is done for jobs that wait.
const (
	most        = 256              // jobs that are looked at in a round
	matchSteps  = 300_000          // by which the ads of a host are evaluated in a round
	askedAtOnce = 8                // claims of one host
	fresh       = 5 * time.Second  // how long the ads of slots are believed
	freshLeast  = time.Second      // the same when they are known to have changed
	refusedFor  = 30 * time.Second // how long a refusal is, for the first time
	refusedMost = time.Hour        // and at most, where slots are granted and the job is refused
	idleFor     = 5 * time.Second  // how long a claim without work is kept
	wanted      = 2400             // seconds of lease that are asked for
	callLimit   = 30 * time.Second // for an answer that waits for no event
)

// New returns shadows that do nothing yet.
func New(e Execd) *Shadows {
	c := &core{Execd: e, wake: make(chan struct{}, 1), renew: make(chan struct{}, 1)}
	runs := &runs{list: map[api.SandboxID]*run{}}
	return &Shadows{
		core: c, runs: runs, hosts: &hosts{core: c, runs: runs, list: map[string]*host{}}, claims: map[remote.Name]*claim{},
		now: map[*job.Job]chan bool{}, asked: map[match.Class]int{}, want: map[match.Class]int{}, stay: map[*job.Job]string{},
	}
}

// HostChanged is told that a host has become another: it is up or down, or its slots, its queues or
// its configuration have changed.
func (s *Shadows) HostChanged(name string) {
	var is api.PeerStatus
	for _, p := range s.Peers() {
		if p.Name == name {
			is = p
		}
	}
	s.mu.Lock()
	queues := s.hosts.get(name).change(&is)
	s.mu.Unlock()
	if queues {
		s.Queues()
	}
	s.Wake()
}

// Run works until ctx is done. What runs on other hosts goes on there.
func (s *Shadows) Run(ctx context.Context) {
	s.mu.Lock()
	s.ctx = ctx
	for _, r := range s.runs.list {
		s.lead(r)
	}
	s.mu.Unlock()
	s.work.Go(func() { s.renewLeases(ctx) })
	for ctx.Err() == nil {
		next := s.round(time.Now())
		var later <-chan time.Time
		if !next.IsZero() {
			later = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-later:
		}
	}
	s.mu.Lock()
	s.ctx = nil
	s.mu.Unlock()
	s.work.Wait()
}
