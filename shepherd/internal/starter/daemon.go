package starter

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// daemonTime is how long a daemon waits for its connection at most. It is more
// than qrsh-session waits for the client: that knows more to say.
const daemonTime = 90

// becomeDaemon turns into the daemon of an interactive job, with the connection
// of the client as its standard streams. The submitted command goes to qrsh-session, from
// which the process that the daemon starts in the owner's name fetches it.
//
// Under root the daemon is root's, since it has to become the user who proves to be the
// owner, and so it starts from nothing that is the owner's: environment, directory,
// streams. It has the job's limits, groups and place, which it passes on.
func (s *starter) becomeDaemon(command string) *Failure {
	cmd, err := procedure("the daemon", strings.Fields(command))
	if err == nil {
		// By the real user, which is still root.
		if e := unix.Access(cmd.File, unix.X_OK); e != nil {
			err = errors.New("cannot execute the daemon " + cmd.File + ": " + errnoText(e))
		}
	}
	if err != nil {
		return &Failure{Number: spool.FailedDaemons, Text: err.Error()}
	}
	s.environment()
	submitted := spool.Command{Dir: s.streams.cwd, Env: s.env.list}
	if !s.request.Login {
		job, err := s.command()
		if err != nil {
			return s.failed(err)
		}
		if fail := s.look(job); fail != nil {
			return fail
		}
		submitted.Argv = append([]string{job.File}, job.Argv...)
	}
	conn, err := s.awaitConnection(&submitted)
	if err != nil {
		return s.failed(err)
	}
	for fd := range 3 {
		if err := moveTo(conn, fd); err != nil {
			return s.failed(err)
		}
	}
	if err := unix.Chdir("/"); err != nil {
		return s.failed(failedTo("leave the job's directory", err))
	}
	s.daemon = true
	if s.root {
		s.target = &IDs{Name: "root", Groups: []int{0}, Home: "/"}
		if s.addGID != 0 {
			s.target.Groups = append(s.target.Groups, s.addGID)
		}
	}
	s.env = s.fromNothing()
	s.detailReady()
	if err := s.privateTmp(); err != nil {
		return s.failed(err)
	}
	return s.exec(cmd)
}

// awaitConnection tells qrsh-session that the daemon is ready to start, and
// returns the connection that it gets for it.
func (s *starter) awaitConnection(submitted *spool.Command) (int, error) {
	if len(s.files) != 1 {
		return -1, errBadOrder
	}
	socket := s.files[0]
	b := submitted.Append(nil)
	if len(b) > spool.MaxCommand {
		return -1, errors.New("cannot start the daemon: the command with its environment is too long")
	}
	limit := unix.Timeval{Sec: daemonTime}
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return -1, failedTo("wait for the client's connection", err)
	}
	s.say("waiting for a connection to the daemon")
	s.log.Flush()
	for len(b) > 0 {
		n := 0
		err := ignoringEINTR(func() (err error) {
			n, err = unix.SendmsgN(socket, b, nil, nil, unix.MSG_NOSIGNAL)
			return err
		})
		if err != nil {
			return -1, failedTo("reach qrsh-session", err)
		}
		b = b[n:]
	}
	var text [1 << 10]byte
	n, files, err := Receive(socket, text[:])
	switch {
	case errors.Is(err, errBadOrder), len(files) > 1:
		return -1, errBadOrder
	case err != nil:
		return -1, failedTo("wait for the client's connection", err)
	case len(files) == 1:
		return files[0], isConnection(files[0])
	case n == 0:
		return -1, errors.New("no connection to the daemon: qrsh-session has ended")
	}
	return -1, errors.New("no connection to the daemon: " + string(text[:n]))
}

// isConnection reports why a descriptor is no connection of TCP: the daemon gets
// nothing else from a process that is not root's.
func isConnection(fd int) error {
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err == nil && protocol != unix.IPPROTO_TCP {
		err = unix.EPROTOTYPE
	}
	if err != nil {
		return failedTo("use what qrsh-session sends", err)
	}
	return nil
}
