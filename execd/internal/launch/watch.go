package launch

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// watcher waits for the end of many processes in one thread: a pidfd becomes
// readable when its process ends. (Process.Wait would keep a thread for each.)
type watcher struct {
	epoll int
	wake  int // eventfd that ends run
	gone  func(spool.RunID)

	mu   sync.Mutex
	runs map[int32]spool.RunID // guarded by mu; by pidfd
}

func newWatcher(gone func(spool.RunID)) (*watcher, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot watch processes: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(wake)})
	}
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("cannot watch processes: %w", err)
	}
	return &watcher{epoll: epoll, wake: wake, gone: gone, runs: map[int32]spool.RunID{}}, nil
}

// add watches a process. The descriptor is closed by who is told of its end.
func (w *watcher) add(run spool.RunID, pidfd int) error {
	w.mu.Lock()
	w.runs[int32(pidfd)] = run
	w.mu.Unlock()
	err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, pidfd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(pidfd)})
	if err != nil {
		w.mu.Lock()
		delete(w.runs, int32(pidfd))
		w.mu.Unlock()
	}
	return err
}

func (w *watcher) run() {
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			panic("internal error: epoll: " + err.Error())
		}
		for _, e := range events[:n] {
			if int(e.Fd) == w.wake {
				unix.Close(w.epoll)
				unix.Close(w.wake)
				return
			}
			// Taken out before gone closes it: the number may be reused at once.
			_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, int(e.Fd), nil)
			w.mu.Lock()
			run, known := w.runs[e.Fd]
			delete(w.runs, e.Fd)
			w.mu.Unlock()
			if known {
				w.gone(run)
			}
		}
	}
}

func (w *watcher) stop() {
	_, _ = unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}
