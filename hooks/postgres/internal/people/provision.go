package people

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"paddock/hooks/postgres/internal/provision"
)

// lockPool is the first half of the advisory lock of a pool: of all programs one looks after it
// at a time.
const lockPool = 7263002

func (s *session) provision(args []string) error {
	flags := s.flags("provision")
	dry := flags.Bool("n", false, "say what would be done, and do nothing")
	resume := flags.Bool("resume", false, "go on with a pool that was paused after failures")
	loop := flags.Duration("loop", 0, "do it again each `TIME`, as 30s; once without it")
	if err := s.parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return usagef("provision has one POOL")
	}
	if *loop < 0 || *loop > 0 && *loop < time.Second {
		return usagef("-loop %v: less than a second", *loop)
	}
	path := flags.Arg(0)
	if !strings.Contains(path, "/") {
		dir, err := os.UserConfigDir()
		if err != nil {
			return err
		}
		path = filepath.Join(dir, "paddock", "pools", path)
	}
	c, err := provision.ReadConfig(path)
	if err != nil {
		return err
	}
	if *resume && !*dry {
		db, err := s.db()
		if err != nil {
			return err
		}
		if err := (&pool{db}).Remember(s.ctx, c.Name, provision.Memory{}); err != nil {
			return err
		}
	}
	// It is not to end between what it has asked of the scheduler and what it notes of that.
	var stop context.CancelFunc
	s.ctx, stop = signal.NotifyContext(s.ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	for {
		err := s.tick(c, *dry)
		if *loop == 0 {
			return err
		}
		if err != nil {
			fmt.Fprintln(s.errs, "paddock-pg:", err)
			s.close() // the database may have been away
		}
		select {
		case <-s.ctx.Done():
			return nil
		case <-time.After(*loop):
		}
	}
}

// tick looks once after a pool.
func (s *session) tick(c *provision.Config, dry bool) error {
	scheduler, err := provision.NewScheduler(c.Scheduler)
	if err != nil {
		return err
	}
	db, err := s.db()
	if err != nil {
		return err
	}
	var mine bool
	if err := db.QueryRow(s.ctx, "select pg_try_advisory_lock($1, hashtext($2))", lockPool, c.Name).Scan(&mine); err != nil {
		return err
	}
	if !mine {
		return fmt.Errorf("another program looks after pool %s at the moment", c.Name)
	}
	defer func() {
		_, _ = db.Exec(context.WithoutCancel(s.ctx), "select pg_advisory_unlock($1, hashtext($2))", lockPool, c.Name)
	}()
	return provision.Tick(s.ctx, c, scheduler, &pool{db}, dry, s.out)
}

// pool implements [provision.Queue].
type pool struct{ db *pgx.Conn }

func (p *pool) Pool(ctx context.Context, name string) (m provision.Memory, known map[string]provision.Known, err error) {
	if err := p.db.QueryRow(ctx, "select last, submit_failures, start_failures, coalesce(paused, '') from paddock.pool_memory($1)", name).
		Scan(&m.Last, &m.SubmitFailures, &m.StartFailures, &m.Paused); err != nil {
		return m, nil, err
	}
	rows, err := p.db.Query(ctx, "select id, started, ends, used from paddock.pilots($1)", name)
	if err != nil {
		return m, nil, err
	}
	known = map[string]provision.Known{}
	var id string
	var k provision.Known
	var ends *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &k.Started, &ends, &k.Used}, func() error {
		k.Ends = time.Time{}
		if ends != nil {
			k.Ends = *ends
		}
		known[id] = k
		return nil
	})
	return m, known, err
}

func (p *pool) Demand(ctx context.Context, queues []string) ([]provision.Demand, error) {
	if queues == nil {
		queues = []string{}
	}
	rows, err := p.db.Query(ctx, "select ready, cpus::bigint, memory_mb, gpus::bigint, coalesce(seconds, 0) from paddock.demand($1)", queues)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d provision.Demand, err error) {
		return d, row.Scan(&d.Ready, &d.Size.CPUs, &d.Size.Memory, &d.Size.GPUs, &d.Seconds)
	})
}

func (p *pool) Submitted(ctx context.Context, name, id string) error {
	_, err := p.db.Exec(ctx, "select paddock.pilot_submitted($1, $2)", name, id)
	return err
}

func (p *pool) Over(ctx context.Context, name, id string) error {
	_, err := p.db.Exec(ctx, "select paddock.pilot_over($1, $2)", name, id)
	return err
}

func (p *pool) Remember(ctx context.Context, name string, m provision.Memory) error {
	var paused *string
	if m.Paused != "" {
		paused = &m.Paused
	}
	_, err := p.db.Exec(ctx, "select paddock.pool_remember($1, $2, $3, $4, $5)", name, m.Last, m.SubmitFailures, m.StartFailures, paused)
	return err
}
