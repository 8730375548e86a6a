package usage

import (
	"sync"

	"paddock/internal/hint"
)

// bell wakes the goroutine that waits for it. Rings that it has not heard yet are one.
// The zero value is ready.
type bell struct {
	once sync.Once
	c    hint.Chan
}

// heard returns the channel to wait at.
func (b *bell) heard() <-chan struct{} {
	b.once.Do(func() { b.c = hint.New() })
	return b.c
}

func (b *bell) ring() {
	b.heard()
	b.c.Give()
}
