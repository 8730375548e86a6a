package fetch

import (
	"sync"
	"time"

	"paddock/execd/internal/slot"
)

// register knows the identities (GlobalJobId) of fetched work that is alive here,
// and of what has ended while somebody asked for work: an answer that was given
// before an end was known may name what has ended since.
type register struct {
	mu     sync.Mutex
	byID   map[string]*entry     // guarded by mu
	byJob  map[int]*entry        // guarded by mu
	asking map[*worker]time.Time // guarded by mu; since when
}

// entry is one identity.
type entry struct {
	id      string
	job     int // 0: it is being decided
	slot    slot.ID
	ended   time.Time     // zero: it is alive
	decided chan struct{} // closed when job is set, or the entry gone
}

// add enters what an earlier execd has accepted.
func (r *register) add(id string, job int, on slot.ID) {
	if id == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &entry{id: id, job: job, slot: on, decided: make(chan struct{})}
	close(e.decided)
	r.byID[id], r.byJob[job] = e, e
}

// ask notes that a worker asks for work from now on, and answered that it has its
// answer and has decided of it.
func (r *register) ask(w *worker, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking[w] = now
}

func (r *register) answered(w *worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asking, w)
	oldest := time.Time{}
	for _, since := range r.asking {
		if oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
	}
	for number, e := range r.byJob {
		if !e.ended.IsZero() && (oldest.IsZero() || e.ended.Before(oldest)) {
			r.remove(number, e)
		}
	}
}

func (r *register) remove(number int, e *entry) {
	delete(r.byJob, number)
	if r.byID[e.id] == e {
		delete(r.byID, e.id)
	}
}

// reserve enters an identity that is to be decided on, in answer to a question asked at a
// time. If its job is alive, or has ended since the question was asked, reserve returns
// that job instead. It waits while the same identity is being decided on elsewhere.
func (r *register) reserve(id string, on slot.ID, asked time.Time) (known *entry) {
	for {
		r.mu.Lock()
		e := r.byID[id]
		switch {
		case e == nil, e.job != 0 && !e.ended.IsZero() && e.ended.Before(asked):
			r.byID[id] = &entry{id: id, slot: on, decided: make(chan struct{})}
			r.mu.Unlock()
			return nil
		case e.job != 0:
			r.mu.Unlock()
			return e
		}
		wait := e.decided
		r.mu.Unlock()
		<-wait
	}
}

// decide ends a reservation: the work is a job now, or was refused (0).
func (r *register) decide(id string, job int, on slot.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byID[id]
	if job == 0 {
		delete(r.byID, id)
	} else {
		e.job, e.slot = job, on
		r.byJob[job] = e
	}
	close(e.decided)
}

// gone forgets a job that is to be done again, whoever asks: that it is handed out once
// more is no answer from before.
func (r *register) gone(job int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.byJob[job]; e != nil {
		r.remove(job, e)
	}
}

// over notes that a job has ended.
func (r *register) over(job int, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byJob[job]
	switch {
	case e == nil || !e.ended.IsZero():
	case len(r.asking) == 0:
		r.remove(job, e)
	default:
		e.ended = now
	}
}
