package slot

import (
	"iter"
	"time"
)

// history is where the slot is, and how long it has been where.
type history struct {
	place           Place
	enteredState    time.Time
	enteredActivity time.Time
	total           [states][activities]time.Duration
}

// enter notes that the slot goes to another place.
func (h *history) enter(to Place, now time.Time) {
	h.total[h.place.State][h.place.Activity] += now.Sub(h.enteredActivity)
	if h.place.State != to.State {
		h.enteredState = now
	}
	h.place, h.enteredActivity = to, now
}

// Place returns the state and the activity.
func (h *history) Place() Place { return h.place }

// State returns the state.
func (h *history) State() State { return h.place.State }

// EnteredState returns since when the slot is in its state.
func (h *history) EnteredState() time.Time { return h.enteredState }

// EnteredActivity returns since when the slot has its activity.
func (h *history) EnteredActivity() time.Time { return h.enteredActivity }

// Spent yields how long the slot has been in each place since it was made.
func (h *history) Spent(now time.Time) iter.Seq2[Place, time.Duration] {
	return func(yield func(Place, time.Duration) bool) {
		for s, list := range allowed {
			for _, a := range list {
				p := Place{State(s), a}
				d := h.total[s][a]
				if p == h.place {
					d += max(now.Sub(h.enteredActivity), 0)
				}
				if d > 0 && !yield(p, d) {
					return
				}
			}
		}
	}
}
