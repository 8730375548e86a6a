package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/internal/user"
)

// Files is what writes and reads files of users, with their rights alone;
// asuser.Starter does.
type Files interface {
	AppendAs(ctx context.Context, u *user.User, path string, data []byte) error
	WriteAs(ctx context.Context, u *user.User, path string, data []byte) error
	Tail(ctx context.Context, u *user.User, path string, n int) ([]byte, error)
}

// Limit bounds a write: a file system that hangs must not hold up the end of a
// job for ever.
const Limit = 30 * time.Second

// tail is how many bytes at the end of a log are searched for a record.
const tail = 64 << 10

// Writer writes records to the logs of jobs, each record once.
type Writer struct {
	Files Files

	mu      sync.Mutex
	written map[string]map[string]*write // guarded by mu; keys are Activation and ID
}

// write is a record that is being written, or was.
type write struct {
	done chan struct{} // closed when it is over
	err  error
}

// Entry is where a record goes, and what all have in common.
type Entry struct {
	Owner *user.User
	Path  string // absolute; empty or /dev/null: there is no log
	Form  Form
	Times Times

	// Activation names this run of the job among all that may write to this log,
	// on this host and others: HOST/JOB.TASK.RUN. The events of a run that happen
	// once are told apart by their number, the others by Seq as well, from 1; an
	// event has the same Seq whenever it is written, also after a restart.
	Activation string
	Seq        int

	Cluster, Proc int
	Time          time.Time // of the event

	// Again says that an earlier execd may have written the record: then it is
	// looked for.
	Again bool
}

// ID returns the id of an event of this entry.
func (e *Entry) ID(b Body) string {
	if e.Activation == "" {
		return ""
	}
	id := fmt.Sprintf("%s#%03d", e.Activation, b.number())
	if e.Seq > 0 {
		id += fmt.Sprintf(".%d", e.Seq)
	}
	return id
}

// Write writes a record, and returns when it is on disk. A record that was
// written in this life of execd is not written again, and nil is returned. After
// an error it may be there or not, and the next call writes it. One that an
// earlier execd may have written is looked for near the end of the log if the entry
// says so; if it stands farther up it is written twice.
func (l *Writer) Write(ctx context.Context, e Entry, b Body) error {
	if unwanted(e.Path) {
		return nil
	}
	if !filepath.IsAbs(e.Path) {
		return fmt.Errorf("cannot write event log %q: not an absolute path", e.Path)
	}
	id := e.ID(b)
	if id == "" {
		return l.write(ctx, &e, b, id)
	}
	w, mine := l.claim(e.Activation, id)
	if !mine {
		select {
		case <-w.done:
			return w.err
		default: // a record that is written counts though ctx is done
		}
		select {
		case <-w.done:
			return w.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.err = l.write(ctx, &e, b, id)
	if w.err != nil {
		l.mu.Lock()
		delete(l.written[e.Activation], id)
		l.mu.Unlock()
	}
	close(w.done)
	return w.err
}

// WriteEach writes a record for each of several procs, as many in one write as fit. The
// records have no ids, and are not looked for in the log.
func (l *Writer) WriteEach(ctx context.Context, e Entry, procs iter.Seq[int], b Body) error {
	if unwanted(e.Path) {
		return nil
	}
	var data []byte
	for proc := range procs {
		record := Append(nil, Event{Cluster: e.Cluster, Proc: proc, Time: e.Time, Body: b}, e.Form, e.Times)
		if len(data)+len(record) > MaxRecord {
			if err := l.append(ctx, &e, data); err != nil {
				return err
			}
			data = data[:0]
		}
		data = append(data, record...)
	}
	return l.append(ctx, &e, data)
}

// claim returns the write of a record, and whether the caller must do it.
func (l *Writer) claim(activation, id string) (w *write, mine bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w = l.written[activation][id]; w != nil {
		return w, false
	}
	if l.written == nil {
		l.written = make(map[string]map[string]*write)
	}
	if l.written[activation] == nil {
		l.written[activation] = make(map[string]*write)
	}
	w = &write{done: make(chan struct{})}
	l.written[activation][id] = w
	return w, true
}

// Forget frees what is remembered of an activation of which nothing more is written.
func (l *Writer) Forget(activation string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.written, activation)
}

func (l *Writer) write(ctx context.Context, e *Entry, b Body, id string) error {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	if e.Again && id != "" && l.there(ctx, e, id, b.number()) {
		return nil
	}
	record := Append(nil, Event{
		ID: id, Cluster: e.Cluster, Proc: e.Proc, Time: e.Time, Body: b,
	}, e.Form, e.Times)
	if len(record) > MaxRecord {
		return fmt.Errorf("cannot write event log %q: a record of %d bytes", e.Path, len(record))
	}
	return l.append(ctx, e, record)
}

// append adds records to a log.
func (l *Writer) append(ctx context.Context, e *Entry, records []byte) error {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	return l.Files.AppendAs(ctx, e.Owner, e.Path, records)
}

// there reports whether a whole record stands near the end of its log.
func (l *Writer) there(ctx context.Context, e *Entry, id string, n Number) bool {
	text, err := l.Files.Tail(ctx, e.Owner, e.Path, tail)
	if err != nil {
		return false // it is not there yet, or the write will tell
	}
	r := NewReader(bytes.NewReader(text))
	for {
		rec, err := r.Next()
		var bad *SyntaxError
		switch {
		case err == nil:
			if rec.ID == id && rec.Number == n && rec.Cluster == e.Cluster && rec.Proc == e.Proc {
				return true
			}
		case !errors.As(err, &bad): // half of a record at the beginning
			return false
		}
	}
}

// OutputAd writes the ad of how a job ended to a file of its owner's, in old
// syntax and without secrets, whole or not at all. An empty path and /dev/null
// are no file.
func (l *Writer) OutputAd(ctx context.Context, owner *user.User, path string, ad *classad.Ad) error {
	if unwanted(path) {
		return nil
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("cannot write output ad %q: not an absolute path", path)
	}
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	return l.Files.WriteAs(ctx, owner, path, []byte(ad.OldString()))
}

// unwanted reports whether a path means that nothing is written.
func unwanted(path string) bool { return path == "" || path == "/dev/null" }
