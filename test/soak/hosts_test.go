package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/spool"
	"paddock/test/harness"
)

// pool is hosts that share work: jobs are submitted to the first, and run on all.
type pool struct {
	*soak // of the first host
	*harness.Network
	uid   int // as whom jobs are submitted
	rng   *rand.Rand
	jobs  map[string]*sent // by name
	story []string
	off   map[string]outage // what is out of order, by what it is
	away  map[string]string // lines of hosts in files peers that are not what they should be, by host and file
	more  func(*testing.T)  // submits a job
	holds []string          // why jobs may wait for somebody who looks
}

// sent is a job that was submitted, perhaps.
type sent struct {
	name    string
	tasks   int
	exit    int
	unclear bool // nobody has said that it was taken

	place   string   // to where its output goes; empty: it leaves none
	deleted bool     // by the test
	changed []string // files that the test has changed in its sandbox, as the job lists them
}

// outage is something that is out of order for a while.
type outage struct {
	until time.Time
	undo  func(t *testing.T)
}

// onHosts is the job. It holds a lock while it runs, so that a second run of it beside the
// first is seen.
const onHosts = `#!/bin/bash
id=$JOB_NAME.${SGE_TASK_ID/undefined/0}
exec 9>>BASE/marks/lock.$id
flock -n 9 || echo $id >>BASE/marks/overlaps
echo $id >>BASE/marks/began
case $1 in
0) ;;
go) until [ -e BASE/marks/go ]; do sleep 0.4; done ;;
*) sleep $1 ;;
esac
echo $id >>BASE/marks/ended
exit $2
`

// newPool makes a pool of hosts with so many slots, in which jobs run as somebody who is not
// root. Jobs are submitted to login. Something may be prepared before there are hosts, which see
// no later mounts.
func newPool(t *testing.T, knobs string, slots map[string]int, prepare func(*pool)) *pool {
	t.Helper()
	names := slices.Sorted(maps.Keys(slots)) // login is the first
	base, err := os.MkdirTemp(top, "")       //nolint:usetesting // kept when the test fails
	if err != nil {
		t.Fatal(err)
	}
	p := &pool{
		soak: &soak{base: base, bin: filepath.Join(base, "bin"), dir: filepath.Join(base, names[0])}, uid: 61991,
		rng: rand.New(rand.NewPCG(*seed, 3)), jobs: map[string]*sent{}, off: map[string]outage{}, away: map[string]string{},
		holds: []string{"it may have run"},
	}
	t.Cleanup(func() { p.cleanUp(t) })
	p.install(t)
	if prepare != nil {
		prepare(p)
	}
	p.Network, err = harness.NewNetwork(p.bin, base, names, "paddock:x:61990:61990::/:/bin/sh", "soaker:x:61991:61991::/:/bin/sh")
	if errors.Is(err, harness.ErrNoNetwork) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	marks := filepath.Join(base, "marks")
	err = errors.Join(os.Chmod(base, 0o755), os.Mkdir(marks, 0o755), os.Chown(marks, p.uid, p.uid),
		harness.WriteExecutable(filepath.Join(base, "job.sh"), strings.ReplaceAll(onHosts, "BASE", base)))
	for i, h := range p.Hosts {
		address := "ADDRESS = :6445\n"
		if i == 0 {
			address = ""
		}
		err = errors.Join(err,
			h.Write("queues/all.q", fmt.Sprintf("qname all.q\nslots %d\n", slots[h.Name])),
			h.Write("hooks.conf", address+"FILESYSTEM_DOMAIN = cluster\nREMOTE_OWNERS = *\n"+knobs),
			h.Write("sge_conf", "min_uid 100\nmin_gid 0\n"))
	}
	if err = errors.Join(err, p.Share()); err != nil {
		t.Fatal(err)
	}
	for _, h := range p.Hosts {
		p.begin(t, h)
	}
	if err := p.Up(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pool) cleanUp(t *testing.T) {
	if t.Failed() {
		t.Logf("what was done:\n  %s", strings.Join(p.story, "\n  "))
		for _, h := range p.hosts() {
			if h.Daemon != nil {
				t.Logf("the end of the log of %s:\n%s", h.Name, h.Daemon.Log())
			}
		}
	}
	if p.Network != nil {
		p.Close()
	}
	p.daemon = nil
	p.soak.cleanUp(t)
}

// hosts returns the hosts, if there are any.
func (p *pool) hosts() []*harness.Host {
	if p.Network == nil {
		return nil
	}
	return p.Hosts
}

func (p *pool) begin(t *testing.T, h *harness.Host) {
	t.Helper()
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	if h == p.Hosts[0] {
		p.daemon = h.Daemon
	}
}

// note adds to the story.
func (p *pool) note(format string, args ...any) {
	p.story = append(p.story, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// send submits a job of so many tasks, 0 for one that is no array.
func (p *pool) send(t *testing.T, tasks int, lasts string, rerun bool) {
	t.Helper()
	j := &sent{name: fmt.Sprintf("j%d", len(p.jobs)), tasks: tasks, exit: p.rng.IntN(90)}
	args := []string{"-wd", "/", "-o", "/dev/null", "-j", "y"}
	if tasks > 0 {
		args = append(args, "-t", fmt.Sprintf("1-%d", tasks))
	}
	p.qsub(t, j, rerun, append(args, filepath.Join(p.base, "job.sh"), lasts, strconv.Itoa(j.exit))...)
}

// qsub submits a job by these words.
func (p *pool) qsub(t *testing.T, j *sent, rerun bool, words ...string) {
	t.Helper()
	args := []string{"qsub", "-terse", "-N", j.name, "-b", "y", "-shell", "n", "-r", map[bool]string{true: "y", false: "n"}[rerun]}
	out, err := p.command(p.uid, append(args, words...)...)
	if err != nil && !strings.Contains(out, "execd") {
		t.Fatalf("qsub: %v\n%s", err, out)
	}
	j.unclear = err != nil
	p.jobs[j.name] = j
}

// TestHosts has a stream of jobs run on other hosts while execds are killed, links are out,
// certificates are replaced and hosts are removed from the files peers, at random
// moments. No job runs twice unless a lease had ended, never beside itself, and none is lost.
func TestHosts(t *testing.T) {
	drawSeed()
	acts, longest := part(200, 6), max(2*time.Second, time.Duration(*scale*float64(time.Minute)))
	t.Logf("%d acts, outages of at most %v; repeat with -scale %g -seed %d", acts, longest, *scale, *seed)
	p := newPool(t, "ALIVE_INTERVAL = 10\nMAX_CLAIM_ALIVES_MISSED = 2\n", map[string]int{"login": 1, "node1": 4, "node2": 4}, nil)
	p.more = func(t *testing.T) {
		t.Helper()
		lasts := []string{"0", "0", "0.1", "0.5", "1", "3", "10", "40"}[p.rng.IntN(part(8, 5))]
		p.send(t, []int{0, 0, 4}[p.rng.IntN(3)], lasts, p.rng.IntN(3) > 0)
	}
	p.disturb(t, acts, longest, func() { p.act(t, longest) })
}

// disturb has something happen so many times, while there are always jobs, and looks at what has
// become of them.
func (p *pool) disturb(t *testing.T, acts int, longest time.Duration, act func()) {
	t.Helper()
	for range acts {
		p.feed(t)
		<-time.After(time.Duration(p.rng.Int64N(int64(longest / 12))))
		p.restore(t, time.Now())
		act()
		if t.Failed() {
			return
		}
	}
	p.restore(t, time.Now().Add(longest))
	p.settle(t)
	if !t.Failed() {
		p.judge(t)
		p.clean(t)
	}
}

// TestSpread has thousands of tasks run on four hosts. All slots of all hosts have one, each
// task runs once, and is accounted where it was submitted.
func TestSpread(t *testing.T) {
	drawSeed()
	tasks := part(2000, 60)
	slots := map[string]int{"login": 2, "node1": 2, "node2": 4, "node3": 8}
	p := newPool(t, "", slots, nil)
	// An array, and half as many jobs beside it. The first of them stay until the slots are looked at.
	first := 0
	for _, n := range slots {
		first += n
	}
	p.send(t, first, "go", true)
	on := map[string]int{}
	if err := harness.WaitFor(harness.Patience, "all slots to be busy", func() (bool, error) {
		jobs, err := p.daemon.Jobs()
		clear(on)
		for i := range jobs {
			if jobs[i].State == "r" {
				_, host, _ := strings.Cut(jobs[i].Queue, "@")
				on[host]++
			}
		}
		return maps.Equal(on, slots), err
	}); err != nil {
		t.Fatalf("%v: tasks by host %v, slots %v", err, on, slots)
	}
	begin := time.Now()
	single := tasks / 3
	p.send(t, tasks-single-first, "0.1", true)
	for n := range single {
		p.send(t, 0, []string{"0", "0.1"}[n%2], true)
		if n == single/10 {
			if err := os.WriteFile(filepath.Join(p.base, "marks/go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.settle(t)
	t.Logf("%d tasks in %v", tasks, time.Since(begin).Round(time.Second))
	if !t.Failed() {
		p.judge(t)
		p.clean(t)
	}
}

// feed has some jobs wait, if the first host can be asked.
func (p *pool) feed(t *testing.T) {
	t.Helper()
	if p.daemon.Exited() {
		p.more(t) // which must say so
		return
	}
	jobs, err := p.daemon.Jobs()
	if err != nil {
		t.Fatal(err)
	}
	p.clear(t, jobs)
	waiting := 0
	for i := range jobs {
		if jobs[i].State == "qw" {
			waiting++
		}
	}
	for ; waiting < 6; waiting++ {
		p.more(t)
	}
}

// clear does what an operator does who sees jobs that may have run, and looks whether that is true.
func (p *pool) clear(t *testing.T, jobs []api.JobStatus) {
	t.Helper()
	for _, j := range jobs {
		if !strings.HasPrefix(j.State, "E") {
			continue
		}
		p.note("%s %s: %s", j.Name, j.State, j.Reason)
		if !slices.ContainsFunc(p.holds, func(why string) bool { return strings.Contains(j.Reason, why) }) {
			t.Errorf("job %s is in state %s: %q, which nobody has caused", j.Name, j.State, j.Reason)
		}
		if out, err := p.command(0, "qmod", "-cj", strconv.Itoa(j.Job)); err != nil && !gone(out) { // as other tasks
			t.Errorf("qmod -cj: %v\n%s", err, out)
		}
	}
}

// restore puts in order what is out of order for long enough.
func (p *pool) restore(t *testing.T, now time.Time) {
	t.Helper()
	for _, what := range slices.Sorted(maps.Keys(p.off)) {
		if o := p.off[what]; o.until.Before(now) {
			p.note("undo %s", what)
			delete(p.off, what)
			o.undo(t)
		}
	}
}

// act does one thing.
func (p *pool) act(t *testing.T, longest time.Duration) {
	t.Helper()
	login, node := p.Hosts[0], p.Hosts[1+p.rng.IntN(len(p.Hosts)-1)]
	either := p.Hosts[p.rng.IntN(len(p.Hosts))]
	// Most outages are short, and some last until leases are over.
	lasts := time.Duration(p.rng.Int64N(int64(longest)))
	if p.rng.IntN(4) > 0 {
		lasts /= 20
	}
	switch p.rng.IntN(12) {
	case 0, 1:
		p.kill(t, login, 0)
	case 2, 3:
		p.kill(t, node, 0)
	case 4:
		p.kill(t, node, lasts)
	case 5:
		p.kill(t, login, 0)
		p.kill(t, node, lasts/4)
	case 6:
		p.stop(t, either)
	case 7, 8:
		p.unplug(t, either, lasts)
	case 9:
		p.unplug(t, node, lasts)
		p.kill(t, either, 0)
	case 10:
		p.replace(t, either)
	case 11:
		p.remove(t, node, lasts)
	}
}

// running reports whether execd of a host runs.
func (p *pool) running(h *harness.Host) bool { return !h.Daemon.Exited() }

func (p *pool) kill(t *testing.T, h *harness.Host, lasts time.Duration) {
	t.Helper()
	if !p.running(h) {
		return
	}
	p.note("kill %s for %v", h.Name, lasts)
	h.Daemon.Kill()
	p.absent(t, h, lasts)
}

// absent has execd of a host, which does not run, begin after a while.
func (p *pool) absent(t *testing.T, h *harness.Host, lasts time.Duration) {
	t.Helper()
	if lasts == 0 {
		p.begin(t, h)
		return
	}
	p.off["kill "+h.Name] = outage{time.Now().Add(lasts), func(t *testing.T) { p.begin(t, h) }}
}

func (p *pool) stop(t *testing.T, h *harness.Host) {
	t.Helper()
	if !p.running(h) {
		return
	}
	p.note("stop %s", h.Name)
	if err := h.Daemon.Stop(); err != nil {
		t.Error(err)
	}
	p.absent(t, h, 0)
}

func (p *pool) unplug(t *testing.T, h *harness.Host, lasts time.Duration) {
	t.Helper()
	what := "link of " + h.Name
	if _, out := p.off[what]; out {
		return
	}
	p.note("%s out for %v", what, lasts)
	if err := h.Link(false); err != nil {
		t.Error(err)
	}
	p.off[what] = outage{time.Now().Add(lasts), func(t *testing.T) {
		if err := h.Link(true); err != nil {
			t.Error(err)
		}
	}}
}

// replace gives a host another certificate, and perhaps revokes those before.
func (p *pool) replace(t *testing.T, h *harness.Host) {
	t.Helper()
	role := "-execute"
	if h == p.Hosts[0] {
		role = "-submit"
	}
	revoke := p.rng.IntN(2) == 0
	p.note("another certificate for %s, revoke %v", h.Name, revoke)
	if revoke {
		if _, err := p.Pool("revoke", h.Name); err != nil {
			t.Error(err)
		}
	}
	if err := h.Certify(role); err != nil {
		t.Error(err)
	}
	p.peers(t)
}

// remove removes a host from the file of the other one, for a while.
func (p *pool) remove(t *testing.T, node *harness.Host, lasts time.Duration) {
	t.Helper()
	where := []string{"login", node.Name}[p.rng.IntN(2)]
	what := fmt.Sprintf("pool of %s at %s", node.Name, where)
	if _, out := p.off[what]; out {
		return
	}
	p.note("%s out for %v", what, lasts)
	if where == "login" {
		p.away[node.Name+" login"] = node.Name + " submit\n"
		if p.rng.IntN(2) == 0 {
			p.away[node.Name+" login"] = "# removed\n"
		}
	} else {
		p.away[node.Name+" node"] = "login execute\n"
	}
	p.peers(t)
	p.off[what] = outage{time.Now().Add(lasts), func(t *testing.T) {
		delete(p.away, node.Name+map[bool]string{true: " login", false: " node"}[where == "login"])
		p.peers(t)
	}}
}

// peers writes the files peers.
func (p *pool) peers(t *testing.T) {
	t.Helper()
	list, err := p.Pool("list")
	if err != nil {
		t.Fatal(err)
	}
	var revoked strings.Builder
	for line := range strings.Lines(list) {
		if strings.Contains(line, "revoked") {
			fmt.Fprintf(&revoked, "revoked %s\n", strings.Fields(line)[0])
		}
	}
	ofLogin := ""
	for _, h := range p.Hosts[1:] {
		at, there := p.away[h.Name+" login"], p.away[h.Name+" node"]
		if at == "" {
			at = h.Name + " execute\n"
		}
		if there == "" {
			there = "login submit\n"
		}
		ofLogin += at
		err = errors.Join(err, h.Write("peers", there+revoked.String()))
	}
	if err = errors.Join(err, p.Hosts[0].Write("peers", ofLogin+revoked.String())); err != nil {
		t.Error(err)
	}
}

// settle waits until all jobs are over. Whoever waits for an operator has one.
func (p *pool) settle(t *testing.T) {
	t.Helper()
	p.note("all is well again")
	last, at, pause := -1, time.Now(), 50*time.Millisecond
	var jobs []api.JobStatus
	if err := harness.WaitFor(20*time.Minute, "all jobs to be over", func() (bool, error) {
		var err error
		if jobs, err = p.daemon.Jobs(); err != nil || len(jobs) == 0 {
			return err == nil, err
		}
		if n := p.accounted(t); n != last {
			last, at = n, time.Now()
		}
		if time.Since(at) > 3*harness.Patience {
			t.Errorf("nothing has ended for %v: %+v", 3*harness.Patience, jobs)
		}
		p.clear(t, jobs)
		<-time.After(pause)
		pause = min(2*pause, time.Second)
		return t.Failed(), nil
	}); err != nil {
		t.Error(err)
	}
}

// records returns the accounting lines of the first host, by name of the job and task.
func (p *pool) records(t *testing.T) map[string][]accounting.Record {
	t.Helper()
	all := map[string][]accounting.Record{}
	for _, line := range p.lines(t, "login/accounting") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		r, err := accounting.Parse([]byte(line + "\n"))
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		id := fmt.Sprintf("%s.%d", r.JobName, r.TaskNumber)
		all[id] = append(all[id], r)
	}
	return all
}

// judge compares what was submitted, what ran and what was accounted.
func (p *pool) judge(t *testing.T) {
	t.Helper()
	counted := func(name string) map[string]int {
		n := map[string]int{}
		for _, id := range p.lines(t, "marks/"+name) {
			n[id]++
		}
		return n
	}
	records, began, ended := p.records(t), counted("began"), counted("ended")
	for id := range counted("overlaps") {
		t.Errorf("%s ran beside itself: %s", id, told(records[id]))
	}
	on := map[string]int{}
	tasks, lost, again := 0, 0, 0
	for _, j := range p.jobs {
		for n := range max(j.tasks, 1) {
			id := j.name + ".0"
			if j.tasks > 0 {
				id = fmt.Sprintf("%s.%d", j.name, n+1)
			}
			list := records[id]
			wrong := p.verdict(j, list, began[id], ended[id])
			if wrong == "" && j.place != "" {
				wrong = p.delivered(t, j, list)
			}
			if wrong != "" {
				t.Errorf("%s %s: began %d times, came to its end %d times, unclear %v: %s", id, wrong, began[id], ended[id], j.unclear, told(list))
			}
			for i := range list {
				if list[i].Failed == spool.FailedLease {
					lost++
				}
				on[list[i].Hostname]++
			}
			tasks, again = tasks+1, again+max(0, began[id]-1)
			delete(records, id)
			delete(began, id)
		}
	}
	if len(records)+len(began) > 0 {
		t.Errorf("nobody has submitted %v, %v", records, began)
	}
	t.Logf("%d jobs of %d tasks; runs by host %v, %d lost with a lease, %d begun again", len(p.jobs), tasks, on, lost, again)
}

// verdict says what must not be of a task; empty: nothing.
func (p *pool) verdict(j *sent, list []accounting.Record, began, ended int) string {
	if (j.unclear || j.deleted) && len(list)+began == 0 {
		return ""
	}
	if len(list) == 0 {
		return "is lost"
	}
	before, last := list[:len(list)-1], list[len(list)-1]
	for i := range before {
		if before[i].Failed != spool.FailedLease {
			return "was run again after an end that is one"
		}
	}
	switch {
	case j.deleted && slices.Contains([]int{100, accounting.FailedTransfer, spool.FailedLease}, last.Failed):
		return ""
	case last.Failed != 0 || last.ExitStatus != j.exit:
		return fmt.Sprintf("has ended otherwise than with %d", j.exit)
	case began > len(list):
		return "has more runs than records"
	case ended == 0:
		return "has not come to its end"
	}
	return ""
}

// told is what records say, in short.
func told(list []accounting.Record) string {
	var b strings.Builder
	for i := range list {
		fmt.Fprintf(&b, "\n  job %d on %s: failed %d, exit status %d, reason %q", list[i].JobNumber, list[i].Hostname, list[i].Failed, list[i].ExitStatus, list[i].Reason)
	}
	return b.String()
}

// clean looks for what is left on the hosts when all jobs are over.
func (p *pool) clean(t *testing.T) {
	t.Helper()
	var left []string
	if err := harness.WaitFor(2*harness.Patience, "nothing to be left", func() (bool, error) {
		left = nil
		for _, h := range p.Hosts {
			for _, dir := range []string{spool.DirActive, spool.DirCorrupt, spool.DirFinished, spool.DirJobs, spool.DirStaging, spool.DirRemote, spool.DirSandboxes} {
				entries, err := os.ReadDir(filepath.Join(api.DevPlaces(h.Dir).Spool, dir))
				if err != nil && !os.IsNotExist(err) {
					return false, err
				}
				for _, e := range entries {
					if !strings.HasPrefix(e.Name(), ".") { // a spare
						left = append(left, filepath.Join(h.Name, dir, e.Name()))
					}
				}
			}
			var slots api.SlotsReply
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			err := h.Daemon.Client.Call(ctx, api.VerbSlots, &api.SlotsRequest{}, &slots)
			cancel()
			if err != nil {
				return false, err
			}
			for i := range slots.Slots {
				if s := &slots.Slots[i]; s.Activity != "Idle" || s.Holder != "queue" {
					left = append(left, fmt.Sprintf("%s: slot %s is %s/%s of %s", h.Name, s.Slot, s.State, s.Activity, s.Holder))
				}
			}
			groups, err := harness.GroupsLeft(h.Dir)
			if left = append(left, groups...); err != nil {
				return false, err
			}
		}
		processes, err := harness.Processes(p.base)
		for _, q := range processes {
			if !q.OfHost() && filepath.Base(q.Exe) != "cat" { // which holds a host's network
				left = append(left, q.String())
			}
		}
		return len(left) == 0, err
	}); err != nil {
		t.Errorf("%v:\n  %s", err, strings.Join(left, "\n  "))
	}
}
