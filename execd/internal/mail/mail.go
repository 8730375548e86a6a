// Package mail tells users how their jobs fare and the administrator what goes
// wrong, through the program that the configuration names as mailer. Nothing
// waits for a mail: what cannot be sent in time is dropped with a line in the
// log. The daemon's packages import it; it imports asuser, conf and user.
//
// The mailer runs outside of every job, and so never as a user who has jobs: he could stop
// it, look into it, and make it start what he likes. It gets the mail through its standard
// input, read by others before.
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

// Sender sends mail. It is made by New. The exported fields are set before Run and
// not changed.
type Sender struct {
	Starter *asuser.Starter // of the mailer
	// Account returns whom the mailer runs as, which is never root.
	Account func(context.Context) (*user.User, error)

	config func() *conf.Config
	log    *slog.Logger
	host   string
	// limit bounds a mail, and what is on its way when execd stops.
	limit, grace time.Duration

	in   chan *message
	gate fair.Gate

	mu      sync.Mutex
	waiting map[int]int          // guarded by mu; mails of each user that are not sent yet
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

// message is one mail on its way.
type message struct {
	uid     int // whose job it is about; root's for what is about none
	to      []string
	subject string
	body    func(context.Context) []byte
}

// New returns a Sender that does not run yet.
func New(config func() *conf.Config, host string, log *slog.Logger) *Sender {
	return &Sender{
		config: config, host: host, log: log, limit: 30 * time.Second, grace: 5 * time.Second,
		in:      make(chan *message, maxWaiting),
		gate:    fair.Gate{Total: maxMailers, PerUser: 1},
		waiting: map[int]int{}, told: map[string]time.Time{},
	}
}

// Tell sends a mail about a job to the addresses of qsub -M.
// Where there are none the owner gets it. It does not wait.
func (s *Sender) Tell(e Event, owner *user.User, to []string, j Job) {
	if len(to) == 0 {
		to = []string{owner.Name}
	}
	s.post(&message{owner.UID, to, j.subject(e), func(ctx context.Context) []byte { return j.body(ctx, e, s.host) }})
}

// Admin tells the administrator (administrator_mail) of what went wrong, at
// most once an hour for each kind, which is a word of the program's. It does
// not wait.
func (s *Sender) Admin(kind, subject, text string) {
	to := s.config().Global.AdminMail
	if len(to) == 0 || !s.due("admin "+kind) {
		return
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "Host %s:\n\n", s.host)
	quote(&b, []byte(text))
	s.post(&message{0, to, shown(subject, 2*maxName), func(context.Context) []byte { return b.Bytes() }})
}

// due reports whether something of a kind was not told of within the last hour.
func (s *Sender) due(kind string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if last, ok := s.told[kind]; ok && now.Sub(last) < time.Hour {
		return false
	}
	s.told[kind] = now
	return true
}

// warn logs a failure, of each kind once an hour.
func (s *Sender) warn(kind, format string, args ...any) {
	if s.due("log " + kind) {
		s.log.Warn("mail: " + fmt.Sprintf(format, args...))
	}
}

// post puts a mail with the others.
func (s *Sender) post(m *message) {
	if s.config().Global.MailProgram() == "" {
		s.log.Debug(fmt.Sprintf("mail: not sent, there is no mailer: %s", m.subject))
		return
	}
	for _, a := range m.to {
		if err := api.CheckAddress(a); err != nil {
			s.warn("address", "cannot send %q: %q is not a mail address", m.subject, shown(a, maxName))
			return
		}
	}
	s.mu.Lock()
	full := s.total >= maxWaiting || s.waiting[m.uid] >= maxUserWaiting
	if !full {
		s.total++
		s.waiting[m.uid]++
		s.in <- m // has room for all that are counted
	}
	s.mu.Unlock()
	if full {
		s.warn("full", "too many wait to be sent, some are dropped; the first is %q", m.subject)
	}
}

// Run sends until ctx is done. What waits then has a moment to leave.
func (s *Sender) Run(ctx context.Context) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var wg sync.WaitGroup
	send := func(m *message) {
		wg.Go(func() {
			s.send(sending, m)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.total--
			if s.waiting[m.uid]--; s.waiting[m.uid] == 0 {
				delete(s.waiting, m.uid)
			}
		})
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case m := <-s.in:
			send(m)
		}
	}
	for range len(s.in) {
		send(<-s.in)
	}
	defer time.AfterFunc(s.grace, cancel).Stop()
	wg.Wait()
}

// send runs the mailer.
func (s *Sender) send(ctx context.Context, m *message) {
	leave, err := s.gate.Enter(ctx, m.uid, 1)
	if err != nil {
		s.warn("stop", "not sent before execd stopped: %q", m.subject)
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	mailer := s.config().Global.MailProgram()
	if mailer == "" {
		return // taken away since
	}
	as, err := s.Account(ctx)
	if err != nil {
		s.warn("account", "cannot send %q: %v", m.subject, err)
		return
	}
	args, head := m.call(mailer)
	cmd := s.Starter.Program(ctx, as, mailer, args...)
	// No HOME: a start-up file could name programs.
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/",
		"USER=" + as.Name, "LOGNAME=" + as.Name,
	}
	reading, stop := context.WithTimeout(ctx, s.limit/3)
	defer stop()
	cmd.Stdin = bytes.NewReader(append(head, m.body(reading)...))
	said := &firstBytes{room: maxSaid}
	cmd.Stdout, cmd.Stderr = said, said
	// What a mailer leaves behind to deliver the mail may hold the pipe.
	cmd.WaitDelay = time.Second
	if err = s.Starter.Start(cmd); err == nil {
		err = cmd.Wait()
	}
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		s.log.Debug(fmt.Sprintf("mail: sent: %s", m.subject))
	case errors.Is(ctx.Err(), context.Canceled):
		s.warn("stop", "not sent before execd stopped: %q", m.subject)
	case ctx.Err() != nil:
		s.warn("time", "cannot send %q: %s did not end within %v", m.subject, mailer, s.limit)
	case cmd.ProcessState == nil:
		s.warn("start", "cannot start mailer: %v", err)
	default:
		s.warn("exit", "cannot send %q: %s: %v: %s", m.subject, mailer, err, shown(strings.TrimSpace(string(said.kept)), maxSaid))
	}
}

// call returns the arguments of a mailer, and what stands before the text. A program
// called sendmail reads the addresses from the header, and is told that a line with a
// dot alone ends nothing; any other one is called as mail is.
func (m *message) call(mailer string) (args []string, head []byte) {
	if filepath.Base(mailer) != "sendmail" {
		return append([]string{"-s", m.subject}, m.to...), nil
	}
	// Addresses are checked and the subject is one line without control characters.
	text := fmt.Sprintf("To: %s\nSubject: %s\n", strings.Join(m.to, ",\n "), mime.QEncoding.Encode("utf-8", m.subject))
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
