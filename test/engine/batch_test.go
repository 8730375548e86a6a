package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"paddock/test/harness"
)

// batch is a batch system, in whose jobs pilots run.
type batch struct {
	name string // as pools call it
	user *harness.User
	as   func(line string) string // runs a line of sh as the user, in his home

	submit        string // the command; how long the job may last, and a script with its arguments, follow
	long, short   string // twenty minutes, and one
	terse         string // the option that prints the number alone
	cancel        string
	list, waiting string // print a line for each job that is not over, and for each that has not begun
	ended         string // the command that says how a job ended, with %s for its number
	well          *regexp.Regexp
	d             *database
	super         *pgx.Conn
}

// testPilots has pilots in a batch system do the work of a database.
func testPilots(t *testing.T, b *batch) {
	b.d = newDatabase(t)
	b.super = b.d.as("postgres")
	b.write(t, "pg.conf", fmt.Sprintf("connection %s\nrenew %s/execd -renew\n", connection("hosts", b.d.name), bin))
	b.write(t, "serve", fmt.Sprintf("#!/bin/sh\nexec %s/paddock-pg -config %s/pg.conf serve\n", bin, b.user.Home))
	b.write(t, "pilot/hooks.conf", "STARTD_JOB_HOOK_KEYWORD = PG\nPG_HOOK_SERVER = "+b.user.Home+"/serve\nFETCH_WORK_AHEAD = TRUE\n"+
		"FetchWorkDelay = State == \"Claimed\" && Activity != \"Idle\" ? 3600 : 0\n")
	// Its first argument is the seconds after which it ends when it is idle.
	b.write(t, "pilot.sh", fmt.Sprintf("#!/bin/sh\nexport _CONDOR_STARTD_NOCLAIM_SHUTDOWN=$1 TMPDIR=$HOME/tmp\nshift\nexec %s/execd -pilot -config $HOME/pilot \"$@\"\n", bin))
	b.as("mkdir tmp")
	t.Cleanup(func() {
		if t.Failed() {
			b.as(b.list + " | xargs -r " + b.cancel)
			text, _ := os.ReadFile(filepath.Join(b.user.Home, "log"))
			t.Logf("log of the pilots:\n%s", text)
			for _, table := range []string{"lease", "event", "host"} {
				var rows *string
				if err := b.super.QueryRow(context.Background(), "select string_agg(r::text, e'\n') from paddock."+table+" r").Scan(&rows); err == nil && rows != nil {
					t.Logf("%s:\n%s", table, *rows)
				}
			}
		}
	})
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"units", b.units},
		{"cancelled", b.cancelled},
		{"burst", b.burst},
		{"end", b.end},
	} {
		if !t.Run(part.name, part.run) {
			return
		}
	}
}

func (b *batch) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(b.user.Home, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, harness.WriteExecutable(path, text))
}

// pilot submits one of so many seconds of idleness. It has two processors, if the host has no more.
func (b *batch) pilot(lasts string, idle int, options string) (number string) {
	command, rest, _ := strings.Cut(b.submit, " ")
	return b.as(fmt.Sprintf("%s %s %s%s pilot.sh %d %s", command, b.terse, rest, lasts, idle, options))
}

// jobs counts those that a line lists.
func (b *batch) jobs(line string) int { return len(strings.Fields(b.as(line))) }

// gone waits until no job is left, and returns how long that took.
func (b *batch) gone(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	must(t, harness.WaitFor(4*harness.Patience, "the pilots to be gone", func() (bool, error) { return b.jobs(b.list) == 0, nil }))
	return time.Since(began)
}

// promptly fails the test at full size, for which the machine has to be quiet, if something took too long.
func promptly(t *testing.T, what string, took, most time.Duration) {
	t.Helper()
	t.Logf("%s: %.1f s; %.0f s are promised", what, took.Seconds(), most.Seconds())
	if *scale >= 1 && took > most {
		t.Error("that is too long")
	}
}

// job is the ad of one that runs a line of sh and says how many seconds it takes.
func (b *batch) job(seconds int, line string) string {
	return fmt.Sprintf("Cmd = \"/bin/sh\"\nIwd = \"%s\"\nArguments = \"-c '%s'\"\nRequestCpus = 1\nRequestMemory = 1\nRequestDisk = 1\nRequestSeconds = %d\n\n", b.user.Home, line, seconds)
}

// units are done by three pilots, each once, and one that is longer than an allocation is done by none.
func (b *batch) units(t *testing.T) {
	n := part(500, 20)
	long := b.d.add("ann", b.job(3600, "echo long >>ran"))[0]
	var ads strings.Builder
	for i := range n {
		ads.WriteString(b.job(60, fmt.Sprintf("echo u%d >>ran", i)))
	}
	b.d.add("ann", ads.String())
	for range 3 {
		b.pilot(b.long, 3, "-grace 30s")
	}
	await(t, b.super, fmt.Sprint(n), "select count(*) from paddock.done")
	promptly(t, "the pilots are gone", b.gone(t), (3+10)*time.Second)
	text, _ := os.ReadFile(filepath.Join(b.user.Home, "ran"))
	ran := strings.Fields(string(text))
	slices.Sort(ran)
	if len(slices.Compact(slices.Clone(ran))) != n || len(ran) != n || slices.Contains(ran, "long") {
		t.Errorf("of %d units these ran: %v", n, ran)
	}
	if got := value(t, b.super, "select count(*) from paddock.done where outcome = 'ok' and evictions = 0 and attempts = 0"); got != fmt.Sprint(n) {
		t.Errorf("%s of %d units ended well at once", got, n)
	}
	if got := value(t, b.super, "select state || ' ' || evictions from paddock.jobs(ids => array[$1::bigint])", long); got != "ready 0" {
		t.Errorf("the unit that fits no pilot is %s", got)
	}
	log, _ := os.ReadFile(filepath.Join(b.user.Home, "log"))
	if know := len(regexp.MustCompile(`(?m): takes work until .* of (20m0s|19m\d+s)$`).FindAll(log, -1)); know != 3 {
		t.Errorf("%d of 3 pilots know the end of their jobs", know)
	}
}

// cancelled has the jobs of pilots cancelled while they run four units of work. The queue is told at once, and
// others do the work.
func (b *batch) cancelled(t *testing.T) {
	ads := strings.Repeat(b.job(600, "sleep 1000 & exec sleep 1000"), 4)
	ids := b.d.add("ann", ads)
	first := []string{b.pilot(b.long, 0, ""), b.pilot(b.long, 0, "")}
	const where = "select count(*) from paddock.running r join paddock.hosts h on h.name = r.host where r.accepted and h.pilot = any ($1)"
	await(t, b.super, "4", where, first)
	second := []string{b.pilot(b.long, 0, ""), b.pilot(b.long, 0, "")}
	await(t, b.super, "2", "select count(*) from paddock.hosts where idle and pilot = any ($1)", second)
	began := time.Now()
	b.as(b.cancel + " " + strings.Join(first, " "))
	await(t, b.super, "4", where, second)
	promptly(t, "four units run elsewhere", time.Since(began), 30*time.Second)
	if got := value(t, b.super, "select string_agg(evictions::text, ' ') from paddock.running"); got != "1 1 1 1" {
		t.Errorf("they were evicted %s times", got)
	}
	if got := value(t, b.super, "select count(*) from paddock.event where what = 'lost'"); got != "0" {
		t.Errorf("%s of them came back by the end of a lease", got)
	}
	for _, number := range first {
		must(t, harness.WaitFor(harness.Patience, "no process of pilot "+number+" to be left", func() (bool, error) {
			return len(processesOf(number)) == 0, nil
		}))
	}
	for _, id := range ids {
		b.d.tool("ann", "del", fmt.Sprint(id))
	}
	await(t, b.super, "4", "select count(*) from paddock.done where outcome = 'cancelled' and id = any ($1)", ids)
	b.as(b.cancel + " " + strings.Join(second, " "))
	b.gone(t)
	if left := b.as("ls tmp"); left != "" {
		t.Errorf("pilots have left %s", left)
	}
}

// processesOf returns those that have the directory of a pilot in their command line or environment.
func processesOf(number string) (found []string) {
	dir := regexp.MustCompile(`/paddock\.` + number + `[/\x00]`)
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		command, _ := os.ReadFile(p + "/cmdline")
		environ, _ := os.ReadFile(p + "/environ")
		if dir.Match(command) || dir.Match(environ) {
			found = append(found, fmt.Sprintf("%s %q", filepath.Base(p), command))
		}
	}
	return found
}

// burst has as many pilots submitted as may be, for more jobs than they will ever do.
func (b *batch) burst(t *testing.T) {
	const pilots, queued = 6, 2
	b.write(t, "pools/burst", fmt.Sprintf("scheduler %s\nsubmit %s%s %s/pilot.sh 2 -grace 30s\ncpus 2\nmemory 500\nseconds 1200\ngrace 30\nmax_pilots %d\nmax_queued %d\n",
		b.name, b.submit, b.long, b.user.Home, pilots, queued))
	n := part(1000, 60)
	ids := b.d.add("ann", strings.Repeat(b.job(900, "exec sleep 0.1"), n))
	tick := fmt.Sprintf("PADDOCK_PG='%s' %s/paddock-pg provision ~/pools/burst", connection("hosts", b.d.name), bin)
	most := 0
	ticked := func() int {
		b.as(tick)
		waiting, all := b.jobs(b.waiting), b.jobs(b.list)
		if most = max(most, waiting); waiting > queued || all > pilots {
			t.Fatalf("%d pilots wait, of %d; at most %d of %d may", waiting, all, queued, pilots)
		}
		return all
	}
	must(t, harness.WaitFor(4*harness.Patience, "pilots to have done all", func() (bool, error) {
		ticked()
		return value(t, b.super, "select count(*) from paddock.job where id = any ($1)", ids) == "0", nil
	}))
	began := time.Now()
	must(t, harness.WaitFor(2*harness.Patience, "the pilots to be gone", func() (bool, error) { return ticked() == 0, nil }))
	promptly(t, "the pilots are gone", time.Since(began), (2+10)*time.Second)
	t.Logf("%d pilots waited at most", most)
	if *scale >= 1 && most < queued {
		t.Error("there were never as many as may be")
	}
	if got := value(t, b.super, "select count(*) from paddock.pilot"); got != "0" {
		b.as(tick) // it has not seen the last ones go
		if got = value(t, b.super, "select count(*) from paddock.pilot"); got != "0" {
			t.Errorf("%s pilots are not known to be over", got)
		}
	}
}

// end lets the time of an allocation run out. What the pilot promised time to has ended by then, and what lied
// leaves, so that the batch system kills nothing.
func (b *batch) end(t *testing.T) {
	if *scale < 1 {
		t.Skip("it takes a minute, at full size alone")
	}
	liar := b.d.add("ann", b.job(10, "exec sleep 1000"))[0]
	ids := b.d.add("ann", strings.Repeat(b.job(4, "exec sleep 3"), 100))
	number := b.pilot(b.short, 0, "-grace 20s")
	await(t, b.super, "running", "select state from paddock.jobs(ids => array[$1::bigint])", liar)
	b.gone(t)
	if got := value(t, b.super, "select string_agg(id::text, ' ') from paddock.job where evictions > 0"); got != fmt.Sprint(liar) {
		t.Errorf("these were evicted: %s; want %d alone", got, liar)
	}
	done := value(t, b.super, "select count(*) from paddock.done where id = any ($1)", ids)
	ok := value(t, b.super, "select count(*) from paddock.done where id = any ($1) and outcome = 'ok' and attempts = 0", ids)
	t.Logf("%s of 100 jobs of 3 s were done in 40 s", done)
	if done == "0" || done != ok {
		t.Errorf("of %s jobs that have ended %s ended well", done, ok)
	}
	if got := value(t, b.super, "select count(*) from paddock.event where what = 'lost'"); got != "0" {
		t.Errorf("%s runs were not told of", got)
	}
	if text := b.as(fmt.Sprintf(b.ended, number)); !b.well.MatchString(text) {
		t.Errorf("the pilot did not end by itself:\n%s", text)
	}
}

// TestPilotsGridEngine has pilots run in jobs of a real Grid Engine, which is there at full size alone.
func TestPilotsGridEngine(t *testing.T) {
	if *scale < 1 {
		t.Skip("it installs and starts a Grid Engine, at full size alone")
	}
	ge, err := harness.UseGridEngine()
	must(t, err)
	t.Cleanup(ge.Release)
	user, err := harness.AddUser("paddock-engine")
	must(t, err)
	t.Cleanup(func() { must(t, user.Remove()) })
	qconf := func(args ...string) {
		t.Helper()
		if out, err := ge.Run(append([]string{"qconf"}, args...)...); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	environment := filepath.Join(top, "pilots")
	must(t, os.WriteFile(environment, []byte("pe_name pilots\nslots 999\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args NONE\nstop_proc_args NONE\n"+
		"allocation_rule $pe_slots\ncontrol_slaves FALSE\njob_is_first_task TRUE\nurgency_slots min\naccounting_summary FALSE\nqsort_args NONE\n"), 0o644))
	qconf("-Ap", environment)
	t.Cleanup(func() { qconf("-dp", "pilots") })
	qconf("-aattr", "queue", "pe_list", "pilots", "all.q")
	t.Cleanup(func() { qconf("-dattr", "queue", "pe_list", "pilots", "all.q") })
	b := &batch{
		name: "gridengine", user: user,
		as: func(line string) string {
			t.Helper()
			out, err := ge.As(user.Name, line)
			must(t, err)
			return strings.TrimSpace(out)
		},
		// Four of them have nearly all slots of the queue; each has as many processors as the host.
		submit: "qsub -cwd -S /bin/sh -notify -j y -o log -pe pilots 24 -l h_rt=", long: "0:20:0", short: "0:1:0", terse: "-terse",
		cancel: "qdel", list: "qstat -u '*' | awk 'NR > 2 {print $1}'", waiting: "qstat -u '*' -s p | awk 'NR > 2 {print $1}'",
		// The line of a job is written a while after its end.
		ended: "until qacct -j %[1]s >/dev/null 2>&1; do sleep 0.5; done; qacct -j %[1]s", well: regexp.MustCompile(`(?m)^failed +0 *\n(?s:.*)^exit_status +0 *$`),
	}
	testPilots(t, b)
}
