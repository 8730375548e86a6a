package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"paddock/hooks/postgres/internal/schema"
)

// application tells connections of paddock-pg from others in pg_stat_activity.
const application = "paddock-pg"

// Configure returns the configuration of a connection. Statements are not prepared under a name, so that a
// pooler may give each transaction another connection; what costs time to plan is in functions, which keep it.
func Configure(connection string) (*pgx.ConnConfig, error) {
	c, err := pgx.ParseConfig(connection)
	if err != nil {
		return nil, fmt.Errorf("cannot read connection: %w", err)
	}
	adapt(c)
	return c, nil
}

func adapt(c *pgx.ConnConfig) {
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	c.ConnectTimeout = 10 * time.Second
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = application
	}
}

// db is the database as hosts see it: its functions.
type db struct {
	pool  *pgxpool.Pool
	host  string
	pilot Pilot
}

func open(c *Config) (*db, error) {
	p, err := pgxpool.ParseConfig(c.Connection)
	if err != nil {
		return nil, fmt.Errorf("cannot read connection: %w", err)
	}
	adapt(p.ConnConfig)
	p.MaxConns = int32(c.Connections)
	p.MinConns = 0
	p.MaxConnIdleTime = 5 * time.Minute
	pool, err := pgxpool.NewWithConfig(context.Background(), p) // it does not connect yet
	if err != nil {
		return nil, err
	}
	return &db{pool: pool, host: c.Host, pilot: c.Pilot}, nil
}

// transient reports whether another attempt may have a better end.
func transient(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code[:2] {
		case "08", "40", "53", "55", "57", "58", "XX":
			return true // connection, deadlock, resources, shut down and so on
		}
		return false
	}
	return true
}

// again makes a call until it has an answer or an error that stays, or the time of the call is over.
func again(ctx context.Context, call func() error) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := call()
		if err == nil || !transient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// about returns the name of the installation. A database of a version that this program does not know is an error.
func (d *db) about(ctx context.Context) (installation string, err error) {
	var version int
	if err := d.pool.QueryRow(ctx, "select installation, schema from paddock.about()").Scan(&installation, &version); err != nil {
		return "", err
	}
	if version < schema.Newest-1 || version > schema.Newest+1 {
		return "", fmt.Errorf("the database has version %d of the schema, and this program is for %d", version, schema.Newest)
	}
	return installation, nil
}

func (d *db) hello(ctx context.Context, version string, queues []string) error {
	if queues == nil {
		queues = []string{}
	}
	if _, err := d.pool.Exec(ctx, "select paddock.hello($1, $2, $3)", d.host, version, queues); err != nil || d.pilot.Job == "" {
		return err
	}
	var ends *time.Time
	if !d.pilot.Ends.IsZero() {
		ends = &d.pilot.Ends
	}
	_, err := d.pool.Exec(ctx, "select paddock.piloted($1, $2, $3)", d.host, d.pilot.Job, ends)
	return err
}

func (d *db) bye(ctx context.Context) error {
	_, err := d.pool.Exec(ctx, "select paddock.bye($1)", d.host)
	return err
}

// idle returns how many hosts wait for work. Not known: this one has to say hello.
func (d *db) idle(ctx context.Context, is bool) (hosts int, known bool, err error) {
	var n *int
	if err := d.pool.QueryRow(ctx, "select paddock.idle($1, $2)", d.host, is).Scan(&n); err != nil || n == nil {
		return 0, false, err
	}
	return *n, true, nil
}

// classes calls add for each class that may be new since an earlier call, and returns what to pass to the next.
func (d *db) classes(ctx context.Context, since string, add func(*class)) (string, error) {
	rows, err := d.pool.Query(ctx, `select id, queue, owner, cpus, memory_mb, disk_kb, gpus, coalesce(seconds, 0), ad, seen::text
		from paddock.classes($1::text::xid8)`, since)
	if err != nil {
		return since, err
	}
	defer rows.Close()
	for rows.Next() {
		c := &class{}
		var ad string
		if err := rows.Scan(&c.id, &c.queue, &c.owner, &c.cpus, &c.memory, &c.disk, &c.gpus, &c.seconds, &ad, &since); err != nil {
			return since, err
		}
		c.read(ad)
		add(c)
	}
	return since, rows.Err()
}

// work is a job that was given to a slot.
type work struct {
	job, gen  int64
	class     int32
	rank      int64
	owner     string
	queue     string
	term      int // seconds
	attempts  int
	evictions int
	ad        string
}

// first is before all ranks.
const first = math.MinInt64

// want is a question for work of slots that may have the same classes, and its answer.
type want struct {
	slots   []string
	gens    []int64 // of each slot the number of the run that it was given last; 0: not known
	classes []int32
	lows    []int64 // the rank of each class before which there is nothing

	given map[string]*work // by slot; nothing where there is no work
	heads []*int64         // the lows after that, nil of a class that was not looked at; empty: as they were
}

// exchange reports of each run that was accepted whether it is this host's, and answers the wants: all in one transaction.
func (d *db) exchange(ctx context.Context, accepted []run, wants []*want) (own []bool, err error) {
	batch := &pgx.Batch{}
	if len(accepted) > 0 {
		jobs, gens, hosts := columns(accepted)
		batch.Queue("select accepted from paddock.accept_many($1, $2, $3) order by n", jobs, gens, hosts).Query(func(rows pgx.Rows) (err error) {
			own, err = pgx.CollectRows(rows, pgx.RowTo[bool])
			return err
		})
	}
	for _, w := range wants {
		sort.Stable(w)
		batch.Queue(`select slot, job, gen, class, rank, owner, queue, term, attempts, evictions, ad, heads
			from paddock.claim_many($1, $2, $3, $4, $5)`, d.host, w.slots, w.classes, w.lows, w.gens).Query(w.read)
	}
	if err := d.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, err
	}
	if len(own) != len(accepted) {
		return nil, fmt.Errorf("%d answers to %d runs", len(own), len(accepted))
	}
	return own, nil
}

// The order of the classes of a want is that of their lows, which the function asks for.

func (w *want) Len() int           { return len(w.lows) }
func (w *want) Less(i, j int) bool { return w.lows[i] < w.lows[j] }
func (w *want) Swap(i, j int) {
	w.lows[i], w.lows[j] = w.lows[j], w.lows[i]
	w.classes[i], w.classes[j] = w.classes[j], w.classes[i]
}

func (w *want) read(rows pgx.Rows) error {
	w.given = map[string]*work{}
	for rows.Next() {
		var slot string
		var heads []*int64
		g := &work{}
		if err := rows.Scan(&slot, &g.job, &g.gen, &g.class, &g.rank, &g.owner, &g.queue, &g.term, &g.attempts, &g.evictions, &g.ad, &heads); err != nil {
			return err
		}
		w.given[slot] = g
		if len(heads) == len(w.classes) {
			w.heads = heads
		}
	}
	return rows.Err()
}

// columns are the arrays that stand for runs in a call.
func columns(runs []run) (jobs, gens []int64, hosts []string) {
	jobs, gens, hosts = make([]int64, len(runs)), make([]int64, len(runs)), make([]string, len(runs))
	for i, r := range runs {
		jobs[i], gens[i], hosts[i] = r.job, r.gen, r.host
	}
	return jobs, gens, hosts
}

func (d *db) refuse(ctx context.Context, r run, reason string) error {
	_, err := d.pool.Exec(ctx, "select paddock.refuse($1, $2, $3, $4)", r.job, r.gen, r.host, reason)
	return err
}

func (d *db) renew(ctx context.Context, r run) (word string, err error) {
	err = d.pool.QueryRow(ctx, "select paddock.renew($1, $2, $3)", r.job, r.gen, r.host).Scan(&word)
	return word, err
}

// report returns the runs that are not this host's any more.
func (d *db) report(ctx context.Context, runs []run, words, results []string) (stale []run, err error) {
	stale, err = d.reportBy(ctx, "report_many", runs, words, results)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == lockNotAvailable {
		return d.reportBy(ctx, "report_late", runs, words, results)
	}
	return stale, err
}

// lockNotAvailable is the code of a call that has met what somebody keeps locked.
const lockNotAvailable = "55P03"

func (d *db) reportBy(ctx context.Context, function string, runs []run, words, results []string) (stale []run, err error) {
	jobs, gens, hosts := columns(runs)
	rows, err := d.pool.Query(ctx, "select job, gen from paddock."+function+"($1, $2, $3, $4, $5) where answer = 'stale'", jobs, gens, hosts, words, results)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r run, err error) {
		err = row.Scan(&r.job, &r.gen)
		return r, err
	})
}

// tick returns after how long there may be something again.
func (d *db) tick(ctx context.Context) (time.Duration, error) {
	var ms int
	err := d.pool.QueryRow(ctx, "select paddock.tick()").Scan(&ms)
	return time.Duration(ms) * time.Millisecond, err
}
