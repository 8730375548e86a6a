// Package mail tells users how their jobs fare and the administrator what goes
// wrong, through the program that the configuration names as mailer. Nothing
// waits for a mail: what cannot be sent in time is dropped with a line in the
// log. The daemon's packages import it; it imports conf and user.
package mail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/fair"
	"paddock/execd/internal/user"
)

// Office sends mail. It is made by New.
type Office struct {
	config func() *conf.Config
	log    *slog.Logger
	host   string
	// limit bounds a mail, and what is on its way when execd stops.
	limit, grace time.Duration

	in   chan *letter
	gate fair.Gate

	mu      sync.Mutex
	waiting map[int]int          // guarded by mu; letters of each user that are not sent yet
	total   int                  // guarded by mu; sum of waiting
	told    map[string]time.Time // guarded by mu; when something of a kind was last told of
}

// Bounds of what waits: of all, of one user, and how many mailers run at the
// same time. Of one user there is one: he may stop or slow down what runs as
// himself, and shall delay no mail but his own.
const (
	maxWaiting     = 256
	maxUserWaiting = maxWaiting / 4
	maxMailers     = 4
)

// maxSaid is how many bytes of what a mailer says go to the log.
const maxSaid = 200

// nobody is who sends what is from no user, or from root: the mailer reads
// what users have written, and runs as root never.
const nobody = 65534

// letter is one mail on its way.
type letter struct {
	as      *user.User // nil: nobody
	to      []string
	subject string
	body    func(context.Context) []byte
}

// New returns an office that has not opened yet.
func New(config func() *conf.Config, host string, log *slog.Logger) *Office {
	return &Office{
		config: config, host: host, log: log, limit: 30 * time.Second, grace: 5 * time.Second,
		in:      make(chan *letter, maxWaiting),
		gate:    fair.Gate{Total: maxMailers, PerUser: 1},
		waiting: map[int]int{}, told: map[string]time.Time{},
	}
}

// Tell sends a mail about a job, as its owner, to the addresses of qsub -M.
// Where there are none the owner gets it. It does not wait.
func (o *Office) Tell(e Event, owner *user.User, to []string, j Job) {
	if len(to) == 0 {
		to = []string{owner.Name}
	}
	o.post(&letter{owner, to, j.subject(e), func(ctx context.Context) []byte { return j.body(ctx, e, o.host) }})
}

// Admin tells the administrator (administrator_mail) of what went wrong, at
// most once an hour for each kind, which is a word of the program's. It does
// not wait.
func (o *Office) Admin(kind, subject, text string) {
	to := o.config().Global.AdminMail
	if len(to) == 0 || !o.due("admin "+kind) {
		return
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "Host %s:\n\n", o.host)
	quote(&b, []byte(text))
	o.post(&letter{nil, to, shown(subject, 2*maxName), func(context.Context) []byte { return b.Bytes() }})
}

// due reports whether something of a kind was not told of within the last hour.
func (o *Office) due(kind string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if last, ok := o.told[kind]; ok && now.Sub(last) < time.Hour {
		return false
	}
	o.told[kind] = now
	return true
}

// warn logs a failure, of each kind once an hour.
func (o *Office) warn(kind, format string, args ...any) {
	if o.due("log " + kind) {
		o.log.Warn("mail: " + fmt.Sprintf(format, args...))
	}
}

// post puts a letter with the others.
func (o *Office) post(l *letter) {
	if o.config().Global.Mailer == "" {
		o.log.Debug(fmt.Sprintf("mail: not sent, there is no mailer: %s", l.subject))
		return
	}
	for _, a := range l.to {
		if err := api.CheckAddress(a); err != nil {
			o.warn("address", "cannot send %q: %q is not a mail address", l.subject, shown(a, maxName))
			return
		}
	}
	uid := l.uid()
	o.mu.Lock()
	full := o.total >= maxWaiting || o.waiting[uid] >= maxUserWaiting
	if !full {
		o.total++
		o.waiting[uid]++
		o.in <- l // has room for all that are counted
	}
	o.mu.Unlock()
	if full {
		o.warn("full", "too many wait to be sent, some are dropped; the first is %q", l.subject)
	}
}

// Run sends until ctx is done. What waits then has a moment to leave.
func (o *Office) Run(ctx context.Context) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var wg sync.WaitGroup
	send := func(l *letter) {
		wg.Go(func() {
			o.send(sending, l)
			o.mu.Lock()
			defer o.mu.Unlock()
			uid := l.uid()
			o.total--
			if o.waiting[uid]--; o.waiting[uid] == 0 {
				delete(o.waiting, uid)
			}
		})
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case l := <-o.in:
			send(l)
		}
	}
	for range len(o.in) {
		send(<-o.in)
	}
	defer time.AfterFunc(o.grace, cancel).Stop()
	wg.Wait()
}

// uid returns as whom the mailer runs when it is up to us.
func (l *letter) uid() int {
	if l.as == nil || l.as.UID == 0 {
		return nobody
	}
	return l.as.UID
}

// send runs the mailer.
func (o *Office) send(ctx context.Context, l *letter) {
	leave, err := o.gate.Enter(ctx, l.uid(), 1)
	if err != nil {
		o.warn("stop", "not sent before execd stopped: %q", l.subject)
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	mailer := o.config().Global.Mailer
	if mailer == "" {
		return // taken away since
	}
	cmd := exec.CommandContext(ctx, mailer, append([]string{"-s", l.subject}, l.to...)...)
	// No HOME: the user's start-up file could name programs, which would run
	// outside of any job.
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 {
		cred := &syscall.Credential{Uid: uint32(l.uid()), Gid: nobody}
		if l.uid() != nobody {
			cred.Gid = uint32(l.as.GID)
			for _, g := range l.as.Groups {
				cred.Groups = append(cred.Groups, uint32(g))
			}
			cmd.Env = append(cmd.Env, "USER="+l.as.Name, "LOGNAME="+l.as.Name)
		}
		cmd.SysProcAttr.Credential = cred
	}
	reading, stop := context.WithTimeout(ctx, o.limit/3)
	defer stop()
	cmd.Stdin = bytes.NewReader(l.body(reading))
	said := &firstBytes{room: maxSaid}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// What a mailer leaves behind to deliver the mail may hold the pipe.
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		o.log.Debug(fmt.Sprintf("mail: sent: %s", l.subject))
	case errors.Is(ctx.Err(), context.Canceled):
		o.warn("stop", "not sent before execd stopped: %q", l.subject)
	case ctx.Err() != nil:
		o.warn("time", "cannot send %q: %s did not end within %v", l.subject, mailer, o.limit)
	case cmd.ProcessState == nil:
		o.warn("start", "cannot start mailer: %v", err)
	default:
		o.warn("exit", "cannot send %q: %s: %v: %s", l.subject, mailer, err, shown(strings.TrimSpace(string(said.kept)), maxSaid))
	}
}

// firstBytes keeps the first bytes of what is written to it.
type firstBytes struct {
	kept []byte
	room int
}

func (f *firstBytes) Write(p []byte) (int, error) {
	n := min(len(p), f.room)
	f.kept, f.room = append(f.kept, p[:n]...), f.room-n
	return len(p), nil
}
