package harness

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Line is what the link of a host is like in each direction: how many bits a second it carries,
// and how long they take.
type Line struct {
	Rate  int
	Delay time.Duration
}

// lineQueue is how many frames wait for a line, or are on it; others are lost. It is that of
// netem, tc-netem(8), by which the kernel has such lines if it was built with it. Since many were
// not, frames of ours pass through this process.
const lineQueue = 1000

// Lengthen has the link of a host be a line, for good.
func (h *Host) Lengthen(l Line) error {
	wires := h.net.wires
	if err := wires.run("ip", "link", "del", h.wire); err != nil {
		return err
	}
	near, err := wires.tap(h.wire)
	if err != nil {
		return err
	}
	far, err := h.space.tap("eth0")
	if err != nil {
		near.Close()
		return err
	}
	h.ends = []*os.File{near, far}
	go l.carry(near, far)
	go l.carry(far, near)
	return h.plug()
}

// carry brings frames from one end of a line to the other, until one is closed.
func (l Line) carry(from, to *os.File) {
	type frame struct {
		data []byte
		due  time.Time
	}
	queue := make(chan frame, lineQueue)
	defer close(queue)
	go func() {
		for f := range queue {
			time.Sleep(time.Until(f.due))
			_, _ = to.Write(f.data) // it is lost where the link is out
		}
	}()
	buffer := make([]byte, 1<<16)
	free := time.Now() // when the line has carried all that came
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if len(queue) == cap(queue) {
			continue
		}
		if now := time.Now(); free.Before(now) {
			free = now
		}
		free = free.Add(time.Duration(n) * 8 * time.Second / time.Duration(l.Rate))
		queue <- frame{append([]byte(nil), buffer[:n]...), free.Add(l.Delay)}
	}
}

// tap makes a network device of a namespace, what is sent through which is read here.
func (s *space) tap(name string) (f *os.File, err error) {
	err = s.within(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("cannot open /dev/net/tun: %w", err)
		}
		request, err := unix.NewIfreq(name)
		if err == nil {
			request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
		if err != nil {
			unix.Close(fd)
			return fmt.Errorf("cannot make device %s: %w", name, err)
		}
		f = os.NewFile(uintptr(fd), name) // which is to be polled, so that there is a device by now
		return nil
	})
	return f, err
}

// Within calls a function whose sockets are those of a host.
func (h *Host) Within(do func() error) error { return h.space.within(do) }

// within calls a function in the network of namespaces, on a thread of its own.
func (s *space) within(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and it ends with the goroutine
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", s.pid()))
		if err == nil {
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
			f.Close()
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}
