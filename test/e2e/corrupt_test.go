package e2e

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/test/harness"
)

// TestFaultCorruptSpool puts garbage in the place of every file of a spool, one
// after the other, and starts execd on it. Whatever it was: execd starts, the
// jobs that the file did not belong to run once, and new jobs run. What cannot
// be read is kept.
func TestFaultCorruptSpool(t *testing.T) {
	t.Parallel()
	base := place(t, "corrupt")
	model := filepath.Join(base, "model", "pd")
	makeModel(t, model)

	var files []string
	spool := api.DevPlaces(model).Spool
	if err := filepath.WalkDir(spool, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(model, path)
		if err != nil {
			return err
		}
		switch {
		case e.Type().IsRegular():
			files = append(files, rel)
		case e.IsDir():
			// A file that nobody put there, in every directory.
			files = append(files, filepath.Join(rel, "unknown"), filepath.Join(rel, "7.1.0"))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("the model spool has only %q", files)
	}
	for i, name := range files {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			dir := filepath.Join(base, strconv.Itoa(i), "pd")
			copyTree(t, model, dir)
			replace(t, filepath.Join(dir, name), "\x00\xff garbage = {[\n\n= \x7f\n")
			checkCorrupt(t, dir, name)
		})
	}
}

// makeModel leaves the spool of an execd that was killed together with the
// shepherd and the processes of job 1, while jobs 2 and 3 (an array) waited.
func makeModel(t *testing.T, dir string) {
	t.Helper()
	queue := filepath.Join(dir, "etc", "queues", "all.q")
	if err := os.MkdirAll(filepath.Dir(queue), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(queue, []byte("qname all.q\nslots 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := harness.Start(harness.Options{Bin: bin, Dir: dir, Env: plainEnv(dir)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	script := filepath.Join(dir, "wait.sh")
	if err := os.WriteFile(script, []byte("echo >"+filepath.Join(dir, "running")+"\nexec sleep 600\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	quiet := []string{"-o", "/dev/null", "-j", "y", "-wd", "/"}
	submit(t, dir, append(quiet, "-r", "n", script)...)
	submit(t, dir, append(quiet, "-N", "second", script)...)
	submit(t, dir, append(quiet, "-N", "third", "-t", "1-2", "-b", "y", "true")...)
	if err := harness.WaitFor(harness.Patience, "job 1 to run", func() (bool, error) {
		_, err := os.Stat(filepath.Join(dir, "running"))
		return err == nil, err
	}); err != nil {
		t.Fatal(err)
	}
	d.Kill()
	if err := harness.WaitFor(harness.Patience, "the end of job 1", func() (bool, error) {
		harness.KillLeft(dir)
		left, err := harness.Processes(dir)
		return len(left) == 0, err
	}); err != nil {
		t.Fatal(err)
	}
	// Job 2's script waits forever too; from now on it does not.
	scripts, err := filepath.Glob(filepath.Join(api.DevPlaces(dir).Spool, "job_scripts", "*"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no job scripts in the spool: %v", err)
	}
	for _, s := range scripts {
		replace(t, s, "exit 0\n")
	}
}

// replace puts a new file in the place of another, whose mode may forbid to
// write to it.
func replace(t *testing.T, name, text string) {
	t.Helper()
	if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

func checkCorrupt(t *testing.T, dir, name string) {
	d, err := harness.Start(harness.Options{Bin: bin, Dir: dir, Env: plainEnv(dir)})
	if err != nil {
		t.Fatalf("execd does not start: %v", err)
	}
	t.Cleanup(d.Kill)
	submit(t, dir, "-sync", "y", "-o", "/dev/null", "-j", "y", "-wd", "/", "-b", "y", "-N", "new", "true")

	// A new job is queued behind the old ones of one slot, so those that
	// can run have run; their last steps may be under way.
	for _, job := range []int{1, 2, 3} {
		if belongsTo(name, job) {
			continue
		}
		if err := d.WaitJob(job); err != nil {
			t.Errorf("job %d, whose files are whole: %v", job, err)
		}
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	lines, err := harness.Accounting(dir)
	if err != nil {
		t.Fatal(err)
	}
	for task, n := range lines {
		if n > 1 {
			t.Errorf("task %s has %d accounting lines; want 1", task, n)
		}
	}
	for job, tasks := range map[int][]string{1: {"1.0"}, 2: {"2.0"}, 3: {"3.1", "3.2"}} {
		for _, task := range tasks {
			if !belongsTo(name, job) && lines[task] != 1 {
				t.Errorf("task %s has %d accounting lines; want 1\n%s", task, lines[task], d.Log())
			}
		}
	}
	if log := d.Log(); strings.Contains(log, "panic") || strings.Contains(log, "internal error") {
		t.Errorf("execd blames itself:\n%s", log)
	}
}

// belongsTo reports whether a file of the spool is one of a job's own: by the
// number in its name or in that of a directory above it.
func belongsTo(name string, job int) bool {
	return regexp.MustCompile(`(^|[/_])0*` + strconv.Itoa(job) + `([./]|$)`).MatchString(name)
}

func plainEnv(dir string) []string {
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "PADDOCK_DIR=" + dir}
	if cover := os.Getenv("GOCOVERDIR"); cover != "" {
		env = append(env, "GOCOVERDIR="+cover)
	}
	return env
}

func submit(t *testing.T, dir string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "qsub"), args...)
	cmd.Env = plainEnv(dir)
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("qsub %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// copyTree copies directories and regular files with their modes; sockets
// are left out.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		st := info.Sys().(*syscall.Stat_t)
		switch {
		case e.IsDir():
			if err := os.MkdirAll(target, 0o700); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(target, text, 0o600); err != nil {
				return err
			}
		default:
			return nil
		}
		if err := os.Lchown(target, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
		return unix.Chmod(target, st.Mode&0o7777)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCommandsWithoutDaemon holds every client command to a clear word and a
// status when nobody listens.
func TestCommandsWithoutDaemon(t *testing.T) {
	parallel(t)
	dir := place(t, "nobody")
	for _, args := range [][]string{{"qsub", "-b", "y", "true"}, {"qstat"}, {"qdel", "1"}} {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		cmd := exec.CommandContext(ctx, filepath.Join(bin, args[0]), args[1:]...)
		cmd.Env = plainEnv(dir)
		out, err := cmd.CombinedOutput()
		cancel()
		if err == nil || cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("%s: got %v; want exit status 1", args[0], err)
		}
		if !strings.Contains(string(out), api.DevPlaces(dir).Socket) {
			t.Errorf("%s: got %q; want the name of the socket in it", args[0], out)
		}
	}
}
