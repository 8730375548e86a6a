package server

import (
	"strings"
	"testing"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/user"
)

// execd -fetch tells how many slots ask, and names those that fetch nothing.
func TestFetch(t *testing.T) {
	var asked []slot.ID
	s := &Server{Fetch: func(slots []slot.ID) (int, []slot.ID) {
		asked = slots
		if len(slots) == 0 {
			return 4, nil
		}
		return 1, slots[1:]
	}}
	for _, tt := range []struct {
		slots []api.SlotID
		want  int
		err   string
	}{
		{nil, 4, ""},
		{[]api.SlotID{"2"}, 1, ""},
		{[]api.SlotID{"2", "7", "9_1"}, 0, "no work is fetched for slot 7, 9_1"},
		{make([]api.SlotID, api.MaxWords+1), 0, "too many"},
	} {
		reply, err := s.fetch(t.Context(), job.Caller{}, &api.FetchRequest{Slots: tt.slots})
		if reply.Slots != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%d slots: %+v, %v; want %d, %q", len(tt.slots), reply, err, tt.want, tt.err)
		}
	}
	if len(asked) != 3 {
		t.Errorf("%v were asked", asked)
	}
	if verbs[api.VerbFetch].may != fetchers {
		t.Error("everybody may have slots ask for work")
	}
	s.Renew = func([]slot.ID) (int, []slot.ID) { return 0, []slot.ID{slot.Static(3)} }
	if _, err := s.fetch(t.Context(), job.Caller{}, &api.FetchRequest{Slots: []api.SlotID{"3"}, Renew: true}); err == nil || err.Error() != "no work is renewed in slot 3" {
		t.Errorf("renewal: %v", err)
	}
}

// What nobody could submit is no fetched work either.
func TestCheckWork(t *testing.T) {
	s := rooted(t, &conf.Config{Global: conf.Global{MinUID: 100}})
	owner := user.User{Name: "me", GID: 100, Group: "users", Groups: []int{100}}
	for _, tt := range []struct {
		name   string
		change func(*api.SubmitRequest)
		uid    int
		want   string
	}{
		{"uid", func(*api.SubmitRequest) {}, 50, "minimum user id 100"},
		{"variable", func(r *api.SubmitRequest) { r.Env = []string{"A"} }, 1000, "not an environment variable"},
		{"path", func(r *api.SubmitRequest) { r.Command = "/" + strings.Repeat("x", api.MaxPath) }, 1000, "bytes"},
	} {
		req := &api.SubmitRequest{Name: "n", Binary: true, Command: "/bin/true"}
		tt.change(req)
		u := owner
		u.UID = tt.uid
		if err := s.Rules().Work(&u, req); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
	}
}
