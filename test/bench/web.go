package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"paddock/test/harness"
)

// webTime measures what one who looks at the page of qweb costs execd, and what is left of that when
// he has gone.
func (b *bench) webTime() error {
	jobs, window := b.size(100, 5), time.Duration(b.size(30, 2))*time.Second
	d, err := b.startOurs("web", jobs)
	if err != nil {
		return err
	}
	defer d.Kill()
	job, err := b.sleep(d, jobs)
	if err != nil {
		return err
	}
	if err := b.started(d, job, jobs); err != nil {
		return err
	}
	if err := harness.Settle(b.bin, d.Dir); err != nil {
		return err
	}
	before, err := spent(d, window)
	if err != nil {
		return err
	}
	var one float64
	if err := b.looking(d, func() error {
		one, err = spent(d, window)
		return err
	}); err != nil {
		return err
	}
	after, err := spent(d, window)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("execd, %d jobs: a processor, more while one looks", jobs)
	b.report(row{what: what, unit: "%", ours: one - before, alone: true, limit: 1})
	b.report(row{what: "the same, more when he has gone", unit: "%", ours: after - before, alone: true, limit: 0.1})
	return b.endAll(d, job)
}

// spent returns the part of a processor that an execd uses for a while, in percent.
func spent(d *harness.Daemon, while time.Duration) (float64, error) {
	before, err := processorTime(d.PID())
	if err != nil {
		return 0, err
	}
	began := time.Now()
	<-time.After(while)
	after, err := processorTime(d.PID())
	return 100 * (after - before).Seconds() / time.Since(began).Seconds(), err
}

// looking calls do while one looks at the page, who has seen it.
func (b *bench) looking(d *harness.Daemon, do func() error) (err error) {
	cmd := exec.Command(filepath.Join(b.bin, "qweb"))
	cmd.Env = b.env(d)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		err = errors.Join(err, cmd.Wait())
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return err
	}
	address, token, _ := strings.Cut(strings.TrimSpace(line), "#")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"api/live", http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	seen := bufio.NewReader(reply.Body)
	if text, err := seen.ReadString('\n'); err != nil || reply.StatusCode != http.StatusOK {
		return fmt.Errorf("qweb: %s %s %w", reply.Status, text, err)
	}
	go func() { _, _ = io.Copy(io.Discard, seen) }() // until cancel
	return do()
}
