package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/user"
)

// ofDaemon are the hooks that execd calls for itself, which a hook server may answer. The
// others run as the user of a job.
var ofDaemon = []Name{FetchWork, ReplyFetch, EvictClaim, RenewClaim, ReportWork}

// Rights returns warnings about hooks that could not be run where execd is root: the
// account of execd's own hooks does not exist, which is said once, or the user that a
// hook runs as cannot execute the program. Problems has the programs that must not be run.
func (t *Table) Rights(ctx context.Context, users asuser.Users) []knob.Problem {
	var list []knob.Problem
	warn := func(h *Hook, text string) {
		k := t.knobs.Get(knobName(h.Keyword, h.Name))
		list = append(list, knob.Problem{File: k.File, Line: k.Line, Text: knobName(h.Keyword, h.Name) + ": " + text, Warning: true})
	}
	account, err := users.ByName(ctx, asuser.Account)
	told := false
	for _, keyword := range t.Keywords() {
		for _, n := range append(slices.Clone(Names), Server) {
			h := t.hooks[keyword][n]
			if n == Server {
				h = t.servers[keyword]
			}
			switch {
			case h == nil || t.broken[h] || h.Served:
			case n != Server && !slices.Contains(ofDaemon, n):
				if why := closed(h.Path, nil); why != "" {
					warn(h, fmt.Sprintf("%s: %s keeps the users of jobs from running it", shown(h.Path), why))
				}
			case errors.Is(err, user.ErrUnknown):
				if !told {
					told = true
					warn(h, noAccount(asuser.Account).Error()+": none of them is called")
				}
			case err == nil:
				if why := closed(h.Path, account); why != "" {
					warn(h, fmt.Sprintf("%s: %s keeps user %s from running it", shown(h.Path), why, account.Name))
				}
			}
		}
	}
	return list
}

// noAccount is the error of a host that lacks the account of execd's own hooks.
func noAccount(name string) error {
	return fmt.Errorf("this host has no account %q, as which hooks of execd run", name)
}

// The permissions of one class of users, in a mode.
const (
	mayRead = 0o4
	mayRun  = 0o1
)

// closed says what keeps a user from running a program; empty: nothing. A nil user is
// any user who is neither its owner nor in its group. It ignores access control lists.
func closed(path string, u *user.User) string {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "" // the error comes when it is run
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if mode, ok := permits(dir, u, mayRun); !ok {
			return fmt.Sprintf("mode %04o of %s", mode, shown(dir))
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	need := os.FileMode(mayRun)
	if isScript(path) { // the interpreter has to read it
		need |= mayRead
	}
	if mode, ok := permits(path, u, need); !ok {
		return fmt.Sprintf("its mode %04o", mode)
	}
	return ""
}

// permits reports whether the mode of a file permits something to a user, and returns
// the mode.
func permits(path string, u *user.User, need os.FileMode) (mode os.FileMode, ok bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, true
	}
	mode = info.Mode().Perm()
	class := mode
	if st, known := info.Sys().(*syscall.Stat_t); known && u != nil {
		switch gid := int(st.Gid); {
		case int(st.Uid) == u.UID:
			class = mode >> 6
		case gid == u.GID || slices.Contains(u.Groups, gid):
			class = mode >> 3
		}
	}
	return mode, class&need == need
}

// isScript reports whether a program begins with #!.
func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [2]byte
	_, err = io.ReadFull(f, head[:])
	return err == nil && string(head[:]) == "#!"
}
