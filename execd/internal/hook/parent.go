package hook

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// parent is a shepherd that runs hooks, one at a time.
type parent struct {
	cmd    *exec.Cmd
	socket *os.File      // over which it gets them
	ended  chan struct{} // closed when it was reaped; then cmd has its status
	since  time.Time     // when it became idle
}

// newParent starts a parent of hooks of a user, in a control group if one is given.
func newParent(s *asuser.Starter, u *user.User, group string) (*parent, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make a socket: %w", err)
	}
	p := &parent{socket: os.NewFile(uintptr(pair[0]), "socket to a parent of hooks"), ended: make(chan struct{})}
	theirs := os.NewFile(uintptr(pair[1]), "socket of a parent of hooks")
	defer theirs.Close()
	if group != "" {
		s = &asuser.Starter{Shepherd: s.Shepherd, Group: func() (*os.File, error) {
			dir, err := os.OpenFile(group, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
			if err != nil {
				return nil, fmt.Errorf("cannot enter control group: %w", err)
			}
			return dir, nil
		}}
	}
	// A hook gets all through sockets, so that nothing of it affects the
	// shepherd.
	p.cmd = s.Command(context.Background(), u.UID, u.GID, asuser.GroupList(u), "-hook")
	p.cmd.ExtraFiles = []*os.File{theirs} // spool.HookSocket
	if err := s.Start(p.cmd); err != nil {
		p.socket.Close()
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // the report says how the hook ended
		close(p.ended)
	}()
	return p, nil
}

// rights identifies the rights that a parent has.
func rights(u *user.User) string { return fmt.Sprintf("%d %d %s", u.UID, u.GID, asuser.GroupList(u)) }

// hand passes the descriptors of a call.
func (p *parent) hand(files [spool.HookFiles]*os.File) error {
	var fds [spool.HookFiles]int
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	// The socket always has room, since a parent gets one call at a time.
	if err := unix.Sendmsg(int(p.socket.Fd()), []byte{0}, unix.UnixRights(fds[:]...), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT); err != nil {
		return fmt.Errorf("cannot reach the parent of hooks: %w", err)
	}
	return nil
}

// dismiss has the parent end after the hook that it runs, if any.
func (p *parent) dismiss() { p.socket.Close() }

// kill kills the parent, and reports whether it has ended.
func (p *parent) kill() bool {
	p.dismiss()
	_ = p.cmd.Process.Kill()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
		return false
	}
}

const (
	// keepParents bounds the idle parents. Each takes 3 MB, and hooks that follow each
	// other closely, as those of fetched work do, rarely need more at a time.
	keepParents = 8
	// keepTime is how long an idle parent is kept.
	keepTime = time.Minute
)

// parents is the stack of idle parents. The one that came last is used first, so that
// those that are not needed grow old.
type parents struct {
	keep time.Duration // how long; 0: keepTime

	mu     sync.Mutex  // not taken with that of the Runner
	closed bool        // guarded by mu; none is kept any more
	ids    string      // guarded by mu; the rights that they have
	idle   []*parent   // guarded by mu; the one idle for longest first
	timer  *time.Timer // guarded by mu; nil: none is set
}

// take returns an idle parent with these rights; nil: there is none. It dismisses those
// with other rights, since the account of hooks has changed.
func (ps *parents) take(ids string) *parent {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ids != ps.ids {
		ps.dismiss(len(ps.idle))
		ps.ids = ids
	}
	for len(ps.idle) > 0 {
		n := len(ps.idle) - 1
		p := ps.idle[n]
		ps.idle = slices.Delete(ps.idle, n, n+1)
		select {
		case <-p.ended: // somebody has killed it
			p.dismiss()
		default:
			return p
		}
	}
	return nil
}

// put keeps an idle parent.
func (ps *parents) put(ids string, p *parent) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed || ids != ps.ids {
		p.dismiss()
		return
	}
	if len(ps.idle) >= keepParents {
		ps.dismiss(1)
	}
	p.since = time.Now()
	ps.idle = append(ps.idle, p)
	if ps.timer == nil {
		ps.timer = time.AfterFunc(ps.keepTime(), ps.expire)
	}
}

// expire dismisses the parents that have been idle for too long.
func (ps *parents) expire() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	now, old := time.Now(), 0
	for old < len(ps.idle) && now.Sub(ps.idle[old].since) >= ps.keepTime() {
		old++
	}
	ps.dismiss(old)
	if ps.timer = nil; len(ps.idle) > 0 {
		ps.timer = time.AfterFunc(ps.keepTime()-now.Sub(ps.idle[0].since), ps.expire)
	}
}

func (ps *parents) keepTime() time.Duration { return cmp.Or(ps.keep, keepTime) }

// close dismisses all parents and returns them. From then on none is kept.
func (ps *parents) close() []*parent {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.closed = true
	dismissed := slices.Clone(ps.idle)
	ps.dismiss(len(ps.idle))
	if ps.timer != nil {
		ps.timer.Stop()
		ps.timer = nil
	}
	return dismissed
}

// dismiss dismisses the n parents that have been idle longest. It is called with mu held.
func (ps *parents) dismiss(n int) {
	for _, p := range ps.idle[:n] {
		p.dismiss()
	}
	ps.idle = slices.Delete(ps.idle, 0, n)
}
