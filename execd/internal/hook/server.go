package hook

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"paddock/internal/backoff"
	"paddock/internal/hint"
)

const (
	// helloLimit bounds the wait for the first frame of a server.
	helloLimit = 30 * time.Second
	// cancelLimit bounds the wait for the answer to a call that was cancelled. A server that
	// gives none hangs.
	cancelLimit = 10 * time.Second
	// quitLimit is what a server gets to end of itself when its input has ended.
	quitLimit = 10 * time.Second
	// crossLimit bounds the wait for work that is on its way while its question is cancelled.
	crossLimit = time.Second
	// exitLimit is what a server gets to end when its output has.
	exitLimit = 2 * time.Second
)

// servers are the hook servers, by keyword.
type servers struct {
	mu        sync.Mutex         // before that of a server
	byKeyword map[string]*server // guarded by mu
}

// server is the hook server of a keyword: a program that stays, and is asked over its
// standard streams. It is started when a call needs it. When it ends, the calls that it has not
// answered are made again to the next one, as long as their limits let them.
type server struct {
	runner  *Runner
	keyword string

	mu       sync.Mutex       // before that of a link
	want     *Hook            // guarded by mu; the program; nil: there is to be none
	link     *link            // guarded by mu; to that which runs; nil: none does
	restarts backoff.Restarts // guarded by mu
	problem  string           // guarded by mu; why the last one has ended
}

// Serve has the hook servers of a table answer from now on. Those that run and are not among
// them end; those that have ended of themselves may be started again at once.
func (r *Runner) Serve(t *Table) {
	r.servers.mu.Lock()
	defer r.servers.mu.Unlock()
	if r.servers.byKeyword == nil {
		r.servers.byKeyword = map[string]*server{}
	}
	for keyword, h := range t.servers {
		if r.servers.byKeyword[keyword] == nil && !t.broken[h] {
			r.servers.byKeyword[keyword] = &server{runner: r, keyword: keyword}
		}
	}
	for keyword, s := range r.servers.byKeyword {
		if h := t.servers[keyword]; h != nil && !t.broken[h] {
			s.set(h)
		} else {
			s.set(nil)
		}
	}
}

// set says which program is to answer; nil: none is.
func (s *server) set(h *Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restarts = backoff.Restarts{}
	if s.want = h; s.link != nil && !s.link.is(h) {
		s.link.quit()
	}
}

// ask makes a call to a hook server.
func (r *Runner) ask(ctx context.Context, c *Call, res *Result) error {
	r.servers.mu.Lock()
	s := r.servers.byKeyword[c.Hook.Keyword]
	r.servers.mu.Unlock()
	if s == nil {
		return fmt.Errorf("cannot ask hook server %q: %w", c.Hook.Path, errUnserved)
	}
	if c.Hook.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Hook.Limit, errLimit)
		defer cancel()
	}
	for {
		l, err := s.connect(ctx)
		if err != nil {
			return fmt.Errorf("cannot ask hook server %q: %w", c.Hook.Path, err)
		}
		if len(c.Args) > 1 && !l.takesSeveral() {
			return fmt.Errorf("cannot ask hook server %q: another one runs by now, which takes one report in a call", c.Hook.Path)
		}
		switch out, err := l.call(ctx, c); {
		case err == nil:
			s.useful()
			res.Status, res.Stdout, res.TooLong = out.status, out.body, out.tooLong
			return nil
		case errors.Is(err, errLimit):
			res.TimedOut = true
			return nil
		case !errors.Is(err, errEnded):
			return fmt.Errorf("hook was ended: %w", err)
		}
	}
}

// Together reports whether a hook is that of a hook server which runs, and takes several reports in a call
// of REPORT_WORK: an argument for each, and their ads with a line of five hyphens between them.
func (r *Runner) Together(h *Hook) bool {
	r.servers.mu.Lock()
	s := r.servers.byKeyword[h.Keyword]
	r.servers.mu.Unlock()
	if s == nil || !h.Served {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link != nil && s.link.takesSeveral()
}

// These are the reasons for which a call has no answer.
var (
	errUnserved = errors.New("there is none")
	errEnded    = errors.New("it has ended")
)

// connect returns the link to a server that has said hello. It starts one when that may be.
func (s *server) connect(ctx context.Context) (*link, error) {
	for {
		l, problem, changed, pause := s.look()
		if l != nil {
			return l, nil
		}
		if changed == nil && pause == 0 {
			return nil, errUnserved
		}
		var due <-chan time.Time
		if pause > 0 {
			timer := time.NewTimer(pause)
			defer timer.Stop()
			due = timer.C
		}
		select {
		case <-changed:
		case <-due:
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errLimit) {
				return nil, errors.New(cmp.Or(problem, "it has not said hello yet"))
			}
			return nil, context.Cause(ctx)
		}
	}
}

// look returns the link to the server that is wanted, if it has said hello. Else something is
// to be waited for, until changed is closed or a pause is over, and problem says why the last
// server has ended. Neither: there is to be none.
func (s *server) look() (_ *link, problem string, changed <-chan struct{}, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.want == nil {
		return nil, "", nil, 0
	}
	if s.link == nil {
		if pause = s.restarts.Wait(time.Now()); pause > 0 {
			return nil, s.problem, nil, pause
		}
		s.link = newLink(s.want)
		go s.run(s.link)
	}
	l := s.link
	if !l.is(s.want) {
		l.quit()
	}
	switch isReady, isLast := l.standing(); {
	case isLast:
		return nil, s.problem, l.over, 0
	case !isReady:
		return nil, s.problem, l.ready, 0
	}
	return l, "", nil, 0
}

// useful notes that the server has answered.
func (s *server) useful() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restarts.Useful()
	s.problem = ""
}

// run runs the program of a link until it ends.
func (s *server) run(l *link) {
	r := s.runner
	name := knobName(s.keyword, Server)
	ctx, over := r.begin(l.ctx, "hook server "+s.keyword)
	defer over()
	res := Result{Status: noStatus}
	began := time.Now()
	err := r.run(ctx, &Call{
		Hook: &Hook{Keyword: s.keyword, Name: Server, Path: l.path}, Label: "execd",
		Behind: "PADDOCK_HOOK_SERVER=" + s.keyword + "@" + r.Spool, talk: l.talk,
	}, &res)
	res.Took = time.Since(began)
	end := res.String()
	if err != nil {
		end = err.Error()
	}
	l.end(errEnded)
	open, why := l.unanswered()
	if !errors.Is(why, errEnded) {
		end = why.Error()
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.link = nil
	close(l.over)
	switch {
	case errors.Is(context.Cause(ctx), ErrStopped):
	case l.told():
		r.Log.Info(fmt.Sprintf("execd: hook %s: stopped", name))
	default:
		s.problem = end
		pause := s.restarts.Ended(time.Now())
		r.Log.Warn(fmt.Sprintf("execd: hook %s: %s: calls=%d not answered, started again after %v at the earliest", name, end, open, pause))
	}
}

// link is one run of a hook server.
type link struct {
	path     string
	modified time.Time       // its file
	ctx      context.Context // of its processes
	kill     context.CancelCauseFunc
	ready    chan struct{} // closed when it has said hello, or gone is closed
	gone     chan struct{} // closed when it answers no more
	over     chan struct{} // closed when its processes have ended, and another may be started
	wake     hint.Chan     // there is something for it to read

	mu       sync.Mutex
	hello    bool              // guarded by mu; it has said it
	together bool              // guarded by mu; it takes several reports in a call
	quitting bool              // guarded by mu; its input ends, so that it ends
	ended    error             // guarded by mu; why it answers no more; nil: it does
	last     uint64            // guarded by mu; the number of the last call
	open     map[uint64]*asked // guarded by mu; the calls that it has not answered yet
	unsent   []frame           // guarded by mu
}

// frame is what a server is to read.
type frame struct {
	number uint64 // of the call that begins by it; 0: none does
	data   []byte
}

// asked is a call that a server has to answer.
type asked struct {
	number uint64
	most   int64         // bytes of output
	answer chan answered // capacity 1
	timer  *time.Timer   // guarded by the link's mu; of one that was cancelled
}

// answered is the answer to a call.
type answered struct {
	status  int
	body    []byte
	tooLong bool
}

func newLink(h *Hook) *link {
	l := &link{
		path: h.Path, modified: modified(h.Path), open: map[uint64]*asked{}, wake: hint.New(),
		ready: make(chan struct{}), gone: make(chan struct{}), over: make(chan struct{}),
	}
	l.ctx, l.kill = context.WithCancelCause(context.Background())
	return l
}

// modified returns when a program was changed, zero if that is not known.
func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// is reports whether it runs the program of a hook, as that is now.
func (l *link) is(h *Hook) bool {
	return h != nil && h.Path == l.path && modified(h.Path).Equal(l.modified)
}

// standing reports whether it has said hello, and whether it is given no calls any more.
func (l *link) standing() (ready, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hello, l.quitting || l.ended != nil
}

// takesSeveral reports whether it takes several reports in a call.
func (l *link) takesSeveral() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.together
}

// told reports whether it was told to end.
func (l *link) told() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.quitting
}

// quit has the server end. It may answer the calls that it has for a while.
func (l *link) quit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.quitting {
		l.quitting = true
		l.poke()
		time.AfterFunc(quitLimit, func() { l.kill(errors.New("it was to end")) })
	}
}

// poke has the writer look.
func (l *link) poke() { l.wake.Give() }

// unanswered returns how many calls the server has not answered, and why it answers no more.
func (l *link) unanswered() (open int, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open), l.ended
}

// end notes that the server answers no more, for a reason, which counts if it is the first.
func (l *link) end(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.ended = why
		close(l.gone)
		if !l.hello {
			close(l.ready)
		}
		for _, a := range l.open {
			if a.timer != nil {
				a.timer.Stop()
			}
		}
	}
}

// fail ends a server that hangs or breaks the protocol.
func (l *link) fail(why error) {
	l.end(why)
	l.kill(why)
}

// talk speaks with the server until its output has ended.
func (l *link) talk(stdin, stdout *os.File) {
	stop := l.awaitHello()
	var writing sync.WaitGroup
	writing.Go(func() { l.write(stdin) })
	err := l.read(bufio.NewReader(&lasting{File: stdout}))
	stop()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, errFrameCut), errors.Is(err, os.ErrDeadlineExceeded):
		// Most likely its process ends now, and says more.
		l.end(errEnded)
		time.AfterFunc(exitLimit, func() { l.kill(errors.New("its output has ended")) })
	default:
		l.fail(fmt.Errorf("it breaks the protocol: %w", err))
	}
	stdout.Close() // one that goes on printing gets SIGPIPE
	_ = stdin.SetWriteDeadline(time.Now())
	writing.Wait()
}

// awaitHello fails a server that does not say hello in time, unless stop is called before.
func (l *link) awaitHello() (stop func() bool) {
	return time.AfterFunc(helloLimit, func() {
		if ready, _ := l.standing(); !ready {
			l.fail(fmt.Errorf("it has not said hello for %v", helloLimit))
		}
	}).Stop
}

// read reads the frames of the server, and returns why there are no more.
func (l *link) read(from *bufio.Reader) error {
	together, err := readHello(from)
	if err != nil {
		return err
	}
	l.mu.Lock()
	if l.ended == nil {
		l.hello, l.together = true, together
		close(l.ready)
	}
	l.mu.Unlock()
	for {
		head, err := readAnswer(from)
		if err != nil {
			return err
		}
		l.mu.Lock()
		a := l.open[head.number]
		l.mu.Unlock()
		if a == nil {
			return fmt.Errorf("it answers call %d, which it does not have", head.number)
		}
		body, err := readBody(from, head.size, a.most)
		if err != nil {
			return err
		}
		l.mu.Lock()
		delete(l.open, a.number)
		if a.timer != nil {
			a.timer.Stop()
		}
		l.mu.Unlock()
		a.answer <- answered{status: head.status, body: body, tooLong: head.size > a.most}
	}
}

// write writes frames until the server answers no more, or is to end.
func (l *link) write(to *os.File) {
	defer to.Close()
	next, quitting := []byte(frameHello), false
	for {
		// An error is seen where it is read: a server may have answered before it has ended.
		if _, err := to.Write(next); err != nil {
			return
		}
		for next, quitting = l.next(); next == nil && !quitting; next, quitting = l.next() {
			select {
			case <-l.wake:
			case <-l.gone:
				return
			}
		}
		if next == nil {
			return
		}
	}
}

// next takes the next frame, and reports whether none comes after those that there are.
func (l *link) next() (data []byte, quitting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unsent) > 0 {
		data = l.unsent[0].data
		l.unsent = slices.Delete(l.unsent, 0, 1)
	}
	return data, l.quitting
}

// call has the server answer a call. Unless that is the end of ctx, the error is errEnded.
func (l *link) call(ctx context.Context, c *Call) (answered, error) {
	a := &asked{most: cmp.Or(max(c.Hook.MaxOutput, 0), DefaultMaxOutput), answer: make(chan answered, 1)}
	l.mu.Lock()
	l.last++
	a.number = l.last
	l.open[a.number] = a
	l.unsent = append(l.unsent, frame{a.number, append(appendCall(nil, a.number, c.Hook.Name, len(c.Stdin), c.Args), c.Stdin...)})
	l.mu.Unlock()
	l.poke()
	select {
	case out := <-a.answer:
		return out, nil
	case <-ctx.Done():
	case <-l.gone:
	}
	select {
	case out := <-a.answer: // it has come first
		return out, nil
	default:
	}
	if ctx.Err() == nil {
		return answered{}, errEnded
	}
	if cause := context.Cause(ctx); l.cancel(a) && c.Hook.Name == FetchWork && !errors.Is(cause, errLimit) {
		// An answer may have crossed: who has handed out that work takes it for heard.
		select {
		case out := <-a.answer:
			if len(out.body) > 0 {
				return out, nil
			}
		case <-l.gone:
		case <-time.After(crossLimit):
		}
	}
	return answered{}, context.Cause(ctx)
}

// cancel says that a call is no longer waited for, and reports whether its answer comes all the same.
func (l *link) cancel(a *asked) (comes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.open[a.number] == nil:
		return true // it is there
	case l.ended != nil:
		return false
	}
	if i := slices.IndexFunc(l.unsent, func(f frame) bool { return f.number == a.number }); i >= 0 {
		l.unsent = slices.Delete(l.unsent, i, i+1)
		delete(l.open, a.number)
		return false
	}
	l.unsent = append(l.unsent, frame{data: appendCancel(nil, a.number)})
	l.poke()
	a.timer = time.AfterFunc(cancelLimit, func() {
		l.mu.Lock()
		open := l.open[a.number] != nil
		l.mu.Unlock()
		if !open {
			return
		}
		l.fail(fmt.Errorf("it has not answered call %d, %v after that was cancelled", a.number, cancelLimit))
	})
	return true
}
