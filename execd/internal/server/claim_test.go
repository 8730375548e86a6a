package server

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob/knobtest"
	"paddock/execd/internal/job"
	"paddock/execd/internal/source/program"
	"paddock/execd/internal/user"
)

// withKnobs is a server whose hooks.conf says this, which knows no slots.
func withKnobs(t *testing.T, text string) *Server {
	t.Helper()
	knobs := knobtest.Parse(t, text)
	config := func() *conf.Config { return &conf.Config{Knobs: knobs} }
	return &Server{Config: config, Programs: &program.Programs{Config: config}, Users: &user.Directory{}, OwnerOnly: -1}
}

// CLAIM-REFUSE: what is wrong with the message of an activation is found first,
// whatever its id, and an id that cannot be read opens nothing.
func TestBadActivations(t *testing.T) {
	s, _ := newServer(t)
	me := job.Caller{UID: os.Getuid(), Name: "me", Manager: true}
	ctx := context.Background()
	for _, tt := range []struct {
		what string
		req  api.ActivateRequest
		want api.Refusal
	}{
		{"nothing to run", api.ActivateRequest{ID: "<h>#1#1#00"}, api.RefusedMessage},
		{"two things to run", api.ActivateRequest{Ad: "Cmd = \"/bin/true\"", Request: &api.SubmitRequest{}}, api.RefusedMessage},
		{"an ad that is none", api.ActivateRequest{Ad: "Cmd ="}, api.RefusedMessage},
		{"an ad that is too large", api.ActivateRequest{Ad: "A = \"" + strings.Repeat("x", maxAd) + "\""}, api.RefusedMessage},
		{"no id", api.ActivateRequest{Ad: "Cmd = \"/bin/true\""}, api.RefusedUnknown},
		{"an id of nobody", api.ActivateRequest{ID: "<h>#1#1#00", Ad: "[Cmd = \"/bin/true\"]"}, api.RefusedUnknown},
		{"an id that is too long", api.ActivateRequest{ID: api.ClaimID(strings.Repeat("#", 1<<16)), Ad: "A = 1"}, api.RefusedUnknown},
	} {
		if _, err := s.activate(ctx, me, &tt.req); api.RefusalOf(err) != tt.want {
			t.Errorf("%s: %v (%d); want %d", tt.what, err, api.RefusalOf(err), tt.want)
		}
	}
	if _, err := s.deactivate(ctx, me, &api.DeactivateRequest{How: "softly"}); api.RefusalOf(err) != api.RefusedMessage {
		t.Errorf("a way to end a job that is none: %v", err)
	}
}

// Who may not claim slots any more starts nothing under the claims that he has.
func TestActivationOfWhoMayNotClaim(t *testing.T) {
	s := withKnobs(t, "CLAIM_USERS = bob\n")
	_, err := s.activate(context.Background(), job.Caller{UID: 1, Name: "alice"}, &api.ActivateRequest{ID: "<h>#1#1#00", Ad: "Cmd = \"/bin/true\""})
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeDenied {
		t.Errorf("an activation: %v; want it denied", err)
	}
}
