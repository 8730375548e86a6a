package launch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// watcher waits for the end of many processes in one thread: a pidfd becomes
// readable when its process ends. (Process.Wait would keep a thread for each.)
// And for the file lost in the directories of interactive jobs, come or gone.
type watcher struct {
	epoll   int
	wake    int // eventfd that ends run
	notify  int // of inotify
	gone    func(spool.RunID)
	noticed func(spool.RunID)

	mu   sync.Mutex
	runs map[int32]spool.RunID // guarded by mu; by pidfd
	dirs map[int32]spool.RunID // guarded by mu; by watch
}

func newWatcher(gone, noticed func(spool.RunID)) (*watcher, error) {
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
	return &watcher{
		epoll: epoll, wake: wake, notify: -1, gone: gone, noticed: noticed,
		runs: map[int32]spool.RunID{}, dirs: map[int32]spool.RunID{},
	}, nil
}

// attend watches the directory of a run for the file lost.
func (w *watcher) attend(run spool.RunID, dir string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.notify < 0 { // most hosts never need one
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err == nil {
			err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
		}
		if err != nil {
			return err
		}
		w.notify = fd
	}
	watch, err := unix.InotifyAddWatch(w.notify, dir, unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_ONLYDIR)
	if err == nil {
		w.dirs[int32(watch)] = run
	}
	return err
}

// neglect ends attend.
func (w *watcher) neglect(run spool.RunID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for watch, r := range w.dirs {
		if r == run {
			_, _ = unix.InotifyRmWatch(w.notify, uint32(watch))
			delete(w.dirs, watch)
		}
	}
}

// notices reads what has happened in the directories.
func (w *watcher) notices() {
	b := make([]byte, 16<<10)
	n, err := unix.Read(w.notify, b)
	if err != nil {
		return
	}
	for b = b[:n]; len(b) >= unix.SizeofInotifyEvent; {
		watch, length := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[12:])
		name := bytes.TrimRight(b[unix.SizeofInotifyEvent:][:length], "\x00")
		b = b[unix.SizeofInotifyEvent+int(length):]
		w.mu.Lock()
		var runs []spool.RunID
		if run, known := w.dirs[watch]; known && string(name) == spool.FileLost {
			runs = append(runs, run)
		} else if watch < 0 { // there were too many to be told of
			runs = slices.Collect(maps.Values(w.dirs))
		}
		w.mu.Unlock()
		for _, run := range runs {
			w.noticed(run)
		}
	}
}

// add watches a process. The function that is told of its end closes the descriptor. The
// process runs already, so it is watched in any case: by a thread of its own if the kernel
// has no room for one more in the epoll.
func (w *watcher) add(run spool.RunID, pidfd int) {
	w.mu.Lock()
	w.runs[int32(pidfd)] = run
	w.mu.Unlock()
	err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, pidfd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(pidfd)})
	if err != nil {
		go func() {
			poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
			for n, err := unix.Poll(poll, -1); n < 1; n, err = unix.Poll(poll, -1) {
				if !errors.Is(err, unix.EINTR) {
					time.Sleep(time.Second) // no memory
				}
			}
			w.over(int32(pidfd))
		}()
	}
}

// over is called when a process has ended.
func (w *watcher) over(pidfd int32) {
	w.mu.Lock()
	run, known := w.runs[pidfd]
	delete(w.runs, pidfd)
	w.mu.Unlock()
	if known {
		w.gone(run)
	}
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
			switch int(e.Fd) {
			case w.wake:
				w.close()
				return
			case w.listening():
				w.notices()
				continue
			}
			// Taken out before gone closes it: the number may be reused at once.
			_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, int(e.Fd), nil)
			w.over(e.Fd)
		}
	}
}

// listening returns the descriptor of inotify, -1 for none.
func (w *watcher) listening() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.notify
}

func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	unix.Close(w.epoll)
	unix.Close(w.wake)
	if w.notify >= 0 {
		unix.Close(w.notify)
	}
}

func (w *watcher) stop() {
	_, _ = unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}
