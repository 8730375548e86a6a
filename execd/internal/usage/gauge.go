package usage

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Figures are the figures of the host that stand in the ads of its slots.
type Figures struct {
	Load         float64 // of the last minute
	Memory, Swap int64   // bytes, total and free
	Disk         int64   // bytes free for jobs
	DiskSize     int64   // bytes of its file system; 0: neither is known
	// How long ago somebody typed, at any terminal and at the host itself; negative: not
	// known.
	Keyboard, Console time.Duration
}

// Gauge reads the figures of the host for callers that must not wait: they get what was
// read last. The exported fields are set before first use.
type Gauge struct {
	Load *Load
	Dir  func() string // a directory in the file system of Figures.Disk
	Dev  string        // "/dev"; empty: that
	Log  *slog.Logger

	statfs func(string, *syscall.Statfs_t) error // nil: that of the kernel

	mu        sync.Mutex
	last      Figures       // guarded by mu
	read      time.Time     // guarded by mu; when last was read, but for the disk
	terminals bool          // guarded by mu; terminals are looked at
	disk      chan struct{} // guarded by mu; closed when the file system has answered; nil: it was not asked
	silent    bool          // guarded by mu; the log has it that the file system does not answer
}

// diskPatience is how long Look waits for a file system.
const diskPatience = 250 * time.Millisecond

// WatchTerminals sets whether Keyboard and Console are read.
func (g *Gauge) WatchTerminals(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.terminals != on {
		g.terminals, g.read = on, time.Time{}
	}
}

// Last returns the figures that were read last. It does not wait.
func (g *Gauge) Last() Figures {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.read.IsZero() {
		return Figures{Keyboard: -1, Console: -1}
	}
	return g.last
}

// Look reads the figures anew unless they are at most a second old. It waits once, and
// not for long, for a file system that does not answer, and keeps its last figure.
func (g *Gauge) Look() {
	now := time.Now()
	g.mu.Lock()
	if age := now.Sub(g.read); age >= 0 && age < time.Second {
		g.mu.Unlock()
		return
	}
	g.read = now
	terminals, asks := g.terminals, g.disk == nil
	if asks {
		g.disk = make(chan struct{})
		go g.askDisk(g.disk)
	}
	answered := g.disk
	g.mu.Unlock()

	values := g.Load.Values()
	keyboard, console := time.Duration(-1), time.Duration(-1)
	if terminals {
		keyboard, console = g.idle(now)
	}
	g.mu.Lock()
	g.last.Load = values["load_short"].Number
	g.last.Memory, g.last.Swap = int64(values["mem_total"].Number), int64(values["swap_free"].Number)
	g.last.Keyboard, g.last.Console = keyboard, console
	g.mu.Unlock()
	if asks {
		g.await(answered)
	}
}

// await waits for the file system, and logs it if it does not answer.
func (g *Gauge) await(answered <-chan struct{}) {
	timer := time.NewTimer(diskPatience)
	defer timer.Stop()
	select {
	case <-answered:
		return
	case <-timer.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.disk == answered && !g.silent {
		g.silent = true
		g.Log.Warn(fmt.Sprintf("file system of %s does not answer: ads of slots keep its last free space", g.Dir()))
	}
}

// askDisk asks the file system, however long it takes.
func (g *Gauge) askDisk(answered chan struct{}) {
	statfs := g.statfs
	if statfs == nil {
		statfs = syscall.Statfs
	}
	var fs syscall.Statfs_t
	err := statfs(g.Dir(), &fs)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.last.Disk, g.last.DiskSize = int64(fs.Bavail)*fs.Bsize, int64(fs.Blocks)*fs.Bsize
	}
	g.disk, g.silent = nil, false
	close(answered)
}

// idle returns how long ago somebody typed at any terminal, and at one of the host
// itself: the kernel notes it as the time of the last access. Both are at most the time
// since the host was started.
func (g *Gauge) idle(now time.Time) (keyboard, console time.Duration) {
	dev := g.Dev
	if dev == "" {
		dev = "/dev"
	}
	keyboard, console = -1, -1
	var host syscall.Sysinfo_t
	if syscall.Sysinfo(&host) == nil {
		keyboard = time.Duration(host.Uptime) * time.Second
		console = keyboard
	}
	for _, pattern := range []string{"tty*", "console", "pts/[0-9]*"} {
		names, _ := filepath.Glob(filepath.Join(dev, pattern))
		for _, name := range names {
			if filepath.Base(name) == "tty" {
				continue // programs that open it get a terminal of another name
			}
			ago, ok := accessed(name, now)
			if !ok {
				continue
			}
			keyboard = shorter(keyboard, ago)
			if isConsole(filepath.Base(name)) {
				console = shorter(console, ago)
			}
		}
	}
	return keyboard, console
}

// isConsole reports whether a terminal belongs to the host's own keyboard and screen:
// console, or tty and a number.
func isConsole(name string) bool {
	number, ok := strings.CutPrefix(name, "tty")
	return name == "console" || ok && number != "" && strings.Trim(number, "0123456789") == ""
}

func shorter(a, b time.Duration) time.Duration {
	if a < 0 {
		return b
	}
	return min(a, b)
}

// accessed returns how long ago a terminal was last read.
func accessed(name string, now time.Time) (time.Duration, bool) {
	info, err := os.Lstat(name)
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return 0, false // it has gone, or is no terminal
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return max(now.Sub(time.Unix(s.Atim.Unix())), 0), true
}
