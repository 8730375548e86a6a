package accounting

import (
	"bytes"
	"errors"
	"math"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// golden returns the lines that Grid Engine 8.1.9 wrote for real jobs.
func golden(t testing.TB) [][]byte {
	t.Helper()
	b, err := os.ReadFile("testdata/accounting")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(b, []byte{'\n'})
	return lines[:len(lines)-1]
}

func TestGoldenRoundTrip(t *testing.T) {
	for _, line := range golden(t) {
		r, err := Parse(line)
		if err != nil {
			t.Errorf("Parse(%q): %v", line, err)
			continue
		}
		got, err := Append([]byte("x"), r)
		if err != nil {
			t.Errorf("Append: %v", err)
		}
		if diff := cmp.Diff("x"+string(line), string(got)); diff != "" {
			t.Errorf("written back (-want +got):\n%s", diff)
		}
	}
}

func TestParse(t *testing.T) {
	const line = "all.q:gehost:users:alice:killme:122:acct:-5:1795190494:1795190495:1795190502:100:137:8:0.006415:0.001344:4484.000000:" +
		"1:2:3:4:555:6:7:8.000000:9:10:11:12:13:14:proj:dept:tight:2:5:0.007759:0.250000:0.000036:-pe tight 2:1.500000:1.gehost:3641344.000000:7:1795190400"
	want := Record{
		QName: "all.q", Hostname: "gehost", Group: "users", Owner: "alice", JobName: "killme", JobNumber: 122, Account: "acct", Priority: -5,
		SubmissionTime: 1795190494, StartTime: 1795190495, EndTime: 1795190502, Failed: 100, ExitStatus: 137, RuWallclock: 8,
		RuUTime: 0.006415, RuSTime: 0.001344, RuMaxRSS: 4484, RuIXRSS: 1, RuISMRSS: 2, RuIDRSS: 3, RuISRSS: 4, RuMinFlt: 555, RuMajFlt: 6,
		RuNSwap: 7, RuInBlock: 8, RuOuBlock: 9, RuMsgSnd: 10, RuMsgRcv: 11, RuNSignals: 12, RuNVCSw: 13, RuNIVCSw: 14,
		Project: "proj", Department: "dept", GrantedPE: "tight", Slots: 2, TaskNumber: 5, CPU: 0.007759, Mem: 0.25, IO: 0.000036,
		Category: "-pe tight 2", IOW: 1.5, PETaskID: "1.gehost", MaxVMem: 3641344, ARID: 7, ARSubmission: 1795190400,
	}
	got, err := Parse([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}
	for _, test := range []struct {
		n    int
		want string
	}{{0, "all.q"}, {FieldOwner, "alice"}, {FieldJobName, "killme"}, {FieldJobNumber, "122"}, {FieldTaskNumber, "5"}, {44, "1795190400"}} {
		if got := Field([]byte(line+"\n"), test.n); string(got) != test.want {
			t.Errorf("Field(line, %d) = %q; want %q", test.n, got, test.want)
		}
	}
	if got := Field([]byte(line), 45); got != nil {
		t.Errorf("Field(line, 45) = %q; want nil", got)
	}
}

// TestFieldsOrder holds the three lists of fields together.
func TestFieldsOrder(t *testing.T) {
	var r Record
	v := reflect.ValueOf(&r).Elem()
	if v.NumField() != NumFields {
		t.Fatalf("Record has %d fields; want %d", v.NumField(), NumFields)
	}
	for i, p := range r.fields() {
		if got, want := reflect.ValueOf(p).Pointer(), v.Field(i).Addr().Pointer(); got != want {
			t.Errorf("field %d (%s) is not Record.%s", i, Names[i], v.Type().Field(i).Name)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	valid := strings.TrimSuffix(string(golden(t)[0]), "\n")
	with := func(n int, word string) string {
		f := strings.Split(valid, ":")
		f[n] = word
		return strings.Join(f, ":")
	}
	for _, test := range []struct{ name, line, want string }{
		{"empty", "", "1 fields"},
		{"short", valid[:strings.LastIndexByte(valid, ':')], "44 fields"},
		{"long", valid + ":0", "46 fields"},
		{"comment", "#" + valid, "comment"},
		{"two lines", with(44, "0\n0"), "ar_submission_time"},
		{"letters", with(5, "7a"), "job_number"},
		{"no number", with(5, ""), "job_number"},
		{"plus", with(5, "+7"), "job_number"},
		{"leading zero", with(5, "07"), "job_number"},
		{"negative zero", with(5, "-0"), "job_number"},
		{"blank", with(5, " 7"), "job_number"},
		{"underscore", with(5, "7_1"), "job_number"},
		{"overflow", with(8, "9223372036854775808"), "submission_time"},
		{"whole for decimals", with(14, "1"), "ru_utime"},
		{"five decimals", with(14, "1.00000"), "ru_utime"},
		{"no whole part", with(14, ".000000"), "ru_utime"},
		{"exponent", with(14, "1e5.000000"), "ru_utime"},
		{"infinite", with(14, "+Inf.000000"), "ru_utime"},
		{"too many digits", with(14, "12345678901234567890.000000"), "ru_utime"},
		{"control character", with(4, "a\tb"), "job_name"},
		{"NUL", with(4, "a\x00b"), "job_name"},
	} {
		_, err := Parse([]byte(test.line))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Parse = %v; want an error with %q", test.name, err, test.want)
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	for _, r := range []Record{
		{JobName: "a:b"}, {JobName: "a\nb"}, {Account: "a\x00"}, {Group: "\x7f"}, {QName: "#q"}, {CPU: math.NaN()}, {CPU: math.Inf(-1)},
	} {
		if got, err := Append([]byte("kept"), r); err == nil || string(got) != "kept" {
			t.Errorf("Append(%+v) = %q, %v; want an error and nothing appended", r, got, err)
		}
	}
	if _, err := Append(nil, Record{JobName: "Gr\xfc\xdfe #1"}); err != nil {
		t.Errorf("Append of a name in another encoding: %v", err)
	}
}

func TestFailedText(t *testing.T) {
	for n, want := range map[int]string{0: "", 8: "in prolog", 28: "changing into working directory", 100: "assumedly after job", 23: "", -1: "", 999: ""} {
		if got := FailedText(n); got != want {
			t.Errorf("FailedText(%d) = %q; want %q", n, got, want)
		}
	}
}

func TestReader(t *testing.T) {
	lines := golden(t)
	text := "# Version: 8.1.9\n#\n" + string(lines[0]) + "\nnonsense\n" + string(lines[1]) +
		strings.Repeat("x", 3*MaxLine) + "\n" + string(lines[2]) + string(lines[3][:50])
	var tasks, bad []int
	for r, err := range NewReader(iotest.HalfReader(strings.NewReader(text))).Records(nil) {
		var line *LineError
		switch {
		case err == nil:
			tasks = append(tasks, r.TaskNumber)
		case errors.As(err, &line):
			bad = append(bad, line.Line)
		default:
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]int{2, 4, 6}, tasks); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{5, 7}, bad); diff != "" {
		t.Errorf("bad lines (-want +got):\n%s", diff)
	}

	// The last line counts without its newline, and keep chooses.
	n := 0
	last := strings.TrimSuffix(string(lines[0])+string(lines[1]), "\n")
	for r, err := range NewReader(strings.NewReader(last)).Records(func(line []byte) bool { return string(Field(line, FieldTaskNumber)) == "4" }) {
		if err != nil || r.TaskNumber != 4 {
			t.Errorf("got task %d, %v; want 4, nil", r.TaskNumber, err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d records; want 1", n)
	}

	// A file that cannot be read is no end of the file.
	broken := errors.New("broken")
	var err error
	for _, e := range NewReader(iotest.ErrReader(broken)).Records(nil) {
		err = e
	}
	if !errors.Is(err, broken) {
		t.Errorf("error %v; want %v", err, broken)
	}
}

func TestReaderDoesNotAllocateForOthers(t *testing.T) {
	text := bytes.Repeat(golden(t)[0], 1000)
	got := testing.AllocsPerRun(5, func() {
		for range NewReader(bytes.NewReader(text)).Records(func(line []byte) bool { return string(Field(line, FieldJobNumber)) == "99" }) {
			t.Error("a record that was not asked for")
		}
	})
	if got > 10 {
		t.Errorf("%v allocations for 1000 lines; want a few for the reader itself", got)
	}
}

func BenchmarkReader(b *testing.B) {
	text := bytes.Repeat(golden(b)[0], 10000)
	want := []byte("99")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		for range NewReader(bytes.NewReader(text)).Records(func(line []byte) bool { return bytes.Equal(Field(line, FieldJobNumber), want) }) {
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range golden(f) {
		f.Add(line)
	}
	f.Add([]byte(""))
	f.Add([]byte(strings.Repeat(":", 44)))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := Parse(line)
		if err != nil {
			return
		}
		got, err := Append(nil, r)
		if err != nil {
			t.Fatalf("Append of what Parse(%q) returned: %v", line, err)
		}
		if want := append(bytes.TrimSuffix(line, []byte{'\n'}), '\n'); !bytes.Equal(got, want) {
			t.Fatalf("Parse and Append of\n%q\nis\n%q", want, got)
		}
		for i := range NumFields {
			if Field(got, i) == nil {
				t.Fatalf("Field(%q, %d) = nil", got, i)
			}
		}
	})
}

// TestManPage holds the page to the fields and to the texts of failed.
func TestManPage(t *testing.T) {
	page, err := os.ReadFile("../../../man/man5/accounting.5")
	if err != nil {
		t.Fatal(err)
	}
	fields := regexp.MustCompile(`(?m)^\.It\n\.Va (\w+)`).FindAllStringSubmatch(string(page), -1)
	var got []string
	for _, m := range fields {
		got = append(got, m[1])
	}
	if diff := cmp.Diff(Names[:], got); diff != "" {
		t.Errorf("fields of accounting.5 (-names +page):\n%s", diff)
	}
	texts := map[int]string{}
	for _, m := range regexp.MustCompile(`(?m)^\.It (\d+) Ta (.*)$`).FindAllStringSubmatch(string(page), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		texts[n] = m[2]
	}
	delete(texts, 0)
	if diff := cmp.Diff(failedTexts, texts); diff != "" {
		t.Errorf("failed in accounting.5 (-texts +page):\n%s", diff)
	}
}
