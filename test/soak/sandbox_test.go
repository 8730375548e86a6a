package soak

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/test/harness"
)

// boxes is a host whose jobs have sandboxes, and to which much happens.
type boxes struct {
	*soak
	uid   int // as whom jobs are submitted; 0: as who runs the test
	rng   *rand.Rand
	jobs  []*boxed
	story []string

	off map[string]func(t *testing.T) // what is to be undone in the end, by act
}

// boxed is a job with a sandbox, and what was done to it.
type boxed struct {
	number        string
	box           string // the digits of its sandbox, if it was deleted
	place         string // to where its output goes
	deleted, shot bool   // by the test; its shepherd was killed
}

// The directories below which sandboxes and destinations are. The first two are
// file systems of their own where the test may mount them, so that they can be full.
const (
	dirBox = "box" // EXECUTE, and a destination beside it, to which output is renamed
	dirFar = "far"
)

// readOnly is an act, before the end of which nothing else can be done there.
const readOnly = "readonly " + dirFar

// placesOfBoxes are the destinations.
var placesOfBoxes = []string{dirBox + "/near", dirFar + "/out", "disk"}

// boxText is the job. It says outside that it runs, and does its work.
const boxText = `id=$JOB_ID status=$1
echo $id >>BASE/marks/ran
` + boxWork + "exit $status\n"

// boxWork leaves output, and says outside before its end how it will end and what it leaves. What
// does not fit is an error of its own, and not of its output.
const boxWork = `[ $5 = alone ] || diff -r in BASE/in >/dev/null || status=99
mkdir r.$id r.$id/sub || exit 98
n=0
while [ $n -lt $2 ]; do
	head -c $3 /dev/urandom >r.$id/file$n || status=97
	n=$((n + 1))
done
: >r.$id/empty
echo $id >t.$id || status=97
ln -s ../file0 r.$id/sub/link
sleep $4
{
	echo exit $status
	find r.$id t.$id -type f | LC_ALL=C sort | xargs sha256sum
} >BASE/marks/$id.new && mv BASE/marks/$id.new BASE/marks/$id
`

// TestSandboxes has jobs leave output in sandboxes while execd, workers and shepherds are
// killed, file systems are full or read-only, and destinations are gone or closed, at
// random moments. The output arrives byte for byte; each job runs once and has one
// accounting line, whose reason is true; and nothing is left.
func TestSandboxes(t *testing.T) {
	drawSeed()
	jobs, acts := part(300, 10), part(200, 8)
	t.Logf("%d jobs, %d acts; repeat with -scale %g -seed %d", jobs, acts, *scale, *seed)
	base, err := os.MkdirTemp(top, "") //nolint:usetesting // kept when the test fails
	if err != nil {
		t.Fatal(err)
	}
	b := &boxes{
		soak: &soak{base: base, dir: filepath.Join(base, "pd"), bin: filepath.Join(base, "bin")},
		rng:  rand.New(rand.NewPCG(*seed, 2)), off: map[string]func(*testing.T){},
	}
	t.Cleanup(func() { b.cleanUp(t) })
	b.prepare(t)
	b.start(t)
	for i := range acts {
		for len(b.jobs) < jobs*(i+1)/acts {
			b.submitOne(t)
		}
		<-time.After(time.Duration(b.rng.Int64N(int64(400 * time.Millisecond))))
		b.act(t)
		if t.Failed() {
			return
		}
	}
	if undo := b.off[readOnly]; undo != nil {
		delete(b.off, readOnly)
		undo(t)
	}
	for _, undo := range b.off {
		undo(t)
	}
	b.settle(t)
	b.check(t)
	b.clean(t)
	if err := b.daemon.Stop(); err != nil {
		t.Error(err)
	}
}

func (b *boxes) cleanUp(t *testing.T) {
	if t.Failed() {
		t.Logf("what was done:\n  %s", strings.Join(b.story, "\n  "))
	}
	if b.uid != 0 {
		if b.daemon != nil {
			b.daemon.Kill()
		}
		for _, dir := range []string{dirBox, dirFar} {
			b.unmount(t, dir)
		}
	}
	b.soak.cleanUp(t)
}

// unmount unmounts a directory. When the test has failed, what is kept is to be seen without the
// mount.
func (s *soak) unmount(t *testing.T, dir string) {
	t.Helper()
	if t.Failed() {
		_ = exec.Command("cp", "-a", filepath.Join(s.base, dir)+"/.", filepath.Join(s.base, "kept-"+dir)).Run()
	}
	must(t, unix.Unmount(filepath.Join(s.base, dir), unix.MNT_DETACH))
}

// prepare makes what is needed. Root has execd in root mode and the jobs as somebody else,
// and file systems that can be full.
func (b *boxes) prepare(t *testing.T) {
	t.Helper()
	b.install(t)
	if os.Geteuid() == 0 {
		via, err := harness.OtherAccounts(filepath.Join(b.base, "etc"), "paddock", "paddock:x:61990:61990::/:/bin/sh", "soaker:x:61991:61991::/:/bin/sh")
		if err != nil {
			t.Fatal(err)
		}
		b.uid, b.mode, b.via = 61991, "-root", via
	}
	for _, dir := range []string{dirBox, dirFar} {
		path := filepath.Join(b.base, dir)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if b.uid == 0 {
			continue
		}
		if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=24m,mode=755"); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range slices.Concat(placesOfBoxes, []string{"marks"}) {
		if err := errors.Join(os.Mkdir(filepath.Join(b.base, dir), 0o755), b.give(dir)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"pd/etc/queues/all.q": "qname all.q\nslots 4\n",
		"pd/etc/hooks.conf":   "EXECUTE = " + filepath.Join(b.base, dirBox, "execute") + "\nRESERVED_DISK = 0\n",
		"job.sh":              strings.ReplaceAll(boxText, "BASE", b.base),
		"in/a":                "some input\n",
		"in/more/b":           strings.Repeat("more input\n", 10000),
	} {
		path := filepath.Join(b.base, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(b.base, dirBox, "execute"), 0o755), os.Chmod(b.base, 0o755)); err != nil {
		t.Fatal(err)
	}
}

// give gives a directory to the owner of the jobs.
func (b *boxes) give(dir string) error {
	if b.uid == 0 {
		return nil
	}
	return os.Chown(filepath.Join(b.base, dir), b.uid, b.uid)
}

// note adds to the story.
func (b *boxes) note(format string, args ...any) {
	b.story = append(b.story, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// command runs a client command, as a user or as the operator.
func (s *soak) command(uid int, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, args[0]), args[1:]...)
	cmd.Env, cmd.Dir = append(os.Environ(), "PADDOCK_DIR="+s.dir, "HOME=/"), "/"
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (b *boxes) submitOne(t *testing.T) {
	t.Helper()
	j := &boxed{place: placesOfBoxes[b.rng.IntN(len(placesOfBoxes))]}
	files, size := 1+b.rng.IntN(20), b.rng.IntN(1<<(8+b.rng.IntN(10)))
	args := []string{
		"qsub", "-terse", "-r", "n", "-wd", b.base, "-o", "/dev/null", "-j", "y", "-stageout_to", filepath.Join(b.base, j.place),
	}
	with := "alone"
	if b.rng.IntN(2) == 0 {
		with = "with"
		args = append(args, "-stagein", "in")
	}
	run := []string{
		filepath.Join(b.base, "job.sh"), strconv.Itoa([]int{0, 0, 1, 3}[b.rng.IntN(4)]), strconv.Itoa(files), strconv.Itoa(size), fmt.Sprintf("0.%d", b.rng.IntN(6)), with,
	}
	out, err := b.command(b.uid, append(args, run...)...)
	if err != nil {
		t.Fatalf("qsub: %v\n%s", err, out)
	}
	j.number = strings.TrimSpace(out)
	b.note("submitted %s: %v", j.number, run[1:])
	b.jobs = append(b.jobs, j)
}

// act does one thing, or undoes it.
func (b *boxes) act(t *testing.T) {
	t.Helper()
	place := "place " + placesOfBoxes[b.rng.IntN(len(placesOfBoxes))]
	acts := []string{"kill", "kill", "kill", "stop", "worker", "worker", "worker", "worker", "shepherd", "shepherd", "clear", "clear", "clear", "delete", place, place, place}
	if b.uid != 0 {
		acts = append(acts, "full "+dirBox, "full "+dirFar, "full "+dirFar, readOnly)
	}
	what := acts[b.rng.IntN(len(acts))]
	word, arg, _ := strings.Cut(what, " ")
	path := filepath.Join(b.base, arg)
	if what != readOnly && strings.HasPrefix(arg, dirFar) && b.off[readOnly] != nil {
		return // nothing can be done there
	}
	if undo := b.off[what]; undo != nil {
		b.note("undo %s", what)
		delete(b.off, what)
		undo(t)
		return
	}
	b.note("%s", what)
	switch word {
	case "kill":
		b.daemon.Kill()
		b.start(t)
	case "stop":
		if err := b.daemon.Stop(); err != nil {
			t.Error(err)
		}
		b.start(t)
	case "worker":
		b.killWorker(t)
	case "shepherd":
		b.killShepherd(t)
	case "clear":
		b.clear(t)
	case "delete":
		b.delete(t)
	case "place":
		b.off[what] = spoil(t, b.rng, path)
	case "full":
		b.off[what] = fill(t, path)
	case "readonly":
		if err := reconfigure(path, "ro"); err != nil {
			b.note("%v", err) // somebody writes
			return
		}
		b.off[what] = func(t *testing.T) { must(t, reconfigure(path, "rw")) }
	}
}

// reconfigure sets a flag of a file system in all mount namespaces: an execd that is
// started has its own.
func reconfigure(path, flag string) error {
	fd, err := unix.Fspick(unix.AT_FDCWD, path, unix.FSPICK_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return cmp.Or(unix.FsconfigSetFlag(fd, flag), unix.FsconfigReconfigure(fd))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// spoil takes a destination away, and perhaps has something else in its place, or closes
// it, and returns what undoes that.
func spoil(t *testing.T, rng *rand.Rand, path string) (undo func(*testing.T)) {
	t.Helper()
	away := path + ".away"
	switch kind := rng.IntN(4); kind {
	case 0, 1:
		must(t, os.Rename(path, away))
		if kind == 0 {
			return func(t *testing.T) { must(t, os.Rename(away, path)) }
		}
		err := os.WriteFile(path, nil, 0o644)
		if err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Error(err)
		}
		return func(t *testing.T) {
			err := os.Remove(path)
			if !errors.Is(err, fs.ErrNotExist) {
				must(t, err)
			}
			must(t, os.Rename(away, path))
		}
	default:
		must(t, os.Chmod(path, []os.FileMode{0, 0o555}[kind-2]))
		return func(t *testing.T) { must(t, os.Chmod(path, 0o755)) }
	}
}

// fill writes to a file system until it is full, and returns what undoes that.
func fill(t *testing.T, dir string) (undo func(*testing.T)) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) >= 512; {
		_, err := f.Write(block)
		if errors.Is(err, unix.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func(t *testing.T) { must(t, os.Remove(name)) }
}

// killWorker kills a worker, or nobody when there is none for a while. The locks of the
// sandboxes name them.
func (b *boxes) killWorker(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(time.Second)
	for time.Now().Before(deadline) {
		locks, err := filepath.Glob(filepath.Join(b.base, dirBox, "execute", "*", "lock"))
		if err != nil {
			t.Fatal(err)
		}
		for _, lock := range locks {
			text, err := os.ReadFile(lock)
			var pid int
			if _, scan := fmt.Sscan(string(text), &pid); err != nil || scan != nil {
				continue
			}
			if kill(pid, func(exe, _ string) bool { return exe == "execd-transfer" }, time.Duration(b.rng.Int64N(int64(3*time.Millisecond)))) {
				b.note("killed the worker of %s", filepath.Base(filepath.Dir(lock)))
				return
			}
		}
	}
	b.note("no worker")
}

// killShepherd kills the shepherd of a job that runs.
func (b *boxes) killShepherd(t *testing.T) {
	t.Helper()
	runs, err := os.ReadDir(filepath.Join(b.dir, "spool", "active_jobs"))
	if err != nil {
		t.Fatal(err)
	}
	processes, err := harness.Processes(b.base)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range b.rng.Perm(len(runs)) {
		for _, p := range processes {
			run := runs[i].Name()
			mine := func(exe, cwd string) bool { return exe == "shepherd" && filepath.Base(cwd) == run }
			if !kill(p.PID, mine, 0) {
				continue
			}
			b.note("killed the shepherd of %s", run)
			number, _, _ := strings.Cut(run, ".")
			for _, j := range b.jobs {
				if j.number == number {
					j.shot = true
				}
			}
			return
		}
	}
	b.note("no shepherd")
}

// kill kills a process that is, after a while, still the one that is meant, by the last
// part of its program and its working directory.
func kill(pid int, meant func(exe, cwd string) bool, after time.Duration) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if !meant(filepath.Base(exe), cwd) {
		return false
	}
	if after > 0 {
		<-time.After(after)
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// clear does what an operator does who sees errors, and looks whether these are true.
func (b *boxes) clear(t *testing.T) {
	t.Helper()
	jobs, err := b.daemon.Jobs()
	if err != nil {
		t.Fatal(err)
	}
	bad := false
	for _, j := range jobs {
		if !strings.HasPrefix(j.State, "E") {
			continue
		}
		bad = true
		b.note("%d %s: %s", j.Job, j.State, j.Reason)
		if !slices.ContainsFunc([]error{unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.EROFS, unix.ENOSPC}, func(err error) bool {
			return strings.Contains(j.Reason, err.Error())
		}) {
			t.Errorf("job %d is in state %s: %q, which nobody has caused", j.Job, j.State, j.Reason)
		}
	}
	if bad {
		if out, err := b.command(0, "qmod", "-cj", "*"); err != nil && !gone(out) {
			t.Errorf("qmod -cj: %v\n%s", err, out)
		}
	}
	queues, err := b.daemon.Queues()
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		if !strings.Contains(q.States, "E") {
			continue
		}
		// As in Grid Engine, the queue is to blame when a shepherd dies before its job.
		if reasons := strings.Join(q.Reasons, "; "); !strings.Contains(reasons, "shepherd died") || !slices.ContainsFunc(b.jobs, func(j *boxed) bool { return j.shot }) {
			t.Errorf("queue %s is in state %s: %s", q.Name, q.States, reasons)
		}
		if out, err := b.command(0, "qmod", "-cq", "*"); err != nil {
			t.Errorf("qmod -cq: %v\n%s", err, out)
		}
	}
}

// gone reports whether a command failed since what it was to do has happened by itself.
func gone(out string) bool {
	return strings.Contains(out, "does not exist") || strings.Contains(out, "invalid queue or job") || strings.Contains(out, "not in error")
}

func (b *boxes) delete(t *testing.T) {
	t.Helper()
	jobs, err := b.daemon.Jobs()
	if err != nil {
		t.Fatal(err)
	}
	if len(jobs) == 0 {
		return
	}
	victim := jobs[b.rng.IntN(len(jobs))]
	number := strconv.Itoa(victim.Job)
	boxes, _ := filepath.Glob(filepath.Join(b.base, dirBox, "execute", number+".*"))
	out, err := b.command(0, "qdel", number)
	b.note("deleted %s, which was in state %s: %s", number, victim.State, strings.TrimSpace(out))
	if err != nil && !gone(out) {
		t.Errorf("qdel: %v\n%s", err, out)
	}
	for _, j := range b.jobs {
		if j.number == number {
			j.deleted = true
			for _, box := range boxes {
				_, j.box, _ = strings.Cut(filepath.Base(box), "-")
			}
		}
	}
}

// settle waits until all jobs are over. Whoever waits for an operator has one.
func (b *boxes) settle(t *testing.T) {
	t.Helper()
	b.note("all is well again")
	last, at, pause := -1, time.Now(), 200*time.Millisecond
	var jobs []api.JobStatus
	if err := harness.WaitFor(20*time.Minute, "all jobs to be over", func() (bool, error) {
		var err error
		if jobs, err = b.daemon.Jobs(); err != nil || len(jobs) == 0 {
			return err == nil, err
		}
		if len(jobs) != last {
			last, at = len(jobs), time.Now()
		}
		if time.Since(at) > harness.Patience {
			t.Errorf("nothing has ended for %v: %+v", harness.Patience, jobs)
		}
		b.clear(t)
		<-time.After(pause)
		pause = min(2*pause, 5*time.Second)
		return t.Failed(), nil
	}); err != nil {
		t.Error(err)
	}
}

// check compares what was submitted, what ran, what arrived and what was accounted.
func (b *boxes) check(t *testing.T) {
	t.Helper()
	lines := map[string][]accounting.Record{}
	for _, line := range b.lines(t, "pd/accounting") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		r, err := accounting.Parse([]byte(line + "\n"))
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		number := strconv.Itoa(r.JobNumber)
		lines[number] = append(lines[number], r)
	}
	ran := map[string]int{}
	for _, number := range b.lines(t, "marks/ran") {
		ran[number]++
	}
	ended := map[string]int{}
	for _, j := range b.jobs {
		how, wrong := b.judge(t, j, lines[j.number], ran[j.number])
		ended[how]++
		if wrong != "" {
			var kept []string
			for _, r := range lines[j.number] {
				kept = append(kept, fmt.Sprintf("failed %d, exit status %d, reason %q", r.Failed, r.ExitStatus, r.Reason))
			}
			t.Errorf("job %s: %s: ran %d times, deleted %v, shepherd killed %v: %s", j.number, wrong, ran[j.number], j.deleted, j.shot, strings.Join(kept, "; "))
		}
		delete(lines, j.number)
		delete(ran, j.number)
	}
	if len(lines)+len(ran) > 0 {
		t.Errorf("nobody has submitted %v, %v", lines, ran)
	}
	t.Logf("%d jobs: %v", len(b.jobs), ended)
}

// judge says how a job has ended, and what of that must not be.
func (b *boxes) judge(t *testing.T, j *boxed, lines []accounting.Record, ran int) (how, wrong string) {
	t.Helper()
	said := b.lines(t, "marks/"+j.number)
	arrived, err := arrived(filepath.Join(b.base, j.place), j.number)
	if err != nil {
		return "", err.Error()
	}
	whole := len(said) > 0 && slices.Equal(said[1:], arrived)
	if len(lines) > 1 && j.shot && lines[0].Failed == 1 && strings.Contains(lines[0].Reason, "shepherd") {
		lines = lines[1:] // its shepherd died before it, and it was started again
	}
	switch {
	case ran > 1:
		return "", "ran twice"
	case len(lines) == 0 && ran == 0 && j.deleted:
		return "deleted before it ran", ""
	case len(lines) != 1:
		return "", fmt.Sprintf("has %d accounting lines", len(lines))
	}
	r := lines[0]
	switch {
	case r.Failed == 0 && len(said) == 0:
		return "", "has ended by itself, and not come to its end"
	case r.Failed == 0 && said[0] != fmt.Sprint("exit ", r.ExitStatus) && r.ExitStatus != 98:
		return "", "has ended otherwise: " + said[0]
	case r.Failed == 0 && !whole:
		return "", fmt.Sprintf("its output is\n  %s\nwhere it left\n  %s", strings.Join(arrived, "\n  "), strings.Join(said, "\n  "))
	case r.Failed == 0:
		return "arrived", ""
	case r.Failed == accounting.FailedTransfer && (!j.deleted || !strings.Contains(r.Reason, "while its output was transferred")),
		r.Failed == 100 && (!j.deleted || !strings.Contains(r.Reason, "deleted")),
		r.Failed != accounting.FailedTransfer && r.Failed != 100 && (!j.shot || !strings.Contains(r.Reason, "shepherd")):
		return "", "has failed for no reason"
	}
	for _, file := range arrived { // in part, but each file as it was left
		if !slices.Contains(said, file) {
			return "", "there is output that it did not leave: " + file
		}
	}
	if r.Failed == accounting.FailedTransfer && slices.ContainsFunc(b.lines(t, "pd.log"), func(line string) bool {
		return strings.Contains(line, "job "+j.number+".1: output that is not wanted is left") && strings.Contains(line, filepath.Join(b.base, j.place))
	}) {
		// It could not be reached, and the administrator was told where it is.
		if err := os.RemoveAll(filepath.Join(b.base, j.place, ".paddock-"+j.box+".part")); err != nil || j.box == "" {
			return "", fmt.Sprintf("of its sandbox %q something is left: %v", j.box, err)
		}
	}
	return fmt.Sprint("failed ", r.Failed), ""
}

// arrived lists the output of a job in a directory as the job does itself.
func arrived(place, id string) (list []string, err error) {
	for _, top := range []string{"r." + id, "t." + id} {
		err = cmp.Or(err, filepath.WalkDir(filepath.Join(place, top), func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case d.Type() == fs.ModeSymlink:
				if to, err := os.Readlink(path); err != nil || to != "../file0" {
					return fmt.Errorf("%s leads to %q: %v", path, to, err)
				}
			case d.Type().IsRegular():
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				name, _ := filepath.Rel(place, path)
				list = append(list, fmt.Sprintf("%x  %s", sha256.Sum256(text), name))
			}
			return nil
		}))
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Compare(a[66:], b[66:]) })
	return list, err
}

// clean looks for what is left when all jobs are over.
func (b *boxes) clean(t *testing.T) {
	t.Helper()
	var left []string
	if err := harness.WaitFor(harness.Patience, "nothing to be left", func() (bool, error) {
		left = nil
		for _, dir := range []string{"active_jobs", "corrupt", "finished", "jobs", "staging", "../../" + dirBox + "/execute"} {
			entries, err := os.ReadDir(filepath.Join(b.dir, "spool", dir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
			for _, e := range entries {
				if !strings.HasPrefix(e.Name(), ".") { // a spare, or whose sandboxes these are
					left = append(left, filepath.Join(dir, e.Name()))
				}
			}
		}
		for _, place := range placesOfBoxes {
			entries, err := os.ReadDir(filepath.Join(b.base, place))
			if err != nil {
				return false, err
			}
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), ".") {
					left = append(left, filepath.Join(place, e.Name()))
				}
			}
		}
		processes, err := harness.Processes(b.base)
		for _, p := range processes {
			if !p.OfHost() {
				left = append(left, p.String())
			}
		}
		groups, err2 := harness.GroupsLeft(b.dir)
		left = append(left, groups...)
		return len(left) == 0, errors.Join(err, err2)
	}); err != nil {
		t.Errorf("%v:\n  %s", err, strings.Join(left, "\n  "))
	}
}
