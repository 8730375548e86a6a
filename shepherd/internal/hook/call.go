package hook

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/starter"
	"paddock/spool"
)

// call is a hook that execd wants to be run.
type call struct {
	spool.HookCall
	streams [3]uintptr // its standard streams
	socket  int        // by which execd is told of it, and says when it is to end
}

var errCall = errors.New("bad call")

// receive waits for a call. io.EOF is the end of execd, or its wish.
func receive() (*call, error) {
	var text [1]byte
	n, files, err := starter.Receive(spool.HookSocket, text[:])
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, io.EOF
	case len(files) != spool.HookFiles:
		return nil, errCall
	}
	c := &call{socket: files[spool.HookFiles-1]}
	for i := range c.streams {
		c.streams[i] = uintptr(files[i])
	}
	read, err := spool.ReadHookCall(descriptor(c.socket))
	if err != nil {
		return nil, errCall // execd has ended meanwhile
	}
	c.HookCall = *read
	return c, nil
}

// letGo gives up the hook's streams, so that their ends are seen when the hook has
// closed them, and its directory.
func (c *call) letGo() {
	for _, fd := range c.streams {
		unix.Close(int(fd))
	}
	_ = unix.Chdir("/")
}

// tell sends lines to execd, which may be gone.
func (c *call) tell(b []byte) error {
	for len(b) > 0 {
		n, err := unix.SendmsgN(c.socket, b, nil, nil, unix.MSG_NOSIGNAL)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		b = b[max(n, 0):]
	}
	return nil
}

// descriptor reads from one.
type descriptor int

func (d descriptor) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(d), b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// Given reports whether there is the socket that execd gives.
func Given() bool {
	var st unix.Stat_t
	return unix.Fstat(spool.HookSocket, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK
}
