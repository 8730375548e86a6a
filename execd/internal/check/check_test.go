package check

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/job"
	"paddock/execd/internal/user"
	"paddock/spool"
	"paddock/spool/spooltest"
)

// A bed is a spool in order: job 1 runs, jobs 2 and 3 wait, 4 is over.
type bed struct {
	t    *testing.T
	root *spool.Root
	opts Options
}

func newBed(t *testing.T) *bed {
	t.Helper()
	dir := t.TempDir()
	root, err := spool.OpenRoot(filepath.Join(dir, "spool"), true)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, root: root, opts: Options{Spool: root.Path(), Accounting: filepath.Join(dir, "accounting"), Owner: os.Getuid(), Scripts: os.Getuid() == 0}}
	b.must(root.MarkFormat())
	store, err := job.Open(root, b.opts.Scripts, slog.New(slog.DiscardHandler))
	b.must(err)
	owner := &user.User{Name: "alice", UID: os.Getuid(), GID: os.Getgid(), Group: "g"}
	if b.opts.Scripts {
		owner.UID, owner.GID = 54321, 54322
	}
	var first *job.Job
	for range 3 {
		j, _, err := store.Submit(owner, owner.GID, &api.SubmitRequest{Name: "j", Command: "j", Script: []byte("true\n")}, job.Limits{}, time.Now())
		b.must(err)
		if first == nil {
			first = j
		}
	}
	task := store.Take(first, job.Start{Queue: "all.q", Boot: "b"}, time.Now())
	b.must(store.Begin(task))
	staged, err := root.Stage(task.RunID(), -1)
	b.must(err)
	b.must(spooltest.Fill(staged, spooltest.Config(t, spooltest.Job{}), nil))
	active, err := root.Activate(task.RunID())
	b.must(err)
	b.must(active.Admit(-1))
	b.write("job_seq_num", "4\n")
	text, err := accounting.Append([]byte("# a comment\n"), accounting.Record{QName: "all.q", JobNumber: 4, StartTime: 1})
	b.must(err)
	b.must(os.WriteFile(b.opts.Accounting, text, 0o644))
	return b
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// write puts a file anywhere in the spool, with the mode that belongs there.
func (b *bed) write(name, text string) {
	b.t.Helper()
	path := b.root.Path(name)
	b.must(os.MkdirAll(filepath.Dir(path), 0o711))
	mode := spool.ModeOf(filepath.Base(name))
	b.must(os.WriteFile(path, []byte(text), mode))
	b.must(os.Chmod(path, mode))
}

func (b *bed) append(path, text string) {
	b.t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	b.must(err)
	_, err = f.WriteString(text)
	b.must(errors.Join(err, f.Close()))
}

func (b *bed) record(n int) string { return b.root.Path("jobs", strconv.Itoa(n)) }

func (b *bed) check(o Options) []Finding {
	b.t.Helper()
	found, err := Run(o)
	b.must(err)
	return found
}

// content is all that the spool and the accounting file hold, by what it is.
func (b *bed) content() map[string]int {
	all := map[string]int{}
	b.must(filepath.WalkDir(filepath.Dir(b.root.Path()), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				all[strings.TrimSuffix(line, "\n")]++
			}
		}
		return err
	}))
	return all
}

func TestCleanSpool(t *testing.T) {
	b := newBed(t)
	b.write("staging/.spare-1/config", "") // kept by execd to be used again
	b.write("corrupt/what.is.here", "is nobody's business")
	if found := b.check(b.opts); len(found) != 0 {
		t.Errorf("found %+v; want nothing", found)
	}
}

func TestDamage(t *testing.T) {
	const bad = "\x00\xff garbage"
	double := func(b *bed) {
		text, err := os.ReadFile(b.opts.Accounting)
		b.must(err)
		_, line, _ := strings.Cut(string(text), "\n")
		b.append(b.opts.Accounting, line)
	}
	for _, tt := range []struct {
		name   string
		damage func(*bed)
		path   string // relative to the spool; "accounting" is the file
		text   string
		left   bool // a repair cannot
		now    bool // it is damage also while an execd works
	}{
		{"record of a bad name", func(b *bed) { b.write("jobs/x", bad) }, "jobs/x", "not the name of a record", false, true},
		{"record of leading zero", func(b *bed) { b.write("jobs/07", bad) }, "jobs/07", "not the name of a record", false, true},
		{"record unreadable", func(b *bed) { b.write("jobs/4", bad+"\n") }, "jobs/4", "cannot be read: line 1 is not a header", false, true},
		{"record empty", func(b *bed) { b.write("jobs/4", "") }, "jobs/4", "cannot be read: the header is cut short", false, true},
		{"record of another job", func(b *bed) {
			b.must(os.Rename(b.record(3), b.record(4)))
			b.must(os.Remove(b.root.Path("job_scripts/3")))
		}, "jobs/4", "the header says job 3", false, true},
		{"record is a directory", func(b *bed) { b.write("jobs/4/x", bad) }, "jobs/4", "not a regular file", false, true},
		{"record is a link", func(b *bed) { b.must(os.Symlink("3", b.record(4))) }, "jobs/4", "not a regular file", false, true},
		{"record damaged", func(b *bed) { b.append(b.record(3), bad+"\n") }, "jobs/3", "is damaged: line 2", false, true},
		{"record says what cannot be", func(b *bed) { b.append(b.record(3), `{"event":"done","tasks":"1"}`+"\n") }, "jobs/3", "is damaged: line 2", false, true},
		{"record altered to what cannot be", func(b *bed) {
			b.append(b.record(3), `{"event":"altered","change":{"fields":["-N"],"to":{"name":"new"}}}`+"\n"+`{"event":"altered","change":{"fields":["-b"],"to":{"name":"x"}}}`+"\n")
		}, "jobs/3", "is damaged: line 3", false, true},
		{"record cut short", func(b *bed) { b.append(b.record(3), `{"event":"star`) }, "jobs/3", "cut short, 14 bytes", false, false},
		{"record without script", func(b *bed) { b.must(os.Remove(b.root.Path("job_scripts/2"))) }, "jobs/2", "script is missing", false, false},
		{"script without record", func(b *bed) { b.must(os.Remove(b.record(3))) }, "job_scripts/3", "script without a record", false, false},
		{"script of a bad name", func(b *bed) { b.write("job_scripts/x", bad) }, "job_scripts/x", "not the name of a script", false, true},
		{"staging of a bad name", func(b *bed) { b.write("staging/2.1/config", bad) }, "staging/2.1", "not the name of a run", false, true},
		{"staging of no record", func(b *bed) { b.write("staging/9.1.0/config", bad); b.write("job_seq_num", "9\n") }, "staging/9.1.0", "no record speaks of this run", false, false},
		{"staging of a waiting job", func(b *bed) { b.write("staging/2.1.0/config", bad) }, "staging/2.1.0", "no record speaks of this run", false, false},
		{"active of a bad name", func(b *bed) { b.write("active_jobs/0.1/config", bad) }, "active_jobs/0.1", "not the name of a task", false, true},
		{"active of no record", func(b *bed) { b.write("active_jobs/4.1/config", bad) }, "active_jobs/4.1", "no record speaks of this run", false, false},
		{"active is a file", func(b *bed) { b.write("active_jobs/2.1", bad) }, "active_jobs/2.1", "not a directory", false, true},
		{"finished of a bad name", func(b *bed) { b.write("finished/1.1/config", bad) }, "finished/1.1", "not the name of a run", false, true},
		{"finished of no record", func(b *bed) { b.write("finished/4.1.0/config", bad) }, "finished/4.1.0", "no record speaks of this run", false, false},
		{"finished of another run", func(b *bed) { b.write("finished/1.1.7/config", bad) }, "finished/1.1.7", "no record speaks of this run", false, false},
		{"half removed", func(b *bed) { b.write("finished/.4.1.0/config", bad) }, "finished/.4.1.0", "half made or half removed", false, false},
		{"half written record", func(b *bed) { b.write("jobs/.new-5", bad) }, "jobs/.new-5", "half made or half removed", false, false},
		{"half written file", func(b *bed) { b.write(".execd.pid.tmp-1-1", bad) }, ".execd.pid.tmp-1-1", "half written", false, false},
		{"mode of a place", func(b *bed) { b.must(os.Chmod(b.root.Path("jobs"), 0o755)) }, "jobs", "should have", false, true},
		{"mode of the root", func(b *bed) { b.must(os.Chmod(b.root.Path(), 0o777)) }, "", "should have", false, true},
		{"mode of a record", func(b *bed) { b.must(os.Chmod(b.record(2), 0o644)) }, "jobs/2", "should have", false, true},
		{"mode of a script", func(b *bed) { b.must(os.Chmod(b.root.Path("job_scripts/2"), 0o755)) }, "job_scripts/2", "should have", false, false},
		{"mode of a config", func(b *bed) { b.must(os.Chmod(b.root.Path("active_jobs/1.1/config"), 0o644)) }, "active_jobs/1.1/config", "should have", false, false},
		{"mode of a directory", func(b *bed) { b.must(os.Chmod(b.root.Path("active_jobs/1.1"), 0o777)) }, "active_jobs/1.1", "should have", false, false},
		{"mode of a file", func(b *bed) { b.must(os.Chmod(b.root.Path("job_seq_num"), 0o666)) }, "job_seq_num", "should have", false, true},
		{"second name of a record", func(b *bed) {
			b.must(os.Link(b.record(2), filepath.Join(b.t.TempDir(), "mine")))
			b.must(os.Chmod(b.record(2), 0o644))
			b.must(os.Remove(b.root.Path("job_scripts/2")))
			b.append(b.record(2), `{"event":"deleted","tasks":"1"}`+"\n")
		}, "jobs/2", "has 2 names", false, true},
		{"missing place", func(b *bed) { b.must(os.Remove(b.root.Path("staging"))) }, "staging", "is missing", false, true},
		{"number unreadable", func(b *bed) { b.write("job_seq_num", bad) }, "job_seq_num", "cannot be read", false, true},
		{"number too low", func(b *bed) { b.write("job_seq_num", "3\n") }, "job_seq_num", "job 4 has been, and the next number would be 4", false, false},
		{"format unreadable", func(b *bed) { b.write("format", bad) }, "format", "cannot read format", false, true},
		{"accounting cut short", func(b *bed) { b.append(b.opts.Accounting, "all.q:node7:half") }, "accounting", "cut short, 16 bytes", false, false},
		{"accounting unreadable", func(b *bed) { b.append(b.opts.Accounting, bad+"\n") }, "accounting:3", "cannot be read", true, true},
		{"accounted for twice", double, "accounting:3", "same as line 2: a run of job 4", true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			tt.damage(b)
			before := b.content()
			path := b.root.Path(tt.path)
			switch {
			case tt.path == "":
				path = b.root.Path()
			case strings.HasPrefix(tt.path, "accounting"):
				path = filepath.Join(filepath.Dir(b.root.Path()), tt.path)
			}
			is := func(f Finding) bool { return f.Path == path && strings.Contains(f.Text, tt.text) }

			// Without a repair nothing is touched.
			found := b.check(b.opts)
			if len(found) == 0 || !is(found[0]) || tt.left != (found[0].Remedy == "") {
				t.Fatalf("found %+v; want %s: %s", found, path, tt.text)
			}
			if other := b.content(); len(other) != len(before) {
				t.Error("the check has changed something")
			}
			running := b.opts
			running.Running = true
			if found = b.check(running); (len(found) > 0) != tt.now {
				t.Errorf("while execd runs: %+v; want it found: %v", found, tt.now)
			}

			repair := b.opts
			repair.Repair = true
			found = b.check(repair)
			if len(found) == 0 || !is(found[0]) || found[0].Err != nil {
				t.Fatalf("repair: %+v; want %s: %s", found, path, tt.text)
			}
			for text := range before {
				if b.content()[text] == 0 {
					t.Errorf("%q is gone", text)
				}
			}
			// A second time nothing is left to do.
			after := b.content()
			found = b.check(repair)
			if len(found) > 0 != tt.left {
				t.Errorf("after the repair: %+v; want something left: %v", found, tt.left)
			}
			for text, n := range b.content() {
				if after[text] != n {
					t.Errorf("the second repair has touched %q", text)
				}
			}
		})
	}
}

// A task that was started again after a power cut, and met another, has two
// lines that say the same.
func TestLostTwice(t *testing.T) {
	b := newBed(t)
	line, err := accounting.Append(nil, accounting.Record{QName: "all.q", JobNumber: 4, Failed: spool.FailedNoExitStatus})
	b.must(err)
	b.append(b.opts.Accounting, strings.Repeat(string(line), 2))
	if found := b.check(b.opts); len(found) > 0 {
		t.Errorf("found %+v; want nothing", found)
	}
}

// Tasks of which nobody knows whether they have run are not started.
func TestRescuedTasksWait(t *testing.T) {
	b := newBed(t)
	b.append(b.record(3), "garbage\n")
	b.must(os.Remove(b.root.Path("job_scripts/2")))
	b.opts.Repair = true
	b.check(b.opts)
	store, err := job.Open(b.root, false, slog.New(slog.DiscardHandler))
	b.must(err)
	for n, want := range map[int]string{2: "the script of the job is missing; see ", 3: "it is not known which tasks have run; see "} {
		d, ok := store.Detail(store.Get(n), job.Caller{Manager: true}, "h", func(*job.Job) []string { return nil })
		if !ok || d.Pending != "" || len(d.Tasks) != 1 || d.Tasks[0].State != "Eqw" || !strings.Contains(d.Tasks[0].Reason, want) {
			t.Errorf("job %d: %+v; want its task in error: %s", n, d, want)
		}
	}
}

// A shepherd that lives is left alone.
func TestRunningWithoutRecord(t *testing.T) {
	b := newBed(t)
	b.write("active_jobs/4.1/config", "")
	lock, err := spool.LockFile(b.root.Path("active_jobs/4.1/lock"))
	b.must(err)
	defer lock.Close()
	b.opts.Repair = true
	for range 2 {
		if found := b.check(b.opts); len(found) != 1 || found[0].Remedy != "" || !strings.Contains(found[0].Text, "a shepherd runs") {
			t.Errorf("found %+v; want that it runs", found)
		}
	}
	b.opts.Repair, b.opts.Running = false, true
	if found := b.check(b.opts); len(found) > 0 {
		t.Errorf("beside an execd, which may have started it just now: %+v", found)
	}
}

// Another version's spool is in order for that version.
func TestOtherFormat(t *testing.T) {
	b := newBed(t)
	b.write("format", "3\n")
	b.opts.Repair = true
	if _, err := Run(b.opts); !errors.Is(err, spool.ErrFormat) {
		t.Errorf("%v; want the refusal of the format", err)
	}
	b.write("format", "1\n")
	b.write("jobs/3", `{"format":2,"job":3}`+"\n")
	if _, err := Run(b.opts); !errors.Is(err, spool.ErrFormat) {
		t.Errorf("%v; want the refusal of the format", err)
	}
}

// What belongs to somebody else can be written by him.
func TestOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives files away")
	}
	for _, path := range []string{"jobs", "jobs/2", "job_scripts/2", "active_jobs/1.1", "active_jobs/1.1/config", "job_seq_num", ""} {
		b := newBed(t)
		file := filepath.Join(b.root.Path(), path)
		info, err := os.Stat(file)
		b.must(err)
		want := info.Sys().(*syscall.Stat_t).Uid
		b.must(os.Chown(file, 54399, -1))
		found := b.check(b.opts)
		if len(found) != 1 || found[0].Path != file || !strings.Contains(found[0].Text, "has owner 54399") {
			t.Errorf("%s: found %+v", path, found)
		}
		b.opts.Repair = true
		b.check(b.opts)
		info, err = os.Stat(file)
		b.must(err)
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid != want {
			t.Errorf("%s belongs to %d; want %d", path, uid, want)
		}
		if found := b.check(b.opts); len(found) != 0 {
			t.Errorf("%s, after the repair: %+v", path, found)
		}
	}
}

// The ads that hooks of a job read are its owner's: a repair leaves them to him.
func TestLentFiles(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	b := newBed(t)
	for _, name := range []string{spool.FileHookJobAd, spool.FileHookSlotAd} {
		path := "active_jobs/1.1/" + name
		b.write(path, "A = 1\n")
		b.must(os.Chown(b.root.Path(path), 54321, 54322))
	}
	for _, f := range b.check(b.opts) {
		t.Errorf("%s: %s", f.Path, f.Text)
	}
	b.must(os.Chown(b.root.Path("active_jobs/1.1", spool.FileHookJobAd), 54323, 54322))
	if found := b.check(b.opts); len(found) != 1 {
		t.Errorf("of another's there are %d findings; want 1", len(found))
	}
}
