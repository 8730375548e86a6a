package hook

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/user"
	"paddock/internal/proc"
	"paddock/spool"
)

const (
	// patience bounds the wait for a shepherd that was told to end its hook. It is
	// longer than the shepherd itself waits for processes that cannot be killed.
	patience = 30 * time.Second
	// takeLimit bounds the wait for an idle shepherd to take a call. On a busy host it
	// may need seconds, and the hook is lost if the shepherd is killed just after it has
	// taken the call.
	takeLimit = 10 * time.Second
	// drainLimit bounds the reading of pipes when no process of the hook is left to
	// write to them: other processes may hold them.
	drainLimit = 2 * time.Second
	// maxReport bounds the report of a shepherd.
	maxReport = 64 << 10
)

// process is a hook that runs below its parent.
type process struct {
	parent                        *parent
	keep                          bool     // the parent may have another hook after this one
	socket, stdin, stdout, stderr *os.File // our ends

	report  spool.HookReport // complete once readers are done
	taken   chan struct{}    // closed when the parent has taken the call; readers may be done before
	started chan struct{}    // closed when the hook's pid is known, or never will be
	whole   chan struct{}    // closed when the report is complete, and the parent waits for another hook
	tooLong chan struct{}    // closed when the hook has printed more than it may
	out     []byte
	lines   *lines
	end     string // how the shepherd ended, "" if that was not seen
	readers sync.WaitGroup
	writers sync.WaitGroup
}

// start has a hook run by an idle parent, if there is one for it, or by a new one.
func (r *Runner) start(ctx context.Context, u *user.User, c *Call, env []string) (*process, error) {
	if !r.keeps(c) {
		fresh, err := newParent(r.Starter, u, c.Group)
		if err != nil {
			return nil, err
		}
		defer fresh.dismiss() // after this one
		return r.call(fresh, c, env)
	}
	ids := rights(u)
	for kept := r.parents.take(ids); kept != nil; kept = r.parents.take(ids) {
		p, err := r.call(kept, c, env)
		if err != nil {
			kept.kill()
			continue
		}
		if p.isTaken(ctx) {
			return p, nil
		}
		// The parent was killed or stopped since its last hook.
		gone := kept.kill()
		p.drain()
		if p.report.Taken {
			return p, nil // wait finds the parent dead
		}
		p.finish()
		if !gone {
			return nil, fmt.Errorf("process %d, which was to run it, does not end", kept.cmd.Process.Pid)
		}
	}
	fresh, err := newParent(r.Starter, u, "")
	if err != nil {
		return nil, err
	}
	p, err := r.call(fresh, c, env)
	if err != nil {
		fresh.dismiss()
		return nil, err
	}
	return p, nil
}

// keeps reports whether the parent of a hook may have run hooks of other jobs before,
// and may run others after: those of the daemon's own account, or of the only user of
// an execd in user mode, outside of control groups of jobs.
func (r *Runner) keeps(c *Call) bool { return c.Group == "" && (c.As == nil || !r.Privileged) }

// call passes a hook to a parent.
func (r *Runner) call(to *parent, c *Call, env []string) (_ *process, err error) {
	var theirs [spool.HookFiles]*os.File // to be closed in any case
	p := &process{
		parent: to, keep: r.keeps(c),
		taken: make(chan struct{}), started: make(chan struct{}), whole: make(chan struct{}), tooLong: make(chan struct{}),
	}
	defer func() {
		for _, f := range theirs {
			if f != nil {
				f.Close()
			}
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
	theirs[3] = os.NewFile(uintptr(pair[1]), "socket of a hook")
	for i, ours := range []**os.File{&p.stdin, &p.stdout, &p.stderr} {
		from, to, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("cannot make a pipe: %w", err)
		}
		theirs[i], *ours = to, from
		if ours == &p.stdin {
			theirs[i], *ours = from, to
		}
	}
	if err := to.hand(theirs); err != nil {
		return nil, err
	}
	processes := cmp.Or(max(c.Hook.MaxProcesses, 0), DefaultMaxProcesses)
	if c.talk != nil {
		processes = 0 // any number, see the shepherd's parent of hooks
	}
	call := spool.HookCall{
		Processes: processes, Dir: cmp.Or(c.Dir, "/"),
		Argv: slices.Concat([]string{c.Hook.Path}, c.Args, c.Hook.Args), Env: env,
	}
	p.lines = &lines{log: r.Log, label: c.Label, hook: knobName(c.Hook.Keyword, c.Hook.Name), stays: c.talk != nil}
	most := cmp.Or(max(c.Hook.MaxOutput, 0), DefaultMaxOutput)
	p.writers.Go(func() {
		// Neither error matters: a hook need not read its input, and one that was not
		// told what to run has no result.
		_, _ = p.socket.Write(call.Append(nil))
	})
	p.readers.Go(p.readReport)
	if c.talk != nil {
		p.readers.Go(func() { c.talk(p.stdin, p.stdout) })
	} else {
		p.writers.Go(func() {
			_, _ = p.stdin.Write(c.Stdin)
			p.stdin.Close()
		})
		p.readers.Go(func() { p.readOutput(most) })
	}
	p.readers.Go(p.readErrors)
	return p, nil
}

// isTaken waits until an idle parent says that it has the call, and reports whether it
// has. It reports true when ctx is done, since the hook is no longer wanted.
func (p *process) isTaken(ctx context.Context) bool {
	timer := time.NewTimer(takeLimit)
	defer timer.Stop()
	select {
	case <-p.taken:
		return true
	case <-ctx.Done():
		return true
	case <-p.parent.ended:
	case <-timer.C:
	}
	return false
}

func (p *process) close() {
	for _, f := range []*os.File{p.socket, p.stdin, p.stdout, p.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// These are the reasons to end a hook.
var (
	errLimit   = errors.New("it has used up its time")
	errTooLong = errors.New("it has printed more than it may")
	errNoStart = errors.New("cannot be started")
)

// wait waits for the end of a hook and of all that it has started. It returns why the
// shepherd was told to end it, nil if it was not. keep reports that the shepherd waits
// for another hook; otherwise it has ended.
func (p *process) wait(ctx context.Context, limit time.Duration) (keep bool, why error) {
	var over, hopeless <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		over = timer.C
	}
	whole, tooLong, done := p.whole, p.tooLong, ctx.Done()
	stop := func(err error) {
		over, tooLong, done = nil, nil, nil
		why = err
		p.stop()
		hopeless = time.After(patience)
	}
	killed := false
	for running := true; running; {
		select {
		case <-p.parent.ended:
			p.end = p.parent.cmd.ProcessState.String()
			running = false
		case <-whole:
			whole = nil
			keep = p.keep && why == nil
			running = !keep
			if !keep {
				p.parent.dismiss()
			}
		case <-over:
			stop(errLimit)
		case <-tooLong:
			stop(errTooLong)
		case <-done:
			stop(context.Cause(ctx))
		case <-hopeless:
			// A process that hangs in a file system does not even die by this. It is not
			// waited for any longer, and reaped whenever it ends.
			running = !killed
			killed = true
			_ = p.parent.cmd.Process.Kill()
			hopeless = time.After(patience)
		}
	}
	if !keep {
		p.parent.dismiss()
	}
	p.drain()
	p.finish()
	p.lines.end()
	return keep, why
}

// drain reads the rest of the pipes: all that had the other ends are dead, or have
// passed them on.
func (p *process) drain() {
	for _, f := range []*os.File{p.stdout, p.stderr, p.socket} {
		_ = f.SetReadDeadline(time.Now().Add(drainLimit))
	}
	p.readers.Wait()
}

// finish closes our ends of the hook's files, once they are drained.
func (p *process) finish() {
	p.close()
	p.writers.Wait()
}

// stop tells the shepherd to end the hook. A shepherd that its user has stopped does
// not hear that.
func (p *process) stop() {
	if raw, err := p.socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
	_ = p.parent.cmd.Process.Signal(unix.SIGCONT)
}

// judge fills in how the hook has ended. why is the reason for which it was told to
// end, nil if it was not.
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
	case r.Ended && r.Stopped == "": // it may have ended just before it was told to
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

// readReport reads the report of the shepherd.
func (p *process) readReport() {
	taken := sync.OnceFunc(func() { close(p.taken) })
	known := sync.OnceFunc(func() { close(p.started) })
	defer known()
	in := bufio.NewScanner(&lasting{File: p.socket})
	in.Buffer(nil, maxReport)
	for size := 0; in.Scan() && size < maxReport; size += len(in.Bytes()) {
		if p.report.Take(in.Text()) != nil {
			return
		}
		if p.report.Taken {
			taken()
		}
		if p.report.PID != 0 {
			p.lines.pid.Store(int64(p.report.PID))
			known()
		}
		if p.report.Ended {
			break // the last line
		}
	}
	if p.report.Ended && p.report.Waits {
		close(p.whole)
	}
}

// readOutput reads the standard output up to the limit of the hook.
func (p *process) readOutput(most int64) {
	b := make([]byte, 4<<10) // most print little
	from := &lasting{File: p.stdout}
	for {
		n, err := from.Read(b)
		room := most - int64(len(p.out))
		p.out = append(p.out, b[:min(int64(n), room)]...)
		if int64(n) > room {
			close(p.tooLong)
			p.stdout.Close() // a process that goes on printing gets SIGPIPE
			return
		}
		if err != nil {
			return
		}
		if n == len(b) && n < pipeSize {
			b = make([]byte, 2*n)
		}
	}
}

// pipeSize is how much a pipe holds at most.
const pipeSize = 64 << 10

// lasting reads past its deadline what was written before it: execd may not have run in
// time, and the hook has printed it all the same.
type lasting struct {
	*os.File
	late int // bytes read after the deadline
}

func (l *lasting) Read(b []byte) (n int, err error) {
	n, err = l.File.Read(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) || l.late >= pipeSize {
		return n, err
	}
	raw, e := l.SyscallConn()
	if e == nil {
		e = raw.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), b) }) // this does not block
	}
	if e != nil || n <= 0 {
		return 0, err
	}
	l.late += n
	return n, nil
}

// readErrors reads the standard error for the log.
func (p *process) readErrors() {
	<-p.started
	b := make([]byte, 4<<10)
	from := &lasting{File: p.stderr}
	for {
		n, err := from.Read(b)
		p.lines.add(b[:n])
		if err != nil {
			return
		}
	}
}

// awaitGone waits until no process is left that is one of some, or until the limit or ctx
// ends, and reports whether none is left.
func awaitGone(ctx context.Context, some func(proc.Process) bool, limit time.Duration) bool {
	wait := proc.ExecWait{}
	for end := time.Now().Add(limit); ; {
		all, _ := proc.All()
		i := slices.IndexFunc(all, some)
		if i < 0 {
			if wait.Again(slices.ContainsFunc(all, func(p proc.Process) bool { return p.Execs })) {
				continue
			}
			return true
		}
		wait = proc.ExecWait{}
		over := all[i].Ends(min(time.Until(end), markedLook))
		if !over && (ctx.Err() != nil || time.Now().After(end)) {
			return false
		}
	}
}

// markedLook is how long awaitGone waits for one of them before it looks at ctx.
const markedLook = 500 * time.Millisecond

// killMarked kills all processes that were started with a variable in their
// environment, and returns how many there were. Processes that they start meanwhile
// have the variable as well.
func killMarked(mark string) int { return kill(marked(mark)) }

func kill(some func(proc.Process) bool) int {
	killed, _ := proc.Kill(killPatience, some) // a process that hangs in a file system does not die
	return killed
}

// ownedBy returns a function that reports whether a process is one of some and a user's.
func ownedBy(uid int, some func(proc.Process) bool) func(proc.Process) bool {
	return func(p proc.Process) bool {
		var st unix.Stat_t
		return unix.Stat("/proc/"+strconv.Itoa(p.PID), &st) == nil && int(st.Uid) == uid && some(p)
	}
}

// killPatience bounds the wait for what was killed.
const killPatience = 10 * time.Second

// marked returns a function that reports whether a process has a variable in its
// environment.
func marked(mark string) func(proc.Process) bool {
	return func(p proc.Process) bool {
		has := false
		for v := range p.Environ() {
			has = has || string(v) == mark
		}
		return has && p.PID != os.Getpid()
	}
}
