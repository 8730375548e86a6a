package engine

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// What a program does that stays.

// Idle tells the database whether a question of this host waits for work.
func (e *Engine) Idle(ctx context.Context, is bool, version string) error {
	for {
		n, known, err := e.db.idle(ctx, is)
		if err != nil {
			return err
		}
		if known {
			e.mu.Lock()
			e.idleHosts = n
			e.mu.Unlock()
			return nil
		}
		if err := e.db.hello(ctx, version, e.conf.Queues); err != nil {
			return err
		}
	}
}

// IdleHosts returns how many hosts waited when this one said so the last time.
func (e *Engine) IdleHosts() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.idleHosts
}

// Bye tells the database that this host asks no more.
func (e *Engine) Bye(ctx context.Context) { _ = e.db.bye(ctx) }

// Tick has the database do what is due, until the context ends. Of all hosts one does it at a time.
func (e *Engine) Tick(ctx context.Context) {
	said := "" // what was wrong the last time, and need not be said again
	for {
		pause, err := e.db.tick(ctx)
		problem := ""
		if err != nil {
			pause = 5 * time.Second
			if !transient(err) { // calls of hooks tell of a database that is away
				problem = err.Error()
			}
		}
		if problem != "" && problem != said {
			e.log("cannot do what is due in the database: " + problem)
		}
		said = problem
		// What was reported may be due before what was known of.
		soon := time.NewTimer(min(pause, tickPause))
		select {
		case <-ctx.Done():
			return
		case <-soon.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-e.reported:
		case <-time.After(max(pause-tickPause, 0)):
		}
	}
}

// tickPause is the least time between two ticks that reports bring about.
const tickPause = time.Second

// Listen calls wake when there may be work, until the context ends, and has execd ask whether runs are to go on when one
// of this host was cancelled.
func (e *Engine) Listen(ctx context.Context, wake func()) {
	go e.renewing(ctx)
	if !e.conf.Listen {
		<-ctx.Done()
		return
	}
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, 30*time.Second) {
		if err := e.listen(ctx, wake, func() { pause = time.Second }); err != nil && ctx.Err() == nil {
			e.log(fmt.Sprintf("cannot listen: %v", err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (e *Engine) listen(ctx context.Context, wake, listening func()) error {
	c, err := Configure(e.conf.Connection)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "listen paddock_work; listen paddock_cancel", pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	listening()
	// What was said while nobody listened is not known.
	wake()
	e.over.Give()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		e.heard(n, wake)
	}
}

func (e *Engine) heard(n *pgconn.Notification, wake func()) {
	switch n.Channel {
	case "paddock_work":
		wake()
	case "paddock_cancel":
		if host, _, _ := strings.Cut(n.Payload, "\t"); host == e.conf.Host {
			e.over.Give()
		}
	}
}

// renewing has execd ask RENEW_CLAIM at once, which is how it hears that a run is to end.
func (e *Engine) renewing(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.over:
		}
		run, over := context.WithTimeout(ctx, 30*time.Second)
		out, err := exec.CommandContext(run, e.conf.Renew[0], e.conf.Renew[1:]...).CombinedOutput()
		over()
		if err != nil && ctx.Err() == nil {
			e.log(fmt.Sprintf("%s: %v: %s", strings.Join(e.conf.Renew, " "), err, strings.TrimSpace(string(out[:min(len(out), 200)]))))
		}
	}
}
