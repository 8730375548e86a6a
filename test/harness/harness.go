// Package harness helps tests: it builds the real binaries, runs an execd in a directory of
// its own, makes users, and lists what a run left behind. Tests everywhere import it, and
// the other packages below test.
package harness

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
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/test/props"
)

// Patience bounds every wait for something that ought to happen at once. It
// is long because a shared machine may stall, and costs nothing when all is
// well.
const Patience = 4 * time.Minute

// Root returns the root of the source tree.
func Root() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		panic("internal error: no caller information")
	}
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// noMailer is where the binaries of tests look for a mailer.
const noMailer = "/nonexistent/mailer"

// Build puts the real binaries, which test/built builds, into dir. They find no mailer of
// the host's, so that no test can send mail to anybody.
func Build(dir string) error {
	if err := run(filepath.Join(Root(), "test", "built"), "sh", "-c", `mkdir -p "$0" && cp -a "$PADDOCK_BIN/." "$0"`, dir); err != nil {
		return err
	}
	execd, err := os.ReadFile(filepath.Join(dir, "execd"))
	if err == nil && !bytes.Contains(execd, []byte("mailers="+noMailer)) { // of how it was built
		err = errors.New("the execd of tests would find the host's mailer: build it with MAILERS=" + noMailer)
	}
	return err
}

// RunWithShepherd runs the tests of a package that start helpers of execd, with the real
// shepherd, whose path it tells before, and returns the exit code. A test that starts its
// own binary again gives it the directory of that in the variable [props.Built].
func RunWithShepherd(m *testing.M, path *string) (code int) {
	const name = "shepherd"
	if built := os.Getenv(props.Built); built != "" {
		*path = filepath.Join(built, name)
		return m.Run()
	}
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	*path = filepath.Join(dir, name)
	if err := props.Build(*path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func without(env []string, names ...string) []string {
	var kept []string
next:
	for _, kv := range env {
		for _, n := range names {
			if strings.HasPrefix(kv, n+"=") {
				continue next
			}
		}
		kept = append(kept, kv)
	}
	return kept
}

// The pauses between two looks at what is waited for have a bound, which grows with the time
// that has passed, and are longer where a look takes long: many start a command, and the
// processors are for what is looked at.
const (
	longestPause  = 200 * time.Millisecond
	pausesElapsed = 16
	pauseOfLooks  = 3
)

// WaitFor calls ok until it reports true, with pauses that grow. After limit it returns
// an error that names what was waited for.
func WaitFor(limit time.Duration, what string, ok func() (bool, error)) error {
	deadline := time.Now().Add(limit)
	var last error
	started := time.Now()
	for pause := 2 * time.Millisecond; ; pause = min(pause*5/4, max(longestPause, time.Since(started)/pausesElapsed)) {
		begun := time.Now()
		done, err := ok()
		if done && err == nil {
			return nil
		}
		if err != nil {
			last = err
		}
		took := time.Since(begun)
		if time.Now().After(deadline) {
			if last != nil {
				return fmt.Errorf("still waiting for %s after %v: %w", what, limit, last)
			}
			return fmt.Errorf("still waiting for %s after %v", what, limit)
		}
		time.Sleep(max(pause, min(pauseOfLooks*took, longestPause)))
	}
}

// Soak says that there is time to try all of what make test tries a part of.
var Soak = os.Getenv("PADDOCK_SOAK") != ""

// Memory returns a new directory for a test that makes and removes thousands of files: in
// memory, where the host has that. Some disks look at all that were removed in the last
// minutes whenever a file is made, by whatever test. The soak test has it on the disk.
// Other users may pass through to it.
func Memory(t testing.TB) string {
	t.Helper()
	onDisk := func() string {
		dir := t.TempDir()
		if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if Soak {
		return onDisk()
	}
	base, err := os.MkdirTemp("/dev/shm", "paddock-test-") //nolint:usetesting // not on the disk
	if err != nil {
		return onDisk()
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	dir := filepath.Join(base, "dir")
	if err := errors.Join(os.Chmod(base, 0o755), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Disk returns a new directory on a disk, if the host has its /var/tmp there, for a test that
// is about one: temporary files may lie in memory. Other users may pass through to it.
func Disk(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "paddock-test-") //nolint:usetesting // as said
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// WriteExecutable is [props.WriteExecutable].
func WriteExecutable(name, text string) error { return props.WriteExecutable(name, text) }

// Daemon is a running execd with everything below one directory.
type Daemon struct {
	Dir    string
	Client *api.Client
	cmd    *exec.Cmd
	done   chan struct{} // closed when the process was waited for
	err    error         // of the wait; read after done
}

// Options says how an execd is started.
type Options struct {
	Bin  string   // the directory of the binaries
	Dir  string   // below which everything lies
	Mode string   // "-dev", the default, or "-root"
	Args []string // further arguments
	Via  []string // a command that becomes execd, whose command line is appended
	Env  []string // the environment; nil means that of the test
	User *User    // when not nil: who it runs as
	// Notify is the path of the socket on which it says that it is ready. Empty: it
	// has an abstract name, which other network namespaces do not see.
	Notify string
}

// Start starts an execd and returns when it says that it accepts requests. The
// word comes over the socket that sd_notify(3) describes. Its log is
// appended to the file that Log names. One in root mode whose configuration has
// no gid_range gets numbers that no other execd has, see ownGIDs.
func Start(o Options) (*Daemon, error) {
	if o.Mode == "" {
		o.Mode = "-dev"
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(LogName(o.Dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	if o.Mode == "-root" {
		if err := ownGIDs(o.Dir); err != nil {
			return nil, err
		}
	}
	notify, name, err := listenNotify(o.Notify)
	if err != nil {
		return nil, err
	}
	defer unix.Close(notify)
	if o.Notify != "" {
		defer os.Remove(o.Notify)
	}

	argv := slices.Concat(o.Via, []string{filepath.Join(o.Bin, "execd"), o.Mode, o.Dir}, o.Args)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = o.Env
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(without(cmd.Env, "NOTIFY_SOCKET"), "NOTIFY_SOCKET="+name)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, o.Dir
	// A ^C at the terminal of `go test` is for the test, which then stops us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if o.User != nil {
		cmd.SysProcAttr.Credential = o.User.Credential()
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start execd: %w", err)
	}
	d := &Daemon{Dir: o.Dir, Client: api.NewClient(api.DevPlaces(o.Dir).Socket), cmd: cmd, done: make(chan struct{})}
	go func() {
		d.err = cmd.Wait()
		close(d.done)
	}()
	err = WaitFor(Patience, "execd to be ready", func() (bool, error) {
		if d.Exited() {
			return true, nil
		}
		return heardReady(notify), nil
	})
	if err == nil && d.Exited() {
		err = fmt.Errorf("execd ended before it was ready: %v", d.cmd.ProcessState)
	}
	if err != nil {
		d.Kill()
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%w\n%s", err, text[min(int(before), len(text)):]) // what earlier ones have logged would hide it
	}
	remember(o.Dir)
	return d, nil
}

// listenNotify opens a datagram socket, without a path one with an abstract name:
// it needs no file that somebody would have to remove, and any user may write to it.
func listenNotify(path string) (fd int, name string, err error) {
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, "", fmt.Errorf("cannot make a notify socket: %w", err)
	}
	// An empty name lets the kernel choose a free one.
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return -1, "", fmt.Errorf("cannot bind a notify socket: %w", err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		unix.Close(fd)
		return -1, "", fmt.Errorf("cannot name a notify socket: %w", err)
	}
	return fd, sa.(*unix.SockaddrUnix).Name, nil
}

func heardReady(fd int) bool {
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil {
			return false
		}
		for line := range bytes.Lines(buf[:n]) {
			if string(bytes.TrimSpace(line)) == "READY=1" {
				return true
			}
		}
	}
}

// PID returns the process id.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Exited reports whether the process has ended.
func (d *Daemon) Exited() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// Kill kills the daemon with SIGKILL, as a crash would, and waits for it.
func (d *Daemon) Kill() {
	_ = d.cmd.Process.Kill() // it may have ended by itself
	<-d.done
}

// Stop asks the daemon to end and waits for it. An exit status other than 0 is
// an error.
func (d *Daemon) Stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cannot stop execd: %w", err)
	}
	select {
	case <-d.done:
	case <-time.After(Patience):
		d.Kill()
		return fmt.Errorf("execd did not stop on SIGTERM\n%s", d.Log())
	}
	if d.err != nil {
		return fmt.Errorf("execd ended badly: %w\n%s", d.err, d.Log())
	}
	return nil
}

// LogName returns the file that an execd below dir logs to: beside dir, so that
// a full disk does not hold it.
func LogName(dir string) string { return dir + ".log" }

// Log returns the end of what the daemon logged.
func (d *Daemon) Log() string {
	text, _ := os.ReadFile(LogName(d.Dir))
	if over := len(text) - 8192; over > 0 {
		text = text[over:]
	}
	return string(text)
}

// WaitJob returns when no task of a job is left and its accounting is written.
// It goes on through restarts of execd.
func (d *Daemon) WaitJob(job int) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	req := api.WaitRequest{Job: job}
	for {
		var reply api.WaitReply
		err := d.Client.Call(ctx, api.VerbWait, req, &reply)
		switch {
		case err == nil && reply.Error != "":
			return fmt.Errorf("job %d is in error: %s", job, reply.Error)
		case err == nil && reply.Done:
			return d.waitGone(ctx, job)
		case err == nil:
			req.Cursor = reply.Cursor
		default:
			return fmt.Errorf("cannot wait for job %d: %w\n%s", job, err, d.Log())
		}
	}
}

// waitGone returns when qstat would not show the job any more: all its stages
// are over, the accounting line is written.
func (d *Daemon) waitGone(ctx context.Context, job int) error {
	name := strconv.Itoa(job)
	return WaitFor(Patience, "job "+name+" to be cleaned up", func() (bool, error) {
		var reply api.DetailReply
		if err := d.Client.Call(ctx, api.VerbDetail, api.DetailRequest{Jobs: []string{name}}, &reply); err != nil {
			return false, err
		}
		return len(reply.Jobs) == 0, nil
	})
}

// Accounting counts the lines of the accounting file: by job and task, as
// "42.0" (a job that is no array) or "42.7".
func Accounting(dir string) (map[string]int, error) {
	// A line that is being written may be seen in part.
	var text []byte
	if err := WaitFor(Patience, "a whole line in the accounting file", func() (bool, error) {
		var err error
		text, err = os.ReadFile(api.DevPlaces(dir).Accounting)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return len(text) == 0 || text[len(text)-1] == '\n', err
	}); err != nil {
		return nil, err
	}
	lines := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) != 45 && len(f) != 46 || !strings.HasSuffix(line, "\n") { // with a reason
			return nil, fmt.Errorf("accounting line with %d fields: %q", len(f), line)
		}
		lines[f[5]+"."+f[35]]++
	}
	return lines, nil
}

// Jobs returns what qstat -u '*' shows.
func (d *Daemon) Jobs() ([]api.JobStatus, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var reply api.JobsReply
	err := d.Client.Call(ctx, api.VerbJobs, api.JobsRequest{Users: []string{"*"}}, &reply)
	return reply.Jobs, err
}

// Queues returns what qstat -f shows.
func (d *Daemon) Queues() ([]api.QueueStatus, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var reply api.HostReply
	err := d.Client.Call(ctx, api.VerbHost, api.HostRequest{}, &reply)
	return reply.Queues, err
}
