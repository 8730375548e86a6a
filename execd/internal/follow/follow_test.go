package follow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/spool"
	"paddock/spool/spooltest"
	"paddock/test/harness"
)

const theClaim = api.ClaimID("<h>#17#4#secret")

// rig is what an execd knows, with a claim.
type rig struct {
	*testing.T
	*Activations
	root  *spool.Root
	over  bool
	lease time.Duration
	log   bytes.Buffer
}

func newRig(t *testing.T) *rig {
	t.Helper()
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, root: root, lease: time.Hour}
	r.claim("17.4")
	r.restart()
	return r
}

// claim writes something in the place of a claim.
func (r *rig) claim(file string) {
	r.Helper()
	if err := os.WriteFile(r.root.Path(spool.DirClaims, file), nil, 0o600); err != nil {
		r.Fatal(err)
	}
}

// restart is the next execd, which finds jobs.
func (r *rig) restart(jobs ...*job.Job) {
	r.Helper()
	r.Activations = &Activations{
		Root: r.root, Claimed: func(string) bool { return !r.over }, Lease: func() time.Duration { return r.lease },
		Log: slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	if err := r.Open(); err != nil {
		r.Fatal(err)
	}
	var claimed []job.Claimed
	for _, j := range jobs {
		claimed = append(claimed, job.Claimed{Job: j})
	}
	r.Recover(claimed)
}

// enter begins an activation with a job.
func (r *rig) enter(counter uint64, number int) *job.Job {
	r.Helper()
	a := &api.Activation{Sandbox: api.NewSandboxID(theClaim, counter), Host: "login", Home: &api.Home{Job: number + 1000, Task: 1, Host: "login"}}
	if known, err := r.Enter(context.Background(), a); known != nil || err != nil {
		r.Fatal(known, err)
	}
	r.Entered(a.Sandbox, number, "c")
	return &job.Job{Number: number, Submitter: &job.Submitter{}, Origin: &job.Origin{Activation: a}}
}

// tell tells of events of a kind.
func (r *rig) tell(j *job.Job, kinds ...api.ActivationKind) {
	for _, kind := range kinds {
		r.Tell(j, api.ActivationEvent{Kind: kind, Ad: string(kind)})
	}
}

var login = Who{Host: "login"}

// see returns the kinds of the events since a cursor, and acknowledges none.
func (r *rig) see(w Who, cursor string) (string, api.FollowReply) {
	reply, _ := r.Look(w, &api.FollowRequest{Cursor: cursor})
	var kinds []string
	for _, e := range reply.Events {
		kinds = append(kinds, string(e.Kind))
	}
	return strings.Join(kinds, " "), reply
}

// REQ-FLOW-14, REQ-FLOW-16: of periodic updates the last is kept until it is acknowledged, and none comes after the end.
func TestTell(t *testing.T) {
	const (
		started, update, suspended, resumed = api.ActivationStarted, api.ActivationUpdate, api.ActivationSuspended, api.ActivationResumed
		over, final, gone                   = api.ActivationOver, api.ActivationFinal, api.ActivationGone
	)
	for _, tt := range []struct {
		told []api.ActivationKind
		want string
	}{
		{[]api.ActivationKind{started, update, update, update}, "started update"},
		{[]api.ActivationKind{started, suspended, update, resumed, suspended}, "started update suspended"},
		{[]api.ActivationKind{started, update, over, update, suspended, started}, "started update over"},
		{[]api.ActivationKind{started, over, final, over, update}, "started over final"},
		{[]api.ActivationKind{final, final}, "final"},
		{[]api.ActivationKind{started, update, gone, final}, "gone"},
	} {
		r := newRig(t)
		j := r.enter(1, 7)
		r.tell(j, tt.told...)
		got, reply := r.see(login, "")
		if got != tt.want {
			t.Errorf("%v: %q; want %q", tt.told, got, tt.want)
		}
		if again, _ := r.see(login, reply.Cursor); again != "" {
			t.Errorf("%v: %q again", tt.told, again)
		}
		if all, _ := r.see(login, "x-1"); all != tt.want {
			t.Errorf("%v: %q by the cursor of another execd; want %q", tt.told, all, tt.want)
		}
		for _, other := range []Who{{}, {Host: "login", User: "anna"}, {Host: "node"}} {
			if got, _ := r.see(other, ""); got != "" {
				t.Errorf("%v sees %q", other, got)
			}
		}
	}
}

// What is acknowledged is forgotten, by its follower and by numbers of this execd alone; then
// the run goes on.
func TestAcknowledge(t *testing.T) {
	r := newRig(t)
	j := r.enter(1, 7)
	r.tell(j, api.ActivationStarted, api.ActivationOver, api.ActivationFinal)
	went := make(chan struct{})
	if r.Acknowledged(j, func() { close(went) }) {
		t.Fatal("acknowledged before anybody did")
	}
	_, reply := r.see(login, "")
	last := reply.Events[2].Seq
	for what, bad := range map[string]struct {
		w      Who
		cursor string
		seq    uint64
	}{
		"another":                      {Who{Host: "node"}, reply.Cursor, last},
		"with another execd's cursor":  {login, "other-99999999999999999", last},
		"before it was sent":           {login, fmt.Sprintf("%s-%d", r.begun, last-1), last},
		"with a number that was never": {login, reply.Cursor, last + 9},
	} {
		r.Look(bad.w, &api.FollowRequest{Cursor: bad.cursor, Acks: []api.Ack{{Sandbox: j.Activation.Sandbox, Seq: bad.seq}}})
		if got, _ := r.see(login, ""); got != "started over final" {
			t.Errorf("acknowledged by %s: %q is left", what, got)
		}
	}
	r.Look(login, &api.FollowRequest{Cursor: reply.Cursor, Acks: []api.Ack{{Sandbox: j.Activation.Sandbox, Seq: last - 1}, {Sandbox: "unknown", Seq: 1}}})
	if got, _ := r.see(login, ""); got != "final" {
		t.Errorf("%q is left; want the end", got)
	}
	r.Look(login, &api.FollowRequest{Cursor: reply.Cursor, Acks: []api.Ack{{Sandbox: j.Activation.Sandbox, Seq: last}}})
	<-went
	if !r.Acknowledged(j, nil) {
		t.Error("it waits on")
	}
	// The id is spent.
	if _, err := r.Enter(t.Context(), j.Activation); api.RefusalOf(err) != api.RefusedFenced {
		t.Errorf("entered again: %v", err)
	}
}

// An update that was acknowledged before the end does not acknowledge the end.
func TestAcknowledgeInTurn(t *testing.T) {
	r := newRig(t)
	j := r.enter(1, 7)
	r.tell(j, api.ActivationStarted)
	_, reply := r.see(login, "")
	r.tell(j, api.ActivationFinal)
	r.Look(login, &api.FollowRequest{Cursor: reply.Cursor, Acks: []api.Ack{{Sandbox: j.Activation.Sandbox, Seq: reply.Events[0].Seq}}})
	if got, _ := r.see(login, ""); got != "final" {
		t.Errorf("%q is left", got)
	}
}

// A follower has so many activations at most, and a reply so many events.
func TestBounds(t *testing.T) {
	r := newRig(t)
	var jobs []*job.Job
	for i := range api.MaxActivations {
		jobs = append(jobs, r.enter(uint64(i+1), i+1))
		r.tell(jobs[i], api.ActivationStarted, api.ActivationFinal)
	}
	a := &api.Activation{Sandbox: api.NewSandboxID(theClaim, 5000), Host: "login"}
	if _, err := r.Enter(t.Context(), a); api.RefusalOf(err) != api.RefusedTryAgain {
		t.Fatalf("one more: %v", err)
	}
	other := &api.Activation{Sandbox: a.Sandbox, Host: "login", User: "anna"}
	if _, err := r.Enter(t.Context(), other); err != nil {
		t.Errorf("another's: %v", err)
	}
	cursor, seen := "", 0
	for {
		_, reply := r.see(login, cursor)
		if cursor = reply.Cursor; len(reply.Events) > api.MaxEvents {
			t.Fatalf("%d events in a reply", len(reply.Events))
		}
		if seen += len(reply.Events); !reply.More {
			break
		}
	}
	if seen != 2*api.MaxActivations {
		t.Errorf("%d events; want %d", seen, 2*api.MaxActivations)
	}
	r.Tell(jobs[0], api.ActivationEvent{Kind: api.ActivationGone, Ad: strings.Repeat("A = 1\n", 1<<14)})
	_, reply := r.see(login, cursor)
	if text := reply.Events[0].Ad; len(text) > api.MaxUpdate || !strings.HasSuffix(text, "A = 1\n") {
		t.Errorf("an ad of %d bytes", len(text))
	}
}

// An activation that is repeated while it begins waits, and has the same job; one that came
// to nothing may be tried again.
func TestEnterAgain(t *testing.T) {
	r := newRig(t)
	a := &api.Activation{Sandbox: api.NewSandboxID(theClaim, 1), Host: "login"}
	if _, err := r.Enter(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Enter(ctx, a); !errors.Is(err, context.Canceled) {
		t.Errorf("while it begins: %v", err)
	}
	if fenced, err := r.Fence(a.Sandbox); fenced || err != nil {
		t.Errorf("a fence while it begins: %v, %v", fenced, err)
	}
	r.Entered(a.Sandbox, 0, "")
	if known, err := r.Enter(t.Context(), a); known != nil || err != nil {
		t.Fatalf("after it came to nothing: %v, %v", known, err)
	}
	r.Entered(a.Sandbox, 9, "c")
	if known, err := r.Enter(t.Context(), a); err != nil || *known != (Known{9, "c"}) {
		t.Errorf("again: %+v, %v", known, err)
	}
	r.restart(&job.Job{Number: 9, Submitter: &job.Submitter{}, Origin: &job.Origin{Activation: a}})
	if known, err := r.Enter(t.Context(), a); err != nil || *known != (Known{9, ""}) {
		t.Errorf("after a restart: %+v, %v", known, err)
	}
	for _, id := range []api.SandboxID{"", "x", "a#b#c#1#" + "0123456789abcdef0123456789abcdef", "<h>#17#4#1#short"} {
		if _, err := r.Enter(t.Context(), &api.Activation{Sandbox: id}); api.RefusalOf(err) != api.RefusedMessage {
			t.Errorf("%q: %v; want it refused", id, err)
		}
	}
}

// A job may be over, and its end acknowledged, before the caller hears that it has begun.
func TestOverAtOnce(t *testing.T) {
	r := newRig(t)
	a := &api.Activation{Sandbox: api.NewSandboxID(theClaim, 1), Host: "login"}
	if _, err := r.Enter(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	r.tell(&job.Job{Number: 9, Submitter: &job.Submitter{}, Origin: &job.Origin{Activation: a}}, api.ActivationFinal)
	if state, number, err := r.State(t.Context(), login, a.Sandbox); state != api.RunFinal || number != 9 || err != nil {
		t.Errorf("%s, %d, %v", state, number, err)
	}
	_, reply := r.see(login, "")
	r.Look(login, &api.FollowRequest{Cursor: reply.Cursor, Acks: []api.Ack{{Sandbox: a.Sandbox, Seq: reply.Events[0].Seq}}})
	r.Entered(a.Sandbox, 9, "c")
	if _, err := r.Enter(t.Context(), a); api.RefusalOf(err) != api.RefusedFenced {
		t.Errorf("entered again: %v", err)
	}
}

// An end that nobody acknowledges is kept for a lease when the claim is over.
func TestExpire(t *testing.T) {
	r := newRig(t)
	r.lease = time.Millisecond
	j := r.enter(1, 7)
	r.tell(j, api.ActivationStarted)
	r.over = true
	r.Over(theClaim.String())
	went := make(chan struct{})
	if err := harness.WaitFor(time.Minute, "the lease to be over", func() (bool, error) { return r.isExpired(j), nil }); err != nil {
		t.Fatal(err)
	}
	if r.Acknowledged(j, func() { close(went) }) {
		t.Fatal("forgotten while it runs")
	}
	r.tell(j, api.ActivationFinal)
	<-went
	if len(r.known) != 0 || len(r.spent) != 0 {
		t.Errorf("%d activations and %d claims are remembered", len(r.known), len(r.spent))
	}
}

func (r *rig) isExpired(j *job.Job) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[j.Activation.Sandbox].expired
}

// A fence holds over a restart, for its claim and as long as that, and takes one file however
// many there are.
func TestFence(t *testing.T) {
	r := newRig(t)
	r.claim("17.5")
	for i := range uint64(100) {
		if fenced, err := r.Fence(api.NewSandboxID(theClaim, 100-i)); !fenced || err != nil {
			t.Fatal(fenced, err)
		}
	}
	fences := func() []string {
		names, err := r.root.ListFences()
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if names := fences(); !slices.Equal(names, []string{"17.4"}) {
		t.Errorf("the fences are %q", names)
	}
	enter := func(claim api.ClaimID, counter uint64) api.Refusal {
		a := &api.Activation{Sandbox: api.NewSandboxID(claim, counter), Host: "login"}
		_, err := r.Enter(context.Background(), a)
		if err == nil {
			r.Entered(a.Sandbox, 0, "")
		}
		return api.RefusalOf(err)
	}
	for range 2 {
		if got := []api.Refusal{enter(theClaim, 1), enter(theClaim, 100), enter(theClaim, 101), enter("<h>#17#5#s", 1)}; !slices.Equal(got, []api.Refusal{api.RefusedFenced, api.RefusedFenced, 0, 0}) {
			t.Errorf("refused with %v", got)
		}
		r.restart()
	}
	r.Over(theClaim.String())
	if names := fences(); len(names) != 0 {
		t.Errorf("after the claim the fences are %q", names)
	}
	// Left by an execd that died then.
	if _, err := r.Fence(api.NewSandboxID(theClaim, 7)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(r.root.Path(spool.DirClaims, "17.4")); err != nil {
		t.Fatal(err)
	}
	r.restart()
	if names := fences(); len(names) != 0 {
		t.Errorf("after a restart without the claim the fences are %q", names)
	}
}

// Of a fence that cannot be read nothing is started under its claim; of one that was not
// written the caller hears.
func TestFenceDamaged(t *testing.T) {
	r := newRig(t)
	for _, text := range []string{"", "12", "x\n", "-1\n", "12\n13\n", strings.Repeat("9", 40) + "\n"} {
		if err := os.WriteFile(r.root.Path(spool.DirFences, "17.4"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r.restart()
		a := &api.Activation{Sandbox: api.NewSandboxID(theClaim, 1<<63)}
		if _, err := r.Enter(t.Context(), a); api.RefusalOf(err) != api.RefusedFenced || !strings.Contains(r.log.String(), "fences/17.4: ") {
			t.Errorf("%q: %v; the log says %s", text, err, r.log.String())
		}
	}
	spooltest.EachFault(t, unix.ENOSPC,
		func(t *testing.T) *rig { return newRig(t) },
		func(_ *testing.T, r *rig) error {
			_, err := r.Fence(api.NewSandboxID(theClaim, 7))
			return err
		},
		func(t *testing.T, r *rig, err error) {
			id := api.NewSandboxID(theClaim, 7)
			if _, entered := r.Enter(t.Context(), &api.Activation{Sandbox: id}); api.RefusalOf(entered) != api.RefusedFenced {
				t.Errorf("after %v: entered: %v", err, entered)
			}
			if fenced, err := r.Fence(id); !fenced || err != nil {
				t.Fatalf("fenced again: %v, %v", fenced, err)
			}
			r.restart()
			if _, entered := r.Enter(t.Context(), &api.Activation{Sandbox: id}); api.RefusalOf(entered) != api.RefusedFenced {
				t.Errorf("after a restart: entered: %v", entered)
			}
		})
}

func FuzzParseFence(f *testing.F) {
	for _, text := range []string{"0\n", "18446744073709551615\n", "+1\n", "01\n", "1"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if n, err := parseFence(data); err == nil && !bytes.Equal(appendFence(n), data) {
			t.Errorf("%q is %d", data, n)
		}
	})
}
