package vm

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/execd/api/accounting"
	"paddock/test/harness"
)

var (
	scale = flag.Float64("scale", 0.1, "size: 1 means 100 power cuts")
	seed  = flag.Uint64("seed", 0, "of the moments at which the power fails; 0 takes one from the clock")
)

// diskScript is what the first process of a machine whose power fails begins with, in the
// directory /tmp at its end.
const diskScript = `mkdir -p /var/tmp ` + mounted + `
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t devtmpfs dev /dev
dmesg -n 1 # or the kernel writes in the middle of our lines
mount -t tmpfs tmpfs /tmp
chmod 1777 /tmp
hostname guest
for m in /modules/*.ko; do insmod $m; done
mount -t ext4 -o errors=remount-ro /dev/vda ` + mounted + ` || echo '` + said + `bad cannot mount the disk'
cd /tmp
`

// powerScript is the first process of the machine of TestPowerCuts.
const powerScript = `#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ PADDOCK_DIR=` + dir + `
mkdir -p /home/alice
chown alice /home/alice
` + diskScript + programs + `/vm.test ` + loadWord + `
poweroff -f
`

// powerCuts returns how many power cuts a test has, of so many at full size, and the source of what
// happens by chance.
func powerCuts(t *testing.T, full float64, stream uint64) (cuts int, rng *rand.Rand) {
	t.Helper()
	if os.Getenv("PADDOCK_VM") != "1" {
		t.Skip("boots machines under qemu, and installs that: needs PADDOCK_VM=1 (make soak)")
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	cuts = max(1, int(full*(*scale)+0.5))
	t.Logf("%d power cuts; repeat with -scale %g -seed %d", cuts, *scale, *seed)
	return cuts, rand.New(rand.NewPCG(*seed, stream))
}

// TestPowerCuts has the power of a machine fail at random moments while jobs
// are submitted, run, end and are deleted, and while execd recovers from the
// cut before. What was acknowledged is there after the next start, no run is
// accounted for twice, and nothing that may run once has run twice.
func TestPowerCuts(t *testing.T) {
	cuts, rng := powerCuts(t, 100, 0)

	p := &plant{t: t, base: t.TempDir(), tasks: map[string]*task{}}
	p.prepare()
	for n := range cuts {
		operations := 1 + rng.IntN(longest)
		p.boot(operations)
		probability := []float64{0, 0.5, 1}[rng.IntN(3)]
		unflushed, lost := p.disk.lose(rng, probability)
		t.Logf("cut %d: after %d operations, %d of %d unflushed sectors lost; %s", n+1, operations, lost, unflushed, strings.Join(p.story, "; "))
		if t.Failed() {
			return
		}
	}
	p.boot(0)
	t.Logf("%s", strings.Join(p.story, "; "))
	t.Logf("%d acknowledged jobs, %d runs accounted for, %d marks of tasks that ran again", p.acknowledged, p.runs, p.twice)
	if p.runs == 0 {
		t.Error("nothing was accounted for")
	}
}

// longest bounds the writes and flushes of the disk until the power fails.
const longest = 600

// plant is a disk, and what the machines that had it said.
type plant struct {
	t    *testing.T
	base string
	disk *disk

	tasks        map[string]*task // by JOB.TASK; acknowledged, accounted for or marked
	acknowledged int              // jobs
	text         [2]string        // of accounting file and marks; as far as compared
	runs, twice  int              // see verify

	// Of the latest machine.
	news    [2]string // what the files have more
	story   []string
	settled bool
	last    bool
}

// task is what is known of one.
type task struct {
	kind  string // see submitAll; empty: not acknowledged
	gone  bool   // its deletion was acknowledged
	lines []accounting.Record
	marks int
}

func (p *plant) task(id string) *task {
	k := p.tasks[id]
	if k == nil {
		k = &task{}
		p.tasks[id] = k
	}
	return k
}

// prepare makes the disk, with the programs on it, and the machine's first
// files.
func (p *plant) prepare() {
	content, root := filepath.Join(p.base, "content"), filepath.Join(p.base, "root")
	for name, text := range map[string]string{
		"content/pd/etc/queues/all.q": "qname all.q\nslots 4\ntmpdir " + mounted + "/tmp\n",
		"content/pd/etc/hooks.conf":   "RESERVED_DISK = 0\n",
		"content/marker.sh":           marker,
		"content/marks":               "",
		"root/init":                   powerScript, "root/bin/getent": getent, "root/etc/passwd": passwd, "root/etc/group": group,
	} {
		path := filepath.Join(p.base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
	bin := filepath.Join(content, "paddock")
	if err := harness.Build(bin); err != nil {
		p.t.Fatal(err)
	}
	for _, err := range []error{
		harness.BuildTest(filepath.Join(bin, "vm.test"), "."),
		os.Symlink(mounted+programs, root+programs),
		os.Mkdir(content+"/tmp", 0o755),
		os.Mkdir(content+"/out", 0o755),
		os.Chmod(content+"/out", 0o777),
		os.Chmod(content+"/tmp", 0o1777|os.ModeSticky),
		os.Chmod(content+"/marks", 0o666),
		os.Chmod(root, 0o755),
	} {
		if err != nil {
			p.t.Fatal(err)
		}
	}
	p.disk = diskOf(p.t, content, "128M")
}

// diskOf returns a disk with a directory on it.
func diskOf(t *testing.T, content, size string) *disk {
	image := filepath.Join(t.TempDir(), "image")
	// Nothing is left to the kernel, which would write while the test counts.
	mkfs := exec.Command("mkfs.ext4", "-q", "-b", strconv.Itoa(sector), "-d", content, "-E", "root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0", image, size)
	mkfs.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := mkfs.CombinedOutput(); err != nil {
		t.Fatalf("cannot make the disk: %v\n%s", err, out)
	}
	data, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	return newDisk(data)
}

// boot runs a machine until the power fails after so many operations of the
// disk, or, when that is 0, until it has compared everything.
func (p *plant) boot(operations int) {
	p.story, p.settled, p.last, p.news = nil, false, operations == 0, [2]string{}
	files := fmt.Sprintln(len(p.text[0]), len(p.text[1]), p.last)
	if err := os.WriteFile(filepath.Join(p.base, "root", sofar), []byte(files), 0o644); err != nil {
		p.t.Fatal(err)
	}
	runUntil(p.t, p.base, p.disk, operations, p.hear)
	if p.last && !p.settled {
		p.t.Error("the last machine has not compared everything")
	}
}

// runUntil runs a machine, whose root is in base, until the power fails after so many operations of its
// disk, or, when that is 0, until it ends. What it says is heard, a line at a time.
func runUntil(t *testing.T, base string, d *disk, operations int, hear func(string), env ...string) {
	socket, pidfile := filepath.Join(base, "nbd"), filepath.Join(base, "pid")
	listen, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	off := d.powerOn(operations)
	served := make(chan error, 1)
	go func() {
		conn, err := listen.Accept()
		if err == nil {
			err = d.serve(conn)
		}
		served <- err
	}()

	machine := exec.Command("./vm", "run", filepath.Join(base, "root"), "nbd:unix:"+socket)
	machine.Env = append(append(os.Environ(), "VM_PIDFILE="+pidfile, "VM_TIMEOUT=1200"), env...)
	console, err := machine.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints strings.Builder
	machine.Stderr = &complaints
	if err := machine.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	cut := make(chan bool, 1)
	go func() {
		select {
		case <-off:
			if err := killMachine(pidfile); err != nil {
				t.Errorf("cannot kill the machine: %v", err)
			}
			cut <- true
		case <-over:
			cut <- false
		}
	}()
	var all strings.Builder
	for lines := bufio.NewReader(console); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // half a line says nothing
		}
		all.WriteString(line)
		if _, text, ok := strings.Cut(line, said); ok {
			hear(strings.TrimRight(text, "\r\n"))
		}
	}
	err = machine.Wait()
	close(over)
	listen.Close()
	if fell := <-cut; fell == (operations == 0) || err != nil {
		t.Errorf("the machine ended by itself: %v (%v)", !fell, err)
	}
	if err := <-served; !errors.Is(err, errPower) && !errors.Is(err, io.EOF) && err != nil {
		t.Errorf("the disk: %v", err)
	}
	if t.Failed() {
		t.Logf("the console:\n%s%s", strings.ReplaceAll(all.String(), "\r", ""), &complaints)
	}
}

// killMachine kills the qemu that has written its process id.
func killMachine(pidfile string) error {
	text, err := os.ReadFile(pidfile)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// hear takes in what the machine says.
func (p *plant) hear(text string) {
	word, rest, _ := strings.Cut(text, " ")
	f := strings.Fields(rest)
	switch {
	case word == "up" || word == "before" || word == "ready":
		p.story = append(p.story, text)
	case word == "accounting":
		p.news[0] += rest + "\n"
	case word == "marks":
		p.news[1] += rest + "\n"
	case word == "sum" && len(f) == 2:
		i := map[string]int{"accounting": 0, "marks": 1}[f[0]]
		if want := fmt.Sprintf("%x", sha256.Sum256([]byte(p.text[i]))); f[1] != want {
			p.t.Errorf("what was in %s before has changed", f[0])
		}
	case word == "settled":
		p.settled = true
		p.story = append(p.story, text)
		p.verify()
	case word == "cut":
		if !strings.Contains(rest, "the host was restarted while the job ran") {
			p.t.Errorf("the reason does not name the restart: %s", rest)
		}
	case word == "ack" && len(f) == 3:
		p.acknowledge(f[0], f[1], f[2])
	case word == "gone" && len(f) == 1:
		p.task(f[0] + ".0").gone = true
	default:
		p.t.Errorf("the machine says: %s", text)
	}
}

func (p *plant) acknowledge(number, kind, tasks string) {
	n, _ := strconv.Atoi(number)
	count, _ := strconv.Atoi(tasks)
	for i := range count {
		if count > 1 {
			i++
		}
		k := p.task(fmt.Sprintf("%d.%d", n, i))
		if k.kind != "" || len(k.lines) > 0 || k.marks > 0 {
			p.t.Errorf("job %d was acknowledged, and was there before", n)
		}
		k.kind = kind
	}
	p.acknowledged++
}

// verify takes in what the files have more, and looks at all tasks.
func (p *plant) verify() {
	for line := range strings.Lines(p.news[0]) {
		if line[0] == '#' {
			continue
		}
		r, err := accounting.Parse([]byte(line))
		if err != nil {
			p.t.Errorf("%v: %s", err, line)
			continue
		}
		k := p.task(fmt.Sprintf("%d.%d", r.JobNumber, r.TaskNumber))
		k.lines = append(k.lines, r)
		if k.kind != "" && k.kind != r.JobName {
			p.t.Errorf("job %d of kind %s is accounted for as %s", r.JobNumber, k.kind, r.JobName)
		}
	}
	for line := range strings.Lines(p.news[1]) {
		if id := marked(line); id != "" {
			p.task(id).marks++
		}
	}
	for i := range p.text {
		p.text[i] += p.news[i]
	}
	p.runs, p.twice = 0, 0
	for _, id := range slices.Sorted(maps.Keys(p.tasks)) {
		k := p.tasks[id]
		p.runs += len(k.lines)
		p.twice += max(0, k.marks-1)
		if wrong := k.wrong(); wrong != "" {
			p.t.Errorf("task %s: %s: %+v", id, wrong, *k)
		}
	}
}

// mark is a line of the marks.
var mark = regexp.MustCompile(`^\d+\.(\d+|undefined)$`)

// marked returns the task that a line of the marks names, empty: none. What a job
// was writing when the power failed may be there as zeros, and the next mark
// stands behind them, or as a piece, up to the end of a page.
func marked(line string) string {
	line = strings.TrimSpace(line[strings.LastIndexByte(line, 0)+1:])
	if !mark.MatchString(line) {
		return ""
	}
	return strings.Replace(line, "undefined", "0", 1)
}

func TestMarked(t *testing.T) {
	for line, want := range map[string]string{"18.3\n": "18.3", "7.undefined\n": "7.0", "\x00\x00\x0022.undefined\n": "22.0", "21.\x00\x00\n": "", "118.\n": "", "18.und\n": ""} {
		if got := marked(line); got != want {
			t.Errorf("marked(%q): got %q; want %q", line, got, want)
		}
	}
}

// wrong tells what must not be of a task that is over.
func (k *task) wrong() string {
	kind := k.kind
	if len(k.lines) > 0 {
		kind = k.lines[0].JobName
	}
	ended := false
	for _, r := range k.lines {
		switch {
		case ended:
			return "was accounted for after its end"
		case r.Failed != 0 && r.Failed != 19:
			return "has failed for another reason than the power cut"
		case r.Failed == 0 && k.marks == 0:
			return "has ended well, and not run"
		}
		// A run that was cut short before its end is repeated.
		ended = kind != "y" || r.Failed == 0 || r.StartTime != 0
	}
	switch {
	case kind == "":
		return "was marked, and neither acknowledged nor accounted for"
	case k.gone && (len(k.lines) > 0 || k.marks > 0):
		return "was deleted before it ran, and ran"
	case kind == "h" && len(k.lines) == 0 && k.marks == 0:
		return "" // deleted, or about to be
	case !ended:
		return "has not ended"
	case kind != "y" && k.marks > 1:
		return "may run once, and ran again"
	}
	return ""
}
