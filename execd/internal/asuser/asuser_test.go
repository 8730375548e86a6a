package asuser

import (
	"context"
	"errors"
	"os"
	"testing"

	"paddock/execd/internal/user"
)

// host has accounts.
type host map[string]*user.User

func (h host) ByName(_ context.Context, name string) (*user.User, error) {
	if name == "down" || h["down"] != nil {
		return nil, errors.New("no answer")
	}
	if u := h[name]; u != nil {
		return u, nil
	}
	return nil, user.ErrUnknown
}

func (h host) ByID(context.Context, int) (*user.User, error) { return nil, user.ErrUnknown }

// What execd runs for itself is no user's and never root's.
func TestService(t *testing.T) {
	if os.Geteuid() != 0 {
		if u, err := Service(t.Context(), host{}); err != nil || u.UID != os.Getuid() || u.GID != os.Getgid() {
			t.Errorf("%+v, %v; want who runs this", u, err)
		}
		return
	}
	ours, nobody := &user.User{Name: "paddock", UID: 990, GID: 991}, &user.User{Name: "nobody", UID: 65534, GID: 65534}
	for _, tt := range []struct {
		name string
		host host
		want *user.User // nil: an error
	}{
		{"both", host{"paddock": ours, "nobody": nobody}, ours},
		{"no account of ours", host{"nobody": nobody}, nobody},
		{"neither", host{}, nil},
		{"root by another name", host{"paddock": {UID: 0, GID: 1}, "nobody": nobody}, nil},
		{"root's group", host{"paddock": {UID: 990, GID: 0}, "nobody": nobody}, nil},
		{"who knows names is down", host{"paddock": ours, "down": nobody}, nil},
	} {
		if u, err := Service(t.Context(), tt.host); u != tt.want || (err == nil) != (tt.want != nil) {
			t.Errorf("%s: %+v, %v", tt.name, u, err)
		}
	}
}
