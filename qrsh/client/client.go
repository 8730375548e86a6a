// Package client is the user's end of an interactive job: it listens for the
// job's side, carries the streams of the user's terminal, and returns how the
// job has ended. The commands of qsub import it; it imports execd/api,
// qrsh/wire and qrsh/internal/term.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/qrsh/internal/term"
	"paddock/qrsh/wire"
)

const (
	// handshakeTime is how long a handshake may take.
	handshakeTime = 5 * time.Second
	// maxHandshakes is how many handshakes may go on at once.
	maxHandshakes = 16
	// tellTime is how long a connected session has to send the end of the job
	// after execd has said that the job is over.
	tellTime = 5 * time.Second
	// A session that does not connect is asked to again after callAgain, and an
	// execd that does not answer after askAgain, for patience in all.
	callAgain = 10 * time.Second
	askAgain  = time.Second
	patience  = 5 * time.Minute
	// killed is the exit status of a job that SIGKILL has ended.
	killed = 128 + uint16(unix.SIGKILL)
)

// Client is the user's end of an interactive job. The exported fields are set
// before it is used.
type Client struct {
	Execd    *api.Client
	Address  string   // of this host, for the session to connect to; empty: a Unix socket's
	Keyboard *os.File // standard input; its terminal, if it is one, is made raw
	Raw      bool     // the job has a terminal, which the keys are for
	In       io.Reader
	Out, Err io.Writer // which stay open
	Verbose  func(format string, args ...any)
	Notice   func(format string, args ...any) // tells the user at a terminal
	Suspend  bool                             // ^Z at the client suspends the job, too
	Escape   byte                             // begins what is for the client, at the beginning of a line on a terminal
	Program  *Program                         // nil: the streams are the session's

	// Task is the task in a job that this is the client of; nil: it is the
	// client of a whole job.
	Task *api.TaskEndRequest

	terminal *term.Terminal // nil: Keyboard is none
	listener net.Listener
	identity tls.Certificate
	print    string // of identity, its fingerprint in hexadecimal; empty at a Unix socket

	link  *wire.Link
	heard chan os.Signal
	leave context.CancelCauseFunc // has Follow return, for this reason
	exit  chan wire.Exit
	lost  chan closed // each connection that has ended

	using sync.Mutex // held while there is a connection

	mu        sync.Mutex
	token     wire.Token // guarded by mu; what the next connection must have
	begun     bool       // guarded by mu; the streams are
	called    bool       // guarded by mu; the session is
	connected bool       // guarded by mu
	unwritten error      // guarded by mu; why output of the job could not be written, the first
}

// closed is the end of a connection, with the reason.
type closed struct{ why error }

// Listen begins to listen for the session, and returns where.
func (c *Client) Listen() (api.Listener, error) {
	c.terminal = term.Open(c.Keyboard)
	if err := c.listen(); err != nil {
		return api.Listener{}, err
	}
	c.exit, c.lost = make(chan wire.Exit, 1), make(chan closed, 1)
	c.link = wire.New(c.message)
	// From here on signals are caught: one that comes while the job is being
	// submitted is meant for it.
	c.heard = make(chan os.Signal, 8)
	signal.Notify(c.heard, append(Endings(), unix.SIGWINCH, unix.SIGCONT)...)
	if !signal.Ignored(unix.SIGTSTP) {
		signal.Notify(c.heard, unix.SIGTSTP)
	}
	return c.newToken(), nil
}

// listen listens at the address, or, since usually the session runs on this host, at an abstract
// Unix socket, whose name nobody else can have.
func (c *Client) listen() (err error) {
	network, address := "unix", "@paddock-qrsh-"+rand.Text()
	if c.Address != "" {
		network, address = "tcp", net.JoinHostPort(c.Address, "0")
		var fingerprint wire.Fingerprint
		if c.identity, fingerprint, err = wire.NewIdentity(); err != nil {
			return err
		}
		c.print = hex.EncodeToString(fingerprint[:])
	}
	if c.listener, err = net.Listen(network, address); err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	return nil
}

// Endings returns the signals that end the client or the job. Signals that were
// ignored when the program was started are left out.
func Endings() []os.Signal {
	list := []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP}
	return slices.DeleteFunc(list, signal.Ignored)
}

// Heed is [signal.Notify] except for signals that were ignored when the program
// was started, by nohup(1) or by a shell that started it in the background:
// these stay ignored.
func Heed(heard chan<- os.Signal, list ...os.Signal) {
	if list = slices.DeleteFunc(list, signal.Ignored); len(list) > 0 { // none would be all
		signal.Notify(heard, list...)
	}
}

// newToken returns the listener with a new token for the next connection.
func (c *Client) newToken() api.Listener {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = wire.NewToken()
	return api.Listener{Address: c.listener.Addr().String(), Fingerprint: c.print, Token: hex.EncodeToString(c.token[:])}
}

// serve accepts connections until the listener is closed.
func (c *Client) serve() {
	defer c.guard()
	places := make(chan struct{}, maxHandshakes)
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		select {
		case places <- struct{}{}:
			go func() {
				c.greet(conn)
				<-places
			}()
		default:
			conn.Close()
		}
	}
}

// greet does the handshake of a connection, and then serves it until it is closed.
func (c *Client) greet(conn net.Conn) {
	defer c.guard()
	defer conn.Close()
	c.mu.Lock()
	token := c.token
	c.mu.Unlock()
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	secure, has, err := c.link.Accept(conn, c.identity, token)
	if err != nil {
		from := conn.RemoteAddr().String()
		if c.Address == "" {
			from = "this host"
		}
		c.Verbose("refused a connection from %s: %v", from, err)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if err := wire.KeepAlive(conn); err != nil {
		c.Verbose("%v", err)
	}
	c.using.Lock()
	defer c.using.Unlock()
	c.mu.Lock()
	if token != c.token { // two at once
		c.mu.Unlock()
		return
	}
	c.token, c.connected = wire.NewToken(), true // this one has served
	if !c.begun {
		c.begun = true
		c.begin()
	} else {
		c.Verbose("connected again")
	}
	c.mu.Unlock()
	err = c.link.Run(secure, has)
	c.mu.Lock()
	c.connected = false
	c.mu.Unlock()
	select {
	case c.lost <- closed{err}:
	default:
	}
}

// begin begins the streams. Before there is a connection nothing is read: keys
// that are typed stay in the terminal.
func (c *Client) begin() {
	if c.Program != nil {
		return // it has them
	}
	in := c.In
	if c.terminal != nil && in == io.Reader(c.Keyboard) {
		in = c.terminal
	}
	if c.Raw {
		c.takeTerminal()
		if c.terminal != nil && c.Escape != NoEscape {
			in = &escapes{from: in, char: c.Escape, do: c.escape}
		}
	}
	c.link.Source(wire.Stdin, in, nil)
	c.link.Sink(wire.Stdout, output{c.Out, c, "standard output"})
	diag := c.Err
	if f, ok := diag.(*os.File); ok && c.Raw && c.terminal != nil && term.Is(f) {
		diag = cooked{f} // which has no more than what prolog and epilog say
	}
	c.link.Sink(wire.Stderr, output{diag, c, "standard error"})
}

// takeTerminal sets the terminal to raw mode, and sends its modes and size for
// the terminal of the job.
func (c *Client) takeTerminal() {
	if c.terminal == nil {
		c.link.Post(noTerminal)
		return
	}
	if modes, err := c.terminal.Modes(); err == nil {
		c.link.Post(modes)
	}
	if err := c.terminal.Raw(); err != nil {
		c.Verbose("cannot set the terminal to raw mode: %v", err)
	}
	c.resized()
}

// noTerminal is the size of the job's terminal where the user has none, as in
// Grid Engine.
var noTerminal = wire.WindowSize{Rows: 60, Columns: 80, Width: 480, Height: 640}

// escape does what a key behind the escape character asks for.
func (c *Client) escape(key byte) (end bool) {
	switch key {
	case escapeLeave:
		c.leave(ErrLeft)
		return true
	case escapeSuspend:
		_ = unix.Kill(0, unix.SIGTSTP) // as the terminal would: all that the shell has started together
	case escapeHelp:
		for line := range strings.SplitSeq(escapeHelpText(c.Escape), "\n") {
			c.Notice("%s", line)
		}
	}
	return false
}

// output is where a stream of the job goes. Close does not close it: the client may still
// write to it.
type output struct {
	io.Writer
	client *Client
	name   string
}

func (o output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if err != nil && !errors.Is(err, unix.EPIPE) { // who does not read any more has what he wants
		o.client.mu.Lock()
		o.client.unwritten = cmp.Or(o.client.unwritten, fmt.Errorf("cannot write %s: %w", o.name, err))
		o.client.mu.Unlock()
	}
	return n, err
}

func (output) Close() error { return nil }

// Unwritten returns why output of the job could not be written, of which the job knows
// no more than that nobody reads it; nil: all of it was, or nobody wanted it.
func (c *Client) Unwritten() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unwritten
}

// cooked writes lines to a raw terminal, in which a newline does not go back to
// the first column.
type cooked struct{ io.Writer }

func (c cooked) Write(b []byte) (int, error) {
	if _, err := c.Writer.Write(bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// resized sends the size of the terminal.
func (c *Client) resized() {
	if c.terminal == nil {
		return
	}
	size, err := c.terminal.Size()
	if err != nil {
		size = noTerminal
	}
	c.link.Post(size)
}

// message handles a message of the session.
func (c *Client) message(m wire.Message) {
	switch m := m.(type) {
	case wire.State:
		if m.Suspended {
			c.Notice("the job is suspended")
		} else {
			c.Notice("the job goes on")
		}
	case wire.Daemon:
		if c.Program != nil {
			c.Program.begin(func() { c.runProgram(m) })
		}
	case wire.Exit:
		select {
		case c.exit <- m:
		default: // said again
		}
	}
}

// Begun reports whether there has been a connection.
func (c *Client) Begun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

// signals handles the signals that the client gets.
func (c *Client) signals(ctx context.Context) {
	defer c.guard()
	defer signal.Stop(c.heard)
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-c.heard:
			c.signal(sig.(syscall.Signal))
		}
	}
}

// signal handles one signal.
func (c *Client) signal(sig syscall.Signal) {
	switch sig {
	case unix.SIGWINCH:
		if c.Raw && c.Begun() {
			c.resized()
		}
	case unix.SIGTSTP:
		c.stop()
	case unix.SIGCONT:
		c.goOn()
	case unix.SIGTERM, unix.SIGHUP:
		c.leave(Signaled{sig})
	default:
		if !c.Begun() {
			c.leave(Signaled{sig})
			return
		}
		c.link.Post(wire.Signal{Number: uint8(sig)})
	}
}

// stop stops the client, if there is a shell that can continue it.
func (c *Client) stop() {
	if session, err := unix.Getsid(0); err != nil || session == unix.Getpgrp() {
		c.Notice("cannot be suspended: no shell is there to continue it")
		return
	}
	if c.Suspend {
		c.link.Post(wire.Signal{Number: uint8(unix.SIGTSTP)})
	}
	c.terminal.Restore()
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
}

// goOn follows stop. Meanwhile the terminal may have had another user.
func (c *Client) goOn() {
	if !c.Begun() {
		return
	}
	if c.Suspend {
		c.link.Post(wire.Signal{Number: uint8(unix.SIGCONT)})
	}
	if c.Raw {
		c.resized() // ahead of what is typed at the raw terminal
		_ = c.terminal.Raw()
	}
}

// guard restores the terminal before a panic ends the program.
func (c *Client) guard() {
	if why := recover(); why != nil {
		c.terminal.Restore()
		panic(why)
	}
}

// ErrLost is matched when the connection is lost and was not made again in time.
var ErrLost = errors.New("connection lost")

// ErrLeft is matched when the user has left the job by the escape character.
var ErrLeft = errors.New("left")

// Signaled is the error of a client that a signal has ended before the end of the job.
type Signaled struct{ Signal syscall.Signal }

func (s Signaled) Error() string { return "ended by signal " + unix.SignalName(s.Signal) }

// ExitSignaled plus the number of the signal is the exit status of what a signal
// has ended, as in shells.
const ExitSignaled = 128

// Exit returns the exit status.
func (s Signaled) Exit() int { return ExitSignaled + int(s.Signal) }

// Follow stays connected to a job until it has ended, and returns how it has
// ended. cursor is where to begin a WaitRequest for the job. The terminal is
// restored when Follow returns.
func (c *Client) Follow(ctx context.Context, job int, cursor string) (wire.Exit, error) {
	ctx, c.leave = context.WithCancelCause(ctx)
	defer c.leave(nil)
	stop := context.AfterFunc(ctx, c.link.Close)
	defer stop()
	if c.Program == nil {
		// A closed standard output must not end the client: the job gets the SIGPIPE.
		signal.Ignore(unix.SIGPIPE)
		go c.signals(ctx)
	} else {
		c.Program.over = make(chan struct{})
		defer c.Program.end()
	}
	if c.Task != nil {
		// The warning signals of a job are for its script, which has called
		// this client.
		signal.Ignore(unix.SIGUSR1, unix.SIGUSR2)
	}
	go c.serve()
	defer c.listener.Close()
	defer c.terminal.Release()
	type end struct {
		exit wire.Exit
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		e, err := c.endOf(ctx, job, cursor)
		ended <- end{e, err}
	}()
	var late, again <-chan time.Time
	var told end
	var answered time.Time // by execd, while there is no connection
	if c.Task == nil && c.isCalled() {
		answered, again = time.Now(), time.After(callAgain)
	}
	for {
		select {
		case e := <-c.exit:
			c.link.Written()
			c.link.Post(wire.Bye{})
			c.link.Close()
			c.using.Lock() // the goodbye is on its way, or nobody is there to hear it
			c.using.Unlock()
			// The next command is to find the slot free and the job accounted.
			// The slot of a task is free by now: the task was about to exit
			// when the end was sent.
			if ended != nil && c.Task == nil {
				select {
				case told = <-ended:
				case <-time.After(tellTime):
				}
			}
			if e.Reason == "" && e.Status == killed {
				e.Reason = told.exit.Reason // who has killed it, execd knows
			}
			return e, nil
		case told = <-ended:
			ended = nil
			if ctx.Err() != nil {
				continue // it was asked to leave
			}
			if !c.isConnected() && len(c.exit) == 0 { // and nobody is left to connect
				return told.exit, told.err
			}
			late = time.After(tellTime)
		case <-late:
			return told.exit, told.err
		case <-ctx.Done():
			return wire.Exit{}, context.Cause(ctx)
		case connection := <-c.lost:
			if ctx.Err() != nil || len(c.exit) > 0 {
				continue
			}
			if ended == nil {
				return told.exit, told.err
			}
			if c.Program != nil { // whose connection is another one
				return wire.Exit{}, fmt.Errorf("%w: %w", ErrLost, cmp.Or(connection.why, io.EOF))
			}
			c.Verbose("connection lost (%v)", connection.why)
			if c.Task != nil {
				continue // which ends the task
			}
			answered, again = time.Now(), time.After(0)
		case <-again:
			again = nil
			if ended == nil || c.isConnected() {
				continue
			}
			// Execd may be unavailable, or the job may be over, which execd will say.
			switch _, err := c.Attach(ctx, job, c.newToken()); {
			case ctx.Err() != nil:
			case err == nil:
				answered, again = time.Now(), time.After(callAgain)
			case time.Since(answered) > patience:
				return wire.Exit{}, fmt.Errorf("%w: %w", ErrLost, err)
			default:
				again = time.After(askAgain)
			}
		}
	}
}

func (c *Client) isCalled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.called
}

func (c *Client) isConnected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connected
}

// Attach has the session of a job connect to this client, in place of the one
// that it has.
func (c *Client) Attach(ctx context.Context, job int, at api.Listener) (reply api.AttachReply, err error) {
	c.mu.Lock()
	c.called = true
	c.mu.Unlock()
	err = c.Execd.Call(ctx, api.VerbAttach, &api.AttachRequest{Job: job, Client: at}, &reply)
	return reply, err
}

// endOf waits until execd says how a job has ended.
func (c *Client) endOf(ctx context.Context, job int, cursor string) (wire.Exit, error) {
	if c.Task != nil {
		return c.endOfTask(ctx)
	}
	request := api.WaitRequest{Job: job, Cursor: cursor}
	for {
		var reply api.WaitReply
		err := c.Execd.Call(ctx, api.VerbWait, &request, &reply)
		if again(ctx, err) {
			continue
		}
		if err != nil {
			return wire.Exit{}, err
		}
		request.Cursor = reply.Cursor
		if len(reply.Ended) > 0 {
			return exitOf(&reply.Ended[0]), nil
		}
		switch {
		case reply.Error != "":
			return wire.Exit{Status: 1, Reason: reply.Error}, nil
		case reply.Done:
			return wire.Exit{Status: 1, Reason: "job " + strconv.Itoa(job) + " was deleted"}, nil
		}
	}
}

// exitOf returns the end of a task as the session would send it.
func exitOf(e *api.TaskEnd) wire.Exit {
	if e.Ran {
		return wire.Exit{Status: uint16(e.Exit), Reason: e.Reason}
	}
	return wire.Exit{Status: 1, Reason: e.Reason}
}

// again reports whether execd is being restarted; if so it waits a moment first.
func again(ctx context.Context, err error) bool {
	if !errors.Is(err, api.ErrUnreachable) || ctx.Err() != nil {
		return false
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	return true
}

// endOfTask waits until execd says how a task has ended.
func (c *Client) endOfTask(ctx context.Context) (wire.Exit, error) {
	for {
		var reply api.TaskEndReply
		err := c.Execd.Call(ctx, api.VerbTaskEnd, c.Task, &reply)
		switch e := reply.Ended; {
		case again(ctx, err):
		case err != nil:
			return wire.Exit{}, err
		case reply.Gone:
			return wire.Exit{Status: 1, Reason: "task " + c.Task.ID + " has ended"}, nil
		case e != nil:
			return exitOf(e), nil
		}
	}
}
