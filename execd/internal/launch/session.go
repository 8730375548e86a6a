package launch

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/spool"
)

// CheckInteractive reports why interactive jobs cannot be run.
func (l *Launcher) CheckInteractive() error {
	if l.Foreign() {
		return fmt.Errorf("shepherd_cmd %s is not Paddock's shepherd", l.Shepherd)
	}
	return executable("qrsh-session", l.Session)
}

// NewSession returns the file session for a client, or why it is none.
func NewSession(number int, client *api.Listener) (spool.Session, error) {
	s := spool.Session{Number: number, Address: client.Address, Fingerprint: client.Fingerprint, Token: client.Token}
	return s, s.Check()
}

// sessionFile returns the file session of an interactive job; nil: it is none.
func sessionFile(o *Order) []byte {
	if o.Request.Interactive == nil || o.Request.Interactive.Display != "" {
		return nil
	}
	s, _ := NewSession(1, &o.Request.Interactive.Client) // it was checked at submission
	return s.Append(nil)
}

// Lost returns why an interactive job that runs is to be stopped for want of a
// client, and nothing if it is not.
func (r *Runs) Lost(run spool.RunID) string {
	b, err := r.Root.Active(run.ID()).Read(spool.FileLost)
	if err != nil {
		return ""
	}
	why, _, _ := strings.Cut(string(b), "\n")
	return cmp.Or(why, "the client is gone")
}

// Attend watches whether an interactive job that runs is to be stopped for want
// of a client.
func (ss *shepherds) Attend(run spool.RunID) error {
	if err := ss.watch.attend(run, ss.Root.Active(run.ID()).Path()); err != nil {
		return fmt.Errorf("cannot watch the directory of job %v: %w", run.ID(), err)
	}
	ss.Noticed(run) // what was before
	return nil
}

// Attach tells the shepherd of an interactive job of another client.
func (ss *shepherds) Attach(run spool.RunID, client *api.Listener) error {
	shepherd := ss.shepherd(run)
	if shepherd == nil {
		return errors.New("no shepherd runs")
	}
	shepherd.telling.Lock()
	defer shepherd.telling.Unlock() // two clients get two numbers
	d := ss.Root.Active(run.ID())
	b, err := d.Read(spool.FileSession)
	if err != nil {
		return err
	}
	last, err := spool.ParseSession(b)
	if err != nil {
		return err
	}
	next, err := NewSession(last.Number+1, client)
	if err != nil {
		return err
	}
	if err := d.Write(spool.FileSession, next.Append(nil)); err != nil {
		return err
	}
	return ss.poke(run, shepherd, unix.SIGTTIN)
}
