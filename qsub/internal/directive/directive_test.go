package directive

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/qsub/internal/option"
)

func TestSplit(t *testing.T) {
	for _, test := range []struct {
		line string
		want []string
	}{
		{"", nil},
		{" \t ", nil},
		{"-cwd -N job", []string{"-cwd", "-N", "job"}},
		{`-N "from script" -j y # a comment`, []string{"-N", "from script", "-j", "y"}},
		{`-N 'it is' -o "it's"`, []string{"-N", "it is", "-o", "it's"}},
		{`-N '' -v A=""`, []string{"-N", "", "-v", "A="}},
		{`-v A="x y"z`, []string{"-v", "A=x yz"}},
		{`"a"'b'c`, []string{"abc"}},
		{"-v A=a#b", []string{"-v", "A=a"}},
		{`-v "A=a#b" #`, []string{"-v", "A=a#b"}},
		{`-v A=\"x\"`, []string{"-v", `A=\x\`}},
		{"\t-v\tD=tab\v", []string{"-v", "D=tab"}},
		{"-cwd\r\n", []string{"-cwd"}},
		{"Gr\xfc\xdfe", []string{"Gr\xfc\xdfe"}},
	} {
		got, err := Split(test.line)
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("Split(%q): %v (-want +got):\n%s", test.line, err, diff)
		}
	}
	for _, line := range []string{`-N "open`, `'`, `a'b"c"`} {
		if got, err := Split(line); err == nil {
			t.Errorf("Split(%q) = %q; want an error", line, got)
		}
	}
}

func TestScript(t *testing.T) {
	const script = "#!/bin/sh\n#$ -cwd\n #$ -N column2\n#$-j y\n%% -N other\n# $ no\n#$\n#$ # nothing\necho '\n#$ -t 1-3'\n#$ -S /bin/sh"
	place := func(n int) option.Place { return option.Place{File: "job.sh", Line: n} }
	if _, err := Script("job.sh", []byte(script), "#$"); err == nil {
		t.Error("a quote that is opened on an option line by another language: no error")
	}
	got, err := Script("job.sh", []byte(strings.ReplaceAll(script, "3'", "3")), "#$")
	want := []option.Word{
		{Text: "-cwd", Place: place(2)},
		{Text: "-j", Place: place(4)},
		{Text: "y", Place: place(4)},
		{Text: "-t", Place: place(10)},
		{Text: "1-3", Place: place(10)},
		{Text: "-S", Place: place(11)},
		{Text: "/bin/sh", Place: place(11)},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Script: %v (-want +got):\n%s", err, diff)
	}
	got, err = Script("job.sh", []byte(script), "%%")
	if want := []option.Word{{Text: "-N", Place: place(5)}, {Text: "other", Place: place(5)}}; err != nil || !cmp.Equal(want, got) {
		t.Errorf("Script with prefix %%%% = %v, %v; want %v", got, err, want)
	}
	if got, err := Script("job.sh", []byte(script), ""); err != nil || got != nil {
		t.Errorf("Script without prefix = %v, %v; want nothing", got, err)
	}
}

func TestFile(t *testing.T) {
	got, err := File("f", []byte("# -N no\n -N 'a b' # rest\n\n-cwd\n"))
	want := []option.Word{
		{Text: "-N", Place: option.Place{File: "f", Line: 2}},
		{Text: "a b", Place: option.Place{File: "f", Line: 2}},
		{Text: "-cwd", Place: option.Place{File: "f", Line: 4}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("File: %v (-want +got):\n%s", err, diff)
	}
	_, err = File("f", []byte("-cwd\n-N 'a\n"))
	if e, ok := errors.AsType[*option.Error](err); !ok || e.Error() != "f:2: unmatched '" {
		t.Errorf("File with an open quote: %v; want f:2: unmatched '", err)
	}
}

func FuzzSplit(f *testing.F) {
	for _, line := range []string{"-cwd -N job", `-N "from script" # x`, "'a'\"b\"c", "\r", "'", "a#b", "\xff ''"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, err := Split(line)
		if err != nil {
			return
		}
		// Quoted, they come back as they are.
		var quoted strings.Builder
		for _, w := range words {
			for i, part := range strings.Split(w, "'") {
				if i > 0 {
					quoted.WriteString(`"'"`)
				}
				quoted.WriteString("'" + part + "'")
			}
			quoted.WriteByte(' ')
		}
		again, err := Split(quoted.String())
		if err != nil || !cmp.Equal(words, again) {
			t.Fatalf("Split(%q) = %q, but Split(%q) = %q, %v", line, words, quoted.String(), again, err)
		}
	})
}

func FuzzScript(f *testing.F) {
	f.Add([]byte("#!/bin/sh\n#$ -cwd\n"), "#$")
	f.Add([]byte("#$ -N x -b y\r\n#$ -@ f -t 1-3"), "#$")
	f.Fuzz(func(t *testing.T, script []byte, prefix string) {
		words, err := Script("s", script, prefix)
		if err != nil {
			return
		}
		include := func(string, option.Place) ([]option.Word, error) { return words, nil }
		settings, err := option.Lines(option.Qsub, words, include)
		if err != nil {
			if e, ok := errors.AsType[*option.Error](err); !ok || e.Exit == 0 || e.Text == "" {
				t.Fatalf("Lines: %#v; want an *option.Error with exit status and text", err)
			}
			return
		}
		for _, s := range settings {
			if s.Kind != option.List && len(s.Values) != len(s.Args) {
				t.Fatalf("%s has %d values; want %d", s.Name, len(s.Values), len(s.Args))
			}
		}
	})
}
