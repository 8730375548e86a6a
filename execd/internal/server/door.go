package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/fair"
	"paddock/execd/internal/user"
)

// Clients get a part of the descriptors that execd may open, so that the rest is left
// for jobs.
const (
	descriptorsOfClients = 4 // the divisor
	maxConnections       = 1024
)

// maxStrangers bounds the users whose names are being looked up because execd has not
// seen them yet, and the connections of each that wait for that.
const maxStrangers = 64

// askers bounds the names that are looked up at the same time: each takes a process.
const askers = 4

// refusalsToldOf is how many refused connections a second are logged.
const refusalsToldOf = 1

// door is the listener for clients. It counts the connections of each user, and refuses
// those of users who have too many, or whom the host does not know, before it reads
// anything of a request. A refusal costs next to nothing, and waits for nothing.
type door struct {
	net.Listener
	users *user.Directory
	own   int // uid that needs no name on this host; -1: none
	most  int // connections of all users together but root
	log   *slog.Logger
	told  fair.Meter

	in    chan arrival  // what Accept returns
	done  chan struct{} // closed by Close
	close func() error  // called once
	ask   chan struct{} // has a place for each lookup of a name

	mu        sync.Mutex
	total     int             // guarded by mu; connections of users but root
	open      map[int]int     // guarded by mu; of them, by uid
	strangers map[int][]guest // guarded by mu; by uid
	seen      map[int]bool    // guarded by mu; uids that the host has known
}

// guest is a connection and its peer.
type guest struct {
	conn net.Conn
	cred *unix.Ucred
}

// arrival is a result of the listener.
type arrival struct {
	conn net.Conn
	err  error
}

// newDoor makes a door of a listener. own is the uid that needs no name, -1 for none.
func newDoor(l net.Listener, users *user.Directory, own int, log *slog.Logger) *door {
	d := &door{
		Listener: l, users: users, own: own, most: connections(), log: log, in: make(chan arrival), done: make(chan struct{}),
		ask: make(chan struct{}, askers), open: map[int]int{}, strangers: map[int][]guest{}, seen: map[int]bool{},
	}
	d.close = sync.OnceValue(func() error {
		close(d.done)
		return l.Close()
	})
	go d.run()
	return d
}

// connections returns how many connections users may have together.
func connections() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return maxConnections
	}
	return int(min(limit.Cur/descriptorsOfClients, maxConnections))
}

// Accept returns the next connection that was let in.
func (d *door) Accept() (net.Conn, error) {
	select {
	case a := <-d.in:
		return a.conn, a.err
	case <-d.done:
		return nil, net.ErrClosed
	}
}

// Close closes the listener.
func (d *door) Close() error { return d.close() }

// run takes connections until the listener is closed.
func (d *door) run() {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			if !d.hand(nil, err) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		d.meet(c)
	}
}

// hand has Accept return something; false: Accept is not called any more.
func (d *door) hand(c net.Conn, err error) bool {
	select {
	case d.in <- arrival{c, err}:
		return true
	case <-d.done:
		return false
	}
}

// meet lets a connection in or refuses it. It looks up the name of a user in another
// goroutine, so that no other connection waits for that.
func (d *door) meet(c net.Conn) {
	cred := credOf(c)
	if cred == nil {
		d.refuse(c, -1, api.Errorf(api.CodeDenied, "the kernel does not say who asks"))
		return
	}
	uid := int(cred.Uid)
	if uid == 0 || uid == d.own {
		d.admit(c, cred)
		return
	}
	d.mu.Lock()
	known := d.seen[uid]
	waiting := d.strangers[uid]
	crowded := !known && (len(waiting) == maxStrangers || waiting == nil && len(d.strangers) == maxStrangers)
	if !known && !crowded {
		d.strangers[uid] = append(waiting, guest{c, cred})
	}
	d.mu.Unlock()
	switch {
	case known:
		d.admit(c, cred)
	case crowded:
		d.refuse(c, uid, api.Errorf(api.CodeTryAgain, "too many ask for the first time, user %d among them; try again later", uid))
	case waiting == nil:
		go d.introduce(uid)
	}
}

// introduce looks up the name of a user.
func (d *door) introduce(uid int) {
	d.ask <- struct{}{}
	_, err := d.users.ByID(context.Background(), uid)
	<-d.ask
	d.mu.Lock()
	waiting := d.strangers[uid]
	delete(d.strangers, uid)
	if err == nil {
		d.seen[uid] = true
	}
	d.mu.Unlock()
	for _, w := range waiting {
		switch {
		case err == nil:
			d.admit(w.conn, w.cred)
		case errors.Is(err, user.ErrUnknown):
			d.refuse(w.conn, uid, api.Errorf(api.CodeDenied, "user %d is not known on this host", uid))
		default:
			d.refuse(w.conn, uid, api.Errorf(api.CodeInternal, "%v", err))
		}
	}
}

// admit lets a connection in if its user has fewer than are free. One user alone can
// have half of all, the next half of what is left, and some are always left. Root is
// not counted.
func (d *door) admit(c net.Conn, cred *unix.Ucred) {
	uid := int(cred.Uid)
	if uid != 0 {
		d.mu.Lock()
		n := d.open[uid]
		full := n >= d.most-d.total
		if !full {
			d.total++
			d.open[uid]++
		}
		d.mu.Unlock()
		if full {
			d.refuse(c, uid, api.Errorf(api.CodeTryAgain, "user %d has %d connections to execd open, and may have no more now; try again later", uid, n))
			return
		}
	}
	v := &visitor{Conn: c, cred: cred}
	v.close = sync.OnceValue(func() error {
		if uid != 0 {
			d.left(uid)
		}
		return c.Close()
	})
	if !d.hand(v, nil) {
		_ = v.Close()
	}
}

// left notes that a connection is over.
func (d *door) left(uid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total--
	if d.open[uid]--; d.open[uid] == 0 {
		delete(d.open, uid)
	}
}

// refuse says why a connection is not let in, without reading the request. The buffer
// of a new connection has room for that, so the client need not read it.
func (d *door) refuse(c net.Conn, uid int, why *api.Error) {
	if d.told.Take(0, refusalsToldOf, time.Now()) == 0 { // one meter for all, since there may be very many users
		d.log.Warn(fmt.Sprintf("execd: refused a connection of user %d: %s", uid, why.Text))
	}
	body, err := json.Marshal(why)
	if err == nil {
		status := statusOf(why.Code)
		_, err = fmt.Fprintf(c, "HTTP/1.0 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
			status, http.StatusText(status), len(body), body)
	}
	if err != nil {
		d.log.Debug(fmt.Sprintf("cannot refuse a connection: %v", err))
	}
	_ = c.Close() // an error of it does not matter
}

// visitor is a connection that was let in.
type visitor struct {
	net.Conn
	cred  *unix.Ucred
	close func() error // called once; tells the door
}

// Close ends the connection.
func (v *visitor) Close() error { return v.close() }

// LimitListener returns a listener that has at most so many connections open at a time.
// Others wait until one of them is closed.
func LimitListener(l net.Listener, most int) net.Listener {
	return &limited{Listener: l, places: make(chan struct{}, most)}
}

type limited struct {
	net.Listener
	places chan struct{} // has a place for each connection that is open
}

// Accept returns the next connection when there is a place for it.
func (l *limited) Accept() (net.Conn, error) {
	l.places <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &visitor{Conn: c, close: sync.OnceValue(func() error {
		<-l.places
		return c.Close()
	})}, nil
}
