// Package serve is the hook server: it answers all hooks of a host over one pair of pipes, and has the questions of
// slots that find no work wait until there is some.
//
// Only the command imports it.
package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"paddock/hooks/postgres/internal/engine"
	"paddock/internal/hint"
)

const (
	// holdLimit is after how long a question is answered that finds no work: a little less than FETCH_WORK may take.
	holdLimit = 55 * time.Second
	// poll is how often the database is asked without being woken up, more or less by a third: a wake-up that is
	// sent before it is known that this host waits does not come.
	poll = 10 * time.Second
	// quitLimit is for how long calls may go on when there are no more.
	quitLimit = 5 * time.Second
)

// server is a hook server.
type server struct {
	engine *engine.Engine
	log    func(string)

	writing sync.Mutex
	to      io.Writer
	gone    bool // guarded by writing; the input has ended: nothing is written any more
	calls   sync.WaitGroup

	mu      sync.Mutex
	cancel  map[uint64]context.CancelFunc // guarded by mu; of calls that are not answered
	held    []*question                   // guarded by mu; that wait for work, the oldest first
	isIdle  bool                          // guarded by mu; the database was last told that some wait
	known   bool                          // guarded by mu; it is known there, as far as is known here
	changed hint.Chan                     // held may have changed from none to some, or back
	wake    hint.Chan                     // there may be work
}

// question is a slot that waits for work.
type question struct {
	*engine.Question
	work chan []byte // capacity 1
}

// Run answers until its input or the context ends. Version is what the host is known by in the database.
func Run(ctx context.Context, e *engine.Engine, from io.Reader, to io.Writer, version string, log func(string)) error {
	s := &server{
		engine: e, log: log, to: to, cancel: map[uint64]context.CancelFunc{},
		changed: hint.New(), wake: hint.New(),
	}
	if _, err := io.WriteString(to, answer); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer func() {
		cancel()
		background.Wait()
		last, over := context.WithTimeout(context.Background(), time.Second)
		defer over()
		e.Bye(last)
	}()
	background.Go(func() { e.Tick(ctx) })
	background.Go(func() { e.Listen(ctx, s.poke) })
	background.Go(func() { s.announce(ctx, version) })
	background.Go(func() { s.dispatch(ctx) })

	// A read of a pipe is not interrupted: when the program is to end it ends with it.
	ended := make(chan error, 1)
	go func() { ended <- s.read(ctx, bufio.NewReader(from)) }()
	var err error
	select {
	case err = <-ended:
		s.writing.Lock()
		s.gone = true
		s.writing.Unlock()
	case <-ctx.Done():
	}
	s.quit()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// read begins the calls that come.
func (s *server) read(ctx context.Context, in *bufio.Reader) error {
	err := readHello(in)
	for err == nil {
		var c call
		if c, err = readCall(in); err == nil {
			s.begin(ctx, c)
		}
	}
	return err
}

// begin begins a call, or cancels one.
func (s *server) begin(ctx context.Context, c call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.hook == "" {
		if cancel := s.cancel[c.number]; cancel != nil {
			cancel()
		}
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	s.cancel[c.number] = cancel
	s.calls.Go(func() {
		status, output := s.answer(ctx, c)
		s.writing.Lock()
		var left []byte // work that execd does not wait for any more, and is not told of
		if c.hook == "FETCH_WORK" && (s.gone || ctx.Err() != nil) {
			left, output = output, nil
		}
		if !s.gone {
			_, _ = s.to.Write(appendDone(nil, c.number, status, output)) // an error means that the input ends too
		}
		s.writing.Unlock()
		if len(left) > 0 {
			s.engine.GiveBack(left)
		}
		s.mu.Lock()
		delete(s.cancel, c.number)
		s.mu.Unlock()
		cancel()
	})
}

// quit lets calls end that are about to, and ends the others.
func (s *server) quit() {
	s.mu.Lock()
	s.held = nil
	cancels := make([]context.CancelFunc, 0, len(s.cancel))
	for _, cancel := range s.cancel {
		cancels = append(cancels, cancel)
	}
	s.mu.Unlock()
	timer := time.AfterFunc(quitLimit, func() {
		for _, cancel := range cancels {
			cancel()
		}
	})
	s.calls.Wait()
	timer.Stop()
}

func (s *server) answer(ctx context.Context, c call) (status int, output []byte) {
	var err error
	if c.hook == "FETCH_WORK" {
		output, err = s.fetch(ctx, c.input)
	} else {
		status, output, err = s.engine.Answer(ctx, c.hook, c.words, c.input)
	}
	if err == nil {
		return status, output
	}
	off := ctx.Err() != nil // the call, or this server is told to end
	if !off {
		s.log(fmt.Sprintf("%s: %v", c.hook, err))
	}
	if !off || c.hook != "FETCH_WORK" { // that has brought nothing, and all else was not done
		status = max(status, 1)
	}
	return status, output
}

// fetch answers a slot. One that is free and finds nothing waits.
func (s *server) fetch(ctx context.Context, input []byte) ([]byte, error) {
	slot, err := engine.Slot(input)
	if err != nil || slot.Busy() {
		return nil, err
	}
	limit := time.NewTimer(holdLimit)
	defer limit.Stop()
	work, err := s.engine.Claim(ctx, slot)
	switch {
	case err != nil && ctx.Err() == nil:
		// The database is away. Execd would ask again in a second.
		s.log(fmt.Sprintf("FETCH_WORK: %v", err))
	case err != nil || work != nil || !slot.Waits():
		return work, err
	}
	q := &question{slot, make(chan []byte, 1)}
	s.mu.Lock()
	s.held = append(s.held, q)
	s.mu.Unlock()
	s.poke() // announce has it looked for once more when the database knows that it waits
	s.changed.Give()
	select {
	case work = <-q.work:
		return work, nil
	case <-limit.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.held = slices.DeleteFunc(s.held, func(o *question) bool { return o == q })
	s.mu.Unlock()
	s.changed.Give()
	select {
	case work = <-q.work:
	default:
	}
	return work, nil
}

// poke has the questions that wait be looked at.
func (s *server) poke() {
	s.engine.Stale()
	s.wake.Give()
}

// announce keeps the database told whether some question waits, and has the host known there.
func (s *server) announce(ctx context.Context, version string) {
	for pause := time.Second; ; {
		s.mu.Lock()
		is := len(s.held) > 0
		told := s.known && is == s.isIdle
		s.mu.Unlock()
		if !told {
			if err := s.engine.Idle(ctx, is, version); err != nil {
				if ctx.Err() == nil {
					s.log(fmt.Sprintf("cannot say that the host waits: %v", err))
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
				pause = min(2*pause, 10*time.Second)
				continue
			}
			s.mu.Lock()
			s.isIdle, s.known = is, true
			s.mu.Unlock()
			if is {
				s.poke() // what came before the database knew
			}
		}
		pause = time.Second
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
	}
}

// dispatch looks for work for the questions that wait whenever there may be some.
func (s *server) dispatch(ctx context.Context) {
	for {
		due := time.NewTimer(poll*2/3 + rand.N(poll*2/3))
		select {
		case <-ctx.Done():
			due.Stop()
			return
		case <-s.wake:
			// All hosts that wait were woken up, and one of them is to be the first.
			time.Sleep(rand.N(time.Duration(1+min(s.engine.IdleHosts(), 50)) * 2 * time.Millisecond))
		case <-due.C:
			s.reannounce()
		}
		due.Stop()
		s.look(ctx)
	}
}

// reannounce has the database told again of this host, which it may have forgotten in a crash.
func (s *server) reannounce() {
	s.mu.Lock()
	s.known = false
	s.mu.Unlock()
	s.changed.Give()
}

// look asks for work for each question that waits, but not for those that can find no other than one that has
// found none.
func (s *server) look(ctx context.Context) {
	s.mu.Lock()
	held := slices.Clone(s.held)
	s.mu.Unlock()
	var failed [][]int32
	for _, q := range held {
		if ctx.Err() != nil {
			return
		}
		if len(failed) > 0 && slices.ContainsFunc(failed, func(f []int32) bool { return slices.Equal(f, s.engine.Classes(q.Question)) }) {
			continue
		}
		if !s.waits(q) {
			continue
		}
		work, err := s.engine.Claim(ctx, q.Question)
		if err != nil {
			return // it is asked again before long
		}
		if work == nil {
			failed = append(failed, s.engine.Classes(q.Question))
			continue
		}
		s.deliver(q, work)
	}
}

func (s *server) waits(q *question) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.held, q)
}

// deliver gives work to a question. If that is not waited for any more, its slot gets the work when it asks
// again.
func (s *server) deliver(q *question, work []byte) {
	s.mu.Lock()
	s.held = slices.DeleteFunc(s.held, func(o *question) bool { return o == q })
	s.mu.Unlock()
	q.work <- work
	s.changed.Give()
}
