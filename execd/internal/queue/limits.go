package queue

import (
	"math"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
)

// WallClock returns the wall clock limits of a job in a queue: the queue's
// s_rt and h_rt, or what the job asks for where that is less. 0: none.
func WallClock(c *conf.Config, q *conf.Queue, hard []api.Resource) (soft, kill time.Duration) {
	soft, kill = q.SRT, q.HRT
	for _, r := range hard {
		a := c.Attribute(r.Name)
		if a == nil || a.Kind != conf.KindTime {
			continue
		}
		v, err := conf.ParseValue(a.Kind, r.Value)
		if err != nil || math.IsInf(v.Number, 1) {
			continue
		}
		switch asked := time.Duration(v.Number * float64(time.Second)); a.Name {
		case "s_rt":
			soft = shorter(soft, asked)
		case "h_rt":
			kill = shorter(kill, asked)
		}
	}
	return soft, kill
}

// shorter returns the shorter of two limits, of which 0 is none.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
