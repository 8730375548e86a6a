// Package mail tells users how their jobs fare and the administrator what goes
// wrong, through the program that the configuration names as mailer. Nothing
// waits for a mail: what cannot be sent in time is dropped with a line in the
// log. The daemon's packages import it; it imports asuser, conf and user.
//
// The mailer runs outside of every job, and so never as who has jobs: he could stop
// it, look into it, and have it start what he likes. It gets what it is to send
// through its standard input, read by others before.
package mail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/fair"
	"paddock/execd/internal/user"
)

// Office sends mail. It is made by New. The exported fields are set before Run and
// not changed.
type Office struct {
	Starter *asuser.Starter // of the mailer
	// Account returns whom the mailer runs as, which is never root.
	Account func(context.Context) (*user.User, error)

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

// Bounds of what waits: of all, of one user, and how many mails are sent at the
// same time. Of one user there is one: what is read of his files for it he may
// hold up, and shall delay no mail but his own.
const (
	maxWaiting     = 256
	maxUserWaiting = maxWaiting / 4
	maxMailers     = 4
)

// maxSaid is how many bytes of what a mailer says go to the log.
const maxSaid = 200

// letter is one mail on its way.
type letter struct {
	uid     int // whose job it is about; root's for what is about none
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

// Tell sends a mail about a job to the addresses of qsub -M.
// Where there are none the owner gets it. It does not wait.
func (o *Office) Tell(e Event, owner *user.User, to []string, j Job) {
	if len(to) == 0 {
		to = []string{owner.Name}
	}
	o.post(&letter{owner.UID, to, j.subject(e), func(ctx context.Context) []byte { return j.body(ctx, e, o.host) }})
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
	o.post(&letter{0, to, shown(subject, 2*maxName), func(context.Context) []byte { return b.Bytes() }})
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
	if o.config().Global.MailProgram() == "" {
		o.log.Debug(fmt.Sprintf("mail: not sent, there is no mailer: %s", l.subject))
		return
	}
	for _, a := range l.to {
		if err := api.CheckAddress(a); err != nil {
			o.warn("address", "cannot send %q: %q is not a mail address", l.subject, shown(a, maxName))
			return
		}
	}
	o.mu.Lock()
	full := o.total >= maxWaiting || o.waiting[l.uid] >= maxUserWaiting
	if !full {
		o.total++
		o.waiting[l.uid]++
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
			o.total--
			if o.waiting[l.uid]--; o.waiting[l.uid] == 0 {
				delete(o.waiting, l.uid)
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

// send runs the mailer.
func (o *Office) send(ctx context.Context, l *letter) {
	leave, err := o.gate.Enter(ctx, l.uid, 1)
	if err != nil {
		o.warn("stop", "not sent before execd stopped: %q", l.subject)
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	mailer := o.config().Global.MailProgram()
	if mailer == "" {
		return // taken away since
	}
	as, err := o.Account(ctx)
	if err != nil {
		o.warn("account", "cannot send %q: %v", l.subject, err)
		return
	}
	args, head := l.call(mailer)
	cmd := o.Starter.Program(ctx, as, mailer, args...)
	// No HOME: a start-up file could name programs.
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/",
		"USER=" + as.Name, "LOGNAME=" + as.Name,
	}
	reading, stop := context.WithTimeout(ctx, o.limit/3)
	defer stop()
	cmd.Stdin = bytes.NewReader(append(head, l.body(reading)...))
	said := &firstBytes{room: maxSaid}
	cmd.Stdout, cmd.Stderr = said, said
	// What a mailer leaves behind to deliver the mail may hold the pipe.
	cmd.WaitDelay = time.Second
	if err = o.Starter.Start(cmd); err == nil {
		err = cmd.Wait()
	}
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

// call returns the arguments of a mailer, and what stands before the text. A program
// called sendmail reads the addresses from the header, and is told that a line with a
// dot alone ends nothing; any other one is called as mail is.
func (l *letter) call(mailer string) (args []string, head []byte) {
	if filepath.Base(mailer) != "sendmail" {
		return append([]string{"-s", l.subject}, l.to...), nil
	}
	// Addresses are checked and the subject is one line without control characters.
	text := fmt.Sprintf("To: %s\nSubject: %s\n", strings.Join(l.to, ",\n "), mime.QEncoding.Encode("utf-8", l.subject))
	text += "Auto-Submitted: auto-generated\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n"
	return []string{"-i", "-t"}, []byte(text)
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
