package starter

import (
	"errors"
	"slices"
	"strings"
	"unsafe"

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
		s.look(job)
		submitted.Argv = append([]string{job.File}, job.Argv...)
	}
	if err := s.awaitConnection(&submitted); err != nil {
		return s.failed(err)
	}
	s.call(unix.SYS_CHDIR, s.path("/"))
	s.or(s.state(), "cannot leave the job's directory: ")
	s.daemon = true
	if s.root {
		s.target = &IDs{Name: "root", Groups: []int{0}, Home: "/"}
		if s.addGID != 0 {
			s.target.Groups = append(s.target.Groups, s.addGID)
		}
	}
	s.env, s.turns = s.fromNothing(), nil
	s.detailReady()
	if err := s.privateTmp(); err != nil {
		return s.failed(err)
	}
	return s.exec(cmd)
}

// awaitConnection tells qrsh-session that the daemon is ready to start, and
// makes the connection that it gets for it the standard streams.
func (s *starter) awaitConnection(submitted *spool.Command) error {
	if len(s.files) != 1 {
		return errBadOrder
	}
	socket := s.files[0]
	limit := store(s.plan, unix.Timeval{Sec: daemonTime})
	s.call(unix.SYS_SETSOCKOPT, socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, limit, unsafe.Sizeof(unix.Timeval{}))
	s.or(s.state(), "cannot wait for the client's connection: ")
	s.say("waiting for a connection to the daemon")
	s.flush()
	if err := s.submit(socket, submitted, s.turns); err != nil {
		return err
	}
	const most = 1 << 10
	text := s.room(most)
	m := s.receive(socket, text, most)
	s.or(s.state(), "cannot wait for the client's connection: ")
	n, length := s.result(), s.load(m.length(), lengthSize, ^uintptr(0))
	s.either(length, 0, func() {
		s.either(n, 0, func() {
			s.giveUp(&Failure{Number: s.state(), Text: "no connection to the daemon: qrsh-session has ended"})
		}, func() {
			s.add(doFail, 0, text, n)
			s.orSay(s.state(), "no connection to the daemon: ")
		})
	}, nil)
	s.unlessEqual(length, uintptr(unix.CmsgLen(4)), s.failed(errBadOrder))
	conn := s.load(m.descriptor(0), 4, ^uintptr(0))
	// The daemon gets nothing from a process that is not root's but a connection of TCP.
	const unfit = "cannot use what qrsh-session sends: "
	protocol, size := s.room(4), s.ids([]uint32{4})
	s.call(unix.SYS_GETSOCKOPT, conn, unix.SOL_SOCKET, unix.SO_PROTOCOL, protocol, size)
	s.or(s.state(), unfit)
	s.unlessEqual(s.load(protocol, 4, ^uintptr(0)), unix.IPPROTO_TCP, s.failed(errors.New(unfit+errnoText(unix.EPROTOTYPE))))
	for fd := range 3 {
		s.moveTo(conn, fd)
	}
	return nil
}

// submit sends the command that was submitted, with its environment as it turns out.
func (s *starter) submit(socket uintptr, c *spool.Command, turns []turn) (err error) {
	if len(turns) > 0 {
		t, env := turns[0], slices.Clone(c.Env)
		env[t.index] = t.inDir
		s.either(t.isDir, 1, func() {
			err = s.submit(socket, &spool.Command{Dir: c.Dir, Argv: c.Argv, Env: env}, turns[1:])
		}, func() {
			if err == nil {
				err = s.submit(socket, c, turns[1:])
			}
		})
		return err
	}
	b := c.Append(nil)
	if len(b) > spool.MaxCommand {
		return errors.New("cannot start the daemon: the command with its environment is too long")
	}
	s.call(unix.SYS_SENDTO, socket, s.put(string(b)), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	s.or(s.state(), "cannot reach qrsh-session: ")
	s.unlessEqual(s.result(), uintptr(len(b)), s.failed(failedTo("reach qrsh-session", unix.EIO)))
	return nil
}
