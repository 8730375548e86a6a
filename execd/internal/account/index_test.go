package account

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/execd/api/accounting"
	"paddock/execd/internal/job"
)

// ledger is an accounting file that grows.
type ledger struct {
	t    *testing.T
	path string
	next int // job
}

// grow adds lines of the next jobs, and returns where the file ends.
func (l *ledger) grow(bytes int) job.Place {
	l.t.Helper()
	var text []byte
	for len(text) < bytes {
		var err error
		text, err = accounting.Append(text, accounting.Record{QName: "all.q", Owner: "alice", JobName: strings.Repeat("x", 200), JobNumber: l.next})
		if err != nil {
			l.t.Fatal(err)
		}
		l.next++
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		l.t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		l.t.Fatal(err)
	}
	return job.Place{Inode: inode(info), Offset: info.Size()}
}

// parts returns how many parts an index knows, all of whose jobs are found there alone.
func (l *ledger) parts() int {
	l.t.Helper()
	f, err := os.Open(l.path)
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	parts := accounting.Parts(f)
	for number := 1; number < l.next; number += 1000 {
		n := 0
		for i := range parts {
			if parts[i].MayHave(number) {
				n++
			}
		}
		if n > 1 {
			l.t.Errorf("job %d may be in %d of %d parts", number, n, len(parts))
		}
	}
	return len(parts)
}

// TestIndex has an index follow its file, over a restart, a rotation, and what an administrator does.
func TestIndex(t *testing.T) {
	const part = accounting.PartSize
	l := &ledger{t, filepath.Join(t.TempDir(), "accounting"), 1}
	var x index
	extend := func(at job.Place, want int) {
		t.Helper()
		if err := x.extend(l.path, at); err != nil {
			t.Fatal(err)
		}
		if got := l.parts(); got != want {
			t.Errorf("the index knows %d parts; want %d", got, want)
		}
	}
	extend(l.grow(part/2), 0)
	if err := x.extend(l.path, job.Place{}); err != nil { // nothing could be written
		t.Error(err)
	}
	if _, err := os.Stat(accounting.IndexPath(l.path)); err == nil {
		t.Error("a small file has an index")
	}
	extend(l.grow(part), 1)
	extend(l.grow(100), 1)
	extend(l.grow(3*part), 4)

	x = index{} // a restart
	extend(l.grow(part), 5)
	if err := os.WriteFile(accounting.IndexPath(l.path), []byte("garbage"), 0o644); err != nil {
		t.Fatal(err)
	}
	x = index{}
	extend(l.grow(part), 6)

	if err := os.Rename(l.path, l.path+".1"); err != nil {
		t.Fatal(err)
	}
	at := l.grow(100)
	extend(at, 0)
	extend(l.grow(2*part), 2)

	if err := os.Truncate(l.path, 0); err != nil {
		t.Fatal(err)
	}
	extend(l.grow(100), 0)
	extend(l.grow(part), 1)

	for range maxIndexed + 2 {
		at = l.grow(part)
	}
	extend(at, 1+maxIndexed) // the rest in turn
	extend(l.grow(100), 3+maxIndexed)
}
