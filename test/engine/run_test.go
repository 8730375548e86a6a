package engine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/test/harness"
)

// TestRun has an execd run jobs of a database in all the ways in which they end.
func TestRun(t *testing.T) {
	d := newDatabase(t)
	super := d.as("postgres")
	h := newHost(t, d, "one", 2)
	await(t, super, "true", "select idle from paddock.host")
	job := func(script string) string {
		return "Cmd = \"/bin/sh\"\nArguments = \"-c '" + script + "'\""
	}
	outcome := func(id int64, want string) {
		t.Helper()
		await(t, super, want, "select outcome || coalesce(' ' || exit_code, '') || coalesce(' ' || signal, '') from paddock.done where id = $1", id)
	}
	// Work is begun since the host is woken up, long before it would ask of itself.
	began := time.Now()
	outcome(d.add("ann", job("exit 0"))[0], "ok 0")
	t.Logf("a job was over after %v", time.Since(began))
	outcome(d.add("ann", job("exit 7"))[0], "dead 7")
	outcome(d.add("ann", job("kill -9 $$"))[0], "dead 9")
	// One that cannot be started waits for somebody to mend it, also if its ad tells of an end.
	broken := d.add("ann", "Cmd = \"/nonexistent\"\nResidentSetSize = \"x\"\nExitCode = \"x\"\nRemoteUserCpu = \"x\"")[0]
	await(t, super, "held true", "select state || ' ' || (reason like '%No such file%') from paddock.jobs(ids => array[$1::bigint])", broken)
	d.tool("ann", "del", fmt.Sprint(broken))

	// One that runs is ended at once when it is cancelled.
	id := d.add("ann", job("sleep 600"))[0]
	await(t, super, "running", "select state from paddock.jobs(ids => array[$1::bigint])", id)
	if got := d.tool("ann", "del", fmt.Sprint(id)); got != fmt.Sprintf("job %d: told\n", id) {
		t.Errorf("del says %q", got)
	}
	await(t, super, "cancelled cancelled by ann", "select outcome || ' ' || reason from paddock.done where id = $1", id)

	// One that fails is tried again, and is a dead letter in the end.
	d.tool("boss", "queue", "default", "backoff=0.2 s", "max_attempts=3")
	marks := filepath.Join(h.base, "marks")
	id = d.add("ann", job("echo x >>"+marks+"; exit 1"))[0]
	outcome(id, "dead 1")
	if text, err := os.ReadFile(marks); err != nil || strings.Count(string(text), "x") != 3 {
		t.Errorf("it ran %q: %v", text, err)
	}

	// A slot takes what it can run.
	big := d.add("ann", ad+"\nRequestCpus = 64")[0]
	picky := d.add("ann", ad+"\nRequirements = TARGET.Machine == \"nowhere\"")[0]
	outcome(d.add("ann", ad+"\nRequirements = TARGET.SlotID == 2")[0], "ok 0")
	for _, id := range []int64{big, picky} {
		if got := value(t, super, "select state from paddock.jobs(ids => array[$1::bigint])", id); got != "ready" {
			t.Errorf("job %d is %s", id, got)
		}
	}
	d.tool("ann", "del", fmt.Sprint(big), fmt.Sprint(picky))

	// One whose slot is taken away comes back.
	begun := filepath.Join(h.base, "begun")
	id = d.add("ann", job("test -e "+begun+" && exit 0; touch "+begun+"; sleep 600"))[0]
	if err := harness.WaitFor(harness.Patience, "the job to begin", func() (bool, error) {
		_, err := os.Stat(begun)
		return err == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	vacate(t, h)
	outcome(id, "ok 0")
	if got := value(t, super, "select evictions || ' ' || attempts from paddock.done where id = $1", id); got != "1 0" {
		t.Errorf("evictions, failures: %s", got)
	}

	// What qsub would submit is added with its script, a job for each task.
	out := filepath.Join(h.base, "out")
	h.write(t, "job.sh", "#!/bin/sh\n#$ -t 1-3\necho \"task $SGE_TASK_ID of $1\"\n")
	qsub := exec.Command(filepath.Join(bin, "qsub"), "-ad", "-o", out+".$TASK_ID", "-j", "y", "-l", "h_rt=600", h.base+"/job.sh", "ann")
	qsub.Env = append(os.Environ(), "PADDOCK_DIR="+h.o.Dir)
	ads, err := qsub.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, ads)
	}
	for i, id := range d.add("ann", string(ads)) {
		outcome(id, "ok 0")
		want := fmt.Sprintf("task %d of ann\n", i+1)
		if text, err := os.ReadFile(fmt.Sprintf("%s.%d", out, i+1)); err != nil || string(text) != want {
			t.Errorf("it wrote %q, %v; want %q", text, err, want)
		}
	}
	if got := value(t, super, "select string_agg(distinct seconds::text, ' ') from paddock.class where ad like '%h_rt%'"); got != "600" {
		t.Errorf("the class has a run time of %q s", got)
	}

	// An ad that execd cannot read is held, and nothing comes after it is held up.
	must(t, exec1(d.as("ann"), "select paddock.submit($1)", "Cmd = \"/bin/true"))
	await(t, super, "held", "select max(state) from paddock.job")
	outcome(d.add("ann", ad)[0], "ok 0")

	// No wake-up is sent while all slots are busy.
	ids := d.add("ann", job("sleep 600")+"\n\n"+job("sleep 600"))
	await(t, super, "2", "select count(*) from paddock.lease where accepted")
	await(t, super, "false", "select idle from paddock.host")
	c := d.as("postgres")
	must(t, exec1(c, "listen paddock_work"))
	d.add("ann", strings.Repeat(ad+"\n\n", 20))
	must(t, exec1(super, "select pg_notify('paddock_work', 'mine')"))
	n, err := c.WaitForNotification(t.Context())
	must(t, err)
	if n.Payload != "mine" {
		t.Errorf("the hosts, which are busy, were woken up for %q", n.Payload)
	}
	d.tool("ann", "del", fmt.Sprint(ids[0]), fmt.Sprint(ids[1]))
	await(t, super, "0", "select count(*) from paddock.job where state = 'queued'")
}

// TestLockedJob has a submitter keep a job of his locked when its run ends: the ends of others are heard, and that one as soon as
// he lets go, in spite of its lease.
func TestLockedJob(t *testing.T) {
	d := newDatabase(t)
	super, ann := d.as("postgres"), d.as("ann")
	h := newHost(t, d, "one", 1)
	end := filepath.Join(h.base, "end")
	must(t, syscall.Mkfifo(end, 0o600))
	id := d.add("ann", "Cmd = \"/bin/cat\"\nArguments = \""+end+"\"")[0]
	await(t, super, "1", "select count(*) from paddock.lease where accepted")
	must(t, exec1(ann, "begin"))
	must(t, exec1(ann, "select paddock.await(array[$1::bigint])", id))
	must(t, os.WriteFile(end, nil, 0o600))
	await(t, super, "exit", "select word from paddock.told where job = $1", id)
	other := d.add("bob", ad)[0]
	await(t, super, "ok", "select outcome from paddock.done where id = $1", other)
	must(t, exec1(ann, "commit"))
	d.untilAt("clock_timestamp() - grace - interval '1 s'")
	await(t, super, "ok 0", "select outcome || ' ' || evictions from paddock.done where id = $1", id)
	if got := value(t, super, "select count(*) from paddock.told"); got != "0" {
		t.Errorf("%s ends are told still", got)
	}
}

func vacate(t *testing.T, h *host) {
	t.Helper()
	out, err := h.execd("-vacate", "-dev", h.o.Dir, "1", "2")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestEachCall has a program be started for each call of a hook.
func TestEachCall(t *testing.T) {
	d := newDatabase(t)
	super := d.as("postgres")
	base := filepath.Join(top, d.name+"_one")
	knobs := []string{"PG_HOOK_SERVER ="}
	for _, name := range []string{"FETCH_WORK", "REPLY_FETCH", "RENEW_CLAIM", "EVICT_CLAIM", "REPORT_WORK"} {
		knobs = append(knobs, "PG_HOOK_"+name+" = "+base+"/"+name)
	}
	must(t, os.MkdirAll(base, 0o755))
	for _, name := range []string{"FETCH_WORK", "REPLY_FETCH", "RENEW_CLAIM", "EVICT_CLAIM", "REPORT_WORK"} {
		must(t, harness.WriteExecutable(filepath.Join(base, name), "#!/bin/sh\nexec "+bin+"/paddock-pg -config "+base+"/pg.conf "+name+" \"$@\"\n"))
	}
	ids := d.add("ann", strings.Repeat(ad+"\n\n", 10))
	newHost(t, d, "one", 2, knobs...)
	await(t, super, fmt.Sprint(len(ids)), "select count(*) from paddock.done where outcome = 'ok'")
}

// TestLostRun has a run lost whose shepherd is killed: nobody knows what it has done, and it runs again.
func TestLostRun(t *testing.T) {
	d := newDatabase(t)
	super := d.as("postgres")
	h := newHost(t, d, "one", 1)
	open := filepath.Join(h.base, "open")
	must(t, os.Mkdir(open, 0o777))
	must(t, os.Chmod(open, 0o777))
	mark := filepath.Join(open, "mark")
	id := d.add("ann", "Cmd = \"/bin/sh\"\nArguments = \"-c 'test -e "+mark+" && exit 0; touch "+mark+"; exec sleep 600'\"")[0]
	must(t, harness.WaitFor(harness.Patience, "the job to run", func() (bool, error) {
		_, err := os.Stat(mark)
		return err == nil, nil
	}))
	found, err := filepath.Glob(filepath.Join(h.o.Dir, "spool", "active_jobs", "*", "pid"))
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("the runs are %v", found)
	}
	text, err := os.ReadFile(found[0])
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	await(t, super, "ok 0 1", "select outcome || ' ' || exit_code || ' ' || evictions from paddock.done where id = $1", id)
}
