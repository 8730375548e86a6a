package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/test/harness"
)

// newApart is an across whose hosts have a network each, and the one between them.
func newApart(t *testing.T, home, node string) (*elsewhere, *harness.Network) {
	t.Helper()
	if second == nil {
		t.Skip("only root makes networks")
	}
	n, err := harness.NewNetwork(bin, place(t, "apart"), []string{"login", "node"}, "paddock:x:61990:61990::/:/bin/sh")
	if errors.Is(err, harness.ErrNoNetwork) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	for i, h := range n.Hosts {
		if err := errors.Join(
			h.Write("queues/all.q", "qname all.q\nslots 2\n"),
			h.Write("hooks.conf", []string{home, "ADDRESS = :6445\n" + node}[i]),
			h.Write("sge_conf", "min_uid 100\nmin_gid 0\n"),
			os.MkdirAll(h.Dir+"/u", 0o755), os.Chown(h.Dir+"/u", second.UID, second.GID)); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Share(); err != nil {
		t.Fatal(err)
	}
	p := &pool{port: "6445"}
	p.node = deskIn(t, n.Hosts[1].Dir, "-root", n.Hosts[1].Enter()...)
	p.login = deskIn(t, n.Hosts[0].Dir, "-root", n.Hosts[0].Enter()...)
	p.holder = &holder{p.node, t.Context()}
	a := &elsewhere{p, second}
	a.state(api.PeerUp, "")
	a.login.run("qmod", "-d", "all.q")
	return a, n
}

// came returns how many bytes have come to a host.
func came(t *testing.T, h *harness.Host) int {
	t.Helper()
	argv := append(h.Enter(), "ip", "-s", "-o", "link", "show", "eth0")
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	_, rest, _ := strings.Cut(string(out), "RX:")
	_, rest, _ = strings.Cut(rest, `\`)
	word, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, bad := strconv.Atoi(word)
	if err = errors.Join(err, bad); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return n
}

// REQ-XFER-71: the link of the submit host is out for a while as output travels, and for as long as
// its execd is started anew, of which the other host hears nothing. The transfer goes on, with a
// block at most that travels again, and the job is not run again.
func TestFaultAcrossLink(t *testing.T) {
	parallel(t)
	a, n := newApart(t, "", slowly) // who sends is slow, so that nothing waits in the network
	login := n.Hosts[0]
	link := func(up bool) {
		t.Helper()
		if err := login.Link(up); err != nil {
			t.Fatal(err)
		}
	}
	job := a.submit(a.large("one"), "-sandbox", "y", "-o", a.login.dir+"/u/said")
	a.moving(job, true, 5_000_000)
	link(false)
	link(true)
	a.moving(job, true, 10_000_000)
	link(false)
	a.login.Daemon.Kill()
	a.login.begin()
	link(true)
	if l := a.qacct(job, 1); len(l) != 1 || l[0]["failed"] != "0" || l[0]["hostname"] != "node" {
		t.Errorf("qacct: %q", l)
	}
	a.whole("one", 1)
	if said := a.read("said"); said != "said\n" {
		t.Errorf("-o has %q", said)
	}
	// A block again, what was on its way twice, and the heads of packets.
	if got := came(t, login); got < 30_000_000 || got > 38_000_000 {
		t.Errorf("%d bytes have come, of 30 MB", got)
	}
	a.left()
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// workers returns the processes that move files of jobs of a host.
func workers(t *testing.T, dir string) (list []int) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		exe, _ := os.Readlink(path)
		lock, _ := os.Readlink(filepath.Dir(path) + "/fd/3") // of its sandbox
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && filepath.Base(exe) == "execd-transfer" && strings.HasPrefix(lock, dir+"/") {
			list = append(list, pid)
		}
	}
	return list
}

// killWorkers kills those, and reports whether there were any.
func killWorkers(t *testing.T, dir string) (killed bool) {
	t.Helper()
	for _, pid := range workers(t, dir) {
		killed = unix.Kill(pid, unix.SIGKILL) == nil || killed
	}
	return killed
}

// REQ-XFER-70: who moves the files of a job is killed, on either host, while they travel in either
// direction: HTCondor runs the job again when its supervisor dies then, and ours is not run
// again. What was cut off goes on.
func TestFaultAcrossWorkers(t *testing.T) {
	parallel(t)
	a := newAcross(t, "", "")
	a.mine("in", strings.Repeat("x", 30_000_000))
	const slow = "TRANSFER_BANDWIDTH = 1000000\n"
	kill := func(what, dir string) { // behind 16 MiB another worker takes over, which keeps to the bandwidth
		t.Helper()
		if err := harness.WaitFor(patience, "somebody to move "+what, func() (bool, error) { return killWorkers(t, dir), nil }); err != nil {
			t.Error(err)
		}
	}
	for _, at := range []*desk{a.node, a.login} {
		who := filepath.Base(at.dir)
		a.knobs(slow)
		job := a.submit(fmt.Sprintf("%s; until test -e %s/u/%s.go; do sleep 0.4; done", a.large(who), a.login.dir, who), "-sandbox", "y", "-stagein", "in")
		a.moving(job, false, 1_000_000)
		kill("the input", at.dir)
		a.knobs("")
		a.wrote(who + ".ran")
		a.knobs(slow)
		a.login.open(a.login.dir + "/u/" + who + ".go")
		a.moving(job, true, 1_000_000)
		kill("the output", at.dir)
		a.knobs("")
		if l := a.qacct(job, 1); len(l) != 1 || l[0]["failed"] != "0" || l[0]["hostname"] != "node" {
			t.Errorf("%s: qacct: %q", who, l)
		}
		a.whole(who, 1)
	}
	a.left()
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// waits waits until the output of the only sandbox on node waits for who pulls it.
func (a *elsewhere) waits() {
	a.t.Helper()
	var reply api.SandboxesReply
	if err := harness.WaitFor(patience, "output to wait on node", func() (bool, error) {
		reply = api.SandboxesReply{}
		err := a.node.Client.Call(a.ctx, api.VerbBoxes, &api.SandboxesRequest{}, &reply)
		return len(reply.Sandboxes) == 1 && reply.Sandboxes[0].State == api.SandboxSending, err
	}); err != nil {
		a.t.Fatalf("%v: %+v\n%s", err, reply, a.node.Log())
	}
}

// REQ-XFER-72, REQ-XFER-71, REQ-XFER-50: the submit host cannot be reached as the job ends. Its output waits where
// it is, while the slot is free there, until the submit host knows of the end and pulls it, though
// both execds are killed meanwhile. Nothing is run again: in HTCondor the supervisor that waits is
// all that knows of the output, and its death has the job run again.
func TestFaultAcrossEndUnheard(t *testing.T) {
	parallel(t)
	a := newAcross(t, "", "")
	w := newCable(a)
	job := a.submit(fmt.Sprintf("%s; touch %[2]s/u/up; until test -e %[2]s/u/go; do sleep 0.4; done", a.large("one"), a.login.dir), "-sandbox", "y", "-o", a.login.dir+"/u/said")
	a.wrote("one.ran")
	a.shown(job, "r")
	w.set(true)
	a.login.open(a.login.dir + "/u/go")
	a.waits()
	if out := a.node.run("qhost", "-slots"); !strings.Contains(out, "Idle") {
		t.Errorf("the slot is not free while output waits:\n%s", out)
	}
	a.node.Daemon.Kill()
	a.login.Daemon.Kill()
	a.login.begin()
	a.node.begin()
	a.waits()
	a.shown(job, "r") // as far as anybody knows
	w.set(false)
	if l := a.qacct(job, 1); len(l) != 1 || l[0]["failed"] != "0" || l[0]["hostname"] != "node" {
		t.Errorf("qacct: %q", l)
	}
	a.whole("one", 1)
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// REQ-XFER-73: the lease ends while output waits for a submit host that cannot be reached: it is
// discarded, and then the job runs again if it may, and else waits. Nothing is until the lease is
// over, whatever has died.
func TestFaultAcrossLeaseEndsUnheard(t *testing.T) {
	t.Parallel()
	a := newAcross(t, "", "ALIVE_INTERVAL = 5\nMAX_CLAIM_ALIVES_MISSED = 2\n")
	w := newCable(a)
	command := func(name string) string {
		return fmt.Sprintf("%s; until test -e %s/u/go; do sleep 0.4; done", a.large(name), a.login.dir)
	}
	job := a.submit(command("two"), "-sandbox", "y", "-r", "y")
	once := a.submit(command("once"), "-sandbox", "y", "-r", "n")
	a.wrote("two.ran")
	a.wrote("once.ran")
	a.shown(job, "r")
	a.shown(once, "r")
	w.set(true)
	a.login.open(a.login.dir + "/u/go")
	a.boxes(a.node, 0)
	l := a.qacct(job, 1)
	if !strings.HasPrefix(l[0]["failed"], "112") || !strings.Contains(l[0]["reason"], "the lease ended at") {
		t.Errorf("qacct: %q", l)
	}
	if line := a.shown(once, "Eqw"); !strings.Contains(line.Reason, "the lease ended at") {
		t.Errorf("reason %q", line.Reason)
	}
	w.set(false)
	a.recovers(job, "two", once)
}

// REQ-XFER-74: a destination that goes while output comes has it wait until somebody has looked, and
// then all of it comes.
func TestFaultAcrossGone(t *testing.T) {
	parallel(t)
	a := newAcross(t, slowly, "")
	a.mine("there/.keep", "")
	job := a.submit(a.large("big"), "-sandbox", "y", "-stageout_to", a.login.dir+"/u/there")
	a.moving(job, true, 5_000_000)
	if err := os.RemoveAll(a.login.dir + "/u/there"); err != nil {
		t.Fatal(err)
	}
	if line := a.shown(job, "Eto"); !strings.Contains(line.Reason, "no such file") {
		t.Errorf("reason %q", line.Reason)
	}
	a.mine("there/.keep", "")
	a.as("qmod", "-cj", fmt.Sprint(job))
	if l := a.qacct(job, 1); len(l) != 1 || l[0]["failed"] != "0" {
		t.Errorf("qacct: %q", l)
	}
	if a.read("there/big.sum") == "" || strings.Count(a.read("big.ran"), "on\n") != 1 || len(a.read("there/big")) != 30_000_000 {
		t.Error("not all has come, or the job has run twice")
	}
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// REQ-XFER-75: a disk that is full where a job is to run is told as what it is: of input that has no
// room there by why the job is not there, and of what it writes by itself, whose output comes.
func TestFaultAcrossFullThere(t *testing.T) {
	parallel(t)
	if second == nil {
		t.Skip("only root makes a file system that is soon full")
	}
	small := place(t, "small")
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=8m,mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	a := newAcross(t, "", "EXECUTE = "+small+"\nRESERVED_DISK = 1\n")
	a.mine("in", strings.Repeat("x", 20_000_000))
	u := a.login.dir + "/u/"
	job := a.submit("echo 1 >x; m=$(head -c 20000000 /dev/zero 2>&1 >y); s=$?; rm y; echo $m >&2; exit $((s + 6))", "-sandbox", "y", "-e", u+"e", "-j", "n")
	if l := a.qacct(job, 1); l[0]["failed"] != "0" || l[0]["exit_status"] != "7" {
		t.Errorf("qacct: %q", l)
	}
	if e := a.read("e"); !strings.Contains(e, "No space left") || a.read("x") != "1\n" {
		t.Errorf("-e has %q", e)
	}
	job = a.submit("echo on >>"+u+"ran", "-sandbox", "y", "-stagein", "in")
	a.why(job, `node: input transfer: cannot write "in": no space left on device`) // another host may have room
	if _, err := os.Stat(u + "ran"); err == nil {
		t.Error("it has run without its input")
	}
	a.as("qdel", fmt.Sprint(job))
	a.boxes(a.login, 0)
}

// REQ-XFER-7: a slot that is held until output has gone is held also while the submit host is
// started anew, and is not given back.
func TestAcrossHeld(t *testing.T) {
	parallel(t)
	a := newAcross(t, slowly, "ASYNC_STAGEOUT = false\n")
	a.node.run("qconf", "-mattr", "queue", "slots", "1", "all.q")
	job := a.submit(a.large("big$SGE_TASK_ID"), "-sandbox", "y", "-t", "1-2")
	a.shown(job, "to")
	a.moving(job, true, 5_000_000)
	a.login.Daemon.Kill()
	a.login.begin()
	for _, line := range a.qacct(job, 2) {
		if line["failed"] != "0" {
			t.Errorf("qacct: %q", line)
		}
	}
	log := a.login.Log()
	second, first := strings.Index(log, fmt.Sprintf("job %d.2: is started on node", job)), strings.Index(log, fmt.Sprintf("job %d.1: its output has arrived", job))
	if first < 0 || second < first {
		t.Errorf("the second is started at %d, and the first has arrived at %d:\n%s", second, first, log)
	}
	a.whole("big1", 1)
	a.whole("big2", 1)
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// REQ-XFER-6: what a job has brought by a URL is brought where a plugin takes that, and output goes
// to a URL from the submit host.
func TestAcrossURLs(t *testing.T) {
	parallel(t)
	plugins := place(t, "plugins")
	const plugin = `#!/bin/sh
if test "$1" = -classad; then
	echo '[ MultipleFileSupport = true; PluginType = "FileTransfer"; SupportedMethods = "SCHEME" ]'
	exit
fi
sed -n 's/.*Url = "\([^"]*\)".*LocalFileName = "\([^"]*\)".*/\1 \2/p' "$2" | while read url file; do
	if test "$5" = -upload; then cp "$file" "STORE/${url##*/}"; else cp "STORE/${url##*/}" "$file"; fi && ok=true || ok=false
	echo "[ TransferUrl = \"$url\"; TransferSuccess = $ok; TransferError = \"no\"; TransferRetryable = false ]"
done >"$4"
`
	store := place(t, "store")
	if second != nil {
		if err := os.Chown(store, second.UID, second.GID); err != nil {
			t.Fatal(err)
		}
	}
	write(t, store+"/data", "from there\n", 0o644)
	for _, scheme := range []string{"one", "two"} {
		if err := harness.WriteExecutable(plugins+"/"+scheme, strings.NewReplacer("SCHEME", scheme, "STORE", store).Replace(plugin)); err != nil {
			t.Fatal(err)
		}
	}
	a := newAcross(t, "FILETRANSFER_PLUGINS = "+plugins+"/one "+plugins+"/two\n", "FILETRANSFER_PLUGINS = "+plugins+"/one\n")
	takes := func() bool {
		return strings.Contains(a.node.run("qhost", "-slotad", "1"), `HasFileTransferPluginMethods = "one"`)
	}
	if err := harness.WaitFor(patience, "node to know what its plugin takes", func() (bool, error) { return takes(), nil }); err != nil {
		t.Fatal(err)
	}
	job := a.submit("cat data; echo new >new; echo deep >deep", "-sandbox", "y", "-stagein", "one://x/data", "-stageout", "new=two://x/new,deep", "-o", a.login.dir+"/u/o")
	if l := a.qacct(job, 1); l[0]["failed"] != "0" || l[0]["hostname"] != "node" {
		t.Errorf("qacct: %q", l)
	}
	if got := read(t, store+"/new"); got != "new\n" {
		t.Errorf("at the URL there is %q", got)
	}
	if o, deep := a.read("o"), a.read("deep"); o != "from there\n" || deep != "deep\n" {
		t.Errorf("-o has %q, and deep %q", o, deep)
	}
	job = a.submit("true", "-sandbox", "y", "-stageout_to", "two://x/all")
	a.qacct(job, 1)
	job = a.submit("echo 6 >six", "-sandbox", "y", "-stageout_to", "two://x")
	if l := a.qacct(job, 1); l[0]["failed"] != "0" || read(t, store+"/six") != "6\n" {
		t.Errorf("qacct: %q", l)
	}
	// No plugin of node takes it: node is not asked.
	job = a.submit("true", "-sandbox", "y", "-stagein", "two://x/data")
	a.why(job, "node: no plugin there takes two://")
	if strings.Contains(a.login.Log(), fmt.Sprintf("job %d: is started on node", job)) {
		t.Error("node was asked to start it")
	}
	write(t, a.node.dir+"/etc/hooks.conf", read(t, a.node.dir+"/etc/hooks.conf")+"FILETRANSFER_PLUGINS = "+plugins+"/one "+plugins+"/two\n", 0o644)
	a.node.run("qconf", "-reload")
	if l := a.qacct(job, 1); l[0]["failed"] != "0" || l[0]["hostname"] != "node" {
		t.Errorf("qacct: %q", l)
	}
	a.left()
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// What travels is shown on both hosts, with how fast it does and for how long still, and what lies
// where by qhost of either.
func TestAcrossShown(t *testing.T) {
	parallel(t)
	const slow = "TRANSFER_BANDWIDTH = 200000\n"
	a := newAcross(t, slow, "")
	a.mine("in", strings.Repeat("x", 20_000_000))
	matches := func(what string, show func() string, pattern string) {
		t.Helper()
		out, want := "", regexp.MustCompile("(?m)"+pattern)
		if err := harness.WaitFor(patience, what, func() (bool, error) {
			out = show()
			return want.MatchString(out), nil
		}); err != nil {
			t.Fatalf("%v: %q:\n%s", err, pattern, out)
		}
	}
	job := a.submit(fmt.Sprintf("echo up >%[1]s/u/up; until test -e %[1]s/u/go; do sleep 0.4; done; %s", a.login.dir, a.large("one")), "-sandbox", "y", "-stagein", "in")
	detail := func() string { return a.as("qstat", "-j", fmt.Sprint(job)) }
	top := func() string { return a.as("qtop", "-b", "-n", "1") }
	boxes := func(args ...string) func() string {
		return func() string { return a.login.run("qhost", append([]string{"-sandboxes"}, args...)...) }
	}
	moves := fmt.Sprintf(`^ *%d .* \d+%% [0-9.]+[KM]/s \S+ .* all.q@node$`, job)
	matches("input in qstat", detail, `^stage_in +1: +\S+ of \S+, \S+/s, \d+ s left, to node, attempt \d+`)
	matches("input in qtop", top, moves)
	matches("input in qhost", boxes(), fmt.Sprintf(`^\d+\.1 +node +login %d\.1 .* staging .* \S+/s +\S+ +login +\d+ `, job))
	a.knobs("")
	a.wrote("up")
	a.knobs(slow)
	a.login.open(a.login.dir + "/u/go")
	a.shown(job, "to")
	matches("output in qstat", detail, `^stage_out +1: +\S+ of \S+, \S+/s, \d+ s left, from node, attempt \d+`)
	matches("output in qtop", top, moves)
	matches("output in qhost", boxes(), fmt.Sprintf(`^%d\.1 +\S+ +- .* sending +\S+ +\S+ +\S+/s +\S+ +node +\d+ `, job))
	matches("output of node", boxes("-h", "node"), fmt.Sprintf(`^\d+\.1 +node +login %d\.1 .* sending +\S+ +\S+ +\S+/s +\S+ +login +\d+ `, job))
	a.node.Daemon.Kill()
	matches("that node is silent", boxes(), `^- +node +- .* \S`)
	a.node.begin()
	a.knobs("")
	a.qacct(job, 1)
	a.whole("one", 1)
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}
