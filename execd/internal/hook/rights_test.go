package hook

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/user"
)

// accounts are all that the host has.
type accounts []*user.User

func (a accounts) ByName(_ context.Context, name string) (*user.User, error) {
	for _, u := range a {
		if u.Name == name {
			return u, nil
		}
	}
	return nil, user.ErrUnknown
}

func (a accounts) ByID(context.Context, int) (*user.User, error) { return nil, user.ErrUnknown }

// down is a directory that does not answer.
type down struct{ accounts }

func (down) ByName(context.Context, string) (*user.User, error) {
	return nil, errors.New("no answer")
}

// What keeps hooks from being run is said before anybody misses them: one line for
// the account that is missing, and one for each program that cannot be reached.
func TestRights(t *testing.T) {
	if why := closed(os.TempDir(), nil); why != "" {
		t.Skipf("%s: nobody else gets to the programs of this test", why)
	}
	other := &user.User{Name: asuser.Account, UID: 54741, GID: 54742, Groups: []int{54742}}
	all := "K_HOOK_FETCH_WORK = $(DIR)/fetch\nK_HOOK_REPLY_FETCH = $(DIR)/fetch\nK_HOOK_PREPARE_JOB = $(DIR)/prepare\n"
	for _, tt := range []struct {
		name           string
		text           string
		users          asuser.Users
		dir            os.FileMode
		fetch, prepare os.FileMode
		want           []string
	}{
		{"all is well", all, accounts{other}, 0o755, 0o755, 0o755, nil},
		{"no account", all, accounts{}, 0o755, 0o755, 0o755, []string{"hooks.conf:2: K_HOOK_FETCH_WORK: this host has no account \"paddock\", as which hooks of execd run: none of them is called"}},
		{"no account, and no hook that needs it", "K_HOOK_JOB_EXIT = $(DIR)/prepare\n", accounts{}, 0o755, 0o755, 0o755, nil},
		{"nobody knows", all, down{}, 0o755, 0o755, 0o755, nil},
		{"a closed directory", all, accounts{other}, 0o700, 0o755, 0o755, []string{
			"hooks.conf:2: K_HOOK_FETCH_WORK: DIR/fetch: mode 0700 of DIR keeps user paddock from running it",
			"hooks.conf:3: K_HOOK_REPLY_FETCH: DIR/fetch: mode 0700 of DIR keeps user paddock from running it",
			"hooks.conf:4: K_HOOK_PREPARE_JOB: DIR/prepare: mode 0700 of DIR keeps the users of jobs from running it",
		}},
		{"the owner's alone", all, accounts{other}, 0o755, 0o755, 0o700, []string{
			"hooks.conf:4: K_HOOK_PREPARE_JOB: DIR/prepare: its mode 0700 keeps the users of jobs from running it",
		}},
		{"a script that nobody else reads", all, accounts{other}, 0o755, 0o711, 0o755, []string{
			"hooks.conf:2: K_HOOK_FETCH_WORK: DIR/fetch: its mode 0711 keeps user paddock from running it",
			"hooks.conf:3: K_HOOK_REPLY_FETCH: DIR/fetch: its mode 0711 keeps user paddock from running it",
		}},
		{
			"his own", all, accounts{{Name: asuser.Account, UID: os.Getuid(), GID: os.Getgid()}}, 0o755, 0o700, 0o755, nil,
		},
		{
			"his group's", all, accounts{{Name: asuser.Account, UID: 54741, GID: 54742, Groups: []int{os.Getgid()}}}, 0o755, 0o750, 0o755, nil,
		},
	} {
		s := newSite(t)
		if err := os.Chmod(filepath.Dir(s.dir), 0o755); err != nil {
			t.Fatal(err)
		}
		s.program("fetch", tt.fetch)
		s.program("prepare", tt.prepare)
		table := s.table(tt.text)
		if err := os.Chmod(s.dir, tt.dir); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range table.Rights(t.Context(), tt.users) {
			if !p.Warning {
				t.Errorf("%s: %v is no warning", tt.name, p)
			}
			got = append(got, strings.ReplaceAll(p.String(), s.dir, "DIR"))
		}
		if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}
