package output

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/execd/internal/launch"
	"paddock/spool"
)

func newIndex(t *testing.T) *Index {
	t.Helper()
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	return New(root)
}

func note(t *testing.T, x *Index, s launch.Streams) {
	t.Helper()
	if err := x.Add(s); err != nil {
		t.Fatal(err)
	}
}

// What was noted last counts, also of names and paths that are no UTF-8, and
// damage to a line harms that line.
func TestIndex(t *testing.T) {
	x := newIndex(t)
	if _, ok := x.Job(1); ok {
		t.Error("an empty memory knows job 1")
	}
	odd := launch.Streams{Job: 1, UID: 7, Name: "a\xff", Home: "/h", Stdout: "/x/\xfe\"\n", Array: true}
	note(t, x, odd)
	note(t, x, launch.Streams{Job: 2, UID: 7, Name: "b"})
	note(t, x, launch.Streams{Job: 3, UID: 8, Name: "b"})
	f, err := os.OpenFile(x.file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, "{\"job\":4,\n\x00\x00\nnull\n")
	f.Close()
	if s, ok := x.Job(1); !ok || s != odd {
		t.Errorf("Job(1) = %+v, %v; want %+v", s, ok, odd)
	}
	if s, ok := x.Youngest(7, "b"); !ok || s.Job != 2 {
		t.Errorf("Youngest(7, b) = %+v, %v; want job 2", s, ok)
	}
	if _, ok := x.Job(4); ok {
		t.Error("a damaged line is believed")
	}
	changed := odd
	changed.Stdout = "/y"
	note(t, x, changed)
	if s, _ := x.Job(1); s != changed {
		t.Errorf("Job(1) = %+v; want what was noted last", s)
	}
	if info, err := os.Stat(x.file); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
}

// The tasks of an array are one line, and the two files do not grow.
func TestSize(t *testing.T) {
	x := newIndex(t)
	x.size = 2000
	array := launch.Streams{Job: 1, Name: "a", Array: true}
	for range 100 {
		note(t, x, array)
	}
	data, err := os.ReadFile(x.file)
	if err != nil || strings.Count(string(data), "\n") != 1 {
		t.Errorf("%d lines, %v; want 1", strings.Count(string(data), "\n"), err)
	}
	for n := 2; n < 200; n++ {
		note(t, x, launch.Streams{Job: n, Name: "a"})
	}
	for _, file := range []string{x.file, x.old} {
		if info, err := os.Stat(file); err != nil || info.Size() > 2100 {
			t.Errorf("%s: %v, %v; want at most 2000 bytes and a line", file, info.Size(), err)
		}
	}
	if _, ok := x.Job(199); !ok {
		t.Error("the last job is not known")
	}
	if _, ok := x.Job(1); ok {
		t.Error("the first job is still known")
	}
}

func TestOutput(t *testing.T) {
	for _, tt := range []struct {
		s    launch.Streams
		task int
		want api.Output
	}{
		{
			launch.Streams{Job: 7, Name: "n", Home: "/home/a", Owner: "a"},
			1,
			api.Output{Stdout: api.File{Path: "/home/a", Name: "n.o7"}, Stderr: api.File{Path: "/home/a", Name: "n.e7"}},
		},
		{
			launch.Streams{Job: 7, Name: "n", Home: "/home/a", Owner: "a", Cwd: "/w", Array: true, Merge: true, Stdout: "o/$JOB_NAME.$TASK_ID,other:/no", Stderr: "here:/$HOSTNAME.$USER,/no"},
			3,
			api.Output{Task: 3, Merged: true, Stdout: api.File{Path: "/w/o/n.3", Name: "n.o7.3"}, Stderr: api.File{Path: "/here.a", Name: "n.e7.3"}},
		},
	} {
		if diff := cmp.Diff(tt.want, tt.s.Output("here", tt.task)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.s, diff)
		}
	}
}

func FuzzLastOf(f *testing.F) {
	f.Add([]byte("{\"job\":4}\n"))
	f.Add([]byte("{\"job\":4,\"name\":{\"base64\":\"/w==\"}}\n{\"job\":"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, ok := lastOf(data, func(*launch.Streams) bool { return true })
		if ok && s.Job <= 0 {
			t.Errorf("lastOf(%q) = %+v", data, s)
		}
		s.Output("h", 1) // whatever stands there
	})
}
