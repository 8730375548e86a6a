package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"paddock/execd/api"
	"paddock/test/harness"
)

// newSteered has a pool with a third host, big, whose queue big.q is one partitionable slot.
// Unlike that of newAway, its login host starts jobs.
func newSteered(t *testing.T) (a *elsewhere, big *desk) {
	t.Helper()
	if second == nil && os.Geteuid() == 0 {
		t.Skip("work of other hosts never runs as root")
	}
	a = &elsewhere{newPool(t, knobsOf{login: shares, node: shares}), second}
	dir, port := place(t, "big"), freePort(t)
	write(t, dir+"/etc/queues/big.q", "qname big.q\nslots 4\n", 0o644)
	write(t, dir+"/etc/hooks.conf", "ADDRESS = 127.0.0.1:"+port+"\nPARTITIONABLE_QUEUES = big.q\n"+shares, 0o644)
	if second != nil {
		write(t, dir+"/etc/sge_conf", "min_uid 100\nmin_gid 0\n", 0o644)
	}
	write(t, dir+"/etc/host.pem", a.pool.pool(t, a.login.dir, "host", "big", "-execute"), 0o600)
	write(t, a.login.dir+"/etc/peers", "node 127.0.0.1:"+a.port+" execute\nbig 127.0.0.1:"+port+" execute\n", 0o644)
	big = deskIn(t, dir, a.node.mode, a.node.via...)
	t.Cleanup(func() { // before big ends
		a.login.run("qdel", "-u", "*")
		if err := harness.WaitFor(patience, "no jobs to be left", func() (bool, error) {
			jobs, err := a.login.Jobs()
			return len(jobs) == 0, err
		}); err != nil {
			t.Error(err)
		}
	})
	a.login.run("qconf", "-reload")
	a.up(2)
	return a, big
}

// up waits until so many hosts are up.
func (a *elsewhere) up(n int) {
	a.t.Helper()
	if err := harness.WaitFor(patience, fmt.Sprintf("%d hosts to be up", n), func() (bool, error) {
		return strings.Count(a.login.run("qhost", "-peers"), " up ") == n, nil
	}); err != nil {
		a.t.Fatalf("%v\n%s", err, a.login.Log())
	}
}

// refused returns why qsub refuses a job with options.
func (a *elsewhere) refused(options ...string) string {
	a.t.Helper()
	args := append(append([]string{"-b", "y"}, options...), "true")
	cmd := a.login.command("qsub", args...)
	if a.user != nil {
		out, err := a.login.as(a.user, cmd.Path, args...)
		if err == nil {
			a.t.Errorf("qsub %q: %s", options, out)
		}
		return out
	}
	out, err := cmd.CombinedOutput()
	if err == nil {
		a.t.Errorf("qsub %q: %s", options, out)
	}
	return string(out)
}

// why waits until qstat -j says something of why a job waits.
func (a *elsewhere) why(job int, want string) {
	a.t.Helper()
	out := ""
	if err := harness.WaitFor(patience, want, func() (bool, error) {
		out = a.as("qstat", "-j", strconv.Itoa(job))
		return strings.Contains(out, want), nil
	}); err != nil {
		a.t.Errorf("%v: %s\n%s", err, out, a.login.Log())
	}
}

// runsIn waits until a job runs in a queue of a host.
func (a *elsewhere) runsIn(job int, queue string) {
	a.t.Helper()
	if line := a.shown(job, "r"); line.Queue != queue {
		a.t.Errorf("job %d runs in %s, not in %s", job, line.Queue, queue)
	}
}

// -q and -l hostname choose among home and the other hosts; a job that may not leave and names
// these alone is refused with the reason.
func TestSteer(t *testing.T) {
	parallel(t)
	a, _ := newSteered(t)
	const stay = "exec sleep 1000"
	jobs := []int{}
	for _, c := range []struct {
		options []string
		queue   string
	}{
		{[]string{"-q", "all.q@node"}, "all.q@node"},
		{[]string{"-q", "*@big"}, "big.q@big"},
		{[]string{"-q", "big.q"}, "big.q@big"},
		{[]string{"-l", "h=nod*"}, "all.q@node"},
		{[]string{"-q", "all.q"}, "all.q@" + hostname(t)},
		{[]string{"-soft", "-q", "*@big"}, "all.q@" + hostname(t)},
		{[]string{"-soft", "-q", "*@big"}, "big.q@big"}, // home is full
		{[]string{"-q", "big.q@big,all.q@node"}, "big.q@big"},
	} {
		job := a.submit(stay, c.options...)
		a.runsIn(job, c.queue)
		jobs = append(jobs, job)
	}
	for _, c := range [][2]string{
		{"-q all.q@nosuch", `job requests unknown queue "all.q@nosuch"`},
		{"-q big.q@node", `job requests unknown queue "big.q@node"`},
		{`-q all.q@node -attr HookKeyword="X"`, "job rejected: by its -q or -l it may run on other hosts alone, and jobs with hooks of their own run on this host alone"},
	} {
		if out := a.refused(strings.Fields(c[0])...); !strings.Contains(out, c[1]) {
			t.Errorf("qsub %s: %s", c[0], out)
		}
	}
	job := a.submit("true", "-q", "all.q@node,big.q")
	full := a.submit("true", "-w", "e", "-q", "all.q@node")
	a.why(full, "node: no slot is free")
	a.why(full, "big: it is not asked for (-q, -l)")
	a.why(job, "big: no slot is free")
	a.as("qalter", "-q", "all.q", strconv.Itoa(full))
	a.as("qdel", strconv.Itoa(jobs[4]))
	a.qacct(full, 1)
	a.as("qdel", strconv.Itoa(jobs[1]))
	if l := a.qacct(job, 1); l[0]["hostname"] != "big" {
		t.Errorf("qacct: %q", l)
	}
}

// The runs of a user elsewhere count among those that he may have, and carve more out of a slot
// that nobody else gets meanwhile; what he leaves is free at once.
func TestSteerLimits(t *testing.T) {
	parallel(t)
	a, big := newSteered(t)
	write(t, a.login.dir+"/etc/sched_conf", "maxujobs 3\n", 0o644)
	a.login.run("qconf", "-reload")
	job := a.submit("until [ -e go ]; do sleep 0.4; done", "-q", "big.q", "-t", "1-6")
	a.up(2)
	count := func() (n int) {
		jobs, err := a.login.Jobs()
		if err != nil {
			t.Error(err)
		}
		for _, j := range jobs {
			if j.State == "r" && j.Queue == "big.q@big" {
				n++
			}
		}
		return n
	}
	for _, most := range []int{3, 4} {
		if err := harness.WaitFor(patience, fmt.Sprintf("%d tasks to run", most), func() (bool, error) { return count() == most, nil }); err != nil {
			t.Fatalf("%v\n%s\n%s", err, a.login.Log(), big.Log())
		}
		if most == 3 {
			a.why(job, "may have 3 (maxujobs)")
			write(t, a.login.dir+"/etc/sched_conf", "maxujobs 5\n", 0o644)
			a.login.run("qconf", "-reload")
		}
	}
	a.why(job, "big: no slot is free")
	a.login.open(a.login.dir + "/u/go")
	a.qacct(job, 6)
	var reply api.SlotsReply
	if err := harness.WaitFor(patience, "nobody to hold what is left of the slot of big", func() (bool, error) {
		err := big.Client.Call(a.ctx, api.VerbSlots, &api.SlotsRequest{Slot: "1"}, &reply)
		return len(reply.Slots) == 1 && reply.Slots[0].Holder == "", err
	}); err != nil {
		t.Errorf("%v: %+v", err, reply)
	}
}

// qrsh runs its command on another host that it names, or when home is full, as the user, and
// with the exit status of the command; it says what cannot be.
func TestSteerQrsh(t *testing.T) {
	parallel(t)
	a, _ := newSteered(t)
	command := func(args ...string) *exec.Cmd {
		cmd := a.login.command("qrsh", args...)
		cmd.Dir = a.login.dir + "/u"
		if a.user != nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.user.Credential()}
		}
		return cmd
	}
	qrsh := func(args ...string) (string, int) {
		t.Helper()
		cmd := command(args...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	for _, args := range [][]string{
		{"-l", "h=node"}, {"-q", "*@big"}, {"-now", "n", "-q", "big.q"},
	} {
		out, exit := qrsh(append(args, "echo $JOB_ID $SGE_O_HOST; exit 7")...)
		if exit != 7 || !strings.HasSuffix(out, " login\n") {
			t.Errorf("qrsh %q: %d %q\n%s\n%s", args, exit, out, a.login.Log(), a.node.Log())
		}
	}
	out, exit := qrsh("-l", "h=node", filepath.Join(bin, "qrsh")+" -inherit $HOSTNAME true")
	if exit == 0 || !strings.Contains(out, "of login has one slot here, and no tasks beside it") {
		t.Errorf("qrsh -inherit: %d %q", exit, out)
	}
	// On a terminal; no second client is connected to it.
	term := a.login.start(command("-l", "h=node", "-pty", "y", "stty size; echo job $JOB_ID is up; read line; exit $line"))
	a.login.await(term, 0, `24 80\r\njob \d+ is up\r\n`)
	_, number, _ := strings.Cut(term.Text(), "job ")
	number, _, _ = strings.Cut(number, " ")
	for _, option := range []string{"-into", "-reconnect"} {
		if out, exit = qrsh(option, number); exit != 1 || !strings.Contains(out, "job "+number+" runs on node, ") {
			t.Errorf("qrsh %s %s: %d %q", option, number, exit, out)
		}
	}
	a.login.press(term, "5\r")
	a.login.ends(term, 5)
	for range 2 { // home is full then
		a.runsIn(a.submit("exec sleep 1000", "-q", "all.q@"+hostname(t)), "all.q@"+hostname(t))
	}
	if out, exit = qrsh("exec cat"); exit != 0 || out != "" {
		t.Errorf("qrsh: %d %q", exit, out)
	}
	if out, exit = qrsh("-q", "all.q@"+hostname(t), "true"); exit != 1 || !strings.Contains(out, "could not be scheduled, try again later") {
		t.Errorf("qrsh to a host that is full: %d %q", exit, out)
	}
}
