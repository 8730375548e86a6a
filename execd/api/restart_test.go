package api_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
)

// A request that waits to be taken when execd stops, which the kernel resets then, is sent
// again to the next execd, also if that is not there yet.
func TestCallWhileReplaced(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listen := func() *net.UnixListener {
		t.Helper()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	old := listen()
	result := make(chan error, 1)
	var reply map[string]string
	go func() { result <- api.NewClient(socket).Call(t.Context(), "x", struct{}{}, &reply) }()
	raw, err := old.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { // until it waits
		for errors.Is(err, unix.EINTR) || err == nil {
			var n int
			if n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000); n == 1 {
				return
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	old.Close()
	next := listen()
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, `{"from":"the next"}`)
	})}
	defer s.Close()
	go func() { _ = s.Serve(next) }()
	if err := <-result; err != nil || reply["from"] != "the next" {
		t.Errorf("%v, %v", reply, err)
	}
}
