package server

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
)

// TestConfigureRights asks for every action as everybody.
func TestConfigureRights(t *testing.T) {
	s, _ := newServer(t)
	asked := 0
	s.Configure = func(*api.ConfigureRequest, string) (api.ConfigureReply, error) {
		asked++
		return api.ConfigureReply{}, nil
	}
	const manager, operator = `denied: "u" must be manager for this operation`, `denied: "u" must be operator for this operation`
	for _, action := range []api.Configure{
		api.ConfigureAdd, api.ConfigureModify, api.ConfigureRemove, api.ConfigureInsert, api.ConfigureChange, api.ConfigureDelete,
		api.ConfigureReplace, api.ConfigurePurge, api.ConfigureAdmit, api.ConfigureExpel, api.ConfigureClear, "",
	} {
		for _, kind := range []string{"queue", "pe", "userlist", "manager", "conf", ""} {
			members := kind == "userlist" && slices.Contains([]api.Configure{api.ConfigureAdd, api.ConfigureRemove, api.ConfigureAdmit, api.ConfigureExpel}, action)
			for _, c := range []job.Caller{{Name: "u"}, {Name: "u", Operator: true}, {Name: "u", Manager: true}} {
				want := ""
				switch {
				case c.Manager:
				case !members:
					want = manager
				case !c.Operator:
					want = operator
				}
				for _, dry := range []bool{false, true} {
					asked = 0
					_, err := s.configure(t.Context(), c, &api.ConfigureRequest{Action: action, Kind: kind, Name: "x", Dry: dry})
					var e *api.Error
					if errors.As(err, &e) != (want != "") || e != nil && (e.Text != want || e.Code != api.CodeDenied) {
						t.Errorf("%s of a %s by %+v: %v; want %q", action, kind, c, err, want)
					}
					if want != "" && asked > 0 {
						t.Errorf("%s of a %s by %+v was done", action, kind, c)
					}
				}
			}
		}
	}
}

// TestClearUsage forgets what one user has used, and what all have.
func TestClearUsage(t *testing.T) {
	s, _ := newServer(t)
	s.Queue.SetShares(map[string]schedule.Share{"alice": {Usage: 5, Time: time.Now()}, "bob": {Usage: 3, Time: time.Now()}})
	for _, step := range []struct {
		users string
		dry   bool
		want  []string
		left  int
	}{
		{"", true, []string{`m@h would modify "alice" in user list`, `m@h would modify "bob" in user list`}, 2},
		{"bob carol", false, []string{`m@h modified "bob" in user list`}, 1},
		{"bob", false, nil, 1},
		{"", false, []string{`m@h modified "alice" in user list`}, 0},
	} {
		reply, err := s.configure(context.Background(), job.Caller{Name: "m", Manager: true}, &api.ConfigureRequest{Action: api.ConfigureClear, Kind: api.KindUser, Text: step.users, Dry: step.dry})
		var got []string
		for _, line := range reply.Lines {
			got = append(got, line.Text)
		}
		if err != nil || !slices.Equal(got, step.want) || len(s.Queue.Shares()) != step.left {
			t.Errorf("clear %q: %q, %v, %d left; want %q and %d", step.users, got, err, len(s.Queue.Shares()), step.want, step.left)
		}
	}
}
