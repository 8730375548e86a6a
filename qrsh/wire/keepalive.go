package wire

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel probes a connection over which nothing was received for quiet, and
// does so every again. The connection is over when neither a probe nor sent
// data was acknowledged for dead. No process is woken for it.
const (
	quiet = 30 * time.Second
	again = 10 * time.Second
	dead  = 60 * time.Second
)

// KeepAlive has the kernel check whether the other end of a connection still
// exists: a host or network that is down sends nothing.
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
