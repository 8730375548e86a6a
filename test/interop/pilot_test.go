package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/test/harness"
)

// pilotFiles are what a pilot in Grid Engine needs: hooks, which hand out the files in todo.
var pilotFiles = map[string]string{
	"fetch": `#!/bin/sh
cd "${0%/*}"
cat >/dev/null
for f in todo/*; do
	test -e "$f" && mv $f given/ 2>/dev/null || continue
	exec cat given/${f#todo/}
done
`,
	"reply": `#!/bin/sh
cd "${0%/*}"
id=$(sed -n 's/^GlobalJobId = "\(.*\)"$/\1/p')
test $1 = accept || mv given/$id refused/
`,
	"report": `#!/bin/sh
cd "${0%/*}"
echo $1 $(sed -n 's/^GlobalJobId = "\(.*\)"$/\1/p') >>told
`,
	"hooks.conf": `STARTD_JOB_HOOK_KEYWORD = K
K_HOOK_FETCH_WORK = @DIR@/fetch
K_HOOK_REPLY_FETCH = @DIR@/reply
K_HOOK_REPORT_WORK = @DIR@/report
FetchWorkDelay = 1
`,
}

// testPilot runs pilots in jobs of Grid Engine: they know from it when they end, take what
// fits, end when they are idle, and leave when they are deleted, with the end of what they
// have told. REQ-HOOK-125.
func testPilot(t *testing.T) {
	dir := filepath.Join(user.Home, "pilot")
	as := func(line string) string {
		t.Helper()
		out, err := ge.As(user.Name, line)
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return strings.TrimSpace(out)
	}
	as("cd && mkdir pilot pilot/todo pilot/given pilot/refused")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "@DIR@", dir)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(path, user.UID, user.GID); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range pilotFiles {
		write(name, text)
	}
	give := func(name, command string, seconds int) {
		t.Helper()
		write("new", fmt.Sprintf("Cmd = \"/bin/sh\"\nIwd = \"%s\"\nArguments = \"-c '%s'\"\nGlobalJobId = \"%s\"\nRequestCpus = 1\nRequestMemory = 1\nRequestDisk = 1\nRequestSeconds = %d\n", dir, command, name, seconds))
		as("cd pilot && mv new todo/" + name)
	}
	await := func(what, file, text string) {
		t.Helper()
		if err := harness.WaitFor(patience, what, func() (bool, error) {
			data, _ := os.ReadFile(filepath.Join(dir, file))
			return strings.Contains(string(data), text), nil
		}); err != nil {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			told, _ := os.ReadFile(filepath.Join(dir, "told"))
			t.Fatalf("%v\n%s\ntold: %s", err, log, told)
		}
	}
	pilot := func(idle int, options string) string {
		return fmt.Sprintf("cd pilot && qsub -terse -b y -shell n -cwd -N pilot -j y -o log -notify -l h_rt=0:20:0 -v _CONDOR_STARTD_NOCLAIM_SHUTDOWN=%d %s/execd -pilot -config . %s", idle, bin, options)
	}

	give("fits", "echo >ran.fits", 60)
	give("long", "echo >ran.long", 3600)
	number := as(pilot(5, "-grace 30s"))
	await("the first pilot to end", "log", "pilot: ends: status=0")
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "scheduler=ge job=" + number + " cores=1 "; !strings.Contains(string(log), want) || !strings.Contains(string(log), "takes work until ") || !strings.Contains(string(log), " of 20m0s\n") && !strings.Contains(string(log), " of 19m") {
		t.Errorf("the log has\n%s\nwithout %q, or without its end", log, want)
	}
	for name, want := range map[string]bool{"ran.fits": true, "refused/long": true, "ran.long": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v; want it there: %v", name, err, want)
		}
	}

	give("cut", "echo >ran.cut; exec sleep 1000", 600)
	number = as(pilot(0, ""))
	await("work to begin", "ran.cut", "\n")
	as("qdel " + number)
	await("the end of the work to be told", "told", "evict cut\n")
	await("the second pilot to end", "log", "signal USR2: no more work is taken")
	if told, _ := os.ReadFile(filepath.Join(dir, "told")); string(told) != "exit fits\nevict cut\n" {
		t.Errorf("told %q", told)
	}
}
