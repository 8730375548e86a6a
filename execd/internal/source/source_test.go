package source

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// A source is found by the holder of a claim, that of all users by any name, and the
// queue where nobody holds one.
func TestOf(t *testing.T) {
	type fetching struct{ Queue }
	programs := &Programs{}
	sources := Sources{"fetch": fetching{}, Users: programs}
	for holder, want := range map[string]Source{"": Queue{}, "fetch": fetching{}, "alice": programs} {
		if got := sources.Of(holder); got != want {
			t.Errorf("%q: %T; want %T", holder, got, want)
		}
	}
	if got := (Sources{}).Of("alice"); got != (Queue{}) {
		t.Errorf("with no sources: %T; want the queue", got)
	}
}

// A job of a program that nobody starts again is deleted, with a line, and none of the
// queue is.
func TestStray(t *testing.T) {
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	store, err := job.Open(root, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	sources := Sources{Users: &Programs{Store: store, Log: slog.New(slog.NewTextHandler(&log, nil))}}
	for _, work := range []*api.Work{nil, {Slot: "1", Holder: "alice"}} {
		r := &api.SubmitRequest{Name: "j", Binary: true, Command: "true", Work: work}
		if _, _, err := store.Submit(&user.User{Name: "alice", UID: 1}, 1, r, job.Limits{}, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	for _, j := range store.Pending() {
		sources.Of(j.Source).Stray(j)
	}
	queued, stray := store.Get(1) != nil, store.Get(2) != nil
	if !queued || stray || !strings.Contains(log.String(), "job 2: is not run again") {
		t.Errorf("job 1 is there %v, job 2 %v, and the log %q; want the second deleted", queued, stray, log.String())
	}
}
