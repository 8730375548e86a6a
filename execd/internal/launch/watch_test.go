package launch

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// A shepherd that runs is watched, also where the kernel has no room for it in an epoll:
// its job must not be given back to the queue, and its directory removed under it.
func TestWatchedWithoutEpoll(t *testing.T) {
	ended := make(chan spool.RunID, 1)
	w, err := newWatcher(func(run spool.RunID) { ended <- run }, nil)
	if err != nil {
		t.Fatal(err)
	}
	epoll := w.epoll
	w.epoll = -1 // every call fails
	defer func() { w.epoll = epoll; w.close() }()
	cmd := exec.CommandContext(t.Context(), "cat")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	run := spool.RunID{Job: 7, Task: 1}
	w.add(run, fd)
	in.Close()
	if got := <-ended; got != run {
		t.Errorf("%v has ended; want %v", got, run)
	}
	_ = cmd.Wait()
}
