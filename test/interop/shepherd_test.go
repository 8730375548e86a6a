package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/test/harness"
)

// scenario is one job directory for both shepherds. In script and set, @HOME@
// is a directory of the user's beside the job directory.
type scenario struct {
	name   string
	script string
	set    []string
	code   int    // what both shepherds exit with
	differ listed // of the parts of result, by field
}

const posix = "shell_start_mode=posix_compliant"

var scenarios = []scenario{
	{name: "exit 0", script: "echo fine; echo loud >&2\n"},
	{name: "exit 3", script: "exit 3\n"},
	{name: "exit 99 reschedules", script: "exit 99\n", code: 25},
	{name: "exit 100 is the application's error", script: "exit 100\n", code: 30},
	{name: "exit 99 when forbidden", script: "exit 99\n", set: []string{"forbid_reschedule=1"}},
	{name: "ended by a signal", script: "kill -TERM $$\n"},
	{name: "killed", script: "kill -KILL $$\n"},
	{
		name: "arguments with blanks", script: `for a; do echo "<$a>"; done` + "\n",
		set: []string{"njob_args=4", "job_arg1=a  b", "job_arg2=", "job_arg3=$HOME", "job_arg4='x'"},
	},
	{name: "posix_compliant", script: "echo $0 $1\n", set: []string{posix, "njob_args=1", "job_arg1=one"}},
	{name: "script from standard input", script: "echo from stdin\n", set: []string{"shell_start_mode=script_from_stdin"}},
	{name: "binary through the shell", set: []string{posix, "handle_as_binary=1", "script_file=echo", "njob_args=2", "job_arg1=a  b", "job_arg2=c"}},
	{name: "binary without a shell", set: []string{posix, "handle_as_binary=1", "no_shell=1", "script_file=/bin/echo", "njob_args=2", "job_arg1=a  b", "job_arg2=c"}},
	{name: "missing program", set: []string{posix, "handle_as_binary=1", "no_shell=1", "script_file=/no/such/program"}, code: 27},
	{name: "missing working directory", script: "true\n", set: []string{"cwd=/no/such/directory"}, code: 28},
	{name: "missing shell", script: "true\n", set: []string{posix, "shell_path=/no/such/shell"}, code: 27},
	{name: "output that cannot be opened", script: "true\n", set: []string{"stdout_path=/no/such/directory/out"}, code: 26},
	{name: "output into a directory", script: "echo here\n", set: []string{"stdout_path=@HOME@", "stderr_path=@HOME@", "merge_stderr=0", "job_name=into", "job_id=17"}},
	{name: "array task", script: "echo task\n", set: []string{"stdout_path=@HOME@", "stderr_path=@HOME@", "ja_task_id=5", "job_name=arr"}},
	{name: "input file", script: "cat\n", set: []string{"stdin_path=@HOME@/../in", "stdout_path=@HOME@/out"}},
	{
		name: "limits", script: "ulimit -St; ulimit -Ht; ulimit -Sf; ulimit -Hf; ulimit -Sc; ulimit -Hc; ulimit -Ss; ulimit -Hn\n",
		set: []string{"s_cpu=7", "h_cpu=00:00:09", "s_fsize=4M", "h_fsize=8M", "h_core=0", "s_core=0", "s_stack=2M", "h_stack=4M", "s_descriptors=64", "h_descriptors=128"},
	},
	{name: "processor time limit", script: "while :; do :; done\n", set: []string{"s_cpu=1", "h_cpu=2"}},
	{name: "user below the minimum", script: "true\n", set: []string{"min_uid=60000"}, code: 11},
	{name: "unknown user", script: "true\n", set: []string{"job_owner=nobody-of-that-name"}, code: 11},
}

// result is what a shepherd left.
type result struct {
	Code       int
	ExitStatus string            // the file
	Error      string            // the first line's text
	UsageKeys  []string          // in their order
	Usage      map[string]string // the values that must be the same
	Output     map[string]string // what the job wrote, by file
	usage      map[string]string // all of them
	trace      string
}

func TestShepherds(t *testing.T) {
	for i, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(base, fmt.Sprintf("shepherd%d", i))
			theirs := runShepherd(t, sc, filepath.Join(dir, "job"), harness.GEShepherd)
			ours := runShepherd(t, sc, filepath.Join(dir, "job"), filepath.Join(bin, "shepherd"))
			if theirs.Code != sc.code {
				t.Errorf("Grid Engine's shepherd exited with %d; the scenario says %d", theirs.Code, sc.code)
			}
			compare(t, sc.differ, theirs, ours)
			if t.Failed() {
				t.Logf("Grid Engine's trace:\n%s\nours:\n%s", theirs.trace, ours.trace)
			}
		})
	}
}

// runShepherd makes the directory of the scenario, always at the same path,
// has a shepherd run it, and takes away what that left.
func runShepherd(t *testing.T, sc scenario, dir, shepherd string) result {
	t.Helper()
	home := filepath.Join(filepath.Dir(dir), "home")
	for _, d := range []string{dir, home} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(home, user.UID, user.GID); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "in"), []byte("read this\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(filepath.Dir(dir), "job.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"+sc.script), 0o755); err != nil {
		t.Fatal(err)
	}
	set := []string{"cwd=" + home, "stdout_path=" + home + "/out", "stderr_path=" + home + "/out"}
	for _, kv := range sc.set {
		set = append(set, strings.ReplaceAll(kv, "@HOME@", home))
	}
	if err := harness.JobDirectory(dir, script, user.Name, set...); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, shepherd)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "SGE_ROOT=/var/lib/gridengine", "SGE_CELL=default"}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("cannot run %s: %v", shepherd, err)
	}
	r := result{Code: cmd.ProcessState.ExitCode(), Output: map[string]string{}}
	r.ExitStatus = read(t, filepath.Join(dir, "exit_status"))
	r.trace = read(t, filepath.Join(dir, "trace"))
	r.Error, _, _ = strings.Cut(read(t, filepath.Join(dir, "error")), "\n")
	if _, text, ok := strings.Cut(r.Error, "]: "); ok {
		r.Error = text
	}
	r.usage = map[string]string{}
	for line := range strings.Lines(read(t, filepath.Join(dir, "usage"))) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		r.UsageKeys = append(r.UsageKeys, key)
		r.usage[key] = value
	}
	r.Usage = map[string]string{}
	for _, key := range []string{"wait_status", "exit_status", "signal"} {
		r.Usage[key] = r.usage[key]
	}
	outputs, err := os.ReadDir(home)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outputs {
		r.Output[o.Name()] = read(t, filepath.Join(home, o.Name()))
	}
	for _, d := range []string{dir, home} {
		if err := os.RemoveAll(d); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// read returns a file's text, empty when there is none.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

func compare(t *testing.T, differ listed, theirs, ours result) {
	t.Helper()
	for _, part := range []struct {
		name         string
		theirs, ours any
	}{
		{"Code", theirs.Code, ours.Code},
		{"ExitStatus", theirs.ExitStatus, ours.ExitStatus},
		{"Error", theirs.Error, ours.Error},
		{"UsageKeys", theirs.UsageKeys, ours.UsageKeys},
		{"Usage", theirs.Usage, ours.Usage},
		{"Output", theirs.Output, ours.Output},
	} {
		diff := cmp.Diff(part.theirs, part.ours)
		reason, meant := differ[part.name]
		switch {
		case diff != "" && !meant:
			t.Errorf("%s differs (-theirs +ours):\n%s", part.name, diff)
		case diff == "" && meant:
			t.Errorf("%s is the same, but listed as a difference: %s", part.name, reason)
		}
	}
	for key, tolerance := range map[string]float64{
		"ru_wallclock": 1, "ru_utime": 0.5, "ru_stime": 0.5, "ru_maxrss": 16384, "ru_nswap": 0, "ru_ixrss": 0,
	} {
		if theirs.usage[key] == "" {
			continue // no usage file: UsageKeys has said so
		}
		a, err1 := strconv.ParseFloat(theirs.usage[key], 64)
		b, err2 := strconv.ParseFloat(ours.usage[key], 64)
		if err1 != nil || err2 != nil || a-b > tolerance || b-a > tolerance {
			t.Errorf("usage %s: Grid Engine %s, ours %s; want a difference of at most %g", key, theirs.usage[key], ours.usage[key], tolerance)
		}
	}
}

// TestTrace compares the traces of one job line by line, since people and
// tools grep in them. Numbers that differ from run to run are put aside.
func TestTrace(t *testing.T) {
	sc := scenario{name: "trace", script: "exit 3\n", set: []string{"njob_args=1", "job_arg1=a b"}}
	dir := filepath.Join(base, "trace", "job")
	theirs := traceLines(runShepherd(t, sc, dir, harness.GEShepherd).trace)
	ours := traceLines(runShepherd(t, sc, dir, filepath.Join(bin, "shepherd")).trace)
	for _, line := range theirs {
		if reason := traceDiffers[line]; reason == "" && !slices.Contains(ours, line) {
			t.Errorf("our trace lacks the line %q", line)
		}
	}
	if t.Failed() {
		t.Logf("our trace:\n%s", strings.Join(ours, "\n"))
	}
}

// traceDiffers are lines of Grid Engine's trace that ours does not have, and
// why.
var traceDiffers = listed{
	`starting up N.N.N`: "the version is ours",
	`do_core_binding: "binding" parameter not found in config file`: "a word about something that was not asked for",
}

var number = regexp.MustCompile(`[0-9]+`)

// traceLines returns the texts of a trace without stamps, numbers replaced.
func traceLines(trace string) []string {
	var lines []string
	for line := range strings.Lines(trace) {
		if _, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "]: "); ok {
			lines = append(lines, number.ReplaceAllString(text, "N"))
		}
	}
	return lines
}
