package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
	"paddock/test/harness"
)

// serveEcho is the job of shepherdSignals: it writes a byte into a FIFO when it
// is ready and for each SIGUSR1, until the file's reader is gone.
func serveEcho(fifo string) error {
	got := make(chan os.Signal, 100)
	signal.Notify(got, syscall.SIGUSR1)
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for {
		if _, err := f.Write([]byte{'!'}); err != nil {
			return nil // nobody reads any more: that is the end
		}
		<-got
	}
}

// shepherdSignals measures how long a signal that is asked for in the file
// signal takes to the job, and how often the shepherd of a job that sleeps wakes
// up.
func (b *bench) shepherdSignals() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	echo := filepath.Join(b.base, "echo") // where the user may execute it
	if err := os.WriteFile(echo, program, 0o755); err != nil {
		return err
	}
	theirs, ours, _ := b.starters()
	var took, woken [2]float64
	for i, s := range []starter{theirs, ours} {
		if took[i], woken[i], err = b.signals(s, echo, filepath.Join(b.base, "signal"+strconv.Itoa(i))); err != nil {
			return err
		}
	}
	b.report(row{what: "signal file to delivery", unit: "ms", theirs: took[0], ours: took[1], absolute: true, limit: 2})
	b.report(row{what: "wake-ups of a shepherd whose job sleeps, 10 s", unit: "x", theirs: woken[0], ours: woken[1], absolute: true, limit: 0})
	return nil
}

// signals returns the median time of a signal in ms, and the wake-ups in 10 s.
func (b *bench) signals(s starter, echo, dir string) (took, woken float64, err error) {
	fifo := dir + ".fifo"
	if err := errors.Join(unix.Mkfifo(fifo, 0o666), os.Chmod(fifo, 0o666)); err != nil {
		return 0, 0, err
	}
	from, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		return 0, 0, err
	}
	if err := b.jobDirectory(dir, echo, "-echo", fifo); err != nil {
		from.Close()
		return 0, 0, err
	}
	pid, err := s.start(dir)
	if err != nil {
		from.Close()
		return 0, 0, err
	}
	defer func() {
		from.Close()
		// It carries KILL, and Grid Engine's may lose it like any other.
		for gone, end := false, time.Now().Add(longest); !gone; {
			sig := syscall.SIGTSTP
			if time.Now().After(end) {
				sig = syscall.SIGKILL
			}
			_ = syscall.Kill(pid, sig)
			gone = harness.WaitFor(time.Second, "", func() (bool, error) { return ended(pid), nil }) == nil
		}
		_, e := wait(pid)
		err = errors.Join(err, e)
	}()
	var one [1]byte
	_ = from.SetReadDeadline(time.Now().Add(harness.Patience))
	if _, err := from.Read(one[:]); err != nil {
		return 0, 0, fmt.Errorf("cannot wait for the job: %w", err)
	}
	if err := harness.Settle(filepath.Dir(s.path), dir); err != nil {
		return 0, 0, err
	}
	before, err := switches(pid)
	if err != nil {
		return 0, 0, err
	}
	time.Sleep(time.Duration(b.size(10, 1)) * time.Second) // the measurement itself
	after, err := switches(pid)
	if err != nil {
		return 0, 0, err
	}
	var times []time.Duration
	text := spool.AppendNumber(nil, int(syscall.SIGUSR1))
	for range b.size(200, 5) {
		begin := time.Now()
		if err := os.WriteFile(filepath.Join(dir, spool.FileSignal), text, 0o644); err != nil {
			return 0, 0, err
		}
		if err := syscall.Kill(pid, syscall.SIGTTIN); err != nil {
			return 0, 0, err
		}
		theirs := s.path == harness.GEShepherd
		limit := harness.Patience
		if theirs {
			limit = time.Second
		}
		_ = from.SetReadDeadline(time.Now().Add(limit))
		_, err := from.Read(one[:])
		switch {
		case err == nil:
			times = append(times, time.Since(begin))
		case theirs && errors.Is(err, os.ErrDeadlineExceeded):
			// It loses one that comes while it is busy with the one before.
		default:
			return 0, 0, fmt.Errorf("cannot wait for a signal: %w", err)
		}
	}
	return milliseconds(median(times)), float64(after - before), nil
}

// ended reports whether a child has ended, which is still to be waited for.
func ended(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil && !errors.Is(err, unix.EINTR) || info.Signo != 0
}

// switches returns how often the threads of a process were put on a processor.
func switches(pid int) (n int, err error) {
	status, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(status) == 0 {
		return 0, fmt.Errorf("cannot look at process %d: %w", pid, err)
	}
	for _, path := range status {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // a thread that has ended in between
		}
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.HasSuffix(key, "voluntary_ctxt_switches") {
				v, err := strconv.Atoi(strings.TrimSpace(value))
				if err != nil {
					return 0, err
				}
				n += v
			}
		}
	}
	return n, nil
}
