package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/internal/hint"
)

// message is a line of what viewers are sent. Each field is there when it is new.
type message struct {
	Timeline *api.TimelineReply `json:"timeline,omitempty"`
	Top      *api.TopReply      `json:"top,omitempty"`
	Status   *api.StatusReply   `json:"status,omitempty"`
	Others   []api.PeerStatus   `json:"others,omitempty"`
	Error    string             `json:"error,omitempty"` // why there is nothing new; empty: there is
}

// How often execd is asked: for jobs at most once a second when something has happened, and every
// two seconds since what they use changes all the time; for the state of the host now and then.
const (
	soonest    = time.Second
	topPace    = 2 * time.Second
	statusPace = 10 * time.Second
	askTime    = 10 * time.Second
	pollTime   = 90 * time.Second // execd answers after a minute
	retryPace  = 2 * time.Second
)

// backlog is how many messages wait for a viewer who does not read, before he is sent away: he
// comes back, and is told all anew.
const backlog = 16

// hub asks execd for all who look, and not at all while nobody does.
type hub struct {
	client *api.Client
	asking sync.WaitGroup // what asks

	mu      sync.Mutex
	viewers map[chan []byte]bool // guarded by mu, as all below
	stop    context.CancelFunc   // ends what asks; nil: nobody looks
	anew    context.CancelFunc   // ends the question that waits, so that all is told anew
	fresh   bool                 // somebody has come who knows nothing
	since   time.Time            // when the last viewer went; zero: there are some
	status  []byte               // the last message about the host, for who comes; nil: nobody looks
}

func newHub(client *api.Client) *hub {
	return &hub{client: client, viewers: map[chan []byte]bool{}, since: time.Now()}
}

// join returns a channel of messages, which is closed when its viewer is too slow. Leave ends it.
func (h *hub) join() chan []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan []byte, backlog)
	h.viewers[c], h.fresh, h.since = true, true, time.Time{}
	if h.status != nil {
		c <- h.status
	}
	if h.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		stirred := hint.New()
		h.asking.Go(func() { h.follow(ctx, stirred) })
		h.asking.Go(func() { h.look(ctx, stirred) })
	} else if h.anew != nil {
		h.anew()
	}
	return c
}

func (h *hub) leave(c chan []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.viewers[c] {
		delete(h.viewers, c)
		close(c)
	}
	if len(h.viewers) == 0 && h.stop != nil {
		h.stop()
		h.stop, h.since, h.status = nil, time.Now(), nil
	}
}

// idle returns since when nobody looks; zero: somebody does.
func (h *hub) idle() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since
}

// tell sends a message to all viewers of ctx.
func (h *hub) tell(ctx context.Context, m *message) {
	text, err := json.Marshal(m)
	if err != nil {
		return // the replies of execd were JSON
	}
	text = append(text, '\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if m.Status != nil {
		h.status = text
	}
	for c := range h.viewers {
		select {
		case c <- text:
		default:
			delete(h.viewers, c)
			close(c)
		}
	}
}

// follow tells of changes of the timeline until nobody looks, and has look know of them.
func (h *hub) follow(ctx context.Context, stirred hint.Chan) {
	cursor := ""
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, pollTime)
		h.mu.Lock()
		h.anew = cancel
		if h.fresh {
			cursor, h.fresh = "", false
		}
		h.mu.Unlock()
		var reply api.TimelineReply
		err := h.client.Call(asking, api.VerbTimeline, &api.TimelineRequest{Since: cursor, Wait: true}, &reply)
		again := asking.Err() != nil
		cancel()
		switch {
		case err == nil:
			cursor = reply.Cursor
			if len(reply.Runs) > 0 || reply.Whole {
				h.tell(ctx, &message{Timeline: &reply})
			}
			stirred.Give()
		case !again:
			h.tell(ctx, &message{Error: api.Visible(err.Error())})
			pause(ctx, retryPace)
		}
	}
}

// look tells of jobs and of the host until nobody looks.
func (h *hub) look(ctx context.Context, stirred <-chan struct{}) {
	var told time.Time // of the host
	for ctx.Err() == nil {
		var m message
		var top api.TopReply
		asking, cancel := context.WithTimeout(ctx, askTime)
		err := h.client.Call(asking, api.VerbTop, &api.TopRequest{}, &top)
		if m.Top = &top; err == nil && time.Since(told) >= statusPace {
			var status api.StatusReply
			var host api.HostReply
			if err = h.client.Call(asking, api.VerbStatus, &api.StatusRequest{}, &status); err == nil {
				err = h.client.Call(asking, api.VerbHost, &api.HostRequest{}, &host)
			}
			m.Status, m.Others, told = &status, host.Others, time.Now()
		}
		cancel()
		if err == nil { // follow tells of what is wrong
			h.tell(ctx, &m)
		}
		pause(ctx, soonest)
		select {
		case <-ctx.Done():
		case <-stirred:
		case <-time.After(topPace - soonest):
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
