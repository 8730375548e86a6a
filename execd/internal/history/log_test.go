package history

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"paddock/classad"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/metrics"
	"paddock/spool/atomicfile"
)

// logBed is a log of a queue that has the jobs in status, by number.
type logBed struct {
	Log
	t      *testing.T
	path   string
	knobs  *knob.Set
	status map[int]string
	asked  int // how often for a job as a whole
	text   bytes.Buffer
}

func newLogBed(t *testing.T) *logBed {
	t.Helper()
	b := &logBed{t: t, path: filepath.Join(t.TempDir(), "job_queue.log"), status: map[int]string{}}
	b.set("JOB_QUEUE_LOG = " + b.path + "\n")
	b.Knobs, b.Counts = func() *knob.Set { return b.knobs }, &metrics.Counts{}
	b.Log.Log = slog.New(slog.NewTextHandler(&b.text, nil))
	b.Numbers = func() (list []int) {
		for n := range b.status {
			list = append(list, n)
		}
		return list
	}
	b.Ads = func(number, version int) (Ads, bool) {
		s, ok := b.status[number]
		if !ok {
			return Ads{}, false
		}
		ads := Ads{Version: 0, Tasks: map[int]*classad.Ad{1: b.ad("ProcId = 1\n" + s)}}
		if version != 0 {
			b.asked++
			ads.Job = b.ad(fmt.Sprintf("MyType = \"Job\"\nClusterId = %d\n", number))
		}
		return ads, true
	}
	b.Init()
	return b
}

func (b *logBed) set(text string) {
	b.t.Helper()
	knobs, problems := knob.Parse("hooks.conf", text)
	if len(problems) > 0 {
		b.t.Fatal(problems)
	}
	b.knobs = knobs
}

func (b *logBed) ad(text string) *classad.Ad {
	b.t.Helper()
	a, err := classad.ParseOld(text)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// becomes gives a job a state, or none, and has it written.
func (b *logBed) becomes(number int, status string) {
	if b.status[number] = status; status == "" {
		delete(b.status, number)
	}
	b.Changed(number)
	b.write()
}

// want compares the log, without the time in its first record.
func (b *logBed) want(want string) {
	b.t.Helper()
	data, err := os.ReadFile(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(data), "\n")
	head, _, _ = strings.Cut(head, " CreationTimestamp ")
	if got := head + "\n" + rest; got != want {
		b.t.Errorf("the log is\n%swant\n%s", got, want)
	}
}

// A change is a transaction of what differs, and a log that is begun anew has the next number.
func TestLog(t *testing.T) {
	b := newLogBed(t)
	b.status[1] = "JobStatus = 1\nHoldReason = \"a\"\n"
	b.write()
	const whole = "101 01.-1 Job Machine\n103 01.-1 ClusterId 1\n101 1.1 Job Machine\n103 1.1 ProcId 1\n103 1.1 JobStatus 1\n103 1.1 HoldReason \"a\"\n"
	b.want("107 1\n" + whole)
	b.becomes(1, "JobStatus = 2\n")
	b.Changed(1)
	b.write() // nothing has changed
	b.becomes(1, "")
	b.want("107 1\n" + whole + "105 \n103 1.1 JobStatus 2\n104 1.1 HoldReason\n106 \n105 \n102 1.1\n102 01.-1\n106 \n")
	if b.asked != 1 {
		t.Errorf("the job as a whole was asked for %d times", b.asked)
	}
	if len(b.jobs) > 0 {
		t.Error("a job that is over is remembered")
	}
	again := newLogBed(t)
	again.path = b.path
	again.set("JOB_QUEUE_LOG = " + b.path + "\n")
	again.write()
	again.want("107 2\n")
	if b.text.Len()+again.text.Len() > 0 {
		t.Error(b.text.String(), again.text.String())
	}
}

// Without the knob nothing is noted, and with it from then on.
func TestLogOff(t *testing.T) {
	b := newLogBed(t)
	b.set("")
	b.write()
	b.becomes(1, "JobStatus = 1\n")
	if len(b.changed) > 0 || b.asked > 0 {
		t.Error("a change is noted that nobody wants to know")
	}
	b.set("JOB_QUEUE_LOG = " + b.path + "\n")
	b.write()
	b.becomes(1, "")
	b.set("")
	b.write()
	b.becomes(2, "JobStatus = 1\n")
	if len(b.changed) > 0 || b.jobs != nil {
		t.Error("a change is noted after all")
	}
	b.want("107 1\n101 01.-1 Job Machine\n103 01.-1 ClusterId 1\n101 1.1 Job Machine\n103 1.1 ProcId 1\n103 1.1 JobStatus 1\n105 \n102 1.1\n102 01.-1\n106 \n")
}

// The log does not grow beyond a bound, whatever happens, nor what is noted while it cannot be
// written.
func TestLogBound(t *testing.T) {
	b := newLogBed(t)
	for n := range 10 {
		b.status[n+1] = "JobStatus = 1\n"
	}
	b.write()
	long := strings.Repeat("x", 1000)
	for i := range 3000 {
		b.becomes(1, fmt.Sprintf("HoldReason = \"%s%d\"\n", long, i))
		if b.size > compactAbove+4*b.base {
			t.Fatalf("the log has %d bytes", b.size)
		}
	}
	if b.number != 3 {
		t.Errorf("it was begun anew %d times", b.number)
	}
	for n := range 2 * maxChanged {
		b.Changed(n)
	}
	if n := len(b.changed); n > maxChanged {
		t.Errorf("%d changes are noted", n)
	}
	b.write()
	if b.number != 4 {
		t.Error("it was not begun anew when changes were lost")
	}
	if b.text.Len() > 0 {
		t.Error(b.text.String())
	}
}

// REQ-FLOW-109: a change that cannot be told is counted, and the log is begun anew when it can
// be written again, since who follows it has missed something.
func TestLogFull(t *testing.T) {
	b := newLogBed(t)
	b.write()
	full := true
	defer atomicfile.Inject(func(op atomicfile.Op, path string) error {
		if full && op == atomicfile.OpWrite && strings.HasPrefix(path, b.path) {
			return syscall.ENOSPC
		}
		return nil
	})()
	b.becomes(1, "JobStatus = 1\n")
	b.becomes(1, "JobStatus = 2\n")
	b.want("107 1\n")
	if n := b.Counts.Dropped(metrics.ToLog); n != 2 {
		t.Errorf("%d were dropped", n)
	}
	full = false
	b.write()
	b.want("107 2\n101 01.-1 Job Machine\n103 01.-1 ClusterId 1\n101 1.1 Job Machine\n103 1.1 ProcId 1\n103 1.1 JobStatus 2\n")
	if left, _ := filepath.Glob(b.path + ".*"); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
	if log := b.text.String(); strings.Count(log, "no space left") != 1 || !strings.Contains(log, "written again") {
		t.Error(log)
	}
}

// A file that is no log is left alone, and one that somebody else has moved away or written to
// is begun anew.
func TestLogForeign(t *testing.T) {
	b := newLogBed(t)
	if err := os.WriteFile(b.path, []byte("root:x:0:0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.write()
	if data, _ := os.ReadFile(b.path); string(data) != "root:x:0:0\n" {
		t.Errorf("another file was written:\n%s", data)
	}
	if err := os.Remove(b.path); err != nil {
		t.Fatal(err)
	}
	b.write()
	if err := os.Rename(b.path, b.path+".1"); err != nil {
		t.Fatal(err)
	}
	b.becomes(1, "JobStatus = 1\n")
	b.write() // tried again
	b.want("107 2\n101 01.-1 Job Machine\n103 01.-1 ClusterId 1\n101 1.1 Job Machine\n103 1.1 ProcId 1\n103 1.1 JobStatus 1\n")
	if err := os.Remove(b.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(b.path+".1", b.path); err != nil {
		t.Fatal(err)
	}
	b.becomes(1, "JobStatus = 2\n")
	if data, _ := os.ReadFile(b.path + ".1"); strings.Contains(string(data), "JobStatus") {
		t.Error("a link was followed")
	}
}
