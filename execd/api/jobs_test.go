package api

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestManyJobs reads a reply that is read in pieces.
func TestManyJobs(t *testing.T) {
	odd := strings.Repeat(`},{"job":1,"`, 20)
	var all JobsReply
	for n := range 3000 {
		j := JobStatus{Job: n, Name: odd[:n%200], Owner: "somebody", State: "qw", Time: time.Unix(int64(n), 0).UTC(), Slots: 1}
		if n%7 == 0 {
			j.More = &JobMore{Hard: []Requested{{Resource: Resource{Name: "job", Value: odd}}}, WaitsFor: []int{n}}
		}
		all.Jobs = append(all.Jobs, j)
	}
	for _, n := range []int{0, 1, 2, 100, len(all.Jobs)} {
		want := JobsReply{Jobs: all.Jobs[:n]}
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got JobsReply
		if err := json.Unmarshal(b, &got); err != nil || len(got.Jobs) != n {
			t.Fatalf("%d lines are read as %d, %v", n, len(got.Jobs), err)
		}
		for i := range got.Jobs {
			if !reflect.DeepEqual(got.Jobs[i], want.Jobs[i]) {
				t.Fatalf("line %d is read as %+v; want %+v", i, got.Jobs[i], want.Jobs[i])
			}
		}
		for pieces := range 20 {
			total := 0
			for _, p := range divideJobs(b, pieces) {
				total += len(p) + 1
			}
			if total != len(b)+1 {
				t.Errorf("%d pieces have %d bytes of %d", pieces, total-1, len(b))
			}
		}
	}
	var got JobsReply
	broken := `{"jobs":[` + strings.Repeat(`{"job":1},`, 20000) + `{"job":"x"}]}`
	if err := json.Unmarshal([]byte(broken), &got); err == nil {
		t.Error("a broken line is no error")
	}
}

func BenchmarkManyJobs(b *testing.B) {
	var r JobsReply
	for n := range 10000 {
		r.Jobs = append(r.Jobs, JobStatus{Job: n, Name: "name", Owner: "somebody", State: "hqw", Time: time.Now(), Slots: 1, Holds: "u"})
	}
	text, err := json.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var got JobsReply
		if err := json.Unmarshal(text, &got); err != nil {
			b.Fatal(err)
		}
	}
}
