package daemon

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"paddock/execd/internal/conf"
	"paddock/execd/internal/peer"
)

// peerFiles returns where this host has what it is known by in a pool.
func peerFiles(o Options, c *conf.Config) peer.Files {
	f := peer.FilesIn(o.Places.Config)
	f.Cert, _ = c.Knobs.Lookup("TLS_CERT_FILE")
	f.Key, _ = c.Knobs.Lookup("TLS_KEY_FILE")
	f.CA, _ = c.Knobs.Lookup("TLS_CA_FILE")
	return f
}

// checkPeers returns what is wrong with the files of a pool. What an administrator should
// look at in time becomes a warning of the configuration.
func checkPeers(o Options, c *conf.Config) error {
	if c == nil {
		return nil
	}
	f := peerFiles(o, c)
	now := time.Now()
	t, err := f.Load(now)
	if err == nil {
		for _, text := range t.Warnings(now) {
			c.Warnings = append(c.Warnings, conf.Problem{File: o.Places.Config, Text: text})
		}
	}
	return err
}

// reloadPeers reads the files of the pool again.
func (d *daemon) reloadPeers() {
	changed, err := d.peers.Reload()
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			d.log.Error("execd: pool: " + strings.TrimSpace(line))
		}
		d.log.Error("execd: pool: what is in force stays as it was")
	}
	for _, line := range changed {
		d.log.Info("execd: pool: " + line)
	}
	d.listening.Give()
}

// pool does what a host does in a pool. It costs nothing before the host is in one.
func (d *daemon) pool(ctx context.Context) {
	for {
		changed := d.peers.Changed()
		if d.peers.Current() != nil {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
	var group sync.WaitGroup
	group.Go(func() { d.lookAtCertificate(ctx) })
	group.Go(func() { d.listen(ctx) })
	group.Go(func() { d.watch.Run(ctx) })
	group.Wait()
}

// listenAgain is how long to wait where the port is taken.
const listenAgain = 30 * time.Second

// listen answers other hosts for as long as this one executes their work, at the address
// that is configured. That the port is taken keeps nothing else from being done.
func (d *daemon) listen(ctx context.Context) {
	var stop func()
	at, told := "", ""
	for {
		want := ""
		if !d.peers.Current().May(peer.Execute) {
			told = ""
		} else {
			want = d.config.Current().Knobs.Get("ADDRESS").Value
		}
		if stop != nil && want != at {
			stop()
			stop = nil
			d.log.Info("execd: other hosts are not answered any more: address=" + at)
		}
		var again <-chan time.Time
		if stop == nil && want != "" {
			l, err := peer.Listen(want, d.peers, d.log)
			if err == nil {
				d.log.Info(fmt.Sprintf("execd: other hosts are answered: address=%v", l.Addr()))
				stop, at, told = d.answer(ctx, l), want, ""
			} else {
				if text := err.Error(); text != told {
					told = text
					d.log.Error("execd: " + text)
				}
				again = time.After(listenAgain)
			}
		}
		d.deaf.Store(new(told))
		select {
		case <-ctx.Done():
			if stop != nil {
				stop()
			}
			return
		case <-d.listening:
		case <-again:
		}
	}
}

// answer answers other hosts until stop is called.
func (d *daemon) answer(ctx context.Context, l *peer.Listener) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.server.ServePeers(ctx, l); err != nil {
			d.log.Error(fmt.Sprintf("execd: cannot answer other hosts: %v", err))
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// peerProblems returns what an administrator should look at of the pool.
func (d *daemon) peerProblems() []string {
	lines := d.peers.Problems()
	if text := d.deaf.Load(); text != nil && *text != "" {
		lines = append(lines, *text)
	}
	return lines
}

// lookAtCertificate warns each day, and at each change, if the certificate of this host
// is about to expire.
func (d *daemon) lookAtCertificate(ctx context.Context) {
	day := time.NewTicker(24 * time.Hour)
	defer day.Stop()
	for {
		changed := d.peers.Changed()
		for _, text := range d.peers.Current().Warnings(time.Now()) {
			d.log.Warn("execd: pool: " + text)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-day.C:
		}
	}
}
