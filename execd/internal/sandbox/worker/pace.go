package worker

import (
	"encoding/json"
	"io"
	"sync"

	"paddock/execd/internal/sandbox/order"
)

// Pace shares the bytes a second that the transfers of a host may copy: each that has its
// turn has as many as another.
type Pace struct {
	Total func() int64 // 0: any number

	mu     sync.Mutex
	shares map[*share]bool // guarded by mu
}

// share is what one of them has.
type share struct {
	rate chan int64 // the last that it was not told yet
}

func (p *Pace) join() *share {
	s := &share{make(chan int64, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shares == nil {
		p.shares = map[*share]bool{}
	}
	p.shares[s] = true
	p.tell()
	return s
}

func (p *Pace) leave(s *share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.shares, s)
	close(s.rate)
	p.tell()
}

// Again has a new total take effect.
func (p *Pace) Again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tell()
}

// tell tells all what they have. p.mu is held.
func (p *Pace) tell() {
	total := p.Total()
	for s := range p.shares {
		rate := total / int64(len(p.shares))
		if total > 0 {
			rate = max(rate, 1)
		}
		select {
		case <-s.rate:
		default:
		}
		s.rate <- rate
	}
}

// write writes orders, and what the worker is told after that, until it has left or does
// not listen any more.
func (s *share) write(to io.WriteCloser, orders []byte) {
	defer to.Close()
	_, err := to.Write(append(orders, '\n'))
	for rate := range s.rate {
		text, _ := json.Marshal(order.Rate{Rate: rate})
		if err == nil {
			_, err = to.Write(append(text, '\n'))
		}
	}
}
