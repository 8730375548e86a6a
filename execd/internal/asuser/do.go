package asuser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"paddock/execd/internal/user"
)

// timeout bounds what is done as a user: a file system that hangs must not hold up the
// clean-up of others for ever.
const timeout = 10 * time.Minute

// MaxWrite is the most that AppendAs and WriteAs write at once, in bytes.
const MaxWrite = 1 << 20

// Tail returns the last bytes, at most n, of a file of a user's choice, opened with
// that user's rights alone. The end of ctx ends the wait.
func (s *Starter) Tail(ctx context.Context, u *user.User, path string, n int) ([]byte, error) {
	var out bytes.Buffer
	err := s.inTurn(ctx, u.UID, func(ctx context.Context) error {
		return s.do(ctx, nil, &limited{&out, n}, u.UID, u.GID, GroupList(u), "-tail", strconv.Itoa(n), path)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the end of %q: %w", path, err)
	}
	return out.Bytes(), nil
}

// AppendAs adds data to the end of a regular file of a user's choice, in one write
// under a lock, synced, with that user's rights alone. It makes the file if there is
// none. Data that do not fit on the disk leave nothing behind. The end of ctx ends the
// wait for a file system that hangs; the data may then be written or not.
func (s *Starter) AppendAs(ctx context.Context, u *user.User, path string, data []byte) error {
	return s.write(ctx, u, "-append", path, data)
}

// WriteAs replaces a file of a user's choice by data, whole or not at all and
// synced, with that user's rights alone. A link is replaced, not followed.
func (s *Starter) WriteAs(ctx context.Context, u *user.User, path string, data []byte) error {
	return s.write(ctx, u, "-write", path, data)
}

func (s *Starter) write(ctx context.Context, u *user.User, how, path string, data []byte) error {
	if len(data) > MaxWrite {
		return fmt.Errorf("cannot write %q: more than %d bytes", path, MaxWrite)
	}
	err := s.inTurn(ctx, u.UID, func(ctx context.Context) error {
		return s.do(ctx, bytes.NewReader(data), nil, u.UID, u.GID, GroupList(u), how, path)
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("cannot write %q: %w", path, context.Cause(ctx))
	}
	return err
}

// Empty removes the contents of a directory of a user.
func (s *Starter) Empty(uid, gid int, groups, path string) error {
	return s.inTurn(context.Background(), uid, func(ctx context.Context) error {
		return s.do(ctx, nil, nil, uid, gid, groups, "-remove", path)
	})
}

// EmptyClosed removes what a user has put into a directory that only root can enter.
// The user chose how much there is, so that it waits for his turn; the shepherd removes
// it, which follows no links and is not stopped by depth.
func (s *Starter) EmptyClosed(uid int, path string) error {
	return s.inTurn(context.Background(), uid, func(ctx context.Context) error {
		return s.do(ctx, nil, nil, 0, 0, "0", "-remove", path)
	})
}

// limited passes on n bytes and drops the rest.
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

// inTurn does something that a user may hold up, when there is a place for him.
func (s *Starter) inTurn(ctx context.Context, uid int, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	done, err := s.turns.take(ctx, uid)
	if err != nil {
		return fmt.Errorf("cannot do anything for uid %d: %w", uid, err)
	}
	defer done()
	return do(ctx)
}

// do has the starter do something with a user's rights alone. Its output goes to out,
// nil: nowhere; its input is in, nil: none.
func (s *Starter) do(ctx context.Context, in io.Reader, out io.Writer, uid, gid int, groups string, words ...string) error {
	cmd := s.Command(ctx, uid, gid, groups, words...)
	var stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &stderr
	cmd.WaitDelay = time.Second
	if err := s.Start(cmd); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		if out == nil && errors.Is(err, exec.ErrWaitDelay) {
			err = nil // it was done, even if the wait was cut short
		}
		ended <- err
	}()
	gone, err := outlived(ctx, ended)
	if err != nil && gone {
		return failed(err, stderr.String())
	}
	return err
}

// lastWait is how long to wait for a process that was killed. A file system that hangs,
// and users can have such, may keep it for ever.
const lastWait = 5 * time.Second

// outlived waits for the end of a process, but not much longer than ctx: one that does
// not die is left alone, and reaped whenever it ends. gone reports whether it has
// ended.
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
