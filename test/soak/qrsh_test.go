package soak

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/test/harness"
)

// A lane is an execd of its own, and a machine of its own for its clients: a
// network namespace at the other end of a wire. One session after the other is
// disturbed in it.
type lane struct {
	*testing.T
	name, dir, bin string
	namespace      string
	link           string // our end of the wire, and with an n behind it the other
	address        string // of the clients
	daemon         *harness.Daemon
}

// Disturbances of a session.
const (
	clientDies   = iota // for good: the job ends
	clientComes         // another goes on with the job, be it stopped or not
	sessionDies         // qrsh-session is killed, and the job ends
	execdDies           // and starts again; nobody notices
	execdWaiting        // the same, while the client waits for its slot
	linkBlinks          // the wire is cut for a moment; nobody notices
	linkDown            // for longer than a connection lasts; it is made anew
	disturbances
)

var disturbanceNames = [disturbances]string{
	"the client dies", "the client dies and another comes", "qrsh-session dies", "execd dies", "execd dies, the client waiting",
	"the link blinks", "the link is down",
}

// run is one session and what happens to it.
type run struct {
	number int
	what   int
	early  bool // it may happen before the session is connected
	after  time.Duration
	lasts  time.Duration // until execd, the link or the client is back
	policy string
	side   bool // which end of the wire
}

func (r *run) String() string {
	return fmt.Sprintf("run %d (%s after %v, early %v, for %v, -lost %s)", r.number, disturbanceNames[r.what], r.after, r.early, r.lasts, r.policy)
}

// TestSessions disturbs interactive jobs at random moments: the sessions that
// should survive do, each job is accounted once and for the right reason, and
// no terminal hangs.
func TestSessions(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces need ip (Debian: iproute2)")
	}
	// Root in a container may not, and small kernels cannot.
	probe := fmt.Sprintf("paddock-probe-%d", os.Getpid())
	out, err := exec.Command("ip", "netns", "add", probe).CombinedOutput()
	if err == nil {
		out, err = exec.Command("ip", "-n", probe, "link", "add", "type", "veth").CombinedOutput()
		_ = exec.Command("ip", "netns", "del", probe).Run()
	}
	if err != nil {
		t.Skipf("this host gives no network namespaces: %s", out)
	}
	base, err := os.MkdirTemp(top, "") //nolint:usetesting // kept when the test fails
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{base: base, bin: filepath.Join(base, "bin")}
	t.Cleanup(func() { s.cleanUp(t) })
	s.install(t)
	drawSeed()
	runs := draw()
	t.Logf("%d sessions; repeat with -scale %g -seed %d", len(runs[0])+len(runs[1]), *scale, *seed)
	var all sync.WaitGroup
	for i, network := range []int{0, 0, 1, 1} {
		l := &lane{T: t, name: strconv.Itoa(i), dir: filepath.Join(base, "lane"+strconv.Itoa(i)), bin: s.bin}
		// Those whose connection is to be made anew have the time of the default.
		grace := 1 + 59*network
		all.Go(func() {
			if !l.open(grace) {
				return
			}
			defer l.close()
			for k := i % 2; k < len(runs[network]) && !t.Failed(); k += 2 {
				l.disturb(&runs[network][k])
			}
		})
	}
	all.Wait()
}

// draw draws the runs, those without and those with a network that fails.
func draw() (runs [2][]run) {
	rng := rand.New(rand.NewPCG(*seed, 1))
	total := part(200, 6)
	long := total / 20
	for n := range total {
		r := run{number: n, what: n % linkDown, early: rng.IntN(2) == 0, side: rng.IntN(2) == 0}
		if n >= total-long {
			r.what = linkDown
		}
		r.after = time.Duration(rng.Int64N(int64(60 * time.Millisecond)))
		if r.early {
			r.after *= 3
		}
		r.lasts = time.Duration(rng.Int64N(int64(1500 * time.Millisecond)))
		r.policy = []string{"stop", "keep"}[rng.IntN(2)]
		network := 0
		switch r.what {
		case clientDies, sessionDies:
			r.policy = "end"
		case linkBlinks:
			r.policy, network = "end", 1
		case linkDown:
			r.policy, network, r.early = "end", 1, false
			r.lasts = time.Duration(65+rng.IntN(15)) * time.Second
		}
		runs[network] = append(runs[network], r)
	}
	return runs
}

// open makes the lane.
func (l *lane) open(grace int) bool {
	id := os.Getpid()*4 + int(l.name[0]-'0')
	l.namespace, l.link = fmt.Sprintf("paddock-soak-%d", id), fmt.Sprintf("pds%d", id)
	net := func(host int) string { return fmt.Sprintf("198.18.%d.%d", id>>6&0xff, id&0x3f<<2+host) }
	l.address = net(2)
	conf := filepath.Join(l.dir, "etc", "sge_conf")
	err := os.MkdirAll(filepath.Join(l.dir, "etc", "queues"), 0o755)
	if err == nil {
		err = os.WriteFile(conf, fmt.Appendf(nil, "execd_params QRSH_GRACE=%d\n", grace), 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(l.dir, "etc", "queues", "all.q"), []byte("qname all.q\nslots 1\n"), 0o644)
	}
	if err != nil {
		l.Error(err)
		return false
	}
	for _, args := range [][]string{
		{"netns", "add", l.namespace},
		{"link", "add", l.link, "type", "veth", "peer", "name", l.link + "n", "netns", l.namespace},
		{"addr", "add", net(1) + "/30", "dev", l.link},
		{"link", "set", l.link, "up"},
		{"-n", l.namespace, "addr", "add", net(2) + "/30", "dev", l.link + "n"},
		{"-n", l.namespace, "link", "set", "lo", "up"},
		{"-n", l.namespace, "link", "set", l.link + "n", "up"},
	} {
		if !l.ip(args...) {
			l.close()
			return false
		}
	}
	return l.start()
}

func (l *lane) ip(args ...string) bool {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		l.Errorf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
		return false
	}
	return true
}

func (l *lane) start() bool {
	d, err := harness.Start(harness.Options{Bin: l.bin, Dir: l.dir})
	if err != nil {
		l.Error(err)
		return false
	}
	l.daemon = d
	return true
}

func (l *lane) close() {
	if l.daemon != nil {
		// Of a client that died while it submitted there may be a job yet.
		err := harness.WaitFor(long, "all jobs to be over", func() (bool, error) {
			jobs, err := l.daemon.Jobs()
			return len(jobs) == 0, err
		})
		if err = errors.Join(err, l.daemon.Stop()); err != nil {
			l.Error(err)
		}
	}
	l.ip("netns", "del", l.namespace) // and the wire
}

// conversation is what the job does: it ends with 7 when it is told so.
const conversation = `echo up; while read x; do echo got $x; if test $x = end; then exit 7; fi; done; exit 3`

// client starts a qrsh on the lane's other machine.
func (l *lane) client(args ...string) *harness.Terminal {
	cmd := exec.Command("ip", append([]string{"netns", "exec", l.namespace, filepath.Join(l.bin, "qrsh"), "-listen", l.address}, args...)...)
	cmd.Dir, cmd.Env = l.dir, append(os.Environ(), "PADDOCK_DIR="+l.dir, "TERM=xterm")
	term, err := harness.StartOnTerminal(cmd, 80, 24)
	if err != nil {
		l.Error(err)
		return nil
	}
	return term
}

// long is enough for a connection to be found dead and made anew.
const long = 5 * time.Minute

// await waits for a text on a terminal, or for the end of its program, and
// reports which.
func (l *lane) await(r *run, term *harness.Terminal, pattern string) bool {
	want := regexp.MustCompile(pattern)
	found := false
	if err := harness.WaitFor(long, fmt.Sprintf("%v: %q or the end", r, pattern), func() (bool, error) {
		over := exited(term)
		found = want.MatchString(term.Text())
		return found || over, nil
	}); err != nil {
		l.Errorf("%v\n%q\n%s", err, term.Text(), l.daemon.Log())
	}
	return found
}

func exited(term *harness.Terminal) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, term.PID(), &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil || info.Signo != 0
}

// ends waits for the end of a client, which must not leave its terminal raw.
func (l *lane) ends(r *run, term *harness.Terminal, before unix.Termios) int {
	if err := harness.WaitFor(long, "the client to end", func() (bool, error) { return exited(term), nil }); err != nil {
		l.Errorf("%v: a hung terminal: %v\n%q\n%s", r, err, term.Text(), l.daemon.Log())
		_ = term.Signal(os.Kill)
	} else if after, err := term.Modes(); err != nil || after != before {
		l.Errorf("%v: the terminal is left as %+v, %v; was %+v", r, after, err, before)
	}
	code, err := term.Wait()
	if err != nil {
		l.Errorf("%v: %v", r, err)
	}
	return code
}

// disturb has one session and disturbs it.
func (l *lane) disturb(r *run) {
	name := fmt.Sprintf("run%d", r.number)
	// With -now y it would fail when the slot is not free yet, and of a client that died
	// in the run before there may be a job yet.
	args := []string{"-now", "n", "-pty", "y", "-lost", r.policy, "-N", name}
	var other *harness.Terminal
	if r.what == execdWaiting {
		// The only slot is taken.
		if other = l.client("-now", "n", "-pty", "y", "-N", "other", conversation); other == nil {
			return
		}
		l.await(r, other, `up\r\n`)
	}
	term := l.client(append(args, conversation)...)
	if term == nil {
		return
	}
	before := term.Began
	up := false
	if !r.early && r.what != execdWaiting {
		if up = l.await(r, term, `up\r\n`); !up {
			l.Errorf("%v: nothing has happened and it has ended: %q", r, term.Text())
			return
		}
		up = l.talk(r, term, "first")
	}
	if r.what == execdWaiting {
		l.waits(r, name)
	}
	<-time.After(r.after)
	l.happen(r, term)
	if r.what == clientDies || r.what == clientComes {
		if _, err := term.Wait(); err != nil {
			l.Errorf("%v: %v", r, err)
		}
		term = nil
		if r.what == clientComes {
			term = l.comeBack(r, name)
		}
	}
	if other != nil {
		l.talk(r, other, "end")
		if code := l.ends(r, other, before); code != 7 {
			l.Errorf("%v: the session before it has ended with %d\n%q", r, code, other.Text())
		}
	}
	code := -1
	if term != nil {
		if r.what == clientComes || l.await(r, term, `up\r\n`) {
			_ = l.talk(r, term, "second") && l.talk(r, term, "end")
		}
		code = l.ends(r, term, before)
	}
	l.judge(r, name, term, up, code)
}

// talk says a word and waits for the answer.
func (l *lane) talk(r *run, term *harness.Terminal, word string) bool {
	if err := term.Type(word + "\n"); err != nil {
		l.Errorf("%v: %v", r, err)
	}
	return l.await(r, term, `got `+word+`\r\n`)
}

// jobs returns the jobs of a name.
func (l *lane) jobs(name string) ([]api.JobStatus, error) {
	jobs, err := l.daemon.Jobs()
	var ours []api.JobStatus
	for _, j := range jobs {
		if j.Name == name {
			ours = append(ours, j)
		}
	}
	return ours, err
}

func (l *lane) waits(r *run, name string) {
	if err := harness.WaitFor(long, "the job to wait", func() (bool, error) {
		jobs, err := l.jobs(name)
		return len(jobs) == 1, err
	}); err != nil {
		l.Errorf("%v: %v", r, err)
	}
}

// happen does what disturbs the session.
func (l *lane) happen(r *run, term *harness.Terminal) {
	switch r.what {
	case clientDies, clientComes:
		_ = term.Signal(os.Kill) // it may have ended
	case sessionDies:
		l.killSession()
	case execdDies, execdWaiting:
		l.daemon.Kill()
		<-time.After(r.lasts)
		l.start()
	case linkBlinks, linkDown:
		link := []string{"link", "set", l.link}
		if r.side {
			link = []string{"-n", l.namespace, "link", "set", l.link + "n"}
		}
		l.ip(append(link, "down")...)
		if r.what == linkDown {
			if err := term.Type("meanwhile\n"); err != nil {
				l.Errorf("%v: %v", r, err)
			}
		}
		<-time.After(r.lasts)
		l.ip(append(link, "up")...)
	}
}

// killSession kills the lane's qrsh-session, if there is one.
func (l *lane) killSession() {
	processes, err := harness.Processes(l.dir)
	if err != nil {
		l.Error(err)
	}
	for _, p := range processes {
		if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID)); string(comm) == "qrsh-session\n" {
			_ = unix.Kill(p.PID, unix.SIGKILL)
		}
	}
}

// comeBack has another client go on with a job, if there is one.
func (l *lane) comeBack(r *run, name string) *harness.Terminal {
	if r.early {
		return nil // it may never have been connected, and then it ends
	}
	number := ""
	if err := harness.WaitFor(long, "the job to be as it is to be", func() (bool, error) {
		jobs, err := l.jobs(name)
		if len(jobs) != 1 {
			return false, errors.Join(fmt.Errorf("%d jobs", len(jobs)), err)
		}
		number = strconv.Itoa(jobs[0].Job)
		return r.policy == "keep" || jobs[0].State == "s", err
	}); err != nil {
		l.Errorf("%v: %v\n%s", r, err, l.daemon.Log())
		return nil
	}
	return l.client("-reconnect", number)
}

// judge sees that there is one job, one line of accounting, and in it what has
// become of it.
func (l *lane) judge(r *run, name string, term *harness.Terminal, up bool, code int) {
	if r.what == clientComes && r.early {
		// It goes on for ever otherwise, without anybody.
		l.delete(name)
	}
	if err := harness.WaitFor(long, "the job to be over", func() (bool, error) {
		jobs, err := l.jobs(name)
		return len(jobs) == 0, err
	}); err != nil {
		l.Errorf("%v: an orphan: %v\n%s", r, err, l.daemon.Log())
		return
	}
	lines := l.accounting(name)
	text := ""
	if term != nil {
		text = term.Text()
		for _, word := range []string{"up", "got first", "got second", "got end"} {
			if n := strings.Count(text, word+"\r\n"); n > 1 {
				l.Errorf("%v: %q came %d times: %q", r, word, n, text)
			}
		}
	}
	survives := term != nil && r.what != sessionDies
	// What happened before it was connected may have hindered that.
	excused := r.early && !strings.Contains(text, "up\r\n")
	switch {
	case len(lines) > 1, len(lines) == 0 && !excused:
		l.Errorf("%v: %d lines of accounting: %q\n%q", r, len(lines), lines, text)
	case survives && !excused && (code != 7 || lines[0].failed != "0" || lines[0].exit != "7"):
		l.Errorf("%v: it ended with %d, accounted as %+v\n%q\n%s", r, code, lines[0], text, l.daemon.Log())
	case survives:
	case r.what == sessionDies && !excused && code == 7 && lines[0].exit == "7": // there was none to be killed
	case r.what == sessionDies && (code == 0 || code == -1):
		l.Errorf("%v: it ended with %d\n%q", r, code, text)
	case len(lines) == 1 && lines[0].exit == "0" && lines[0].failed == "0":
		l.Errorf("%v: it is accounted as %+v\n%q", r, lines[0], text)
	case up && r.what == clientDies && !strings.Contains(lines[0].reason, "lost its client"):
		l.Errorf("%v: it is accounted as %+v", r, lines[0])
	case len(lines) == 1 && lines[0].failed != "0" && lines[0].reason == "":
		l.Errorf("%v: there is no reason in %+v", r, lines[0])
	}
}

// delete deletes jobs of a name, until it is known that there is none.
func (l *lane) delete(name string) {
	jobs, err := l.jobs(name)
	if err != nil {
		l.Error(err)
	}
	for _, j := range jobs {
		cmd := exec.Command(filepath.Join(l.bin, "qdel"), strconv.Itoa(j.Job))
		cmd.Env = append(os.Environ(), "PADDOCK_DIR="+l.dir)
		_ = cmd.Run() // it may be over
	}
}

// entry is what the accounting says.
type entry struct{ failed, exit, reason string }

// accounting returns the lines of a name.
func (l *lane) accounting(name string) (list []entry) {
	text, err := os.ReadFile(api.DevPlaces(l.dir).Accounting)
	if err != nil && !os.IsNotExist(err) {
		l.Error(err)
	}
	for line := range bytes.Lines(text) {
		f := strings.Split(strings.TrimSuffix(string(line), "\n"), ":")
		if len(f) < 45 || f[4] != name {
			continue
		}
		e := entry{failed: f[11], exit: f[12]}
		if len(f) > 45 {
			e.reason = f[45]
		}
		list = append(list, e)
	}
	return list
}
