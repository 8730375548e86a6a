package e2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/test/harness"
)

// A field is an execd whose jobs have procedures and methods that hang where a
// test wants them to. Its user is the second one, if we are root: in root mode
// he submits, in user mode it is his execd.
type field struct {
	t    *testing.T // the present one
	top  *testing.T // the one that has the execd
	dir  string     // of the execd
	pub  string     // where jobs write
	root bool       // root mode
	bin  string     // of the binaries, if not those of all
	via  []string   // starts execd, if not we ourselves
	d    *harness.Daemon

	restart bool // execd is dead when a shepherd dies
}

// newField makes a field and starts its execd. More is added to the queue.
func newField(t *testing.T, root bool, more string) *field {
	t.Helper()
	f := makeField(t, root, more)
	f.start()
	return f
}

// makeField is newField without execd.
func makeField(t *testing.T, root bool, more string) *field {
	t.Helper()
	return makeFieldIn(t, place(t, "faults"), root, more)
}

// makeFieldIn is makeField in a directory that is there.
func makeFieldIn(t *testing.T, base string, root bool, more string) *field {
	t.Helper()
	f := &field{t: t, top: t, dir: filepath.Join(base, "pd"), pub: filepath.Join(base, "pub"), root: root}
	for _, dir := range []string{f.pub, filepath.Join(f.dir, "etc", "queues")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(f.pub, 0o777); err != nil {
		t.Fatal(err)
	}
	if second != nil && !root {
		if err := os.Chown(f.dir, second.UID, second.GID); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"prolog", "epilog", "suspend", "terminate", "job"} {
		f.script(name, f.hangs(name))
	}
	queue := "qname all.q\n" + strings.ReplaceAll(more, "PUB", f.pub)
	if !strings.Contains(queue, "\nslots ") {
		queue += "slots 1\n"
	}
	if err := os.WriteFile(filepath.Join(f.dir, "etc", "queues", "all.q"), []byte(queue), 0o644); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *field) start() {
	f.t.Helper()
	o := harness.Options{Bin: cmp.Or(f.bin, bin), Dir: f.dir, Via: f.via, Env: plainEnv(f.dir)}
	if f.root {
		o.Mode = "-root"
	} else {
		o.User = second
	}
	var err error
	if f.d, err = harness.Start(o); err != nil {
		f.t.Fatal(err)
	}
	d := f.d
	f.top.Cleanup(func() {
		d.Kill()
		if f.top.Failed() {
			harness.KillLeft(f.dir)
			f.kill()
		}
	})
}

// script writes a script, in whose text PUB is where jobs write.
func (f *field) script(name, body string) {
	f.t.Helper()
	body = strings.ReplaceAll(body, "PUB", f.pub)
	if err := harness.WriteExecutable(filepath.Join(f.pub, name), "#!/bin/sh\n"+body); err != nil {
		f.t.Fatal(err)
	}
}

// hangs is a script that notes that it ran and, where the file hang says so,
// goes on for ever: itself, a child that has no environment, and a daemon in
// a session of its own.
func (f *field) hangs(name string) string {
	return strings.ReplaceAll(`
echo NAME $JOB_ID $RESTARTED >>PUB/ran
case $RESTARTED-$(cat PUB/hang) in
0-*NAME*) ;;
*) case NAME-$(cat PUB/hang) in job-*99) exit 99;; job-*) exit 3;; *) exit 0;; esac;;
esac
case $(cat PUB/hang) in
*gate) echo $$ >>PUB/pids; read x <PUB/gate; test NAME != job || exit 3; exit 0;;
esac
exec </dev/null >/dev/null 2>&1
(setsid sh -c 'echo $$ >>PUB/pids; exec sleep 1000' &)
env -i PATH="$PATH" sh -c 'echo $$ >>PUB/pids; exec sleep 1000' &
echo $$ >>PUB/pids
wait
exit 3
`, "NAME", name)
}

// plan makes the scripts hang where it says, and forgets what they noted.
func (f *field) plan(hang string) {
	f.t.Helper()
	for name, text := range map[string]string{"hang": hang, "ran": "", "pids": ""} {
		path := filepath.Join(f.pub, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			f.t.Fatal(err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *field) read(name string) string {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.pub, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(b)
}

// ran returns what ran of a job, as "prolog 0; job 0".
func (f *field) ran(job int) string {
	f.t.Helper()
	var list []string
	for line := range strings.Lines(f.read("ran")) {
		if w := strings.Fields(line); len(w) == 3 && w[1] == strconv.Itoa(job) {
			list = append(list, w[0]+" "+w[2])
		}
	}
	return strings.Join(list, "; ")
}

// pids waits until n processes have noted their numbers.
func (f *field) pids(n int) []int {
	f.t.Helper()
	var pids []int
	f.until(strconv.Itoa(n)+" processes", func() bool {
		pids = nil
		for line := range strings.Lines(f.read("pids")) {
			pid, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
			if err != nil {
				return false
			}
			pids = append(pids, pid)
		}
		return len(pids) == n
	})
	return pids
}

// kill ends what a test that failed has left.
func (f *field) kill() {
	for line := range strings.Lines(f.read("pids")) {
		if pid, err := strconv.Atoi(strings.TrimSuffix(line, "\n")); err == nil && f.alive(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// alive reports whether a process runs one of our scripts, or a part of it. Its
// number may by now be that of somebody else's.
func (f *field) alive(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && (bytes.Contains(line, []byte("sleep\x001000")) || bytes.Contains(line, []byte(filepath.Dir(f.dir)+"/")))
}

func (f *field) until(what string, ok func() bool) {
	f.t.Helper()
	if err := harness.WaitFor(harness.Patience, what, func() (bool, error) { return ok(), nil }); err != nil {
		f.t.Fatalf("%v\nran:\n%spids:\n%s%s", err, f.read("ran"), f.read("pids"), f.d.Log())
	}
}

// command runs a client command as who submits and returns what it says.
func (f *field) command(args ...string) (string, error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, args[0]), args[1:]...)
	cmd.Env, cmd.Dir = plainEnv(f.dir), "/"
	if second != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: second.Credential()}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// submit submits a job and returns its number.
func (f *field) submit(args ...string) int {
	f.t.Helper()
	out, err := f.command(append([]string{"qsub", "-terse", "-o", "/dev/null", "-j", "y", "-wd", "/"}, args...)...)
	if err != nil {
		f.t.Fatalf("qsub: %v\n%s\n%s", err, out, f.d.Log())
	}
	job, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		f.t.Fatalf("qsub said %q", out)
	}
	return job
}

// active returns the path of a file in the directory of a job that runs.
func (f *field) active(job int, name string) string {
	return filepath.Join(api.DevPlaces(f.dir).Spool, "active_jobs", strconv.Itoa(job)+".1", name)
}

// number waits for a number in a file of the directory of a job.
func (f *field) number(job int, name string) int {
	f.t.Helper()
	n := 0
	f.until(name, func() bool {
		text, err := os.ReadFile(f.active(job, name))
		if err != nil {
			return false
		}
		n, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return n
}

// signal asks the shepherd of a job to give it a signal, as execd does.
func (f *field) signal(job int, sig syscall.Signal) {
	f.t.Helper()
	if err := os.WriteFile(f.active(job, "signal"), fmt.Appendf(nil, "%d\n", sig), 0o644); err != nil {
		f.t.Fatal(err)
	}
	if err := syscall.Kill(f.number(job, "pid"), syscall.SIGTTIN); err != nil {
		f.t.Fatal(err)
	}
}

// records returns the accounting lines of a job.
func (f *field) records(job int) []accounting.Record {
	f.t.Helper()
	text, err := os.ReadFile(api.DevPlaces(f.dir).Accounting)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
	var list []accounting.Record
	for line := range bytes.Lines(text) {
		if line[0] == '#' || line[len(line)-1] != '\n' {
			continue
		}
		r, err := accounting.Parse(line)
		if err != nil {
			f.t.Fatal(err)
		}
		if r.JobNumber == job {
			list = append(list, r)
		}
	}
	return list
}

// accounted waits for n accounting lines of a job.
func (f *field) accounted(job, n int) []accounting.Record {
	f.t.Helper()
	var list []accounting.Record
	f.until(fmt.Sprintf("%d accounting lines of job %d", n, job), func() bool {
		list = f.records(job)
		return len(list) >= n
	})
	return list
}

// over waits until a job is over and checks its lines in accounting and log,
// given as "failed exit_status".
func (f *field) over(job int, want ...string) []accounting.Record {
	f.t.Helper()
	if err := f.d.WaitJob(job); err != nil {
		f.t.Error(err)
	}
	var got []string
	list := f.records(job)
	for _, r := range list {
		got = append(got, fmt.Sprintf("%d %d", r.Failed, r.ExitStatus))
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("accounting of job %d: %q; want %q", job, got, want)
	}
	log, err := os.ReadFile(harness.LogName(f.dir))
	if err != nil {
		f.t.Fatal(err)
	}
	ends := regexp.MustCompile(fmt.Sprintf(`(?m)job %d\.1: ended: .*$`, job)).FindAllString(string(log), -1)
	if len(ends) != len(want) {
		f.t.Errorf("log of job %d: %q; want %d lines", job, ends, len(want))
	}
	for _, line := range ends {
		f.t.Log(line)
	}
	return list
}

// goesOn sees that the slot is free and execd is the one that was started.
func (f *field) goesOn() {
	f.t.Helper()
	f.plan("")
	next := f.submit("-N", "next", filepath.Join(f.pub, "job"))
	f.over(next, "0 3")
	if f.d.Exited() {
		f.t.Errorf("execd has ended\n%s", f.d.Log())
	}
}

// gone sees that nothing runs on. What was killed may need a while to go on a
// busy host; what was not goes on for ever.
func (f *field) gone(pids ...int) {
	f.t.Helper()
	for _, pid := range pids {
		f.until(fmt.Sprintf("the end of process %d", pid), func() bool { return !f.alive(pid) })
	}
}

// shepherdDies kills the shepherd of a job with SIGKILL. The order of restart is
// execd first, so that it does not see it.
func (f *field) shepherdDies(job int) {
	f.t.Helper()
	pid := f.number(job, "pid")
	if f.restart {
		f.d.Kill()
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		f.t.Fatal(err)
	}
	if f.restart {
		f.until("the end of the shepherd", func() bool {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			return err != nil || len(line) == 0
		})
		f.start()
	}
}

const procedures = "prolog PUB/prolog\nepilog PUB/epilog\nsuspend_method PUB/suspend\nterminate_method PUB/terminate\n"

// TestFaultShepherdKilled kills the shepherd in every part of a run.
func TestFaultShepherdKilled(t *testing.T) {
	t.Parallel()
	type mode struct {
		name    string
		root    bool
		queue   string
		restart bool // execd was dead already, and is started again
	}
	modes := []mode{{name: "user", queue: procedures}, {name: "restart", queue: procedures, restart: true}}
	if second != nil {
		asRoot := strings.ReplaceAll(procedures, "log PUB", "log root@PUB")
		modes = append(modes, mode{name: "root", root: true, queue: procedures}, mode{name: "privileged", root: true, queue: asRoot},
			mode{name: "privileged restart", root: true, queue: asRoot, restart: true})
	}
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			parallel(t)
			f := newField(t, mode.root, mode.queue)
			f.restart = mode.restart
			for _, c := range []struct {
				hang  string
				pids  int    // in all
				ran   string // in the first run
				lines []string
				again bool // run again, if it may be
			}{
				{hang: "prolog", pids: 3, ran: "prolog 0", lines: []string{"19 0"}, again: true},
				{hang: "start", ran: "prolog 0", lines: []string{"19 0"}, again: true},
				{hang: "job", pids: 3, ran: "prolog 0; job 0", lines: []string{"19 0"}, again: true},
				{hang: "job suspend", pids: 6, ran: "prolog 0; job 0; suspend 0", lines: []string{"19 0"}, again: true},
				{hang: "job terminate", pids: 6, ran: "prolog 0; job 0; terminate 0", lines: []string{"19 0"}},
				{hang: "epilog", pids: 3, ran: "prolog 0; job 0; epilog 0", lines: []string{"19 3"}},
				{hang: "epilog 99", pids: 3, ran: "prolog 0; job 0; epilog 0", lines: []string{"25 99", "0 3"}},
			} {
				for _, rerun := range []string{"n", "y"} {
					t.Run(c.hang+" "+rerun, func(t *testing.T) {
						f.t = t
						f.killIn(c.hang, c.pids, c.ran, c.lines, c.again, rerun)
					})
					if t.Failed() {
						return // what is left would be in the way of the others
					}
				}
			}
			f.t = t
			if err := f.d.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// killIn kills the shepherd of a job in one part and looks at what comes of it.
func (f *field) killIn(hang string, pids int, ran string, lines []string, again bool, rerun string) {
	t := f.t
	f.plan(hang)
	args := []string{"-r", rerun, filepath.Join(f.pub, "job")}
	fifo := filepath.Join(f.pub, "fifo")
	if hang == "start" {
		_ = os.Remove(fifo)
		if err := unix.Mkfifo(fifo, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(fifo, 0o666); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"-i", fifo}, args...) // the prolog's streams are others
	}
	job := f.submit(args...)
	var left []int
	switch hang {
	case "start":
		left = []int{f.number(job, "job_pid")}
		f.until("the starter to open the pipe", func() bool {
			where, _ := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", left[0]))
			what, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", left[0]))
			return bytes.HasPrefix(where, []byte("257 ")) || bytes.Contains(what, []byte("fifo"))
		})
	case "job suspend":
		f.pids(3)
		f.signal(job, syscall.SIGSTOP)
	case "job terminate":
		f.pids(3)
		if out, err := f.command("qdel", strconv.Itoa(job)); err != nil {
			t.Fatalf("qdel: %v\n%s", err, out)
		}
	}
	if pids > 0 {
		left = f.pids(pids)
	}
	if hang == "epilog 99" { // not so in the second run
		if err := os.WriteFile(filepath.Join(f.pub, "hang"), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	f.shepherdDies(job)
	first := f.accounted(job, 1)[0]
	f.gone(left...)
	if hang == "start" {
		f.until(fmt.Sprintf("the end of the starter %d", left[0]), func() bool {
			_, err := os.Stat(fmt.Sprintf("/proc/%d/fd/0", left[0]))
			return err != nil
		})
		// Whoever waits for a reader goes on now.
		open, err := os.OpenFile(fifo, os.O_RDWR|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
	}
	if again && rerun == "y" {
		lines = append(slices.Clone(lines), "0 3")
	}
	f.over(job, lines...)
	if len(lines) > 1 {
		ran += "; prolog 1; job 1; epilog 1"
	}
	if got := f.ran(job); got != ran {
		t.Errorf("what ran: %q; want %q", got, ran)
	}
	if began := strings.Contains(hang, "epilog"); began != (first.StartTime != 0) {
		t.Errorf("start time %d", first.StartTime)
	}
	f.goesOn()
	if _, err := os.Stat(f.active(job, "")); err == nil {
		t.Error("its directory is left")
	}
}

// TestNoShepherd has a shepherd that dies before it has written anything: once
// for a job of either kind.
func TestNoShepherd(t *testing.T) {
	parallel(t)
	f := makeField(t, false, procedures)
	own := filepath.Join(f.dir, "bin")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"qsub", "qstat", "qdel", "qacct", "qmod"} {
		if err := os.Symlink(filepath.Join(bin, "qsub"), filepath.Join(own, name)); err != nil {
			t.Fatal(err)
		}
	}
	execd, err := os.ReadFile(filepath.Join(bin, "execd"))
	if err != nil {
		t.Fatal(err)
	}
	if err := harness.WriteExecutable(filepath.Join(own, "execd"), string(execd)); err != nil {
		t.Fatal(err)
	}
	f.plan("die")
	dies := "#!/bin/sh\ntest \"$(cat " + f.pub + "/hang)\" != die || kill -9 $$\nexec " + filepath.Join(bin, "shepherd") + " \"$@\"\n"
	install := func() { // anew, so that none is on standby that was started by the one before
		if err := harness.WriteExecutable(filepath.Join(own, "shepherd"), dies); err != nil {
			t.Fatal(err)
		}
	}
	install()
	f.bin = own
	f.start()
	for _, rerun := range []string{"n", "y"} {
		f.plan("die")
		install()
		job := f.submit("-r", rerun, filepath.Join(f.pub, "job"))
		f.accounted(job, 1)
		// To try again would go on for ever: the queue waits for somebody to look.
		err := harness.WaitFor(harness.Patience, "the job to wait", func() (bool, error) {
			out, err := f.command("qstat", "-j", strconv.Itoa(job))
			return strings.Contains(out, "in error state") && strings.Contains(out, "shepherd died before it wrote its pid"), err
		})
		if err != nil {
			t.Error(err)
		}
		if got := f.ran(job); got != "" {
			t.Errorf("what ran: %q", got)
		}
		if out, err := f.command("qdel", strconv.Itoa(job)); err != nil {
			t.Errorf("qdel: %v\n%s", err, out)
		}
		f.over(job, "1 0")
		if out, err := f.command("qmod", "-cq", "all.q"); err != nil {
			t.Errorf("qmod: %v\n%s", err, out)
		}
		f.goesOn()
	}
	if err := f.d.Stop(); err != nil {
		t.Error(err)
	}
}

// remove removes the directory of a job that runs, where the shepherd may just be
// making a file.
func (f *field) remove(job int) {
	f.t.Helper()
	f.until("the end of the directory", func() bool { return os.RemoveAll(f.active(job, "")) == nil })
}

// gate makes the pipe at which scripts wait, and returns what opens it.
func (f *field) gate() (open func()) {
	f.t.Helper()
	path := filepath.Join(f.pub, "gate")
	_ = os.Remove(path)
	if err := unix.Mkfifo(path, 0o666); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		f.t.Fatal(err)
	}
	return func() {
		f.t.Helper()
		w, err := os.OpenFile(path, os.O_RDWR, 0) // it never hangs
		if err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { w.Close() })
		if _, err := w.WriteString("\n"); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestFaultDirectoryRemoved removes the directory of a job in the parts of its run.
func TestFaultDirectoryRemoved(t *testing.T) {
	t.Parallel()
	for _, root := range []bool{false, true} {
		if root && second == nil {
			continue
		}
		t.Run(fmt.Sprintf("root %v", root), func(t *testing.T) {
			parallel(t)
			f := newField(t, root, procedures)
			for _, c := range []struct {
				name, hang string
				pids       int
				ran        string
				end        func(f *field, job, shepherd int)
			}{
				{"prolog ends", "prolog gate", 1, "prolog 0", nil},
				{"job ends", "job gate", 1, "prolog 0; job 0", nil},
				{"epilog ends", "epilog gate", 1, "prolog 0; job 0; epilog 0", nil},
				{"job is deleted", "job", 3, "prolog 0; job 0", func(f *field, job, _ int) {
					if out, err := f.command("qdel", strconv.Itoa(job)); err != nil {
						f.t.Errorf("qdel: %v\n%s", err, out)
					}
				}},
				{"epilog is deleted", "epilog", 3, "prolog 0; job 0; epilog 0", func(f *field, job, _ int) {
					if out, err := f.command("qdel", strconv.Itoa(job)); err != nil {
						f.t.Errorf("qdel: %v\n%s", err, out)
					}
				}},
				{"shepherd dies", "job", 3, "prolog 0; job 0", func(f *field, _, shepherd int) {
					if err := syscall.Kill(shepherd, syscall.SIGKILL); err != nil {
						f.t.Error(err)
					}
				}},
				{"execd is restarted", "job", 3, "prolog 0; job 0", func(f *field, _, _ int) {
					f.d.Kill()
					f.start()
				}},
				{"execd is restarted in the epilog", "epilog", 3, "prolog 0; job 0; epilog 0", func(f *field, _, _ int) {
					f.d.Kill()
					f.start()
				}},
			} {
				t.Run(c.name, func(t *testing.T) {
					f.t = t
					f.plan(c.hang)
					open := f.gate()
					job := f.submit("-r", "n", filepath.Join(f.pub, "job"))
					left := f.pids(c.pids)
					shepherd := f.number(job, "pid")
					f.remove(job)
					if c.end == nil {
						open()
					} else {
						c.end(f, job, shepherd)
					}
					f.over(job, "19 0")
					f.gone(append(left, shepherd)...)
					if got := f.ran(job); got != c.ran {
						t.Errorf("what ran: %q; want %q", got, c.ran)
					}
					f.goesOn()
					if _, err := os.Stat(f.active(job, "")); err == nil {
						t.Error("its directory is there again")
					}
				})
				if t.Failed() {
					return
				}
			}
			f.t = t
		})
	}
}

// fill fills the disk of the field, to the last byte.
func (f *field) fill() (free func()) {
	f.t.Helper()
	name := filepath.Join(f.dir, "filler")
	w, err := os.Create(name)
	if err != nil {
		f.t.Fatal(err)
	}
	defer w.Close()
	for size := 1 << 16; size > 0; {
		if _, err := w.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	return func() {
		f.t.Helper()
		if err := os.Remove(name); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestFaultDiskFull fills the disk while a part of a run is under way, and makes room
// when it has ended.
func TestFaultDiskFull(t *testing.T) {
	if second == nil {
		t.Skip("mounting a small file system needs root")
	}
	t.Parallel()
	for _, c := range []struct {
		hang  string
		ran   string
		error bool // it is in error, not accounted as done
		lines []string
	}{
		{hang: "prolog gate", ran: "prolog 0; epilog 0", error: true, lines: []string{"11 0"}},
		{hang: "job gate", ran: "prolog 0; job 0; epilog 0", lines: []string{"0 3"}},
		{hang: "epilog gate", ran: "prolog 0; job 0; epilog 0", lines: []string{"0 3"}},
	} {
		t.Run(c.hang, func(t *testing.T) {
			parallel(t)
			f := makeField(t, true, procedures)
			etc := filepath.Join(f.dir, "etc")
			kept := filepath.Join(f.pub, "etc")
			copyTree(t, etc, kept)
			if err := unix.Mount("paddock-e2e", f.dir, "tmpfs", 0, "size=4m,mode=0755"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(f.dir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			copyTree(t, kept, etc)
			f.start()
			f.plan(c.hang)
			open := f.gate()
			job := f.submit("-r", "n", filepath.Join(f.pub, "job"))
			pending := f.submit("-r", "n", "-N", "pending", "-b", "y", "true")
			f.pids(1)
			shepherd := f.number(job, "pid")
			free := f.fill()
			if err := os.WriteFile(filepath.Join(f.pub, "hang"), nil, 0o666); err != nil {
				t.Fatal(err)
			}
			open()
			f.until("the shepherd to wait for room", func() bool {
				if c.hang == "job gate" {
					_, err := os.Stat(f.active(job, "usage")) // empty
					return err == nil
				}
				children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", shepherd, shepherd))
				return err == nil && len(children) == 0 && strings.Contains(f.ran(job), "epilog")
			})
			if len(f.records(job)) > 0 {
				t.Error("it is accounted on a full disk")
			}
			free()
			if c.error {
				f.accounted(job, 1)
				out, err := f.command("qstat", "-j", strconv.Itoa(job))
				if err != nil || !strings.Contains(out, "o space left on device") {
					t.Errorf("qstat: %v\n%s", err, out)
				}
				if out, err := f.command("qdel", strconv.Itoa(job)); err != nil {
					t.Errorf("qdel: %v\n%s", err, out)
				}
			}
			f.over(job, c.lines...)
			f.over(pending, "0 0")
			if got := f.ran(job); got != c.ran {
				t.Errorf("what ran: %q; want %q", got, c.ran)
			}
			f.goesOn()
			if err := f.d.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
