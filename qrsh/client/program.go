package client

import (
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/qrsh/wire"
)

// Program is the program that connects the user to a job that is a daemon, as
// ssh to sshd. It has the user's streams, and the session has none.
type Program struct {
	Words    []string // the command as it is configured
	PortLast bool     // it is called with the host and the port, in this order, and nothing else
	NoStdin  bool     // it is called with -n
	// Establishing is called before the program starts, and Ended when it has
	// ended or could not be started. name is its first word.
	Establishing func(name, host string)
	Ended        func(name string, status int, err error)
	// Told is called with the exit status of the job.
	Told func(status int)

	began    sync.Once
	over     chan struct{} // closed when the job is over
	finished chan struct{} // closed when the program has ended; nil: it was not started
}

// endTime is how long the program has to end by itself once the job has ended.
const endTime = 10 * time.Second

// words returns the command line for a daemon. The texts of the other side were
// checked: neither a shell nor the program takes them for more than words.
func (p *Program) words(d wire.Daemon) []string {
	words := append([]string(nil), p.Words...)
	port := strconv.Itoa(int(d.Port))
	if p.PortLast {
		return append(words, d.Host, port)
	}
	if p.NoStdin {
		words = append(words, "-n")
	}
	words = append(words, "-p", port, d.Host)
	if d.Program != "" {
		words = append(words, "exec", "'"+d.Program+"'", "'command'", "'"+d.Handle+"'")
	}
	return words
}

// begin begins the program for a daemon, once.
func (p *Program) begin(run func()) {
	p.began.Do(func() {
		p.finished = make(chan struct{})
		go run()
	})
}

// end waits for the program's end, now that the job is over.
func (p *Program) end() {
	p.began.Do(func() {}) // from now on it does not begin
	close(p.over)
	if p.finished != nil {
		<-p.finished
	}
}

// runProgram runs the program for a daemon and tells the session how it has ended.
func (c *Client) runProgram(d wire.Daemon) {
	defer close(c.Program.finished)
	words := c.Program.words(d)
	c.Program.Establishing(words[0], d.Host)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.In, c.Out, c.Err
	// ^C and ^\ are for the program, which is in the same process group.
	heard := make(chan os.Signal, 8)
	Heed(heard, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM)
	defer signal.Stop(heard)
	status, err := toItsEnd(cmd, heard, c.Program.over)
	c.Program.Ended(words[0], status, err)
	c.link.Post(wire.Status{Status: uint16(status)})
}

// toItsEnd starts a program and waits for its end.
func toItsEnd(cmd *exec.Cmd, heard <-chan os.Signal, over <-chan struct{}) (status int, err error) {
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case sig := <-heard:
			if sig == unix.SIGHUP || sig == unix.SIGTERM {
				_ = cmd.Process.Signal(sig)
			}
		case <-over:
			over = nil
			timer := time.AfterFunc(endTime, func() { _ = cmd.Process.Signal(unix.SIGTERM) })
			defer timer.Stop()
		case err := <-ended:
			if cmd.ProcessState == nil {
				return 127, err
			}
			ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if ws.Signaled() {
				return 128 + int(ws.Signal()), nil
			}
			return ws.ExitStatus(), nil
		}
	}
}
