package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"paddock/execd/api"
	"paddock/test/harness"
)

// engineHosts measures execds that take jobs from the queue in PostgreSQL.
func (b *bench) engineHosts() (err error) {
	pg, err := harness.NewPostgres(filepath.Join(b.base, "pg-hosts"))
	if err != nil {
		return err
	}
	if err := pg.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	return errors.Join(b.toFirstInstruction(pg), b.twoHosts(pg))
}

// engineHost starts an execd whose slots take jobs from a database; an empty one: they are its own queue's.
func (b *bench) engineHost(pg *harness.Postgres, database, name string, slots int) (*harness.Daemon, error) {
	dir := filepath.Join(b.base, name)
	conf := filepath.Join(dir, "pg.conf")
	files := map[string]string{filepath.Join(api.DevPlaces(dir).Config, "queues", "all.q"): fmt.Sprintf("qname all.q\nslots %d\n", slots)}
	if database != "" {
		files[conf] = fmt.Sprintf("connection %s\nhost %s\nrenew %s/execd -renew -dev %s\n", pg.Connection("postgres", database), name, b.bin, dir)
		files[filepath.Join(dir, "serve")] = fmt.Sprintf("#!/bin/sh\nexec %s/paddock-pg -config %s serve\n", b.bin, conf)
		files[filepath.Join(api.DevPlaces(dir).Config, "hooks.conf")] = "STARTD_JOB_HOOK_KEYWORD = PG\nPG_HOOK_SERVER = " + dir + "/serve\n" +
			"FETCH_WORK_AHEAD = TRUE\nFetchWorkDelay = State == \"Claimed\" && Activity != \"Idle\" ? 3600 : 0\n"
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			return nil, err
		}
	}
	return harness.Start(harness.Options{Bin: b.bin, Dir: dir})
}

// newDatabase makes a database with a queue, and connects to it.
func (b *bench) newDatabase(pg *harness.Postgres, name string) (*pgx.Conn, error) {
	if err := sql(pg.Connection("postgres", "postgres"), "create database "+name); err != nil {
		return nil, err
	}
	if out, err := exec.Command(filepath.Join(b.bin, "paddock-pg"), "-d", pg.Connection("postgres", name), "init").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot make the queue: %w\n%s", err, out)
	}
	return pgx.Connect(context.Background(), pg.Connection("postgres", name))
}

// awaitRow waits until a condition of the database is true.
func awaitRow(db *pgx.Conn, condition string) error {
	return harness.WaitFor(harness.Patience, condition, func() (is bool, err error) {
		err = db.QueryRow(context.Background(), "select "+condition).Scan(&is)
		return is, err
	})
}

// toFirstInstruction measures the time from INSERT to the first instruction of the job on an idle host, and that no host is
// woken up while all are busy.
func (b *bench) toFirstInstruction(pg *harness.Postgres) error {
	db, err := b.newDatabase(pg, "idle")
	if err != nil {
		return err
	}
	defer db.Close(context.Background())
	d, err := b.engineHost(pg, "idle", "engine-idle", 1)
	if err != nil {
		return err
	}
	defer func() {
		d.Kill()
		harness.KillLeft(d.Dir)
	}()
	fifo := filepath.Join(b.base, "first")
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		return err
	}
	// Nonblocking, the runtime waits for it with everything else: while a thread of ours hangs
	// in open, the runtime looks after it every 20 us, and takes a processor from what is measured.
	first, err := os.OpenFile(fifo, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer first.Close()
	submit := func(script string) error {
		_, err := db.Exec(context.Background(), "select paddock.submit($1, owner => 'nobody')",
			fmt.Sprintf("Cmd = \"/bin/sh\"\nArguments = \"-c '%s'\"\nIwd = \"/tmp\"\nOut = \"/dev/null\"\nErr = \"/dev/null\"\n", script))
		return err
	}
	var took []time.Duration
	for range b.size(300, 10) {
		if err := awaitRow(db, "exists (select from paddock.host where idle)"); err != nil {
			return err
		}
		begin := time.Now()
		if err := submit("echo >" + fifo); err != nil {
			return err
		}
		if _, err := first.Read(make([]byte, 1)); err != nil {
			return err
		}
		took = append(took, time.Since(begin))
	}
	b.report(row{what: "INSERT to the first instruction, idle host", unit: "ms", ours: milliseconds(median(took)), alone: true, limit: 25})
	b.report(row{what: "the same, 99th percentile", unit: "ms", ours: milliseconds(percentile(took, 99)), alone: true, limit: 100})
	if err := submit("sleep 1000"); err != nil {
		return err
	}
	if err := awaitRow(db, "exists (select from paddock.lease where accepted) and not exists (select from paddock.host where idle)"); err != nil {
		return err
	}
	listener, err := pgx.Connect(context.Background(), pg.Connection("postgres", "idle"))
	if err != nil {
		return err
	}
	defer listener.Close(context.Background())
	if _, err := listener.Exec(context.Background(), "listen paddock_work"); err != nil {
		return err
	}
	window := time.Duration(b.size(60, 2)) * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), window)
	defer cancel()
	for range 100 {
		if err := submit(":"); err != nil {
			return err
		}
	}
	heard := 0
	for {
		if _, err := listener.WaitForNotification(ctx); err != nil {
			break // the time is over
		}
		heard++
	}
	b.report(row{what: "wake-ups while all slots are busy, 100 jobs come", ours: float64(heard), alone: true})
	return nil
}

// pair is two hosts that jobs are measured on, in rounds.
type pair struct {
	*bench
	hosts                     []*harness.Daemon
	server                    int           // process id of the database; 0: there is none
	wall, processor, database time.Duration // of all rounds; what the hosts took, and the database
}

// twoHosts measures what two execds do with jobs of a database, and with jobs of queues of their own. Both take turns: a
// machine may be slower a minute later.
func (b *bench) twoHosts(pg *harness.Postgres) (err error) {
	const slots, rounds = 20, 5
	jobs := b.size(5000, 100)
	db, err := b.newDatabase(pg, "two")
	if err != nil {
		return err
	}
	defer db.Close(context.Background())
	own, fetching := pair{bench: b}, pair{bench: b}
	defer func() {
		for _, d := range slices.Concat(own.hosts, fetching.hosts) {
			d.Kill()
			harness.KillLeft(d.Dir)
		}
	}()
	for i, database := range []string{"", "", "two", "two"} {
		d, err := b.engineHost(pg, database, fmt.Sprintf("engine-host%d", i), slots)
		if err != nil {
			return err
		}
		p := &own
		if database != "" {
			p = &fetching
		}
		p.hosts = append(p.hosts, d)
	}
	if fetching.server, err = pg.PID(); err != nil {
		return err
	}
	for round := range rounds {
		if err := own.ownJobs(jobs/rounds, round+1); err != nil {
			return err
		}
		if err := fetching.fetchedJobs(pg, db, jobs/rounds, round+1); err != nil {
			return err
		}
	}
	each := func(d time.Duration) float64 { return milliseconds(d) / float64(jobs) }
	b.report(row{
		what: "processor time of a job, beside own queues", unit: "ms", limit: 1.25,
		theirs: each(own.processor), ours: each(fetching.processor + fetching.database),
	})
	b.report(row{what: "of that, by the database", unit: "ms", alone: true, limit: 1, ours: each(fetching.database)})
	b.report(row{
		what: fmt.Sprintf("two hosts of %d slots, %d jobs, beside own queues", slots, jobs), unit: "/s",
		theirs: float64(jobs) / own.wall.Seconds(), ours: float64(jobs) / fetching.wall.Seconds(), limit: 0.8, atLeast: true,
	})
	return nil
}

// measure adds what the hosts of p take from begin, which lets jobs begin, until the time that
// end returns, at which the last of them was over.
func (p *pair) measure(begin func() error, end func() (time.Time, error)) error {
	for _, d := range p.hosts {
		if err := harness.Settle(p.bin, d.Dir); err != nil {
			return err
		}
	}
	ofHosts, ofDatabase, err := p.taken()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := begin(); err != nil {
		return err
	}
	over, err := end()
	if err != nil {
		return err
	}
	hosts, database, err := p.taken()
	p.wall += over.Sub(begun)
	p.processor += hosts - ofHosts
	p.database += database - ofDatabase
	return err
}

// taken is what the hosts and all that they have started have taken, and what the database has.
func (p *pair) taken() (hosts, database time.Duration, err error) {
	for _, d := range p.hosts {
		took, err2 := treeTime(d.PID())
		hosts, err = hosts+took, errors.Join(err, err2)
	}
	if p.server == 0 {
		return hosts, 0, err
	}
	database, err2 := treeTime(p.server)
	return hosts, database, errors.Join(err, err2)
}

// ownJobs measures jobs of queues of the hosts' own. They wait before they may begin: what
// submissions cost is measured elsewhere.
func (p *pair) ownJobs(jobs, round int) error {
	for _, d := range p.hosts {
		if err := p.asRoot(d.Dir, "qmod", "-d", "all.q"); err != nil {
			return err
		}
		for range jobs / 2 {
			if err := p.asRoot(d.Dir, "qsub", "-o", "/dev/null", "-j", "y", "-b", "y", "-shell", "n", "/bin/true"); err != nil {
				return err
			}
		}
	}
	return p.measure(func() error {
		for _, d := range p.hosts {
			if err := p.asRoot(d.Dir, "qmod", "-e", "all.q"); err != nil {
				return err
			}
		}
		return nil
	}, func() (last time.Time, err error) {
		err = harness.WaitFor(10*harness.Patience, "jobs of own queues to end", func() (bool, error) {
			ended := 0
			for _, d := range p.hosts {
				name := api.DevPlaces(d.Dir).Accounting
				text, _ := os.ReadFile(name)
				ended += bytes.Count(text, []byte("\nall.q:")) // the first lines are no records
				if info, err := os.Stat(name); err == nil && info.ModTime().After(last) {
					last = info.ModTime()
				}
			}
			return ended >= round*jobs, nil
		})
		return last, err
	})
}

// fetchedJobs measures jobs of the database.
func (p *pair) fetchedJobs(pg *harness.Postgres, db *pgx.Conn, jobs, round int) error {
	tool := func(input string, args ...string) error {
		cmd := exec.Command(filepath.Join(p.bin, "paddock-pg"), append([]string{"-d", pg.Connection("postgres", "two")}, args...)...)
		cmd.Stdin = strings.NewReader(input)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("paddock-pg %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	ads := strings.Repeat("Cmd = \"/bin/true\"\nIwd = \"/tmp\"\nOut = \"/dev/null\"\nErr = \"/dev/null\"\n\n", jobs)
	if err := errors.Join(tool("", "queue", "default", "paused=true"), tool(ads, "add", "-owner", "nobody")); err != nil {
		return err
	}
	return p.measure(func() error { return tool("", "queue", "default", "paused=false") }, func() (last time.Time, err error) {
		err = harness.WaitFor(10*harness.Patience, "jobs of the database to end", func() (all bool, err error) {
			err = db.QueryRow(context.Background(), "select count(*) >= $1, coalesce(max(finished), now()) from paddock.done where outcome = 'ok'",
				round*jobs).Scan(&all, &last)
			return all, err
		})
		return last, err
	})
}
