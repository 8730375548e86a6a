package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Terminal is a terminal of no hardware, pty(7), with one program on it.
type Terminal struct {
	user *os.File // the side of the user
	tty  *os.File
	cmd  *exec.Cmd
	done chan struct{} // closed when nothing more can be read

	// Began is how the terminal was set when the program was started.
	Began unix.Termios

	mu   sync.Mutex
	text bytes.Buffer // guarded by mu; all that was printed
}

// StartOnTerminal starts a program with a new terminal of that size as its
// standard streams, unless cmd has others, and as its controlling terminal.
func StartOnTerminal(cmd *exec.Cmd, columns, lines int) (*Terminal, error) {
	t := &Terminal{cmd: cmd, done: make(chan struct{})}
	var err error
	if t.user, t.tty, err = OpenTerminal(); err != nil {
		return nil, err
	}
	if err := t.Resize(columns, lines); err != nil {
		t.close()
		return nil, err
	}
	if t.Began, err = t.Modes(); err != nil {
		t.close()
		return nil, err
	}
	if cmd.Stdin == nil {
		cmd.Stdin = t.tty
	}
	if cmd.Stdout == nil {
		cmd.Stdout = t.tty
	}
	if cmd.Stderr == nil {
		cmd.Stderr = t.tty
	}
	cmd.ExtraFiles = []*os.File{t.tty}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, true, 3
	if err := cmd.Start(); err != nil {
		t.close()
		return nil, err
	}
	go t.read()
	return t, nil
}

// OpenTerminal makes a terminal: the side of the user, and that of the programs.
func OpenTerminal() (user, tty *os.File, err error) {
	if user, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, fmt.Errorf("cannot make a terminal: %w", err)
	}
	number := 0
	conn, err := user.SyscallConn()
	if err == nil {
		var failed error
		err = conn.Control(func(fd uintptr) {
			if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed == nil {
				number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
			}
		})
		err = errors.Join(err, failed)
	}
	if err == nil {
		tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		user.Close()
		return nil, nil, fmt.Errorf("cannot make a terminal: %w", err)
	}
	return user, tty, nil
}

func (t *Terminal) close() {
	t.tty.Close()
	t.user.Close()
}

// read keeps what is printed until the terminal is closed.
func (t *Terminal) read() {
	defer close(t.done)
	buf := make([]byte, 4096)
	for {
		n, err := t.user.Read(buf)
		t.mu.Lock()
		t.text.Write(buf[:n])
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Text returns all that was printed up to now.
func (t *Terminal) Text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// Await waits until a text that matches was printed behind the first n bytes,
// and returns how many bytes there are up to its end.
func (t *Terminal) Await(n int, pattern string) (int, error) {
	want := regexp.MustCompile(pattern)
	end := 0
	err := WaitFor(Patience, fmt.Sprintf("%q on the terminal", pattern), func() (bool, error) {
		text := t.Text()
		at := want.FindStringIndex(text[n:])
		if at == nil {
			return false, fmt.Errorf("there is %q", text[n:])
		}
		end = n + at[1]
		return true, nil
	})
	return end, err
}

// Type types.
func (t *Terminal) Type(text string) error {
	_, err := t.user.WriteString(text)
	return err
}

// Resize changes the size of the terminal, which tells the program.
func (t *Terminal) Resize(columns, lines int) error {
	return unix.IoctlSetWinsize(int(t.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(lines)})
}

// Modes returns how the terminal is set.
func (t *Terminal) Modes() (unix.Termios, error) {
	m, err := unix.IoctlGetTermios(int(t.tty.Fd()), unix.TCGETS)
	if err != nil {
		return unix.Termios{}, err
	}
	return *m, nil
}

// Signal sends a signal to the program.
func (t *Terminal) Signal(sig os.Signal) error { return t.cmd.Process.Signal(sig) }

// PID returns the process id of the program.
func (t *Terminal) PID() int { return t.cmd.Process.Pid }

// Wait waits for the end of the program and returns its exit status. Text then has all
// that the program has printed.
func (t *Terminal) Wait() (int, error) {
	timer := time.AfterFunc(Patience, func() { _ = t.cmd.Process.Kill() }) // it may have ended
	defer timer.Stop()
	err := t.cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		err = nil
	}
	t.tty.Close()
	<-t.done
	t.user.Close()
	return t.cmd.ProcessState.ExitCode(), err
}
