package command

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/qsub/internal/output"
)

// StatusLine is the last line of a terminal, which is rewritten from time to
// time. A nil StatusLine is none, and its methods do nothing.
type StatusLine struct {
	to   *os.File
	done chan struct{}
	stop context.CancelFunc

	mu   sync.Mutex
	text string // guarded by mu
}

// statusInterval is how often the line is updated.
const statusInterval = 2 * time.Second

// Progress shows on a terminal how many tasks of some jobs are over, until End
// is called. total is the number of all tasks.
func (inv *Invocation) Progress(ctx context.Context, words []string, total int) *StatusLine {
	if inv.ErrTerminal == nil {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	l := &StatusLine{to: inv.ErrTerminal, stop: stop, done: make(chan struct{})}
	began := time.Now()
	go func() {
		defer close(l.done)
		tick := time.NewTicker(statusInterval)
		defer tick.Stop()
		for {
			var reply api.FindReply
			if err := inv.Client.Call(ctx, api.VerbFind, &api.FindRequest{Jobs: words}, &reply); err == nil {
				l.set(progressText(&reply, total) + ", " + output.Elapsed(time.Since(began)))
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return l
}

// progressText returns how many tasks of total are over.
func progressText(reply *api.FindReply, total int) string {
	var running, pending, inError int
	for _, f := range reply.Found {
		running, pending, inError = running+f.Running, pending+f.Pending, inError+f.InError
	}
	text := fmt.Sprintf("%d of %d done, %d running, %d pending", max(total-running-pending-inError, 0), total, running, pending)
	if inError > 0 {
		text += fmt.Sprintf(", %d in error", inError)
	}
	return text
}

func (l *StatusLine) set(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
	l.draw()
}

// draw writes the text over the line; l.mu is held.
func (l *StatusLine) draw() {
	columns, _ := output.Size(l.to)
	fmt.Fprintf(l.to, "\r%s\x1b[K", l.text[:min(len(l.text), columns-1)])
}

// Hold clears the line, so that others can be printed, until Release.
func (l *StatusLine) Hold() {
	if l == nil {
		return
	}
	l.mu.Lock()
	if l.text != "" {
		fmt.Fprint(l.to, "\r\x1b[K")
	}
}

// Release shows the line again, after Hold.
func (l *StatusLine) Release() {
	if l == nil {
		return
	}
	if l.text != "" {
		l.draw()
	}
	l.mu.Unlock()
}

// End clears the line for good.
func (l *StatusLine) End() {
	if l == nil {
		return
	}
	l.stop()
	<-l.done
	l.Hold()
	l.text = ""
	l.Release()
}
