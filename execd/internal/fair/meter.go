package fair

import (
	"sync"
	"time"
)

// burst is how long an idle user may save up turns.
const burst = 10 * time.Second

// Meter bounds how often each user does something in the long run. The zero
// value is ready.
type Meter struct {
	mu    sync.Mutex
	used  map[int]usage // guarded by mu
	swept time.Time     // guarded by mu
}

// usage is how many turns a user had taken and not earned back at some moment.
type usage struct {
	turns float64
	at    time.Time
}

// Take takes one of a user's turns. There are perSecond of them, at least 1, and those
// of ten seconds can be saved up. If there is none, Take returns how long it is until
// there is one, else 0.
func (m *Meter) Take(uid, perSecond int, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	rate, most := float64(perSecond), float64(perSecond)*burst.Seconds()
	if now.Sub(m.swept) >= burst || now.Before(m.swept) { // the clock was set back
		for id, u := range m.used {
			if since := now.Sub(u.at); since >= burst || since < 0 {
				delete(m.used, id) // he has earned back all
			}
		}
		m.swept = now
	}
	u := m.used[uid]
	turns := max(u.turns-rate*max(now.Sub(u.at), 0).Seconds(), 0)
	if turns+1 > most {
		return time.Duration((turns + 1 - most) / rate * float64(time.Second))
	}
	if m.used == nil {
		m.used = map[int]usage{}
	}
	m.used[uid] = usage{turns + 1, now}
	return 0
}
