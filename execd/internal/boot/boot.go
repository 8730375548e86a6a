// Package boot has systemd start the execd of a user when the host boots, by a unit of the
// user's own manager. Only main imports it.
package boot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"paddock/spool/atomicfile"
)

// Unit is the name of the unit, which is that of root's, too.
const Unit = "paddock-execd.service"

// Service is the execd of the user who calls.
type Service struct {
	Program string // path of execd
	Qconf   string // path of qconf
	Home    string
	// Environment are the variables that execd would not find at a boot, NAME=value.
	Environment []string
	// Running says that an execd serves this user; it is not known to be the unit's.
	Running bool
	Out     io.Writer // is told what was done
}

// ErrLogout is matched when the unit is set up and execd will end with the last session.
var ErrLogout = errors.New("lingering is off")

// mark is the first line of our units. Others are not touched.
const mark = "# Written by `execd -boot`, which replaces it; `execd -boot -off` removes it.\n"

// text is the unit: what is said in root's, packaging/systemd/paddock-execd.service,
// holds for it as well.
const text = mark + `[Unit]
Description=Paddock execution daemon of this user
Documentation=man:execd(8) man:paddock(7)
StartLimitIntervalSec=0

[Service]
Type=notify
%sExecStart=%s
ExecReload=%s -reload
Restart=always
RestartSec=2
RestartPreventExitStatus=64 78
TimeoutStartSec=300
WatchdogSec=60
TimeoutAbortSec=10
KillMode=process
Delegate=yes
DelegateSubgroup=execd
OOMPolicy=continue
TasksMax=infinity
NotifyAccess=main

[Install]
WantedBy=default.target
`

// unit returns the text of the unit.
func (s *Service) unit() (string, error) {
	var environment strings.Builder
	for _, v := range s.Environment {
		word, err := quote(v)
		if err != nil {
			return "", err
		}
		environment.WriteString("Environment=" + word + "\n")
	}
	program, err := quote(s.Program)
	if err != nil {
		return "", err
	}
	qconf, err := quote(s.Qconf)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(text, environment.String(), program, qconf), nil
}

// quote writes a word as systemd reads it (systemd.service(5)).
func quote(word string) (string, error) {
	if strings.ContainsAny(word, "\"\\$") || strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("a unit of systemd cannot have the word %q", word)
	}
	return `"` + strings.ReplaceAll(word, "%", "%%") + `"`, nil
}

func (s *Service) path() string { return filepath.Join(s.Home, ".config", "systemd", "user", Unit) }

// there returns the unit of an earlier call; empty: there is none.
func (s *Service) there() (string, error) {
	data, err := os.ReadFile(s.path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("cannot read unit: %w", err)
	case !bytes.HasPrefix(data, []byte(mark)):
		return "", fmt.Errorf("%s is not of execd -boot", s.path())
	}
	return string(data), nil
}

// On sets the unit up, starts it, and has it started at boot. It may be called again.
func (s *Service) On(ctx context.Context) error {
	want, err := s.unit()
	if err != nil {
		return err
	}
	had, err := s.there()
	if err != nil {
		return err
	}
	if err := manager(ctx); err != nil {
		return err
	}
	active := systemctl(ctx, "is-active", "--quiet", Unit) == nil
	if s.Running && !active {
		return errors.New("an execd of yours runs already, which systemd has not started: stop it first; its jobs go on")
	}
	if had != want {
		if err := os.MkdirAll(filepath.Dir(s.path()), 0o755); err != nil {
			return fmt.Errorf("cannot write unit: %w", err)
		}
		if err := atomicfile.Write(s.path(), []byte(want), 0o644); err != nil {
			return fmt.Errorf("cannot write unit: %w", err)
		}
		if err := systemctl(ctx, "daemon-reload"); err != nil {
			return err
		}
		s.say("wrote %s", s.path())
	}
	if err := systemctl(ctx, "enable", "--now", Unit); err != nil {
		return fmt.Errorf("%w; see journalctl --user -u %s", err, Unit)
	}
	if had != want && active {
		if err := systemctl(ctx, "restart", Unit); err != nil {
			return fmt.Errorf("%w; see journalctl --user -u %s", err, Unit)
		}
	}
	s.say("%s is enabled and runs", Unit)
	return s.linger(ctx)
}

// linger has the user's manager started at boot, and kept when no session is left.
func (s *Service) linger(ctx context.Context) error {
	uid := strconv.Itoa(os.Getuid())
	value, err := call(ctx, "loginctl", "show-user", "--property=Linger", "--value", uid)
	if err != nil || value != "yes" {
		if _, err := call(ctx, "loginctl", "--no-ask-password", "enable-linger", uid); err != nil {
			return fmt.Errorf("%w: %w\nuntil an administrator has called `loginctl enable-linger %s`, execd and all of its jobs end with your last session", ErrLogout, err, uid)
		}
	}
	s.say("lingering is on: execd is started when the host boots, and goes on when you log out")
	return nil
}

// Off stops execd and removes the unit.
func (s *Service) Off(ctx context.Context) error {
	had, err := s.there()
	if err != nil {
		return err
	}
	if had == "" {
		s.say("there is no %s", s.path())
		return nil
	}
	if err := manager(ctx); err != nil {
		return err
	}
	if err := systemctl(ctx, "disable", "--now", Unit); err != nil {
		return err
	}
	if err := os.Remove(s.path()); err != nil {
		return fmt.Errorf("cannot remove unit: %w", err)
	}
	if err := systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	s.say("stopped, and removed %s; running jobs go on", s.path())
	s.say("lingering stays as it is; `loginctl disable-linger` ends it, and with your last session what still runs")
	return nil
}

func (s *Service) say(format string, args ...any) {
	fmt.Fprintf(s.Out, "execd: "+format+"\n", args...)
}

// manager reports why the user's service manager cannot be asked.
func manager(ctx context.Context) error {
	if err := systemctl(ctx, "show-environment"); err != nil {
		return fmt.Errorf("%w\nthere is no service manager of yours: log in at the host or by ssh, and not by su or sudo", err)
	}
	return nil
}

func systemctl(ctx context.Context, args ...string) error {
	_, err := call(ctx, "systemctl", append([]string{"--user"}, args...)...)
	return err
}

// call runs a program, and returns what it has written.
func call(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	if os.Getenv("XDG_RUNTIME_DIR") == "" { // as under su and cron
		cmd.Env = append(cmd.Environ(), "XDG_RUNTIME_DIR=/run/user/"+strconv.Itoa(os.Getuid()))
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(errs.String()), "\n")
		if said != "" {
			err = errors.New(said)
		}
		return "", fmt.Errorf("cannot call %s: %w", strings.Join(append([]string{name}, args...), " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
