package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
)

// As runs a function as another user: connections that it makes are that user's. It must
// not start goroutines that connect. Needs root.
func As(uid, gid int, f func()) error {
	done := make(chan error)
	go func() {
		// The thread has his rights, and the saved uid gives it root's back: one that
		// kept them could not end if it is the process's first.
		runtime.LockOSThread()
		err := become(uid, gid)
		if err == nil {
			f()
			err = become(0, 0)
		}
		if err == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("cannot become user %d and root again: %w", uid, err)
	}
	return nil
}

// become gives this thread, and no other, the rights of a user, with one group alone.
func become(uid, gid int) error {
	if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0); no != 0 {
		return no
	}
	group := uint32(gid)
	if _, _, no := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&group)), 0); no != 0 {
		return no
	}
	if _, _, no := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); no != 0 {
		return no
	}
	if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), 0); no != 0 {
		return no
	}
	return nil
}

// Flood opens connections to a Unix socket as a user, sends the same on each, and
// leaves them open. It stops at the first that cannot be opened.
func Flood(socket string, uid, n int, text string) (conns []net.Conn, err error) {
	err2 := As(uid, uid, func() {
		for range n {
			var c net.Conn
			if c, err = dialPatiently(socket); err != nil {
				return
			}
			conns = append(conns, c)
			// A client that is refused may find the connection closed.
			_, _ = io.WriteString(c, text)
		}
	})
	return conns, errors.Join(err, err2)
}

// dialPatiently connects as soon as there is room in the socket's backlog.
func dialPatiently(socket string) (c net.Conn, err error) {
	err = WaitFor(Patience, "room for a connection", func() (bool, error) {
		c, err = net.Dial("unix", socket)
		return err == nil, err
	})
	return c, err
}

// Posted returns the header of a request of a verb whose body has length bytes.
func Posted(verb string, length int) string {
	return "POST /" + api.Version + "/" + verb + " HTTP/1.1\r\nHost: execd\r\nContent-Length: " + strconv.Itoa(length) + "\r\n\r\n"
}

// Sift closes the connections on which execd has answered instead of waiting, counts
// them by what it said, and returns the others. Execd has answered those it is going to
// refuse when somebody who came later has an answer.
func Sift(conns []net.Conn) (open []net.Conn, said map[api.Code]int) {
	said = map[api.Code]int{}
	for _, c := range conns {
		text, answered := atHand(c)
		if !answered {
			open = append(open, c)
			continue
		}
		var e api.Error
		_, body, _ := bytes.Cut(text, []byte("\r\n\r\n"))
		_ = json.Unmarshal(body, &e) // an answer that is no error has no code
		said[e.Code]++
		_ = c.Close()
	}
	return open, said
}

// atHand reads what has come on a connection. ok is false if nothing has and it is open.
func atHand(c net.Conn) (text []byte, ok bool) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, true
	}
	b := make([]byte, 4096)
	err2 := raw.Read(func(fd uintptr) bool {
		var n int
		n, err = unix.Read(int(fd), b)
		text = b[:max(n, 0)]
		return true
	})
	return text, err2 != nil || !errors.Is(err, unix.EAGAIN)
}

// CloseAll closes connections.
func CloseAll(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

// Post sends a request as a user and returns how execd answers and how many bytes the
// answer has.
func Post(ctx context.Context, socket string, uid int, verb string, request any) (status int, text []byte, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return 0, nil, err
	}
	var c net.Conn
	if err2 := As(uid, uid, func() { c, err = dialPatiently(socket) }); err2 != nil || err != nil {
		return 0, nil, errors.Join(err, err2)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	// A client that is refused at once finds the connection closed, and the answer there.
	_, _ = io.WriteString(c, Posted(verb, len(body))+string(body))
	reply, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, nil, err
	}
	defer reply.Body.Close()
	text, err = io.ReadAll(reply.Body)
	return reply.StatusCode, text, err
}

// Stars returns n times "*".
func Stars(n int) []string { return strings.Fields(strings.Repeat("* ", n)) }
