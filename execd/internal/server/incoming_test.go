package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
)

// stalled is a body that does not come to its end before its deadline.
type stalled struct{ io.Reader }

func (s stalled) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if err != nil {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

func TestDecode(t *testing.T) {
	words := func(n int) string {
		text, err := json.Marshal(api.DetailRequest{Jobs: strings.Fields(strings.Repeat("a,b ", n))})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, tt := range []struct {
		name string
		body io.Reader
		size int64
		want string // empty: it is read
	}{
		{"short", strings.NewReader(`{}`), 2, ""},
		{"of unknown size", strings.NewReader(words(9)), -1, ""},
		{"as large as may be", strings.NewReader(words(10_000)), int64(len(words(10_000))), ""},
		{"too large", strings.NewReader(""), 5 << 20, "the request is larger than 4194304 bytes"},
		{"too large, of unknown size", bytes.NewReader(make([]byte, 5<<20)), -1, "the request is larger than 4194304 bytes"},
		{"too many values", strings.NewReader(words(300_000)), int64(len(words(300_000))), "the request has 300000 values, at most 262144 are possible"},
		{"nothing", strings.NewReader(""), 0, "cannot read request: unexpected end of JSON input"},
		{"cut short", strings.NewReader(`{"jobs":`), 100, "cannot read request: unexpected EOF"},
		{"slow", stalled{strings.NewReader(`{"jobs":`)}, 100, "the request did not arrive in time"},
	} {
		a := newAdmission()
		var deadlines []time.Time
		in := &incoming{body: tt.body, size: tt.size, limit: 4 << 20, admission: a, serving: t.Context(), deadline: func(at time.Time) error {
			deadlines = append(deadlines, at)
			return nil
		}}
		var req api.DetailRequest
		err := in.decode(t.Context(), &req)
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
		// Reading has a deadline, which a client that waits for an answer has not.
		if n := len(deadlines); err == nil && (n != 2 || deadlines[0].IsZero() || !deadlines[1].IsZero()) {
			t.Errorf("%s: deadlines %v", tt.name, deadlines)
		}
		in.done()
		if leave, err := a.bodies.Enter(t.Context(), 1, maxUserBodies); err != nil {
			t.Error(err)
		} else {
			leave()
		}
	}
}

// A request takes part of what its user may have until it is answered.
func TestBodiesHaveRoom(t *testing.T) {
	a := newAdmission()
	const size = 3 << 20
	body := `{"jobs":["` + strings.Repeat("x", size-13) + `"]}`
	var held []*incoming
	for range maxUserBodies / bodyCost(size) {
		in := &incoming{uid: 7, body: strings.NewReader(body), size: size, limit: size, admission: a}
		if err := in.decode(t.Context(), new(api.DetailRequest)); err != nil {
			t.Fatal(err)
		}
		held = append(held, in)
	}
	entered := make(chan error)
	next := &incoming{uid: 7, body: strings.NewReader(body), size: size, limit: size, admission: a}
	go func() { entered <- next.decode(t.Context(), new(api.DetailRequest)) }()
	// Another user finds room, and a small request needs none.
	for uid, text := range map[int]string{8: body, 7: `{}`} {
		in := &incoming{uid: uid, body: strings.NewReader(text), size: int64(len(text)), limit: size, admission: a}
		if err := in.decode(t.Context(), new(api.DetailRequest)); err != nil {
			t.Error(err)
		}
		in.done()
	}
	select {
	case err := <-entered:
		t.Fatalf("a request more of the same user was read: %v", err)
	default:
	}
	for _, in := range held {
		in.done()
	}
	if err := <-entered; err != nil {
		t.Error(err)
	}
	next.done()
}

// What arrives while execd stops is not taken for the client's mistake: nothing of
// it was read, and the client may ask the next execd.
func TestDecodeWhileStopping(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	in := &incoming{body: strings.NewReader(`{}`), size: 2, limit: 100, admission: newAdmission(), serving: stopped, deadline: func(time.Time) error { return nil }}
	defer in.done()
	err := in.decode(t.Context(), &api.DetailRequest{})
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeTryAgain {
		t.Errorf("%v; want an error with the code %s", err, api.CodeTryAgain)
	}
}

// interrupted is the connection of a request whose reading is interrupted, by a deadline that
// is over. Net/http takes its client for gone then.
type interrupted struct {
	*httptest.ResponseRecorder
	gone context.CancelFunc
	over chan struct{}
}

func (i *interrupted) SetReadDeadline(at time.Time) error {
	if at.Unix() == 1 {
		i.gone()
		close(i.over)
	}
	return nil
}

// Read waits for the deadline.
func (i *interrupted) Read([]byte) (int, error) {
	<-i.over
	return 0, os.ErrDeadlineExceeded
}

// A client that asks then is told to ask again.
func TestServeWhileStopping(t *testing.T) {
	s, _ := newServer(t)
	stopped, stop := context.WithCancel(t.Context())
	s.Open(stopped)
	stop()
	ctx, gone := context.WithCancel(context.WithValue(t.Context(), peerKey{}, &unix.Ucred{Uid: uint32(os.Getuid())}))
	defer gone()
	c := &interrupted{httptest.NewRecorder(), gone, make(chan struct{})}
	s.serveOne(c, httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/"+api.VerbFind, c), nil)
	if c.Code != statusOf(api.CodeTryAgain) {
		t.Errorf("the answer is %d; want %d", c.Code, statusOf(api.CodeTryAgain))
	}
}
