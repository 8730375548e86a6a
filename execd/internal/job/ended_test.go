package job

import (
	"slices"
	"testing"

	"paddock/execd/api"
)

func TestOnly(t *testing.T) {
	for _, tc := range []struct {
		list string
		of   api.Tasks
		want string
		n    int // 0: it is refused
	}{
		{"3,7,9-12", api.Tasks{First: 3, Last: 12, Step: 1}, "3,7,9-12:1", 6},
		{"9-12:2,3,3-5:2,10", api.Tasks{First: 3, Last: 12, Step: 1}, "3,5,9-11:1", 5},
		{"5,1-3:2", api.Tasks{First: 1, Last: 9, Step: 2}, "1-5:2", 3},
		{"1-9:4", api.Tasks{First: 1, Last: 9, Step: 2}, "1,5,9", 3},
		{"1-10:2", api.Tasks{First: 1, Last: 9, Step: 2}, "", 5},
		{"3-4,1-2", api.Tasks{First: 1, Last: 4, Step: 1}, "", 4},
		{"1-1000000:2,2-1000000:2", api.Tasks{First: 1, Last: 1000000, Step: 1}, "", 0},
		{"1-3", api.Tasks{First: 1, Last: 9, Step: 2}, "", 0},
		{"2", api.Tasks{First: 1, Last: 9, Step: 2}, "", 0},
		{"11", api.Tasks{First: 1, Last: 9, Step: 2}, "", 0},
		{"1,", api.Tasks{First: 1, Last: 9, Step: 2}, "", 0},
		{"5-3", api.Tasks{First: 1, Last: 9, Step: 2}, "", 0},
	} {
		got, n, err := Only(tc.list, tc.of)
		if got != tc.want || n != tc.n || (err != nil) != (tc.n == 0) {
			t.Errorf("Only(%q, %v) = %q, %d, %v; want %q, %d", tc.list, tc.of, got, n, err, tc.want, tc.n)
		}
	}
}

// TestEndedSurplus has one user fill what is kept: it is his own that goes, and of
// that first what has succeeded.
func TestEndedSurplus(t *testing.T) {
	e := ended{limit: 4}
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
