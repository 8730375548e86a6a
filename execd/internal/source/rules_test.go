package source

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/execd/internal/conf"
	"paddock/execd/internal/user"
)

// directory has the users that the name services find by some name.
type directory map[string]user.User

func (d directory) ByName(_ context.Context, name string) (*user.User, error) {
	u, ok := d[name]
	if !ok {
		return nil, user.ErrUnknown
	}
	return &u, nil
}

func (directory) ByID(context.Context, int) (*user.User, error) {
	return nil, errors.New("nobody is asked for by number")
}

// As whom work of other hosts runs, which may be hostile.
func TestRemoteOwner(t *testing.T) {
	users := directory{
		"root": {Name: "root"}, "toor": {Name: "toor"}, "paddock": {Name: "paddock", UID: 5000}, "postgres": {Name: "postgres", UID: 110},
		"daemon": {Name: "daemon", UID: 1}, "anna": {Name: "anna", UID: 1000}, "ANNA": {Name: "anna", UID: 1000}, "anna@example.org": {Name: "anna", UID: 1000},
	}
	for _, test := range []struct {
		owners, name string
		minUID       int
		want         string // of the error; empty: he may
	}{
		{"", "anna", 100, ""},
		{"", "anna", 1001, "at least 1001 is needed"},
		{"", "ANNA", 100, "is user anna"},
		{"", "anna@example.org", 100, "is user anna"},
		{"", "root", 0, "is root"},
		{"", "toor", 0, "is root"},
		{"", "paddock", 0, "account of hooks"},
		{"", "postgres", 100, "uid of a service"},
		{"", "daemon", 100, "at least 100 is needed"},
		{"", "nobody-has-it", 100, "unknown user"},
		{"*", "anna", 100, ""},
		{"*", "postgres", 100, ""},
		{"*", "daemon", 100, "at least 100 is needed"},
		{"*", "root", 0, "is root"},
		{"root, toor, paddock", "root", 0, "is root"},
		{"root, toor, paddock", "toor", 0, "is root"},
		{"root, toor, paddock", "paddock", 0, "account of hooks"},
		{"b*, anna", "anna", 100, ""},
		{"b*", "anna", 100, "none of REMOTE_OWNERS"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "hooks.conf"), []byte("REMOTE_OWNERS = "+test.owners+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := conf.Load(conf.Options{Dir: dir, Tmpdir: dir, Host: "h"})
		if err != nil {
			t.Fatal(err)
		}
		u, err := RemoteOwner(t.Context(), users, test.name, c.Knobs, test.minUID)
		switch {
		case test.want == "" && (err != nil || u.Name != test.name):
			t.Errorf("%q, %s: %+v, %v", test.owners, test.name, u, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%q, %s: %+v, %v; want %s", test.owners, test.name, u, err, test.want)
		}
	}
}
