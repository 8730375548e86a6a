// River-rate prints how many jobs a second River, the job queue in PostgreSQL that Go
// services use, claims and finishes. The benchmark runs it beside paddock-pg, on the same
// server. It is a module of its own, so that nothing else needs River.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

func main() {
	dsn := flag.String("dsn", "", "the database, as libpq's connection `string`")
	jobs := flag.Int("jobs", 5000, "how many `jobs` are finished")
	waiting := flag.Int("waiting", 0, "how many further `jobs` wait behind them")
	workers := flag.Int("workers", 8, "how many `jobs` are worked at the same time")
	size := flag.Int("size", 600, "`bytes` of each job")
	flag.Parse()
	rate, err := measure(context.Background(), *dsn, *jobs, *waiting, *workers, *size)
	if err != nil {
		fmt.Fprintln(os.Stderr, "river-rate:", err)
		os.Exit(1)
	}
	fmt.Printf("%.0f\n", rate)
}

// unit is a job: what it says is as long as the ad of one of paddock-pg's.
type unit struct {
	Ad string `json:"ad"`
}

// Kind implements river.JobArgs.
func (unit) Kind() string { return "unit" }

// worker does nothing, and counts.
type worker struct {
	river.WorkerDefaults[unit]
	left *atomic.Int64
	done chan struct{}
}

// Work implements river.Worker.
func (w *worker) Work(context.Context, *river.Job[unit]) error {
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
	return nil
}

// measure returns how many jobs a second are finished, from the start of the client on until
// the last of them is recorded as completed.
func measure(ctx context.Context, dsn string, jobs, waiting, workers, size int) (float64, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return 0, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return 0, err
	}
	w := &worker{left: new(atomic.Int64), done: make(chan struct{})}
	w.left.Store(int64(jobs))
	all := river.NewWorkers()
	river.AddWorker(all, w)
	client, err := river.NewClient(driver, &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		Workers: all, Logger: slog.New(slog.DiscardHandler),
		// By default it asks for jobs ten times a second at most.
		FetchCooldown: river.FetchCooldownMin, FetchPollInterval: river.FetchPollIntervalMin,
	})
	if err != nil {
		return 0, err
	}
	for first := 0; first < jobs+waiting; first += 1000 {
		var many []river.InsertManyParams
		for range min(1000, jobs+waiting-first) {
			many = append(many, river.InsertManyParams{Args: unit{strings.Repeat("x", size)}})
		}
		if _, err := client.InsertManyFast(ctx, many); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	<-w.done
	// Those that were worked by now are recorded before this returns.
	if err := client.Stop(ctx); err != nil {
		return 0, err
	}
	taken := time.Since(begin)
	return rate(ctx, pool, jobs, taken)
}

// rate returns how many jobs were completed each second. The client worked some of those that
// waited behind, too, while it was being stopped.
func rate(ctx context.Context, pool *pgxpool.Pool, jobs int, taken time.Duration) (float64, error) {
	rows, err := pool.Query(ctx, "select count(*) from river_job where state = 'completed'")
	if err != nil {
		return 0, err
	}
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		return 0, err
	}
	if n < jobs {
		return 0, fmt.Errorf("%d jobs are completed, of %d", n, jobs)
	}
	return float64(n) / taken.Seconds(), nil
}
