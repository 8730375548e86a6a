package launch

import (
	"sync"
	"time"

	"paddock/internal/proc"
	"paddock/spool"
)

// searches look for what runs have left whose shepherds have ended. A search reads of every
// process of the host what it is, so that runs which ask while one goes on share the
// next: an array of jobs that are over in a moment would look at nothing else.
type searches struct {
	turn   sync.Mutex // held while one is made, or the next waits to begin; before mu
	rested time.Time  // guarded by turn; the next one begins no sooner

	mu   sync.Mutex
	next *search // guarded by mu; the one that has not begun; nil: nobody waits for one
}

// search is one search, for the runs that asked before it began.
type search struct {
	of   []*leftovers
	left map[*leftovers]bool // valid when done is closed: those of which there may be something
	done chan struct{}
}

// Between searches none is made for searchRest, and for searchShare times as long as the
// last one took: they take a tenth of a processor at most.
const (
	searchRest  = 100 * time.Millisecond
	searchShare = 9
)

// hasLeft reports whether a run may have left processes. Of those that it has left it
// misses none.
func (s *searches) hasLeft(l *leftovers) bool {
	s.mu.Lock()
	n := s.next
	if n == nil {
		n = &search{left: map[*leftovers]bool{}, done: make(chan struct{})}
		s.next = n
		go s.make(n)
	}
	n.of = append(n.of, l)
	s.mu.Unlock()
	<-n.done
	return n.left[l]
}

// make makes a search, when those before it are over.
func (s *searches) make(n *search) {
	s.turn.Lock()
	defer s.turn.Unlock()
	time.Sleep(time.Until(s.rested))
	s.mu.Lock()
	s.next = nil
	s.mu.Unlock()
	var took time.Duration
	for wait, again := (proc.ExecWait{}), true; again; {
		lasted, execs := n.look()
		took += lasted
		again = wait.Again(execs)
	}
	s.rested = time.Now().Add(max(searchRest, searchShare*took))
	close(n.done)
}

// look looks once at all processes, and returns how long that took and whether some of
// which only their environment may tell whose they are are in the middle of exec.
func (n *search) look() (took time.Duration, execs bool) {
	begin := time.Now()
	all, err := proc.All()
	needsEnvironment := false
	for _, l := range n.of {
		needsEnvironment = needsEnvironment || l.gid == 0
		if err != nil {
			n.left[l] = true // who looks for its processes alone will say why
		}
	}
	for _, p := range all {
		execs = execs || p.Execs && needsEnvironment
		m := marksOf(p)
		for _, l := range n.of {
			if l.marked(&m) {
				n.left[l] = true
			}
		}
	}
	return time.Since(begin), execs
}

// KillRest kills what a run has left whose shepherd has come to the end of its work, and
// reports whether there was anything.
func (l *Launcher) KillRest(run spool.RunID, gid int) bool {
	return l.searches.hasLeft(l.leftoversOf(run, gid)) && l.KillLeft(run, gid)
}
