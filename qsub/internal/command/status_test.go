package command

import (
	"testing"

	"paddock/execd/api"
)

func TestProgressText(t *testing.T) {
	for _, tt := range []struct {
		found []api.Found
		want  string
	}{
		{nil, "10 of 10 done, 0 running, 0 pending"},
		{[]api.Found{{Running: 2, Pending: 3}, {Pending: 1}}, "4 of 10 done, 2 running, 4 pending"},
		{[]api.Found{{Running: 2, InError: 3}}, "5 of 10 done, 2 running, 0 pending, 3 in error"},
		{[]api.Found{{Pending: 11}}, "0 of 10 done, 0 running, 11 pending"},
	} {
		if got := progressText(&api.FindReply{Found: tt.found}, 10); got != tt.want {
			t.Errorf("progressText(%+v) = %q; want %q", tt.found, got, tt.want)
		}
	}
}
