package engine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"paddock/test/harness"
)

// TestProvision has paddock-pg ask a batch system, an execd of ours, for pilots as jobs need them:
// never for more than may be queued, for none while it does not answer, and all of them go when
// there is nothing to do.
func TestProvision(t *testing.T) {
	d := newDatabase(t)
	super := d.as("postgres")
	base := filepath.Join(top, d.name)
	batch := filepath.Join(base, "pd")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(base, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, harness.WriteExecutable(path, text))
	}
	write("pg.conf", fmt.Sprintf("connection %s\nrenew %s/execd -renew\n", connection("hosts", d.name), bin))
	write("serve", fmt.Sprintf("#!/bin/sh\nexec %s/paddock-pg -config %s/pg.conf serve\n", bin, base))
	write("pilot/hooks.conf", "STARTD_JOB_HOOK_KEYWORD = PG\nSTARTD_NOCLAIM_SHUTDOWN = 2\nPG_HOOK_SERVER = "+base+"/serve\n")
	write("pilot.sh", fmt.Sprintf("#!/bin/sh\n#$ -S /bin/sh -j y -o %[1]s/pilot.$JOB_ID.log -pe smp 2 -l h_rt=0:30:0\nexec %[2]s/execd -pilot -config %[1]s/pilot -grace 10s\n", base, bin))
	write("pools/big", fmt.Sprintf("scheduler gridengine\nsubmit qsub %s/pilot.sh\ncpus 2\nmemory 1000\nseconds 1800\ngrace 10\nmax_pilots 3\nmax_queued 1\n", base))
	write("pd/etc/queues/all.q", "qname all.q\nslots 4\npe_list smp\ntmpdir "+base+"\n")
	write("pd/etc/pes/smp", "pe_name smp\nslots 99\nallocation_rule $pe_slots\n")
	scheduler, err := harness.Start(harness.Options{Bin: bin, Dir: batch})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := filepath.Glob(base + "/pilot.*.log")
			for _, name := range logs {
				text, _ := os.ReadFile(name)
				t.Logf("%s:\n%s", name, text)
			}
			t.Logf("log of the batch system:\n%s", scheduler.Log())
		}
		if err := scheduler.Stop(); err != nil {
			t.Error(err)
		}
		left, err := harness.LeftBehind(base)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
			harness.KillLeft(base)
		}
	})
	client := func(dir string, args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(bin, args[0]), args[1:]...)
		cmd.Env = append(os.Environ(), "PADDOCK_DIR="+dir, "PATH="+bin+":"+os.Getenv("PATH"), "PADDOCK_PG="+connection("hosts", d.name))
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			err = errors.Join(err, errors.New(errs.String()))
		}
		return string(out), err
	}
	tick := func(options ...string) string {
		t.Helper()
		out, err := client(batch, append(append([]string{"paddock-pg", "provision"}, options...), base+"/pools/big")...)
		must(t, err)
		return out
	}

	if out := tick(); !strings.Contains(out, "nothing that waits fits a pilot") {
		t.Errorf("with no job it says %q", out)
	}
	long := d.add("ann", ad+"\nRequestSeconds = 3600")[0]
	ids := d.add("ann", strings.Repeat("Cmd = \"/bin/sleep\"\nArgs = \"0.2\"\nRequestSeconds = 60\n\n", 40))
	if out := tick("-n"); !strings.Contains(out, "would submit a pilot") {
		t.Errorf("a dry run says %q", out)
	}
	if _, err := client(base, "paddock-pg", "provision", base+"/pools/big"); err == nil || !strings.Contains(err.Error(), "nothing is submitted, since it is not known what there is") {
		t.Errorf("without a batch system: %v", err)
	}
	if out, err := client(batch, "qstat"); err != nil || out != "" {
		t.Errorf("jobs before the first tick: %s, %v", out, err)
	}
	must(t, harness.WaitFor(2*harness.Patience, "pilots to have done all", func() (bool, error) {
		tick()
		if out, err := client(batch, "qstat", "-s", "p"); err != nil || strings.Count(out, " qw ") > 1 {
			return false, fmt.Errorf("queued: %s, %w", out, err)
		}
		return value(t, super, "select count(*) from paddock.done where outcome = 'ok'") == fmt.Sprint(len(ids)), nil
	}))
	// A pilot hears at once that what it runs is cancelled.
	id := d.add("ann", "Cmd = \"/bin/sleep\"\nArgs = \"600\"\nRequestSeconds = 900\n")[0]
	must(t, harness.WaitFor(2*harness.Patience, "a pilot to run another", func() (bool, error) {
		tick()
		return value(t, super, "select state from paddock.jobs(ids => array[$1::bigint])", id) == "running", nil
	}))
	d.tool("ann", "del", fmt.Sprint(id))
	await(t, super, "cancelled", "select outcome from paddock.done where id = $1", id)
	if got := value(t, super, "select state from paddock.jobs(ids => array[$1::bigint])", long); got != "ready" {
		t.Errorf("the job that is too long is %s", got)
	}
	must(t, harness.WaitFor(2*harness.Patience, "the pilots to be gone", func() (bool, error) {
		out, err := client(batch, "qstat")
		return out == "", err
	}))
	if out := tick(); !strings.Contains(out, "is over") || strings.Contains(out, "never took part") {
		t.Errorf("when all pilots are over it says %q", out)
	}
	if got := value(t, super, "select name || ' ' || submitted || ' ' || started || coalesce(paused, '') from paddock.pools"); got != "big 0 0" {
		t.Errorf("the pool is %q", got)
	}
	if left, err := filepath.Glob(base + "/paddock.*"); err != nil || len(left) > 0 {
		t.Errorf("left of pilots: %v, %v", left, err)
	}
}
