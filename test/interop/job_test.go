package interop

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/test/harness"
)

// probe prints what a process may find out about itself, "name: value" by
// line. Nothing in it may open a descriptor in the shell that it looks at, as
// $( ) would.
const probe = `#!/bin/sh
awk '$1 ~ /^(Uid|Gid|Groups|SigPnd|SigBlk|SigIgn|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp|Cpus_allowed_list|Mems_allowed_list|CoreDumping|THP_enabled|Speculation_Store_Bypass):$/ {
  name = $1; sub(/^[^:]*:[ \t]*/, ""); print "status " name " " $0 }' /proc/self/status
awk 'NR > 1 {
  name = substr($0, 1, 26); sub(/ *$/, "", name); split(substr($0, 27), v); print "limit " name ": " v[1] " " v[2] }' /proc/self/limits
read pid comm state ppid pgrp sid tty tpgid rest </proc/$$/stat
echo "session: pid=$([ $pid = $$ ] && echo self) pgrp=$([ $pgrp = $$ ] && echo self) sid=$([ $sid = $$ ] && echo self) tty=$tty"
echo "umask: $(umask)"
echo "nice: $(nice)"
echo "oom_score_adj: $(cat /proc/self/oom_score_adj)"
echo "coredump_filter: $(cat /proc/self/coredump_filter)"
echo "timer slack: $(cat /proc/self/timerslack_ns)"
echo "personality: $(cat /proc/self/personality)"
echo "scheduler: $(awk '{sub(/.*\) /, ""); print "policy=" $39 " rt=" $38}' /proc/self/stat)"
echo "cwd: $(pwd)"
echo "argv0: $0"
echo "argc: $#"
echo "flags: $-"
echo "stdin: $(readlink /proc/$$/fd/0)"
echo "stdout: $(readlink /proc/$$/fd/1)"
echo "stderr: $(readlink /proc/$$/fd/2)"
find /proc/$$/fd -mindepth 1 ! -name '[012]' -printf 'descriptor %f: %l\n'
echo "parent: $(cat /proc/$PPID/comm)"
echo "root: $(readlink /proc/self/root)"
echo "pid namespace: $(readlink /proc/self/ns/pid)"
echo "tmpdir: $(stat -c '%U %G %a %F' $TMPDIR) $(ls -A $TMPDIR | wc -l) entries"
for stream in $SGE_STDOUT_PATH; do echo "output file: $(stat -c '%U %G %a' $stream)"; done
env | sed -n 's/^\([A-Za-z_][A-Za-z_0-9]*\)=\(.*\)/environment \1: \2/p'
`

// jobDiffers are the differences that are meant between a job under Grid
// Engine and under us.
var jobDiffers = listed{
	"parent":                      "the program's name; a foreign execd looks for it, ours does not",
	"environment SGE_BINARY_PATH": "each has its own commands",
	"environment SGE_ROOT":        "each has its own configuration",
	"environment PADDOCK_DIR":     "an execd with everything below one directory tells it to the commands of its jobs",
}

func testSameJob(t *testing.T) {
	if err := os.WriteFile(filepath.Join(user.Home, "probe.sh"), []byte(probe), 0o755); err != nil {
		t.Fatal(err)
	}
	const submit = "-sync y -cwd -o $HOME/%s -j y -N probe -v A=1,B='x y' probe.sh one 'two three'"
	if out, err := ge.As(user.Name, "qsub "+fmt.Sprintf(submit, "theirs")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	d := startOurs(t, "job")
	if out, err := asUser(d.Dir, "cd && qsub "+fmt.Sprintf(submit, "ours")); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, d.Log())
	}
	theirs, ours := facts(t, "theirs"), facts(t, "ours")
	if len(theirs) < 40 {
		t.Fatalf("the probe found only %d facts: %v", len(theirs), theirs)
	}
	leaked := executionEnvironment(t)
	for _, name := range slices.Sorted(maps.Keys(union(theirs, ours))) {
		reason, meant := jobDiffers[name]
		if v, ok := strings.CutPrefix(name, "environment "); ok && leaked[v] && ours[name] == "" {
			// Grid Engine gives every job the environment that its execd was
			// started with. Ours does not, and that is meant.
			continue
		}
		if name == "status SigIgn" && strings.Trim(ours[name], "0") == "" {
			// Nor the signals that it was started with ignored: which these are
			// hangs on who started Grid Engine.
			continue
		}
		same := theirs[name] == ours[name]
		switch {
		case !same && !meant:
			t.Errorf("%s: Grid Engine %q, ours %q", name, theirs[name], ours[name])
		case !same:
			t.Logf("%s: Grid Engine %q, ours %q: %s", name, theirs[name], ours[name], reason)
		}
	}
}

// executionEnvironment returns the names of the variables of Grid Engine's execd.
func executionEnvironment(t *testing.T) map[string]bool {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for _, p := range processes {
		if comm, _ := os.ReadFile(p); string(comm) != "sge_execd\n" {
			continue
		}
		// One that it has forked may have ended meanwhile.
		environ, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "environ"))
		for kv := range strings.SplitSeq(string(environ), "\x00") {
			name, _, _ := strings.Cut(kv, "=")
			found[name] = true
		}
	}
	if len(found) == 0 {
		t.Fatal("no sge_execd is running")
	}
	return found
}

func union(a, b map[string]string) map[string]string {
	u := maps.Clone(a)
	maps.Copy(u, b)
	return u
}

// facts reads what the probe printed and replaces what is meant to differ
// between two jobs: their numbers, hosts, and places.
func facts(t *testing.T, name string) map[string]string {
	t.Helper()
	text := read(t, filepath.Join(user.Home, name))
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !ok {
			t.Fatalf("%s: the probe printed %q", name, line)
		}
		found[key] = value
	}
	words := strings.NewReplacer(
		found["environment SGE_JOB_SPOOL_DIR"], "JOBDIR",
		filepath.Dir(filepath.Dir(found["environment SGE_JOB_SPOOL_DIR"])), "SPOOL",
		found["environment TMPDIR"], "TMPDIR",
		"job_scripts/"+found["environment JOB_ID"], "job_scripts/NUMBER",
		"/"+name, "/OUT",
		bin+":", "", "gehost", "HOST", host, "HOST",
	)
	for key, value := range found {
		found[key] = words.Replace(value)
	}
	found["environment JOB_ID"] = "NUMBER"
	found["status Groups"] = added.ReplaceAllString(found["status Groups"], "ADDED")
	return found
}

// added matches the numbers of gid_range: Grid Engine's, and those that the harness
// gives to ours.
var added = regexp.MustCompile(`\b(?:65[45][0-9]{2}|[0-9]{7,})\b`)

// startOurs starts our execd in root mode, with the queue and the settings of
// the running Grid Engine, and more of them.
func startOurs(t *testing.T, name string, more ...string) *harness.Daemon {
	t.Helper()
	dir := filepath.Join(base, name, "pd")
	queue, err := ge.Run("qconf", "-sq", "all.q")
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	settings, err := ge.Run("qconf", "-sconf", "global")
	if err != nil {
		t.Fatal(err)
	}
	var conf strings.Builder
	for line := range strings.Lines(settings) {
		if key, _, _ := strings.Cut(line, " "); slices.Contains([]string{"min_uid", "min_gid", "shell_start_mode", "login_shells"}, key) {
			conf.WriteString(line)
		}
	}
	for _, line := range more {
		conf.WriteString(line + "\n")
	}
	for name, text := range map[string]string{"queues/all.q": strings.ReplaceAll(queue, "gehost", host), "sge_conf": conf.String()} {
		path := filepath.Join(api.DevPlaces(dir).Config, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d, err := harness.Start(harness.Options{Bin: bin, Dir: dir, Mode: "-root"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	return d
}

// asUser runs a shell command line as the test's user among our commands, with
// the environment that `gridengine as` gives.
func asUser(dir, line string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "su", user.Name, "-s", "/bin/sh", "-c", "export PATH="+bin+":$PATH PADDOCK_DIR="+dir+" && "+line)
	cmd.Env = append(os.Environ(), "SGE_ROOT=/var/lib/gridengine", "SGE_CELL=default")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// testSpoolFiles compares the names in `config` and `environment`, and
// pe_hostfile, of a job under our execd with those that Grid Engine wrote for
// the same job: the golden directories.
func testSpoolFiles(t *testing.T) {
	d := startOurs(t, "files")
	script := "echo >$HOME/spool.ready; while ! test -e $HOME/spool.go; do sleep 0.4; done\n"
	if err := os.WriteFile(filepath.Join(user.Home, "wait.sh"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := asUser(d.Dir, "cd && qsub -terse -o /dev/null -e /dev/null -N exit3.sh wait.sh one 'two three'")
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, d.Log())
	}
	job, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	if err := harness.WaitFor(harness.Patience, "the job to run", func() (bool, error) {
		_, err := os.Stat(filepath.Join(user.Home, "spool.ready"))
		return err == nil, err
	}); err != nil {
		t.Fatalf("%v\n%s", err, d.Log())
	}
	dirs, err := filepath.Glob(filepath.Join(api.DevPlaces(d.Dir).Spool, "active_jobs", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) != 1 {
		t.Fatalf("active jobs: %q", dirs)
	}
	golden := filepath.Join(harness.Root(), "spool", "testdata", "golden", "batch-exit3")
	for _, file := range []string{"config", "environment"} {
		theirs, ours := names(t, filepath.Join(golden, file)), names(t, filepath.Join(dirs[0], file))
		// Keys of our own are ignored by sge_shepherd.
		ours = slices.DeleteFunc(ours, func(n string) bool { return strings.HasPrefix(n, "paddock_") })
		theirs, ours = without(theirs, filesDiffer), without(ours, filesDiffer)
		if diff := cmp.Diff(theirs, ours); diff != "" {
			t.Errorf("%s has other names than Grid Engine's (-theirs +ours):\n%s", file, diff)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := read(t, filepath.Join(dirs[0], "pe_hostfile")), host+" 1 all.q@"+host+" UNDEFINED\n"; got != want {
		t.Errorf("pe_hostfile: got %q; want %q", got, want)
	}
	if err := os.WriteFile(filepath.Join(user.Home, "spool.go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.WaitJob(job); err != nil {
		t.Error(err)
	}
}

// filesDiffer are names that one of the two has and that mean nothing.
var filesDiffer = listed{
	"PADDOCK_DIR": jobDiffers["environment PADDOCK_DIR"],
	"SGE_O_MAIL":  "set from the submitter's MAIL, which su(1) sets or not",
}

func without(names []string, differ listed) []string {
	return slices.DeleteFunc(names, func(n string) bool { return differ[n] != "" })
}

// names returns what stands before the first = of each line.
func names(t *testing.T, file string) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(read(t, file)) {
		name, _, _ := strings.Cut(line, "=")
		found = append(found, name)
	}
	if len(found) == 0 {
		t.Fatalf("%s is empty", file)
	}
	return found
}
