package accounting

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
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
	if got := v.NumField() - 1; got != NumFields { // and the reason
		t.Fatalf("Record has %d fields; want %d", got, NumFields)
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
		{"long", valid + ":a:0", "47 fields"},
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

// lines reads a text by Each and returns its lines, in order, with what work saw
// of each.
func lines(t testing.TB, in io.Reader) []string {
	t.Helper()
	var all []string
	err := Each(in, func(block []byte) []string {
		var list []string
		for line := range bytes.Lines(block) {
			list = append(list, string(line))
		}
		return list
	}, func(list []string) error {
		all = append(all, list...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestEach(t *testing.T) {
	numbered := func(n, length int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%d%s\n", i, strings.Repeat("x", i*7919%length))
		}
		return b.String()
	}
	long := strings.Repeat("y", MaxLine+10)
	for _, test := range []struct {
		name, text string
		want       []string // nil: the text's lines
	}{
		{"empty", "", []string{}},
		{"one", "a\n", nil},
		{"without newline", "a\nb", nil},
		{"empty lines", "\n\na\n\n", nil},
		{"many", numbered(20000, 200), nil},
		{"lines that are longer than blocks", numbered(9, 3*blockSize), nil},
		{"exactly a block", strings.Repeat("z", blockSize-1) + "\n", nil},
		{"blocks that end with a line", strings.Repeat(strings.Repeat("z", blockSize/4-1)+"\n", 12), nil},
		{"too long", "a\n" + long + "\nb\n", []string{"a\n", long[:MaxLine+1], "b\n"}},
		{"too long at the end", "a\n" + long, []string{"a\n", long[:MaxLine+1]}},
	} {
		want := test.want
		if want == nil {
			want = strings.SplitAfter(test.text, "\n")
			if want[len(want)-1] == "" {
				want = want[:len(want)-1]
			}
		}
		for name, in := range map[string]io.Reader{
			"at once":        strings.NewReader(test.text),
			"piece by piece": iotest.HalfReader(struct{ io.Reader }{strings.NewReader(test.text)}),
			"cut short":      io.NewSectionReader(strings.NewReader(test.text), 0, int64(len(test.text))+3*blockSize),
		} {
			got := lines(t, in)
			if !slices.Equal(got, want) {
				t.Errorf("%s, read %s: %d lines; want %d the same", test.name, name, len(got), len(want))
			}
		}
	}
}

func TestEachErrors(t *testing.T) {
	text := strings.Repeat("line\n", blockSize)
	broken := errors.New("broken")
	work := func(block []byte) int { return len(block) }
	for _, in := range []io.Reader{iotest.ErrReader(broken), io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken))} {
		if err := Each(in, work, func(int) error { return nil }); !errors.Is(err, broken) {
			t.Errorf("a file that cannot be read: %v; want %v", err, broken)
		}
	}
	// What is not wanted any more is not waited for.
	n := 0
	err := Each(strings.NewReader(text), work, func(int) error {
		n++
		return broken
	})
	if !errors.Is(err, broken) || n != 1 {
		t.Errorf("an error of use: %v after %d calls; want %v after 1", err, n, broken)
	}
}

func BenchmarkEach(b *testing.B) {
	text := bytes.Repeat(golden(b)[0], 10000)
	want := []byte("99")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		err := Each(bytes.NewReader(text), func(block []byte) int {
			n := 0
			for line := range bytes.Lines(block) {
				if bytes.Equal(Field(line, FieldJobNumber), want) {
					n++
				}
			}
			return n
		}, func(int) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
	}
}

// TestFields reads what other versions write, and their mistakes.
func TestFields(t *testing.T) {
	whole := strings.TrimSuffix(string(golden(t)[0]), "\n")
	words := strings.Split(whole, ":")
	with := func(n int, word string) string {
		f := slices.Clone(words)
		f[n] = word
		return strings.Join(f, ":")
	}
	want, err := Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, line string
		change     func(*Record)
		err        string
	}{
		{"whole", whole + "\n", func(*Record) {}, ""},
		{"without reservation", strings.Join(words[:43], ":"), func(*Record) {}, ""},
		{"fewest", strings.Join(words[:42], ":"), func(r *Record) { r.MaxVMem = 0 }, ""},
		{"too few", strings.Join(words[:41], ":"), nil, "accounting line has 41 fields; want 45"},
		{"empty", "", nil, "accounting line has 1 fields; want 45"},
		{"reason", whole + ":h_rt%3A 2 s", func(r *Record) { r.Reason = "h_rt: 2 s" }, ""},
		{"fields of others", whole + ":NONE:by root:1.5", func(*Record) {}, ""},
		{"whole number for decimals", with(14, "3"), func(r *Record) { r.RuUTime = 3 }, ""},
		{"decimals for a whole number", with(13, "8.9"), func(r *Record) { r.RuWallclock = 8 }, ""},
		{"exponent", with(36, "1e3"), func(r *Record) { r.CPU = 1000 }, ""},
		{"letters", with(36, "1x"), nil, `accounting line has a bad cpu "1x"`},
		{"empty number", with(36, ""), nil, `accounting line has a bad cpu ""`},
		{"infinite", with(36, "Inf"), nil, `accounting line has a bad cpu "Inf"`},
		{"too long", with(4, strings.Repeat("x", MaxLine)), nil, "accounting line is longer than 1048576 bytes"},
	} {
		var f Fields
		var got Record
		err := f.Split([]byte(test.line))
		if err == nil {
			got, err = f.Record()
		}
		if err != nil || test.err != "" {
			if err == nil || err.Error() != test.err {
				t.Errorf("%s: error %v; want %q", test.name, err, test.err)
			}
			continue
		}
		want := want
		test.change(&want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestNumber(t *testing.T) {
	for _, word := range []string{
		"0", "7", "-7", "0.000000", "1.5", ".5", "-0.25", "0.1", "123456789.123456", "9007199254740993", "900719925474099.3", "0.30000000000000004",
		"1795190494.123456789", "123456789012345678901234567890", "1e300", "0.00000000000000000001",
	} {
		want, err := strconv.ParseFloat(word, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := number([]byte(word)); !ok || got != want {
			t.Errorf("number(%q) = %v, %v; want %v", word, got, ok, want)
		}
	}
	for _, word := range []string{"", "-", ".", "1.", "--1", "+-1", "1.2.3", "x", "1 ", "NaN", "-Inf", "1e400"} {
		if got, ok := number([]byte(word)); ok {
			t.Errorf("number(%q) = %v; want an error", word, got)
		}
	}
}

func TestReason(t *testing.T) {
	for reason, want := range map[string]string{
		"deleted by bob":         "deleted by bob",
		"h_rt: 100% of 2 s":      "h_rt%3A 100%25 of 2 s",
		"cannot open a\nb\x7f\t": "cannot open a%0Ab%7F%09",
		"Gr\xfc\xdfe %41":        "Gr\xfc\xdfe %2541",
	} {
		line, err := Append(nil, Record{Reason: reason})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(Field(line, NumFields)); got != want {
			t.Errorf("field of %q is %q; want %q", reason, got, want)
		}
		if r, err := Parse(line); err != nil || r.Reason != reason {
			t.Errorf("read back: %q, %v; want %q", r.Reason, err, reason)
		}
	}
	// It is bounded, and no part of what stands for a byte is left.
	line, err := Append(nil, Record{Reason: strings.Repeat(":", maxReason)})
	if r, bad := Parse(line); err != nil || bad != nil || r.Reason != strings.Repeat(":", maxReason/3) {
		t.Errorf("a long reason: %d bytes, %v, %v; want %d", len(r.Reason), err, bad, maxReason/3)
	}
	for _, field := range []string{"", "%", "%4", "%4z", "a%3a", "%41", strings.Repeat("x", maxReason+1)} {
		whole, err := Append(nil, Record{})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := Parse([]byte(strings.TrimSuffix(string(whole), "\n") + ":" + field)); err == nil {
			t.Errorf("Parse of the reason %q = %q; want an error", field, r.Reason)
		}
	}
}

// FuzzFields holds the reader of other versions' lines to Parse: what that
// accepts, both read alike.
func FuzzFields(f *testing.F) {
	for _, line := range golden(f) {
		f.Add(line)
		f.Add(append(bytes.TrimSuffix(line, []byte{'\n'}), ":why%3A"...))
	}
	f.Add([]byte(strings.Repeat(":", 41)))
	f.Add([]byte(strings.Repeat("1e9:", 60)))
	f.Fuzz(func(t *testing.T, line []byte) {
		want, bad := Parse(line)
		var fields Fields
		err := fields.Split(line)
		for i := range NumFields + 2 {
			if got := fields.Text(i); err == nil && i <= NumFields && !bytes.Equal(got, Field(line, i)) {
				t.Fatalf("field %d of %q is %q; want %q", i, line, got, Field(line, i))
			}
		}
		if err != nil {
			if bad == nil {
				t.Fatalf("Split(%q): %v; Parse accepts it", line, err)
			}
			return
		}
		got, err := fields.Record()
		if bad != nil {
			return
		}
		if err != nil {
			t.Fatalf("Record of %q: %v; Parse accepts it", line, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q (-Parse +Record):\n%s", line, diff)
		}
	})
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
