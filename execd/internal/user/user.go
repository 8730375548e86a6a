// Package user looks up users and their groups in the name services of the host, by
// getent(1) and id(1): execd is built without cgo, and the standard library alone sees
// nothing but /etc/passwd. Answers are kept for a short time, since every submission
// and every start asks. Only execd's packages import it.
package user

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnknown is matched when the name services answered that there is no such
// user.
var ErrUnknown = errors.New("unknown user")

// User is one entry of the passwd database with its groups.
type User struct {
	Name   string
	UID    int
	GID    int
	Group  string // name of GID, or its digits where it has no name
	Groups []int  // all of the user's groups, GID included
	// GroupNames are the names of those of Groups that have one.
	GroupNames []string
	Home       string
	Shell      string
}

// Directory answers from the name services. The zero value is ready.
type Directory struct {
	// Keep is how long an answer is kept. 0: a minute.
	Keep time.Duration
	// Path lists the directories in which getent and id are looked for, separated by
	// colons. Empty: the system's and, where execd is not root, those of PATH after
	// them. Root runs nothing out of the PATH of whoever started execd.
	Path string

	mu    sync.Mutex
	known map[string]answer    // guarded by mu; by key of lookup
	asked map[string]*question // guarded by mu; those under way
}

type answer struct {
	user  *User // nil: there is none
	until time.Time
}

// question is a lookup that is under way, for all who wait for its answer.
type question struct {
	done chan struct{} // closed when the other fields are set
	user *User
	err  error
}

// keepUnknown is how long it is remembered that there is no such user: he may be made
// at any time.
const keepUnknown = 5 * time.Second

// timeout bounds one lookup: a directory server that is down must not hold up the jobs
// of other users for long.
const timeout = 10 * time.Second

// ByID returns the user with a number.
func (d *Directory) ByID(ctx context.Context, uid int) (*User, error) {
	return d.lookup(ctx, strconv.Itoa(uid))
}

// Caller is ByID for callers that need an answer in any case. If the name services fail
// or do not answer within a second, it returns their last answer, if that is at most an
// hour old. sure is false for such an answer: the number or the name may belong to
// another user by now.
func (d *Directory) Caller(ctx context.Context, uid int) (u *User, sure bool, err error) {
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	u, err = d.ByID(soon, uid)
	if err == nil || errors.Is(err, ErrUnknown) {
		return u, true, err
	}
	d.mu.Lock()
	a := d.known[strconv.Itoa(uid)]
	d.mu.Unlock()
	if a.user != nil && time.Since(a.until) < remembered {
		return a.user, false, nil
	}
	u, err = d.ByID(ctx, uid)
	return u, true, err
}

// patience is how long Caller waits for the name services where it has an older answer,
// and remembered how old that may be.
const (
	patience   = time.Second
	remembered = time.Hour
)

// ByName returns the user with a name.
func (d *Directory) ByName(ctx context.Context, name string) (*User, error) {
	if name == "" || strings.ContainsAny(name, ":/\n \t") || name[0] == '-' || isDigits(name) {
		return nil, fmt.Errorf("%w %q", ErrUnknown, name)
	}
	return d.lookup(ctx, name)
}

// lookup returns what is known, or asks. Callers that ask for the same key at the same
// time share one lookup.
func (d *Directory) lookup(ctx context.Context, key string) (*User, error) {
	d.mu.Lock()
	a, ok := d.known[key]
	if ok && time.Now().Before(a.until) {
		d.mu.Unlock()
		if a.user == nil {
			return nil, fmt.Errorf("%w %q", ErrUnknown, key)
		}
		return a.user, nil
	}
	q := d.asked[key]
	if q == nil {
		q = &question{done: make(chan struct{})}
		if d.asked == nil {
			d.asked = map[string]*question{}
		}
		d.asked[key] = q
		go d.answer(key, q)
	}
	d.mu.Unlock()
	select {
	case <-q.done:
		return q.user, q.err
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot look up user %q: %w", key, ctx.Err())
	}
}

// answer asks the name services for all callers of a lookup.
func (d *Directory) answer(key string, q *question) {
	q.user, q.err = d.ask(context.Background(), key)
	keep := d.Keep
	if keep == 0 {
		keep = time.Minute
	}
	if q.err != nil {
		keep = min(keep, keepUnknown)
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	defer close(q.done)
	delete(d.asked, key)
	if d.known == nil {
		d.known = map[string]answer{}
	}
	for k, a := range d.known { // or the map would grow for ever
		if a.user == nil && now.After(a.until) || now.After(a.until.Add(remembered)) {
			delete(d.known, k)
		}
	}
	if q.err == nil || errors.Is(q.err, ErrUnknown) && isDigits(key) {
		d.known[key] = answer{q.user, now.Add(keep)}
	}
}

// ask asks the name services.
func (d *Directory) ask(ctx context.Context, key string) (*User, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	line, err := d.run(ctx, "getent", "passwd", key)
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 2 { // getent(1): key not found
			return nil, fmt.Errorf("%w %q", ErrUnknown, key)
		}
		return nil, fmt.Errorf("cannot look up user %q: %w", key, err)
	}
	u, err := parsePasswd(line)
	if err != nil {
		return nil, fmt.Errorf("cannot look up user %q: %w", key, err)
	}
	groups, err := d.run(ctx, "id", "-G", "--", u.Name)
	if err != nil {
		return nil, fmt.Errorf("cannot look up groups of user %q: %w", u.Name, err)
	}
	for word := range strings.FieldsSeq(groups) {
		gid, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("cannot look up groups of user %q: id printed %q", u.Name, groups)
		}
		u.Groups = append(u.Groups, gid)
	}
	// Groups without a name make getent fail, after it has printed the others.
	lines, _ := d.run(ctx, "getent", append([]string{"group", strconv.Itoa(u.GID)}, strings.Fields(groups)...)...)
	u.Group, u.GroupNames = groupNames(lines, u.GID)
	return u, nil
}

// groupNames returns the name of the group gid, its digits where it has no name, and
// the names of all groups in lines of group(5).
func groupNames(lines string, gid int) (group string, names []string) {
	group = strconv.Itoa(gid)
	for line := range strings.SplitSeq(lines, "\n") {
		f := strings.Split(line, ":")
		if len(f) < 3 || f[0] == "" {
			continue
		}
		if f[2] == strconv.Itoa(gid) {
			group = f[0]
		}
		if !slices.Contains(names, f[0]) {
			names = append(names, f[0])
		}
	}
	return group, names
}

// waitDelay is how long output is read after the end of the program. On a busy host, a
// program that another thread is just starting holds the pipe for more than a second.
const waitDelay = 5 * time.Second

// systemPath has the directories of the system's own programs.
const systemPath = "/usr/sbin:/usr/bin:/sbin:/bin"

func (d *Directory) program(name string) (string, error) {
	path := d.Path
	if path == "" {
		path = systemPath
		if os.Geteuid() != 0 {
			path += ":" + os.Getenv("PATH")
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if file := filepath.Join(dir, name); unix.Access(file, unix.X_OK) == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("cannot find %s in %s", name, path)
}

func (d *Directory) run(ctx context.Context, name string, args ...string) (string, error) {
	file, err := d.program(name)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, file, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.WaitDelay = waitDelay
	out, err := cmd.Output()
	return strings.TrimSuffix(string(out), "\n"), err
}

// parsePasswd reads a line of passwd(5).
func parsePasswd(line string) (*User, error) {
	f := strings.Split(line, ":")
	if len(f) != 7 || f[0] == "" {
		return nil, fmt.Errorf("not a line of passwd: %q", line)
	}
	uid, err1 := strconv.Atoi(f[2])
	gid, err2 := strconv.Atoi(f[3])
	if err1 != nil || err2 != nil || uid < 0 || gid < 0 {
		return nil, fmt.Errorf("not a line of passwd: %q", line)
	}
	u := &User{Name: f[0], UID: uid, GID: gid, Home: f[5], Shell: f[6]}
	if u.Home == "" {
		u.Home = "/"
	}
	if u.Shell == "" { // passwd(5): empty means /bin/sh
		u.Shell = "/bin/sh"
	}
	return u, nil
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }
