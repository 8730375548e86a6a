package accounting

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// indexed writes an accounting file of jobs with an index, in parts of so many lines.
func indexed(t testing.TB, jobs []int, each int) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "accounting")
	file, index := []byte("# Version\n"), []byte(nil)
	begin := 0
	for i, n := range jobs {
		line, err := Append(nil, Record{QName: "all.q", Hostname: "node7", Owner: "alice", JobNumber: n})
		if err != nil {
			t.Fatal(err)
		}
		if file = append(file, line...); (i+1)%each == 0 {
			p := NewPart(int64(begin), file[begin:])
			index, begin = p.Append(index), len(file)
		}
	}
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	index = append([]byte(IndexHeading(info)), index...)
	if err := os.WriteFile(IndexPath(path), index, 0o644); err != nil {
		t.Fatal(err)
	}
	return f
}

// look returns by their numbers the lines of a job that are in what has to be read, and how much that is.
func look(t testing.TB, f *os.File, job int) (lines []int, size int) {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Spans(f, info.Size(), job) {
		text, err := io.ReadAll(s)
		if err != nil {
			t.Fatal(err)
		}
		n := s.Lines
		for line := range bytes.Lines(text) {
			if n++; string(Field(line, FieldJobNumber)) == strconv.Itoa(job) {
				lines = append(lines, n)
			}
		}
		size += len(text)
	}
	return lines, size
}

// TestSpans looks for every job of files in which those of a part are near each other, or far apart.
func TestSpans(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, far := range []int{1, 50, 100_000} {
		jobs := make([]int, 2000)
		where := map[int][]int{}
		for i := range jobs {
			jobs[i] = 1 + max(i/2+random.IntN(far)-far/2, 0)
			where[jobs[i]] = append(where[jobs[i]], i+2) // a heading is before
		}
		f := indexed(t, jobs, 70)
		info, _ := f.Stat()
		read := 0
		for job, want := range where {
			got, size := look(t, f, job)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("far %d: job %d is in lines %d; want %d", far, job, got, want)
			}
			read += size
		}
		if share := float64(read) / float64(len(where)) / float64(info.Size()); far < 100 && share > 0.1 {
			t.Errorf("far %d: a job costs %.2f of the file", far, share)
		}
	}
}

// TestIndexDoubted has everything read where the index is not of the file as it is, or not its owner's.
func TestIndexDoubted(t *testing.T) {
	jobs := make([]int, 500)
	for i := range jobs {
		jobs[i] = 1000 + i
	}
	for what, change := range map[string]func(file, index string) error{
		"a line was taken out": func(file, _ string) error {
			text, err := os.ReadFile(file)
			if err == nil {
				at := bytes.IndexByte(text, '\n') + 1
				end := at + bytes.IndexByte(text[at:], '\n') + 1
				err = os.WriteFile(file, append(text[:at], text[end:]...), 0o644)
			}
			return err
		},
		"the file was cut":        func(file, _ string) error { return os.Truncate(file, 5000) },
		"everybody may write":     func(_, index string) error { return os.Chmod(index, 0o666) },
		"it is a link":            func(_, index string) error { return linked(index) },
		"it is a pipe":            func(_, index string) error { return piped(index) },
		"a line of it is damaged": func(_, index string) error { return damaged(index) },
		"it is somebody else's": func(_, index string) error {
			if os.Getuid() != 0 {
				return linked(index) // another user cannot be had
			}
			return os.Chown(index, 65534, -1)
		},
	} {
		f := indexed(t, jobs, 50)
		if err := change(f.Name(), IndexPath(f.Name())); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if p := Parts(f); p != nil {
			t.Errorf("%s: %d parts", what, len(p))
		}
		if _, size := look(t, f, 1003); size == 0 {
			t.Errorf("%s: nothing is read", what)
		}
	}
}

func linked(index string) error {
	if err := os.Rename(index, index+".other"); err != nil {
		return err
	}
	return os.Symlink(index+".other", index)
}

func piped(index string) error {
	if err := os.Remove(index); err != nil {
		return err
	}
	return syscall.Mkfifo(index, 0o644)
}

func damaged(index string) error {
	text, err := os.ReadFile(index)
	if err != nil {
		return err
	}
	return os.WriteFile(index, bytes.Replace(text, []byte(" 50 "), []byte(" fifty "), 1), 0o644)
}

// TestOddParts has lines that are no records read, so that they are complained of, and comments passed over.
func TestOddParts(t *testing.T) {
	for text, want := range map[string]bool{"# only\n# comments\n\n": false, "garbage\n": true, "a:b:c:d:e:minus:\n": true, "a:b:c:d:e:-5:\n": true, "a:b:c:d:e:8:\n": false} {
		p := NewPart(0, []byte(text))
		if p.MayHave(7) != want {
			t.Errorf("%q: job 7 may be there: %t", text, !want)
		}
		line := string(p.Append(nil))
		if got, ok := parsePart(line[:len(line)-1], 0); !ok || fmt.Sprint(got) != fmt.Sprint(p) {
			t.Errorf("%q: %q is read as %v; want %v", text, line, got, p)
		}
	}
}

// FuzzIndex has an index that anybody may have written: what is to be read is in order and within the file.
func FuzzIndex(f *testing.F) {
	of := indexed(f, []int{5, 6, 900}, 1)
	whole, err := os.ReadFile(IndexPath(of.Name()))
	if err != nil {
		f.Fatal(err)
	}
	info, err := of.Stat()
	if err != nil {
		f.Fatal(err)
	}
	_, parts, _ := bytes.Cut(whole, []byte("\n"))
	heading := whole[:len(whole)-len(parts)]
	f.Add(parts)
	f.Add([]byte("10 1 00000000 1-2,5\n"))
	f.Fuzz(func(t *testing.T, parts []byte) {
		if err := os.WriteFile(IndexPath(of.Name()), append(bytes.Clone(heading), parts...), 0o644); err != nil {
			t.Fatal(err)
		}
		size := int64(0)
		for _, s := range Spans(of, info.Size(), 6) {
			n := s.Reader.(*io.SectionReader).Size()
			if size += n; n <= 0 || s.Lines < 0 {
				t.Errorf("%d bytes behind %d lines are to be read", n, s.Lines)
			}
		}
		if size > info.Size() {
			t.Errorf("%d bytes of %d are to be read", size, info.Size())
		}
	})
}
