package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"paddock/test/harness"
)

// wide is a line across a continent: 50 ms for a round trip, and 100 Mbit a second.
var wide = harness.Line{Rate: 100_000_000, Delay: 25 * time.Millisecond}

// lineTime measures how much of such a line the output of a job has, beside a stream of TCP
// that has nothing else. How much is sent again when a line was cut is what TestFaultAcrossCut and
// TestFaultCarryResumes of test/e2e count: a block at most.
func (b *bench) lineTime() error {
	a := &across{bench: b, base: filepath.Join(b.base, "line")}
	from := filepath.Join(a.base, "from")
	if err := errors.Join(b.mine(a.base), b.mine(from)); err != nil {
		return err
	}
	size := b.size(1<<27, 1<<20)
	file := filepath.Join(from, "file")
	if err := b.fill(file, size); err != nil {
		return err
	}
	return b.onPool(filepath.Join(b.base, "line-pool"), duo{slots: 1, lease: lasting, line: &wide}, func(n *harness.Network) error {
		a.network = n
		if err := b.here(n, false); err != nil {
			return err
		}
		var plain, ours []time.Duration
		for range b.size(3, 1) {
			took, err := a.stream(file, int64(size))
			if err != nil {
				return fmt.Errorf("a plain stream: %w", err)
			}
			plain = append(plain, took)
			to := filepath.Join(a.base, "to")
			if err := errors.Join(os.RemoveAll(to), b.mine(to)); err != nil {
				return err
			}
			if took, _, err = a.job(from, to, size); err != nil {
				return err
			}
			if st, err := os.Stat(filepath.Join(to, "from", "file")); err != nil || st.Size() != int64(size) {
				return fmt.Errorf("not all has arrived: %w", err)
			}
			ours = append(ours, took)
		}
		speed := func(d []time.Duration) float64 { return float64(size) / 1e6 / median(d).Seconds() }
		b.report(row{
			what: fmt.Sprintf("%d MB over 50 ms and 100 Mbit/s, beside plain TCP", size/1e6), unit: "MB/s", atLeast: true, limit: 0.95,
			theirs: speed(plain), ours: speed(ours),
		})
		return nil
	})
}

// stream has a file come from the second host to the first, with nothing but TCP, and returns
// how long it takes until it is here. It is kept nowhere.
func (a *across) stream(file string, size int64) (time.Duration, error) {
	login, node := a.network.Hosts[0], a.network.Hosts[1]
	var listener *net.TCPListener
	if err := login.Within(func() (err error) {
		listener, err = net.ListenTCP("tcp", &net.TCPAddr{IP: login.IP})
		return err
	}); err != nil {
		return 0, err
	}
	defer listener.Close()
	if err := listener.SetDeadline(time.Now().Add(longest)); err != nil {
		return 0, err
	}
	begin := time.Now()
	sent := make(chan error, 1)
	go func() {
		sent <- node.Within(func() error {
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()
			conn, err := net.DialTCP("tcp", nil, listener.Addr().(*net.TCPAddr))
			if err != nil {
				return err
			}
			_, err = io.Copy(conn, f)
			return errors.Join(err, conn.Close())
		})
	}()
	conn, err := listener.Accept()
	if err != nil {
		return 0, errors.Join(err, <-sent)
	}
	defer conn.Close()
	n, err := io.Copy(io.Discard, conn)
	took := time.Since(begin)
	if n != size {
		err = errors.Join(err, fmt.Errorf("%d bytes of %d have arrived", n, size))
	}
	return took, errors.Join(err, <-sent)
}

// idleElsewhere measures how long the slot of another host is idle between two jobs while output
// of the first of them travels here.
func (b *bench) idleElsewhere() error {
	far, err := os.MkdirTemp("/dev/shm", "paddock-bench-")
	if err != nil {
		return err
	}
	o := &overlap{bench: b, base: filepath.Join(b.base, "elsewhere"), far: far, mega: b.size(1000, 20)}
	knobs := fmt.Sprintf("TRANSFER_BANDWIDTH = %d\n", pace)
	err = errors.Join(os.Chmod(far, 0o777), b.mine(o.base), b.onPool(filepath.Join(b.base, "idle-pool"), duo{slots: 1, lease: lasting, knobs: knobs}, func(n *harness.Network) error {
		if err := b.here(n, false); err != nil {
			return err
		}
		login := n.Hosts[0].Daemon
		jobs := b.size(overlapping, 5)
		job, err := o.array(login, jobs, o.mega, "1")
		if err != nil {
			return err
		}
		gaps, err := o.gaps(jobs)
		if err != nil {
			return err
		}
		if err := errors.Join(o.travels(login), o.clear(login, job)); err != nil {
			return err
		}
		o.reportGaps("jobs on another host", gaps)
		return nil
	}))
	return errors.Join(err, os.RemoveAll(far))
}
