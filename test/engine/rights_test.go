package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"paddock/test/harness"
)

// TestForbidden has each role try what it must not.
func TestForbidden(t *testing.T) {
	d := newDatabase(t)
	// A job of each, so that there is something to be had.
	d.add("bob", `Cmd = "/bin/true"`)
	held := d.add("boss", `Cmd = "/bin/true"`, "-owner", "ann", "-hold")
	boss := d.as("boss")
	if got := value(t, boss, "select what from paddock.hold($1)", held); got != "held" {
		t.Fatal(got)
	}
	for login, statements := range map[string][]string{
		"ann": {
			"select * from paddock.job",
			"select ad from paddock.done",
			"insert into paddock.ready values (1, 0, 1)",
			"update paddock.job set owner = 'root'",
			"delete from paddock.lease",
			"select paddock.submit('Cmd = 1', owner => 'bob')",
			"select paddock.submit('Cmd = 1', after_any => array[1])",
			"select * from paddock.cancel(array[1])",
			"select * from paddock.hold(array[1])",
			"select paddock.alter(1, priority => 5)",
			"select paddock.retry(1)",
			"select * from paddock.release(array[2])", // the administrator holds it
			"select * from paddock.claim('h', 's', array[1], array[0])",
			"select * from paddock.claim_many('h', array['s'], array[1], array[0])",
			"select paddock.report(1, 1, 'h', 'exit')",
			"select paddock.renew(1, 1, 'h')",
			"select paddock.tick()",
			"select paddock.set_queue('default', '{\"paused\": true}')",
			"select paddock.set_share('default', 'ann', 9)",
			"select * from paddock.shares",
			"select * from paddock.prune()",
			"select * from paddock.running",
			"select paddock.hello('h', '1', '{}')",
			"call paddock.finish(null, null, 'ok', null, null)",
			"call paddock.note('a', 1, 1, 'h', 'b')",
			"create function paddock.is_admin(text) returns boolean language sql return true",
			"alter function paddock.is_admin() rename to gone",
			"set session authorization boss",
			"set role paddock_owner",
		},
		"hosts": {
			"select paddock.submit('Cmd = 1')",
			"select paddock.submit_many(array['Cmd = 1'])",
			"select * from paddock.cancel(array[1])",
			"select * from paddock.hold(array[1])",
			"select * from paddock.release(array[1])",
			"select paddock.alter(1, priority => 1)",
			"select paddock.retry(1)",
			"select * from paddock.jobs()",
			"select * from paddock.status(1)",
			"select ad from paddock.job",
			"update paddock.lease set gen = 1",
			"insert into paddock.done select 1",
			"select paddock.set_queue('default')",
			"select paddock.set_share('default', 'ann', 9)",
			"select paddock.tick_queues()",
			"select * from paddock.prune()",
			"select * from paddock.queue_depth",
			"call paddock.come_back(null, '0 s')",
			"set role paddock_owner",
		},
		"reader": {
			"select paddock.submit('Cmd = 1')",
			"select * from paddock.cancel(array[1])",
			"select * from paddock.hold(array[1])",
			"select * from paddock.release(array[1])",
			"select paddock.alter(1, priority => 1)",
			"select paddock.retry(1)",
			"select * from paddock.claim('h', 's', array[1], array[0])",
			"select * from paddock.claim_many('h', array['s'], array[1], array[0])",
			"select paddock.report(1, 1, 'h', 'exit')",
			"select * from paddock.classes('0')",
			"select paddock.idle('h', true)",
			"select ad from paddock.job",
			"select ad from paddock.done",
			"select * from paddock.event",
			"update paddock.queue set paused = true",
			"select paddock.set_share('default', 'ann', 9)",
			"select * from paddock.spent",
			"select paddock.set_queue('default')",
			"select * from paddock.prune()",
			"set role paddock_owner",
		},
		"boss": {
			"select * from paddock.claim('h', 's', array[1], array[0])",
			"select * from paddock.claim_many('h', array['s'], array[1], array[0])",
			"select paddock.accept(1, 1, 'h')",
			"select * from paddock.accept_many(array[1], array[1], array['h'])",
			"select paddock.refuse(1, 1, 'h')",
			"select paddock.renew(1, 1, 'h')",
			"select paddock.report(1, 1, 'h', 'exit')",
			"select paddock.evict(1, 1, 'h', 'x')",
			"select * from paddock.report_many(array[1], array[1], array['h'], array['exit'], array['{}'])",
			"select * from paddock.classes('0')",
			"select paddock.hello('h', '1', '{}')",
			"select ad from paddock.job",
			"update paddock.job set owner = 'ann'",
			"delete from paddock.done",
			"drop table paddock.event",
			"call paddock.enqueue(null)",
			"set role paddock_owner",
		},
	} {
		c := d.as(login)
		if len(statements) < 12 {
			t.Errorf("%s tries only %d", login, len(statements))
		}
		for _, sql := range statements {
			err := exec1(c, sql)
			pg, ok := errors.AsType[*pgconn.PgError](err)
			if !ok || pg.Code != "42501" {
				t.Errorf("%s: %s: %v; want insufficient_privilege", login, sql, err)
			}
		}
	}
	super := d.as("postgres")
	if got := value(t, super, "select count(*) || ' ' || count(*) filter (where state = 'held') from paddock.job"); got != "2 1" {
		t.Errorf("jobs, held: %s", got)
	}
	// What a submitter sees is his own.
	if got := value(t, d.as("ann"), "select string_agg(id::text, ' ') from paddock.jobs('bob')"); got != "2" {
		t.Errorf("ann sees %q", got)
	}
	if got := value(t, d.as("ann"), "select count(*) from paddock.status(1)"); got != "0" {
		t.Errorf("ann sees bob's job")
	}
	if got := value(t, d.as("reader"), "select string_agg(id::text, ' ') from paddock.jobs()"); got != "1 2" {
		t.Errorf("the reader sees %q", got)
	}
}

// TestOwner has a submitter try to have something run as somebody else, by an execd of root's.
func TestOwner(t *testing.T) {
	d := newDatabase(t)
	suffix := strconv.Itoa(os.Getpid() % 10000)
	me, err := harness.AddUser("pdea" + suffix)
	must(t, err)
	t.Cleanup(func() { must(t, me.Remove()) })
	other, err := harness.AddUser("pdeb" + suffix)
	must(t, err)
	t.Cleanup(func() { must(t, other.Remove()) })
	super := d.as("postgres")
	must(t, exec1(super, "create role "+me.Name+" login in role paddock_submit"))
	t.Cleanup(func() { must(t, exec1(connect(t, "postgres", "postgres"), "drop role "+me.Name)) })
	dir := filepath.Join(top, d.name)
	must(t, os.Mkdir(dir, 0o777))
	must(t, os.Chmod(dir, 0o777))

	h := &host{base: filepath.Join(top, d.name+"_root")}
	h.o = harness.Options{Bin: bin, Dir: filepath.Join(h.base, "pd"), Mode: "-root"}
	via, err := harness.OtherAccounts(filepath.Join(h.base, "etc"), "paddock", "paddock:x:64999:64999::/nonexistent:/bin/sh")
	must(t, err)
	h.o.Via = via
	h.write(t, "pg.conf", "connection "+connection("hosts", d.name)+"\nhost root\n")
	h.write(t, "serve", "#!/bin/sh\nexec "+bin+"/paddock-pg -config "+h.base+"/pg.conf serve\n")
	h.write(t, "pd/etc/queues/all.q", "qname all.q\nslots 1\n")
	h.write(t, "pd/etc/sge_conf", "min_uid 100\nmin_gid 0\n")
	h.write(t, "pd/etc/hooks.conf", "STARTD_JOB_HOOK_KEYWORD = PG\nPG_HOOK_SERVER = "+h.base+"/serve\nFETCH_OWNERS = "+me.Name+", "+other.Name+"\n"+
		"FetchWorkDelay = State == \"Claimed\" && Activity != \"Idle\" ? 3600 : 0\n")
	h.start(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", h.Log())
		}
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
	})
	var all []string
	for i, ad := range []string{
		"",
		"Owner = \"" + other.Name + "\"",
		"owner = \"" + other.Name + "\"\nOWNER = \"root\"",
		" OwNeR\t=\"" + other.Name + "\"\r",
		"User = \"" + other.Name + "@x\"\nAcctOwner = \"root\"",
		"Requirements = true || Owner == \"" + other.Name + "\"\nOwner = \"" + other.Name + "\"",
	} {
		file := filepath.Join(dir, strconv.Itoa(i))
		all = append(all, "Cmd = \"/usr/bin/touch\"\nArguments = \""+file+"\"\nUndefinedThing = 1\n"+ad+"\n")
	}
	ids := d.add(me.Name, strings.Join(all, "\n"))
	await(t, super, strconv.Itoa(len(all)), "select count(*) from paddock.done where outcome = 'ok'")
	for i := range ids {
		info, err := os.Stat(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			t.Error(err)
		} else if uid := info.Sys().(*syscall.Stat_t).Uid; uid != uint32(me.UID) {
			t.Errorf("ad %d ran as %d, and not as %d", i, uid, me.UID)
		}
	}
	// An administrator may, but not for root.
	d.add("boss", "Cmd = \"/usr/bin/touch\"\nArguments = \""+dir+"/other\"", "-owner", other.Name)
	await(t, super, strconv.Itoa(len(all)+1), "select count(*) from paddock.done where outcome = 'ok'")
	info, err := os.Stat(dir + "/other")
	must(t, err)
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != uint32(other.UID) {
		t.Errorf("it ran as %d, and not as %d", uid, other.UID)
	}
	if err := exec1(d.as("boss"), "select paddock.submit('Cmd = 1', owner => 'root')"); err == nil {
		t.Error("a job of root's was taken")
	}
}

// TestTransactionLeftOpen has a submitter keep what he may lock, and what all logins may: what is due is done for others.
func TestTransactionLeftOpen(t *testing.T) {
	d := newDatabase(t)
	super, h, ann := d.as("postgres"), d.fake("h"), d.as("ann")
	lost := d.add("ann", ad+"\n\n"+ad)
	waits := d.add("ann", ad, "-after-ok", strconv.FormatInt(lost[1], 10))[0]
	d.tool("ann", "alter", "-attempts", "5", strconv.FormatInt(waits, 10))
	must(t, exec1(super, "update paddock.job set once = true where id = $1", lost[1])) // with it ends what needs it
	other := d.add("bob", ad)[0]
	later := d.add("ann", ad, "-after", "1h")[0]
	for i := range 3 {
		job, gen := h.claim(strconv.Itoa(i))
		value(t, h.c, "select paddock.accept($1, $2, 'h')", job, gen)
	}
	must(t, exec1(super, "update paddock.waiting set run_after = now()"))
	d.untilAt("clock_timestamp() - grace - interval '1 s'")
	must(t, exec1(super, "update paddock.meta set ticked = '-infinity'"))
	must(t, exec1(super, "drop table paddock.done_"+value(t, super, "select to_char(now() at time zone 'UTC', 'YYYYMM')")))

	// The numbers of the locks that programs could agree on.
	must(t, exec1(ann, "select pg_advisory_lock(n) from generate_series(7263001, 7263009) n"))
	must(t, exec1(ann, "begin"))
	for _, id := range []int64{lost[0], waits, later} {
		value(t, ann, "select what from paddock.hold(array[$1::bigint])", id)
	}
	value(t, ann, "select count(*) from paddock.status(1)") // and reads all partitions

	if got := d.tool("boss", "prune", "-older", "0s"); got != "removed: jobs=0 classes=0\n" {
		t.Errorf("prune says %q", got)
	}
	if out, err := d.command("boss", "queue", "default", "weight=1").CombinedOutput(); err == nil || !strings.Contains(string(out), "somebody has a transaction open") {
		t.Errorf("a change of all jobs, one of which is somebody's: %v: %s", err, out)
	}
	ms, err := strconv.Atoi(value(t, h.c, "select paddock.tick()"))
	if err != nil || ms < 500 {
		t.Errorf("the next tick is due after %d ms: %v", ms, err)
	}
	if got := value(t, super, "select string_agg(job::text, ' ' order by job) from paddock.lease"); got != fmt.Sprint(lost[0], lost[1]) {
		t.Errorf("the jobs %q have a lease; that of job %d was lost", got, other)
	}
	must(t, exec1(ann, "rollback"))
	must(t, exec1(super, "update paddock.meta set ticked = '-infinity', expires = '-infinity'"))
	value(t, h.c, "select paddock.tick()")
	if got := value(t, super, "select count(*) || ' ' || (select count(*) from paddock.waiting) from paddock.lease"); got != "0 0" {
		t.Errorf("leases and jobs that wait for their time: %s", got)
	}
	if got := value(t, super, "select outcome from paddock.done where id = $1", waits); got != "cancelled" {
		t.Errorf("what needs a job that was lost is %q", got)
	}
}
