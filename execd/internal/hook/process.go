package hook

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/user"
	"paddock/spool"
)

const (
	// patience is for how long a shepherd is waited for that was told to end its
	// hook: longer than it needs itself, with what cannot be killed.
	patience = 30 * time.Second
	// drain is for how long pipes are read when nobody of the hook is left to
	// write: somebody else may hold them.
	drain = 2 * time.Second
	// maxReport bounds what a shepherd tells.
	maxReport = 64 << 10
)

// process is a hook that runs, by its parent.
type process struct {
	cmd                           *exec.Cmd
	socket, stdin, stdout, stderr *os.File // our ends

	report  spool.HookReport // readers may look at it once they are done
	started chan struct{}    // closed when the hook's pid is known, or never will be
	tooLong chan struct{}    // closed when it has printed more than it may
	out     []byte
	lines   *lines
	end     string // of the shepherd, "" if it was not seen
	readers sync.WaitGroup
	writers sync.WaitGroup
}

// start starts the shepherd of a hook.
func (r *Runner) start(u *user.User, c *Call, env []string) (_ *process, err error) {
	var open []*os.File // theirs, to be closed in any case
	p := &process{started: make(chan struct{}), tooLong: make(chan struct{})}
	defer func() {
		for _, f := range open {
			f.Close()
		}
		if err != nil {
			p.close()
		}
	}()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make a socket: %w", err)
	}
	_ = unix.SetNonblock(pair[0], true)
	p.socket = os.NewFile(uintptr(pair[0]), "socket of a hook")
	theirs := os.NewFile(uintptr(pair[1]), "socket of a hook")
	open = append(open, theirs)
	var in, out, errs *os.File
	for _, pipe := range []struct {
		theirs, ours **os.File
		write        bool // we do
	}{{&in, &p.stdin, true}, {&out, &p.stdout, false}, {&errs, &p.stderr, false}} {
		from, to, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("cannot make a pipe: %w", err)
		}
		*pipe.theirs, *pipe.ours = to, from
		if pipe.write {
			*pipe.theirs, *pipe.ours = from, to
		}
		open = append(open, *pipe.theirs)
	}
	n := c.Hook.MaxProcesses
	if n <= 0 {
		n = DefaultMaxProcesses
	}
	args := []string{
		"-as-user", strconv.Itoa(u.UID), strconv.Itoa(u.GID), groupList(u),
		"-hook", strconv.Itoa(n), cmp.Or(c.Dir, "/"), c.Hook.Path,
	}
	p.cmd = exec.Command(r.Shepherd, append(append(args, c.Args...), c.Hook.Args...)...)
	// What the hook gets goes through the socket: nothing of it is to matter to
	// the shepherd.
	p.cmd.Env = spool.StartEnvironment
	p.cmd.Dir = "/"
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, errs
	p.cmd.ExtraFiles = []*os.File{theirs} // spool.HookSocket
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.Group != "" {
		group, err := os.OpenFile(c.Group, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, fmt.Errorf("cannot enter control group: %w", err)
		}
		open = append(open, group)
		p.cmd.SysProcAttr.UseCgroupFD, p.cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.lines = &lines{log: r.Log, label: c.Label, hook: knobName(c.Hook.Keyword, c.Hook.Name)}
	most := c.Hook.MaxOutput
	if most <= 0 {
		most = DefaultMaxOutput
	}
	p.writers.Go(func() {
		// Neither can fail in a way that matters: a hook need not read, and of one
		// that was not told its environment there is no verdict.
		_, _ = p.socket.Write(spool.AppendHookEnvironment(nil, env))
	})
	p.writers.Go(func() {
		_, _ = p.stdin.Write(c.Stdin)
		p.stdin.Close()
	})
	p.readers.Go(p.readReport)
	p.readers.Go(func() { p.readOutput(most) })
	p.readers.Go(p.readErrors)
	return p, nil
}

// groupList returns the groups of a user as the shepherd takes them.
func groupList(u *user.User) string {
	if len(u.Groups) == 0 {
		return strconv.Itoa(u.GID)
	}
	groups := make([]string, len(u.Groups))
	for i, g := range u.Groups {
		groups[i] = strconv.Itoa(g)
	}
	return strings.Join(groups, ",")
}

func (p *process) close() {
	for _, f := range []*os.File{p.socket, p.stdin, p.stdout, p.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// Why a hook was ended.
var (
	errLimit   = errors.New("it has used up its time")
	errTooLong = errors.New("it has printed more than it may")
	errNoStart = errors.New("cannot be started")
)

// wait waits for the end of a hook and of all that it has started. It returns
// why the shepherd was told to end it, nil if it was not.
func (p *process) wait(ctx context.Context, limit time.Duration) (why error) {
	ended := make(chan string, 1)
	go func() {
		_ = p.cmd.Wait() // how it has ended is in the report
		ended <- p.cmd.ProcessState.String()
	}()
	var over, hopeless <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		over = timer.C
	}
	tooLong, done := p.tooLong, ctx.Done()
	stop := func(err error) {
		over, tooLong, done = nil, nil, nil
		why = err
		p.stop()
		hopeless = time.After(patience)
	}
	killed := false
	for running := true; running; {
		select {
		case p.end = <-ended:
			running = false
		case <-over:
			stop(errLimit)
		case <-tooLong:
			stop(errTooLong)
		case <-done:
			stop(context.Cause(ctx))
		case <-hopeless:
			// What hangs in a file system does not even die by this. It is not waited
			// for any longer, and reaped whenever it ends.
			running = !killed
			killed = true
			_ = p.cmd.Process.Kill()
			hopeless = time.After(patience)
		}
	}
	// Everybody who had the other ends is dead, or has given them away.
	for _, f := range []*os.File{p.stdout, p.stderr, p.socket} {
		_ = f.SetReadDeadline(time.Now().Add(drain))
	}
	p.readers.Wait()
	p.close()
	p.writers.Wait()
	p.lines.end()
	return why
}

// stop tells the shepherd to end the hook. One that its user has stopped does
// not hear that.
func (p *process) stop() {
	if raw, err := p.socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
	_ = p.cmd.Process.Signal(unix.SIGCONT)
}

// judge says how a hook has ended that was ended for a reason, or for none.
func (p *process) judge(why error, res *Result) {
	r := &p.report
	if r.Ended {
		res.Status = r.Status
	}
	res.Stdout, res.Stderr = p.out, p.lines.tail()
	select {
	case <-p.tooLong:
		res.TooLong = true
	default:
	}
	switch {
	case r.Ended && r.Stopped == "": // perhaps just before it was told to
	case res.TooLong:
	case r.Failed != "":
		res.Err = errNoStart
	case errors.Is(why, errLimit):
		res.TimedOut = true
	case why != nil:
		res.Err = fmt.Errorf("hook was ended: %w", why)
	case r.Ended:
		res.Err = fmt.Errorf("hook was ended: %s", r.Stopped)
	default:
		res.Err = fmt.Errorf("hook has no result: its parent has ended (%s)", p.end)
	}
}

// readReport reads what the shepherd tells.
func (p *process) readReport() {
	known := sync.OnceFunc(func() { close(p.started) })
	defer known()
	in := bufio.NewScanner(p.socket)
	in.Buffer(nil, maxReport)
	for size := 0; in.Scan() && size < maxReport; size += len(in.Bytes()) {
		if p.report.Take(in.Text()) != nil {
			return
		}
		if p.report.PID != 0 {
			p.lines.pid.Store(int64(p.report.PID))
			known()
		}
	}
}

// readOutput reads the standard output, and no more of it than the hook may
// print.
func (p *process) readOutput(most int64) {
	b := make([]byte, 32<<10)
	for {
		n, err := p.stdout.Read(b)
		room := most - int64(len(p.out))
		p.out = append(p.out, b[:min(int64(n), room)]...)
		if int64(n) > room {
			close(p.tooLong)
			p.stdout.Close() // whoever goes on printing gets SIGPIPE
			return
		}
		if err != nil {
			return
		}
	}
}

// readErrors reads the standard error for the log.
func (p *process) readErrors() {
	<-p.started
	b := make([]byte, 4<<10)
	for {
		n, err := p.stderr.Read(b)
		p.lines.add(b[:n])
		if err != nil {
			return
		}
	}
}

// killMarked kills all processes that have a variable in the environment they
// were started with, and returns how many there were. What they start meanwhile
// has it as well.
func killMarked(mark string) int {
	killed := 0
	for range killRounds {
		hit := 0
		paths, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, path := range paths {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil || pid == os.Getpid() || !marked(path, mark) {
				continue
			}
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue
			}
			// Still the same: only now is the number its.
			if marked(path, mark) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil {
				hit++
			}
			unix.Close(fd)
		}
		if hit == 0 {
			break
		}
		killed += hit
	}
	return killed
}

// killRounds bounds the chase after what forks.
const killRounds = 100

func marked(path, mark string) bool {
	b, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	for v := range bytes.SplitSeq(b, []byte{0}) {
		if string(v) == mark {
			return true
		}
	}
	return false
}
