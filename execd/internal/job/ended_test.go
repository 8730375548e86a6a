package job

import (
	"slices"
	"testing"
)

// TestEndedSurplus has one user fill what is kept: it is his own that goes, and of
// that first what has succeeded.
func TestEndedSurplus(t *testing.T) {
	e := ended{limit: 4, jobs: map[int]*endedJob{}, users: map[int]*endedUser{}}
	enter := func(number, uid int, failed bool, size int64) {
		j := newJob(&digest{Job: number, UID: uid})
		if failed {
			j.fail(1, " with exit code 1")
		}
		e.enter(j)
		e.keep(number, size)
	}
	enter(1, 7, false, 10)
	enter(2, 8, true, 10)
	enter(3, 8, false, 10)
	enter(4, 8, true, 10)
	var gone []int
	for number := 5; number <= 8; number++ {
		enter(number, 8, number == 6, 10)
		gone = append(gone, e.surplus()...)
	}
	if want := []int{3, 5, 7, 8}; !slices.Equal(gone, want) {
		t.Errorf("%v went; want %v", gone, want)
	}
	enter(9, 9, true, maxEndedBytes+1)
	if got, want := e.surplus(), []int{2, 9}; !slices.Equal(got, want) || e.bytes != 30 || len(e.users) != 2 {
		t.Errorf("%v went, %d bytes of %d users are left; want %v, 30 bytes of 2", got, e.bytes, len(e.users), want)
	}
}
