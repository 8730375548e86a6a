// Package worker runs execd-transfer for execd: one process for each transfer, as the
// owner of the job. The process outlives execd; who starts a transfer of a sandbox again
// waits for the one that is under way. What it reports is the user's word, since a process
// of his own may have changed it: it is bounded, and believed of his own files alone. The
// manager of sandboxes uses this package, which the daemon makes; it imports order, ring,
// asuser, user and exit.
package worker

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/user"
)

// Program is the name of the program.
const Program = "execd-transfer"

// maxSaid is how much is kept of what a worker says beside its report, in bytes.
const maxSaid = 16 << 10

// Limits of time without any progress.
const (
	stall   = 2 * time.Minute
	longest = 2 * time.Hour   // of a worker that says that it waits
	grace   = 5 * time.Second // see Runner.Grace
)

// Runner starts workers. The fields are set before first use.
type Runner struct {
	Starter *asuser.Starter
	Program string // path of execd-transfer
	// Stall is how long nothing may happen before a worker is ended; 0: two minutes.
	Stall time.Duration
	// Grace is how long a process may live on that has said its last word, or was ended;
	// 0: five seconds.
	Grace time.Duration
	// Pace is for orders with a turn; nil: they copy as fast as they can.
	Pace *Pace
}

// ErrStalled is matched when a worker was ended since nothing was done for too long.
var ErrStalled = errors.New("nothing was done for too long")

// ErrTurn is matched when orders without a turn need one.
var ErrTurn = errors.New("it has to copy much, and waits for its turn")

// errNonsense is that a worker, or who has taken its place, does not report as one.
var errNonsense = errors.New("the worker did not report as one does: its owner has meddled with it")

// Copy carries out orders in the sandbox that has the directory dir, and returns when it
// is done. An error that is an *exit.Permanent would come again; all others may pass.
// report is called as progress is made, from one goroutine. The end of ctx ends the
// worker; what it has done so far stays, and the same orders go on from there.
//
// With Pack or Unpack a tree goes by via. That is cut off when an end of it fails, which is
// an error as all others; nothing of via is used after the return.
func (r *Runner) Copy(ctx context.Context, owner *user.User, dir string, o *order.Orders, via *Stream, report func(order.Progress)) (order.Result, error) {
	if err := o.Check(); err != nil {
		return order.Result{}, &exit.Permanent{Errno: int(unix.EINVAL), Err: err}
	}
	lock, err := take(ctx, filepath.Join(dir, order.FileLock), o.Flush)
	if lock == nil {
		return order.Result{}, err
	}
	defer lock.Close()
	var s *share
	if o.Turn && r.Pace != nil {
		s = r.Pace.join()
		defer r.Pace.leave(s)
	}
	relay, err := via.open()
	if err != nil {
		return order.Result{}, err
	}
	p, err := r.start(owner, dir, lock, relay.given(), o, s)
	if err != nil {
		relay.abort()
		return order.Result{}, err
	}
	relay.start()
	result, err := p.wait(ctx, cmp.Or(r.Stall, stall), report)
	err = relay.end(ctx, err, cmp.Or(r.Grace, grace))
	if err == nil {
		// What execd starts just now has the lock as well, until it comes to its exec.
		_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
	}
	switch {
	case err == nil || !result.Turn:
	case o.Turn:
		err = errNonsense
	default:
		err = ErrTurn
	}
	return result, err
}

// Ask has a plugin say, as a user, what it can.
func (r *Runner) Ask(ctx context.Context, as *user.User, path string) (order.Methods, error) {
	ctx, cancel := context.WithTimeout(ctx, (order.AskTime+order.Spare)*time.Second)
	defer cancel()
	said, stderr := order.Beginning{Most: maxSaid}, order.Beginning{Most: maxSaid}
	cmd := r.Starter.Program(ctx, as, r.Program, "plugin", path)
	cmd.Stdout, cmd.Stderr = &said, &stderr
	// It ends what the plugin has started.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Second
	err := r.Starter.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	var m order.Methods
	if json.Unmarshal([]byte(said.String()), &m) != nil {
		return m, fmt.Errorf("cannot ask it what it can: %w: %s", cmp.Or(err, errNonsense), line(stderr.String()))
	}
	if m.Error != "" {
		return m, errors.New(line(m.Error))
	}
	for _, scheme := range m.Schemes {
		if order.Scheme(scheme+"://") != scheme {
			return m, errNonsense
		}
	}
	return m, nil
}

// take takes the lock of a sandbox. While another worker has it, of an execd before this
// one perhaps, it waits; the end of ctx ends that worker. With unless it does neither, and
// returns nil.
func take(ctx context.Context, path string, unless bool) (*os.File, error) {
	// Only root can reach it, and nobody else has made it. Who is given it cannot write to it.
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		f.Close()
		return nil, fmt.Errorf("cannot lock %q: %w", path, err)
	}
	if unless {
		return nil, f.Close()
	}
	taken := make(chan ending, 1)
	go func() {
		for {
			err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
			if !errors.Is(err, unix.EINTR) {
				taken <- ending{err}
				return
			}
		}
	}()
	select {
	case e := <-taken:
		err = e.err
	case <-ctx.Done():
		endHolder(f)
		go func() {
			<-taken
			f.Close()
		}()
		return nil, context.Cause(ctx)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot lock %q: %w", path, err)
	}
	return f, nil
}

// process is a worker.
type process struct {
	cmd    *exec.Cmd
	kill   context.CancelFunc // kills its group
	lines  chan order.Line
	bad    chan error // its report is no report
	ended  chan ending
	stderr *order.Beginning
	orders io.Closer // where it is told how fast it may be; nil: it is not
	grace  time.Duration
}

// ending is that something has ended, and how.
type ending struct{ err error }

func (r *Runner) start(owner *user.User, dir string, lock *os.File, stream []*os.File, o *order.Orders, s *share) (*process, error) {
	text, err := o.Encode()
	if err != nil {
		return nil, &exit.Permanent{Errno: int(unix.E2BIG), Err: err}
	}
	files, err := openDir(dir, order.DirFiles)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	say, err := openDir(dir, order.DirSay)
	if err != nil {
		return nil, err
	}
	defer say.Close()
	reports, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	ctx, kill := context.WithCancel(context.Background())
	p := &process{kill: kill, lines: make(chan order.Line), bad: make(chan error, 1), ended: make(chan ending, 1), stderr: &order.Beginning{Most: maxSaid}, grace: cmp.Or(r.Grace, grace)}
	p.cmd = r.Starter.Command(ctx, owner.UID, owner.GID, asuser.GroupList(owner), "-run", r.Program, "copy")
	p.cmd.Stdin, p.cmd.Stderr = bytes.NewReader(text), p.stderr
	var theirOrders, orders *os.File
	if s != nil {
		if theirOrders, orders, err = os.Pipe(); err != nil {
			kill()
			reports.Close()
			return nil, err
		}
		defer theirOrders.Close()
		p.cmd.Stdin = theirOrders
	}
	p.cmd.ExtraFiles = append([]*os.File{lock, theirs, files, say}, stream...) // as the numbers of order say
	p.cmd.WaitDelay = time.Second
	if err := r.Starter.Start(p.cmd); err != nil {
		kill()
		reports.Close()
		if orders != nil {
			orders.Close()
		}
		return nil, fmt.Errorf("cannot start %s: %w", Program, err)
	}
	if orders != nil {
		p.orders = orders
		go s.write(orders, text)
	}
	note(lock.Name(), p.cmd.Process.Pid)
	go p.await()
	go p.read(reports, max(longest, time.Duration(o.Stall)*time.Second)+time.Duration(order.Spare)*time.Second)
	return p, nil
}

// await waits for a worker and kills what it leaves, while its number is still its own.
func (p *process) await() {
	pid := p.cmd.Process.Pid
	if !awaitEnd(pid) {
		_, _ = hasEnded(pid, 0)
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	err := p.cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	p.ended <- ending{err}
}

// awaitEnd waits for the end of a child without a thread of its own, since transfers may
// take days, and reports whether it could.
func awaitEnd(pid int) bool {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil { // Linux before 5.10
		return false
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var lost error
	err = raw.Read(func(uintptr) (ended bool) {
		ended, lost = hasEnded(pid, unix.WNOHANG)
		return ended || lost != nil
	})
	return err == nil && lost == nil
}

// hasEnded reports whether a child has ended, which is not taken yet, or with no options
// waits for that.
func hasEnded(pid, options int) (bool, error) {
	var info unix.Siginfo
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|options, nil)
	}
	return info.Signo != 0, err
}

// openDir opens a directory of a user's, of which no more is wanted than to pass it on.
func openDir(dir, name string) (*os.File, error) {
	path := filepath.Join(dir, name)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open %q: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// usualLine is what a line of a report has at most that is not the last.
const usualLine = 512

// wholeLine is a bufio.SplitFunc for lines that have an end.
func wholeLine(data []byte, _ bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	return 0, nil, nil
}

// Bounds of reports: one a second is promised.
const (
	burst     = 20
	perSecond = 10
)

// read reads reports until the pipe is closed by the last who has it, or until one is
// none.
func (p *process) read(from *os.File, longest time.Duration) {
	defer close(p.lines)
	defer from.Close()
	began := time.Now()
	in := bufio.NewScanner(from)
	in.Buffer(make([]byte, 0, usualLine), order.MaxLine)
	in.Split(wholeLine)
	for n := 1; ; n++ {
		var line order.Line
		switch {
		case !in.Scan() && in.Err() == nil:
			return
		case errors.Is(in.Err(), bufio.ErrTooLong), n > burst+perSecond*int(time.Since(began).Seconds()):
			p.bad <- errNonsense
			return
		case in.Err() != nil:
			return
		case json.Unmarshal(in.Bytes(), &line) != nil || line.Bytes < 0 || line.Before < 0 || line.Total < 0 || line.Files < 0 || line.Waits < 0 || line.Waits > int(longest.Seconds()):
			p.bad <- errNonsense
			return
		}
		p.lines <- line
		if line.Result != nil {
			return
		}
	}
}

// wait returns what became of the orders.
func (p *process) wait(ctx context.Context, patience time.Duration, report func(order.Progress)) (order.Result, error) {
	defer p.kill()
	if p.orders != nil {
		defer p.orders.Close() // who writes need not wait for who does not read
	}
	defer func() { // the reader must not wait for us
		go func() {
			for range p.lines {
			}
		}()
	}()
	idle := time.NewTimer(patience)
	defer idle.Stop()
	last := order.Line{Beat: -1}
	lines := p.lines
	for {
		select {
		case line, ok := <-lines:
			switch {
			case !ok:
				lines = nil
				continue
			case line.Result != nil:
				report(line.Progress)
				return p.result(line.Result)
			}
			if last.Beat != line.Beat || last.Progress != line.Progress || last.Waits != line.Waits {
				idle.Reset(max(patience, time.Duration(line.Waits)*time.Second))
			}
			last = line
			report(line.Progress)
		case err := <-p.bad:
			return order.Result{}, err
		case e := <-p.ended:
			if lines != nil { // its last word may be on the way
				if line := p.lastWord(lines); line.Result != nil {
					p.ended <- e
					report(line.Progress)
					return p.result(line.Result)
				}
			}
			return order.Result{}, p.died(e.err)
		case <-idle.C:
			return order.Result{}, fmt.Errorf("%w: %s is ended", ErrStalled, Program)
		case <-ctx.Done():
			p.end()
			return order.Result{}, context.Cause(ctx)
		}
	}
}

// lastWord reads what a process has said that is gone. Without a result it has not said
// how it ended.
func (p *process) lastWord(lines <-chan order.Line) order.Line {
	timer := time.NewTimer(p.grace)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok || line.Result != nil {
				return line
			}
		case <-timer.C:
			return order.Line{}
		}
	}
}

// end has a worker end, and waits for it for a moment.
func (p *process) end() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
	timer := time.NewTimer(p.grace)
	defer timer.Stop()
	select {
	case <-p.ended:
		return
	case <-timer.C:
	}
	p.kill()
}

// result returns the last word of a worker, after its end.
func (p *process) result(r *order.Result) (order.Result, error) {
	timer := time.NewTimer(p.grace)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C: // killed by who called us
	}
	if r.Bytes < 0 || r.Files < 0 || r.Skipped < 0 {
		return order.Result{}, errNonsense
	}
	r.Skips = r.Skips[:min(len(r.Skips), order.MaxSkips)]
	for i := range r.Skips {
		r.Skips[i] = line(r.Skips[i])
	}
	if r.OK {
		return *r, nil
	}
	text := r.Error
	if text == "" {
		text = "it did not say why it failed"
	}
	err := errors.New(line(text))
	if r.Permanent {
		return *r, &exit.Permanent{Errno: r.Errno, Err: err}
	}
	return *r, err
}

// died returns why a worker ended without a last word.
func (p *process) died(err error) error {
	why := "it ended without a word"
	if err != nil {
		why = err.Error()
	}
	if text := p.stderr.String(); text != "" {
		why += ": " + line(text)
	}
	return fmt.Errorf("%s failed: %s", Program, why)
}

// line returns the beginning of a text as one line that can be shown.
func line(text string) string {
	const most = 1000
	text, _, _ = strings.Cut(text, "\n")
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
