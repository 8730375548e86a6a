package launch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// The order that makes, as far as it is the same everywhere, the directory of
// the golden job batch-exit3.
func goldenOrder() (*Launcher, *Order) {
	l := &Launcher{Privileged: true, Host: "gehost", BinDir: "/usr/sbin/lx-amd64", ConfigDir: "/var/lib/gridengine"}
	o := &Order{
		Task: &job.Task{
			Job:    &job.Job{Number: 69, Submitted: time.Unix(1795191325, 0)},
			Number: 1, Start: job.Start{AddGID: 65401},
		},
		Request: &api.SubmitRequest{
			Name: "exit3.sh", Args: []string{"one", "two three"},
			Stdout: "/dev/null", Stderr: "/dev/null",
			Origin: []string{
				"TERM=", "SGE_O_HOME=/home/geuser", "SGE_O_LOGNAME=geuser", "SGE_O_PATH=/usr/local/bin:/usr/bin:/bin",
				"SGE_O_SHELL=/bin/sh", "SGE_O_MAIL=/var/mail/geuser", "SGE_O_HOST=gehost", "SGE_O_WORKDIR=/home/geuser",
			},
		},
		Owner:  &user.User{Name: "geuser", UID: 1001, GID: 1001, Groups: []int{1001}, Home: "/home/geuser"},
		Queue:  &conf.Queue{Name: "gold.q", Tmpdir: "/tmp", Shell: "/bin/sh", ShellStartMode: "unix_behavior"},
		Global: &conf.Global{MinUID: 1000, MinGID: 1000, LoginShells: []string{"sh", "bash"}},
		Script: "/var/spool/gridengine/execd/gehost/job_scripts/69",
	}
	return l, o
}

// config has Grid Engine's keys, in its order and with its values, but for
// what this jobs do not have, and ours behind them.
func TestConfigIsGridEngines(t *testing.T) {
	golden, err := spool.OpenDir("../../../spool/testdata/golden/batch-exit3").Config()
	if err != nil {
		t.Fatal(err)
	}
	l, o := goldenOrder()
	config, args, err := l.config(o)
	if err != nil || args != nil {
		t.Fatalf("config: args %q, %v", args, err)
	}
	other := map[string]string{
		"prolog": "none", "epilog": "none", // the golden site has scripts
		"admin_user":  "none", // we flip no effective ids
		"inherit_env": "0",    // execd's environment is not the job's
	}
	var want, got []string
	for _, e := range golden.Entries() {
		if v, ok := other[e.Key]; ok {
			e.Value = v
		}
		want = append(want, e.Key+"="+e.Value)
	}
	for _, e := range config.Entries() {
		if !strings.HasPrefix(e.Key, "paddock_") {
			got = append(got, e.Key+"="+e.Value)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-Grid Engine's +ours):\n%s", diff)
	}
}

func TestEnvironmentIsGridEngines(t *testing.T) {
	golden, err := spool.OpenDir("../../../spool/testdata/golden/batch-exit3").Environment()
	if err != nil {
		t.Fatal(err)
	}
	l, o := goldenOrder()
	got := l.environment(o, "/var/spool/gridengine/execd/gehost/active_jobs/69.1")
	for i := range got { // the golden host's architecture is not necessarily ours
		got[i] = strings.ReplaceAll(got[i], "="+Arch(), "=lx-amd64")
	}
	if diff := cmp.Diff(golden, got); diff != "" {
		t.Errorf("environment (-Grid Engine's +ours):\n%s", diff)
	}
}

func TestUsersVariablesKeepTheirPlace(t *testing.T) {
	l, o := goldenOrder()
	o.Request.Env = []string{"A=1", "JOB_ID=mine", "PATH=/my/bin", "B=x\ny", "TERM=vt100"}
	got := l.environment(o, "/spool")
	want := []string{"TERM=vt100", "A=1", "JOB_ID=69", "PATH=/tmp/69.1.gold.q:/my/bin", "B=x\ny"}
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Errorf("first variables (-want +got):\n%s", diff)
	}
	for i, v := range got {
		name, _, _ := strings.Cut(v, "=")
		if j := slices.IndexFunc(got, func(w string) bool { return strings.HasPrefix(w, name+"=") }); j != i {
			t.Errorf("%s stands twice", name)
		}
	}
}

// No argument, name or path can add a line to config or change another.
func TestNothingCanAddALine(t *testing.T) {
	l, o := goldenOrder()
	evil := "x\nepilog=root@/bin/echo"
	o.Request.Args = []string{evil, "plain"}
	config, args, err := l.config(o)
	if err != nil {
		t.Fatal(err)
	}
	list, err := spool.ParseArgs(args)
	if err != nil || !slices.Equal(list, o.Request.Args) {
		t.Errorf("args = %q, %v; want %q", list, err, o.Request.Args)
	}
	back, err := spool.ParseConfig(config.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := back.Lookup("epilog"); v != "none" {
		t.Errorf("epilog = %q; want none", v)
	}
	for what, set := range map[string]func(*api.SubmitRequest){
		"name":    func(r *api.SubmitRequest) { r.Name = evil },
		"account": func(r *api.SubmitRequest) { r.Account = evil },
		"cwd":     func(r *api.SubmitRequest) { r.Cwd = "/" + evil },
		"stdout":  func(r *api.SubmitRequest) { r.Stdout = "/" + evil },
		"shell":   func(r *api.SubmitRequest) { r.Shell = "/" + evil },
		"command": func(r *api.SubmitRequest) { r.Binary, r.Command = true, evil },
	} {
		l, o := goldenOrder()
		set(o.Request)
		if _, _, err := l.config(o); err == nil {
			t.Errorf("a newline in the %s is accepted", what)
		}
	}
}

func TestExpand(t *testing.T) {
	n := names{home: "/home/geuser", user: "geuser", jobName: "tid", host: "gehost", job: 153}
	for _, tt := range []struct{ text, want string }{
		// As captured from Grid Engine 8.1.9.
		{"/home/geuser/tid.$TASK_ID.$JOB_ID.$JOB_NAME.$USER.$HOSTNAME.$$.$FOO", "/home/geuser/tid.0.153.tid.geuser.gehost.$.$FOO"},
		{"~/out", "/home/geuser/out"},
		{"~", "/home/geuser"},
		{"~other/x", "~other/x"},
		{"$HOME/x", "/home/geuser/x"},
		{"$USERX", "geuserX"},
		{"$", "$"},
		{"a$", "a$"},
	} {
		if got := n.expand(tt.text); got != tt.want {
			t.Errorf("expand(%q) = %q; want %q", tt.text, got, tt.want)
		}
	}
}

func TestStream(t *testing.T) {
	n := names{home: "/home/u", user: "u", host: "gehost"}
	for _, tt := range []struct{ requested, want string }{
		{"", "/wd"},
		{"out", "/wd/out"},
		{"/abs", "/abs"},
		{"gehost:/here,other:/there", "/here"},
		{"other:/there,/fallback", "/fallback"},
		{"gehost.example.com:/here", "/here"},
		{":/old", "/old"},
		{"other:/there", "/wd"},
	} {
		if got := n.stream(tt.requested, "/wd", "/wd"); got != tt.want {
			t.Errorf("stream(%q) = %q; want %q", tt.requested, got, tt.want)
		}
	}
}

// Every row of the table of recovery, from real directories.
func TestVerdict(t *testing.T) {
	const usage = "wait_status=1\nexit_status=0\nsignal=0\nstart_time=1\nend_time=2\nru_wallclock=1\n" +
		"ru_utime=0.000000\nru_stime=0.000000\nru_maxrss=1\nru_ixrss=0\nru_idrss=0\nru_isrss=0\nru_minflt=0\nru_majflt=0\n" +
		"ru_nswap=0\nru_inblock=0\nru_oublock=0\nru_msgsnd=0\nru_msgrcv=0\nru_nsignals=0\nru_nvcsw=0\nru_nivcsw=0\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		held  bool
		want  Verdict
	}{
		{"held", map[string]string{"pid": "1\n"}, true, Lives},
		{"held with everything", map[string]string{"pid": "1\n", "exit_status": "0\n", "usage": usage}, true, Lives},
		{"status", map[string]string{"pid": "1\n", "exit_status": "0\n"}, false, HasEnded},
		{"status and usage", map[string]string{"pid": "1\n", "exit_status": "8\n", "usage": usage}, false, HasEnded},
		{"empty status, usage", map[string]string{"pid": "1\n", "exit_status": "", "usage": usage}, false, Unreported},
		{"no status, usage", map[string]string{"pid": "1\n", "usage": usage}, false, Unreported},
		{"torn usage", map[string]string{"pid": "1\n", "exit_status": "", "usage": usage[:20]}, false, ShepherdDied},
		{"empty status", map[string]string{"pid": "1\n", "exit_status": ""}, false, ShepherdDied},
		{"pid", map[string]string{"pid": "1\n"}, false, ShepherdDied},
		{"garbage in status", map[string]string{"pid": "1\n", "exit_status": "\xff\x00"}, false, ShepherdDied},
		{"nothing", map[string]string{}, false, NeverStarted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			d := spool.OpenDir(dir)
			if tt.held {
				lock, err := d.Lock()
				if err != nil {
					t.Fatal(err)
				}
				defer lock.Close()
			}
			e, err := Look(d)
			if err != nil {
				t.Fatal(err)
			}
			if got := e.Verdict(); got != tt.want {
				t.Errorf("Verdict of %+v = %v; want %v", e, got, tt.want)
			}
		})
	}
}

func TestWatcherTellsOfEachEnd(t *testing.T) {
	l := &Launcher{}
	ended := make(chan spool.RunID, 8)
	w, err := newWatcher(func(run spool.RunID) { ended <- run })
	if err != nil {
		t.Fatal(err)
	}
	l.forks.jobs = make(chan *fork)
	stop, done := make(chan struct{}), make(chan struct{}, 2)
	go func() { l.forks.run(stop); done <- struct{}{} }()
	go func() { w.run(); done <- struct{}{} }()
	lock, err := spool.LockFile(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	want := map[spool.RunID]bool{}
	for i := 1; i <= 5; i++ {
		run := spool.RunID{Job: i, Task: 1}
		_, pidfd, err := l.forks.start(&fork{path: "/bin/true", argv: []string{"true"}, dir: "/", lock: lock})
		if err != nil {
			t.Fatal(err)
		}
		want[run] = true
		if err := w.add(run, pidfd); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		delete(want, <-ended)
	}
	if len(want) > 0 {
		t.Errorf("not told of %v", want)
	}
	close(stop)
	w.stop()
	<-done
	<-done
}

// A TMPDIR's name may be taken, by another execd's job of the same number or by
// somebody who means harm: it is left alone and another is used.
func TestTakenTmpdir(t *testing.T) {
	l, o := goldenOrder()
	l.Privileged = false
	o.Queue.Tmpdir = t.TempDir()
	taken := filepath.Join(o.Queue.Tmpdir, "69.1.gold.q")
	if err := os.WriteFile(taken, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.makeTmpdir(o); err != nil {
		t.Fatal(err)
	}
	if got := o.tmpdir(); !strings.HasPrefix(got, taken+".") {
		t.Errorf("TMPDIR = %q; want another than %q", got, taken)
	}
	config, _, err := l.config(o)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := config.Lookup("tmpdir"); got != o.tmpdir() {
		t.Errorf("tmpdir in config = %q; want %q", got, o.tmpdir())
	}
	if env := l.environment(o, "/spool"); !slices.Contains(env, "TMPDIR="+o.tmpdir()) {
		t.Errorf("environment lacks TMPDIR=%s", o.tmpdir())
	}
	if b, err := os.ReadFile(taken); err != nil || string(b) != "mine" {
		t.Errorf("what was there before: %q, %v", b, err)
	}
	if err := l.removeTmpdir(config); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(o.tmpdir()); !os.IsNotExist(err) {
		t.Errorf("TMPDIR is left: %v", err)
	}
}

func TestTmpdirParent(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	l := &Launcher{Privileged: true}
	if err := l.checkTmpdirParent(dir); err == nil {
		t.Error("a parent that others may write to, without sticky bit, is accepted")
	}
	if err := l.checkTmpdirParent(filepath.Join(dir, "missing")); err == nil {
		t.Error("a parent that is not there is accepted")
	}
	if os.Geteuid() == 0 {
		if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
			t.Fatal(err)
		}
		if err := l.checkTmpdirParent(dir); err != nil {
			t.Errorf("a sticky parent of root's: %v", err)
		}
	}
}

// A scratch directory that was left empty is used again, for its owner alone,
// and not when something was put into it meanwhile.
func TestSpareTmpdirs(t *testing.T) {
	parent := t.TempDir()
	uid := os.Getuid()
	var s spares
	made := func(name string) string {
		t.Helper()
		path := filepath.Join(parent, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if full := made("full"); s.keep(filepath.Dir(full), uid) {
		t.Error("a directory that is not empty is kept")
	}
	if err := os.Symlink(parent, filepath.Join(parent, "link")); err != nil {
		t.Fatal(err)
	}
	if s.keep(filepath.Join(parent, "link"), uid) || s.keep(filepath.Join(parent, "missing"), uid) {
		t.Error("a link, or nothing at all, is kept")
	}
	if s.keep(made("other"), uid+1) {
		t.Error("a directory of another user is kept")
	}
	for _, name := range []string{"a", "b"} {
		if !s.keep(made(name), uid) {
			t.Fatalf("%s is not kept", name)
		}
	}
	if s.take(filepath.Join(parent, "x"), uid+1) || s.take(filepath.Join(t.TempDir(), "x"), uid) {
		t.Error("a spare is given to another user, or to another place")
	}
	if !s.take(filepath.Join(parent, "c"), uid) {
		t.Error("the spare is not taken")
	}
	spare := s.kept[spareKey{uid, parent}][0]
	if err := os.WriteFile(filepath.Join(spare, "late"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s.take(filepath.Join(parent, "d"), uid) {
		t.Error("a spare with something in it is taken")
	}
	if !s.keep(filepath.Join(parent, "c"), uid) {
		t.Fatal("c is not kept")
	}
	if err := s.remove(); err != nil {
		t.Error(err)
	}
	if !s.keep(made("e"), uid) {
		t.Fatal("e is not kept")
	}
	sweepSpares(parent) // as the next execd does
	left, err := filepath.Glob(filepath.Join(parent, sparePrefix+"*"))
	if err != nil || len(left) != 1 || left[0] != spare {
		t.Errorf("left: %v, %v; want only the one with a file in it", left, err)
	}
}
