package vm

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"paddock/execd/api/accounting"
)

// loadWord makes of this binary what is run in a machine whose power will fail.
// It says on the console, in lines that begin with said, what the test
// compares.
const loadWord = "load"

const (
	said    = "power: "
	mounted = "/disk" // where the disk is
	dir     = mounted + "/pd"
	sofar   = "/sofar" // what the test has seen: bytes of accounting and marks, and whether this is the end
	backlog = 6        // records that the load keeps
)

// marker is the job: one line in a file of everybody's, which no power cut
// takes away once dd has returned. Jobs differ in length.
const marker = `echo $JOB_ID.$SGE_TASK_ID | dd of=` + mounted + `/marks oflag=append conv=notrunc,fsync 2>/dev/null || exit 1
test -z "$PADDOCK_SANDBOX" || seq $JOB_ID 9999 >o.$JOB_ID
sleep 0.$((JOB_ID * 7 % 4))
`

func load() {
	say("up")
	if err := power(); err != nil {
		say("bad %v", err)
	}
	os.Exit(0)
}

var console sync.Mutex

// say prints a line.
func say(format string, args ...any) {
	console.Lock()
	defer console.Unlock()
	fmt.Printf(said+format+"\n", args...)
}

func power() error {
	var seen [2]int
	var last bool
	if _, err := fmt.Sscan(read(sofar), &seen[0], &seen[1], &last); err != nil {
		return fmt.Errorf("cannot read %s: %v", sofar, err)
	}
	if out, err := command("dmesg"); err != nil || strings.Contains(out, "EXT4-fs error") {
		return fmt.Errorf("the file system is damaged: %v\n%s", err, out)
	}
	// What a start will find is only told; what it leaves is damage.
	if _, err := os.Stat(dir + "/spool"); err == nil {
		for line := range strings.Lines(findings()) {
			say("before %s", strings.TrimSpace(line))
		}
	}
	if err := endLine(mounted + "/marks"); err != nil {
		return err
	}
	d, err := startDaemon(dir)
	if err != nil {
		return err
	}
	if found := findings(); found != "" {
		return fmt.Errorf("execd -check after the start: %s", found)
	}
	if err := d.settle(); err != nil {
		return err
	}
	if err := d.stop(); err != nil {
		return err
	}
	if found := findings(); found != "" {
		return fmt.Errorf("execd -check when all has ended: %s", found)
	}
	for _, pattern := range []string{"spool/jobs/*", "spool/job_scripts/*", "spool/active_jobs/*", "spool/finished/*", "spool/corrupt/*", "spool/staging/[^.]*", "spool/sandboxes/[^.]*", "../tmp/*", "../out/.[^.]*"} {
		left, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, path := range left {
			listing, _ := command("ls", "-alRn", "--full-time", path)
			say("bad left behind: %s: %q", path, listing)
		}
	}
	for i, path := range []string{dir + "/accounting", mounted + "/marks"} {
		name, text := filepath.Base(path), read(path)
		if len(text) < seen[i] {
			return fmt.Errorf("%s has shrunk from %d to %d bytes", path, seen[i], len(text))
		}
		say("sum %s %x", name, sha256.Sum256([]byte(text[:seen[i]])))
		for line := range strings.Lines(text[seen[i]:]) {
			if err := arrived(line); err != nil {
				say("bad %v", err)
			}
			say("%s %s", name, strings.TrimSuffix(line, "\n"))
		}
	}
	say("settled")
	if last {
		return nil
	}
	if _, err := startDaemon(dir); err != nil {
		return err
	}
	return submitAll()
}

// arrived looks at the output of a job with a sandbox, whose accounting line says that it
// has ended well.
func arrived(line string) error {
	r, err := accounting.Parse([]byte(line))
	if err != nil || r.JobName != "s" || r.Failed != 0 {
		return nil
	}
	var want strings.Builder
	for n := r.JobNumber; n <= 9999; n++ {
		fmt.Fprintln(&want, n)
	}
	path := fmt.Sprintf("%s/out/o.%d", mounted, r.JobNumber)
	if got := read(path); got != want.String() {
		return fmt.Errorf("%s has %d bytes; want %d", path, len(got), want.Len())
	}
	return os.Remove(path)
}

// endLine ends the last line of a file of which the power cut has left a piece.
func endLine(path string) error {
	if text := read(path); text == "" || strings.HasSuffix(text, "\n") {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n")
	return errors.Join(err, f.Sync(), f.Close())
}

// command runs one of the programs as root.
func command(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	return string(out), err
}

// findings returns what execd -check finds.
func findings() string {
	out, err := command(programs+"/execd", "-check", "-root", dir)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		return out
	}
	return fmt.Sprintf("%v: %s", err, out)
}

// running is an execd in root mode.
type running struct {
	cmd  *exec.Cmd
	gone chan struct{}

	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (d *running) log() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.String()
}

// startDaemon starts execd in a directory and returns when it takes requests.
func startDaemon(dir string) (*running, error) {
	d := &running{cmd: exec.Command(programs+"/execd", "-root", dir), gone: make(chan struct{})}
	pipe, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	go func() {
		defer close(d.gone)
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			line := lines.Text()
			d.mu.Lock()
			fmt.Fprintln(&d.text, line)
			d.mu.Unlock()
			switch {
			case strings.Contains(line, "execd: ready"):
				close(ready)
			case strings.Contains(line, "failed=19"):
				_, text, _ := strings.Cut(line, "job ")
				say("cut %s", text)
			case strings.Contains(line, "kept in"):
				say("bad set aside: %s", line)
			}
		}
	}()
	select {
	case <-ready:
		say("ready after %v", time.Since(begun).Round(time.Millisecond))
		return d, nil
	case <-d.gone:
		return nil, fmt.Errorf("execd has not started:\n%s", d.log())
	case <-time.After(patience):
		return nil, fmt.Errorf("execd is not ready after %v", patience)
	}
}

// patience is long: the machine is emulated, on a host that may be busy.
const patience = 6 * time.Minute

// settle waits until all that was submitted before the power failed has ended.
func (d *running) settle() error {
	// Those that were held have not run, and now they may.
	if out, err := command(programs+"/qrls", "-u", "*"); err != nil && !strings.Contains(out, "does not exist") {
		return fmt.Errorf("cannot release jobs: %v: %s", err, out)
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		switch n, err := records(); {
		case err != nil:
			return err
		case n == 0:
			return nil
		}
		if time.Now().After(end) {
			jobs, _ := command(programs+"/qstat", "-u", "*", "-explain", "a")
			return fmt.Errorf("jobs have not ended in %v:\n%s\n%s", patience, jobs, d.log())
		}
	}
}

func (d *running) stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-d.gone
	return d.cmd.Wait()
}

// records counts the jobs that execd has not done with.
func records() (int, error) {
	list, err := os.ReadDir(dir + "/spool/jobs")
	n := 0
	for _, e := range list {
		if e.Name()[0] != '.' {
			n++
		}
	}
	return n, err
}

// submitAll submits jobs of all kinds until the power fails, and says each that
// was acknowledged: its number, its kind and how many tasks it has. Of kind y
// are those that may run again, of kind n those that may not; of kind s those of
// them with a sandbox; of kind h those that are held, and then deleted.
func submitAll() error {
	failed := make(chan error)
	for worker := range 3 {
		go func() {
			for i := worker; ; i++ {
				if err := submitOne(i); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

func submitOne(i int) error {
	for {
		n, err := records()
		if err != nil {
			return err
		}
		if n < backlog {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	kind, tasks, args := "n", 1, []string{"-r", "n"}
	switch i % 6 {
	case 0, 3:
		kind, args = "y", []string{"-r", "y"}
	case 1:
		tasks, args = 3, []string{"-r", "n", "-t", "1-3"}
	case 2:
		kind, args = "h", []string{"-r", "n", "-h"}
	case 4:
		kind, args = "s", []string{"-r", "n", "-stageout_to", mounted + "/out"}
	}
	out, err := asAlice("qsub", append(args, "-N", kind, "-terse", "-wd", "/tmp", "-o", "/dev/null", "-j", "y", mounted+"/marker.sh")...)
	number, _, _ := strings.Cut(strings.TrimSpace(out), ".")
	if _, bad := strconv.Atoi(number); err != nil || bad != nil {
		return fmt.Errorf("cannot submit: %v: %s", err, out)
	}
	say("ack %s %s %d", number, kind, tasks)
	if kind == "h" {
		if out, err := asAlice("qdel", number); err != nil {
			return fmt.Errorf("cannot delete job %s: %v: %s", number, err, out)
		}
		say("gone %s", number)
	}
	return nil
}

// asAlice runs a client command as alice.
func asAlice(name string, args ...string) (string, error) {
	cmd := exec.Command(programs+"/"+name, args...)
	cmd.Dir = "/tmp"
	cmd.Env = []string{"PATH=/bin", "HOME=/home/alice", "PADDOCK_DIR=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: alice, Gid: alice}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
