package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// GridEngine is the real Grid Engine that test/interop/gridengine brings up.
type GridEngine struct {
	script string
	unlock func()
}

// GEShepherd is Grid Engine's shepherd itself; the one in /usr/sbin is a
// wrapper of Debian's.
const GEShepherd = "/usr/lib/gridengine/sge_shepherd"

// UseGridEngine locks the machine's one Grid Engine and brings it up when it is
// down. It stays up: the next user of the machine finds it.
func UseGridEngine() (*GridEngine, error) {
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("cannot bring up Grid Engine: not root")
	}
	unlock, err := Lock("/run/lock/paddock-gridengine.lock")
	if err != nil {
		return nil, err
	}
	g := &GridEngine{script: filepath.Join(Root(), "test", "interop", "gridengine"), unlock: unlock}
	if _, err := g.do(20*time.Minute, "up"); err != nil {
		unlock()
		return nil, err
	}
	return g, nil
}

// Release gives the lock back.
func (g *GridEngine) Release() { g.unlock() }

// commandTime bounds what one command may take: some wait for a job, and for those
// before it.
const commandTime = 5 * Patience

// As runs a shell command line as a user among Grid Engine's commands.
func (g *GridEngine) As(user, line string) (string, error) {
	return g.do(commandTime, "as", user, line)
}

// Run runs a command as root among Grid Engine's commands.
func (g *GridEngine) Run(args ...string) (string, error) {
	return g.do(commandTime, append([]string{"run"}, args...)...)
}

// Set sets one parameter of Grid Engine's global configuration and returns what
// it was. Its execd learns of it with its next report.
func (g *GridEngine) Set(name, value string) (was string, err error) {
	was, err = g.do(Patience, "get", name)
	if err != nil {
		return "", err
	}
	_, err = g.do(Patience, "set", name, value)
	return strings.TrimSpace(was), err
}

// PID returns the process of a daemon, sge_execd or sge_qmaster.
func (g *GridEngine) PID(daemon string) (int, error) {
	out, err := g.do(Patience, "pid", daemon)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(out))
}

// Command returns the command that does what As does, for a caller that times
// or starts it itself.
func (g *GridEngine) Command(args ...string) *exec.Cmd { return exec.Command(g.script, args...) }

func (g *GridEngine) do(limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, g.script, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// The daemons that `up` starts should not hold the output open; if one does, Run
	// returns all the same.
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("cannot run gridengine %v: %w\n%s%s", args, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String(), nil
}

// JobDirectory makes a job directory that Grid Engine's shepherd accepts, with
// the given config keys replaced or added.
func JobDirectory(dir, script, user string, set ...string) error {
	args := append([]string{dir, script, user}, set...)
	out, err := exec.Command(filepath.Join(Root(), "test", "interop", "shepherd-spool"), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot make job directory %q: %w\n%s", dir, err, out)
	}
	return nil
}
