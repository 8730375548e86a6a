package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"paddock/execd/api"
	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/peer"
	"paddock/test/harness"
)

// inPool returns a server on the host node that executes, and of a host login that submits
// to it the clients, and what it has in force.
func inPool(t *testing.T) (*Server, *peer.Clients, *peer.Keeper) {
	t.Helper()
	write := func(path string, text []byte, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, text, mode); err != nil {
			t.Fatal(err)
		}
	}
	keeper := func(dir string) *peer.Keeper {
		t.Helper()
		k := peer.NewKeeper(func() peer.Files { return peer.FilesIn(dir) })
		if _, err := k.Reload(); err != nil {
			t.Fatal(err)
		}
		return k
	}
	login, node := t.TempDir(), t.TempDir()
	if err := peer.NewPool(login, "login", peer.Submit); err != nil {
		t.Fatal(err)
	}
	pool, err := peer.OpenPool(login)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	text, err := pool.Issue("node", peer.Execute)
	if err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(node, "host.pem"), text, 0o600)
	s, _ := newServer(t)
	s.Peers = keeper(node)
	l, err := peer.Listen("127.0.0.1:0", s.Peers, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(login, "peers"), []byte("node "+l.Addr().String()+" execute\n"), 0o644)
	ctx, cancel := context.WithCancel(context.Background())
	s.Open(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.ServePeers(ctx, l); err != nil {
			t.Error(err)
		}
	})
	ofLogin := keeper(login)
	clients := peer.NewClients(ofLogin)
	t.Cleanup(func() {
		clients.Forget()
		cancel()
		done.Wait()
	})
	return s, clients, ofLogin
}

// waits waits until something is so.
func waits(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if err := harness.WaitFor(harness.Patience, what, func() (bool, error) { return ok(), nil }); err != nil {
		t.Fatal(err)
	}
}

// Hosts are answered while users here have taken all that they may, and take nothing of it.
func TestPeersBesideUsers(t *testing.T) {
	s, login, _ := inPool(t)
	for uid := range s.admission.answers.Total {
		leave, err := s.admission.answers.Enter(t.Context(), uid, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
	}
	var reply api.SlotsReply
	if err := login.Of("node", "").Call(t.Context(), api.VerbSlots, &api.SlotsRequest{}, &reply); err != nil || len(reply.Slots) == 0 {
		t.Errorf("%+v, %v", reply, err)
	}
}

// A host has the names of few users looked up at the same time, however many it brings.
func TestPeerLookups(t *testing.T) {
	s, login, _ := inPool(t)
	s.OwnerOnly = -1
	var leaves []func()
	for range maxPeerLookups {
		leave, err := s.lookups.Enter(t.Context(), keyOf("login"), 1)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	answered := make(chan error)
	go func() {
		answered <- login.Of("node", "nobody-has-this-name").Call(t.Context(), api.VerbHello, &api.HelloRequest{}, &api.HelloReply{})
	}()
	waits(t, "the lookup to wait for its turn", func() bool { return s.lookups.Waiting(keyOf("login")) == 1 })
	for _, leave := range leaves {
		leave()
	}
	if err := <-answered; codeOf(err) != api.CodeDenied {
		t.Errorf("%v; want him denied", err)
	}
}

// Who asks for the slots and has seen others before takes turns like everybody, and gives
// his turn back while he waits.
func TestSlotsTurn(t *testing.T) {
	s, login, _ := inPool(t)
	gate := &s.ofPeers.answers
	var leaves []func()
	for range maxPeerAnswers {
		leave, err := gate.Enter(t.Context(), keyOf("login"), 1)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	node := login.Of("node", "")
	answered := make(chan error)
	var reply api.SlotsReply
	go func() {
		answered <- node.Call(t.Context(), api.VerbSlots, &api.SlotsRequest{Since: "others"}, &reply)
	}()
	waits(t, "the request to wait for its turn", func() bool { return gate.Waiting(keyOf("login")) == 1 })
	for _, leave := range leaves {
		leave()
	}
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	// As many as have a turn wait for a change now, and one more is answered.
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	ended := make(chan error, maxPeerAnswers)
	for range maxPeerAnswers {
		waiting.Go(func() {
			ended <- node.Call(ctx, api.VerbSlots, &api.SlotsRequest{Since: reply.Version}, &api.SlotsReply{})
		})
	}
	for range 3 * maxPeerAnswers {
		if err := node.Call(t.Context(), api.VerbSlots, &api.SlotsRequest{}, &api.SlotsReply{}); err != nil {
			t.Error(err)
		}
	}
	if len(ended) > 0 {
		t.Errorf("%d requests ended without a change, the first with %v", len(ended), <-ended)
	}
	cancel()
	waiting.Wait()
}

// In user mode, too, REMOTE_OWNERS says as whom work of others may run.
func TestRemoteOwnerInUserMode(t *testing.T) {
	s, _ := newServer(t)
	if s.OwnerOnly = os.Getuid(); s.OwnerOnly == 0 {
		s.OwnerOnly = 65534
	}
	for knobs, want := range map[string]bool{"": true, "REMOTE_OWNERS = *\n": true, "REMOTE_OWNERS = somebody-else\n": false} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "hooks.conf"), []byte(knobs), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := conf.Load(conf.Options{Dir: dir, Tmpdir: dir, Host: "h"})
		if err != nil {
			t.Fatal(err)
		}
		s.Config = func() *conf.Config { return c }
		if u, err := s.remoteOwner(t.Context(), "anna"); (err == nil) != want || want && u.UID != s.OwnerOnly || !want && codeOf(err) != api.CodeDenied {
			t.Errorf("%q: %+v, %v; want %t", knobs, u, err, want)
		}
	}
}

// The requests to a host are counted together, however its name is written.
func TestRelaysOf(t *testing.T) {
	_, login, keeper := inPool(t)
	s, _ := newServer(t)
	s.Peers, s.Hosts = keeper, login
	for _, name := range []string{"node", "NODE", "Node"} {
		in := &incoming{body: strings.NewReader("{}"), size: 2, limit: 100, admission: newAdmission()}
		if _, err := relay(name, api.VerbSlots, anyone|peers)(s, t.Context(), job.Caller{UID: 1, Name: "anna"}, in); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(s.relays.gates) != 1 {
		t.Errorf("%d gates for one host", len(s.relays.gates))
	}
}

// codeOf returns the code of an error that execd has answered; empty: it is none.
func codeOf(err error) api.Code {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Code
	}
	return ""
}

// Where the shepherd is a foreign one, which knows nothing of leases, no other host has a claim.
func TestClaimWithForeignShepherd(t *testing.T) {
	s, _ := newServer(t)
	s.Programs.Sources = nil
	s.Stages.Launcher.AsUser, s.Stages.Launcher.Shepherd = &asuser.Starter{Shepherd: "/ours"}, "/theirs"
	_, err := s.claim(t.Context(), job.Caller{UID: 1000, Name: "anna", Host: "login"}, &api.ClaimRequest{})
	if api.RefusalOf(err) != api.RefusedRequirements || !strings.Contains(err.Error(), "shepherd_cmd") {
		t.Errorf("%v; want it refused", err)
	}
}

// Execd alone says whose job an activation is, in whatever case and place it is written.
func TestNamesHome(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`: false, `{"ad":"x","sandbox":"y"}`: false, `{"request":{"home":{}}}`: false,
		`{"home":{"job":1}}`: true, `{"HOME":{}}`: true, `{"home":null}`: true, `{"home":{},"Home":null}`: true, `{"home":1}`: true, `[]`: true, `x`: true,
	} {
		if got := namesHome([]byte(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
