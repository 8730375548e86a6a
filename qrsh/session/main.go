// Command qrsh-session is the job's side of an interactive job: it carries the
// streams or the terminal of the job to the client qrsh and back. The shepherd
// starts it beside the job, as the job's owner and with nothing but
// descriptors, and tells it through the first of them where the client is and
// how the job has ended (package spool, file session). A lost client may
// come back. qrsh-session imports spool, qrsh/wire and qrsh/internal/term.
package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/qrsh/internal/term"
	"paddock/qrsh/wire"
	"paddock/spool"
)

const (
	// connectTime is how long a handshake may take: the client waits for the
	// connection.
	connectTime = 30 * time.Second
	// hangupTime is how long a client that closes the connection is tried
	// again, and redialAfter the time between two tries.
	hangupTime  = 15 * time.Second
	redialAfter = 200 * time.Millisecond
	// lastGrace is how long a client that is lost after the end of the job is waited
	// for, if a lost client is otherwise waited for as long as the job runs.
	lastGrace = 60 * time.Second
	// farewell is how long a client has to take the end of the job when the host stops.
	farewell = 2 * time.Second
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "qrsh-session: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == wordCommand {
		status, err := runCommand(args[1])
		if err != nil {
			fmt.Fprintf(os.Stderr, "qrsh: %v\n", err)
		}
		os.Exit(status)
	}
	// Other processes of the owner must not read the token from the memory of
	// this one.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become undumpable: %w", err)
	}
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, unix.SIGTERM)
	terminal := len(args) == 2 && args[1] == spool.SessionWithTerminal
	daemon := len(args) == 3 && args[1] == spool.SessionWithDaemon
	if len(args) != 1 && !terminal && !daemon {
		return errors.New("it is started by the shepherd alone")
	}
	grace, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("cannot read the grace time: %w", err)
	}
	shepherd, err := socket(spool.SessionSocket)
	if err != nil {
		return fmt.Errorf("cannot use the socket of the shepherd: %w", err)
	}
	over := make(chan struct{})
	s := &session{shepherd: shepherd, grace: time.Duration(grace) * time.Second, over: over, finish: sync.OnceFunc(func() { close(over) })}
	s.link = wire.New(s.message)
	if daemon {
		err = newDaemon(s, args[2])
	} else {
		err = s.streams(terminal)
	}
	if err != nil {
		return err
	}
	return s.listen(stops)
}

// socket returns a descriptor as the socket that it is.
func socket(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "shepherd")
	defer f.Close()
	return net.FileConn(f)
}

// session is the session of one interactive job.
type session struct {
	shepherd net.Conn
	grace    time.Duration // negative: for ever
	link     *wire.Link
	terminal *os.File // nil: the job has none
	daemon   *daemon  // nil: the job is not a daemon
	notes    *notes   // the job's standard error; nil: it is a daemon

	over   chan struct{} // closed when the client has received everything, or is not waited for any more
	finish func()        // closes it

	mu       sync.Mutex
	ready    bool               // guarded by mu; a client was connected
	begun    bool               // guarded by mu; the job may begin
	ended    bool               // guarded by mu; the job has ended
	stops    bool               // guarded by mu; the host does
	deleted  bool               // guarded by mu; somebody has ended the job
	number   int                // guarded by mu; of the client
	leave    context.CancelFunc // guarded by mu; ends the connection of the client
	patience *time.Timer        // guarded by mu; runs while a lost client is waited for
}

// say sends words to the shepherd.
func (s *session) say(words ...string) {
	_, _ = s.shepherd.Write([]byte(strings.Join(words, " "))) // listen ends when the shepherd is gone
}

// streams takes over the other ends of the job's streams.
func (s *session) streams(terminal bool) error {
	open := func(fd int) (*os.File, error) {
		// Non-blocking, so that a read needs no thread and can be interrupted.
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, fmt.Errorf("cannot use descriptor %d: %w", fd, err)
		}
		unix.CloseOnExec(fd)
		return os.NewFile(uintptr(fd), "stream"), nil
	}
	if terminal {
		f, err := open(spool.SessionTerminal)
		if err != nil {
			return err
		}
		s.terminal = f
		s.link.Sink(wire.Stdin, keyboard{s, f})
		s.link.Source(wire.Stdout, f, f)
		diag, err := open(spool.SessionNotes)
		if err != nil {
			return err
		}
		s.note(diag)
		return nil
	}
	var files [3]*os.File
	for i := range files {
		var err error
		if files[i], err = open(spool.SessionStdin + i); err != nil {
			return err
		}
	}
	s.link.Sink(wire.Stdin, files[0])
	s.link.Source(wire.Stdout, files[1], files[1])
	s.note(files[2])
	return nil
}

// note carries the standard error of the job, and the output of prolog and epilog.
func (s *session) note(f *os.File) {
	s.notes = &notes{s, f}
	s.link.Source(wire.Stderr, s.notes, s.notes)
}

// notes is the pipe of the job's standard error, to which prolog and epilog write,
// too. Processes that they have left behind may keep it open: once the job is over,
// its end is where nothing is left in it.
type notes struct {
	*session
	pipe *os.File
}

// Read reads the pipe, after the end of the job without waiting. When all was read,
// and taken by the client, it looks for more a last time: a writer may have waited
// for room.
func (n *notes) Read(b []byte) (int, error) {
	got, err := n.pipe.Read(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return got, err
	}
	for last := false; ; last = true {
		control(n.pipe, func(fd int) {
			for got, err = unix.Read(fd, b); errors.Is(err, unix.EINTR); {
				got, err = unix.Read(fd, b)
			}
		})
		if got > 0 {
			return got, nil
		}
		if last || !errors.Is(err, unix.EAGAIN) {
			return 0, io.EOF
		}
		n.link.Taken(wire.Stderr)
	}
}

// end is called when the job with prolog and epilog is over.
func (n *notes) end() { _ = n.pipe.SetReadDeadline(time.Now()) }

// Close is called when the client wants no more. The job learns it from the
// pipe; for prolog and epilog the shepherd is told.
func (n *notes) Close() error {
	err := n.pipe.Close()
	n.say(spool.SessionDeaf)
	return err
}

// keyboard writes keys to the job's terminal. Its end is written as a key, too.
type keyboard struct {
	*session
	terminal *os.File
}

func (k keyboard) Write(b []byte) (int, error) {
	k.early(b)
	return k.terminal.Write(b)
}

// early has the shepherd keep the signals that are typed before the job has the
// terminal: no process would get them.
func (k keyboard) early(b []byte) {
	control(k.terminal, func(fd int) {
		if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group != 0 {
			return
		}
		mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil || mode.Lflag&unix.ISIG == 0 {
			return
		}
		for key, sig := range map[int]unix.Signal{unix.VINTR: unix.SIGINT, unix.VQUIT: unix.SIGQUIT} {
			if c := mode.Cc[key]; c != 0 && bytes.IndexByte(b, c) >= 0 {
				k.say(spool.SessionSignal, strconv.Itoa(int(sig)))
			}
		}
	})
}

func (k keyboard) Close() error {
	var mode *unix.Termios
	control(k.terminal, func(fd int) { mode, _ = unix.IoctlGetTermios(fd, unix.TCGETS) })
	if mode != nil && mode.Lflag&unix.ICANON != 0 {
		_, err := k.terminal.Write([]byte{mode.Cc[unix.VEOF]})
		return err
	}
	return nil
}

// control calls a function with the descriptor of a file, which stays non-blocking.
func control(f *os.File, do func(fd int)) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { do(int(fd)) })
	}
}

// listen handles words of the shepherd until it is gone, or the client has
// received everything. SIGTERM, which comes by stops, is sent to all processes when the
// host stops.
func (s *session) listen(stops <-chan os.Signal) error {
	said := make(chan string)
	go func() {
		defer close(said)
		b := make([]byte, spool.MaxSessionMessage)
		for {
			n, err := s.shepherd.Read(b)
			if err != nil || n == 0 {
				return
			}
			said <- string(b[:n])
		}
	}()
	for {
		select {
		case <-s.over:
			s.say(spool.SessionBye)
			return nil
		case <-stops:
			s.mu.Lock()
			s.stops = true
			if s.ended {
				s.hurry()
			}
			s.mu.Unlock()
		case text, ok := <-said:
			if !ok {
				return nil // the shepherd is dead, and so is the job
			}
			if err := s.hear(text); err != nil {
				return err
			}
		}
	}
}

// hear handles one message of the shepherd.
func (s *session) hear(text string) error {
	word, rest, _ := strings.Cut(text, " ")
	switch word {
	case spool.SessionClient:
		client, err := spool.ParseSession([]byte(rest))
		if err != nil {
			return err
		}
		go s.connect(&client)
	case spool.SessionState:
		s.link.Post(wire.State{Suspended: rest == "stop"})
	case spool.SessionDeleted:
		s.mu.Lock()
		s.deleted = true
		s.mu.Unlock()
	case spool.SessionExit:
		status, reason, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseUint(status, 10, 16)
		if err != nil {
			return fmt.Errorf("cannot read an exit status: %w", err)
		}
		s.exit(wire.Exit{Status: uint16(n), Reason: reason})
	default:
		return fmt.Errorf("the shepherd says %q", word)
	}
	return nil
}

// message handles one message of the client.
func (s *session) message(m wire.Message) {
	switch m := m.(type) {
	case wire.WindowSize:
		if s.terminal != nil {
			// The kernel signals the processes at the terminal.
			size := unix.Winsize{Row: m.Rows, Col: m.Columns, Xpixel: m.Width, Ypixel: m.Height}
			control(s.terminal, func(fd int) { _ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size) })
			s.begin()
		}
	case wire.Modes:
		s.setModes(m)
	case wire.Signal:
		s.say(spool.SessionSignal, strconv.Itoa(int(m.Number)))
	case wire.Status:
		if s.daemon != nil {
			s.daemon.ended(m.Status)
		}
	case wire.Bye:
		s.finish()
	}
}

// setModes sets the modes of the job's terminal to those of the user's. Once
// the job runs it may change them.
func (s *session) setModes(m wire.Modes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal == nil || s.begun {
		return
	}
	control(s.terminal, func(fd int) {
		if mode, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			term.Decode(m, mode)
			_ = unix.IoctlSetTermios(fd, unix.TCSETS, mode)
		}
	})
}

// begin tells the shepherd to begin the job, once.
func (s *session) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		s.begun = true
		s.say(spool.SessionReady)
	}
}

// exit tells the client that the job has ended. Without a client nobody waits
// for the rest; a client that was never connected learns the end from execd.
func (s *session) exit(e wire.Exit) {
	if s.notes != nil {
		s.notes.end()
	}
	s.link.Post(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	switch {
	case !s.ready || s.leave == nil && (s.patience == nil || s.deleted):
		s.finish()
	case s.stops:
		s.hurry()
	}
}

// hurry is called when the job has ended and the host stops. The host waits for this
// process: a lost client, which most likely was on it, is not waited for any longer, and
// another one for a moment. The caller holds mu.
func (s *session) hurry() {
	if s.leave == nil {
		s.finish()
		return
	}
	time.AfterFunc(farewell, s.finish)
}

// connect connects to a client, in place of the present one, and serves it
// until it is lost.
func (s *session) connect(client *spool.Session) {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	s.mu.Lock()
	if client.Number <= s.number {
		s.mu.Unlock()
		return
	}
	s.number = client.Number
	if s.leave != nil {
		s.leave()
	}
	s.leave = leave
	if s.patience != nil {
		s.patience.Stop()
		s.patience = nil
	}
	s.mu.Unlock()

	err := s.serve(ctx, client)
	s.mu.Lock()
	defer s.mu.Unlock()
	if client.Number != s.number {
		return // another client has taken its place
	}
	s.leave = nil
	select {
	case <-s.over:
		return
	default:
	}
	wait := s.grace
	switch {
	case !s.ready, (s.stops || s.deleted) && s.ended:
		wait = 0 // no client was connected that could come back, or it is not waited for
	case wait < 0 && s.ended:
		wait = lastGrace
	case wait < 0:
		return
	}
	s.patience = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if client.Number != s.number {
			return
		}
		why := reason(err)
		if s.daemon != nil {
			s.daemon.giveUp("the client is lost: " + why)
		}
		s.say(spool.SessionLost, why)
		s.patience = nil
		if s.ended {
			s.finish()
		}
	})
}

// reason returns in one line why a client is lost.
func reason(err error) string {
	if err == nil || errors.Is(err, io.EOF) {
		return "the client has closed the connection"
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// serve uses one connection until it is closed.
func (s *session) serve(ctx context.Context, client *spool.Session) error {
	var fingerprint wire.Fingerprint
	var token wire.Token
	// ParseSession has checked them.
	_, _ = hex.Decode(fingerprint[:], []byte(client.Fingerprint))
	_, _ = hex.Decode(token[:], []byte(client.Token))
	secure, has, err := s.dialPatiently(ctx, client.Address, fingerprint, token)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { secure.Close() })
	defer stop()
	s.mu.Lock()
	if s.begun || s.ready || s.terminal == nil { // else it begins with the size of the user's
		s.begun = true
		s.say(spool.SessionReady) // a job that was stopped may go on, too
	}
	s.ready = true
	s.mu.Unlock()
	return s.link.Run(secure, has)
}

// dialPatiently connects to the client. It tries again when the client closes
// the connection: others may have used up its handshakes for some seconds, or
// it may have timed out while this host stood still.
func (s *session) dialPatiently(ctx context.Context, address string, fingerprint wire.Fingerprint, token wire.Token) (*wire.Conn, wire.Positions, error) {
	for until := time.Now().Add(hangupTime); ; {
		conn, has, err := s.dial(ctx, address, fingerprint, token)
		hungUp := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) ||
			errors.Is(err, unix.EAGAIN) // of a Unix socket to which more have connected than it holds
		if !hungUp || time.Now().After(until) {
			return conn, has, err
		}
		select {
		case <-ctx.Done():
			return nil, has, err
		case <-time.After(redialAfter):
		}
	}
}

// dial connects once.
func (s *session) dial(ctx context.Context, address string, fingerprint wire.Fingerprint, token wire.Token) (*wire.Conn, wire.Positions, error) {
	dialer := net.Dialer{Timeout: connectTime}
	network := "tcp"
	if spool.LocalAddress(address) {
		network = "unix"
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, wire.Positions{}, fmt.Errorf("cannot connect to the client: %w", err)
	}
	if err := wire.KeepAlive(conn); err != nil {
		conn.Close()
		return nil, wire.Positions{}, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(connectTime))
	secure, has, err := s.link.Offer(conn, fingerprint, token)
	if err != nil {
		conn.Close()
		return nil, has, fmt.Errorf("cannot come to an understanding with the client at %s: %w", address, err)
	}
	_ = conn.SetDeadline(time.Time{})
	return secure, has, nil
}
