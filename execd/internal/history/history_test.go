package history

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/classad"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/metrics"
	"paddock/spool/atomicfile"
)

// bed is a history of a test.
type bed struct {
	*File
	t    *testing.T
	path string
	log  bytes.Buffer
}

func newBed(t *testing.T, more string) *bed {
	t.Helper()
	b := &bed{t: t, path: filepath.Join(t.TempDir(), "history")}
	knobs, problems := knob.Parse("hooks.conf", "HISTORY = "+b.path+"\n"+more)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	b.File = &File{Knob: KnobHistory, Knobs: func() *knob.Set { return knobs }, Arrow: metrics.ToHistory, Counts: &metrics.Counts{}}
	b.Log = slog.New(slog.NewTextHandler(&b.log, nil))
	return b
}

// job writes the ad of a job.
func (b *bed) job(number int) {
	b.t.Helper()
	a, err := classad.ParseOld(fmt.Sprintf("ClusterId = %d\nProcId = 1\nOwner = \"anna\"\nCompletionDate = 1000\nEnvironment = \"SECRET=1\"\nClaimId = \"secret\"\n", number))
	if err != nil {
		b.t.Fatal(err)
	}
	b.Write(a)
}

// records reads a history as other programs do: forward, and from the end by the offsets.
// It returns the numbers of the jobs.
func records(t *testing.T, path string) (numbers []int64) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var body strings.Builder
	var banners []int64
	at := int64(0)
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "***") {
			banners = append(banners, at)
			a, err := classad.ParseOld(body.String())
			if err != nil {
				t.Fatalf("record %d: %v", len(banners), err)
			}
			n, _ := (&classad.Env{My: a}).Attr("ClusterId").Int()
			numbers = append(numbers, n)
			body.Reset()
		} else {
			body.WriteString(line)
		}
		at += int64(len(line))
	}
	if body.Len() > 0 {
		t.Errorf("%d bytes have no banner", body.Len())
	}
	for i, at := range slices.Backward(banners) {
		var before, cluster, proc, done, now int64
		var owner string
		line, _, _ := strings.Cut(string(data[at:]), "\n")
		if _, err := fmt.Sscanf(line, "*** Offset = %d ClusterId = %d ProcId = %d Owner = %q CompletionDate = %d CurrentTime = %d", &before, &cluster, &proc, &owner, &done, &now); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		want := int64(0)
		if i > 0 {
			want = banners[i-1]
		}
		if before != want || cluster != numbers[i] || proc != 1 || owner != "anna" || done != 1000 || now < 1000 {
			t.Errorf("banner %d: %q, want offset %d", i, line, want)
		}
	}
	return numbers
}

// A history has the ads without their secrets, each found from the next, for all to read.
func TestFile(t *testing.T) {
	b := newBed(t, "")
	b.job(1)
	b.job(2)
	b.left = place{} // as after a restart
	b.job(3)
	if diff := cmp.Diff([]int64{1, 2, 3}, records(t, b.path)); diff != "" {
		t.Error(diff)
	}
	data, _ := os.ReadFile(b.path)
	if strings.Contains(strings.ToLower(string(data)), "secret") {
		t.Errorf("secrets are told:\n%s", data)
	}
	if info, err := os.Stat(b.path); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if b.log.Len() > 0 || b.Counts.Dropped(metrics.ToHistory) != 0 {
		t.Error(b.log.String())
	}
}

// Half a record, as a power cut leaves it, is taken away, and what is no history is left alone.
func TestTorn(t *testing.T) {
	for _, torn := range []string{"ClusterId = 9\nProcId", "ClusterId = 9\nProcId = 1\n", "ClusterId = 9\n*** Offset = 17"} {
		b := newBed(t, "")
		b.job(1)
		if err := atomicfile.Append(b.path, []byte(torn), 0o644); err != nil {
			t.Fatal(err)
		}
		b.job(2)
		if diff := cmp.Diff([]int64{1, 2}, records(t, b.path)); diff != "" {
			t.Errorf("%q: %s", torn, diff)
		}
	}
	b := newBed(t, "")
	if err := os.WriteFile(b.path, []byte("root:x:0:0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.job(1)
	if data, _ := os.ReadFile(b.path); string(data) != "root:x:0:0\n" {
		t.Errorf("another file was written:\n%s", data)
	}
	if !strings.Contains(b.log.String(), "is no history") || b.Counts.Dropped(metrics.ToHistory) != 1 {
		t.Error(b.log.String())
	}
}

// A history that is full gets another name, and the oldest is removed.
func TestRotate(t *testing.T) {
	b := newBed(t, "MAX_HISTORY_LOG = 500\nMAX_HISTORY_ROTATIONS = 2\n")
	dir := filepath.Dir(b.path)
	for _, name := range []string{"history.20200101T000000", "history.20210101T000000", "history.other", "history2"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 12 {
		b.job(n)
	}
	old, err := rotated(b.path)
	if err != nil || len(old) != 2 {
		t.Fatalf("%q %v", old, err)
	}
	var all []int64
	for _, path := range append(old, b.path) {
		if info, err := os.Stat(path); err != nil || info.Size() > 500+200 {
			t.Errorf("%s has %d bytes: %v", path, info.Size(), err)
		}
		all = append(all, records(t, path)...)
	}
	for i, n := range all {
		if n != int64(12-len(all)+i) {
			t.Errorf("records of jobs %d, want the last", all)
			break
		}
	}
	for _, name := range []string{"history.other", "history2"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if b.log.Len() > 0 {
		t.Error(b.log.String())
	}
}

// REQ-FLOW-31: what cannot be written to the history is dropped.
// REQ-FLOW-33: nor to that of the host.
// REQ-FLOW-109: what is dropped is counted.
//
// It is told once, and the record that was begun is taken back.
func TestDropped(t *testing.T) {
	b := newBed(t, "")
	b.job(1)
	full := true
	defer atomicfile.Inject(func(op atomicfile.Op, path string) error {
		if full && op == atomicfile.OpWrite && path == b.path {
			return syscall.ENOSPC
		}
		return nil
	})()
	b.job(2)
	b.job(3)
	if n := b.Counts.Dropped(metrics.ToHistory); n != 2 {
		t.Errorf("%d were dropped, want 2", n)
	}
	full = false
	b.job(4)
	if diff := cmp.Diff([]int64{1, 4}, records(t, b.path)); diff != "" {
		t.Error(diff)
	}
	if log := b.log.String(); strings.Count(log, "no space left") != 1 || !strings.Contains(log, "written again") {
		t.Error(log)
	}
}

// Nobody else can have a history written elsewhere, or in his own files.
func TestHostile(t *testing.T) {
	for name, prepare := range map[string]func(path string) error{
		"a link": func(path string) error { return os.Symlink(path+".victim", path) },
		"a second name": func(path string) error {
			return os.Link(path+".victim", path)
		},
		"a pipe":              func(path string) error { return syscall.Mkfifo(path, 0o666) },
		"a directory of all":  func(path string) error { return os.Chmod(filepath.Dir(path), 0o777) },
		"a sticky directory":  func(path string) error { return os.Chmod(filepath.Dir(path), 0o777|os.ModeSticky) },
		"a file of another":   func(path string) error { return another(path) },
		"another's directory": func(path string) error { return another(filepath.Dir(path)) },
	} {
		b := newBed(t, "")
		victim := b.path + ".victim"
		if err := os.WriteFile(victim, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(name, "another") && os.Geteuid() != 0 {
			t.Logf("%s: a file of another user needs root", name)
			continue
		}
		if err := prepare(b.path); err != nil {
			t.Fatal(err)
		}
		b.job(1)
		if info, err := os.Stat(victim); err != nil || info.Size() > 0 {
			t.Errorf("%s: the victim was written", name)
		}
		if info, err := os.Lstat(b.path); err == nil && info.Size() > 0 && info.Mode().IsRegular() {
			t.Errorf("%s: it was written", name)
		}
		if b.Counts.Dropped(metrics.ToHistory) != 1 {
			t.Errorf("%s: nothing was dropped: %s", name, b.log.String())
		}
	}
}

// another gives a file, which is made, or a directory to another user.
func another(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE, 0o666)
	if err == nil {
		f.Close()
	}
	return os.Chown(path, 12345, 12345)
}

// execd -t says which files would not be written.
func TestProblems(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("elsewhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ text, want string }{
		{"HISTORY = D/history\nSTARTD_HISTORY = D/startd_history", ""},
		{"HISTORY =\n", ""},
		{"HISTORY = history\n", `hooks.conf:1: HISTORY: "history" is no absolute path`},
		{"HISTORY = D/h\nSTARTD_HISTORY = D/./h\n", `hooks.conf:2: STARTD_HISTORY: it is the file of HISTORY`},
		{"STARTD_HISTORY = D/none/h\n", `hooks.conf:1: STARTD_HISTORY: cannot write D/none/h: no such file or directory`},
		{"STARTD_HISTORY = D/open/h\n", `hooks.conf:1: STARTD_HISTORY: cannot write D/open/h: mode 0777 lets everybody write to D/open`},
		{"HISTORY = D/link\n", `hooks.conf:1: HISTORY: cannot write D/link: not a regular file`},
		{"HISTORY = D/open\n", `hooks.conf:1: HISTORY: cannot write D/open: not a regular file`},
	} {
		knobs, problems := knob.Parse("hooks.conf", strings.ReplaceAll(tt.text, "D/", dir+"/"))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		var got []string
		for _, p := range Problems(knobs) {
			got = append(got, strings.ReplaceAll(p.String(), dir+"/", "D/"))
		}
		if strings.Join(got, "\n") != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
}
