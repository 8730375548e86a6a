package engine

import (
	"context"
	"sync"
)

// mostTogether bounds how many questions are asked in one call of the database.
const mostTogether = 32

// gather asks the database questions, one call at a time: those that come while one is under way wait, and are asked in the
// next call together, so that what a call and its commit cost is shared by the more of them the busier the database is.
type gather[Q, A any] struct {
	// call answers all questions, each by the answer in its place, or none. It has answerWithin.
	call func(ctx context.Context, questions []Q) ([]A, error)
	turn chan struct{} // capacity 1: has something while a call is under way

	mu      sync.Mutex
	waiting []*asked[Q, A] // guarded by mu
}

// asked is a question of a gather.
type asked[Q, A any] struct {
	question Q
	done     chan struct{} // closed when it is answered
	answer   A
	err      error
}

func newGather[Q, A any](call func(context.Context, []Q) ([]A, error)) *gather[Q, A] {
	return &gather[Q, A]{call: call, turn: make(chan struct{}, 1)}
}

// ask asks a question. It is not interrupted: what the database gives must be known of.
func (g *gather[Q, A]) ask(question Q) (A, error) {
	a := &asked[Q, A]{question: question, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, a)
	g.mu.Unlock()
	for {
		select {
		case <-a.done:
			return a.answer, a.err
		case g.turn <- struct{}{}:
			g.next()
			<-g.turn
		}
	}
}

// next makes one call, with the questions that have waited the longest.
func (g *gather[Q, A]) next() {
	g.mu.Lock()
	n := min(len(g.waiting), mostTogether)
	list := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	g.mu.Unlock()
	if n == 0 { // all have been answered meanwhile
		return
	}
	questions := make([]Q, n)
	for i, a := range list {
		questions[i] = a.question
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	answers, err := g.call(ctx, questions)
	for i, a := range list {
		switch {
		case err != nil && n > 1: // one that has none is not to leave the others without
			var own []A
			if own, a.err = g.call(ctx, questions[i:i+1]); a.err == nil {
				a.answer = own[0]
			}
		case err != nil:
			a.err = err
		default:
			a.answer = answers[i]
		}
		close(a.done)
	}
}
