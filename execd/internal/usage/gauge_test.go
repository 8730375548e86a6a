package usage

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// newGauge has the gauge of a host with these answers of its file system.
func newGauge(t *testing.T, statfs func(string, *syscall.Statfs_t) error) (g *Gauge, log *bytes.Buffer) {
	t.Helper()
	proc := t.TempDir()
	for name, text := range map[string]string{
		"loadavg": "1.50 0.20 0.30 1/100 1234\n",
		"meminfo": "MemTotal: 4096 kB\nMemFree: 10 kB\nSwapTotal: 300 kB\nSwapFree: 200 kB\n",
		"stat":    "cpu 1 2 3 4 5 6 7 8\n",
	} {
		if err := os.WriteFile(filepath.Join(proc, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	log = &bytes.Buffer{}
	l := slog.New(slog.NewTextHandler(log, nil))
	return &Gauge{
		Load: &Load{Proc: proc, Sys: processors(t, "0", [][3]int{{0, 0, 0}}), Log: l},
		Dir:  func() string { return "/scratch" }, Dev: t.TempDir(), Log: l, statfs: statfs,
	}, log
}

func TestGauge(t *testing.T) {
	t.Parallel()
	asked := 0
	g, _ := newGauge(t, func(dir string, fs *syscall.Statfs_t) error {
		if asked++; dir != "/scratch" {
			t.Errorf("the file system of %s is asked", dir)
		}
		fs.Bavail, fs.Blocks, fs.Bsize = 10, 100, 4096
		return nil
	})
	if f := g.Last(); f != (Figures{Keyboard: -1, Console: -1}) {
		t.Errorf("before anything was read: %+v", f)
	}
	synctest.Test(t, func(t *testing.T) {
		g.Look()
		want := Figures{Load: 1.5, Memory: 4 << 20, Swap: 200 << 10, Disk: 40960, DiskSize: 409600, Keyboard: -1, Console: -1}
		if f := g.Last(); f != want {
			t.Errorf("%+v; want %+v", f, want)
		}
		g.Look()
		if asked != 1 {
			t.Errorf("asked %d times within a second", asked)
		}
		time.Sleep(time.Second) // of the bubble's clock
		g.Look()
		if asked != 2 {
			t.Errorf("asked %d times after a second; want 2", asked)
		}
	})
}

// A file system that hangs is waited for once and told of once, holds up nothing
// else, and is believed again when it answers.
func TestGaugeOfHangingDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free, hang := uint64(10), make(chan struct{})
		close(hang)
		var fail error
		g, log := newGauge(t, func(_ string, fs *syscall.Statfs_t) error {
			<-hang
			fs.Bavail, fs.Bsize = free, 1
			return fail
		})
		g.Look()
		hang = make(chan struct{})
		free = 20
		for n := range 5 {
			time.Sleep(2 * time.Second) // of the bubble's clock
			if err := os.WriteFile(filepath.Join(g.Load.Proc, "loadavg"), []byte("7.00 1 1\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			g.Look()
			if took := time.Since(begun); n == 0 && took != diskPatience || n > 0 && took != 0 {
				t.Errorf("look %d took %v", n, took)
			}
			if f := g.Last(); f.Disk != 10 || f.Load != 7 {
				t.Errorf("%+v; want the disk as it was, and the load as it is", f)
			}
		}
		if n := strings.Count(log.String(), "does not answer"); n != 1 {
			t.Errorf("it is told %d times:\n%s", n, log)
		}
		close(hang)
		synctest.Wait()
		if f := g.Last(); f.Disk != 20 {
			t.Errorf("%+v; want what the disk has answered", f)
		}
		fail = errors.New("gone")
		free = 30
		time.Sleep(2 * time.Second)
		g.Look()
		if f := g.Last(); f.Disk != 20 {
			t.Errorf("%+v; want what is known of a disk that is gone", f)
		}
	})
}

// The terminals are looked at only when somebody wants to know.
func TestGaugeOfTerminals(t *testing.T) {
	t.Parallel()
	g, _ := newGauge(t, func(string, *syscall.Statfs_t) error { return nil })
	g.Dev = "/dev"
	g.Look()
	if f := g.Last(); f.Keyboard != -1 || f.Console != -1 {
		t.Errorf("%+v; want the terminals left alone", f)
	}
	g.WatchTerminals(true)
	g.Look()
	if f := g.Last(); f.Keyboard < 0 || f.Console < f.Keyboard {
		t.Errorf("%+v; want since when nobody typed, no shorter at the host itself", f)
	}
	g.WatchTerminals(false)
	g.Look()
	if f := g.Last(); f.Keyboard != -1 {
		t.Errorf("%+v; want the terminals left alone again", f)
	}
	for name, want := range map[string]bool{"tty0": true, "tty12": true, "console": true, "ttyS0": false, "tty": false, "3": false} {
		if isConsole(name) != want {
			t.Errorf("%s is a console: %t", name, !want)
		}
	}
	// What is no device is no terminal, whatever its name is.
	file := filepath.Join(t.TempDir(), "tty1")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := accessed(file, time.Now()); ok {
		t.Error("a file is taken for a terminal")
	}
	if ago, ok := accessed("/dev/null", time.Now().Add(-time.Hour*24*365*50)); !ok || ago != 0 {
		t.Errorf("an access in the future is %v ago, %t", ago, ok)
	}
}
