package job

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
)

func TestDetailTellsDependenciesApart(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	first, other := submitArray(t, s, 2), submitArray(t, s, 2)
	word := func(j *Job) []string { return []string{strconv.Itoa(j.Number)} }
	request := api.SubmitRequest{
		Name: "after", Script: []byte("true\n"), Tasks: api.Tasks{First: 1, Last: 2, Step: 1}, HoldJobs: word(first), HoldArray: word(other),
	}
	after, _, err := s.Submit(alice, alice.GID, &request, Limits{}, time.Unix(1000, 0))
	if err != nil {
		t.Fatal(err)
	}
	detail := func(j *Job) api.Detail {
		t.Helper()
		d, ok := s.Detail(j, Caller{}, "h", func(*Job) []string { return nil })
		if !ok {
			t.Fatalf("job %d is over", j.Number)
		}
		return d
	}
	d := detail(after)
	if diff := cmp.Diff([]int{first.Number, other.Number}, d.WaitsFor); diff != "" {
		t.Errorf("WaitsFor (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{other.Number}, d.WaitsForTasks); diff != "" {
		t.Errorf("WaitsForTasks (-want +got):\n%s", diff)
	}
}
