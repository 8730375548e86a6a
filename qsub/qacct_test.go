package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api/accounting"
)

// TestQacctGolden compares with what qacct of Grid Engine 8.1.9 printed for the
// same lines, but for the unit of ru_maxrss, which it has wrong.
func TestQacctGolden(t *testing.T) {
	utc(t)
	isolate(t)
	// The tests run elsewhere by now.
	files, err := filepath.Glob(filepath.Join(source, "testdata", "golden", "*", "accounting.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	maxrss := regexp.MustCompile(`(?m)^(ru_maxrss +[0-9.]+)(K?)B$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		wanted, err := os.ReadFile(filepath.Join(filepath.Dir(file), "qacct.txt"))
		if err != nil {
			t.Fatal(err)
		}
		wanted = maxrss.ReplaceAllFunc(wanted, func(line []byte) []byte {
			return bytes.Replace(line, []byte("KB"), []byte("MB"), 1)
		})
		number := string(accounting.Field(text, accounting.FieldJobNumber))
		want(t, result{0, string(wanted), ""}, call(t, "", "qacct", "-j", number, "-f", file))
	}
}

// source is the directory of the package: tests change to others.
var source = func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return dir
}()

// line returns an accounting line.
func line(t testing.TB, r accounting.Record) string {
	t.Helper()
	b, err := accounting.Append(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestQacctJSON has an object a line, with the fields by their names.
func TestQacctJSON(t *testing.T) {
	isolate(t)
	file := filepath.Join(os.Getenv("PADDOCK_DIR"), "accounting")
	write(t, file, line(t, accounting.Record{JobName: "a\"b", JobNumber: 1, CPU: 1.5})+line(t, accounting.Record{JobNumber: 2, TaskNumber: 3}))
	got := call(t, "", "qacct", "-json")
	lines := strings.Split(strings.TrimSuffix(got.Out, "\n"), "\n")
	if got.Exit != 0 || len(lines) != 2 || !strings.HasPrefix(lines[0], `{"qname":"`) {
		t.Fatalf("%+v; want 2 lines", got)
	}
	for i, wanted := range []map[string]any{{"job_number": 1.0, "job_name": "a\"b", "cpu": 1.5}, {"job_number": 2.0, "task_number": 3.0}} {
		var record map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &record); err != nil || len(record) != accounting.NumFields {
			t.Errorf("%s: %d fields, %v; want %d", lines[i], len(record), err, accounting.NumFields)
		}
		for name, value := range wanted {
			if record[name] != value {
				t.Errorf("line %d: %s is %v; want %v", i+1, name, record[name], value)
			}
		}
	}
	if got := call(t, "", "qacct", "-j", "2", "-json"); got.Out != lines[1]+"\n" {
		t.Errorf("of job 2: %+v; want %s", got, lines[1])
	}
}

func TestQacct(t *testing.T) {
	utc(t)
	isolate(t)
	file := filepath.Join(os.Getenv("PADDOCK_DIR"), "accounting")
	// Before the first job has ended there is no file.
	want(t, result{1, "", "error: job id 1 not found\n"}, call(t, "", "qacct", "-j", "1"))

	text := "# Version: 1\n"
	for _, r := range []accounting.Record{
		{JobName: "one", JobNumber: 1, Owner: "12", RuWallclock: 2, CPU: 1.5, Mem: 3, IO: 0.25},
		{JobName: "arr", JobNumber: 12, TaskNumber: 1},
		{JobName: "arr", JobNumber: 12, TaskNumber: 2},
		{JobName: "arr", JobNumber: 12, TaskNumber: 3},
		{JobName: "arrow", JobNumber: 13, Failed: 55, ExitStatus: 200},
		{JobName: "12", JobNumber: 14, ARID: 3},
	} {
		text += line(t, r)
	}
	write(t, file, text)
	for _, test := range []struct {
		args []string
		want []string // job and task of the records
		err  string
	}{
		{[]string{"-j", "1"}, []string{"1 undefined"}, ""},
		{[]string{"-j", "12"}, []string{"12 1", "12 2", "12 3"}, ""},
		{[]string{"-j", "12.2"}, []string{"12 2"}, ""},
		{[]string{"-j", "12", "-t", "1-3:2"}, []string{"12 1", "12 3"}, ""},
		{[]string{"-t", "2", "-j", "arr"}, []string{"12 2"}, ""},
		{[]string{"-j", "arr"}, []string{"12 1", "12 2", "12 3"}, ""},
		{[]string{"-j", "arr*"}, []string{"12 1", "12 2", "12 3", "13 undefined"}, ""},
		{[]string{"-j", "*n[ef]"}, []string{"1 undefined"}, ""},
		{[]string{"-j", "99999"}, nil, "error: job id 99999 not found\n"},
		{[]string{"-j", "ar"}, nil, "error: job name ar not found\n"},
		{[]string{"-j", "[x"}, nil, "error: job name [x not found\n"},
		{[]string{"-j", "12.7"}, nil, "error: Job-array tasks 12.7-7:1 not found\n"},
		{[]string{"-j", "12", "-t", "7-9"}, nil, "error: Job-array tasks 12.7-9:1 not found\n"},
		{[]string{"-t", "1"}, nil, "qacct: option -t needs a job with -j\n"},
		{[]string{"-j", "1", "-t", "0"}, nil, "qacct: invalid task range \"0\"\n"},
		{[]string{"-o", "me"}, nil, "qacct: option -o is not supported yet\n"},
		{[]string{"foo"}, nil, "qacct: invalid option argument \"foo\"\nType \"qacct -help\" for the options.\n"},
		{[]string{"-badopt"}, nil, "qacct: invalid option argument \"-badopt\"\nType \"qacct -help\" for the options.\n"},
		{[]string{"-j", "1", "-f", "."}, nil, "qacct: cannot read accounting file: read .: is a directory\n"},
	} {
		got := call(t, "", append([]string{"qacct"}, test.args...)...)
		var records []string
		for l := range strings.Lines(got.Out) {
			if number, ok := strings.CutPrefix(l, "jobnumber"); ok {
				records = append(records, strings.TrimSpace(number))
			}
			if task, ok := strings.CutPrefix(l, "taskid"); ok {
				records[len(records)-1] += " " + strings.TrimSpace(task)
			}
		}
		exit := 0
		if test.err != "" {
			exit = 1
		}
		if diff := cmp.Diff(test.want, records); diff != "" || got.Err != test.err || got.Exit != exit {
			t.Errorf("qacct %q: exit %d, %q; want %d, %q (-want +got):\n%s", test.args, got.Exit, got.Err, exit, test.err, diff)
		}
	}

	const sums = "Total System Usage\n" +
		"    WALLCLOCK         UTIME         STIME           CPU             MEMORY                 IO                IOW\n" +
		"================================================================================================================\n" +
		"            2         0.000         0.000         1.500              3.000              0.250              0.000\n"
	want(t, result{0, sums, ""}, call(t, "", "qacct"))
	if got := call(t, "", "qacct", "-j"); got.Exit != 0 || strings.Count(got.Out, "jobnumber") != 6 || !strings.HasSuffix(got.Out, sums) {
		t.Errorf("qacct -j: %+v", got)
	}

	// A line that cannot be read is told, and the others are shown.
	write(t, file, text+"all.q:12:x\n"+line(t, accounting.Record{JobName: "arr", JobNumber: 15}))
	got := call(t, "", "qacct")
	want(t, result{0, sums, "qacct: warning: " + file + ": line 8: accounting line has 3 fields; want 45\n"}, got)
}

func TestRecordText(t *testing.T) {
	for n, want := range map[float64]string{0: "0.000B", 1023: "1023.000B", 1024: "1.000KB", 4588 * 1024: "4.480MB", 3 << 30: "3.000GB", 1 << 62: "4.000EB", 1e30: "867361737988.404EB"} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%v) = %s; want %s", n, got, want)
		}
	}
	for n, want := range map[int]string{0: "", -1: "", 9: "Killed", 12: "User defined signal 2", 24: "CPU time limit exceeded", 31: "Bad system call", 32: ""} {
		if got := signalText(n); got != want {
			t.Errorf("signalText(%d) = %q; want %q", n, got, want)
		}
	}
}

// BenchmarkQacct looks for one job in a file of 100,000 lines.
func BenchmarkQacct(b *testing.B) {
	var text bytes.Buffer
	for i := range 100_000 {
		text.WriteString(line(b, accounting.Record{
			QName: "all.q", Hostname: "host", Group: "users", Owner: "alice", JobName: "job.sh", JobNumber: 1000 + i,
			SubmissionTime: 1795191325, StartTime: 1795191325, EndTime: 1795191326, Project: "NONE", Department: "defaultdepartment", GrantedPE: "NONE",
			Slots: 1, Category: "NONE", PETaskID: "NONE",
		}))
	}
	file := filepath.Join(b.TempDir(), "accounting")
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		var f filter
		if err := f.job("100999"); err != nil {
			b.Fatal(err)
		}
		n := 0
		err := each(file, f.keep, func(*accounting.Record) { n++ }, func(err error) { b.Error(err) })
		if err != nil || n != 1 {
			b.Fatalf("%d records, %v; want 1", n, err)
		}
	}
}
