// Package hint wakes up who waits for something to have changed, and looks then what it is. It imports nothing, and everything
// may import it.
package hint

// Chan has something when Give was called since it was last read, however often.
type Chan chan struct{}

// New returns one that has nothing.
func New() Chan { return make(Chan, 1) }

// Give does not wait: a hint that nobody has read yet is enough.
func (c Chan) Give() {
	select {
	case c <- struct{}{}:
	default:
	}
}
