// Bench measures ours beside a real Grid Engine 8.1.9 on this machine, in one
// run and interleaved, and prints medians and their ratio. It needs root and
// installs what it compares with. Run it by `make bench`.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"paddock/test/harness"
)

func main() {
	var b bench
	flag.StringVar(&b.bin, "bin", "bin", "the directory of our binaries")
	flag.BoolVar(&b.smoke, "smoke", false, "small sizes: does it run at all")
	only := flag.String("only", "", "measure only these, by their first word, separated by commas")
	timer := flag.String("timer", "", "internal: time the command of the arguments, as this user")
	times := flag.Int("tries", 1, "internal: how often the command of -timer is tried")
	host := flag.Int("host", -1, "internal: time shepherds on the host of this number")
	echo := flag.String("echo", "", "internal: write a byte into this FIFO for each SIGUSR1")
	tally := flag.Bool("tally", false, "internal: print the tally of standard input")
	burn := flag.Duration("burn", 0, "internal: use so much time of a processor")
	flag.StringVar(&b.svg, "svg", "", "draw there when the jobs of makespan ran, unless -smoke")
	flag.Parse()
	if *burn > 0 {
		if err := burnProcessor(*burn); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %v\n", err)
			os.Exit(1)
		}
		return
	}
	if *tally {
		if err := tallyInput(); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %v\n", err)
			os.Exit(1)
		}
		return
	}
	if *echo != "" {
		if err := serveEcho(*echo); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %v\n", err)
			os.Exit(1)
		}
		return
	}
	if *host >= 0 {
		if err := b.serveHost(hosts[*host]); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %v\n", err)
			os.Exit(1)
		}
		return
	}
	if *timer != "" {
		if err := serveTimer(*timer, *times, flag.Args()); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %v\n", err)
			os.Exit(1)
		}
		return
	}
	if err := b.run(*only); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	bin   string
	smoke bool
	svg   string // a file; empty: nothing is drawn
	base  string // where everything is made
	user  *harness.User
	ge    *harness.GridEngine
	rows  []row
}

// row is one measurement. Theirs is nil where Grid Engine has nothing to
// compare.
type row struct {
	what         string
	unit         string
	theirs, ours float64
	alone        bool    // nothing of theirs
	absolute     bool    // the limit is of ours, not of the ratio
	limit        float64 // of the ratio, or of ours when alone or absolute
	atLeast      bool    // the limit is a lower one
}

func (r row) value() float64 {
	if r.alone || r.absolute {
		return r.ours
	}
	return r.ours / r.theirs
}

func (r row) met() bool {
	if r.atLeast {
		return r.value() >= r.limit
	}
	return r.value() <= r.limit
}

// size returns the number of a full run or of a smoke test.
func (b *bench) size(full, smoke int) int {
	if b.smoke {
		return smoke
	}
	return full
}

func (b *bench) run(only string) (err error) {
	if b.bin, err = filepath.Abs(b.bin); err != nil {
		return err
	}
	if b.ge, err = harness.UseGridEngine(); err != nil {
		return err
	}
	defer b.ge.Release()
	// A run that was killed has left some: Grid Engine outlives it.
	if err := b.deleteTheirs("*", "-f"); err != nil {
		return err
	}
	if b.base, err = os.MkdirTemp("", "paddock-bench-"); err != nil {
		return err
	}
	if err := os.Chmod(b.base, 0o755); err != nil {
		return err
	}
	if b.user, err = harness.AddUser("paddock-bench"); err != nil {
		return err
	}
	// A ^C is answered by cleaning up: what measures notices at its next step.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	defer func() {
		harness.KillLeft(b.base)
		err = errors.Join(err, b.user.Remove(), os.RemoveAll(b.base))
	}()

	fmt.Printf("%-52s %14s %12s %8s   %s\n", "", "Grid Engine", "Paddock", "ratio", "target")
	for _, m := range []struct {
		name string
		run  func() error
	}{
		{"shepherd", b.shepherdTime},
		{"host", b.shepherdHost},
		{"memory", b.shepherdMemory},
		{"signals", b.shepherdSignals},
		{"qsub", b.qsubTime},
		{"qrsh", b.qrshTime},
		{"ssh", b.sshTime},
		{"qacct", b.qacctTime},
		{"qstat", b.qstatTime},
		{"hooks", b.hookTime},
		{"jobs", b.jobRate},
		{"lean", b.leanTime},
		{"array", b.largeArray},
		{"crowd", b.crowd},
		{"idle", b.idleTime},
		{"web", b.webTime},
		{"replaced", b.replaced},
		{"sandbox", b.sandboxTime},
		{"overlap", b.overlapTime},
		{"hosts", b.hostsTime},
		{"crew", b.crewTime},
		{"across", b.acrossTime},
		{"elsewhere", b.idleElsewhere},
		{"line", b.lineTime},
		{"makespan", b.makespan},
		{"engine", b.engineTime},
		{"queue", b.engineHosts},
	} {
		if only != "" && !slices.Contains(strings.Split(only, ","), m.name) {
			continue
		}
		select {
		case s := <-stop:
			return fmt.Errorf("stopped by %v", s)
		default:
		}
		if err := tellSteal(m.name, m.run); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	missed := 0
	for _, r := range b.rows {
		if !r.met() {
			missed++
		}
	}
	if missed > 0 {
		fmt.Printf("%d of %d targets missed\n", missed, len(b.rows))
	}
	return nil
}

// report prints a row as soon as it is known.
func (b *bench) report(r row) {
	b.rows = append(b.rows, r)
	theirs, ratio := "-", "-"
	if !r.alone {
		theirs = fmt.Sprintf("%.2f %s", r.theirs, r.unit)
	}
	if !r.alone && !r.absolute {
		ratio = fmt.Sprintf("%.2f", r.value())
	}
	bound := "at most"
	if r.atLeast {
		bound = "at least"
	}
	unit := ""
	if r.alone || r.absolute {
		unit = " " + r.unit
	}
	verdict := ""
	if !r.met() {
		verdict = "  missed"
	}
	fmt.Printf("%-52s %14s %12s %8s   %s %g%s%s\n", r.what, theirs, fmt.Sprintf("%.2f %s", r.ours, r.unit), ratio, bound, r.limit, unit, verdict)
}

func median(d []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(d))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// percentile is the least of d that is not below p of 100 of it.
func percentile(d []time.Duration, p int) time.Duration {
	return slices.Sorted(slices.Values(d))[(len(d)*p-1)/100]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
