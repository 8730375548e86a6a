package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"paddock/execd/api"
)

// twoHosts returns the pool of a host login that submits, login's clients, the directory
// of its files, and a host node that answers with a function.
func twoHosts(t *testing.T, answer http.HandlerFunc) (p *Pool, clients *Clients, dir string) {
	t.Helper()
	keeper := func(files Files) *Keeper {
		k := NewKeeper(func() Files { return files })
		if _, err := k.Reload(); err != nil {
			t.Fatal(err)
		}
		return k
	}
	dir, p = newPool(t)
	text, _ := issue(t, p, "node", Execute)
	_, files := on(t, text)
	l, err := Listen("127.0.0.1:0", keeper(files), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{Handler: answer}
	var done sync.WaitGroup
	done.Go(func() { _ = h.Serve(l) })
	t.Cleanup(func() {
		_ = h.Close()
		done.Wait()
	})
	write(t, filepath.Join(dir, filePeers), "node "+l.Addr().String()+" execute\n", 0o644)
	clients = NewClients(keeper(FilesIn(dir)))
	t.Cleanup(clients.Forget)
	return p, clients, dir
}

// A host whose certificate was revoked is not asked any more, not even on a connection
// that was busy at that time.
func TestForget(t *testing.T) {
	held, letGo := make(chan struct{}), make(chan struct{})
	p, clients, _ := twoHosts(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/hold") {
			close(held)
			<-letGo
		}
		_, _ = w.Write([]byte("{}"))
	})
	node := clients.Of("node", "")
	call := func(verb string) error { return node.Call(t.Context(), verb, struct{}{}, &struct{}{}) }
	first := make(chan error)
	go func() { first <- call("hold") }()
	<-held
	if _, err := p.Revoke("node"); err != nil {
		t.Fatal(err)
	}
	if changed, err := clients.keeper.Reload(); err != nil || len(changed) != 1 {
		t.Fatalf("%v, %v", changed, err)
	}
	clients.Forget()
	// This one has a connection of its own made, so that the next could find the other idle.
	if err := call("now"); err == nil || !strings.Contains(err.Error(), "is revoked") {
		t.Errorf("on a new connection: %v; want it revoked", err)
	}
	close(letGo)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := call("after"); err == nil || !strings.Contains(err.Error(), "is revoked") {
		t.Errorf("after the connection became idle: %v; want it revoked", err)
	}
}

// A header would say less than the name of a user who has spaces around it.
func TestNameInHeader(t *testing.T) {
	_, clients, _ := twoHosts(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(r.Header.Get(HeaderUser))
	})
	for _, name := range []string{" anna", "anna ", " ", "\t", "anna\n", "a\x00"} {
		as := ""
		if err := clients.Of("node", name).Call(t.Context(), "v", struct{}{}, &as); err == nil {
			t.Errorf("%q becomes %q", name, as)
		}
	}
	for _, name := range []string{"", "anna", "anna b", "a@b"} {
		as := "?"
		if err := clients.Of("node", name).Call(t.Context(), "v", struct{}{}, &as); err != nil || as != name {
			t.Errorf("%q becomes %q, %v", name, as, err)
		}
	}
}

// What a host says of itself is bounded where it is kept.
func TestLongHello(t *testing.T) {
	asked := make(chan struct{}, 100)
	_, clients, _ := twoHosts(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/"+api.VerbHello) {
			_ = json.NewEncoder(w).Encode(api.HelloReply{Host: strings.Repeat("h", 1<<20), Version: strings.Repeat("v", 1<<20)})
			return
		}
		_ = json.NewEncoder(w).Encode(api.SlotsReply{})
		asked <- struct{}{}
	})
	var log strings.Builder
	w := &Watch{Keeper: clients.keeper, Clients: clients, Log: slog.New(slog.NewTextHandler(&log, nil)), Changed: func(string) {}}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { w.Run(ctx) })
	<-asked
	<-asked // the first answer is noted by then
	s := w.Status()
	cancel()
	done.Wait()
	if len(s) != 1 || s[0].State != api.PeerUp || len(s[0].Version) > 100 {
		t.Errorf("%.500s", fmt.Sprint(s))
	}
	if log.Len() > 1000 {
		t.Errorf("%d bytes in the log", log.Len())
	}
}

// A change of what is in force ends the connections of hosts that are not believed any more.
func TestReview(t *testing.T) {
	dir, p := newPool(t)
	text, _ := issue(t, p, "node", Execute)
	nodeDir, files := on(t, text)
	k := NewKeeper(func() Files { return files })
	if _, err := k.Reload(); err != nil {
		t.Fatal(err)
	}
	l, err := Listen("127.0.0.1:0", k, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	write(t, filepath.Join(dir, filePeers), "node "+l.Addr().String()+" execute\n", 0o644)
	login := NewKeeper(func() Files { return FilesIn(dir) })
	if _, err := login.Reload(); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		accepted <- c
	}()
	c, err := NewClients(login).dial(t.Context(), "tcp", "node:443")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-accepted
	write(t, filepath.Join(nodeDir, filePeers), "other submit\n", 0o644)
	if _, err := k.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
}

// Before an answer is read there is room for it: for as much as it says, or as it may have.
func TestHolding(t *testing.T) {
	_, clients, _ := twoHosts(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/chunks") {
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = w.Write([]byte("{}"))
	})
	for verb, want := range map[string]int{"short": 2, "chunks": maxReply} {
		size := 0
		full := errors.New("no room")
		hold := func(_ context.Context, n int) error {
			size = n
			return full
		}
		answer := json.RawMessage("unread")
		err := clients.OfHolding("node", "", hold).Call(t.Context(), verb, struct{}{}, &answer)
		if full = nil; err == nil || !strings.Contains(err.Error(), "no room") || string(answer) != "unread" || size != want {
			t.Errorf("%s without room for %d bytes: %s, %v", verb, size, answer, err)
		}
		if err := clients.OfHolding("node", "", hold).Call(t.Context(), verb, struct{}{}, &answer); err != nil || string(answer) != "{}" {
			t.Errorf("%s: %s, %v", verb, answer, err)
		}
	}
}
