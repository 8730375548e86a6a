// Package workflow has programs that drive Grid Engine, as Debian packages them,
// run a workflow to its end on Paddock: nothing of theirs is changed, and they
// find no other qsub than ours. It runs by `make workflow`, which installs them,
// as root. Nobody imports it.
package workflow

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/test/harness"
)

var (
	daemon *harness.Daemon
	bin    string // our binaries
	user   *harness.User
)

func TestMain(m *testing.M) {
	if os.Getenv("PADDOCK_WORKFLOW") == "" {
		fmt.Println("workflow: not run: it installs workflow managers, as root; use make workflow")
		os.Exit(0)
	}
	flag.Parse()
	// The managers wait most of the time.
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintf(os.Stderr, "workflow: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// run starts an execd in root mode for one ordinary user, with the
// configuration that is installed and two slots.
func run(m *testing.M) (code int, err error) {
	if os.Getuid() != 0 {
		return 1, errors.New("cannot run: not root")
	}
	base, err := harness.Base("workflow")
	if err != nil {
		return 1, err
	}
	defer func() {
		left, leftErr := harness.LeftBehind(base)
		if len(left) > 0 {
			leftErr = errors.Join(leftErr, fmt.Errorf("left behind:\n  %s", strings.Join(left, "\n  ")))
		}
		harness.KillLeft(base)
		err = errors.Join(err, leftErr, os.RemoveAll(base))
	}()
	bin = filepath.Join(base, "bin")
	if err := harness.Build(bin); err != nil {
		return 1, err
	}
	if user, err = harness.AddUser(harness.OfRun("workflow")); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, user.Remove()) }()
	dir := filepath.Join(base, "pd")
	config := os.DirFS(filepath.Join(harness.Root(), "packaging", "config"))
	if err := os.CopyFS(api.DevPlaces(dir).Config, config); err != nil {
		return 1, err
	}
	// There are two, however many processors the host has: a workflow asks for both.
	queue := filepath.Join(api.DevPlaces(dir).Config, "queues", "all.q")
	text, err := os.ReadFile(queue)
	if err != nil {
		return 1, err
	}
	if err := os.WriteFile(queue, append(text, "\nslots 2\n"...), 0o644); err != nil {
		return 1, err
	}
	if daemon, err = harness.Start(harness.Options{Bin: bin, Dir: dir, Mode: "-root"}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, daemon.Stop()) }()
	return m.Run(), nil
}

// workplace returns a new directory of the user's with these files.
func workplace(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(user.Home, t.Name())
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, user.UID, user.GID); err != nil {
		t.Fatal(err)
	}
	return dir
}

// drive runs a program as the user in a directory, with our commands before all
// others, and returns what it wrote.
func drive(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*harness.Patience) // their starts alone take long on a busy host
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + user.Home, "USER=" + user.Name, "LOGNAME=" + user.Name,
		"PADDOCK_DIR=" + daemon.Dir, "LANG=C.UTF-8",
		"TMPDIR=" + dir, // they leave files there
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user.Credential(), Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s\nexecd:\n%s", cmd, err, out, daemon.Log())
	}
	return string(out)
}

// ran returns the names of the jobs that are accounted and whose names match, in
// order, and checks that each ended well. It waits until there are n: a manager may
// learn of a job's end from the job.
func ran(t *testing.T, pattern string, n int) []string {
	t.Helper()
	var names []string
	if err := harness.WaitFor(harness.Patience, fmt.Sprintf("%d jobs %s to be accounted", n, pattern), func() (bool, error) {
		names = nil
		for _, r := range records(t, daemon) {
			if ok, err := path.Match(pattern, r.JobName); !ok || err != nil {
				continue
			}
			names = append(names, r.JobName)
			if r.Failed != 0 || r.ExitStatus != 0 || r.Owner != user.Name {
				t.Errorf("job %d (%s) of %s: failed %d, exit status %d", r.JobNumber, r.JobName, r.Owner, r.Failed, r.ExitStatus)
			}
		}
		return len(names) >= n, nil
	}); err != nil {
		t.Errorf("%v: %q", err, names)
	}
	slices.Sort(names)
	return names
}

// records returns what is accounted by an execd. The file comes with its first line,
// of which those who wait for the job may be told before.
func records(t *testing.T, d *harness.Daemon) []accounting.Record {
	t.Helper()
	text, err := os.ReadFile(api.DevPlaces(d.Dir).Accounting)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var list []accounting.Record
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") || !strings.HasSuffix(line, "\n") { // or it is being written
			continue
		}
		r, err := accounting.Parse([]byte(strings.TrimSuffix(line, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// gone waits until processes have ended. What was killed may need a while to go on
// a busy host; what was not goes on for ever.
func gone(t *testing.T, pids ...string) {
	t.Helper()
	for _, pid := range pids {
		if _, err := strconv.Atoi(pid); err != nil {
			t.Errorf("%q is no process", pid)
		}
		if err := harness.WaitFor(harness.Patience, "the end of process "+pid, func() (bool, error) {
			line, err := os.ReadFile("/proc/" + pid + "/cmdline")
			return err != nil || len(line) == 0, nil
		}); err != nil {
			t.Error(err)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// result is what each of the workflows makes: words in capitals, and how many.
const result = "ONE\nTWO\nTHREE\n3\n"

// Makeflow submits by qsub and learns from a file that its wrapper writes.
func TestMakeflow(t *testing.T) {
	t.Parallel()
	dir := workplace(t, map[string]string{"Makeflow": `words.txt:
	(echo one; echo two; echo three) > words.txt
upper.txt: words.txt
	tr a-z A-Z < words.txt > upper.txt
count.txt: words.txt
	wc -l < words.txt > count.txt
result.txt: upper.txt count.txt
	cat upper.txt count.txt > result.txt
`})
	drive(t, dir, "makeflow", "-T", "sge", "Makeflow")
	if got := read(t, filepath.Join(dir, "result.txt")); got != result {
		t.Errorf("the result is %q; want %q", got, result)
	}
	if names := ran(t, "makeflow*", 4); len(names) != 4 {
		t.Errorf("jobs %q were run; want 4", names)
	}
}

// Snakemake submits scripts that it writes, with slots, and waits by -sync y. In a job it
// takes threads for no more than the processors there are, whatever was asked for.
func TestSnakemake(t *testing.T) {
	t.Parallel()
	dir := workplace(t, map[string]string{"Snakefile": `rule result:
    input: "upper.txt", "count.txt"
    output: "result.txt"
    shell: "cat {input} > {output}"
rule words:
    output: "words.txt"
    shell: "printf 'one\\ntwo\\nthree\\n' > {output}"
rule upper:
    input: "words.txt"
    output: "upper.txt"
    threads: 2
    shell: "tr a-z A-Z < {input} > {output}; test $NSLOTS = 2"
rule count:
    input: "words.txt"
    output: "count.txt"
    shell: "wc -l < {input} > {output}"
`})
	drive(t, dir, "snakemake", "--jobs", "4", "--cluster-cancel", "qdel", "--cluster-sync", "qsub -sync y -cwd -j y -N snake.{rule} -pe smp {threads}")
	if got := read(t, filepath.Join(dir, "result.txt")); got != result {
		t.Errorf("the result is %q; want %q", got, result)
	}
	if names := ran(t, "snake.*", 4); !slices.Equal(names, []string{"snake.count", "snake.result", "snake.upper", "snake.words"}) {
		t.Errorf("jobs %q were run; want one for each rule", names)
	}
}

// Toil knows Grid Engine best: it submits with memory requests and the whole
// environment, looks with qstat, and reads exit codes from qacct.
func TestToil(t *testing.T) {
	t.Parallel()
	dir := workplace(t, map[string]string{"flow.py": `import os
from toil.common import Toil
from toil.job import Job

class Step(Job):
    def __init__(self, parts):
        super().__init__(memory="500M", cores=1, disk="10M")
        self.parts = parts

class Square(Step):
    def run(self, store):
        assert os.environ["QUEUE"] == "all.q"
        return self.parts ** 2

class Total(Step):
    def run(self, store):
        return sum(self.parts)

class Root(Step):
    def run(self, store):
        squares = [self.addChild(Square(n)).rv() for n in (1, 2, 3)]
        return self.addFollowOn(Total(squares)).rv()

if __name__ == "__main__":
    with Toil(Job.Runner.getDefaultArgumentParser().parse_args()) as toil:
        print("total", toil.start(Root(None)))
`})
	out := drive(t, dir, "/usr/bin/python3", "flow.py", "--batchSystem", "grid_engine", "--workDir", dir, filepath.Join(dir, "store"))
	if !strings.Contains("\n"+out, "\ntotal 14\n") {
		t.Errorf("it wrote:\n%s", out)
	}
	if names := ran(t, "toil_job_*", 5); len(names) != 5 {
		t.Errorf("jobs %q were run; want 5", names)
	}
}
