package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"paddock/test/harness"
)

// across has files travel between two hosts that are joined by a veth pair, beside programs
// that a user would take instead.
type across struct {
	*bench
	network *harness.Network
	server  *sshServer // on the second host
	base    string     // everything of the user's
}

// tree is what travels: files as large.
type tree struct {
	what        string
	files, size int
	bars        map[string]float64 // which part of the time of a program it is to take at most
	processor   float64            // seconds of processors that it is to take at most
}

// acrossTime measures how fast what a job leaves on another host comes back.
func (b *bench) acrossTime() error {
	a := &across{bench: b, base: filepath.Join(b.base, "across")}
	if err := b.mine(a.base); err != nil {
		return err
	}
	return b.onPool(filepath.Join(b.base, "pool"), duo{slots: 1, lease: lasting}, func(n *harness.Network) (err error) {
		a.network = n
		if err := b.here(n, false); err != nil {
			return err
		}
		node := n.Hosts[1]
		if a.server, err = b.startSSH(node.Name, node.Enter()...); err != nil {
			return err
		}
		defer a.server.stop()
		for _, t := range []tree{
			{"1 GB from another host", 1, b.size(1<<30, 1<<22), map[string]float64{"scp": 0.83, "rsync": 1}, 3.3},
			{"10,000 files of 4 kB from another host", b.size(10000, 50), 4096, map[string]float64{"scp": 0.2, "rsync": 1}, 1.5},
		} {
			if err := a.compare(&t); err != nil {
				return fmt.Errorf("%s: %w\n%s", t.what, err, a.server.said())
			}
		}
		return nil
	})
}

// compare has a tree travel by each program in turn. All is read from memory, and is on disk
// when the time is up.
func (a *across) compare(t *tree) error {
	from := filepath.Join(a.base, "from")
	if err := a.mine(from); err != nil {
		return err
	}
	for i := range t.files {
		if err := a.fill(filepath.Join(from, strconv.Itoa(i)), t.size); err != nil {
			return err
		}
	}
	took := map[string][]time.Duration{}
	var used []time.Duration
	places := filepath.Join(a.base, "places")
	for i := range a.size(3, 1) {
		for _, by := range []string{"scp", "rsync", "paddock"} {
			// Each has a directory of its own, and nothing is removed between: ext4 passes over
			// inodes that were removed a moment ago, which takes longer than to write the files.
			to := filepath.Join(places, by+strconv.Itoa(i))
			if err := a.mine(to); err != nil {
				return err
			}
			syscall.Sync() // what is made is none of it
			d, processor, err := a.travel(by, from, to, t.files*t.size)
			if err != nil {
				return fmt.Errorf("%s: %w", by, err)
			}
			if by == "paddock" {
				used = append(used, processor)
			}
			if list, err := filepath.Glob(filepath.Join(to, "from", "*")); len(list) != t.files {
				return fmt.Errorf("%d files have arrived by %s, %v; want %d", len(list), by, err, t.files)
			}
			took[by] = append(took[by], d)
		}
	}
	for _, by := range []string{"scp", "rsync"} {
		a.report(row{
			what: t.what + ", beside " + by, unit: "ms", theirs: milliseconds(median(took[by])), ours: milliseconds(median(took["paddock"])), limit: t.bars[by],
		})
	}
	a.report(row{what: t.what + ", of processors", unit: "s", ours: median(used).Seconds(), alone: true, limit: t.processor})
	return errors.Join(os.RemoveAll(from), os.RemoveAll(places))
}

// travel has a directory come from the second host into another on the first, and returns how
// long that takes, and of paddock how much of processors.
func (a *across) travel(by, from, to string, bytes int) (took, processor time.Duration, err error) {
	if by == "paddock" {
		return a.job(from, to, bytes)
	}
	ssh := a.server.client
	target := ssh[len(ssh)-1] + ":" + from
	shell := strings.Join(ssh[:len(ssh)-1], " ") + " -c aes128-gcm@openssh.com"
	script := fmt.Sprintf("rsync -a --whole-file -e %q %s %s", shell, target, to)
	if by == "scp" {
		words := slices.Concat([]string{"scp", "-q", "-r", "-c", "aes128-gcm@openssh.com"}, ssh[1:len(ssh)-1], []string{target, to})
		script = strings.Replace(strings.Join(words, " "), " -p ", " -P ", 1) // which the port is of scp
	}
	if err := a.onLogin(touch(a.base, bytes)).Run(); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	out, err := a.onLogin(script + " && sync -f " + to).CombinedOutput()
	if err != nil {
		return 0, 0, fmt.Errorf("%w\n%s", err, out)
	}
	return time.Since(begin), 0, nil
}

// touch returns a command that has so many bytes of memory be there for what is received. In a
// virtual machine the first use of memory that was free for a while takes longer than to send
// what comes into it, and nobody else is to have paid for that.
func touch(base string, bytes int) string {
	name := filepath.Join(base, "touched")
	return fmt.Sprintf("head -c %d /dev/zero >%s && rm %s", bytes, name, name)
}

// onLogin returns a command of the user's on the first host.
func (a *across) onLogin(script string) *exec.Cmd {
	words := slices.Concat(a.network.Hosts[0].Enter(), a.dropping(), []string{"sh", "-c", script})
	cmd := limited(longest, words...)
	cmd.Env = a.env(a.network.Hosts[0].Daemon)
	cmd.Dir = a.user.Home
	return cmd
}

// job has a job leave a copy of a directory, and returns how long it takes from its end until
// that has arrived, and what both execds and those that they start need of processors for all
// but the job itself. What it leaves is on disk before.
func (a *across) job(from, to string, bytes int) (took, processor time.Duration, err error) {
	stamp := filepath.Join(a.base, "stamp")
	script := fmt.Sprintf("cp -r %s . && sync -f . && %s && { echo $EPOCHREALTIME; times; } >%s", from, touch(a.base, bytes), stamp)
	cmd := a.ours(a.network.Hosts[0].Daemon, "qsub", "-sync", "y", "-sandbox", "y", "-stageout_to", to, "-o", "/dev/null", "-j", "y", "-S", "/bin/bash", "-b", "y", script)
	before, err := a.used()
	if err != nil {
		return 0, 0, err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("%w\n%s", err, out)
	}
	arrived := time.Now()
	after, err := a.used()
	if err != nil {
		return 0, 0, err
	}
	text, err := os.ReadFile(stamp)
	if err != nil {
		return 0, 0, err
	}
	words := strings.Fields(string(text))
	ended, err := instant(words[0])
	if err != nil {
		return 0, 0, err
	}
	processor = after - before
	for _, word := range words[1:] { // as 0m1.234s
		d, err := time.ParseDuration(word)
		if err != nil {
			return 0, 0, err
		}
		processor -= d
	}
	return arrived.Sub(ended), processor, nil
}

// used returns what both execds, and what they have waited for, have had of processors.
func (a *across) used() (total time.Duration, err error) {
	for _, h := range a.network.Hosts {
		taken, err := familyTime(h.Daemon.PID())
		if err != nil {
			return 0, err
		}
		total += taken
	}
	return total, nil
}
