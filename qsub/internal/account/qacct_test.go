package account

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/qsub/internal/qtest"
)

// TestQacctGolden compares with what qacct of Grid Engine 8.1.9 printed for the
// same lines, but for the unit of ru_maxrss, which it has wrong.
func TestQacctGolden(t *testing.T) {
	qtest.UTC(t)
	qtest.Isolate(t)
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
		qtest.Want(t, qtest.Result{Out: string(wanted)}, call(t, "", "qacct", "-j", number, "-f", file))
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

// TestQacctJSON has a list with an object a line, with the fields by their names.
func TestQacctJSON(t *testing.T) {
	qtest.Isolate(t)
	file := filepath.Join(os.Getenv("PADDOCK_DIR"), "accounting")
	qtest.Write(t, file, line(t, accounting.Record{JobName: "a\"b", JobNumber: 1, CPU: 1.5})+line(t, accounting.Record{JobNumber: 2, TaskNumber: 3}))
	got := call(t, "", "qacct", "-json")
	inside, _ := strings.CutPrefix(strings.TrimSuffix(got.Out, "\n]\n"), "[\n")
	lines := strings.Split(inside, ",\n")
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
	if got := call(t, "", "qacct", "-j", "2", "-json"); got.Out != "[\n"+lines[1]+"\n]\n" {
		t.Errorf("of job 2: %+v; want %s", got, lines[1])
	}
	if got := call(t, "", "qacct", "-j", "-o", "", "-json"); got.Out != "[\n"+inside+"\n]\n" {
		t.Errorf("with -j: %+v; want the records", got)
	}
	qtest.Want(t, qtest.Result{Out: "[\n" + `{"owner":"","slots":0,"ru_wallclock":0,"ru_utime":0,"ru_stime":0,"cpu":1.5,"mem":0,"io":0,"iow":0}` + "\n]\n"}, call(t, "", "qacct", "-json", "-slots", "-o"))
	qtest.Write(t, file, line(t, accounting.Record{JobNumber: 1, Reason: "h_rt: 2 s"}))
	if got := call(t, "", "qacct", "-json"); !strings.HasSuffix(got.Out, `,"reason":"h_rt: 2 s"}`+"\n]\n") {
		t.Errorf("with a reason: %+v", got)
	}
	if got := call(t, "", "qacct", "-j", "1"); !strings.HasSuffix(got.Out, "\nreason       h_rt: 2 s\n") {
		t.Errorf("with a reason: %+v", got)
	}
}

func TestQacct(t *testing.T) {
	qtest.UTC(t)
	qtest.Isolate(t)
	file := filepath.Join(os.Getenv("PADDOCK_DIR"), "accounting")
	// Before the first job has ended there is no file.
	nothing := qtest.Result{Exit: 1, Out: "no jobs running since startup\n", Err: file + ": No such file or directory\n"}
	qtest.Want(t, nothing, call(t, "", "qacct", "-j", "1"))
	qtest.Want(t, nothing, call(t, "", "qacct"))

	text := "# Version: 1\n"
	for _, r := range []accounting.Record{
		{JobName: "one", JobNumber: 1, Owner: "12", RuWallclock: 2, CPU: 1.5, Mem: 3, IO: 0.25},
		{JobName: "arr", JobNumber: 12, TaskNumber: 1, Reason: "deleted by root"},
		{JobName: "arr", JobNumber: 12, TaskNumber: 2},
		{JobName: "arr", JobNumber: 12, TaskNumber: 3},
		{JobName: "arrow", JobNumber: 13, Failed: 55, ExitStatus: 200},
		{JobName: "12", JobNumber: 14, ARID: 3},
	} {
		text += line(t, r)
	}
	qtest.Write(t, file, text)
	for _, test := range []struct {
		args []string
		want []string // job and task of the records
		err  string
	}{
		{[]string{"-j", "1"}, []string{"1 undefined"}, ""},
		{[]string{"-j", "12"}, []string{"12 1", "12 2", "12 3"}, ""},
		{[]string{"-j", "12.2"}, []string{"12 2"}, ""},
		{[]string{"-j", "12", "-t", "1-3:2"}, []string{"12 1", "12 3"}, ""},
		{[]string{"-j", "12", "-t", "3,1"}, []string{"12 1", "12 3"}, ""},
		{[]string{"-t", "2", "-j", "arr"}, []string{"12 2"}, ""},
		{[]string{"-j", "arr"}, []string{"12 1", "12 2", "12 3"}, ""},
		{[]string{"-j", "arr*"}, []string{"12 1", "12 2", "12 3", "13 undefined"}, ""},
		{[]string{"-j", "*n[ef]"}, []string{"1 undefined"}, ""},
		{[]string{"-j", "[!a]*"}, []string{"1 undefined", "14 undefined"}, ""},
		{[]string{"-j", "arr", "-j", "1"}, []string{"1 undefined"}, ""},
		{[]string{"-j", "-slots", "0", "-ar", "3"}, []string{"14 undefined"}, ""},
		{[]string{"-j", "99999"}, nil, "error: job id 99999 not found\n"},
		{[]string{"-j", "ar"}, nil, "error: job name ar not found\n"},
		{[]string{"-j", ""}, nil, "error: job name  not found\n"},
		{[]string{"-j", "[x"}, nil, "error: job name [x not found\n"},
		{[]string{"-j", "12.7"}, nil, "error: Job-array tasks 12.7-7:1 not found\n"},
		{[]string{"-j", "12", "-t", "7-9,11"}, nil, "error: Job-array tasks 12.7-9:1,11-11:1 not found\n"},
		{[]string{"-j", "a*", "-t", "7-9"}, nil, "error: Job-array tasks \"a*\".7-9:1 not found\n"},
		{[]string{"-t", "1"}, nil, "error: -t option requires -j option with an argument\n"},
		{[]string{"-t", "1", "-j"}, nil, "error: -t option requires -j option with an argument\n"},
		{[]string{"-j", "1", "-t", "0"}, nil, "qacct: invalid list of task id ranges: 0\n"},
		{[]string{"-j", "1", "-t", "1,,2"}, nil, "qacct: invalid list of task id ranges: 1,,2\n"},
		{[]string{"-l", "arch="}, nil, "error: denied: missing value for resource \"arch\"\n"},
		{[]string{"-q", "[x"}, nil, "qacct: invalid option argument \"-q [x\"\n"},
		{[]string{"-slots", "x"}, nil, "qacct: invalid option argument \"-slots x\"\n"},
		{[]string{"-slots", "99999999999"}, nil, "qacct: invalid option argument \"-slots 99999999999\"\n"},
		{[]string{"-ar", "1x"}, nil, "qacct: invalid advance reservation id, must be an unsigned integer\n"},
		{[]string{"-d", "1.5"}, nil, "qacct: invalid option argument \"-d 1.5\"\n"},
		{[]string{"-d", "-1"}, nil, "qacct: invalid option argument \"-d -1\"\n"},
		{[]string{"-d", "10000000000"}, nil, "qacct: invalid option argument \"-d 10000000000\"\n"},
		{[]string{"-e", "13010000"}, nil, "qacct: Invalid month specification.\nType \"qacct -help\" for the options.\n"},
		{[]string{"-b"}, nil, "qacct: -b option must have argument\n"},
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
	qtest.Want(t, qtest.Result{Out: sums}, call(t, "", "qacct"))
	qtest.Want(t, qtest.Result{Out: sums}, call(t, text, "qacct", "-f", "-"))
	if got := call(t, "", "qacct", "-j"); got.Exit != 0 || strings.Count(got.Out, "jobnumber") != 6 || !strings.HasSuffix(got.Out, sums) {
		t.Errorf("qacct -j: %+v", got)
	}

	// A line that cannot be read is told, and the others are shown.
	qtest.Write(t, file, text+"all.q:12:x\n"+line(t, accounting.Record{JobName: "arr", JobNumber: 15}))
	bad := "error: ignoring invalid entry in line 8 of " + file + ": accounting line has 3 fields; want 45\n"
	qtest.Want(t, qtest.Result{Out: sums, Err: bad}, call(t, "", "qacct"))
	got := call(t, "", "qacct", "-j", "15")
	if got.Exit != 0 || strings.Count(got.Out, "jobnumber") != 1 || got.Err != bad {
		t.Errorf("qacct -j with a broken line: %+v", got)
	}
}

// TestQacctCompressed reads what logrotate(8) has left, also when it is cut short.
func TestQacctCompressed(t *testing.T) {
	qtest.Isolate(t)
	var text strings.Builder
	for n := range 2000 {
		text.WriteString(line(t, accounting.Record{JobName: "j", JobNumber: n, Owner: fmt.Sprintf("u%d", n%7), RuWallclock: int64(n)}))
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text.String())); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	compressed := b.String()
	wanted := call(t, text.String(), "qacct", "-o", "-f", "-")
	if strings.Count(wanted.Out, "\nu") != 7 {
		t.Fatalf("%+v; want sums of seven users", wanted)
	}
	const wrong = "qacct: cannot read accounting file: "
	for _, test := range []struct {
		text string
		want qtest.Result
	}{
		{compressed, wanted},
		{compressed[:len(compressed)/2], qtest.Result{Exit: 1, Err: wrong + "the compressed text is cut short\n"}},
		{compressed[:2], qtest.Result{Exit: 1, Err: wrong + "the compressed text is cut short\n"}},
		{compressed[:40] + "x" + compressed[41:], qtest.Result{Exit: 1, Err: wrong + "flate: corrupt input before offset"}},
		{gzipBegin + strings.Repeat("x", 100), qtest.Result{Exit: 1, Err: wrong + "gzip: invalid header\n"}},
	} {
		qtest.Write(t, "accounting.1.gz", test.text)
		for _, got := range []qtest.Result{
			call(t, "", "qacct", "-o", "-f", "accounting.1.gz"), call(t, test.text, "qacct", "-o", "-f", "-"),
		} {
			if got.Exit != test.want.Exit || got.Out != test.want.Out || !strings.HasPrefix(got.Err, test.want.Err) {
				t.Errorf("%d bytes: %+v; want %+v", len(test.text), got, test.want)
			}
		}
	}
}

// TestQacctQueues chooses by what execd knows of the queues that there are.
func TestQacctQueues(t *testing.T) {
	e := qtest.NewExecd(t)
	all := api.HostReply{Host: "h", HostGroups: []string{"@g"}, Queues: []api.QueueStatus{{Name: "a.q"}, {Name: "b.q"}}}
	some := api.HostReply{Host: "h", Queues: all.Queues[:1]}
	e.On(api.VerbHost, func(body []byte) (int, any) {
		if strings.Contains(string(body), "arch") {
			return http.StatusOK, some
		}
		return http.StatusOK, all
	})
	var text string
	for i, queue := range []string{"a.q@h", "b.q@h", "gone.q@h", "a.q@other", "a.q@h"} {
		name, host, _ := strings.Cut(queue, "@")
		text += line(t, accounting.Record{QName: name, Hostname: host, JobName: "j", JobNumber: i, Owner: fmt.Sprintf("u%d", i), RuWallclock: 1})
	}
	qtest.Write(t, "a", text)
	const gone = " jobs ignored for accounting. Jobs' master queue no longer exists.\n\n"
	for _, test := range []struct {
		args, owners, err string
		exit              int
	}{
		{"-o -l arch=x", "u0 u4", "2" + gone, 0},
		{"-o -l arch=x,num_proc=2", "u0 u4", "2" + gone, 0},
		{"-o -l num_proc=2", "u0 u1 u4", "2" + gone, 0},
		{"-o -l arch=x -q a.q@h", "u0 u4", "", 0},
		{"-j 0 -l arch=x -o", "u0", "", 0},
		{"-j 1 -l arch=x", "", "", 0},
		{"-j 2 -l arch=x", "", "1" + gone, 0},
		{"-j 9 -l arch=x", "", "error: job id 9 not found\n", 1},
		{"-o -q *@@g", "u0 u4 u1", "", 0},
		{"-o -q a.q@@G*", "u0 u4", "", 0},
		{"-o -q gone.q@@g", "", "No queues remaining after -q queue selection\n", 1},
		{"-o -q *@@other", "", "No queues remaining after -q queue selection\n", 1},
	} {
		got := call(t, "", append([]string{"qacct", "-f", "a"}, strings.Fields(test.args)...)...)
		owners := strings.Join(regexp.MustCompile(`\bu[0-9]\b`).FindAllString(got.Out, -1), " ")
		if owners != test.owners || got.Err != test.err || got.Exit != test.exit {
			t.Errorf("qacct %s: exit %d, %q, owners %s; want %d, %q, %s", test.args, got.Exit, got.Err, owners, test.exit, test.err, test.owners)
		}
	}
}

// TestQacctGroup asks for a group by its number, which getent knows.
func TestQacctGroup(t *testing.T) {
	qtest.Isolate(t)
	if err := os.Mkdir("bin", 0o755); err != nil {
		t.Fatal(err)
	}
	qtest.Write(t, "bin/getent", "#!/bin/sh\n[ \"$*\" = 'group 4711' ] && echo 'staff:x:4711:'\n")
	if err := os.Chmod("bin/getent", 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs("bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	qtest.Write(t, "a", line(t, accounting.Record{JobName: "a", Group: "staff", RuWallclock: 5})+line(t, accounting.Record{JobName: "b", Group: "4712", RuWallclock: 6}))
	for number, want := range map[string]string{"4711": "\nstaff ", "4712": "\n4712 ", "staff": "\nstaff "} {
		if got := call(t, "", "qacct", "-g", number, "-f", "a"); got.Exit != 0 || strings.Count(got.Out, want) != 1 || strings.Count(got.Out, "\n") != 3 {
			t.Errorf("qacct -g %s: %+v; want one row with %q", number, got, want)
		}
	}
}

// TestQacctPrinted holds qacct to what Grid Engine 8.1.9 printed for the same
// file; the interop tests write it.
func TestQacctPrinted(t *testing.T) {
	qtest.UTC(t)
	qtest.Isolate(t)
	tables := filepath.Join(source, "testdata", "qacct")
	text, err := os.ReadFile(filepath.Join(tables, "printed"))
	if err != nil {
		t.Fatal(err)
	}
	bad := regexp.MustCompile(`(?m)^error: ignoring invalid entry in line \d+ .*\n`)
	hint := regexp.MustCompile(`(?m)^Type .*\n`)
	for part := range strings.SplitSeq("\n"+string(text), "\n$ qacct") {
		words, wanted, ok := strings.Cut(part, "\n")
		if !ok {
			continue
		}
		args := append([]string{"qacct", "-f", filepath.Join(tables, "accounting")}, strings.Fields(words)...)
		got := call(t, "", args...)
		printed := got.Out
		for l := range strings.Lines(strings.TrimPrefix(hint.ReplaceAllString(bad.ReplaceAllString(got.Err, ""), ""), "qacct: ")) {
			printed += "! " + l
		}
		printed += fmt.Sprintf("= %d", got.Exit)
		if diff := cmp.Diff(strings.TrimSuffix(wanted, "\n"), printed); diff != "" {
			t.Errorf("qacct%s (-want +got):\n%s", words, diff)
		}
	}
}

// TestQacctDays counts back from now.
func TestQacctDays(t *testing.T) {
	qtest.UTC(t)
	qtest.Isolate(t)
	const day = 24 * 60 * 60
	now := time.Now().Unix()
	text := ""
	for i, r := range []accounting.Record{
		{StartTime: now - 2*day - 60, EndTime: now - 2*day}, {StartTime: now - 2*day + 300, EndTime: now - 300}, {StartTime: now - 60, EndTime: now}, {},
	} {
		r.JobNumber, r.RuWallclock = i+1, 1<<i
		text += line(t, r)
	}
	qtest.Write(t, filepath.Join(os.Getenv("PADDOCK_DIR"), "accounting"), text)
	for _, test := range []struct {
		args string
		want float64
	}{
		{"-d 1", 4},
		{"-d 2", 2 + 4},
		{"-d 3", 1 + 2 + 4},
		{"-d 1 -E", 2 + 4},
		{"-d 1000000000", 1 + 2 + 4 + 8},
		{"-b 7001010000 -d 1", 8},
		{"-e 203801010000 -E", 1 + 2 + 4 + 8},
		{"-e 7001010000.00 -d 1", 8},
	} {
		got := call(t, "", append([]string{"qacct", "-o", "-json"}, strings.Fields(test.args)...)...)
		var rows []struct {
			Wallclock float64 `json:"ru_wallclock"`
		}
		if err := json.Unmarshal([]byte(got.Out), &rows); err != nil || len(rows) != 1 || rows[0].Wallclock != test.want {
			t.Errorf("qacct %s: %+v, %v; want the sum %v", test.args, got, err, test.want)
		}
	}
}

func TestRecordText(t *testing.T) {
	for n, want := range map[float64]string{0: "0.000B", 1023: "1023.000B", 1024: "1.000KB", 4588 * 1024: "4.480MB", 3 << 30: "3.000GB", 1 << 62: "4.000EB", 1e30: "867361737988.404EB"} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%v) = %s; want %s", n, got, want)
		}
	}
	for n, want := range map[int]string{
		-1: "Unknown signal -1", 0: "Unknown signal 0", 9: "Killed", 12: "User defined signal 2", 24: "CPU time limit exceeded", 31: "Bad system call",
		33: "Unknown signal 33", 34: "Real-time signal 0", 64: "Real-time signal 30", 65: "Unknown signal 65",
	} {
		if got := signalText(n); got != want {
			t.Errorf("signalText(%d) = %q; want %q", n, got, want)
		}
	}
}

// BenchmarkQacct looks for one job in a file of 100,000 lines, and sums them up.
func BenchmarkQacct(b *testing.B) {
	var text bytes.Buffer
	for i := range 100_000 {
		text.WriteString(line(b, accounting.Record{
			QName: "all.q", Hostname: "host", Group: "users", Owner: "alice", JobName: "job.sh", JobNumber: 1000 + i,
			SubmissionTime: 1795191325, StartTime: 1795191325, EndTime: 1795191326, RuWallclock: 1, Project: "NONE", Department: "defaultdepartment",
			GrantedPE: "NONE", Slots: 1, Category: "NONE", PETaskID: "NONE",
		}))
	}
	file := filepath.Join(b.TempDir(), "accounting")
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		b.Fatal(err)
	}
	for _, bench := range []struct{ name, args, want string }{
		{"job", "-j 100999", "jobnumber    100999"},
		{"owners", "-o", "alice        100000"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(text.Len()))
			b.ReportAllocs()
			for b.Loop() {
				var out, errout bytes.Buffer
				if exit := program.Run(b.Context(), append([]string{"qacct", "-f", file}, strings.Fields(bench.args)...), nil, &out, &errout); exit != 0 || !strings.Contains(out.String(), bench.want) {
					b.Fatalf("exit %d, %s%s; want %q", exit, out.String(), errout.String(), bench.want)
				}
			}
		})
	}
}

// TestQacctIndex has the same printed of a file with an index and without: lines that are no
// records, too, with their numbers.
func TestQacctIndex(t *testing.T) {
	qtest.UTC(t)
	qtest.Isolate(t)
	file := filepath.Join(t.TempDir(), "accounting")
	var text, index []byte
	for n := 1; n <= 100; n++ {
		before := len(text)
		for range 3 {
			text = append(text, line(t, accounting.Record{QName: "all.q", Owner: "alice", JobName: "a", JobNumber: n})...)
		}
		if n%40 == 0 {
			text = append(text, "garbage\n"...)
		}
		if n < 90 {
			p := accounting.NewPart(int64(before), text[before:])
			index = p.Append(index)
		}
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{"1", "40", "41", "95", "40-41", "7.1", "101", "99999999999999999999", "a"} {
		args := []string{"qacct", "-j", job, "-f", file}
		if err := os.RemoveAll(accounting.IndexPath(file)); err != nil {
			t.Fatal(err)
		}
		want := call(t, "", args...)
		heading := accounting.IndexHeading(info)
		if err := os.WriteFile(accounting.IndexPath(file), append([]byte(heading), index...), 0o644); err != nil {
			t.Fatal(err)
		}
		qtest.Want(t, want, call(t, "", args...))
	}
}
