package usage

import "sync"

// bell wakes the goroutine that waits for it. Rings that it has not heard yet are one.
// The zero value is ready.
type bell struct {
	once sync.Once
	c    chan struct{} // capacity 1
}

// heard returns the channel to wait at.
func (b *bell) heard() <-chan struct{} {
	b.once.Do(func() { b.c = make(chan struct{}, 1) })
	return b.c
}

func (b *bell) ring() {
	b.heard()
	select {
	case b.c <- struct{}{}:
	default: // it is still ringing
	}
}
