package admit

import (
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/launch"
)

// Interactive refuses what cannot become an interactive job. Such a job is not
// rerun, since its client has gone.
func (a *Rules) Interactive(r *api.SubmitRequest) error {
	reject := func(format string, args ...any) error { return api.Errorf(api.CodeRejected, format, args...) }
	if err := a.Launcher.CheckInteractive(); err != nil {
		return reject("job rejected: interactive jobs cannot be run: %v", err)
	}
	if r.Interactive.Display != "" {
		r.Interactive.Client = api.Listener{}
	} else if _, err := launch.NewSession(1, &r.Interactive.Client); err != nil {
		return reject("job rejected: %v", err)
	}
	if err := a.connect(r); err != nil {
		return err
	}
	allowed := a.Config().Global.SessionLost
	switch {
	case r.Interactive.Lost != "" && !slices.Contains(allowed, r.Interactive.Lost):
		return reject("job rejected: -lost %s is not allowed, only %s", r.Interactive.Lost, strings.Join(allowed, ", "))
	case !r.Binary:
		return reject("job rejected: an interactive job has no script")
	case r.Tasks.IsArray():
		return reject("job rejected: an interactive job cannot be an array")
	case r.Rerun == api.RerunYes:
		return reject("job rejected: an interactive job cannot be run again")
	case r.Checkpoint != "":
		return reject("job rejected: an interactive job cannot be checkpointed")
	}
	r.Rerun = api.RerunNo
	return nil
}

// connect decides how an interactive job is connected.
func (a *Rules) connect(r *api.SubmitRequest) error {
	i, global := r.Interactive, &a.Config().Global
	i.Daemon = ""
	if i.Display != "" {
		switch {
		case global.Xterm == "":
			return api.Errorf(api.CodeRejected, "job rejected: there is no qsh: xterm of sge_conf is none")
		case !api.PlainDisplay(i.Display):
			return api.Errorf(api.CodeRejected, "job rejected: %q is not an X display", api.Short(i.Display))
		}
		return nil
	}
	kind, c := connectionOf(global, i)
	if half := c.Half(); half != "" {
		return api.Errorf(api.CodeRejected, "job rejected: of %s_command and %s_daemon of sge_conf only the %s is not builtin", kind, kind, half)
	}
	i.Daemon = c.Daemon
	return nil
}

// connectionOf returns how a kind of interactive jobs is connected.
func connectionOf(g *conf.Global, i *api.Interactive) (kind string, c *conf.Connection) {
	switch {
	case i.Login && i.Qlogin:
		return "qlogin", &g.Qlogin
	case i.Login:
		return "rlogin", &g.Rlogin
	}
	return "rsh", &g.Rsh
}

// ProgramOf returns the command by which the client of a job connects to it.
func ProgramOf(g *conf.Global, r *api.SubmitRequest) string {
	if r.Interactive == nil || r.Interactive.Daemon == "" {
		return ""
	}
	_, c := connectionOf(g, r.Interactive)
	return c.Command
}
