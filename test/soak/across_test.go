package soak

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/spool"
	"paddock/test/harness"
)

// acrossText is the job: that of sandboxes, with what is seen of runs on several hosts, and
// something on both streams. Its input is of one version, whichever that is.
const acrossText = `#!/bin/bash
id=$JOB_NAME status=$1
exec 9>>BASE/marks/lock.$id
flock -n 9 || echo $id.0 >>BASE/marks/overlaps
echo $id.0 >>BASE/marks/began
echo out $id
echo err $id >&2
[ $5 = alone ] || [ "$(sort -u changing | wc -l)" = 1 ] || status=96
` + boxWork + `echo $id.0 >>BASE/marks/ended
exit $status
`

// placesAcross are where output goes. The first is a file system of its own, and soon full.
var placesAcross = []string{"full", "far", "far"}

// TestAcross has the files of jobs travel between hosts while what happens to hosts in TestHosts
// does, workers are killed, destinations are full, gone or closed, jobs are deleted, and files change while
// they are sent. What arrives is what a job has left, byte for byte, and what it has
// said is there once; each job runs once unless a lease had ended; and nothing is left on any host.
func TestAcross(t *testing.T) {
	drawSeed()
	acts, longest := part(200, 6), max(2*time.Second, time.Duration(*scale*float64(time.Minute)))
	t.Logf("%d acts, outages of at most %v; repeat with -scale %g -seed %d", acts, longest, *scale, *seed)
	p := newPool(t, "ALIVE_INTERVAL = 10\nMAX_CLAIM_ALIVES_MISSED = 2\nTRANSFER_BANDWIDTH = 8000000\n",
		map[string]int{"login": 1, "node1": 4, "node2": 4}, func(p *pool) { p.prepareAcross(t) })
	p.holds = append(p.holds, "its output is lost", "changed while it was sent")
	for _, err := range []error{unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.ENOSPC} {
		p.holds = append(p.holds, err.Error())
	}
	p.more = p.sendFiles
	p.disturb(t, acts, longest, func() { p.actAcross(t, longest) })
	for _, place := range []string{"full/out", "far/out", "."} {
		if t.Failed() {
			return
		}
		left, err := filepath.Glob(filepath.Join(p.base, place, ".paddock-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("%q are left, %v", left, err)
		}
	}
}

// prepareAcross makes what jobs need.
func (p *pool) prepareAcross(t *testing.T) {
	t.Helper()
	for name, text := range map[string]string{
		"box.sh":    strings.ReplaceAll(acrossText, "BASE", p.base),
		"in/a":      "some input\n",
		"in/more/b": strings.Repeat("more input\n", 10000),
		"changing":  version(0),
	} {
		path := filepath.Join(p.base, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"full", "far", "said"} {
		path := filepath.Join(p.base, dir)
		if err := errors.Join(os.Mkdir(path, 0o755), os.Chown(path, p.uid, p.uid)); err != nil {
			t.Fatal(err)
		}
	}
	full := filepath.Join(p.base, "full")
	if err := unix.Mount("tmpfs", full, "tmpfs", 0, "size=64m,mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.unmount(t, "full") })
	for _, dir := range placesAcross {
		path := filepath.Join(p.base, dir, "out")
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
		if err := os.Chown(path, p.uid, p.uid); err != nil {
			t.Fatal(err)
		}
	}
}

// version is what the input that changes has.
func version(n int) string { return strings.Repeat(fmt.Sprintf("version %05d\n", n%100000), 1<<15) }

// sendFiles submits a job whose files travel.
func (p *pool) sendFiles(t *testing.T) {
	t.Helper()
	j := &sent{name: fmt.Sprintf("j%d", len(p.jobs)), exit: p.rng.IntN(90), place: filepath.Join(placesAcross[p.rng.IntN(len(placesAcross))], "out")}
	files, size := 1+p.rng.IntN(20), p.rng.IntN(1<<(8+p.rng.IntN(10)))
	if p.rng.IntN(6) == 0 && !strings.HasPrefix(j.place, "full") {
		files, size = 1+p.rng.IntN(2), 1<<20+p.rng.IntN(12<<20)
	}
	with := "alone"
	args := []string{
		"-wd", p.base, "-sandbox", "y", "-stageout_to", filepath.Join(p.base, j.place),
		"-o", filepath.Join(p.base, "said", j.name+".o"), "-e", filepath.Join(p.base, "said", j.name+".e"),
	}
	if p.rng.IntN(2) == 0 {
		with = "with"
		args = append(args, "-stagein", "in,changing")
	}
	lasts := []string{"0", "0", "0.1", "0.5", "1", "3"}[p.rng.IntN(6)]
	p.qsub(t, j, p.rng.IntN(3) > 0, append(args, filepath.Join(p.base, "box.sh"), strconv.Itoa(j.exit), strconv.Itoa(files), strconv.Itoa(size), lasts, with)...)
}

// actAcross does one thing.
func (p *pool) actAcross(t *testing.T, longest time.Duration) {
	t.Helper()
	lasts := time.Duration(p.rng.Int64N(int64(longest))) / 4
	switch p.rng.IntN(20) {
	default:
		p.act(t, longest)
	case 0, 1, 2:
		p.killWorker(t)
	case 3, 4:
		p.change(t)
	case 5:
		p.note("another version of the input")
		f, err := os.OpenFile(filepath.Join(p.base, "changing"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte(version(len(p.story))), 0)
		must(t, errors.Join(err, f.Close()))
	case 6:
		p.delete(t)
	case 7, 8:
		p.outOfOrder("full", "full", lasts, func(path string) func(*testing.T) { return fill(t, path) })
	case 9:
		p.outOfOrder("place far", "far/out", lasts, func(path string) func(*testing.T) { return spoil(t, p.rng, path) })
	}
}

// outOfOrder has something be out of order for a while.
func (p *pool) outOfOrder(what, where string, lasts time.Duration, do func(path string) (undo func(*testing.T))) {
	if _, out := p.off[what]; !out {
		p.note("%s for %v", what, lasts)
		p.off[what] = outage{time.Now().Add(lasts), do(filepath.Join(p.base, where))}
	}
}

// killWorker kills a worker of any host, or nobody when there is none for a while.
func (p *pool) killWorker(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		processes, err := harness.Processes(p.base)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range p.rng.Perm(len(processes)) {
			worker := func(exe, _ string) bool { return exe == "execd-transfer" }
			if kill(processes[i].PID, worker, time.Duration(p.rng.Int64N(int64(3*time.Millisecond)))) {
				p.note("killed a worker")
				return
			}
		}
	}
	p.note("no worker")
}

// change changes a file in the sandbox of a job that has left what it leaves.
func (p *pool) change(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		for _, h := range p.Hosts[1:] {
			files, err := filepath.Glob(filepath.Join(api.DevPlaces(h.Dir).Spool, spool.DirSandboxes, "*", "files", "r.*", "file0"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				dir := filepath.Base(filepath.Dir(file))
				j := p.jobs[strings.TrimPrefix(dir, "r.")]
				f, err := os.OpenFile(file, os.O_WRONLY, 0)
				if err != nil {
					continue // it has gone meanwhile
				}
				st, err := f.Stat()
				must(t, err)
				if j == nil || st.Size() == 0 || len(p.lines(t, "marks/"+j.name)) == 0 {
					f.Close()
					continue
				}
				other := make([]byte, st.Size())
				_, _ = rand.Read(other)
				_, err = f.WriteAt(other, 0)
				must(t, errors.Join(err, f.Close()))
				j.changed = append(j.changed, fmt.Sprintf("%x  %s/file0", sha256.Sum256(other), dir))
				p.note("changed %d bytes of %s on %s", len(other), j.name, h.Name)
				return
			}
		}
	}
	p.note("nothing to change")
}

// delete deletes a job.
func (p *pool) delete(t *testing.T) {
	t.Helper()
	if p.daemon.Exited() {
		return
	}
	jobs, err := p.daemon.Jobs()
	if err != nil {
		t.Fatal(err)
	}
	if len(jobs) == 0 {
		return
	}
	victim := jobs[p.rng.IntN(len(jobs))]
	out, err := p.command(0, "qdel", strconv.Itoa(victim.Job))
	p.note("deleted %s, which was in state %s: %s", victim.Name, victim.State, strings.TrimSpace(out))
	if err != nil && !gone(out) {
		t.Errorf("qdel: %v\n%s", err, out)
	}
	p.jobs[victim.Name].deleted = true
}

// delivered says what must not be of what a job has left; empty: nothing.
func (p *pool) delivered(t *testing.T, j *sent, list []accounting.Record) string {
	t.Helper()
	if len(list) == 0 {
		return ""
	}
	got, err := arrived(filepath.Join(p.base, j.place), j.name)
	if err != nil {
		return err.Error()
	}
	var want []string
	if said := p.lines(t, "marks/"+j.name); len(said) > 0 {
		want = said[1:]
	}
	last := list[len(list)-1]
	whole := slices.EqualFunc(got, want, func(got, want string) bool {
		return got == want || got[66:] == want[66:] && slices.Contains(j.changed, got)
	})
	if last.Failed == 0 && !whole {
		return fmt.Sprintf("its output is\n  %s\nwhere it left\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	for _, line := range got { // of what was deleted, in part, but each file as it was left
		if !slices.Contains(want, line) && !slices.Contains(j.changed, line) {
			return "there is output that it did not leave: " + line
		}
	}
	for stream, text := range map[string]string{"o": "out ", "e": "err "} {
		said := p.lines(t, "said/"+j.name+"."+stream)
		if len(said) > 1 || len(said) == 0 && last.Failed == 0 || len(said) == 1 && said[0] != text+j.name {
			return fmt.Sprintf("-%s has %q", stream, said)
		}
	}
	return ""
}
