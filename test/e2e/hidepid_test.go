package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"paddock/test/harness"
)

// hidden becomes a program that sees a /proc in which each user has his own processes
// alone, as hosts with many users have it.
var hidden = []string{"unshare", "-m", "/bin/sh", "-c", `mount -t proc -o hidepid=2 proc /proc && exec "$@"`, "sh"}

// TestHidepid runs jobs where nobody sees processes of others: with control groups, and
// where a job's are known by /proc alone, for all users and for one.
func TestHidepid(t *testing.T) {
	if second == nil {
		t.Skip("needs root: it mounts")
	}
	user := []string{"setpriv", fmt.Sprintf("--reuid=%d", second.UID), fmt.Sprintf("--regid=%d", second.GID), "--clear-groups"}
	for name, via := range map[string][]string{
		"root":                hidden,
		"root without groups": slices.Concat(tiers["none"], hidden),
		"user without groups": slices.Concat(tiers["none"], hidden, user),
	} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			f := makeField(t, name[:4] == "root", "rerun FALSE\nprolog PUB/prolog\nslots 2\n")
			hook := filepath.Join(filepath.Dir(f.dir), "hook")
			// It leaves a daemon, which is to be found and ended.
			text := "#!/bin/sh\n(setsid sh -c 'echo $$ >" + f.pub + "/daemon.$JOB_ID; exec sleep 1000' >/dev/null 2>&1 &)\n" +
				"until test -s " + f.pub + "/daemon.$JOB_ID; do sleep 0.4; done\n"
			if err := harness.WriteExecutable(hook, text); err != nil {
				t.Fatal(err)
			}
			if !f.root {
				if err := os.Chown(hook, second.UID, second.GID); err != nil {
					t.Fatal(err)
				}
			}
			conf := filepath.Join(f.dir, "etc", "hooks.conf")
			if err := os.WriteFile(conf, []byte("STARTER_JOB_HOOK_KEYWORD = K\nK_HOOK_PREPARE_JOB = "+hook+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			f.plan("job")
			start := func() {
				t.Helper()
				mode := "-dev"
				if f.root {
					mode = "-root"
				}
				var err error
				if f.d, err = harness.Start(harness.Options{Bin: bin, Dir: f.dir, Mode: mode, Via: via, Env: plainEnv(f.dir)}); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(f.d.Kill)
			}
			start()

			job := f.submit(filepath.Join(f.pub, "job"))
			pids := f.pids(3)
			f.until("processes of the job in qstat", func() bool {
				out, _ := f.command("qstat", "-j", strconv.Itoa(job))
				return strings.Contains(out, "\nusage ") && !strings.Contains(out, "vmem=0.000,")
			})
			f.d.Kill()
			start()
			if !f.alive(pids[0]) {
				t.Fatal("the job has ended with execd")
			}
			f.until("execd to have found the job", func() bool {
				out, _ := f.command("qstat")
				return strings.Contains(out, " r  ")
			})
			if out, err := f.command("qrsh", "-into", strconv.Itoa(job), "exit", "3"); err == nil || !strings.Contains(err.Error(), "exit status 3") {
				t.Errorf("qrsh -into: %v\n%s", err, out)
			}
			if out, err := f.command("qdel", strconv.Itoa(job)); err != nil {
				t.Fatalf("qdel: %v\n%s", err, out)
			}
			if err := f.d.WaitJob(job); err != nil {
				t.Fatal(err)
			}
			daemon, err := strconv.Atoi(strings.TrimSpace(f.read("daemon." + strconv.Itoa(job))))
			if err != nil {
				t.Fatal(err)
			}
			f.gone(append(pids, daemon)...)

			// One whose shepherd dies is cleaned up by execd.
			f.plan("job")
			job = f.submit(filepath.Join(f.pub, "job"))
			pids = f.pids(3)
			shepherd, err := os.FindProcess(f.number(job, "pid"))
			if err == nil {
				err = shepherd.Kill()
			}
			if err != nil {
				t.Fatal(err)
			}
			f.accounted(job, 1)
			f.gone(pids...)
			if err := f.d.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
