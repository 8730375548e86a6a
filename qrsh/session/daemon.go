package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/qrsh/wire"
	"paddock/spool"
)

// connectionTime is how long the client's program has to connect to the daemon.
const connectionTime = 60 * time.Second

// daemon is an interactive job that is a daemon, like sshd. The session listens
// in its place, so that root does not have to, and so that only processes of
// the owner on this host reach it. The connection is passed to the starter
// of the job, which becomes the daemon.
type daemon struct {
	say     func(words ...string) // tells the shepherd
	post    func(wire.Message)    // tells the client
	starter *net.UnixConn         // to the starter
	host    string
	program string // our own path
	limit   time.Duration

	mu       sync.Mutex
	listener net.Listener // guarded by mu; nil: not yet, or not any more
	why      string       // guarded by mu; why nobody is waited for any more; "": the client is
	told     bool         // guarded by mu; the end of the command is known
}

// newDaemon takes the socket to the job's starter.
func newDaemon(s *session, host string) error {
	conn, err := socket(spool.SessionStdin)
	if err != nil {
		return fmt.Errorf("cannot use the socket of the job: %w", err)
	}
	starter, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("cannot use the socket of the job: it is of another family")
	}
	s.link.ForDaemon = true
	s.grace = 0 // the connection to the daemon cannot be made again
	s.daemon = &daemon{say: s.say, post: s.link.Post, starter: starter, host: host, program: os.Args[0], limit: connectionTime}
	go s.daemon.serve()
	return nil
}

// serve waits for the starter, has the client connect, and passes the connection
// to the starter.
func (d *daemon) serve() {
	defer d.starter.Close()
	submitted, err := spool.ReadCommand(d.starter)
	if err != nil {
		return // the job was not started
	}
	conn, err := d.await(&submitted)
	if err != nil {
		// The starter reports the error to the shepherd, which tells the client.
		_, _ = d.starter.Write([]byte(reason(err)))
		return
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		// The daemon expects a connection in the form of inetd.
		_ = unix.SetNonblock(int(fd), false)
		_, _, _ = d.starter.WriteMsgUnix([]byte{0}, unix.UnixRights(int(fd)), nil)
	})
}

// await listens, tells the client where, and returns its connection.
func (d *daemon) await(submitted *spool.Command) (*net.TCPConn, error) {
	control := net.ListenConfig{Control: onlyThisHost}
	listener, err := control.Listen(context.Background(), "tcp", ":0")
	if err != nil {
		return nil, fmt.Errorf("cannot listen for the daemon: %w", err)
	}
	defer listener.Close()
	where := wire.Daemon{Port: uint16(listener.Addr().(*net.TCPAddr).Port), Host: d.host}
	if len(submitted.Argv) > 0 {
		where.Program = d.program
		if where.Handle, err = d.offer(submitted); err != nil {
			return nil, err
		}
	}
	d.mu.Lock()
	d.listener = listener
	why := d.why
	d.mu.Unlock()
	if why != "" {
		return nil, errors.New(why)
	}
	timer := time.AfterFunc(d.limit, func() {
		d.giveUp("the client's program has not connected within " + d.limit.String())
	})
	defer timer.Stop()
	d.post(where)
	for {
		conn, err := listener.Accept()
		if err != nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.why != "" {
				return nil, errors.New(d.why)
			}
			return nil, fmt.Errorf("cannot accept a connection for the daemon: %w", err)
		}
		tcp := conn.(*net.TCPConn)
		if isOwners(tcp) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.listener = nil
			return tcp, nil
		}
		conn.Close()
	}
}

// giveUp ends the wait for a connection.
func (d *daemon) giveUp(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why == "" {
		d.why = why
	}
	if d.listener != nil {
		d.listener.Close()
	}
}

// ended is called when the client's program has ended. The end of a command
// that the daemon has run counts more.
func (d *daemon) ended(status uint16) {
	d.giveUp("the client's program has ended with status " + strconv.Itoa(int(status)) + " before")
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.told {
		d.say(spool.SessionStatus, strconv.Itoa(int(status&0xff)<<8))
	}
}

// offer waits for the program that the daemon starts as the owner, gives it the
// command, and hears from it how the command has ended. It returns the handle
// for that program.
func (d *daemon) offer(submitted *spool.Command) (string, error) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	handle := hex.EncodeToString(b[:])
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: atHandle(handle)})
	if err != nil {
		return "", fmt.Errorf("cannot offer the command: %w", err)
	}
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			if wire.SameUser(conn) == nil {
				listener.Close()
				d.give(conn, submitted)
				return
			}
			conn.Close()
		}
	}()
	return handle, nil
}

// give sends the command to the program that runs it, and waits for the end.
func (d *daemon) give(conn *net.UnixConn, submitted *spool.Command) {
	defer conn.Close()
	if _, err := conn.Write(submitted.Append(nil)); err != nil {
		return
	}
	var status [statusSize]byte
	if _, err := io.ReadFull(conn, status[:]); err != nil {
		return
	}
	d.mu.Lock()
	d.told = true
	d.mu.Unlock()
	d.say(spool.SessionStatus, strconv.Itoa(int(status[0])<<8|int(status[1])))
	_, _ = conn.Write(status[:1]) // so the shepherd knows the end before the daemon can end
}

// atHandle returns the name of the socket, which is in the abstract namespace.
func atHandle(handle string) string { return "@paddock-qrsh-" + handle }

// statusSize is the length of a wait status.
const statusSize = 2

// onlyThisHost makes a socket unreachable for other hosts, whichever address of
// this host the client's program uses. Linux before 5.7 does not permit this;
// there isOwners turns others away.
func onlyThisHost(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) { _ = unix.BindToDevice(int(fd), "lo") })
}
