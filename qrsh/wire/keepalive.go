package wire

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// A connection over which nothing came for quiet is asked after every again,
// and is over when there was no answer, or no receipt for what was sent, for dead.
// All of it is the kernel's: nobody is woken by it.
const (
	quiet = 30 * time.Second
	again = 10 * time.Second
	dead  = 60 * time.Second
)

// KeepAlive has the kernel see whether the other end of a connection is still
// there, since a host or network that is down says nothing.
func KeepAlive(conn net.Conn) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	err := tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: quiet, Interval: again, Count: int((dead - quiet) / again)})
	if err != nil {
		return fmt.Errorf("cannot keep a connection alive: %w", err)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return fmt.Errorf("cannot keep a connection alive: %w", err)
	}
	var failed error
	if err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(dead/time.Millisecond))
	}); err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("cannot keep a connection alive: %w", err)
	}
	return nil
}
