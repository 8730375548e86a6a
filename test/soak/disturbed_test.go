package soak

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/test/harness"
)

var every = flag.Bool("every", false, "run all settings of TestDisturbed, not only those that find most")

// setting is one way of having work fetched.
type setting struct {
	name    string
	usual   bool     // it runs without -every
	without []string // hooks that are not there
	knobs   string   // in hooks.conf
	ad      string   // of each unit
	ranked  bool     // units have one of two ranks
	moody   string   // bash, run by each hook in its beginning; $what is its name
	acts    []string // what is done to execd, beside that it is killed
	root    bool     // execd runs in root mode, and the units as another user
	busy    int      // seconds between the questions of a slot that runs something; 0: it asks once
}

const carved = "RequestCpus = 1\nRequestMemory = 1\nRequestDisk = 1\n"

var settings = []setting{
	{name: "ahead", knobs: "FETCH_WORK_AHEAD = True\n", acts: []string{"vacate", "delete", "drain"}},
	{
		name: "all", usual: true, knobs: "FETCH_WORK_AHEAD = True\n", busy: 1,
		acts: []string{"vacate", "delete", "drain", "slots", "keyword", "stop"},
	},
	{name: "behind", acts: []string{"vacate", "delete", "drain", "slots", "keyword", "stop"}},
	{name: "without exit", usual: true, without: []string{"exit"}, knobs: "FETCH_WORK_AHEAD = True\n", acts: []string{"vacate", "drain", "stop"}},
	{name: "without reply", without: []string{"reply"}, knobs: "FETCH_WORK_AHEAD = True\n", acts: []string{"vacate", "delete", "drain"}},
	{name: "without both", without: []string{"exit", "reply"}, acts: []string{"vacate", "drain"}},
	{
		name: "partitionable", usual: true, knobs: "PARTITIONABLE_QUEUES = all.q\nFETCH_WORK_AHEAD = True\n", ad: carved,
		acts: []string{"vacate", "delete", "drain", "keyword", "stop"},
	},
	{name: "partitionable behind", knobs: "PARTITIONABLE_QUEUES = all.q\n", ad: carved, acts: []string{"vacate", "delete", "stop"}},
	{
		name: "prepared", knobs: "FETCH_WORK_AHEAD = True\n", moody: "[ $what != prepare ] || { sleep 0.2; [ $((RANDOM % 8)) -gt 0 ] || exit 1; }\n",
		acts: []string{"vacate", "delete", "drain"},
	},
	{name: "ranked", knobs: "RANK = TARGET.Rank\nFETCH_WORK_AHEAD = True\n", ranked: true, busy: 1, acts: []string{"vacate", "delete", "drain", "slots", "keyword"}},
	{name: "ranked retiring", knobs: "RANK = TARGET.Rank\nMaxJobRetirementTime = 5\n", ranked: true, busy: 1, acts: []string{"vacate", "delete", "stop", "drain", "slots", "keyword"}},
	{
		name: "moody", knobs: "FETCH_WORK_AHEAD = True\n",
		moody: "case $what$((RANDOM % 6)) in exit[12] | *1) sleep 0.$((RANDOM % 10)) ;; fetch2) kill -9 $$ ;; fetch3) exit 1 ;; evict2) sleep 1 ;; esac\n",
		acts:  []string{"vacate", "delete", "drain", "keyword"},
	},
	{
		name: "root", root: true, knobs: "FETCH_WORK_AHEAD = True\nFETCH_OWNERS = soaker\n", ad: "Owner = \"soaker\"\n",
		acts: []string{"vacate", "delete", "drain", "slots", "keyword", "stop"},
	},
	{
		name: "leased", knobs: "FETCH_WORK_AHEAD = True\n", ad: "JobLeaseDuration = 3\n",
		moody: "[ $what != renew ] || case $((RANDOM % 6)) in 0) exit 1;; 1) kill -9 $$;; *) exit 0;; esac\n",
		acts:  []string{"vacate", "delete", "drain"},
	},
}

// TestDisturbed has units fetched in several settings while execd is killed and all
// that may be done to slots is done to them, at random moments. Of each attempt at a
// unit that was accepted it is told what became of it; none runs twice, and no unit
// is done again that has ended without anybody having been told to; and nothing is left.
func TestDisturbed(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("the hooks need bash")
	}
	drawSeed()
	for _, c := range settings {
		t.Run(c.name, func(t *testing.T) {
			if !c.usual && !*every {
				t.Skip("only with -every")
			}
			disturb(t, &c)
		})
	}
}

// disturbed is one run of it.
type disturbed struct {
	*soak
	c     *setting
	queue string
	rng   *rand.Rand
	off   map[string]func(t *testing.T) // what is to be undone in the end, by act
}

func disturb(t *testing.T, c *setting) {
	units, acts := part(300, 12), part(120, 6)
	t.Logf("%d units, %d acts; repeat with -scale %g -seed %d", units, acts, *scale, *seed)
	base, err := os.MkdirTemp(top, "") //nolint:usetesting // kept when the test fails
	if err != nil {
		t.Fatal(err)
	}
	d := &disturbed{
		soak: &soak{base: base, dir: filepath.Join(base, "pd"), bin: filepath.Join(base, "bin")}, c: c,
		queue: filepath.Join(base, "queue"), rng: rand.New(rand.NewPCG(*seed, 1)), off: map[string]func(*testing.T){},
	}
	t.Cleanup(func() { d.cleanUp(t) })
	d.prepare(t)
	if c.root {
		d.share(t)
	}
	for i := range units {
		lasts, rank := d.rng.IntN(1000), 0
		if c.ranked {
			rank = d.rng.IntN(2)
			lasts *= 4
		}
		d.write(t, fmt.Sprintf("queue/todo/u%05d.0", i), fmt.Sprintf("0.%03d %d\n", lasts%1000+lasts/1000, rank))
	}
	d.start(t)
	for range acts {
		<-time.After(time.Duration(d.rng.Int64N(int64(800 * time.Millisecond))))
		act := "kill"
		if n := d.rng.IntN(2 * len(c.acts)); n < len(c.acts) {
			act = c.acts[n]
		}
		d.act(t, act)
		if t.Failed() {
			return
		}
	}
	for _, undo := range d.off {
		undo(t)
	}
	done, at := 0, time.Now()
	if err := harness.WaitFor(20*time.Minute, "all units to be done", func() (bool, error) {
		if n := count(t, filepath.Join(d.queue, "done")); n > done {
			done, at = n, time.Now()
		}
		if time.Since(at) > 2*harness.Patience {
			return false, fmt.Errorf("no unit is done in %v: %d of %d", 2*harness.Patience, done, units)
		}
		return done >= units, nil
	}); err != nil {
		t.Error(err)
	}
	d.settled(t)
	d.told(t, units)
}

// share has execd in root mode, on a host with the accounts that it needs, and lets the
// hooks and the jobs write to the queue.
func (d *disturbed) share(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	via, err := harness.OtherAccounts(filepath.Join(d.base, "etc"), "paddock", "paddock:x:61990:61990::/:/bin/sh", "soaker:x:61991:61991::/:/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	d.mode, d.via = "-root", via
	d.write(t, "queue/events", "")
	d.write(t, "queue/lock", "")
	if err := filepath.WalkDir(d.queue, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, 0o777)
	}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(d.base, 0o755); err != nil {
		t.Fatal(err)
	}
}

func (d *disturbed) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(d.base, name)
	fresh := filepath.Join(d.base, ".new")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fresh, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, path); err != nil {
		t.Fatal(err)
	}
}

// hookText is what all hooks do, by the name that they are called by. An attempt at a
// unit is UNIT.FENCE: a file in todo, given, running or done, and each time that the
// unit is to be done again, or given again, the fence is the next. What is said of an old
// one changes nothing: EVICT_CLAIM, which nobody waits for, may come after the slot has
// been given the unit again. The file events has all that was said. What one slot was
// given goes to another only when the first may be gone for good, not just because the
// host stood still.
const hookText = `#!/bin/bash
what=${0##*/} now=${EPOCHREALTIME%.*} name= id= reason=
cd BASE/queue || exit 1
say() { echo "$EPOCHREALTIME $*" >>events; }
while IFS= read -r line; do
	v=${line#*= } v=${v#\"} v=${v%\"}
	case $line in
	-----) break ;;
	'Name = '*) name=$v ;;
	'GlobalJobId = '*) id=$v ;;
	'VacateReason = '*) reason=$v ;;
	esac
done
case $what in fetch) [ -n "$name" ] ;; *) [ -n "$id" ] ;; esac || exit 1 # execd was killed before it had said all
[ "$what" = prepare ] || [ "$what" = renew ] || [ "$what" = fetch ] || say "$what" "$1" "$id" "$reason"
MOODY
again() { mv $1/$id todo/${id%.*}.$((${id#*.} + 1)) 2>/dev/null; }
exec 9>lock
flock 9
case $what in
fetch)
	for f in given/* todo/*; do
		[ -f "$f" ] || continue
		id=${f#*/}
		if [ ${f%%/*} = given ]; then
			read -r s when <slots/$id
			[ "$s" = "$name" ] || [ $((now - when)) -ge 60 ] || continue
			id=${id%.*}.$((${id#*.} + 1))
		fi
		read -r lasts rank <$f
		mv $f given/$id
		echo "$name $now" >slots/$id
		say fetch $name $id
		printf 'Cmd = "/bin/bash"\nArgs = "BASE/unit.sh %s %s"\nIwd = "/"\nRank = %s\nGlobalJobId = "%s"\n' $id $lasts $rank $id
		exit 0
	done
	say none $name
	;;
reply)
	[ $1 = reject ] && again given || mv given/$id running/$id 2>/dev/null
	;;
exit)
	case $1 in
	evict) again running || again given ;;
	*) mv running/$id done/$id 2>/dev/null || mv given/$id done/$id ;;
	esac
	;;
evict) again running || again given ;;
esac
exit 0
`

// A unit that has nobody to tell how it ended does so itself.
const unitText = `cd BASE/queue
echo "$EPOCHREALTIME begin $1" >>events
sleep $2
exec 9>lock
flock 9
echo "$EPOCHREALTIME end $1" >>events
WITHOUT
exit 0
`

func (d *disturbed) prepare(t *testing.T) {
	t.Helper()
	d.install(t)
	for _, dir := range []string{"todo", "given", "running", "done", "slots"} {
		if err := os.MkdirAll(filepath.Join(d.queue, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	hook := strings.NewReplacer("BASE", d.base, "MOODY", d.c.moody).Replace(hookText)
	if d.c.ad != "" {
		hook = strings.Replace(hook, "Iwd = ", strings.ReplaceAll(d.c.ad, "\n", `\n`)+"Iwd = ", 1)
	}
	for _, name := range []string{"fetch", "reply", "exit", "evict", "prepare", "renew"} {
		d.write(t, "hooks/"+name, hook)
	}
	report := ""
	if slices.Contains(d.c.without, "exit") {
		report = "mv running/$1 done/$1 2>/dev/null || mv given/$1 done/$1"
	}
	d.write(t, "unit.sh", strings.NewReplacer("BASE", d.base, "WITHOUT", report).Replace(unitText))
	d.write(t, "pd/etc/queues/all.q", "qname all.q\nslots 4\n")
	d.write(t, "pd/etc/hooks.conf", d.conf("SOAK"))
}

func (d *disturbed) conf(keyword string) string {
	text := "STARTD_JOB_HOOK_KEYWORD = " + keyword + "\nMachineMaxVacateTime = 2\n" + d.c.knobs
	text += fmt.Sprintf("FetchWorkDelay = State == \"Claimed\" && Activity == \"Idle\" ? 0 : State == \"Claimed\" ? %d : 1\n", cmp.Or(d.c.busy, 3600))
	for _, h := range [][2]string{{"FETCH_WORK", "fetch"}, {"REPLY_FETCH", "reply"}, {"JOB_EXIT", "exit"}, {"EVICT_CLAIM", "evict"}, {"PREPARE_JOB", "prepare"}, {"RENEW_CLAIM", "renew"}} {
		if slices.Contains(d.c.without, h[1]) || h[1] == "prepare" && d.c.name != "prepared" || h[1] == "renew" && d.c.name != "leased" {
			continue
		}
		// A host that stands still is no reason to cut a hook short.
		text += fmt.Sprintf("SOAK_HOOK_%s = %s/hooks/%s\nSOAK_HOOK_%s_TIMEOUT = 600\n", h[0], d.base, h[1], h[0])
	}
	return text
}

// act does one thing to execd.
func (d *disturbed) act(t *testing.T, what string) {
	t.Helper()
	undo := d.off[what]
	delete(d.off, what)
	d.note(t, what, undo != nil)
	switch {
	case undo != nil:
		undo(t)
	case what == "kill":
		d.daemon.Kill()
		d.start(t)
	case what == "stop":
		if err := d.daemon.Stop(); err != nil {
			t.Error(err)
		}
		d.start(t)
	case what == "vacate":
		args := []string{"-vacate"}
		if d.rng.IntN(2) == 0 {
			args = append(args, "-fast")
		}
		d.run("execd", append(args, fmt.Sprint(1+d.rng.IntN(4)))...)
	case what == "delete":
		jobs, err := d.daemon.Jobs()
		if err != nil {
			t.Fatal(err)
		}
		if len(jobs) > 0 {
			d.run("qdel", fmt.Sprint(jobs[d.rng.IntN(len(jobs))].Job))
		}
	case what == "drain":
		args := []string{"-drain"}
		if n := d.rng.IntN(4); n < 3 {
			args = append(args, "-speed", []string{"graceful", "quick", "fast"}[n])
		}
		d.must(t, "execd", args...)
		d.off[what] = func(t *testing.T) { d.must(t, "execd", "-drain", "-off") }
	case what == "slots":
		d.must(t, "qconf", "-mattr", "queue", "slots", fmt.Sprint(1+d.rng.IntN(3)), "all.q")
		d.off[what] = func(t *testing.T) { d.must(t, "qconf", "-mattr", "queue", "slots", "4", "all.q") }
	case what == "keyword":
		d.write(t, "pd/etc/hooks.conf", d.conf("NONE"))
		d.off[what] = func(t *testing.T) { d.write(t, "pd/etc/hooks.conf", d.conf("SOAK")) }
	}
}

// note has an act among the events.
func (d *disturbed) note(t *testing.T, what string, undone bool) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(d.queue, "events"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	now := time.Now()
	fmt.Fprintf(f, "%d.%06d act %s undone=%v\n", now.Unix(), now.Nanosecond()/1000, what, undone)
}

func (d *disturbed) run(name string, args ...string) (string, error) {
	if name == "execd" {
		args = slices.Concat([]string{cmp.Or(d.mode, "-dev"), d.dir}, args)
	}
	cmd := exec.Command(filepath.Join(d.bin, name), args...)
	cmd.Env = append(os.Environ(), "PADDOCK_DIR="+d.dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (d *disturbed) must(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := d.run(name, args...); err != nil {
		t.Errorf("%s %v: %v\n%s", name, args, err, out)
	}
}

var slotState = regexp.MustCompile(`(?m)^\s*(\S+)\s.*\b(Owner|Unclaimed|Claimed|Matched|Preempting|Drained)\b`)

// settled waits until no slot has a claim and nothing is left in the spool, and
// until each slot has asked once more.
func (d *disturbed) settled(t *testing.T) {
	t.Helper()
	dirs := []string{"active_jobs", "claims", "corrupt", "evictions", "finished", "jobs", "staging"}
	left := map[string][]string{}
	if err := harness.WaitFor(harness.Patience, "nothing to be left", func() (bool, error) {
		clear(left)
		for _, dir := range dirs {
			list, err := os.ReadDir(filepath.Join(d.dir, "spool", dir))
			if err != nil && !os.IsNotExist(err) {
				return false, err
			}
			for _, e := range list {
				if strings.HasPrefix(e.Name(), ".") {
					continue // a spare
				}
				left[dir] = append(left[dir], e.Name())
			}
		}
		out, err := d.run("qhost", "-slots")
		if err != nil {
			return false, fmt.Errorf("%w: %s", err, out)
		}
		for _, m := range slotState.FindAllStringSubmatch(out, -1) {
			if m[2] != "Owner" && m[2] != "Unclaimed" {
				left["slots"] = append(left["slots"], m[0])
			}
		}
		return len(left) == 0, nil
	}); err != nil {
		t.Errorf("%v: %v", err, left)
	}
	asked := map[string]bool{}
	from, want := len(d.lines(t, "queue/events")), 4
	if strings.Contains(d.c.knobs, "PARTITIONABLE_QUEUES") {
		want = 1
	}
	if err := harness.WaitFor(harness.Patience, "each slot to ask", func() (bool, error) {
		clear(asked) // a line may have been read half
		for _, line := range d.lines(t, "queue/events")[from:] {
			if f := strings.Fields(line); len(f) == 3 && f[1] == "none" {
				asked[f[2]] = true
			}
		}
		return len(asked) == want, nil
	}); err != nil {
		t.Errorf("%v: only %v did", err, slices.Sorted(maps.Keys(asked)))
	}
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.daemon.PID())); err == nil {
		t.Logf("execd: %s", regexp.MustCompile(`(?m)^(VmRSS|Threads|FDSize):.*$`).FindAllString(string(status), -1))
	}
}

// told looks at what was said of each attempt.
func (d *disturbed) told(t *testing.T, units int) {
	t.Helper()
	type attempt struct {
		accept, reject, begin, end, evict int
		over, result, again               int // JOB_EXIT: is over, by itself; is to be done again
		history                           []string
	}
	attempts := map[string]*attempt{}
	of := func(id string) *attempt {
		if attempts[id] == nil {
			attempts[id] = &attempt{}
		}
		return attempts[id]
	}
	for _, line := range d.lines(t, "queue/events") {
		f := strings.Fields(line)
		var a *attempt
		switch f[1] {
		case "fetch":
			a = of(f[3])
		case "reply":
			a = of(f[3])
			if f[2] == "accept" {
				a.accept++
			} else if a.accept > 0 {
				a.reject++
			}
		case "begin":
			a = of(f[2])
			a.begin++
		case "end":
			a = of(f[2])
			a.end++
		case "evict":
			a = of(f[2])
			a.evict++
		case "exit":
			a = of(f[3])
			if f[2] == "evict" {
				a.again++
			} else {
				a.over++
			}
			if f[2] == "exit" {
				a.result++
			}
		default:
			continue
		}
		a.history = append(a.history, line)
	}
	exits, replies := !slices.Contains(d.c.without, "exit"), !slices.Contains(d.c.without, "reply")
	ended := map[string]int{}
	for id, a := range attempts {
		unit, _, _ := strings.Cut(id, ".")
		var wrong []string
		complain := func(is bool, what string) {
			if is {
				wrong = append(wrong, what)
			}
		}
		complain(a.begin > 1, "ran twice")
		complain(replies && a.begin > 0 && a.accept == 0, "ran and was not accepted")
		complain(a.reject > 0, "was accepted, and then refused")
		complain(a.begin+a.accept > 0 && a.over+a.again+a.evict == 0 && (exits || a.end == 0), "was accepted, and nothing was told of it")
		complain(exits && a.begin > 0 && a.over+a.again == 0, "ran, and JOB_EXIT was not told")
		complain(a.result > 0 && a.end == 0, "has not come to its end, and JOB_EXIT was told that it has")
		complain(a.over > 0 && a.again > 0, "is over and to be done again")
		// A unit that reports its end itself may be killed before it has.
		if _, err := os.Stat(filepath.Join(d.queue, "done", id)); a.end > 0 && a.again == 0 && (exits || err == nil) {
			ended[unit]++
		}
		if len(wrong) > 0 {
			t.Errorf("%s %s:\n  %s", id, strings.Join(wrong, ", "), strings.Join(a.history, "\n  "))
		}
	}
	for unit, n := range ended {
		if n > 1 {
			t.Errorf("%s has ended %d times", unit, n)
		}
	}
	if n := count(t, filepath.Join(d.queue, "done")); n != units {
		t.Errorf("%d units are done; want %d", n, units)
	}
	t.Logf("%d attempts at %d units", len(attempts), units)
}
