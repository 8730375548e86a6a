// Package asuser is the one way by which execd does something with the rights of
// another user, beside the jobs: it runs hooks, mailers and load sensors, reads, writes
// and removes files of users. Each begins as the shepherd's starter, which gives up
// root's rights and what execd has inherited, and then does one thing or becomes one
// program. Packages of execd that touch what belongs to users use it; it imports user
// and spool.
package asuser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"paddock/execd/internal/user"
	"paddock/spool"
)

// Starter runs the shepherd's starter.
type Starter struct {
	Shepherd string // path of the shepherd's program
	// Group opens the control group in which processes are born, so that none is ever in
	// execd's own; nil, or no file: they are in execd's.
	Group func() (*os.File, error)

	turns turns // of the methods that wait for the end
}

// ErrRefused is matched when something cannot be done as a user, and a second try would
// fail as well.
var ErrRefused = errors.New("refused")

// exitRefused and exitLater are exit statuses of the starter, see shepherd(8).
const (
	exitRefused = 1
	exitLater   = 75
)

// failed returns the reason that a command of Command printed on its standard error,
// once it has ended with an error.
func failed(err error, stderr string) error {
	line, _, _ := strings.Cut(strings.TrimPrefix(stderr, "shepherd: "), "\n")
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case ok && exit.ExitCode() == exitRefused && line != "":
		return &refused{line}
	case ok && exit.ExitCode() == exitLater:
		return errors.New(line)
	}
	return fmt.Errorf("%w: %s", err, line)
}

type refused struct{ text string }

func (e *refused) Error() string        { return e.text }
func (e *refused) Is(target error) bool { return target == ErrRefused }

// Command returns a command that takes a user's rights and then does what the words
// say, see shepherd(8). The caller may change its environment and working directory,
// and starts it by Start. It leads a session, and the end of ctx kills its whole group.
func (s *Starter) Command(ctx context.Context, uid, gid int, groups string, words ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.Shepherd, append([]string{
		"-as-user", strconv.Itoa(uid), strconv.Itoa(gid), groups,
	}, words...)...)
	cmd.Env = spool.StartEnvironment
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // it was not waited for
	return cmd
}

// Program returns a command that becomes a program with a user's rights, for Start.
func (s *Starter) Program(ctx context.Context, u *user.User, path string, args ...string) *exec.Cmd {
	return s.Command(ctx, u.UID, u.GID, GroupList(u), append([]string{"-exec", path}, args...)...)
}

// Start starts a command that Command has made.
func (s *Starter) Start(cmd *exec.Cmd) error {
	if s.Group != nil {
		dir, err := s.Group()
		if err != nil {
			return err
		}
		if dir != nil {
			defer dir.Close()
			cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
		}
	}
	return cmd.Start()
}

// GroupList returns the groups of a user as the starter takes them.
func GroupList(u *user.User) string {
	if len(u.Groups) == 0 {
		return strconv.Itoa(u.GID)
	}
	groups := make([]string, len(u.Groups))
	for i, g := range u.Groups {
		groups[i] = strconv.Itoa(g)
	}
	return strings.Join(groups, ",")
}

// Account is the account of mailers and load sensors where execd is root.
const Account = "paddock"

// instead stands in where Account is missing. Other programs may run as nobody too, and
// meddle with ours; root is no choice.
const instead = "nobody"

// Users finds accounts; a *user.Directory does.
type Users interface {
	ByName(ctx context.Context, name string) (*user.User, error)
	ByID(ctx context.Context, uid int) (*user.User, error)
}

// Service returns the user that mailers and load sensors run as. No user of the host is
// to be able to stop, inspect or trace them: that is Account, or nobody where it is
// missing, and never root. In user mode it is the user who runs execd.
func Service(ctx context.Context, users Users) (*user.User, error) {
	if os.Geteuid() != 0 {
		return Self(ctx, users)
	}
	for _, name := range []string{Account, instead} {
		u, err := users.ByName(ctx, name)
		switch {
		case errors.Is(err, user.ErrUnknown):
		case err != nil:
			return nil, err
		case u.UID == 0 || u.GID == 0:
			return nil, fmt.Errorf("account %s is root", name)
		default:
			return u, nil
		}
	}
	return nil, fmt.Errorf("this host has neither an account %s nor %s", Account, instead)
}

// Self returns the user who runs execd.
func Self(ctx context.Context, users Users) (*user.User, error) {
	u, err := users.ByID(ctx, os.Getuid())
	if errors.Is(err, user.ErrUnknown) { // in a container, say
		return &user.User{Name: strconv.Itoa(os.Getuid()), UID: os.Getuid(), GID: os.Getgid(), Home: "/", Shell: "/bin/sh"}, nil
	}
	return u, err
}
