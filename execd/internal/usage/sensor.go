package usage

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/backoff"
)

// These bound the report of a sensor, and the wait for its end.
const (
	maxLine   = 10_000  // bytes, as in Grid Engine
	maxReport = 1 << 20 // bytes
	maxValues = 1000
	maxWord   = 255 // bytes of a name

	sensorGrace    = 10 * time.Second // from quit to KILL
	sensorDraining = time.Second      // for reading what it wrote before it ended
)

// sensor is a load sensor, see sge_conf(5): a program that reports what execd cannot
// measure. A newline asks it for a report, and it ends on the word quit or the end of
// its input.
type sensor struct {
	load    *Load
	command string
	stop    context.CancelFunc
	asked   chan struct{} // for a report

	mu           sync.Mutex
	host, global map[string]string // guarded by mu; the last report

	complained bool // of a report, since it was started
	restarts   backoff.Restarts
}

// ask asks for a report, unless one is under way.
func (s *sensor) ask() {
	select {
	case s.asked <- struct{}{}:
	default:
	}
}

// last returns the last report.
func (s *sensor) last(global bool) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if global {
		return s.global
	}
	return s.host
}

func (s *sensor) set(host, global map[string]string) {
	s.mu.Lock()
	s.host, s.global = host, global
	s.mu.Unlock()
	s.load.mu.Lock()
	s.load.bell.ring()
	s.load.mu.Unlock()
}

// run keeps the sensor going. It starts it again when a report is asked for and the
// sensor has died, or its program has changed.
func (s *sensor) run(ctx context.Context) {
	var p *program
	defer func() {
		if p != nil {
			s.quit(p)
		}
	}()
	for {
		var exited chan struct{}
		if p != nil {
			exited = p.exited
		}
		select {
		case <-ctx.Done():
			return
		case <-exited:
			s.died(p, nil)
			p = nil
			continue
		case <-s.asked:
		}
		if p != nil && !p.modified.Equal(modified(s.command)) {
			s.quit(p)
			p = nil
		}
		if p == nil {
			if s.restarts.Wait(time.Now()) > 0 {
				continue
			}
			var err error
			if p, err = s.start(); err != nil {
				s.restarts.Ended(time.Now())
				s.load.Log.Warn(fmt.Sprintf("cannot start load sensor %q: %v", s.command, err))
				continue
			}
		}
		if err := s.report(ctx, p); ctx.Err() == nil {
			if err != nil {
				s.died(p, err)
				p = nil
			} else {
				s.restarts.Useful()
			}
		}
	}
}

// died cleans up after a sensor that has ended, or must end. Its last report no longer
// counts.
func (s *sensor) died(p *program, reason error) {
	p.kill()
	if reason == nil || errors.Is(reason, errEnded) {
		reason = errors.New("it ended: " + p.cmd.ProcessState.String())
	}
	s.load.Log.Warn(fmt.Sprintf("load sensor %q: %v: started again after %v at the earliest", s.command, reason, s.restarts.Ended(time.Now())))
	s.set(nil, nil)
}

// quit tells a sensor to end and waits until it has.
func (s *sensor) quit(p *program) {
	_, _ = p.stdin.WriteString("quit\n")
	p.stdin.Close() // for one that does not know the word
	// The sensor may be in the middle of a report.
	wait := cmp.Or(s.load.grace, sensorGrace)
	_ = p.stdout.SetReadDeadline(time.Now().Add(wait))
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for {
			if _, err := p.lines.Discard(maxLine); err != nil {
				return
			}
		}
	}()
	grace := time.NewTimer(wait)
	defer grace.Stop()
	select {
	case <-p.exited:
	case <-grace.C:
		s.load.Log.Warn(fmt.Sprintf("load sensor %q: does not quit, killed", s.command))
	}
	p.kill()
	<-drained
	s.load.Log.Info(fmt.Sprintf("load sensor %q: stopped", s.command))
	s.set(nil, nil)
}

// program is a sensor's process.
type program struct {
	cmd           *exec.Cmd
	stdin, stdout *os.File
	lines         *bufio.Reader
	modified      time.Time     // the program's file
	exited        chan struct{} // closed when it has exited, before it is reaped
}

// errEnded says that the output of a sensor has ended.
var errEnded = errors.New("its output ended")

func (s *sensor) start() (*program, error) {
	as, err := s.load.SensorUser(context.Background())
	if err != nil {
		return nil, err
	}
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	stdout, out, err := os.Pipe()
	if err != nil {
		stdin.Close()
		return nil, err
	}
	defer out.Close()
	p := &program{
		stdin: stdin, stdout: stdout, lines: bufio.NewReaderSize(stdout, maxLine),
		modified: modified(s.command), exited: make(chan struct{}),
	}
	p.cmd = s.load.Starter.Program(context.Background(), as, "/bin/sh", "-c", s.command)
	p.cmd.Dir = cmp.Or(s.load.SensorDir, "/")
	p.cmd.Env = []string{"HOST=" + s.load.Host, "PATH=/usr/local/bin:/usr/bin:/bin"}
	p.cmd.Stdin, p.cmd.Stdout = in, out // standard error is /dev/null
	if err := s.load.Starter.Start(p.cmd); err != nil {
		stdin.Close()
		stdout.Close()
		return nil, err
	}
	s.complained = false
	s.load.Log.Info(fmt.Sprintf("load sensor %q: started: pid=%d", s.command, p.cmd.Process.Pid))
	go p.watch()
	return p, nil
}

// watch waits until the process has ended, and leaves it a zombie, so that the number
// of the process group is not used again.
func (p *program) watch() {
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	// Processes it left behind may hold its output open.
	_ = p.stdout.SetReadDeadline(time.Now().Add(sensorDraining))
	close(p.exited)
}

// kill kills the process group of the sensor, and reaps it.
func (p *program) kill() {
	_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	<-p.exited
	_ = p.cmd.Wait()
	p.stdin.Close()
	p.stdout.Close()
}

// modified returns when the program of a command was changed, zero if that is not
// known.
func modified(command string) time.Time {
	words := strings.Fields(command)
	if len(words) == 0 {
		return time.Time{}
	}
	info, err := os.Stat(words[0])
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// report asks for a report and reads it.
func (s *sensor) report(ctx context.Context, p *program) error {
	// A report has no time limit: the sensor may have to ask other hosts.
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = p.stdout.SetReadDeadline(time.Now())
		close(interrupted)
	})
	defer func() {
		if !stop() {
			<-interrupted
		}
	}()
	if _, err := p.stdin.WriteString("\n"); err != nil {
		return errEnded
	}
	host, global := map[string]string{}, map[string]string{}
	begun, size := false, 0
	for {
		line, err := p.lines.ReadSlice('\n')
		size += len(line)
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) && size <= maxReport {
			var more []byte
			more, err = p.lines.ReadSlice('\n')
			size += len(more)
		}
		if size > maxReport {
			return fmt.Errorf("its report has more than %d bytes", maxReport)
		}
		if err != nil {
			return errEnded
		}
		word := strings.TrimSpace(string(line))
		switch {
		case long:
			s.complain(fmt.Sprintf("a line has more than %d bytes", maxLine))
		case !begun:
			begun = word == "begin" || word == "start"
		case word == "end":
			s.set(host, global)
			return nil
		default:
			s.value(word, host, global)
		}
	}
}

// value parses a line HOST:NAME:VALUE of a report.
func (s *sensor) value(line string, host, global map[string]string) {
	parts := strings.SplitN(line, ":", 3)
	if len(parts) < 3 || parts[1] == "" || len(parts[1]) > maxWord || !printable(line) || strings.Contains(parts[1], " ") {
		s.complain(fmt.Sprintf("%q is not HOST:NAME:VALUE", line[:min(len(line), 80)]))
		return
	}
	to := host
	switch name := parts[0]; {
	case name == "global":
		to = global
	case !strings.EqualFold(name, s.load.Host) && !strings.HasPrefix(strings.ToLower(name), strings.ToLower(s.load.Host)+"."):
		s.complain(fmt.Sprintf("%q is neither this host nor global", name[:min(len(name), 80)]))
		return
	}
	if len(host)+len(global) >= maxValues {
		s.complain(fmt.Sprintf("it reports more than %d values", maxValues))
		return
	}
	to[parts[1]] = strings.TrimSpace(parts[2])
}

// complain logs the first mistake of a sensor, and no others.
func (s *sensor) complain(text string) {
	if !s.complained {
		s.load.Log.Warn(fmt.Sprintf("load sensor %q: %s: ignored", s.command, text))
	}
	s.complained = true
}

func printable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
