package e2e

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/test/harness"
)

// newAcross is a pool whose hosts share no files, as far as they know.
func newAcross(t *testing.T, home, node string) *elsewhere {
	t.Helper()
	if second == nil && os.Geteuid() == 0 {
		t.Skip("work of other hosts never runs as root")
	}
	a := &elsewhere{newPool(t, knobsOf{login: home, node: node}), second}
	a.state(api.PeerUp, "")
	a.login.run("qmod", "-d", "all.q")
	return a
}

// read returns what a file below the user's directory has.
func (a *elsewhere) read(name string) string {
	a.t.Helper()
	data, err := os.ReadFile(a.login.dir + "/u/" + name)
	if err != nil {
		a.t.Errorf("%v\n%s\n%s", err, a.login.Log(), a.node.Log())
	}
	return string(data)
}

// mine writes a file of the user's.
func (a *elsewhere) mine(name, text string) {
	a.t.Helper()
	path := a.login.dir + "/u/" + name
	write(a.t, path, text, 0o644)
	if a.user != nil {
		for dir := filepath.Dir(path); dir != a.login.dir; dir = filepath.Dir(dir) {
			if err := os.Chown(dir, a.user.UID, a.user.GID); err != nil {
				a.t.Fatal(err)
			}
		}
		if err := os.Chown(path, a.user.UID, a.user.GID); err != nil {
			a.t.Fatal(err)
		}
	}
}

// boxes waits until there are so many sandboxes on a host.
func (a *elsewhere) boxes(d *desk, n int) {
	a.t.Helper()
	var list []string
	if err := harness.WaitFor(patience, fmt.Sprintf("%d sandboxes", n), func() (bool, error) {
		list, _ = filepath.Glob(d.dir + "/spool/sandboxes/[0-9]*")
		return len(list) == n, nil
	}); err != nil {
		a.t.Errorf("%v: %q", err, list)
	}
}

// left checks that nothing of transfers is left in the user's directory.
func (a *elsewhere) left() {
	a.t.Helper()
	list, err := filepath.Glob(a.login.dir + "/u/.paddock-*")
	if err != nil || len(list) > 0 {
		a.t.Errorf("%q are left, %v", list, err)
	}
}

// REQ-XFER-5, REQ-XFER-6, REQ-XFER-27: what a job needs travels to its host, and what it
// leaves comes back, with what it has written to its standard streams.
func TestAcross(t *testing.T) {
	parallel(t)
	a := newAcross(t, "", "")
	a.mine("in/a", "1\n")
	a.mine("in/deep/b", "2\n")
	a.mine("words", "3\n")
	a.mine("o", "before\n")
	job := a.submit(`pwd; cat in/a in/deep/b w; cat; echo wrong >&2; mkdir out; echo 5 >out/x; ln out/x out/y; ln -s x out/z; echo 6 >w; echo 7 >.dot; exit 3`,
		"-sandbox", "y", "-stagein", "in,w=words", "-o", a.login.dir+"/u/o", "-j", "n", "-e", a.login.dir+"/u/e", "-i", a.login.dir+"/u/words")
	lines := a.qacct(job, 1)
	if l := lines[0]; l["exit_status"] != "3" || l["hostname"] != "node" || l["failed"] != "0" {
		t.Errorf("qacct: %q", l)
	}
	o := strings.SplitAfterN(a.read("o"), "\n", 3)
	if len(o) != 3 || o[0] != "before\n" || strings.HasPrefix(o[1], a.login.dir) || o[2] != "1\n2\n3\n3\n" {
		t.Errorf("-o has %q", o)
	}
	for name, want := range map[string]string{"e": "wrong\n", "out/x": "5\n", "out/y": "5\n", "out/z": "5\n", "w": "6\n", ".dot": "7\n", "in/a": "1\n"} {
		if got := a.read(name); got != want {
			t.Errorf("%s has %q; want %q", name, got, want)
		}
	}
	one, err := os.Stat(a.login.dir + "/u/out/x")
	if err != nil {
		t.Fatal(err)
	}
	if two, err := os.Stat(a.login.dir + "/u/out/y"); err != nil || !os.SameFile(one, two) {
		t.Errorf("hard links are two files: %v", err)
	}
	a.left()
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// slowly has what travels take seconds.
const slowly = "TRANSFER_BANDWIDTH = 6000000\n"

// knobs gives the host of the user other knobs.
func (a *elsewhere) knobs(text string) {
	a.t.Helper()
	write(a.t, a.login.dir+"/etc/hooks.conf", text, 0o644)
	a.login.run("qconf", "-reload")
}

// large is a command that leaves 30 MB, with their digest, and says that it has run.
func (a *elsewhere) large(name string) string {
	return fmt.Sprintf("echo on >>%s/u/%s.ran; head -c 30000000 /dev/urandom >%s; sha256sum %s >%s.sum; echo said", a.login.dir, name, name, name, name)
}

// whole checks what large has left.
func (a *elsewhere) whole(name string, runs int) {
	a.t.Helper()
	data, err := os.ReadFile(a.login.dir + "/u/" + name)
	if sum := fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name); err != nil || len(data) != 30000000 || sum != a.read(name+".sum") {
		a.t.Errorf("%s has %d bytes, not those that were written, %v\n%s\n%s", name, len(data), err, a.login.Log(), a.node.Log())
	}
	if n := strings.Count(a.read(name+".ran"), "on\n"); n != runs {
		a.t.Errorf("%s was run %d times; want %d\n%s\n%s", name, n, runs, a.login.Log(), a.node.Log())
	}
}

// moving waits until bytes of a job have come or gone.
func (a *elsewhere) moving(job int, output bool, least int64) {
	a.t.Helper()
	var d api.DetailReply
	if err := harness.WaitFor(patience, fmt.Sprintf("%d bytes of job %d to travel", least, job), func() (bool, error) {
		d = api.DetailReply{}
		if err := a.login.Client.Call(a.ctx, api.VerbDetail, &api.DetailRequest{Jobs: []string{fmt.Sprint(job)}}, &d); err != nil || len(d.Jobs) == 0 || len(d.Jobs[0].Tasks) == 0 {
			return false, err
		}
		x := d.Jobs[0].Tasks[0].Transfer
		return x != nil && x.Output == output && x.Bytes >= least && x.Peer == "node", nil
	}); err != nil {
		a.t.Fatalf("%v: %+v\n%s\n%s", err, d, a.login.Log(), a.node.Log())
	}
}

// REQ-XFER-70, REQ-XFER-71: nothing is run again only because a daemon has died, on either
// host, in whatever phase: what was cut off goes on.
func TestFaultAcrossRestarts(t *testing.T) {
	t.Parallel()
	a := newAcross(t, slowly, "")
	kills := map[string]func(){
		"home": func() { a.login.Daemon.Kill(); a.login.begin() },
		"node": func() { a.node.Daemon.Kill(); a.node.begin() },
		"both": func() { a.node.Daemon.Kill(); a.login.Daemon.Kill(); a.login.begin(); a.node.begin() },
	}
	a.mine("in", strings.Repeat("x", 20_000_000))
	for _, who := range []string{"home", "node", "both"} {
		// While input is pushed.
		job := a.submit(a.large("i"+who), "-sandbox", "y", "-stagein", "in", "-o", a.login.dir+"/u/said."+who)
		a.moving(job, false, 1_000_000)
		kills[who]()
		a.state(api.PeerUp, "")
		if l := a.qacct(job, 1); len(l) != 1 || l[0]["failed"] != "0" || l[0]["hostname"] != "node" {
			t.Errorf("%s, input: %q", who, l)
		}
		a.whole("i"+who, 1)
		// While output is pulled.
		job = a.submit(a.large("o"+who), "-sandbox", "y", "-o", a.login.dir+"/u/said."+who)
		a.shown(job, "to")
		a.moving(job, true, 5_000_000)
		kills[who]()
		a.state(api.PeerUp, "")
		if l := a.qacct(job, 1); len(l) != 1 || l[0]["failed"] != "0" || l[0]["hostname"] != "node" {
			t.Errorf("%s, output: %q", who, l)
		}
		a.whole("o"+who, 1)
		if said := a.read("said." + who); said != "said\nsaid\n" {
			t.Errorf("%s: -o has %q", who, said)
		}
	}
	a.left()
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// What cannot be taken at its destination waits until somebody has looked, and what is not
// wanted any more is removed on both hosts.
func TestAcrossStuck(t *testing.T) {
	parallel(t)
	a := newAcross(t, slowly, "")
	job := a.submit("echo 1 >x", "-sandbox", "y", "-stageout_to", a.login.dir+"/u/later")
	line := a.shown(job, "Eto")
	if !strings.Contains(line.Reason, "later") {
		t.Errorf("reason %q", line.Reason)
	}
	a.until(1, "Claimed/Idle queue") // the slot waits for nobody
	a.mine("later/.keep", "")
	a.as("qmod", "-cj", fmt.Sprint(job))
	if l := a.qacct(job, 1); l[0]["failed"] != "0" {
		t.Errorf("qacct: %q", l)
	}
	if got := a.read("later/x"); got != "1\n" {
		t.Errorf("later/x has %q", got)
	}
	a.mine("said/.keep", "")
	grant := func(mode os.FileMode) {
		if err := os.Chmod(a.login.dir+"/u/said", mode); err != nil {
			t.Fatal(err)
		}
	}
	grant(0o500)
	job = a.submit("echo all of it", "-stageout", "NONE", "-o", a.login.dir+"/u/said/o")
	line = a.shown(job, "Eto")
	if !strings.Contains(line.Reason, "said") {
		t.Errorf("reason %q", line.Reason)
	}
	grant(0o700)
	a.as("qmod", "-cj", fmt.Sprint(job))
	if l := a.qacct(job, 1); l[0]["failed"] != "0" {
		t.Errorf("qacct: %q", l)
	}
	if got := a.read("said/o"); got != "all of it\n" {
		t.Errorf("said/o has %q", got)
	}
	// Nobody waits for what a run has said whose job runs again: its host keeps nothing of it.
	job = a.submit("echo said; echo on >>"+a.login.dir+"/u/runs; until test -e "+a.login.dir+"/u/go; do sleep 0.1; done",
		"-sandbox", "y", "-r", "y", "-o", a.login.dir+"/u/said/again")
	a.lines("runs", 1)
	grant(0o500)
	a.as("qmod", "-rj", fmt.Sprint(job))
	a.lines("runs", 2)
	a.boxes(a.node, 1)
	grant(0o700)
	a.mine("go", "")
	if l := a.qacct(job, 2); !strings.Contains(l[0]["reason"], "what it had left is lost") || l[1]["failed"] != "0" {
		t.Errorf("qacct: %q", l)
	}
	job = a.submit(a.large("gone"), "-sandbox", "y")
	a.shown(job, "to")
	a.moving(job, true, 1_000_000)
	a.as("qdel", fmt.Sprint(job))
	if l := a.qacct(job, 1); !strings.HasPrefix(l[0]["failed"], "111") || !strings.Contains(l[0]["reason"], "while its output was transferred") {
		t.Errorf("qacct: %q", l)
	}
	if _, err := os.Stat(a.login.dir + "/u/gone"); err == nil {
		t.Error("what nobody wanted has come")
	}
	job = a.submit("true", "-sandbox", "y", "-stagein", "nowhere")
	line = a.shown(job, "Eqw")
	if !strings.Contains(line.Reason, "nowhere") {
		t.Errorf("reason %q", line.Reason)
	}
	a.as("qdel", fmt.Sprint(job))
	a.left()
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// cable passes on what login and node say to each other, until it is cut.
type cable struct {
	net.Listener
	t    *testing.T
	to   string
	mu   sync.Mutex
	cut  bool              // guarded by mu; nothing is passed on
	open map[net.Conn]bool // guarded by mu
	// Guarded by mu: it is cut when so many bytes have gone in a direction; 0: it is not.
	up, down int64
	// Guarded by mu: all bytes that have gone in a direction.
	allUp, allDown int64
}

// newCable is between login and node of a pool from now on.
func newCable(a *elsewhere) *cable {
	a.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		a.t.Fatal(err)
	}
	w := &cable{Listener: l, t: a.t, to: "127.0.0.1:" + a.port, open: map[net.Conn]bool{}}
	a.t.Cleanup(func() { l.Close(); w.set(true) })
	go w.pass()
	write(a.t, a.login.dir+"/etc/peers", "node "+l.Addr().String()+" execute\n", 0o644)
	a.login.Daemon.Kill()
	a.login.begin()
	a.state(api.PeerUp, "")
	return w
}

func (w *cable) pass() {
	for {
		near, err := w.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.to)
		if err != nil {
			near.Close()
			continue
		}
		w.mu.Lock()
		if w.cut {
			near.Close()
			far.Close()
		} else {
			w.open[near], w.open[far] = true, true
		}
		w.mu.Unlock()
		go w.copy(far, near, &w.up, &w.allUp)
		go w.copy(near, far, &w.down, &w.allDown)
	}
}

func (w *cable) copy(to, from net.Conn, left, all *int64) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			w.mu.Lock()
			*all += int64(n)
			ends := *left > 0 && *left <= int64(n)
			if *left > 0 && !ends {
				*left -= int64(n)
			}
			w.mu.Unlock()
			if ends {
				w.set(true)
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// set cuts it, or mends it.
func (w *cable) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.up, w.down = cut, 0, 0
	for c := range w.open {
		c.Close()
		delete(w.open, c)
	}
}

// after has it cut when so many bytes have gone.
func (w *cable) after(up, down int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up, w.down = up, down
}

// count returns how many bytes have gone in each direction.
func (w *cable) count() (up, down int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.allUp, w.allDown
}

// awaitCut waits until it is.
func (w *cable) awaitCut() {
	w.t.Helper()
	if err := harness.WaitFor(patience, "the wire to be cut", func() (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.cut, nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

// A transfer in either direction that the network cuts goes on when that is back, and a block
// at most is sent twice.
func TestFaultAcrossCut(t *testing.T) {
	parallel(t)
	a := newAcross(t, "", "")
	w := newCable(a)
	a.mine("in", strings.Repeat("x", 30_000_000))
	w.after(20_000_000, 0)
	job := a.submit(a.large("one")+"; wc -c <in", "-sandbox", "y", "-stagein", "in", "-o", a.login.dir+"/u/said")
	w.awaitCut()
	w.set(false)
	w.after(0, 20_000_000)
	w.awaitCut()
	w.set(false)
	if l := a.qacct(job, 1); len(l) != 1 || l[0]["failed"] != "0" {
		t.Errorf("qacct: %q", l)
	}
	a.whole("one", 1)
	if said := a.read("said"); said != "said\n30000000\n" {
		t.Errorf("-o has %q", said)
	}
	// 30 MB each, a block of each again, and what the network had of each when it was cut.
	if up, down := w.count(); up > 42_000_000 || down > 42_000_000 {
		t.Errorf("%d bytes have gone, and %d have come, of 30 MB each", up, down)
	}
	a.left()
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// REQ-XFER-73: a host that is lost with the output of a job ends with its lease. Then the job is
// run again, if it may be, and the reason names the lease.
func TestFaultAcrossLost(t *testing.T) {
	t.Parallel()
	// What the first to be on the disk of the node leaves has to be on its way still when the second follows.
	a := newAcross(t, "TRANSFER_BANDWIDTH = 200000\n", "ALIVE_INTERVAL = 5\nMAX_CLAIM_ALIVES_MISSED = 2\n")
	job := a.submit(a.large("big"), "-sandbox", "y", "-r", "y")
	once := a.submit(a.large("once"), "-sandbox", "y", "-r", "n")
	a.moving(job, true, 1)
	a.moving(once, true, 1)
	a.node.Daemon.Kill()
	l := a.qacct(job, 1)
	if !strings.HasPrefix(l[0]["failed"], "112") || !strings.Contains(l[0]["reason"], "the lease ended at") || !strings.Contains(l[0]["reason"], "its output is lost") {
		t.Errorf("qacct: %q", l)
	}
	if line := a.shown(once, "Eqw"); !strings.Contains(line.Reason, "its output is lost") {
		t.Errorf("reason %q", line.Reason)
	}
	a.knobs("")
	a.node.begin()
	a.recovers(job, "big", once)
}

// recovers sees that a job whose first output is lost has run again, and what it leaves has
// come; one that may not run again is deleted, and nothing of either is left.
func (a *elsewhere) recovers(job int, name string, once int) {
	a.t.Helper()
	if l := a.qacct(job, 2); l[1]["failed"] != "0" {
		a.t.Errorf("qacct: %q", l)
	}
	a.whole(name, 2)
	a.as("qdel", fmt.Sprint(once))
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// REQ-XFER-45: what a job has done that had to leave its slot comes home, and its next run goes on
// with it, on another host or at home. What it has written to standard output is there at once.
func TestAcrossEvict(t *testing.T) {
	parallel(t)
	a := newAcross(t, "", "")
	a.mine("data", "begin\n")
	u := a.login.dir + "/u/"
	job := a.submit(fmt.Sprintf(`n=$(cat n 2>/dev/null || echo 0); echo $((n+1)) >n; echo more >>data; cat same; echo said $n; echo half $n >>%strace; until [ -e %sgo ]; do sleep 0.4; done`, u, u),
		"-sandbox", "y", "-stagein", "data,same=data", "-when_out", "evict", "-r", "y", "-o", u+"o", "-stageout_to", u+"out")
	a.mine("out/.keep", "")
	a.lines("trace", 1)
	a.shown(job, "r")
	a.as("qmod", "-rj", fmt.Sprint(job))
	a.lines("o", 2)
	a.lines("trace", 2)
	a.shown(job, "Rr")
	if _, err := os.Stat(u + "out/n"); err == nil {
		t.Error("output has landed before the end")
	}
	a.node.run("qmod", "-d", "all.q")
	a.login.run("qmod", "-e", "all.q")
	a.as("qmod", "-rj", fmt.Sprint(job))
	a.lines("trace", 3)
	a.login.open(u + "go")
	a.qacct(job, 3)
	for name, want := range map[string]string{"trace": "half 0\nhalf 1\nhalf 2\n", "out/n": "3\n", "out/data": "begin\nmore\nmore\nmore\n", "data": "begin\n", "o": "begin\nsaid 0\nbegin\nsaid 1\nbegin\nsaid 2\n"} {
		if got := a.read(name); got != want {
			t.Errorf("%s has %q; want %q", name, got, want)
		}
	}
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// What is not wanted of the end of a job does not land, but for what it has said.
func TestAcrossWanted(t *testing.T) {
	parallel(t)
	a := newAcross(t, "", "")
	u := a.login.dir + "/u/"
	fails := a.submit("echo said; echo 1 >x1; exit 3", "-sandbox", "y", "-when_out", "success", "-o", u+"o1")
	listed := a.submit("echo 2 >x2; echo 3 >x3", "-sandbox", "y", "-stageout", "x2=deep2,x4=.")
	named := a.submit("mkdir d; echo 2 >d/x2; echo 3 >x3", "-sandbox", "y", "-stageout", "d/x2=deep2")
	deleted := a.submit("echo said; echo on >"+u+"ran; echo 5 >x5; exec sleep 1000", "-sandbox", "y", "-stageout", "none", "-o", u+"o2")
	a.qacct(fails, 1)
	a.qacct(named, 1)
	if line := a.shown(listed, "Eto"); !strings.Contains(line.Reason, `"x4" is missing`) {
		t.Errorf("reason %q", line.Reason)
	}
	a.as("qdel", fmt.Sprint(listed))
	a.qacct(listed, 1)
	a.wrote("ran")
	a.as("qdel", fmt.Sprint(deleted))
	if l := a.qacct(deleted, 1); !strings.HasPrefix(l[0]["failed"], "100") {
		t.Errorf("qacct: %q", l)
	}
	for name, want := range map[string]string{"o1": "said\n", "o2": "said\n", "deep2": "2\n"} {
		if got := a.read(name); got != want {
			t.Errorf("%s has %q; want %q", name, got, want)
		}
	}
	for _, name := range []string{"x1", "x2", "x3", "x5"} {
		if _, err := os.Stat(u + name); err == nil {
			t.Errorf("%s has come", name)
		}
	}
	a.left()
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// REQ-XFER-35, REQ-XFER-46: the slot runs the next job while the output of the last is pulled; with
// ASYNC_STAGEOUT = false, when it has arrived, and not before.
func TestAcrossNext(t *testing.T) {
	parallel(t)
	for async, knob := range map[bool]string{true: "", false: "ASYNC_STAGEOUT = false\n"} {
		a := newAcross(t, slowly, knob)
		a.node.run("qconf", "-mattr", "queue", "slots", "1", "all.q")
		job := a.submit(a.large("big$SGE_TASK_ID"), "-sandbox", "y", "-t", "1-2")
		l := a.qacct(job, 2)
		for _, line := range l {
			if line["failed"] != "0" {
				t.Errorf("qacct: %q", line)
			}
		}
		log := a.login.Log()
		second, first := strings.Index(log, fmt.Sprintf("job %d.2: is started on node", job)), strings.Index(log, fmt.Sprintf("job %d.1: its output has arrived", job))
		if second < 0 || first < 0 || async != (second < first) {
			t.Errorf("async %v: the second is started at %d, and the first has arrived at %d:\n%s", async, second, first, log)
		}
		a.whole("big1", 1)
		a.whole("big2", 1)
	}
}

// REQ-XFER-75: a destination that is full has the output wait where it is, and its host is told;
// when there is room, all of it comes.
func TestFaultAcrossFull(t *testing.T) {
	parallel(t)
	if second == nil {
		t.Skip("only root makes a file system that is soon full")
	}
	a := newAcross(t, "", "")
	full := a.login.dir + "/u/full"
	a.mine("full/.keep", "")
	if err := unix.Mount("tmpfs", full, "tmpfs", 0, fmt.Sprintf("size=8m,mode=0700,uid=%d", a.user.UID)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(full, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	a.login.Daemon.Kill() // it has mounts of its own, and those that were there when it was started
	a.login.begin()
	a.state(api.PeerUp, "")
	job := a.submit(a.large("big"), "-sandbox", "y", "-stageout_to", full)
	if line := a.shown(job, "Eto"); !strings.Contains(line.Reason, "no space left") {
		t.Errorf("reason %q", line.Reason)
	}
	if out := a.node.run("qhost", "-sandboxes"); !strings.Contains(out, "stuck") {
		t.Errorf("qhost -sandboxes of node: %s", out)
	}
	if err := unix.Mount("tmpfs", full, "tmpfs", unix.MS_REMOUNT, "size=80m"); err != nil {
		t.Fatal(err)
	}
	a.as("qmod", "-cj", fmt.Sprint(job))
	a.qacct(job, 1)
	data := a.read("full/big")
	if sum := fmt.Sprintf("%x  big\n", sha256.Sum256([]byte(data))); sum != a.read("full/big.sum") || strings.Count(a.read("big.ran"), "on\n") != 1 {
		t.Errorf("%d bytes have come, not those that were written", len(data))
	}
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// What travels to a host and from it is compressed if the line of that host says so, where it becomes
// smaller. It arrives as it was.
func TestAcrossZstd(t *testing.T) {
	parallel(t)
	a, n := newApart(t, "", "")
	if err := n.Hosts[0].Write("peers", "node execute zstd=yes\n"); err != nil {
		t.Fatal(err)
	}
	a.login.run("qconf", "-reload")
	a.mine("in", strings.Repeat("what a log says\n", 1<<20))
	before := []int{came(t, n.Hosts[0]), came(t, n.Hosts[1])}
	job := a.submit("sha256sum in >in.sum; cp in out; head -c 4000000 /dev/urandom >random; sha256sum out random >sum", "-sandbox", "y", "-stagein", "in")
	a.qacct(job, 1)
	// 16 MB of the log each way, of which next to nothing is left, and 4 MB that stay so.
	for i, bounds := range [][2]int{{4_000_000, 5_500_000}, {0, 1_500_000}} {
		if got := came(t, n.Hosts[i]) - before[i]; got < bounds[0] || got > bounds[1] {
			t.Errorf("%d bytes have come to %s; want from %d to %d", got, n.Hosts[i].Name, bounds[0], bounds[1])
		}
	}
	for _, sums := range []string{"in.sum", "sum"} {
		cmd := exec.Command("sha256sum", "-c", "--quiet", sums)
		cmd.Dir = a.login.dir + "/u"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", sums, err, out)
		}
	}
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}
