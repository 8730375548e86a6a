package conf

import (
	"fmt"
	"path/filepath"
	"strings"

	"paddock/spool"
)

// Connection is how a kind of interactive jobs is connected: by a daemon on the job's
// side and a command on the client's. Both are empty if qrsh-session connects it.
type Connection struct {
	Command string // qlogin_command, rlogin_command, rsh_command
	Daemon  string // qlogin_daemon, rlogin_daemon, rsh_daemon: absolute
}

// Half returns the one of the two that is set without the other; "": neither is.
func (c *Connection) Half() string {
	switch {
	case c.Command == "" && c.Daemon != "":
		return "daemon"
	case c.Command != "" && c.Daemon == "":
		return "command"
	}
	return ""
}

// connecting is the parameter for the client's command.
func connecting(name string, field func(*Global) *string) param[Global] {
	return param[Global]{name, "builtin", command, func(s *scope, g *Global, v string) error {
		return setConnection(s, field(g), v)
	}}
}

// answering is the parameter for the daemon that the client connects to. It follows the
// command.
func answering(kind string, connection func(*Global) *Connection) param[Global] {
	return param[Global]{kind + "_daemon", "builtin", command, func(s *scope, g *Global, v string) error {
		c := connection(g)
		if err := setConnection(s, &c.Daemon, v); err != nil {
			return err
		}
		switch c.Half() {
		case "daemon":
			s.warn("%s_command is builtin: clients cannot connect", kind)
		case "command":
			s.warn("it is builtin, %s_command is not: clients cannot connect", kind)
		}
		return nil
	}}
}

// setConnection reads a command with its arguments. In Grid Engine none means its own
// rsh programs, which do not exist here.
func setConnection(s *scope, into *string, v string) error {
	switch {
	case strings.EqualFold(v, "builtin"):
		return nil
	case isNone(v):
		s.warn("none means builtin here: execd has no rsh programs of its own")
		return nil
	case !filepath.IsAbs(v) || !spool.PlainValue(v):
		return fmt.Errorf("%q is neither builtin nor a command with an absolute path", v)
	}
	*into = v
	return nil
}
