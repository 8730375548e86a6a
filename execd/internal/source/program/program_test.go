package program

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob/knobtest"
	"paddock/execd/internal/follow"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/source"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// withKnobs are the programs of a host whose hooks.conf says this, and which has no
// slots.
func withKnobs(t *testing.T, text string) *Programs {
	t.Helper()
	knobs := knobtest.Parse(t, text)
	p := &Programs{Config: func() *conf.Config { return &conf.Config{Knobs: knobs} }, Users: &user.Directory{}, Host: "h"}
	p.Sources = source.Sources{"fetch": source.Queue{}, source.Users: p}
	return p
}

// CLAIM-REQUEST: managers, operators and those whom CLAIM_USERS names may claim
// slots, and nobody else.
func TestMayClaim(t *testing.T) {
	p := withKnobs(t, "CLAIM_USERS = alice, svc-*\n")
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
		if err := p.MayClaim(tt.caller); (err == nil) != tt.want {
			t.Errorf("%s: %v; want it allowed: %v", tt.caller.Name, err, tt.want)
		}
	}
	_, err := p.Claim(job.Caller{UID: 1, Name: "alice"}, claim.Request{Priority: 1}, 0)
	if err == nil || !strings.Contains(err.Error(), "operator privileges") {
		t.Errorf("a priority of anybody's: %v; want it denied", err)
	}
}

// CLAIM-REQUEST: START and RANK see who claims, not whom he says that he is.
func TestOwned(t *testing.T) {
	p := withKnobs(t, "")
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
		var text *classad.Ad
		if tt.ad != "" {
			var err error
			if text, err = classad.ParseOld(tt.ad); err != nil {
				t.Fatal(err)
			}
		}
		env := classad.Env{My: p.owned(tt.caller, text)}
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
func TestLease(t *testing.T) {
	p := withKnobs(t, "ALIVE_INTERVAL = 100\nMAX_CLAIM_ALIVES_MISSED = 2\n")
	for asked, want := range map[int]time.Duration{0: 200 * time.Second, 10: 10 * time.Second, 60: time.Minute, 1 << 40: 200 * time.Second} {
		if got, err := p.lease(asked); got != want || err != nil {
			t.Errorf("lease of %d s: %v, %v; want %v", asked, got, err, want)
		}
	}
	for _, asked := range []int{9, -1, -1 << 40} {
		if _, err := p.lease(asked); api.RefusalOf(err) != api.RefusedMessage {
			t.Errorf("lease of %d s: %v; want it refused", asked, err)
		}
	}
	if got, _ := withKnobs(t, "").lease(0); got != 1800*time.Second {
		t.Errorf("the lease is %v; want 1800 s where nothing is configured", got)
	}
}

// A job under a claim runs as the caller; as another user only for a manager, and
// only as one whom FETCH_OWNERS names.
func TestOwner(t *testing.T) {
	p := withKnobs(t, "FETCH_OWNERS = root\n")
	ctx := context.Background()
	me, err := p.Users.ByID(ctx, os.Getuid())
	if err != nil {
		t.Skipf("the name services do not know this user: %v", err)
	}
	caller := job.Caller{UID: me.UID, Name: me.Name}
	if owner, err := p.owner(ctx, caller, ""); err != nil || owner.UID != me.UID {
		t.Errorf("without an ad: %+v, %v; want the caller", owner, err)
	}
	if _, err := p.owner(ctx, caller, "daemon"); err == nil {
		t.Error("anybody starts jobs of others")
	}
	caller.Manager = true
	if _, err := p.owner(ctx, caller, "daemon"); err == nil || !strings.Contains(err.Error(), "FETCH_OWNERS") {
		t.Errorf("a manager starts jobs of one whom FETCH_OWNERS does not name: %v", err)
	}
	manager := job.Caller{UID: 1 << 20, Name: "m", Manager: true}
	if owner, err := p.owner(ctx, manager, "root"); err == nil || !strings.Contains(err.Error(), "is root, and work that another brings never is") {
		t.Errorf("as root: %+v, %v; want it denied, as for fetched work", owner, err)
	}
	if owner, err := withKnobs(t, "FETCH_OWNERS = daemo?\n").owner(ctx, manager, "daemon"); err != nil || owner.Name != "daemon" {
		t.Errorf("as one whom FETCH_OWNERS names: %+v, %v", owner, err)
	}
	if _, err := withKnobs(t, "FETCH_OWNERS = no*\n").owner(ctx, caller, "no such user"); api.RefusalOf(err) != api.RefusedRequirements {
		t.Errorf("as nobody: %v; want it refused", err)
	}
}

// A job of a program that nobody starts again is deleted, with a line, and none of the
// queue is.
func TestStray(t *testing.T) {
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	store, err := job.Open(root, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	sources := source.Sources{source.Users: &Programs{Store: store, Log: slog.New(slog.NewTextHandler(&log, nil))}}
	for _, work := range []*api.Work{nil, {Slot: "1", Holder: "alice"}} {
		r := &api.SubmitRequest{Name: "j", Binary: true, Command: "true", Work: work}
		if _, _, err := store.Submit(&user.User{Name: "alice", UID: 1}, 1, r, job.Limits{}, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	for _, j := range store.Pending() {
		sources.Of(j.Source).Stray(j)
	}
	queued, stray := store.Get(1) != nil, store.Get(2) != nil
	if !queued || stray || !strings.Contains(log.String(), "job 2: is not run again") {
		t.Errorf("job 1 is there %v, job 2 %v, and the log %q; want the second deleted", queued, stray, log.String())
	}
}

// Who follows a job is told that it will never be started, whatever the reason.
func TestGone(t *testing.T) {
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	followed := &follow.Activations{
		Root: root, Claimed: func(string) bool { return true }, Lease: func() time.Duration { return time.Hour }, Log: slog.New(slog.DiscardHandler),
	}
	if err := followed.Open(); err != nil {
		t.Fatal(err)
	}
	store, err := job.Open(root, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p := &Programs{Followed: followed, Store: store, Log: slog.New(slog.DiscardHandler), ClaimOver: func(string, bool, bool) {}}
	for n, tell := range []func(*job.Job){
		p.Stray,
		func(j *job.Job) { p.Abandoned(j, slot.Hold{Text: "its claim is over"}) },
		func(j *job.Job) { p.Unstarted(j, "its claim is over") },
	} {
		a := &api.Activation{Sandbox: api.NewSandboxID("<h>#1#2#s", uint64(n+1)), User: "alice"}
		if _, err := followed.Enter(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		r := &api.SubmitRequest{Name: "j", Binary: true, Command: "true", Work: &api.Work{Slot: "1", Holder: "alice", Activation: a}}
		j, _, err := store.Submit(&user.User{Name: "alice", UID: 1}, 1, r, job.Limits{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		followed.Entered(a.Sandbox, j.Number, "")
		tell(j)
		reply, _ := followed.Look(follow.Who{User: "alice"}, &api.FollowRequest{})
		if e := reply.Events; len(e) != n+1 || e[n].Sandbox != a.Sandbox || e[n].Kind != api.ActivationGone || e[n].Reason != "its claim is over" {
			t.Errorf("%d: %+v", n, e)
		}
	}
	p.Evicted(claim.Eviction{})
}
