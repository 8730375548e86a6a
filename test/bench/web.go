package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
	return errors.Join(b.endAll(d, job), b.webMemory())
}

// webMemory measures what the timeline has when it is full, by an execd beside one whose timeline has
// no room: what else a run leaves both have.
func (b *bench) webMemory() error {
	source := filepath.Join(harness.Root(), "execd", "internal", "timeline", "timeline.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	const room = "budget   = 1600 << 10\n"
	if !strings.Contains(string(text), room) {
		return fmt.Errorf("%s has no %q", source, room)
	}
	empty, overlay := filepath.Join(b.base, "timeline.go"), filepath.Join(b.base, "overlay.json")
	if err := errors.Join(
		os.WriteFile(empty, []byte(strings.Replace(string(text), room, "budget = 0\n", 1)), 0o644),
		os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, source, empty), 0o644),
	); err != nil {
		return err
	}
	with, err := b.remembering("web-full", nil)
	if err != nil {
		return err
	}
	without, err := b.remembering("web-empty", []string{"-overlay", overlay})
	if err != nil {
		return err
	}
	b.report(row{what: "memory of execd for a full timeline", unit: "MB", ours: float64(with-without) / 1024, alone: true, limit: 2})
	return nil
}

// remembering returns the memory in kB of an execd that was built with flags, when so much has run as
// there is room for in the timeline. What is free there is not: it collects at once.
func (b *bench) remembering(name string, flags []string) (kb int, err error) {
	bin := filepath.Join(b.base, name+"-bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return 0, err
	}
	programs, err := os.ReadDir(b.bin)
	for _, p := range programs {
		if p.Name() != "execd" {
			err = errors.Join(err, os.Symlink(filepath.Join(b.bin, p.Name()), filepath.Join(bin, p.Name())))
		}
	}
	if err != nil {
		return 0, err
	}
	build := exec.Command("go", append(append([]string{"build", "-tags", "urfave_cli_no_docs", "-o", filepath.Join(bin, "execd")}, flags...), "./execd")...)
	build.Dir, build.Env = harness.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("cannot build execd: %w\n%s", err, out)
	}
	d, err := b.startFrom(bin, name, 16, "GOGC=10")
	if err != nil {
		return 0, err
	}
	defer d.Kill()
	for range b.size(6, 1) { // with names as long as are kept
		tasks := "1-" + strconv.Itoa(b.size(500, 20))
		if out, err := b.ours(d, "qsub", "-N", strings.Repeat("n", 200), "-t", tasks, "-sync", "y", "-o", "/dev/null", "-j", "y", "-b", "y", "-shell", "n", "true").CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%w\n%.1000s", err, out)
		}
	}
	if err := harness.Settle(bin, d.Dir); err != nil {
		return 0, err
	}
	if kb, err = harness.StatusField(d.PID(), "RssAnon"); err != nil {
		return 0, err
	}
	return kb, d.Stop()
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
