package launch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/user"
)

// asUserTimeout bounds what is done as a user: a file system that hangs must
// not hold up the clean-up of others for ever.
const asUserTimeout = 10 * time.Minute

// Tail returns the last bytes of a file of a user's choice, at most n of them,
// opened with that user's rights alone. The end of ctx ends the wait for it.
func (l *Launcher) Tail(ctx context.Context, u *user.User, path string, n int) ([]byte, error) {
	var out bytes.Buffer
	err := l.asUser(ctx, &limited{&out, n}, u.UID, u.GID, asuser.GroupList(u), "-tail", strconv.Itoa(n), path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the end of %q: %w", path, err)
	}
	return out.Bytes(), nil
}

// limited passes on n bytes and swallows the rest.
type limited struct {
	to io.Writer
	n  int
}

func (l *limited) Write(p []byte) (int, error) {
	kept := p[:min(len(p), l.n)]
	l.n -= len(kept)
	if _, err := l.to.Write(kept); err != nil {
		return 0, err
	}
	return len(p), nil
}

// asUser runs the shepherd's starter stage for something that is to be done
// with a user's rights and no others. What it prints goes to out; nil: nowhere.
func (l *Launcher) asUser(ctx context.Context, out io.Writer, uid, gid int, groups string, args ...string) error {
	return l.asUserWith(ctx, nil, out, uid, gid, groups, args...)
}

// asUserWith is asUser with a standard input; nil: nothing.
func (l *Launcher) asUserWith(ctx context.Context, in io.Reader, out io.Writer, uid, gid int, groups string, args ...string) error {
	return l.inTurn(ctx, uid, func(ctx context.Context) error { return l.as(ctx, in, out, uid, gid, groups, args...) })
}

// inTurn does what a user may hold up, when there is a place for him.
func (l *Launcher) inTurn(ctx context.Context, uid int, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, asUserTimeout)
	defer cancel()
	done, err := l.turns.take(ctx, uid)
	if err != nil {
		return fmt.Errorf("cannot do anything for uid %d: %w", uid, err)
	}
	defer done()
	return do(ctx)
}

// as is asUserWith, whoever else has something done.
func (l *Launcher) as(ctx context.Context, in io.Reader, out io.Writer, uid, gid int, groups string, args ...string) error {
	starter := l.Starter()
	cmd := starter.Command(ctx, uid, gid, groups, args...)
	var stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &stderr
	cmd.WaitDelay = time.Second
	if err := starter.Start(cmd); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		if out == nil && errors.Is(err, exec.ErrWaitDelay) {
			err = nil // it has done it, whatever somebody would still say of it
		}
		ended <- err
	}()
	gone, err := outlived(ctx, ended)
	if err != nil && gone {
		return asuser.Failed(err, stderr.String())
	}
	return err
}

// lastWait is how long a process is waited for that was killed. A file system that
// hangs may keep it for ever, and users can have such file systems.
const lastWait = 5 * time.Second

// outlived waits for the end of a process, but not much longer than ctx: one that
// does not die is left alone, and reaped whenever it ends. gone says that it has.
func outlived(ctx context.Context, ended <-chan error) (gone bool, err error) {
	select {
	case err := <-ended:
		return true, err
	case <-ctx.Done():
	}
	timer := time.NewTimer(lastWait)
	defer timer.Stop()
	select {
	case err := <-ended:
		return true, err
	case <-timer.C:
		return false, fmt.Errorf("%w, and it does not die: its file system hangs", context.Cause(ctx))
	}
}

// Starter returns what starts whatever is done with a user's rights outside of the
// runs: by our own shepherd, also when another is configured to run jobs.
func (l *Launcher) Starter() *asuser.Starter {
	return &asuser.Starter{Shepherd: cmp.Or(l.OwnShepherd, l.Shepherd), Group: l.Groups.OpenHelpers}
}
