package mail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	netmail "net/mail"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/user"
	"paddock/test/harness"
	"paddock/test/props"
)

var shepherd string // path of the one that starts mailers

func TestMain(m *testing.M) { os.Exit(harness.RunWithShepherd(m, &shepherd)) }

// A Sender with a mailer that is a shell script; it works in a directory
// where everybody may write, $D.
type rig struct {
	*Sender
	t      *testing.T
	dir    string
	config conf.Config
	log    props.Log
	stop   context.CancelFunc
	done   chan struct{}
}

func newRig(t *testing.T, script string) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "mail") //nolint:usetesting // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, done: make(chan struct{})}
	r.config.Global.Mailer = dir + "/mailer"
	if err := harness.WriteExecutable(r.config.Global.Mailer, "#!/bin/sh\numask 0\nD="+dir+"\n"+script); err != nil {
		t.Fatal(err)
	}
	r.Sender = New(func() *conf.Config { return &r.config }, "node7", slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	r.Starter = &asuser.Starter{Shepherd: shepherd}
	r.Account = func(context.Context) (*user.User, error) { return service(), nil }
	r.limit, r.grace = time.Hour, harness.Patience // but where a test is about them
	return r
}

func (r *rig) run() *rig {
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		defer close(r.done)
		r.Run(ctx)
	}()
	r.t.Cleanup(r.end)
	return r
}

// end stops the Sender and waits for what is under way.
func (r *rig) end() {
	r.stop()
	<-r.done
}

func (r *rig) waitFor(what string, ok func() bool) {
	r.t.Helper()
	if err := harness.WaitFor(harness.Patience, what, func() (bool, error) { return ok(), nil }); err != nil {
		r.t.Fatalf("%v\n%s", err, r.log.String())
	}
}

func (r *rig) file(name string) string {
	b, _ := os.ReadFile(filepath.Join(r.dir, name))
	return string(b)
}

// record is a mailer that writes down how it was called, whole at once.
const record = `{ printf '%s|' "$@"; echo; id -u; id -g; id -G; env | sort; pwd; echo; cat; } >"$D/.new" && mv "$D/.new" "$D/mail"
`

// service is whom mailers run as: an account that nobody has, where a test is root.
func service() *user.User {
	if os.Geteuid() == 0 {
		return &user.User{Name: "mailer", UID: 54751, GID: 54752, Groups: []int{54752, 54753}}
	}
	return me()
}

func me() *user.User {
	return &user.User{Name: "alice", UID: os.Getuid(), GID: os.Getgid(), Groups: []int{os.Getgid()}}
}

func aJob() Job {
	at := time.Date(2026, 11, 21, 9, 3, 0, 0, time.UTC)
	return Job{
		Number: 42, Name: "n", Owner: "alice", Queue: "all.q", Start: at, End: at.Add(3725 * time.Second),
		Usage: true, Wallclock: 3725, CPU: 59.6, MaxVMem: 3 << 20, Exit: 3, Reason: "deleted by bob",
		StderrPath: "/home/alice/n.e42",
		Stderr:     func(context.Context) ([]byte, error) { return []byte("one\n.\n~!id\n\x1b[2Jtwo\n"), nil },
	}
}

func TestMailOfAJob(t *testing.T) {
	r := newRig(t, record).run()
	r.Tell(Complete, me(), []string{"alice@example.org", "bob"}, aJob())
	r.waitFor("the mail", func() bool { return r.file("mail") != "" })
	got := r.file("mail")
	head, text, _ := strings.Cut(got, "\n\n")
	if !strings.HasPrefix(head, "-s|Job 42 (n) Complete|alice@example.org|bob|\n") {
		t.Errorf("called with %q", head)
	}
	for _, want := range []string{
		"Owner        alice\n", "Queue        all.q\n", "Host         node7\n", "Wallclock    1:02:05\n", "CPU          0:01:00\n",
		"Max vmem     3.000M\n", "Exit status  3\n", "Reason       deleted by bob\n",
		"The end of standard error, /home/alice/n.e42:\n\n  one\n  .\n  ~!id\n  \\x1b[2Jtwo\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the mail lacks %q:\n%s", want, text)
		}
	}
}

// A program called sendmail reads from its input whom a mail is for.
func TestSendmail(t *testing.T) {
	r := newRig(t, record)
	old := r.config.Global.Mailer
	r.config.Global.Mailer = filepath.Join(r.dir, "sendmail")
	if err := os.Rename(old, r.config.Global.Mailer); err != nil {
		t.Fatal(err)
	}
	r.run()
	j := aJob()
	j.Name = "a\nBcc: eve@x ö"
	r.Tell(Complete, me(), []string{"alice@example.org", "bob"}, j)
	r.waitFor("the mail", func() bool { return r.file("mail") != "" })
	call, mail, _ := strings.Cut(r.file("mail"), "\n\n")
	if !strings.HasPrefix(call, "-i|-t|\n") {
		t.Errorf("called with %q", call)
	}
	m, err := netmail.ReadMessage(strings.NewReader(mail))
	if err != nil {
		t.Fatalf("%v in\n%s", err, mail)
	}
	if got := m.Header.Get("To"); got != "alice@example.org, bob" {
		t.Errorf("it is to %q", got)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	if want := `Job 42 (a\nBcc: eve@x ö) Complete`; err != nil || subject != want {
		t.Errorf("subject %q, %v; want %q", subject, err, want)
	}
	if m.Header.Get("Bcc") != "" || !strings.Contains(mail, "\n\nJob 42 (") {
		t.Errorf("header and text are\n%s", mail)
	}
}

func TestSubject(t *testing.T) {
	j := aJob()
	for _, tt := range []struct {
		e    Event
		task int
		name string
		want string
	}{
		{Started, 0, "n", "Job 42 (n) Started"},
		{Aborted, 3, "n", "Job-array task 42.3 (n) Aborted"},
		{Suspended, 0, "n", "Job 42 (n) Suspended"},
		{Continued, 0, "n", "Job 42 (n) Continued"},
		{Complete, 0, "a\nBcc: eve@x\r\x1b", `Job 42 (a\nBcc: eve@x\r\x1b) Complete`},
		{Complete, 0, strings.Repeat("x", 99) + "öö", "Job 42 (" + strings.Repeat("x", 99) + "...) Complete"},
	} {
		j.Task, j.Name = tt.task, tt.name
		if got := j.subject(tt.e); got != tt.want {
			t.Errorf("subject = %q; want %q", got, tt.want)
		}
	}
	for letters, want := range map[string]bool{"": false, "b": true, "ea": false, "abe": true} {
		if got := Started.Wanted(letters); got != want {
			t.Errorf("-m %s: %v", letters, got)
		}
	}
}

func TestTailIsBounded(t *testing.T) {
	var b bytes.Buffer
	quote(&b, []byte(strings.Repeat("half\n", TailSize/5)+"last"+strings.Repeat("y", 1000)))
	got := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(got) != tailLines || len(got[tailLines-1]) > maxLine+10 || !strings.HasPrefix(got[tailLines-1], "  lasty") {
		t.Errorf("%d lines, the last is %.20q", len(got), got[len(got)-1])
	}
	b.Reset()
	quote(&b, append(bytes.Repeat([]byte("x"), TailSize), "\nwhole\n"...))
	if b.String() != "  whole\n" {
		t.Errorf("%q; want the line that is whole", b.String())
	}
	// What cannot be read is told of, and the rest is sent.
	j := aJob()
	j.Stderr = func(context.Context) ([]byte, error) { return nil, errors.New("permission denied") }
	if text := string(j.body(t.Context(), Complete, "h")); !strings.Contains(text, "permission denied") || !strings.Contains(text, "Exit status") {
		t.Errorf("%s", text)
	}
}

// The mailer runs as an account of its own and as nobody who has jobs, with that
// account's groups, in no session or environment of ours.
func TestMailerIsNoOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it becomes another user")
	}
	t.Setenv("SECRET", "of execd")
	for _, owner := range []*user.User{{Name: "alice", UID: 54761, GID: 54761}, {Name: "root", Groups: []int{0}}} {
		r := newRig(t, record).run()
		r.Tell(Started, owner, nil, Job{Number: 1, Name: "x"})
		r.waitFor("the mail", func() bool { return r.file("mail") != "" })
		got := strings.SplitN(r.file("mail"), "\n", 5)
		if want := fmt.Sprintf("-s|Job 1 (x) Started|%s|", owner.Name); got[0] != want {
			t.Errorf("called with %q; want %q", got[0], want)
		}
		if ids := strings.Join(got[1:4], " "); ids != "54751 54752 54752 54753" {
			t.Errorf("of %s: uid, gid and groups are %s", owner.Name, ids)
		}
		if !strings.Contains(got[4], "HOME=/\n") || !strings.Contains(got[4], "LOGNAME=mailer\n") || strings.Contains(got[4], "SECRET") || strings.Contains(got[4], "GOMAXPROCS") {
			t.Errorf("environment and directory\n%s", got[4])
		}
	}
}

// Without an account nothing is sent, which is told once.
func TestNoAccount(t *testing.T) {
	r := newRig(t, record)
	r.Account = func(context.Context) (*user.User, error) { return nil, errors.New("no such account") }
	r.run()
	for range 3 {
		r.Tell(Complete, me(), nil, aJob())
	}
	r.waitFor("a warning", func() bool { return strings.Contains(r.log.String(), "no such account") })
	r.end()
	if n := strings.Count(r.log.String(), "level=WARN"); n != 1 || r.file("mail") != "" {
		t.Errorf("%d lines; want one, and no mail:\n%s", n, r.log.String())
	}
}

// A mailer that hangs is killed with what it has started, is told of once, and
// holds up its user's mail only.
func TestHangingMailer(t *testing.T) {
	r := newRig(t, `case $2 in *hang*) sleep 1000 & echo $! >"$D/pid"; wait ;; *) echo "$2" >>"$D/sent" ;; esac
`)
	r.run()
	for range 5 {
		r.Tell(Complete, &user.User{Name: "a", UID: 54321, GID: 54321}, nil, Job{Number: 1, Name: "hang"})
	}
	r.waitFor("the first mailer", func() bool { return strings.HasSuffix(r.file("pid"), "\n") })
	r.Tell(Complete, &user.User{Name: "b", UID: 54322, GID: 54322}, nil, Job{Number: 2, Name: "quick"})
	r.waitFor("another user's mail", func() bool { return strings.Contains(r.file("sent"), "Job 2 (quick)") })

	var pid int
	if _, err := fmt.Sscan(r.file("pid"), &pid); err != nil {
		t.Fatal(err)
	}
	r.grace = 0
	r.end()
	r.waitFor("the child of the mailer to be killed", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid) })
	if n := strings.Count(r.log.String(), "level=WARN"); n != 1 || !strings.Contains(r.log.String(), "not sent before execd stopped") {
		t.Errorf("%d lines; want one for all of them:\n%s", n, r.log.String())
	}
}

// zombie reports whether a process is dead and not waited for by its parent.
func zombie(pid int) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return bytes.Contains(b, []byte(") Z"))
}

func TestMailerTooSlow(t *testing.T) {
	r := newRig(t, "exec sleep 1000\n")
	r.limit = 50 * time.Millisecond
	r.run()
	r.Tell(Complete, me(), nil, Job{Number: 1, Name: "x"})
	r.waitFor("a warning", func() bool { return strings.Contains(r.log.String(), "did not end within 50ms") })
}

func TestMailerFails(t *testing.T) {
	r := newRig(t, `echo "no route to host" >&2; yes | head -c 1000000; echo x >>"$D/runs"; exit 3
`)
	r.run()
	for range 3 {
		r.Tell(Complete, me(), nil, Job{Number: 1, Name: "x"})
	}
	r.waitFor("three runs", func() bool { return strings.Count(r.file("runs"), "x") == 3 })
	r.end()
	log := r.log.String()
	if strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, "exit status 3: no route to host") || len(log) > 2000 {
		t.Errorf("want one line with the mailer's words:\n%s", log)
	}
}

func TestMailerMissing(t *testing.T) {
	r := newRig(t, "").run()
	r.config.Global.Mailer = r.dir + "/missing"
	r.Tell(Complete, me(), nil, Job{Number: 1, Name: "x"})
	r.waitFor("a warning", func() bool { return strings.Contains(r.log.String(), "cannot execute") })
}

// What the mailer leaves behind to deliver the mail is not waited for.
func TestMailerInTheBackground(t *testing.T) {
	r := newRig(t, `cat >/dev/null; sleep 1000 & echo $! >"$D/pid"
`).run()
	r.Tell(Complete, me(), nil, Job{Number: 1, Name: "x"})
	r.waitFor("the mail", func() bool { return strings.Contains(r.log.String(), "mail: sent") })
	var pid int
	if _, err := fmt.Sscan(r.file("pid"), &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("what the mailer left was killed: %v", err)
	}
}

func TestNotSent(t *testing.T) {
	r := newRig(t, record)
	r.Tell(Complete, me(), []string{"bob", "-oQ/tmp"}, aJob())
	if !strings.Contains(r.log.String(), "is not a mail address") || len(r.in) != 0 {
		t.Errorf("an option as address: %s", r.log.String())
	}
	r.Admin("disk", "s", "t")
	if len(r.in) != 0 {
		t.Error("there is no administrator, and a mail was sent")
	}
	r.config.Global.Mailer = ""
	r.Tell(Complete, me(), nil, aJob())
	if len(r.in) != 0 || !strings.Contains(r.log.String(), "there is no mailer") {
		t.Errorf("no mailer: %s", r.log.String())
	}
}

// Nobody waits for mail: what is too much is dropped with one line, and one
// user's does not take the place of another's.
func TestTooMuch(t *testing.T) {
	r := newRig(t, record) // does not run
	for range maxWaiting {
		r.Tell(Complete, &user.User{Name: "a", UID: 1001}, nil, aJob())
	}
	if len(r.in) != maxUserWaiting || strings.Count(r.log.String(), "level=WARN") != 1 {
		t.Errorf("%d wait; want %d, and one line:\n%s", len(r.in), maxUserWaiting, r.log.String())
	}
	for uid := range maxWaiting {
		r.Tell(Complete, &user.User{Name: "b", UID: 2000 + uid}, nil, aJob())
	}
	if len(r.in) != maxWaiting {
		t.Errorf("%d wait; want %d", len(r.in), maxWaiting)
	}
}

func TestAdmin(t *testing.T) {
	r := newRig(t, record)
	r.config.Global.AdminMail = []string{"root@example.org"}
	for range 3 {
		r.Admin("disk", "disk full\nBcc: x", "the spool is full\n.\n")
		r.Admin("shepherd", "shepherd gone", "")
	}
	if len(r.in) != 2 {
		t.Fatalf("%d mails; want one for each kind", len(r.in))
	}
	l := <-r.in
	if l.uid != 0 || l.subject != `disk full\nBcc: x` || l.to[0] != "root@example.org" || !strings.Contains(string(l.body(t.Context())), "\n  the spool is full\n  .\n") {
		t.Errorf("%+v %s", l, l.body(t.Context()))
	}
	r.told["admin disk"] = time.Now().Add(-time.Hour)
	r.Admin("disk", "disk full", "")
	if len(r.in) != 2 {
		t.Error("an hour later nothing is sent")
	}
}
