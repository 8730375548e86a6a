package server

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
)

func TestJobsWithMore(t *testing.T) {
	c := serve(t, nil)
	for _, queues := range [][]string{nil, {"all.q"}} {
		r := good()
		r.Queues, r.Hard, r.Soft = queues, []api.Resource{{Name: "q", Value: "*"}, {Name: "h_rt", Value: "0:2:0"}}, []api.Resource{{Name: "h_rt", Value: "INFINITY"}}
		if err := c.Call(t.Context(), api.VerbSubmit, &r, new(api.SubmitReply)); err != nil {
			t.Fatal(err)
		}
	}
	// Names are whole, and times in seconds.
	want := []api.Requested{{Resource: api.Resource{Name: "qname", Value: "*"}}, {Resource: api.Resource{Name: "h_rt", Value: "120"}}}
	for _, test := range []struct {
		ask  api.JobsRequest
		want []int
	}{
		{api.JobsRequest{}, []int{1, 2}},
		{api.JobsRequest{More: true}, []int{1, 2}},
		{api.JobsRequest{More: true, Queues: []string{"all.q"}}, []int{1, 2}},
		{api.JobsRequest{More: true, Queues: []string{"other.q"}}, nil},
		{api.JobsRequest{States: "r"}, nil},
		{api.JobsRequest{States: "z", Finished: true}, nil},
	} {
		var reply api.JobsReply
		if err := c.Call(t.Context(), api.VerbJobs, &test.ask, &reply); err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, j := range reply.Jobs {
			got = append(got, j.Job)
			if (j.More != nil) != test.ask.More {
				t.Errorf("%+v: job %d has more: %v", test.ask, j.Job, j.More)
			}
			if j.More != nil && !cmp.Equal(j.More.Hard, want) {
				t.Errorf("job %d asks for %+v; want %+v", j.Job, j.More.Hard, want)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v: jobs %v; want %v", test.ask, got, test.want)
		}
	}
}

func TestChosenQueues(t *testing.T) {
	c := serve(t, nil)
	many := make([]string, maxAsked+1)
	for _, test := range []struct {
		ask      api.HostRequest
		queues   int
		excluded bool
		code     api.Code
	}{
		{api.HostRequest{}, 1, false, ""},
		{api.HostRequest{Users: []string{"no such user", "root"}}, 1, false, ""},
		{api.HostRequest{Resources: []api.Resource{{Name: "qname", Value: "other"}}}, 0, false, ""},
		{api.HostRequest{Now: []api.Resource{{Name: "hostname", Value: "h"}}}, 1, false, ""},
		{api.HostRequest{Now: []api.Resource{{Name: "hostname", Value: "other"}}}, 1, true, ""},
		{api.HostRequest{Resources: []api.Resource{{Name: "nosuch", Value: "1"}}}, 0, false, api.CodeNotFound},
		{api.HostRequest{Now: []api.Resource{{Name: "slots", Value: "x"}}}, 0, false, api.CodeBadRequest},
		{api.HostRequest{PEs: []string{"nosuch"}}, 0, false, api.CodeNotFound},
		{api.HostRequest{Users: many}, 0, false, api.CodeBadRequest},
		{api.HostRequest{Now: make([]api.Resource, api.MaxWords+1)}, 0, false, api.CodeBadRequest},
	} {
		var reply api.HostReply
		err := c.Call(t.Context(), api.VerbHost, &test.ask, &reply)
		e, _ := errors.AsType[*api.Error](err)
		switch {
		case test.code != "" && (e == nil || e.Code != test.code):
			t.Errorf("%+v: %v; want %s", test.ask, err, test.code)
		case test.code == "" && err != nil:
			t.Errorf("%+v: %v", test.ask, err)
		case len(reply.Queues) != test.queues || reply.Excluded != test.excluded:
			t.Errorf("%+v: %d queues, excluded %v; want %d and %v", test.ask, len(reply.Queues), reply.Excluded, test.queues, test.excluded)
		}
	}
}
