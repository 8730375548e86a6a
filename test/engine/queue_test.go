package engine

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// fake is a host that does what a test wants.
type fake struct {
	t    *testing.T
	c    *pgx.Conn
	name string
}

func (d *database) fake(name string) *fake { return &fake{d.t, d.as("hosts"), name} }

// claim takes the next job of all classes for a slot; 0: there is none.
func (f *fake) claim(slot string) (job, gen int64) {
	f.t.Helper()
	rows, err := f.c.Query(f.t.Context(), "select id from paddock.classes('0')")
	must(f.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	must(f.t, err)
	lows := make([]int64, len(ids))
	for i := range lows {
		lows[i] = math.MinInt64
	}
	err = f.c.QueryRow(f.t.Context(), "select job, gen from paddock.claim($1, $2, $3, $4)", f.name, slot, ids, lows).Scan(&job, &gen)
	if err != nil && err != pgx.ErrNoRows { //nolint:errorlint // the driver returns it as it is
		f.t.Fatal(err)
	}
	return job, gen
}

func (f *fake) ends(job, gen int64, word, result string) string {
	f.t.Helper()
	return value(f.t, f.c, "select paddock.report($1, $2, $3, $4, $5::text::jsonb)", job, gen, f.name, word, result)
}

// order runs all jobs that are ready and returns their numbers in the order in which they were given.
func (f *fake) order() (got []int64) {
	f.t.Helper()
	for {
		job, gen := f.claim("s")
		if job == 0 {
			return got
		}
		f.ends(job, gen, "exit", `{"ExitCode": 0}`)
		got = append(got, job)
	}
}

func (f *fake) wantOrder(want ...int64) {
	f.t.Helper()
	if got := f.order(); fmt.Sprint(got) != fmt.Sprint(want) {
		f.t.Errorf("jobs ran in the order %v; want %v", got, want)
	}
}

const ad = `Cmd = "/bin/true"`

func TestPriority(t *testing.T) {
	d := newDatabase(t)
	h := d.fake("h")
	super := d.as("postgres")
	submit := func(priority int, age string) int64 {
		id := d.add("ann", ad, "-p", fmt.Sprint(priority))[0]
		// As if it had been there for longer.
		must(t, exec1(super, `update paddock.job set submitted = submitted - $2::text::interval where id = $1`, id, age))
		return id
	}
	rerank := func(weight string) {
		d.tool("boss", "queue", "default", "weight=0")
		d.tool("boss", "queue", "default", "weight="+weight)
	}
	// One priority is worth 100 s of waiting.
	old, urgent, plain, late := submit(0, "150 s"), submit(1, "0 s"), submit(0, "0 s"), submit(2, "0 s")
	rerank("100")
	h.wantOrder(late, old, urgent, plain)
	old, urgent, plain, late = submit(0, "150 h"), submit(1, "0 s"), submit(0, "0 s"), submit(2, "0 s")
	rerank("strict")
	h.wantOrder(late, urgent, old, plain)
	// A job that is altered, and one that comes back, keep their place among the others.
	a, b, c := submit(0, "3 s"), submit(0, "2 s"), submit(0, "1 s")
	rerank("strict")
	d.tool("ann", "alter", "-p", "7", fmt.Sprint(c))
	job, gen := h.claim("s")
	if job != c || h.ends(job, gen, "evict", `{"ExitReason": "x"}`) != "evicted" {
		t.Fatalf("job %d was given", job)
	}
	h.wantOrder(c, a, b)
	if got := value(t, super, "select evictions from paddock.done where id = $1", c); got != "1" {
		t.Errorf("%s evictions", got)
	}
}

// TestShares has jobs given out by what their owners have had of the queue, in hours of which half is forgotten in each
// half-life, for their shares; and by their ranks alone where there is none.
func TestShares(t *testing.T) {
	d := newDatabase(t)
	h := d.fake("h")
	super := d.as("postgres")
	n := 0
	run := func(want int64, minutes int) {
		t.Helper()
		job, gen := h.claim("s")
		if n++; job != want {
			t.Fatalf("job %d was given; want %d, as the %d. job", job, want, n)
		}
		value(t, h.c, "select paddock.accept($1, $2, 'h')", job, gen)
		must(t, exec1(super, "update paddock.lease set accepted_at = now() - $1 * interval '1 minute'", minutes))
		h.ends(job, gen, "exit", `{"ExitCode": 0}`)
		value(t, h.c, "select paddock.tick()")
	}
	one := "\n\n" + ad
	ann := d.add("ann", strings.Repeat(one, 5))
	bob := d.add("bob", strings.Repeat(one, 3))
	wide := d.add("bob", ad+"\nRequestCpus = 2")[0]
	d.tool("boss", "queue", "default", "half_life=10 h")
	if got := d.tool("boss", "share", "default", "ann=3"); !strings.HasPrefix(got, "USER SHARE HOURS HOURS/SHARE\nann  3     0.00  0.00\n") {
		t.Errorf("the shares are\n%s", got)
	}
	run(ann[0], 180) // neither has had anything: 60 minutes for a share
	run(bob[0], 45)
	run(bob[1], 45)  // 90
	run(ann[1], 120) // 100
	run(bob[2], 20)  // 110
	run(ann[2], 60)  // 120
	run(wide, 15)    // 140, since it has two processors
	run(ann[3], 120) // 160
	if got := d.tool("boss", "share", "default"); got != "USER SHARE HOURS HOURS/SHARE\nbob  1     2.33  2.33\nann  3     8.00  2.67\n" {
		t.Errorf("the shares are\n%s", got)
	}
	more := d.add("bob", strings.Repeat(one, 3))
	must(t, exec1(super, "update paddock.share set at = at - interval '10 h' where owner = 'ann'")) // 80
	run(ann[4], 0)
	// The queue whose turn it is is that of the oldest job, and without a half-life that is next.
	d.tool("boss", "queue", "other")
	elsewhere := d.add("ann", ad, "-queue", "other")[0]
	last := d.add("ann", ad)[0]
	run(last, 0)
	run(more[0], 600)
	run(more[1], 0)
	d.tool("boss", "queue", "default", "half_life=none")
	older := d.add("bob", ad)[0]
	h.wantOrder(more[2], elsewhere, older, d.add("ann", ad)[0])
	if out, err := d.command("boss", "share", "nowhere", "ann=1").CombinedOutput(); err == nil || !strings.Contains(string(out), `there is no queue "nowhere"`) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestPauseHoldDepend(t *testing.T) {
	d := newDatabase(t)
	h := d.fake("h")
	ids := d.add("ann", ad+"\n\n"+ad+"\n\n"+ad)
	d.tool("boss", "queue", "default", "paused=true")
	h.wantOrder()
	d.tool("boss", "queue", "default", "paused=false")
	d.tool("ann", "hold", fmt.Sprint(ids[1]))
	h.wantOrder(ids[0], ids[2])
	d.tool("ann", "rls", fmt.Sprint(ids[1]))
	h.wantOrder(ids[1])

	a := d.add("ann", ad)[0]
	b := d.add("ann", ad, "-after-ok", fmt.Sprint(a))[0]
	c := d.add("ann", ad, "-after-any", fmt.Sprint(b), "-after-ok", fmt.Sprint(a))[0]
	h.wantOrder(a, b, c)
	// A job that fails takes with it what needs it, and nothing else.
	a = d.add("ann", ad)[0]
	b = d.add("ann", ad, "-after-ok", fmt.Sprint(a))[0]
	c = d.add("ann", ad, "-after-any", fmt.Sprint(b))[0]
	e := d.add("ann", ad, "-after-ok", fmt.Sprint(b))[0]
	job, gen := h.claim("s")
	if job != a {
		t.Fatalf("job %d", job)
	}
	h.ends(job, gen, "exit", `{"ExitCode": 3}`)
	super := d.as("postgres")
	for id, want := range map[int64]string{a: "dead", b: "cancelled", e: "cancelled"} {
		if got := value(t, super, "select outcome from paddock.done where id = $1", id); got != want {
			t.Errorf("job %d: %s; want %s", id, got, want)
		}
	}
	h.wantOrder(c)
	// A long chain ends as one.
	first := d.add("ann", ad)[0]
	last := first
	ann := d.as("ann")
	for range 300 {
		must(t, ann.QueryRow(t.Context(), "select paddock.submit($1, after_ok => array[$2::bigint])", ad, last).Scan(&last))
	}
	d.tool("ann", "del", fmt.Sprint(first))
	if got := value(t, super, "select count(*) from paddock.done where outcome = 'cancelled' and id >= $1", first); got != "301" {
		t.Errorf("%s ended", got)
	}
	if err := d.command("ann", "add", "-after-ok", fmt.Sprint(last)).Run(); err == nil {
		t.Error("a job that needs one that failed was taken")
	}
}

func TestRetry(t *testing.T) {
	d := newDatabase(t)
	h := d.fake("h")
	super := d.as("postgres")
	d.tool("boss", "queue", "default", "backoff=0.05 s", "max_evictions=2", "max_refusals=4")
	next := func() (int64, int64) {
		t.Helper()
		var job, gen int64
		await(t, super, "0", "select count(*) from paddock.waiting where paddock.tick() >= 0")
		if job, gen = h.claim("s"); job == 0 {
			t.Fatal("there is nothing")
		}
		return job, gen
	}
	id := d.add("ann", ad, "-attempts", "3")[0]
	for n := range 3 {
		job, gen := next()
		// 99 is to be run again, and does not count.
		h.ends(job, gen, "exit", `{"ExitCode": 99}`)
		if job, gen = next(); job != id {
			t.Fatalf("job %d in attempt %d", job, n)
		}
		h.ends(job, gen, "exit", `{"ExitCode": 2, "ExitReason": "exit status 2"}`)
		if n < 2 {
			if after := value(t, super, "select count(*) from paddock.event where what = 'failed'"); after != fmt.Sprint(n+1) {
				t.Errorf("%s failures are events", after)
			}
		}
	}
	if got := value(t, super, "select outcome || attempts || exit_code from paddock.done"); got != "dead32" {
		t.Errorf("it ended %s", got)
	}
	if got := d.tool("reader", "stat", fmt.Sprint(id)); !strings.Contains(got, "dead") {
		t.Errorf("stat says\n%s", got)
	}
	if got := value(t, d.as("reader"), "select id from paddock.dead_letters"); got != fmt.Sprint(id) {
		t.Errorf("dead letters: %s", got)
	}
	d.tool("ann", "retry", fmt.Sprint(id))
	h.wantOrder(id)
	// The delay doubles.
	must(t, exec1(super, "update paddock.queue set backoff = '100 s'"))
	id = d.add("ann", ad, "-attempts", "9")[0]
	for n, want := range []float64{100, 200, 400} {
		job, gen := h.claim("s")
		h.ends(job, gen, "exit", `{"ExitSignal": 9}`)
		if got := value(t, super, fmt.Sprintf("select extract(epoch from run_after - clock_timestamp()) between %f and %f from paddock.waiting where id = %d", want*0.74, want*1.26, job)); got != "true" {
			t.Errorf("after failure %d it does not wait about %v s", n+1, want)
		}
		d.tool("boss", "alter", "-after", "0s", fmt.Sprint(job))
	}
	d.tool("ann", "del", fmt.Sprint(id))

	// 100 holds.
	id = d.add("ann", ad)[0]
	job, gen := h.claim("s")
	h.ends(job, gen, "exit", `{"ExitCode": 100}`)
	if got := value(t, super, "select state from paddock.job where id = $1", id); got != "held" {
		t.Errorf("it is %s", got)
	}
	d.tool("ann", "rls", fmt.Sprint(id))
	h.wantOrder(id)

	// Evictions have a count of their own, and so have refusals.
	id = d.add("ann", ad)[0]
	for range 3 {
		job, gen := h.claim("s")
		h.ends(job, gen, "evict", `{"ExitReason": "x", "VacateReason": "vacated"}`)
	}
	if got := value(t, super, "select outcome || ' ' || reason from paddock.done where id = $1", id); got != "dead evicted 3 times, the last time: vacated" {
		t.Errorf("it ended: %s", got)
	}
	must(t, exec1(super, "update paddock.queue set backoff = '0 s'"))
	id = d.add("ann", ad)[0]
	for range 4 {
		job, gen := h.claim("s")
		if got := value(t, h.c, "select paddock.refuse($1, $2, 'h', 'no')", job, gen); got != "true" {
			t.Errorf("job %d: the refusal was %s", job, got)
		}
	}
	if got := value(t, super, "select state || ' ' || reason from paddock.job where id = $1", id); !strings.HasPrefix(got, "held refused 4 times") {
		t.Errorf("it is: %s", got)
	}
}

// untilAt has all leases last until a time, as if that were long known.
func (d *database) untilAt(expr string) {
	d.t.Helper()
	super := d.as("postgres")
	must(d.t, exec1(super, "update paddock.lease set until = "+expr))
	must(d.t, exec1(super, "update paddock.meta set expires = '-infinity'"))
}

// TestForged has a host report runs that are not its own, or not any more.
func TestForged(t *testing.T) {
	d := newDatabase(t)
	h, other := d.fake("h"), d.as("hosts2")
	super := d.as("postgres")
	id := d.add("ann", ad)[0]
	_, lost := h.claim("s1")
	d.untilAt("now() - interval '1 h'")
	value(t, h.c, "select paddock.tick()")
	job, gen := h.claim("s2")
	if job != id || gen == lost {
		t.Fatalf("job %d, run %d", job, gen)
	}
	before := value(t, super, "select l::text from paddock.lease l")
	for n := range part(1000, 50) {
		forged := []struct {
			c    *pgx.Conn
			host string
			gen  int64
		}{{h.c, "h", lost}, {h.c, "h", gen + 1 + int64(n)}, {h.c, "g", gen}, {other, "h", gen}}[n%4]
		for _, word := range []string{"exit", "evict", "hold", "remove"} {
			if got := value(t, forged.c, "select paddock.report($1, $2, $3, $4, '{\"ExitCode\": 0}')", job, forged.gen, forged.host, word); got != "stale" {
				t.Fatalf("a forged report is %s", got)
			}
		}
		if got := value(t, forged.c, "select paddock.renew($1, $2, $3)", job, forged.gen, forged.host); got != "stale" {
			t.Fatalf("a forged renewal is %s", got)
		}
		if got := value(t, forged.c, "select paddock.accept($1, $2, $3) or paddock.refuse($1, $2, $3)", job, forged.gen, forged.host); got != "false" {
			t.Fatal("a forged answer was taken")
		}
	}
	if after := value(t, super, "select l::text from paddock.lease l"); after != before {
		t.Errorf("the lease was %s and is %s", before, after)
	}
	if got := value(t, super, "select count(*) from paddock.event where what = 'stale' and job = $1", id); got == "0" {
		t.Error("there is no event of it")
	}
	if got := h.ends(job, gen, "exit", `{"ExitCode": 0}`); got != "done" {
		t.Errorf("the report is %s", got)
	}
	// Once more is not a second end.
	if got := h.ends(job, gen, "exit", `{"ExitCode": 0}`); got != "stale" {
		t.Errorf("the second report is %s", got)
	}
	if got := value(t, super, "select count(*) from paddock.done"); got != "1" {
		t.Errorf("%s ends", got)
	}
}

// TestLost has a host be gone: its job is another's after the lease and the grace, and not before; one that
// is not to be run twice is lost.
func TestLost(t *testing.T) {
	d := newDatabase(t)
	h := d.fake("h")
	super := d.as("postgres")
	ids := append(d.add("ann", ad), d.add("ann", ad, "-once")...)
	for i, id := range ids {
		job, gen := h.claim(fmt.Sprint(i))
		if value(t, h.c, "select paddock.accept($1, $2, 'h')", job, gen); job != id {
			t.Fatalf("job %d", job)
		}
	}
	d.untilAt("clock_timestamp() - grace + interval '30 s'")
	value(t, h.c, "select paddock.tick()")
	h.wantOrder()
	d.untilAt("clock_timestamp() - grace - interval '1 s'")
	value(t, h.c, "select paddock.tick()")
	h.wantOrder(ids[0])
	if got := value(t, super, "select outcome from paddock.done where id = $1", ids[1]); got != "lost" {
		t.Errorf("it is %s", got)
	}
	// A slot that was given a job and asks again is given it again.
	id := d.add("ann", ad)[0]
	job, gen := h.claim("s")
	again, same := h.claim("s")
	if job != id || again != job || same != gen {
		t.Errorf("it is given %d.%d and then %d.%d", job, gen, again, same)
	}
}

// TestPartitions has ends of a month of which nobody has made the partition, and drops old ones.
func TestPartitions(t *testing.T) {
	d := newDatabase(t)
	h := d.fake("h")
	super := d.as("postgres")
	must(t, exec1(super, "drop table paddock.done_"+value(t, super, "select to_char(now(), 'YYYYMM')")))
	d.add("ann", ad)
	h.order()
	if got := value(t, super, "select count(*) from only paddock.done_default"); got != "1" {
		t.Errorf("%s ends of no month", got)
	}
	value(t, h.c, "select paddock.tick()")
	if got := value(t, super, "select count(*) || ' ' || (select count(*) from only paddock.done_default) from paddock.done"); got != "1 0" {
		t.Errorf("ends, and those of no month: %s", got)
	}
	must(t, exec1(super, "create table paddock.done_200001 partition of paddock.done for values from ('2000-01-01') to ('2000-02-01')"))
	must(t, exec1(super, "alter table paddock.done_200001 owner to paddock_owner"))
	must(t, exec1(super, "update paddock.meta set ticked = '-infinity'"))
	value(t, h.c, "select paddock.tick()")
	if got := value(t, super, "select to_regclass('paddock.done_200001')"); got != "" {
		t.Error("an old partition is there")
	}
}

// TestMonths has partitions be made by who is east of who has made the first ones, and ends be kept for longer than there have
// been months.
func TestMonths(t *testing.T) {
	d := newDatabase(t)
	h, super := d.fake("h"), d.as("postgres")
	d.tool("boss", "queue", "default", "keep=1000 years")
	if out, err := d.command("boss", "queue", "default", "keep=10000 years").CombinedOutput(); err == nil {
		t.Errorf("ends are kept from before the first year on: %s", out)
	}
	bounds := "select string_agg(pg_get_expr(c.relpartbound, c.oid), ' ' order by c.relname) from pg_class c where c.relname ~ '^done_[0-9]'"
	before := value(t, super, bounds)
	must(t, exec1(super, "drop table paddock.done_"+value(t, super, "select to_char(date_trunc('month', now()) + interval '1 month', 'YYYYMM')")))
	must(t, exec1(super, "update paddock.meta set ticked = '-infinity'"))
	must(t, exec1(h.c, "set timezone = 'Pacific/Kiritimati'"))
	value(t, h.c, "select paddock.tick()")
	if after := value(t, super, bounds); after != before {
		t.Errorf("the months were %s and are %s", before, after)
	}
}

// TestClaimByOldStatistics has a claim take one job also where the database believes that only one waits, and plans as for
// that.
func TestClaimByOldStatistics(t *testing.T) {
	d := newDatabase(t)
	super := d.as("postgres")
	d.add("ann", ad)
	must(t, exec1(super, "vacuum analyze paddock.ready"))
	const jobs = 100
	d.add("ann", strings.Repeat(ad+"\n\n", jobs-1))
	h := d.fake("h")
	for i := range jobs {
		if job, _ := h.claim(fmt.Sprintf("s%d", i)); job != int64(i+1) {
			t.Errorf("claim %d took job %d", i, job)
		}
	}
}

// TestPlansOfSmallTables has hosts find what they need by an index also if they had it planned when few jobs were there:
// a host asks by the same connection for weeks.
func TestPlansOfSmallTables(t *testing.T) {
	d := newDatabase(t)
	super := d.as("postgres")
	h := d.fake("h")
	const few = 10
	run := func() {
		t.Helper()
		for range few { // a plan is kept from the sixth on
			job, gen := h.claim("s")
			if job == 0 || value(t, h.c, "select paddock.accept($1, $2, 'h')", job, gen) != "true" || value(t, h.c, "select paddock.renew($1, $2, 'h')", job, gen) != "renewed" {
				t.Fatalf("job %d.%d", job, gen)
			}
			if got := h.ends(job, gen, "evict", "{}"); got != "evicted" {
				t.Fatal(got)
			}
			job, gen = h.claim("s")
			if got := h.ends(job, gen, "exit", `{"ExitCode": 0}`); got != "done" {
				t.Fatal(got)
			}
		}
		value(t, h.c, "select pg_stat_force_next_flush() is null")
	}
	const scans = "select string_agg(relname || ' ' || seq_scan, ', ' order by relname) from pg_stat_user_tables where relname in ('depend', 'job', 'lease', 'ready', 'waiting')"
	d.add("ann", strings.Repeat(ad+"\n\n", few))
	run()
	d.add("ann", strings.Repeat(ad+"\n\n", 100))
	// Who has added them counts what he has read when he goes.
	await(t, super, "0", "select count(*) from pg_stat_activity where datname = current_database() and usename = 'ann'")
	before := value(t, super, scans)
	run()
	if after := value(t, super, scans); after != before {
		t.Errorf("tables were read whole: %s before, and then %s", before, after)
	}
}

// TestHeads has a claim not read what is dead, and cannot be removed as long as somebody may see it, if it is told how far
// the one before has looked.
func TestHeads(t *testing.T) {
	d := newDatabase(t)
	super, held := d.as("postgres"), d.as("postgres")
	const dead = 200
	d.add("ann", strings.Repeat(ad+"\n\n", dead+1))
	d.add("bob", strings.Repeat(ad+"\n\n", dead+1))
	must(t, exec1(held, "begin isolation level repeatable read"))
	value(t, held, "select count(*) from paddock.ready")
	var same int // as many came in the milliseconds of the two that stay, and are read with them
	must(t, super.QueryRow(t.Context(), `select count(*) from paddock.ready r join paddock.ready l using (class, rank)
		where l.id in ($1::bigint, 2 * $1::bigint)`, dead+1).Scan(&same))
	must(t, exec1(super, "delete from paddock.ready where id <> $1::bigint and id <> 2 * $1::bigint", dead+1))
	lows := []int64{math.MinInt64, math.MinInt64}
	// Of a class that was not looked at the low is as it was.
	const heads = `select array(select coalesce(u.head, u.low) from unnest(c.heads, $2::bigint[]) with ordinality u(head, low, n) order by n)
		from paddock.claim_many('h', array[$1::text], array[1, 2], $2) c`
	index := value(t, super, "select 'paddock.ready_pkey'::regclass::oid")
	read := func(slot string) int {
		t.Helper()
		return entries(t, super, index, func(tx pgx.Tx) error { return tx.QueryRow(t.Context(), heads, slot, lows).Scan(&lows) })
	}
	if first, second := read("s1"), read("s2"); first < 2*dead || second > same+10 {
		t.Errorf("%d entries were read by the first claim, and %d by the second; want %d and a few of it", first, second, same)
	}
	// What comes in a class that had nothing left is found.
	d.add("ann", ad)
	must(t, super.QueryRow(t.Context(), heads, "s3", lows).Scan(&lows))
}

// entries returns how many entries of an index, named by its number, a transaction reads.
func entries(t *testing.T, c *pgx.Conn, index string, do func(pgx.Tx) error) int {
	t.Helper()
	const count = "select pg_stat_get_xact_tuples_returned($1::bigint::oid)"
	var before, after int
	tx, err := c.Begin(t.Context())
	must(t, err)
	defer func() { must(t, tx.Commit(t.Context())) }()
	must(t, tx.QueryRow(t.Context(), count, index).Scan(&before))
	must(t, do(tx))
	must(t, tx.QueryRow(t.Context(), count, index).Scan(&after))
	return after - before
}

// TestGens has a slot given again what it has not accepted, and what is dead of its earlier runs not be read for that.
func TestGens(t *testing.T) {
	d := newDatabase(t)
	h, super, held := d.fake("h"), d.as("postgres"), d.as("postgres")
	const dead = 200
	d.add("ann", strings.Repeat(ad+"\n\n", dead+2))
	must(t, exec1(held, "begin isolation level repeatable read"))
	value(t, held, "select count(*) from paddock.lease")
	for range dead {
		job, gen := h.claim("s")
		h.ends(job, gen, "exit", `{"ExitCode": 0}`)
	}
	index := value(t, super, "select 'paddock.lease_host_slot_gen_idx'::regclass::oid")
	read := func(last int64) (gen int64, n int) {
		t.Helper()
		const claim = "select gen from paddock.claim_many('h', array['s'], array[1], array[0], array[$1::bigint])"
		n = entries(t, h.c, index, func(tx pgx.Tx) error { return tx.QueryRow(t.Context(), claim, last).Scan(&gen) })
		return gen, n
	}
	gen, all := read(0)
	again, few := read(gen)
	if again != gen || all < dead || few > 2 {
		t.Errorf("with %d and then %d entries read, run %d was given and then %d", all, few, gen, again)
	}
}

// TestExpires has leases read when one may be over, and not for each tick.
func TestExpires(t *testing.T) {
	d := newDatabase(t)
	h, super := d.fake("h"), d.as("postgres")
	tick := func() string {
		value(t, h.c, "select paddock.tick()")
		return value(t, super, "select expires from paddock.meta")
	}
	d.add("ann", ad+"\n\n"+ad)
	h.claim("s1")
	d.untilAt("clock_timestamp() - grace + interval '3 s'")
	first := tick()
	h.claim("s2")
	if second := tick(); second != first {
		t.Errorf("leases were read when none could be over: %s, then %s", first, second)
	}
	if got := value(t, super, "select min(until + grace) from paddock.lease"); got != first {
		t.Errorf("the first lease is over at %s, and they are read again at %s", got, first)
	}
	if ms, err := strconv.Atoi(value(t, h.c, "select paddock.tick()")); err != nil || ms > 3000 {
		t.Errorf("the next tick is due after %d ms, %v; want 3000 at most", ms, err)
	}
}

// TestLooks has a claim look at classes in the order in which their next job may be, and at none after it has found the first
// job of all.
func TestLooks(t *testing.T) {
	d := newDatabase(t)
	super := d.as("postgres")
	must(t, exec1(super, `insert into paddock.class (sig, queue, owner, cpus, memory_mb, disk_kb, gpus, ad)
		select sha256(n::text::bytea), 'default', 'ann', 1, n, 1, 0, '' from generate_series(1, 20) n`))
	must(t, exec1(super, `insert into paddock.job (class, owner, queue, priority, rank, ad) select 1 + n % 20, 'ann', 'default', 0, n, 'Cmd = "true"'
		from generate_series(1, 200) n`))
	must(t, exec1(super, "insert into paddock.ready (class, rank, id) select class, rank, id from paddock.job"))
	for _, tt := range []struct {
		name   string
		lows   string // of class n + 1
		looked int
		ranks  string
	}{
		{"nothing is known", "0", 20, "1 2 3"},
		{"all is known", "case when n = 0 then 20 when n < 4 then n + 20 else n end", 1, "4 5 6"},
		{"less is known of one", "case when n = 0 then 20 when n = 10 then 5 when n < 7 then n + 20 else n end", 2, "7 8 9"},
	} {
		slots := strings.Fields(tt.ranks)
		for i := range slots {
			slots[i] = tt.name + slots[i]
		}
		var looked int
		var ranks string
		must(t, super.QueryRow(t.Context(), fmt.Sprintf(`select max((select count(*) from unnest(heads) h where h is not null)), string_agg(rank::text, ' ')
			from (select array_agg(n + 1 order by low) as classes, array_agg(low order by low) as lows
				from (select n, %s as low from generate_series(0, 19) n) c) c, paddock.claim_many('h', $1, c.classes, c.lows)`, tt.lows), slots).Scan(&looked, &ranks))
		if looked != tt.looked || ranks != tt.ranks {
			t.Errorf("%s: it has looked at %d classes and given %s; want %d and %s", tt.name, looked, ranks, tt.looked, tt.ranks)
		}
	}
	if got := value(t, super, "select count(*) from paddock.claim('h', 's', '{}', '{}')"); got != "0" {
		t.Errorf("of no class %s jobs are given", got)
	}
	// A queue is paused, and a class was removed of which the host has not heard.
	must(t, exec1(super, "insert into paddock.queue (name, paused) values ('other', true)"))
	must(t, exec1(super, "insert into paddock.class (sig, queue, owner, cpus, memory_mb, disk_kb, gpus, ad) values ('', 'other', 'ann', 1, 1, 1, 0, '')"))
	must(t, exec1(super, "insert into paddock.ready (class, rank, id) select id, 0, 0 from paddock.class where queue = 'other'"))
	if rank := value(t, super, "select rank from paddock.claim_many('h', array['s'], array[0, 11, 21], array[0, 0, 0])"); rank != "10" {
		t.Errorf("beside a queue that is paused, rank %s is given; want 10", rank)
	}
}

// TestClasses bounds how many kinds of jobs there are, and has jobs that differ in what does not
// matter be of one.
func TestClasses(t *testing.T) {
	d := newDatabase(t)
	super := d.as("postgres")
	var same, other strings.Builder
	for i := range 50 {
		fmt.Fprintf(&same, "Cmd = \"/bin/true\"\nArguments = \"%d\"\nrequestcpus = 2\nRequirements = TARGET.Rack == MY.Rack\nRack = Row\nRow = 7\n\n", i)
		fmt.Fprintf(&other, "Cmd = \"/bin/true\"\nRequestCpus = 2\nRequirements = TARGET.Rack == MY.Rack\nRack = Row\nRow = %d\n\n", i)
	}
	d.add("ann", same.String())
	if got := value(t, super, "select count(*) || ' ' || min(cpus) from paddock.class"); got != "1 2" {
		t.Errorf("classes, and CPUs: %s", got)
	}
	d.add("ann", other.String())
	if got := value(t, super, "select count(*) from paddock.class"); got != "50" { // one was there
		t.Errorf("%s classes", got)
	}
	must(t, exec1(super, "insert into paddock.class (sig, queue, owner, cpus, memory_mb, disk_kb, gpus, ad) select int4send(n), 'default', 'x', 1, 1, 1, 0, '' from generate_series(1, 1950) n"))
	out, err := func() ([]byte, error) {
		cmd := d.command("ann", "add")
		cmd.Stdin = strings.NewReader(ad + "\nRequestCpus = 77\n")
		return cmd.CombinedOutput()
	}()
	if err == nil || !strings.Contains(string(out), "queue default has 2000 classes") {
		t.Errorf("%v: %s", err, out)
	}
	d.tool("boss", "prune")
	d.add("ann", ad+"\nRequestCpus = 77\n")
	for _, options := range []string{"-attempts -1", "-attempts 1001", "-p 10001"} {
		cmd := d.command("ann", append([]string{"add"}, strings.Fields(options)...)...)
		cmd.Stdin = strings.NewReader(ad)
		if out, err := cmd.CombinedOutput(); err == nil || strings.Contains(string(out), "constraint") {
			t.Errorf("add %s: %v: %s", options, err, out)
		}
	}
	for _, bad := range []string{"Cmd", "= 1", "Foo = 1", "Cmd = 1\nRequestCpus = 1 + 1", "Cmd = 1\nRequestMemory = -1", "Cmd = 1\n2x = 1"} {
		if err := exec1(d.as("ann"), "select paddock.submit($1)", bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestMigrate brings a database to the next version while jobs come, run and end.
func TestMigrate(t *testing.T) {
	d := newDatabase(t)
	super := d.as("postgres")
	newest := value(t, super, "select max(number) from paddock.migration")
	number, err := strconv.Atoi(newest)
	must(t, err)
	must(t, exec1(super, "drop schema paddock cascade"))
	script := d.tool("postgres", "init", "-n")
	before := fmt.Sprintf("insert into migration (number) values (%d);\n\ncommit;\n", number-1)
	if script, _, _ = strings.Cut(script, before); !strings.HasPrefix(script, "begin;") {
		t.Fatalf("there is no version %d", number-1)
	}
	must(t, exec1(super, script+before, pgx.QueryExecModeSimpleProtocol))
	newHost(t, d, "one", 4)
	total := part(2000, 100)
	added := make(chan int)
	go func() {
		defer close(added)
		for range total / 10 {
			added <- len(d.add("ann", strings.Repeat(ad+"\n\n", 10)))
		}
	}()
	n := 0
	for some := range added {
		if n += some; n == total/2 {
			d.tool("postgres", "migrate")
		}
	}
	await(t, super, fmt.Sprint(total), "select count(*) from paddock.done where outcome = 'ok'")
	if got := value(t, super, "select max(number) || ' ' || (select count(*) from paddock.job) from paddock.migration"); got != newest+" 0" {
		t.Errorf("version, and jobs left: %s", got)
	}
}

// TestWait has somebody wait for jobs, also when his connection is cut: their ends are told, and no others, and what has failed counts.
func TestWait(t *testing.T) {
	d := newDatabase(t)
	super := d.as("postgres")
	ids := d.add("ann", strings.Repeat(ad+"\n\n", 3))
	listener := d.as("reader")
	must(t, exec1(listener, "listen paddock_over"))
	// Who may not see a job has nobody told of it.
	must(t, exec1(d.as("bob"), "select paddock.await($1)", ids))

	cmd := d.command("ann", "wait", fmt.Sprint(ids[0]), fmt.Sprint(ids[2]))
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	must(t, cmd.Start())
	const waits = "from pg_stat_activity where datname = current_database() and usename = 'ann' and query like '%paddock.status%'"
	await(t, super, "1", "select count(*) "+waits)
	cut := value(t, super, "select pid "+waits)
	must(t, exec1(super, "select pg_terminate_backend("+cut+")"))
	await(t, super, "1", "select count(*) "+waits+" and pid <> "+cut)
	await(t, super, fmt.Sprint(ids[0], ids[2]), "select string_agg(id::text, ' ' order by id) from paddock.job where awaited")
	h := d.fake("h")
	want := []string{fmt.Sprint(ids[2]), fmt.Sprint(ids[0])}
	for _, id := range []int64{ids[1], ids[2], ids[0]} {
		d.tool("ann", "alter", "-p", "1", fmt.Sprint(id)) // it is the next
		job, gen := h.claim("s")
		if job != id {
			t.Fatalf("job %d was given; want %d", job, id)
		}
		h.ends(job, gen, "exit", `{"ExitCode": `+fmt.Sprint(map[bool]int{true: 3}[id == ids[0]])+`}`)
	}
	err := cmd.Wait()
	if got := fmt.Sprintf("job %d: dead\njob %d: ok\n", ids[0], ids[2]); out.String() != got || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("wait: %v, and says %q; want %q, and status 3: %s", err, out.String(), got, errs.String())
	}
	must(t, exec1(super, "select pg_notify('paddock_over', 'last')"))
	for _, want := range append(want, "last") {
		n, err := listener.WaitForNotification(t.Context())
		must(t, err)
		if n.Payload != want {
			t.Errorf("the end of %s is told; want %s", n.Payload, want)
		}
	}
}
