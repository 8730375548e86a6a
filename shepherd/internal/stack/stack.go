// Package stack has the stack of the first goroutine grow at once to the 16 kB that a
// shepherd needs. One that doubles again and again leaves pages of each size behind,
// which nobody else uses. The package imports nothing, so that it is initialised before
// those whose initialisation needs more than the 2 kB that there are at first. Only the
// shepherd's main package imports it.
package stack

func init() { enlarge(0) }

// enlarge has a frame that is as large as what is needed, though no byte of it is touched.
//
//go:noinline
func enlarge(n int) byte {
	if n == 0 {
		return 0
	}
	var frame [9 << 10]byte
	return frame[n%len(frame)]
}
