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

// daemon is an interactive job that is a daemon, like sshd. We listen in its
// place, so that root does not, and so that it never sees anybody but a process of
// the owner on this host: the connection goes to the starter stage of the job, which
// becomes the daemon with it.
type daemon struct {
	say     func(words ...string) // tells the shepherd
	post    func(wire.Message)    // tells the client
	stage   *net.UnixConn         // to the starter stage
	host    string
	program string // our own path
	limit   time.Duration

	mu       sync.Mutex
	listener net.Listener // guarded by mu; nil: none, or no more
	why      string       // guarded by mu; nobody is waited for any longer, and why; "": that is not so
	told     bool         // guarded by mu; who ran the command has said how it ended
}

// newDaemon takes the socket to the job's starter stage.
func newDaemon(s *session, host string) error {
	conn, err := socket(spool.SessionStdin)
	if err != nil {
		return fmt.Errorf("cannot use the socket of the job: %w", err)
	}
	stage, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("cannot use the socket of the job: it is of another family")
	}
	s.link.ForDaemon = true
	s.grace = 0 // the other connection cannot be made anew
	s.daemon = &daemon{say: s.say, post: s.link.Post, stage: stage, host: host, program: os.Args[0], limit: connectionTime}
	go s.daemon.serve()
	return nil
}

// serve waits for the stage, has the client connect, and hands the connection
// over.
func (d *daemon) serve() {
	defer d.stage.Close()
	submitted, err := spool.ReadCommand(d.stage)
	if err != nil {
		return // the job is not started
	}
	conn, err := d.await(&submitted)
	if err != nil {
		// The stage tells the shepherd, and the shepherd the client.
		_, _ = d.stage.Write([]byte(reason(err)))
		return
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		// The daemon expects it as inetd would give it.
		_ = unix.SetNonblock(int(fd), false)
		_, _, _ = d.stage.WriteMsgUnix([]byte{0}, unix.UnixRights(int(fd)), nil)
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

// ended is told how the client's program has ended. If the daemon has run
// something for it, that knows better.
func (d *daemon) ended(status uint16) {
	d.giveUp("the client's program has ended with status " + strconv.Itoa(int(status)) + " before")
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.told {
		d.say(spool.SessionStatus, strconv.Itoa(int(status&0xff)<<8))
	}
}

// offer has the command ready for whoever the daemon starts in the owner's name:
// one that asks is given it and says how it has ended. It returns the name by which we
// are asked.
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
			if peer, err := peerOf(conn); err == nil && int(peer.Uid) == os.Getuid() {
				listener.Close()
				d.give(conn, submitted)
				return
			}
			conn.Close()
		}
	}()
	return handle, nil
}

// give gives the command away, and waits for its end.
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
	_, _ = conn.Write(status[:1]) // the shepherd hears of it before the daemon can end
}

// atHandle is the name of the socket: one that no file stands for.
func atHandle(handle string) string { return "@paddock-qrsh-" + handle }

// statusSize is the length of a wait status.
const statusSize = 2

// peerOf returns who is at the other end.
func peerOf(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(err, failed)
}

// onlyThisHost makes a socket one that others hosts do not reach, under whatever
// address of this one the client's program comes. Where the kernel does not let
// us, before Linux 5.7, they are turned away by isOwners.
func onlyThisHost(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) { _ = unix.BindToDevice(int(fd), "lo") })
}
