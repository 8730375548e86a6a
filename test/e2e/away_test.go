package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/test/harness"
)

// elsewhere is a pool whose hosts share their files, and whose login host starts no job itself.
type elsewhere struct {
	*pool
	user *harness.User // whose jobs run; nil: the user's of this test
}

const shares = "FILESYSTEM_DOMAIN = cluster\n"

func newAway(t *testing.T, node string) *elsewhere {
	t.Helper()
	return newAwayFrom(t, "", node)
}

// newAwayFrom is newAway with knobs of login, too.
func newAwayFrom(t *testing.T, home, node string) *elsewhere {
	t.Helper()
	if second == nil && os.Geteuid() == 0 {
		t.Skip("work of other hosts never runs as root")
	}
	a := &elsewhere{newPool(t, knobsOf{login: shares + home, node: shares + node}), second}
	a.state(api.PeerUp, "")
	a.login.run("qmod", "-d", "all.q")
	return a
}

// as runs a command at login as the user whose jobs run.
func (a *elsewhere) as(command string, args ...string) string {
	a.t.Helper()
	if a.user == nil {
		return a.login.run(command, args...)
	}
	out, err := a.login.as(a.user, filepath.Join(bin, command), args...)
	if err != nil && command != "qdel" {
		a.t.Errorf("%s %q: %v: %s", command, args, err, out)
	}
	return out
}

// submit submits a shell command with options.
func (a *elsewhere) submit(command string, options ...string) int {
	a.t.Helper()
	args := append([]string{"-terse", "-wd", a.login.dir + "/u", "-o", "/dev/null", "-j", "y", "-b", "y", "-shell", "n"}, options...)
	out := a.as("qsub", append(args, "/bin/sh", "-c", command)...)
	word, _, _ := strings.Cut(strings.TrimSpace(out), ".")
	n, err := strconv.Atoi(word)
	if err != nil {
		a.t.Fatalf("qsub: %q", out)
	}
	return n
}

// qacct returns the lines of a job that qacct has, by name, once there are so many runs.
func (a *elsewhere) qacct(job, runs int) (lines []map[string]string) {
	a.t.Helper()
	if err := harness.WaitFor(3*patience, fmt.Sprintf("%d runs of job %d to be accounted", runs, job), func() (bool, error) {
		cmd := a.login.command("qacct", "-j", strconv.Itoa(job))
		out, _ := cmd.Output() // there may be none yet
		lines = nil
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "====") {
				lines = append(lines, map[string]string{})
				continue
			}
			if name, value, ok := strings.Cut(line, " "); ok && len(lines) > 0 {
				lines[len(lines)-1][name] = strings.TrimSpace(value)
			}
		}
		return len(lines) >= runs, nil
	}); err != nil {
		a.t.Fatalf("%v\n%s\n%s", err, a.login.Log(), a.node.Log())
	}
	return lines
}

// shown waits until qstat of login shows a job in a state, and returns its line.
func (a *elsewhere) shown(job int, state string) (line api.JobStatus) {
	a.t.Helper()
	if err := harness.WaitFor(patience, fmt.Sprintf("job %d to be %s", job, state), func() (bool, error) {
		jobs, err := a.login.Jobs()
		for _, j := range jobs {
			if line = j; j.Job == job && j.State == state {
				return true, err
			}
		}
		return false, err
	}); err != nil {
		a.t.Fatalf("%v: %+v\n%s\n%s", err, line, a.login.Log(), a.node.Log())
	}
	return line
}

// wrote waits until a job has written a file below the user's directory, and returns what.
func (a *elsewhere) wrote(name string) (text string) {
	a.t.Helper()
	if err := harness.WaitFor(patience, name+" to be written", func() (bool, error) {
		data, err := os.ReadFile(a.login.dir + "/u/" + name)
		text = string(data)
		return err == nil && strings.HasSuffix(text, "\n"), nil
	}); err != nil {
		a.t.Fatalf("%v\n%s\n%s", err, a.login.Log(), a.node.Log())
	}
	return text
}

// lines waits until jobs have written so many lines to a file below the user's directory.
func (a *elsewhere) lines(name string, n int) {
	a.t.Helper()
	if err := harness.WaitFor(patience, fmt.Sprintf("%d lines in %s", n, name), func() (bool, error) {
		data, err := os.ReadFile(a.login.dir + "/u/" + name)
		return strings.Count(string(data), "\n") >= n, err
	}); err != nil {
		a.t.Fatalf("%v\n%s\n%s", err, a.login.Log(), a.node.Log())
	}
}

// REQ-XFER-4, REQ-XFER-13, REQ-FLOW-36: qstat shows what the host has of the job where it was submitted.
//
// A job that finds no slot at home runs on another host as its user, with the numbers that
// home gave it, and all that home says of it is as if it had run there.
func TestAway(t *testing.T) {
	parallel(t)
	a := newAway(t, "")
	job := a.submit(`echo $JOB_ID $SGE_TASK_ID $(id -u) >ran; until [ -e go ]; do sleep 0.4; done; exit 7`)
	uid := os.Getuid()
	if a.user != nil {
		uid = a.user.UID
	}
	if ran := a.wrote("ran"); ran != fmt.Sprintf("%d undefined %d\n", job, uid) {
		t.Errorf("the job said %q", ran)
	}
	if line := a.shown(job, "r"); line.Queue != "all.q@node" {
		t.Errorf("qstat: %+v", line)
	}
	if out := a.login.run("qhost", "-slots", "-h", "node"); strings.Count(out, "Busy") != 1 {
		t.Errorf("qhost -slots:\n%s", out)
	}
	a.as("qmod", "-sj", strconv.Itoa(job))
	a.until(1, "Claimed/Suspended "+a.holder1())
	a.shown(job, "s")
	a.as("qmod", "-usj", strconv.Itoa(job))
	a.until(1, "Claimed/Busy "+a.holder1())
	a.login.open(a.login.dir + "/u/go")
	l := a.qacct(job, 1)
	if len(l) != 1 || l[0]["hostname"] != "node" || l[0]["qname"] != "all.q" || l[0]["exit_status"] != "7" || l[0]["failed"] != "0" || l[0]["start_time"] == "-/-" {
		t.Errorf("qacct: %q", l)
	}
	// Who waits for it hears of it, and what it writes can be followed.
	job = a.submit("echo said; sleep 0.3; echo more", "-o", a.login.dir+"/u/out", "-sync", "y")
	if out := a.as("qlog", "-f", strconv.Itoa(job)); !strings.Contains(out, "said\nmore\n") {
		t.Errorf("qlog -f: %q", out)
	}
	// Nothing is left.
	a.until(1, "Claimed/Idle queue")
	if err := harness.WaitFor(patience, "no claims to be left", func() (bool, error) {
		names, err := os.ReadDir(a.login.dir + "/spool/remote")
		return len(names) == 0, err
	}); err != nil {
		t.Error(err)
	}
}

// holder1 is who holds slots of node, as node says.
func (a *elsewhere) holder1() string {
	if a.user != nil {
		return a.user.Name + "@login"
	}
	return username(a.t) + "@login"
}

// Slots at home are taken first, and what finds none there runs elsewhere; each task once.
func TestAwaySpread(t *testing.T) {
	parallel(t)
	a := newAway(t, "")
	a.login.run("qmod", "-e", "all.q")
	job := a.submit(`echo $SGE_TASK_ID >>tasks; until [ -e go ]; do sleep 0.4; done`, "-t", "1-12")
	if err := harness.WaitFor(patience, "4 tasks to run", func() (bool, error) {
		jobs, err := a.login.Jobs()
		on := map[string]int{}
		for _, j := range jobs {
			on[j.Queue]++
		}
		return on["all.q@node"] == 2 && on["all.q@login"]+on["all.q@"+hostname(t)] == 2, err
	}); err != nil {
		t.Fatalf("%v\n%s", err, a.login.Log())
	}
	a.login.open(a.login.dir + "/u/go")
	hosts := map[string]int{}
	for _, l := range a.qacct(job, 12) {
		hosts[l["hostname"]]++
		if l["exit_status"] != "0" {
			t.Errorf("%q", l)
		}
	}
	data, err := os.ReadFile(a.login.dir + "/u/tasks")
	if len(hosts) != 2 || err != nil || strings.Count(string(data), "\n") != 12 {
		t.Errorf("%v ran as %q, %v", hosts, data, err)
	}
}

func hostname(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// REQ-FLOW-27: the end is recorded once, whoever was away meanwhile.
//
// A run goes on whatever execd is killed, and ends once.
func TestFaultAwayRestarts(t *testing.T) {
	parallel(t)
	a := newAway(t, "")
	for i, kill := range []func(){
		func() { a.login.Daemon.Kill(); a.login.begin() },
		func() { a.node.Daemon.Kill(); a.node.begin() },
		func() { a.node.Daemon.Kill(); a.login.Daemon.Kill(); a.login.begin(); a.node.begin() },
	} {
		job := a.submit(fmt.Sprintf("echo on >>ran%d; until [ -e go%d ]; do sleep 0.4; done; exit %d", i, i, 3+i))
		a.wrote(fmt.Sprintf("ran%d", i))
		a.shown(job, "r")
		kill()
		a.state(api.PeerUp, "")
		a.shown(job, "r")
		a.login.open(fmt.Sprintf("%s/u/go%d", a.login.dir, i))
		l := a.qacct(job, 1)
		if len(l) != 1 || l[0]["exit_status"] != strconv.Itoa(3+i) || l[0]["hostname"] != "node" {
			t.Errorf("qacct: %q", l)
		}
		if ran := a.wrote(fmt.Sprintf("ran%d", i)); ran != "on\n" {
			t.Errorf("it ran as %q", ran)
		}
	}
	// It ends while its home is away.
	job := a.submit("echo on >ran; until [ -e go ]; do sleep 0.4; done; exit 9")
	a.wrote("ran")
	a.shown(job, "r")
	a.login.Daemon.Kill()
	a.login.open(a.login.dir + "/u/go")
	a.login.begin()
	if l := a.qacct(job, 1); l[0]["exit_status"] != "9" {
		t.Errorf("qacct: %q", l)
	}
}

// qmod -rj has a run elsewhere begin anew, qdel ends it; with -f it does not wait for a host that is silent.
func TestAwayDelete(t *testing.T) {
	parallel(t)
	a := newAway(t, "")
	job := a.submit("echo on >ran; exec sleep 1000")
	a.wrote("ran")
	a.shown(job, "r")
	if out := a.as("qdel", strconv.Itoa(job)); !strings.Contains(out, "has registered the job") {
		t.Errorf("qdel: %s", out)
	}
	l := a.qacct(job, 1)
	if l[0]["failed"] != "100" && !strings.HasPrefix(l[0]["failed"], "100 ") || l[0]["hostname"] != "node" {
		t.Errorf("qacct: %q", l)
	}
	job = a.submit("echo on >>again; exec sleep 1000", "-r", "y")
	a.wrote("again")
	a.shown(job, "r")
	a.as("qmod", "-rj", strconv.Itoa(job))
	if l := a.qacct(job, 1); !strings.HasPrefix(l[0]["failed"], "25") {
		t.Errorf("qacct after qmod -rj: %q", l)
	}
	a.lines("again", 2)
	a.as("qdel", strconv.Itoa(job))
	a.qacct(job, 2)
	// It may be deleted at any moment of its start.
	for range 5 {
		job = a.submit("exec sleep 1000")
		a.as("qdel", strconv.Itoa(job))
		if err := a.login.WaitJob(job); err != nil {
			t.Fatalf("%v\n%s\n%s", err, a.login.Log(), a.node.Log())
		}
	}
	job = a.submit("echo on >ran2; exec sleep 1000")
	a.wrote("ran2")
	a.shown(job, "r")
	a.node.Daemon.Kill()
	a.state(api.PeerDown, "")
	if err := harness.WaitFor(patience, "node to be known as silent", func() (bool, error) {
		return strings.Contains(a.as("qstat", "-j", strconv.Itoa(job)), "node has not answered since"), nil
	}); err != nil {
		t.Error(err)
	}
	if out := a.as("qdel", "-f", strconv.Itoa(job)); !strings.Contains(out, fmt.Sprintf("job %d.1 may run on node until", job)) {
		t.Errorf("qdel -f: %s", out)
	}
	a.qacct(job, 1)
	a.node.begin()
	a.until(1, "Claimed/Idle queue")
}

// A host whose execd is gone for good ends the job with its lease, and home runs it again
// after that and not before; one that may not run twice waits for somebody to look.
func TestFaultAwayLost(t *testing.T) {
	t.Parallel()
	a := newAway(t, "ALIVE_INTERVAL = 5\nMAX_CLAIM_ALIVES_MISSED = 2\n")
	// It appends: a file that is written anew is empty when the kill comes in between.
	said := `date +%s.%N >>began; while :; do date +%s.%N >>alive; sleep 0.2; done`
	job := a.submit(said, "-r", "y")
	once := a.submit("echo on >once; exec sleep 1000", "-r", "n")
	a.wrote("began")
	a.wrote("once")
	a.wrote("alive")
	a.shown(job, "r")
	a.node.Daemon.Kill()
	a.qacct(job, 1)
	times := strings.Fields(a.wrote("alive"))
	last := times[len(times)-1]
	alive, err := strconv.ParseFloat(last, 64)
	if err != nil || time.Since(time.Unix(0, int64(alive*1e9))) < 5*time.Second {
		t.Errorf("it was accounted while it ran: alive at %s, now %v, %v", last, time.Now().Unix(), err)
	}
	a.shown(job, "qw")
	line := a.shown(once, "Eqw")
	if !strings.Contains(line.Reason, "it may have run") {
		t.Errorf("reason %q", line.Reason)
	}
	if l := a.qacct(once, 1); !strings.HasPrefix(l[0]["failed"], "112") {
		t.Errorf("qacct: %q", l)
	}
	a.node.begin()
	a.lines("began", 2)
}

// qstat -j says of each host why a job that waits is not there: it is full, is drained, refuses it,
// does not share its files, or has gone.
func TestAwayWhyNot(t *testing.T) {
	parallel(t)
	a := newAway(t, "")
	full := []int{a.submit("exec sleep 1000"), a.submit("exec sleep 1000", "-q", "all.q")}
	for _, job := range full {
		a.runsIn(job, "all.q@node")
	}
	job := a.submit("true", "-l", "q=all.q")
	drain := func(how ...string) {
		t.Helper()
		if out, err := exec.Command(filepath.Join(bin, "execd"), append([]string{"-dev", a.node.dir, "-drain"}, how...)...).CombinedOutput(); err != nil {
			t.Errorf("execd -drain %s: %v: %s", how, err, out)
		}
	}
	knobs := func(text string) {
		write(t, a.node.dir+"/etc/hooks.conf", "ADDRESS = 127.0.0.1:"+a.port+"\n"+text, 0o644)
		a.node.run("qconf", "-reload")
	}
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, "node: no slot is free"},
		{func() { drain() }, "node: it is being drained"},
		{func() { drain("-off") }, "node: no slot is free"},
		{func() { a.node.run("qmod", "-d", "all.q"); a.as("qdel", strconv.Itoa(full[0])) }, "node: queue all.q is disabled"},
		{func() { knobs("START = false\n" + shares); a.node.run("qmod", "-e", "all.q") }, "node: START is false"},
		{func() { knobs("") }, "node: FILESYSTEM_DOMAIN is another one"},
		{func() { a.node.Daemon.Kill() }, "node: down since"},
		{func() { a.login.run("qmod", "-e", "all.q") }, ""},
	} {
		step.change()
		begun := time.Now()
		if step.want == "" {
			a.qacct(job, 1)
			continue
		}
		a.why(job, "not on another host: "+step.want)
		t.Logf("%s: after %v", step.want, time.Since(begun))
	}
	a.node.begin()
}

// Jobs of several users run on another host, each as its owner, under claims of his own; whom
// the host does not want stays.
func TestAwayUsers(t *testing.T) {
	parallel(t)
	if second == nil {
		t.Skip("jobs of several users need root")
	}
	a := newAway(t, "REMOTE_OWNERS = *\n")
	login := &holder{a.login, a.ctx}
	submit := func(user string) int {
		t.Helper()
		out, err := login.commandAs(user, "", filepath.Join(bin, "qsub"), "-terse", "-wd", "/", "-o", "/dev/null", "-j", "y", "-b", "y", "-shell", "n", "/bin/sh", "-c", `test $(id -un) = "$1" && exit 5; exit 6`, "sh", user)
		n, convErr := strconv.Atoi(strings.TrimSpace(out))
		if err != nil || convErr != nil {
			t.Fatalf("qsub as %s: %v: %s", user, err, out)
		}
		return n
	}
	jobs := map[string]int{second.Name: submit(second.Name), "nobody": submit("nobody")}
	for user, job := range jobs {
		if l := a.qacct(job, 1); l[0]["exit_status"] != "5" || l[0]["owner"] != user || l[0]["hostname"] != "node" {
			t.Errorf("of %s: %q", user, l)
		}
	}
	a.until(1, "Claimed/Idle queue")
	a.until(2, "Claimed/Idle queue")
	write(t, a.node.dir+"/etc/hooks.conf", "ADDRESS = 127.0.0.1:"+a.port+"\n"+shares+"REMOTE_OWNERS = "+second.Name+"\n", 0o644)
	a.node.run("qconf", "-reload")
	job := strconv.Itoa(submit("nobody"))
	if err := harness.WaitFor(patience, "it to be refused", func() (bool, error) {
		return strings.Contains(a.login.run("qstat", "-j", job), `not on another host: node: user "nobody" is none of REMOTE_OWNERS`), nil
	}); err != nil {
		t.Errorf("%v: %s", err, a.login.run("qstat", "-j", job))
	}
}

// Whenever either execd is killed, each task runs once and has one accounting line.
func TestFaultAwayKilled(t *testing.T) {
	parallel(t)
	a := newAway(t, "")
	const tasks = 60
	job := a.submit(`echo $SGE_TASK_ID >>tasks; sleep 0.2; exit 4`, "-t", fmt.Sprintf("1-%d", tasks), "-r", "n")
	r := rand.New(rand.NewPCG(1, 2))
	ran := func() int {
		data, _ := os.ReadFile(a.login.dir + "/u/tasks") // there may be none yet
		return strings.Count(string(data), "\n")
	}
	for kills := 0; kills < 12 && ran() < tasks; kills++ {
		on := a.login
		if r.IntN(2) == 0 {
			on = a.node
		}
		want := min(ran()+1+r.IntN(4), tasks)
		if err := harness.WaitFor(patience, fmt.Sprintf("%d tasks to have run", want), func() (bool, error) { return ran() >= want, nil }); err != nil {
			t.Fatalf("%v\n%s\n%s", err, a.login.Log(), a.node.Log())
		}
		on.Daemon.Kill()
		on.begin()
	}
	seen := map[string]bool{}
	for _, l := range a.qacct(job, tasks) {
		if seen[l["taskid"]] || l["exit_status"] != "4" || l["hostname"] != "node" {
			t.Errorf("%q", l)
		}
		seen[l["taskid"]] = true
	}
	data, err := os.ReadFile(a.login.dir + "/u/tasks")
	words := strings.Fields(string(data))
	slices.Sort(words)
	if n := len(slices.Compact(words)); err != nil || len(seen) != tasks || n != tasks || ran() != tasks {
		t.Errorf("%d tasks are accounted, %d ran, %d starts, %v; want %d of each", len(seen), n, ran(), err, tasks)
	}
}
