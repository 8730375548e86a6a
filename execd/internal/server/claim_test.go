package server

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/job"
	"paddock/execd/internal/user"
)

// withKnobs is a server whose hooks.conf says this, which knows no slots.
func withKnobs(t *testing.T, text string) *Server {
	t.Helper()
	knobs, problems := knob.Parse("hooks.conf", text)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return &Server{Config: func() *conf.Config { return &conf.Config{Knobs: knobs} }, Users: &user.Directory{}, OwnerOnly: -1}
}

// CLAIM-REQUEST: managers, operators and those whom CLAIM_USERS names may claim
// slots, and nobody else.
func TestMayClaim(t *testing.T) {
	s := withKnobs(t, "CLAIM_USERS = alice, svc-*\n")
	for _, tt := range []struct {
		caller job.Caller
		want   bool
	}{
		{job.Caller{UID: 1, Name: "alice"}, true},
		{job.Caller{UID: 2, Name: "svc-7"}, true},
		{job.Caller{UID: 3, Name: "mallory"}, false},
		{job.Caller{UID: 3, Name: "alice2"}, false},
		{job.Caller{UID: 4, Name: "op", Operator: true}, true},
		{job.Caller{UID: 0, Name: "root", Manager: true}, true},
		// What execd keeps of a job of theirs would look like its own.
		{job.Caller{UID: 5, Name: "fetch", Manager: true}, false},
		{job.Caller{UID: 6, Name: "queue", Manager: true}, false},
	} {
		if err := s.mayClaim(tt.caller); (err == nil) != tt.want {
			t.Errorf("%s: %v; want it allowed: %v", tt.caller.Name, err, tt.want)
		}
	}
	_, err := s.claim(context.Background(), job.Caller{UID: 1, Name: "alice"}, &api.ClaimRequest{Priority: 1})
	if err == nil || !strings.Contains(err.Error(), "operator privileges") {
		t.Errorf("a priority of anybody's: %v; want it denied", err)
	}
}

// CLAIM-REQUEST: START and RANK see who claims, not whom he says that he is.
func TestClaimant(t *testing.T) {
	s := withKnobs(t, "")
	s.Host = "h"
	forged := "owner = \"boss\"\nUser = \"boss@h\"\nOwnerGroup = \"bosses\"\nA = 1\n"
	for _, tt := range []struct {
		what   string
		caller job.Caller
		ad     string
		owner  string
		more   bool
	}{
		{"a forged owner", job.Caller{Name: "mallory"}, forged, "mallory", true},
		{"an operator's", job.Caller{Name: "op", Operator: true}, forged, "op", true},
		{"an owner that is computed", job.Caller{Name: "mallory"}, `Owner = strcat("bo", "ss")`, "mallory", false},
		{"no ad", job.Caller{Name: "mallory"}, "", "mallory", false},
		{"a manager's for another user", job.Caller{Name: "root", Manager: true}, forged, "boss", true},
		{"a manager's own", job.Caller{Name: "root", Manager: true}, "", "root", false},
	} {
		text, err := readAd(tt.ad)
		if err != nil {
			t.Fatal(err)
		}
		env := classad.Env{My: s.claimant(tt.caller, text)}
		owner, _ := env.Attr("Owner").Str()
		whole, _ := env.Attr("User").Str()
		if _, group := env.My.Lookup("OwnerGroup"); owner != tt.owner || whole != tt.owner+"@h" || group {
			t.Errorf("%s: Owner %q, User %q, a group: %v; want %s", tt.what, owner, whole, group, tt.owner)
		}
		if _, more := env.My.Lookup("A"); more != tt.more {
			t.Errorf("%s: what else it says: %v; want %v", tt.what, more, tt.more)
		}
	}
}

// CLAIM-LEASE: a lease is neither too short nor longer than is configured.
func TestLeaseOfClaims(t *testing.T) {
	s := withKnobs(t, "ALIVE_INTERVAL = 100\nMAX_CLAIM_ALIVES_MISSED = 2\n")
	for asked, want := range map[int]time.Duration{0: 200 * time.Second, 10: 10 * time.Second, 60: time.Minute, 1 << 40: 200 * time.Second} {
		if got, err := s.lease(asked); got != want || err != nil {
			t.Errorf("lease of %d s: %v, %v; want %v", asked, got, err, want)
		}
	}
	for _, asked := range []int{9, -1, -1 << 40} {
		if _, err := s.lease(asked); api.RefusalOf(err) != api.RefusedMessage {
			t.Errorf("lease of %d s: %v; want it refused", asked, err)
		}
	}
	if got, _ := withKnobs(t, "").lease(0); got != 1800*time.Second {
		t.Errorf("the lease is %v; want 1800 s where nothing is configured", got)
	}
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

// A job under a claim runs as the caller; as another user only for a manager, and
// only as one whom FETCH_OWNERS names.
func TestOwnerOfActivation(t *testing.T) {
	s := withKnobs(t, "FETCH_OWNERS = root\n")
	other := func(name string) *classad.Ad {
		ad, err := classad.ParseAd(`[Owner = "` + name + `"]`)
		if err != nil {
			t.Fatal(err)
		}
		return ad
	}
	ctx := context.Background()
	me, err := s.Users.ByID(ctx, os.Getuid())
	if err != nil {
		t.Skipf("the name services do not know this user: %v", err)
	}
	caller := job.Caller{UID: me.UID, Name: me.Name}
	if owner, err := s.ownerOf(ctx, caller, nil); err != nil || owner.UID != me.UID {
		t.Errorf("without an ad: %+v, %v; want the caller", owner, err)
	}
	if _, err := s.ownerOf(ctx, caller, other("daemon")); err == nil {
		t.Error("anybody starts jobs of others")
	}
	caller.Manager = true
	if _, err := s.ownerOf(ctx, caller, other("daemon")); err == nil || !strings.Contains(err.Error(), "FETCH_OWNERS") {
		t.Errorf("a manager starts jobs of one whom FETCH_OWNERS does not name: %v", err)
	}
	manager := job.Caller{UID: 1 << 20, Name: "m", Manager: true}
	if owner, err := s.ownerOf(ctx, manager, other("root")); err == nil || !strings.Contains(err.Error(), "never runs as root") {
		t.Errorf("as root: %+v, %v; want it denied, as for fetched work", owner, err)
	}
	if owner, err := withKnobs(t, "FETCH_OWNERS = daemo?\n").ownerOf(ctx, manager, other("daemon")); err != nil || owner.Name != "daemon" {
		t.Errorf("as one whom FETCH_OWNERS names: %+v, %v", owner, err)
	}
	if _, err := s.ownerOf(ctx, caller, other("no such user")); api.RefusalOf(err) != api.RefusedRequirements {
		t.Errorf("as nobody: %v; want it refused", err)
	}
}
