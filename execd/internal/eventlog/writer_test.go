package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"paddock/classad"
	"paddock/execd/internal/asuser"
	"paddock/execd/internal/eventlog"
	"paddock/execd/internal/user"
	"paddock/test/props"
)

// files are files in memory, whose writes may fail, before or after something
// is written.
type files struct {
	mu     sync.Mutex
	text   map[string]string
	writes int
	fail   error // of the next write
	late   bool  // it fails when all is written
	wait   chan struct{}
}

func (f *files) AppendAs(ctx context.Context, _ *user.User, path string, data []byte) error {
	if _, ok := ctx.Deadline(); !ok {
		return errors.New("no limit of time")
	}
	if f.wait != nil {
		<-f.wait
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.text == nil {
		f.text = make(map[string]string)
	}
	f.writes++
	err := f.fail
	f.fail = nil
	if err == nil || f.late {
		f.text[path] += string(data)
	}
	return err
}

func (f *files) WriteAs(_ context.Context, _ *user.User, path string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text = map[string]string{path: string(data)}
	return f.fail
}

func (f *files) Tail(_ context.Context, _ *user.User, path string, n int) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, ok := f.text[path]
	if !ok {
		return nil, os.ErrNotExist
	}
	return []byte(text[max(len(text)-n, 0):]), nil
}

func entry() eventlog.Entry {
	return eventlog.Entry{Path: "/home/log", Activation: "h/3.1.2", Cluster: 3, Proc: 1}
}

// REQ-EXIT-38: an event is written once over any number of tries, and of those
// that fail the next one writes it.
func TestWriterOnce(t *testing.T) {
	f := &files{fail: errors.New("full")}
	l := &eventlog.Writer{Files: f}
	ended := eventlog.Terminated{ReturnValue: 1}
	if err := l.Write(t.Context(), entry(), ended); err == nil || err.Error() != "full" {
		t.Errorf("the first try: %v; want why it failed", err)
	}
	for range 3 {
		if err := l.Write(t.Context(), entry(), ended); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Count(f.text["/home/log"], "Job terminated.\n"); got != 1 || f.writes != 2 {
		t.Errorf("the event stands there %d times after %d writes; want 1 after 2", got, f.writes)
	}
	// What happens twice is two events, and so is the same one of another run.
	for _, seq := range []int{1, 2, 2, 1} {
		e := entry()
		e.Seq = seq
		if err := l.Write(t.Context(), e, eventlog.Suspended{Processes: 1}); err != nil {
			t.Error(err)
		}
	}
	other := entry()
	other.Activation = "h/3.1.3"
	if err := l.Write(t.Context(), other, ended); err != nil {
		t.Error(err)
	}
	for id, want := range map[string]int{"h/3.1.2#005": 1, "h/3.1.2#010.1": 1, "h/3.1.2#010.2": 1, "h/3.1.3#005": 1} {
		if got := strings.Count(f.text["/home/log"], "\tEventId: "+id+"\n"); got != want {
			t.Errorf("%s stands there %d times; want %d", id, got, want)
		}
	}
	// Without an activation nothing is remembered.
	anon := entry()
	anon.Activation = ""
	for range 2 {
		if err := l.Write(t.Context(), anon, eventlog.Generic{Text: "anything"}); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Count(f.text["/home/log"], "anything"); got != 2 {
		t.Errorf("it stands there %d times; want 2", got)
	}
	before := f.writes
	l.Forget("h/3.1.2")
	if err := l.Write(t.Context(), entry(), ended); err != nil || f.writes != before+1 {
		t.Errorf("what was forgotten was written %d times, %v", f.writes-before, err)
	}
}

// REQ-EXIT-38: an event that an earlier execd has written is not written again,
// in whatever form, unless it was cut off.
func TestWriterAgain(t *testing.T) {
	for _, form := range []eventlog.Form{eventlog.Text, eventlog.XML, eventlog.JSON} {
		e := entry()
		e.Form = form
		f := &files{text: map[string]string{"/home/log": strings.Repeat("something else\n", 10000)}, fail: errors.New("killed"), late: true}
		if err := (&eventlog.Writer{Files: f}).Write(t.Context(), e, eventlog.Aborted{Reason: "x"}); err == nil {
			t.Error("no error")
		}
		whole := f.text["/home/log"]
		e.Again = true
		if err := (&eventlog.Writer{Files: f}).Write(t.Context(), e, eventlog.Aborted{Reason: "x"}); err != nil || f.text["/home/log"] != whole {
			t.Errorf("form %d: %v; written again", form, err)
		}
		other := e
		other.Proc++
		if err := (&eventlog.Writer{Files: f}).Write(t.Context(), other, eventlog.Aborted{Reason: "x"}); err != nil || f.text["/home/log"] == whole {
			t.Errorf("form %d: %v; another's event was taken for it", form, err)
		}
		f.text["/home/log"] = whole[:len(whole)-2]
		if err := (&eventlog.Writer{Files: f}).Write(t.Context(), e, eventlog.Aborted{Reason: "x"}); err != nil || len(f.text["/home/log"]) < len(whole) {
			t.Errorf("form %d: %v; what was cut off was not written again", form, err)
		}
	}
	e := entry()
	e.Again = true
	f := &files{}
	if err := (&eventlog.Writer{Files: f}).Write(t.Context(), e, eventlog.Resumed{}); err != nil || f.writes != 1 {
		t.Errorf("without a log: %d writes, %v", f.writes, err)
	}
}

// Two who tell of the same event at the same time write it once, and both know
// when it is there.
func TestWriterTogether(t *testing.T) {
	f := &files{wait: make(chan struct{})}
	l := &eventlog.Writer{Files: f}
	results := make(chan error)
	const tellers = 4
	for range tellers {
		go func() { results <- l.Write(t.Context(), entry(), eventlog.Resumed{}) }()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	select {
	case err := <-results:
		t.Errorf("told before it was written: %v", err)
	default:
	}
	close(f.wait)
	for range tellers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if f.writes != 1 {
		t.Errorf("%d writes; want 1", f.writes)
	}
	if err := l.Write(ctx, entry(), eventlog.Resumed{}); err != nil {
		t.Errorf("what is written is an error: %v", err)
	}
}

func TestWriterPaths(t *testing.T) {
	f := &files{}
	l := &eventlog.Writer{Files: f}
	ad := classad.New(classad.Attr{Name: "A", Expr: classad.Int(1).Expr()}, classad.Attr{Name: "ClaimId", Expr: classad.String("secret").Expr()})
	for path, want := range map[string]string{"": "", "/dev/null": "", "log": `"log": not an absolute path`, "~/log": `"~/log": not an absolute path`} {
		e := entry()
		e.Path = path
		for what, err := range map[string]error{
			"cannot write event log ": l.Write(t.Context(), e, eventlog.Resumed{}),
			"cannot write output ad ": l.OutputAd(t.Context(), nil, path, ad),
		} {
			if want == "" && err != nil || want != "" && (err == nil || err.Error() != what+want) {
				t.Errorf("%q: %v; want %q", path, err, want)
			}
		}
	}
	if len(f.text) > 0 {
		t.Errorf("written: %q", f.text)
	}
	if err := l.OutputAd(t.Context(), nil, "/home/ad", ad); err != nil || f.text["/home/ad"] != "A = 1\n" {
		t.Errorf("the ad is %q, %v; want it without what is secret", f.text["/home/ad"], err)
	}
	f.fail = errors.New("no")
	if err := l.OutputAd(t.Context(), nil, "/home/ad", ad); err == nil || err.Error() != "no" {
		t.Errorf("OutputAd = %v", err)
	}
	f.fail = nil
	large := eventlog.Evicted{}
	for range 100 {
		large.Resources = append(large.Resources, eventlog.Resource{Name: strings.Repeat("&", 4000)})
	}
	e := entry()
	e.Form = eventlog.XML
	if err := l.Write(t.Context(), e, large); err == nil || !strings.Contains(err.Error(), "a record of") {
		t.Errorf("a record that is too large: %v", err)
	}
}

// Logs and ads are written by the real shepherd with their owner's rights:
// records in order, the ad beside them, and nothing where he may not write.
func TestWriterReal(t *testing.T) {
	dir, err := os.MkdirTemp("", "eventlog") //nolint:usetesting // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	shepherd := filepath.Join(dir, "shepherd")
	if err := props.Build(shepherd); err != nil {
		t.Fatal(err)
	}
	owner := &user.User{Name: "somebody", UID: os.Getuid(), GID: os.Getgid()}
	if os.Getuid() == 0 {
		owner.UID, owner.GID = 54321, 54322
	}
	home, roots := filepath.Join(dir, "home"), filepath.Join(dir, "roots")
	for _, d := range []string{home, roots} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]os.FileMode{dir: 0o755, shepherd: 0o755, roots: 0o555} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getuid() == 0 {
		if err := os.Chown(home, owner.UID, owner.GID); err != nil {
			t.Fatal(err)
		}
	}
	l := &eventlog.Writer{Files: &asuser.Starter{Shepherd: shepherd}}
	e := entry()
	e.Owner, e.Path = owner, filepath.Join(home, "log")
	for _, b := range []eventlog.Body{
		eventlog.Executing{Host: "h"}, eventlog.Suspended{Processes: 1}, eventlog.Resumed{}, eventlog.Terminated{}, eventlog.Terminated{},
	} {
		if err := l.Write(t.Context(), e, b); err != nil {
			t.Fatal(err)
		}
	}
	again := e
	again.Again = true
	if err := (&eventlog.Writer{Files: l.Files}).Write(t.Context(), again, eventlog.Terminated{}); err != nil {
		t.Error(err)
	}
	f, err := os.Open(e.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var numbers []eventlog.Number
	for r := eventlog.NewReader(f); ; {
		rec, err := r.Next()
		if err != nil {
			break
		}
		numbers = append(numbers, rec.Number)
	}
	if got := fmt.Sprint(numbers); got != "[1 10 11 5]" {
		t.Errorf("the log has %s; want each event once, in order", got)
	}
	ad := classad.New(classad.Attr{Name: "ExitCode", Expr: classad.Int(3).Expr()})
	for range 2 {
		if err := l.OutputAd(t.Context(), owner, filepath.Join(home, "ad"), ad); err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(home, "ad")); string(text) != "ExitCode = 3\n" || err != nil {
		t.Errorf("the ad is %q, %v", text, err)
	}
	e.Path, e.Activation = filepath.Join(roots, "log"), "other"
	for _, err := range []error{l.Write(t.Context(), e, eventlog.Resumed{}), l.OutputAd(t.Context(), owner, filepath.Join(roots, "ad"), ad)} {
		if err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("where he may not write: %v", err)
		}
	}
	if left, err := os.ReadDir(roots); len(left) > 0 || err != nil {
		t.Errorf("written there: %v, %v", left, err)
	}
}
