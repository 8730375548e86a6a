package hook

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/user"
)

// Runner runs hooks, any number at once. Its fields must not change once it is in use.
type Runner struct {
	Starter    *asuser.Starter
	Privileged bool // root mode: hooks run as Account or as users of jobs, and never as root
	Users      asuser.Users
	Account    string   // of hooks of the daemon in root mode; "": asuser.Account
	Host       string   // for HOSTNAME
	Variables  []string // further ones of hooks of the daemon
	Log        *slog.Logger

	Spool string // of the execd, by which hook servers of a dead one are known

	parents parents // idle parents
	servers servers

	mu      sync.Mutex
	stopped bool                                // guarded by mu; no hook is begun any more
	runs    map[*context.CancelCauseFunc]string // guarded by mu; what ends each running hook, and its label
	quiet   chan struct{}                       // guarded by mu; closed when the last of runs has ended; nil: nobody waits
}

// ErrStopped is matched by the Err of a hook that was ended, or not begun, because
// execd stops.
var ErrStopped = errors.New("execd stops")

// A Call is one run of a hook.
type Call struct {
	Hook  *Hook
	As    *user.User // whose rights it has; nil: the daemon's account, or in user mode the user's own
	Stdin []byte
	Args  []string // before Hook.Args
	Dir   string   // absolute; "": /
	Env   []string // all of it; nil: BaseEnvironment
	// Group is the directory of a control group of version 2 in which the hook and its
	// parent are born; "": that of helpers. For a job it is the leaf of the procedures,
	// where the job's limits of memory and processors hold, and which the end of the job
	// does not kill.
	Group string
	Label string // for the log: "job 3.1", "slot 2"
	// Behind is a variable in the environment of hooks that a dead execd has begun.
	// Their parents end them, and this hook begins when they have ended. "": there were
	// none.
	Behind string

	// talk speaks with a hook server over its standard streams, until its output has ended;
	// nil: it is none.
	talk func(stdin, stdout *os.File)
}

// Run runs a hook, waits for its end, and leaves no process of it. The end of ctx ends
// the hook.
func (r *Runner) Run(ctx context.Context, c Call) Result {
	res := Result{Keyword: c.Hook.Keyword, Hook: c.Hook.Name, Started: time.Now(), Status: noStatus}
	ctx, over := r.begin(ctx, c.Label)
	defer over()
	do := r.run
	if c.Hook.Served {
		do = r.ask
	}
	if err := do(ctx, &c, &res); err != nil {
		res.Err = err
	}
	res.Took = time.Since(res.Started)
	return res
}

// begin notes a running hook, and over its end. The context that it returns ends with
// Stop as well.
func (r *Runner) begin(ctx context.Context, label string) (_ context.Context, over func()) {
	ctx, end := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		end(ErrStopped)
		return ctx, func() {}
	}
	if r.runs == nil {
		r.runs = map[*context.CancelCauseFunc]string{}
	}
	r.runs[&end] = label
	return ctx, func() {
		end(nil)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.runs, &end)
		if len(r.runs) == 0 && r.quiet != nil {
			close(r.quiet)
			r.quiet = nil
		}
	}
}

// Stop ends all hooks, and begins none any more. It waits for their end, up to a limit,
// and returns the labels of those that have not ended: their parents see the end of
// execd, and go on ending them. Idle parents end at once, and are waited for as well,
// since their control group can only be removed after them.
func (r *Runner) Stop(limit time.Duration) (left []string) {
	dismissed := r.parents.close()
	quiet := make(chan struct{})
	r.mu.Lock()
	r.stopped = true
	for end := range r.runs {
		(*end)(ErrStopped)
	}
	if r.quiet = quiet; len(r.runs) == 0 {
		close(quiet)
		r.quiet = nil
	}
	r.mu.Unlock()
	over, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	await := func(gone <-chan struct{}) {
		select {
		case <-gone:
		case <-over.Done():
		}
	}
	await(quiet)
	for _, p := range dismissed {
		await(p.ended)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Values(r.runs))
}

func (r *Runner) run(ctx context.Context, c *Call, res *Result) error {
	if ctx.Err() != nil {
		return fmt.Errorf("cannot run hook %q: %w", c.Hook.Path, context.Cause(ctx))
	}
	if !c.Hook.Own {
		if err := c.Hook.Check(); err != nil {
			return err
		}
	}
	u, err := r.account(ctx, c.As)
	if err != nil {
		return fmt.Errorf("cannot run hook %q: %w", c.Hook.Path, err)
	}
	env := c.Env
	if env == nil {
		env = append(BaseEnvironment(u, r.Host), r.Variables...)
	}
	mark, err := newMark()
	if err != nil {
		return fmt.Errorf("cannot run hook %q: %w", c.Hook.Path, err)
	}
	before := marked(c.Behind)
	if c.talk != nil {
		// Anybody may put the variable, which is always the same, into the environment of
		// something that does not end.
		before = ownedBy(u.UID, before)
		env = append(slices.Clip(env), c.Behind)
	}
	if c.Behind != "" && !awaitGone(ctx, before, behindLimit) {
		if ctx.Err() != nil {
			return fmt.Errorf("cannot run hook %q: %w", c.Hook.Path, context.Cause(ctx))
		}
		n := kill(before) // their parents have not
		r.Log.Warn(fmt.Sprintf("%s: hook %s: that of an earlier execd did not end: processes=%d killed", c.Label, knobName(c.Hook.Keyword, c.Hook.Name), n))
	}
	p, err := r.start(ctx, u, c, append(slices.Clip(env), mark))
	if err != nil {
		return fmt.Errorf("cannot run hook %q: %w", c.Hook.Path, err)
	}
	keep, why := p.wait(ctx, c.Hook.Limit)
	if keep {
		r.parents.put(rights(u), p.parent)
	}
	p.judge(why, res)
	if len(p.report.Left) > 0 {
		// A program with the set-user-id bit has given them the rights of another user.
		r.Log.Warn(fmt.Sprintf("%s: hook %s: its user cannot kill what it has left: pids=%v", c.Label, knobName(c.Hook.Keyword, c.Hook.Name), p.report.Left))
	}
	if len(p.report.Left) > 0 || !p.report.Ended && p.report.Failed == "" {
		// The parent is dead, or could not end all of them.
		if n := killMarked(mark); n > 0 {
			r.Log.Warn(fmt.Sprintf("%s: hook %s: had lost its parent: processes=%d killed", c.Label, knobName(c.Hook.Keyword, c.Hook.Name), n))
		}
	}
	if errors.Is(res.Err, errNoStart) {
		res.Err = fmt.Errorf("cannot run hook %q as user %s: %s", c.Hook.Path, u.Name, p.report.Failed)
	}
	return res.Err
}

// behindLimit bounds the wait for hooks of a dead execd. It is longer than their
// parents give them to end.
const behindLimit = 20 * time.Second

// account returns the user that a hook runs as.
func (r *Runner) account(ctx context.Context, as *user.User) (*user.User, error) {
	switch {
	case as != nil:
	case r.Privileged:
		account := cmp.Or(r.Account, asuser.Account)
		u, err := r.Users.ByName(ctx, account)
		if errors.Is(err, user.ErrUnknown) {
			return nil, noAccount(account)
		}
		if err != nil {
			return nil, err
		}
		as = u
	default:
		u, err := asuser.Self(ctx, r.Users)
		if err != nil {
			return nil, err
		}
		as = u
	}
	if r.Privileged && as.UID == 0 {
		return nil, errors.New("hooks do not run as root")
	}
	return as, nil
}

// markName begins the variable by which the processes of a hook are found when its
// parent has died.
const markName = "PADDOCK_HOOK_RUN="

func newMark() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	return markName + hex.EncodeToString(b[:]), nil
}
