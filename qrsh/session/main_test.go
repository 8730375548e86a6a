package main

import (
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/qrsh/internal/term"
	"paddock/qrsh/wire"
	"paddock/spool"
	"paddock/test/harness"
)

// patience bounds every wait.
const patience = time.Minute

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "qrsh-session" {
		main()
		return
	}
	var err error
	if base, err = os.MkdirTemp("", "qrsh-session"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(base)
	os.Exit(code)
}

// base is a directory for what the tests share.
var base string

// bench has a session of its own, for which it plays shepherd, job and client.
type bench struct {
	*testing.T
	cmd      *exec.Cmd
	shepherd net.Conn
	// The job's ends; with a terminal in and out are its slave.
	in, out, diag *os.File

	listener net.Listener
	number   int
	full     int // how often the client hangs up first
}

func start(t *testing.T, grace int, terminal bool) *bench {
	t.Helper()
	b := &bench{T: t}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	far := os.NewFile(uintptr(pair[1]), "far")
	if b.shepherd, err = socket(pair[0]); err != nil {
		t.Fatal(err)
	}
	files := append(make([]*os.File, spool.SessionSocket-3), far)
	args := []string{"qrsh-session", strconv.Itoa(grace)}
	if terminal {
		master, slave, err := harness.OpenTerminal()
		if err != nil {
			t.Fatal(err)
		}
		noted, diag, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		b.diag = diag
		files, args = append(files, master, noted), append(args, spool.SessionWithTerminal)
		b.in, b.out = slave, slave
	} else {
		var theirs [3]*os.File
		for i, mine := range []**os.File{&b.in, &b.out, &b.diag} {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				*mine, theirs[i] = r, w
			} else {
				*mine, theirs[i] = w, r
			}
		}
		files = append(files, theirs[:]...)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b.cmd = &exec.Cmd{Path: self, Args: args, ExtraFiles: files, Env: []string{}, Stderr: os.Stderr}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
	if b.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.listener.Close()
		b.shepherd.Close()
		timer := time.AfterFunc(patience, func() { _ = b.cmd.Process.Kill() })
		defer timer.Stop()
		if err := b.cmd.Wait(); err != nil {
			t.Errorf("the session ended: %v", err)
		}
	})
	return b
}

// tell is what the shepherd says.
func (b *bench) tell(text string) {
	b.Helper()
	if _, err := b.shepherd.Write([]byte(text)); err != nil {
		b.Fatal(err)
	}
}

// hear waits for what the shepherd is told.
func (b *bench) hear(want string) {
	b.Helper()
	_ = b.shepherd.SetReadDeadline(time.Now().Add(patience))
	text := make([]byte, spool.MaxSessionMessage)
	n, err := b.shepherd.Read(text)
	if got := string(text[:n]); err != nil || !strings.HasPrefix(got, want) {
		b.Fatalf("the shepherd is told %q, %v; want %q", got, err, want)
	}
}

// hearEnd waits until the shepherd is told the end of the session, whatever it is told before.
func (b *bench) hearEnd() {
	b.Helper()
	_ = b.shepherd.SetReadDeadline(time.Now().Add(patience))
	for text := make([]byte, spool.MaxSessionMessage); ; {
		n, err := b.shepherd.Read(text)
		if err != nil {
			b.Fatalf("the shepherd is not told the end of the session: %v", err)
		}
		if string(text[:n]) == spool.SessionBye {
			return
		}
	}
}

// client is one that the session connects to.
type client struct {
	link *wire.Link
	conn net.Conn
	said chan wire.Message
	gone chan error
}

// connect has the session connect to a client, whose streams begin does.
func (b *bench) connect(begin func(*wire.Link)) *client {
	b.Helper()
	identity, fingerprint, err := wire.NewIdentity()
	if err != nil {
		b.Fatal(err)
	}
	token := wire.NewToken()
	b.number++
	file := spool.Session{
		Number: b.number, Address: b.listener.Addr().String(),
		Fingerprint: hex.EncodeToString(fingerprint[:]), Token: hex.EncodeToString(token[:]),
	}
	b.tell(spool.SessionClient + " " + string(file.Append(nil)))
	for range b.full {
		conn, err := b.listener.Accept()
		if err != nil {
			b.Fatal(err)
		}
		conn.Close()
	}
	c := &client{said: make(chan wire.Message, 10), gone: make(chan error, 1)}
	c.link = wire.New(func(m wire.Message) { c.said <- m })
	b.Cleanup(c.link.Close)
	if c.conn, err = b.listener.Accept(); err != nil {
		b.Fatal(err)
	}
	secure, has, err := c.link.Accept(c.conn, identity, token)
	if err != nil {
		b.Fatal(err)
	}
	begin(c.link)
	go func() { c.gone <- c.link.Run(secure, has) }()
	return c
}

func (b *bench) next(c *client) wire.Message {
	b.Helper()
	select {
	case m := <-c.said:
		return m
	case <-time.After(patience):
		b.Fatal("the session says nothing")
		return nil
	}
}

// part has a client say goodbye.
func (b *bench) part(c *client) {
	b.Helper()
	c.link.Post(wire.Bye{})
	c.link.Close()
	b.hear(spool.SessionBye)
}

// pipes give a link three streams.
type pipes struct {
	stdin          *io.PipeWriter
	stdout, stderr *io.PipeReader
}

func (p *pipes) begin(l *wire.Link) {
	in, typed := io.Pipe()
	stdout, out := io.Pipe()
	stderr, diag := io.Pipe()
	p.stdin, p.stdout, p.stderr = typed, stdout, stderr
	l.Source(wire.Stdin, in, nil)
	l.Sink(wire.Stdout, out)
	l.Sink(wire.Stderr, diag)
}

func (b *bench) write(w io.Writer, text string) {
	b.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) expect(r io.Reader, want string) {
	b.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		b.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

func (b *bench) expectEnd(r io.Reader) {
	b.Helper()
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		b.Fatalf("read %q, %v; want the end", rest, err)
	}
}

// Three streams, each with an end of its own, and a signal.
func TestStreams(t *testing.T) {
	b := start(t, 60, false)
	var p pipes
	c := b.connect(p.begin)
	b.hear(spool.SessionReady)
	b.write(p.stdin, "input")
	b.expect(b.in, "input")
	p.stdin.Close()
	b.expectEnd(b.in)
	b.write(b.diag, "diagnostics")
	b.expect(p.stderr, "diagnostics")
	b.diag.Close()
	b.expectEnd(p.stderr)
	c.link.Post(wire.Signal{Number: 2})
	b.hear(spool.SessionSignal + " 2")
	b.tell(spool.SessionState + " stop")
	if m := b.next(c); m != (wire.State{Suspended: true}) {
		t.Errorf("the session says %v", m)
	}
	b.write(b.out, "output")
	b.tell(spool.SessionExit + " 137 job was killed: out of memory")
	b.out.Close()
	b.expect(p.stdout, "output")
	b.expectEnd(p.stdout)
	if m := b.next(c); m != (wire.Exit{Status: 137, Reason: "job was killed: out of memory"}) {
		t.Errorf("the session says %v", m)
	}
	b.part(c)
}

// What prolog and epilog say arrives whole, whoever keeps their pipe open and
// however long the client takes.
func TestNotes(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		b := start(t, 60, terminal)
		var p pipes
		c := b.connect(p.begin)
		if terminal {
			c.link.Post(wire.WindowSize{Rows: 24, Columns: 80})
		}
		b.hear(spool.SessionReady)
		b.write(b.diag, "prolog\n")
		b.expect(p.stderr, "prolog\n")
		b.in.Close()
		if !terminal {
			b.out.Close()
		}
		b.expectEnd(p.stdout)
		// As much as session and pipe hold for a client that does not read.
		epilog := strings.Repeat("epilog\n", (wire.Window+60_000)/7)
		b.write(b.diag, epilog)
		b.tell(spool.SessionExit + " 0")
		got, err := io.ReadAll(p.stderr)
		if err != nil || string(got) != epilog {
			t.Errorf("terminal %v: the client has got %d bytes, %v; want %d", terminal, len(got), err, len(epilog))
		}
		if m := b.next(c); m != (wire.Exit{}) {
			t.Errorf("the session says %v", m)
		}
		b.part(c)
		b.diag.Close()
	}
}

// Who does not want the notes has the shepherd know it.
func TestDeaf(t *testing.T) {
	b := start(t, 60, false)
	var p pipes
	b.connect(p.begin)
	b.hear(spool.SessionReady)
	p.stderr.Close()
	b.write(b.diag, "something")
	b.hear(spool.SessionDeaf)
}

// A terminal has a size, and the end of what is typed is typed.
func TestTerminal(t *testing.T) {
	b := start(t, 60, true)
	var p pipes
	c := b.connect(p.begin)
	mode, err := unix.IoctlGetTermios(int(b.in.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	mode.Cc[unix.VINTR], mode.Cc[unix.VQUIT] = 'X'&0x1f, 0
	mode.Iflag &^= unix.IXON
	mode.Iflag |= unix.IUTF8
	c.link.Post(term.Encode(mode))
	c.link.Post(wire.WindowSize{Rows: 30, Columns: 99})
	b.hear(spool.SessionReady)
	if got, err := unix.IoctlGetTermios(int(b.in.Fd()), unix.TCGETS); err != nil || *got != *mode {
		t.Errorf("the modes are %+v, %v; want %+v", got, err, mode)
	}
	// What is typed before the job has the terminal is a signal for it.
	b.write(p.stdin, string([]byte{mode.Cc[unix.VINTR]}))
	b.hear(spool.SessionSignal + " 2")
	b.expect(p.stdout, "^X")
	// Once the job has begun they are its own.
	c.link.Post(wire.Modes{})
	c.link.Post(wire.Modes{Pairs: string([]byte{53, 0, 0, 0, 0})})
	b.write(p.stdin, "typed\n")
	b.expect(b.in, "typed\n")
	b.expect(p.stdout, "typed\r\n") // the echo
	size, err := unix.IoctlGetWinsize(int(b.in.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Row != 30 || size.Col != 99 {
		t.Errorf("the size is %v, %v", size, err)
	}
	p.stdin.Close()
	if n, err := b.in.Read(make([]byte, 10)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d, %v; want the end", n, err)
	}
	b.write(b.out, "bye\n")
	b.in.Close()
	b.tell(spool.SessionExit + " 0")
	b.expect(p.stdout, "bye\r\n")
	b.expectEnd(p.stdout)
	if m := b.next(c); m != (wire.Exit{}) {
		t.Errorf("the session says %v", m)
	}
	b.part(c)
}

// A client that is lost comes back, another takes its place, and the third is
// waited for in vain.
func TestReconnect(t *testing.T) {
	b := start(t, 10, false)
	var first, second pipes
	c := b.connect(first.begin)
	b.hear(spool.SessionReady)
	b.write(b.out, "one")
	b.expect(first.stdout, "one")
	b.write(first.stdin, "typed")
	b.expect(b.in, "typed")
	c.conn.Close()
	b.write(b.out, "two")
	c = b.connect(second.begin)
	b.hear(spool.SessionReady)
	// What the first has written the session may not have heard of.
	got := make([]byte, 3)
	if _, err := io.ReadFull(second.stdout, got); err != nil {
		t.Fatal(err)
	}
	if string(got) == "one" {
		b.expect(second.stdout, "two")
	} else if string(got) != "two" {
		t.Errorf("the second client is sent %q", got)
	}
	b.write(second.stdin, "more")
	b.expect(b.in, "more")

	var third pipes
	other := b.connect(third.begin)
	b.hear(spool.SessionReady)
	select {
	case <-c.gone:
	case <-time.After(patience):
		t.Fatal("the second client is still connected")
	}
	other.conn.Close()
	b.hear(spool.SessionLost + " ")
	b.out.Close()
	b.diag.Close()
	b.tell(spool.SessionExit + " 129")
	b.hear(spool.SessionBye)
}

// A client that is not there at all is not waited for.
func TestNoClient(t *testing.T) {
	b := start(t, 3600, false)
	b.listener.Close()
	word := strings.Repeat("0", 64)
	b.tell(spool.SessionClient + " " + string((&spool.Session{Number: 1, Address: b.listener.Addr().String(), Fingerprint: word, Token: word}).Append(nil)))
	b.hear(spool.SessionLost + " cannot connect to the client: ")
	b.out.Close()
	b.diag.Close()
	b.tell(spool.SessionExit + " 137")
	b.hear(spool.SessionBye)
}

// One who has only the port is no client.
func TestWrongClient(t *testing.T) {
	b := start(t, 0, false)
	identity, _, err := wire.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	word := strings.Repeat("0", 64)
	b.tell(spool.SessionClient + " " + string((&spool.Session{Number: 1, Address: b.listener.Addr().String(), Fingerprint: word, Token: word}).Append(nil)))
	conn, err := b.listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := wire.New(nil).Accept(conn, identity, wire.Token{}); err == nil {
		t.Error("the session has shown its token")
	}
	b.hear(spool.SessionLost + " cannot come to an understanding")
	b.tell(spool.SessionExit + " 137")
	b.out.Close()
	b.diag.Close()
	b.hear(spool.SessionBye)
}

// When the host stops the end of the job is the end of the session, too, whether its
// client is lost or says nothing. The job itself decides what it makes of that.
func TestHostStops(t *testing.T) {
	for _, lost := range []bool{true, false} {
		for _, early := range []bool{true, false} {
			b := start(t, 3600, false)
			var p pipes
			c := b.connect(p.begin)
			b.hear(spool.SessionReady)
			stop := func() {
				if err := b.cmd.Process.Signal(unix.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			if early {
				stop()
			}
			b.write(b.out, "output")
			b.expect(p.stdout, "output")
			if lost {
				c.conn.Close()
			}
			b.tell(spool.SessionExit + " 143")
			if !early {
				stop()
			}
			b.hearEnd()
		}
	}
}

// A lost client is not waited for when its job was deleted.
func TestDeletedWithoutClient(t *testing.T) {
	for _, early := range []bool{true, false} {
		b := start(t, 3600, false)
		var p pipes
		c := b.connect(p.begin)
		b.hear(spool.SessionReady)
		if early {
			c.conn.Close()
		}
		b.tell(spool.SessionDeleted)
		b.tell(spool.SessionExit + " 137")
		if !early {
			c.conn.Close()
		}
		b.hearEnd()
	}
}

// Without a shepherd there is no session.
func TestShepherdDies(t *testing.T) {
	b := start(t, -1, false)
	var p pipes
	c := b.connect(p.begin)
	b.hear(spool.SessionReady)
	b.shepherd.Close()
	select {
	case <-c.gone:
	case <-time.After(patience):
		t.Fatal("the session goes on")
	}
}

// A client whose door is full of strangers is tried again.
func TestFullDoor(t *testing.T) {
	b := start(t, -1, false)
	b.full = 3
	var p pipes
	b.connect(p.begin)
	b.hear(spool.SessionReady)
	b.tell(spool.SessionExit + " 0")
	b.out.Close()
	b.diag.Close()
}
