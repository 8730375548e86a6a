package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// oddJobs are jobs with and without all that may be odd about one.
func oddJobs(n int) []JobStatus {
	odd := "\"},{\n\\\x00<&>\u2028\xffé" + strings.Repeat("x", 200)
	jobs := make([]JobStatus, 0, n)
	for i := range n {
		j := JobStatus{Job: i, Name: odd[:i%len(odd)], Owner: "somebody", State: "qw", Time: time.Unix(int64(i), int64(i%3)).UTC(), Slots: 1}
		switch i % 7 {
		case 1:
			j.More = &JobMore{Hard: []Requested{{Resource: Resource{Name: "job", Value: odd}}}, WaitsFor: []int{i}}
		case 2:
			j.Queue, j.Tasks, j.Granted = "all.q@h", "1-3:1", []Granted{{"all.q@h", 2}, {"b.q@h", 1}}
		case 3:
			j.Reason, j.Holds, j.Priority = odd, "uo", 0.55500
		case 4:
			j.Priority, j.Job, j.Time = 1e-7, -i, time.Unix(int64(i), 0).In(time.FixedZone("", 3600))
		}
		if i == 20 {
			j.Reason = strings.Repeat("long ", sendAt) // longer than what is read at once
		}
		jobs = append(jobs, j)
	}
	return jobs
}

func readAll(r io.Reader) (jobs []JobStatus, err error) {
	err = readJobs(r, func(j *JobStatus) { jobs = append(jobs, *j) })
	return jobs, err
}

func TestJobsInLines(t *testing.T) {
	all := oddJobs(1000)
	for _, n := range []int{0, 1, 2, 100, len(all)} {
		var lines bytes.Buffer
		if err := WriteJobs(&lines, pointers(all[:n])); err != nil {
			t.Fatal(err)
		}
		whole, err := json.Marshal(JobsReply{Jobs: all[:n]})
		if err != nil {
			t.Fatal(err)
		}
		var want JobsReply
		if err := json.Unmarshal(whole, &want); err != nil {
			t.Fatal(err)
		}
		var reply JobsReply
		if err := json.Unmarshal(lines.Bytes(), &reply); err != nil || len(reply.Jobs) != n {
			t.Errorf("as a whole, %d jobs are read as %d, %v", n, len(reply.Jobs), err)
		}
		for what, r := range map[string]io.Reader{
			"lines": &lines, "no lines": bytes.NewReader(whole), "pieces": iotest.HalfReader(bytes.NewReader(lines.Bytes())),
		} {
			got, err := readAll(r)
			if err != nil || len(got) != n {
				t.Fatalf("%s: %d jobs are read as %d, %v", what, n, len(got), err)
			}
			for i := range got {
				if !reflect.DeepEqual(got[i], want.Jobs[i]) {
					t.Fatalf("%s: job %d is read as %+v; want %+v", what, i, got[i], want.Jobs[i])
				}
			}
		}
	}
}

func pointers(jobs []JobStatus) func(yield func(*JobStatus) bool) {
	return func(yield func(*JobStatus) bool) {
		for i := range jobs {
			if !yield(&jobs[i]) {
				return
			}
		}
	}
}

func TestBrokenJobs(t *testing.T) {
	var text bytes.Buffer
	if err := WriteJobs(&text, pointers(oddJobs(3))); err != nil {
		t.Fatal(err)
	}
	for n := range text.Len() {
		if _, err := readAll(bytes.NewReader(text.Bytes()[:n])); err == nil {
			t.Errorf("the first %d of %d bytes are no error", n, text.Len())
		}
	}
	if _, err := readAll(strings.NewReader(jobsBegin + "{\"job\":\"x\"}\n" + jobsEnd)); err == nil {
		t.Error("a broken line is no error")
	}
	if _, err := readAll(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("error %v; want the reader's", err)
	}
	for _, j := range []JobStatus{{Priority: math.NaN()}, {Time: time.Unix(1<<40, 0)}} {
		if err := WriteJobs(io.Discard, pointers([]JobStatus{j})); err == nil {
			t.Errorf("%+v is no error", j)
		}
	}
}

// TestJobsBreakOff has the connection end amid the jobs: those before are told of.
func TestJobsBreakOff(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, test := range []struct{ answer, want string }{
		{"HTTP/1.0 200 OK\r\n\r\n" + jobsBegin + "{\"job\":7},\n{\"job\"", "cannot reach execd at " + socket + ": the connection broke"},
		{"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n" + jobsBegin + "{\"job\":7},\n", "cannot reach execd at " + socket + ": the connection broke"},
		{"HTTP/1.0 200 OK\r\n\r\n" + jobsBegin + "{\"job\":7},\n{\"job\":\"x\"},\n", "cannot read the reply of execd at " + socket + ": json"},
	} {
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, test.answer)
		}()
		var got []int
		err := NewClient(socket).Jobs(t.Context(), &JobsRequest{}, func(j *JobStatus) { got = append(got, j.Job) })
		if err == nil || !strings.HasPrefix(err.Error(), test.want) || !errors.Is(err, ErrUnreachable) || !slices.Equal(got, []int{7}) {
			t.Errorf("%q: jobs %v, %v; want 7 and %s", test.answer, got, err, test.want)
		}
	}
}

// FuzzJobLine holds reading and writing a job to what package json does.
func FuzzJobLine(f *testing.F) {
	for _, j := range oddJobs(8) {
		b, err := appendJob(nil, &j)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	const end = `,"name":"n","owner":"o","state":"qw","time":"2026-01-02T03:04:05Z","slots":1}`
	for _, begin := range []string{
		`{"job":01,"priority":1`, `{"job":-0,"priority":-0.0`, `{"job":1,"priority":01.5`, `{"job":1,"priority":1.`, `{"job":1,"priority":.5`,
		`{"job":1,"priority":1e3`, `{"job":99999999999999999999,"priority":1`, `{"job":+1,"priority":0x1`, `{"job":1,"priority":-`,
	} {
		f.Add([]byte(begin + end))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var want JobStatus
		wrong := json.Unmarshal(line, &want)
		d := jobReader{job: JobStatus{Name: "n", Owner: "x", Holds: "u", More: &JobMore{}}}
		got, err := d.read(line)
		if (err == nil) != (wrong == nil) {
			t.Fatalf("%q is read with %v; want %v", line, err, wrong)
		}
		if err != nil {
			return
		}
		if !reflect.DeepEqual(*got, want) {
			t.Fatalf("%q is read as %+v; want %+v", line, *got, want)
		}
		text, wrong := json.Marshal(&want)
		b, err := appendJob(nil, &want)
		if (err == nil) != (wrong == nil) || err == nil && !bytes.Equal(b, text) {
			t.Fatalf("%+v is written as %s, %v; want %s, %v", want, b, err, text, wrong)
		}
	})
}

func BenchmarkManyJobs(b *testing.B) {
	jobs := make([]JobStatus, 10000)
	for n := range jobs {
		jobs[n] = JobStatus{Job: n, Name: "name", Owner: "somebody", State: "hqw", Time: time.Now(), Slots: 1, Holds: "u"}
	}
	for b.Loop() {
		var text bytes.Buffer
		if err := WriteJobs(&text, pointers(jobs)); err != nil {
			b.Fatal(err)
		}
		if err := readJobs(&text, func(*JobStatus) {}); err != nil {
			b.Fatal(err)
		}
	}
}
