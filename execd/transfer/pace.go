package main

import (
	"bufio"
	"encoding/json"
	"io"
	"time"

	"paddock/execd/internal/sandbox/order"
)

// turn refuses to move many bytes before it is our turn.
func (w *worker) turn() error {
	if !w.orders.Turn && w.total.Load() > order.Brief {
		return errTurn
	}
	return nil
}

// rates reads how fast we may be: the first rate before anything is copied, and later ones
// meanwhile. When execd is gone, the last rate stays.
func (w *worker) rates(in io.Reader) {
	lines := bufio.NewScanner(in)
	next := func() bool {
		if !lines.Scan() {
			return false
		}
		var r order.Rate
		if json.Unmarshal(lines.Bytes(), &r) == nil {
			w.rate.Store(r.Rate)
		}
		return true
	}
	if next() {
		go func() {
			for next() {
			}
		}()
	}
}

// pace waits until so many bytes more may have been copied. The rate may change meanwhile.
func (w *worker) pace(n int64) {
	w.debt += float64(n)
	for {
		rate, now := float64(w.rate.Load()), time.Now()
		passed := now.Sub(w.paced)
		w.paced = now
		if rate <= 0 {
			w.debt = 0
			return
		}
		w.debt = max(w.debt-rate*passed.Seconds(), -rate/4) // what was not used is lost but for a moment's
		if w.debt <= 0 {
			return
		}
		w.beat.Add(1) // it is alive
		time.Sleep(min(time.Second, time.Duration(w.debt/rate*float64(time.Second))+time.Millisecond))
	}
}

// portion is how much to copy at once, so that the rate is kept from moment to moment.
func (w *worker) portion() int64 {
	if rate := w.rate.Load(); rate > 0 {
		return min(part, max(rate/4, small))
	}
	return part
}
