package option

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

//go:generate go test -run ^TestCompletions$ -update .

var update = flag.Bool("update", false, "write packaging/completions anew")

// root is the top of the tree.
const root = "../../.."

func TestTable(t *testing.T) {
	for _, c := range append(Commands(), Elsewhere) {
		seen := map[string]bool{}
		for _, o := range Of(c) {
			if seen[o.Name] {
				t.Errorf("%s has two options %s", c, o.Name)
			}
			seen[o.Name] = true
			if !regexp.MustCompile(`^-[A-Za-z@_]+$`).MatchString(o.Name) {
				t.Errorf("%s: bad name %q", c, o.Name)
			}
			if o.Help == "" || strings.HasSuffix(o.Help, ".") {
				t.Errorf("%s %s: bad help %q", c, o.Name, o.Help)
			}
			if (o.Kind == Flag) != (len(o.Args) == 0) {
				t.Errorf("%s %s: kind %d with arguments %q", c, o.Name, o.Kind, o.Args)
			}
			if (o.Kind == List || o.Kind == YesNo) && len(o.Args) != 1 {
				t.Errorf("%s %s: kind %d with arguments %q", c, o.Name, o.Kind, o.Args)
			}
		}
	}
	// Every option of Grid Engine's qsub is known.
	for name := range strings.FieldsSeq("-@ -a -ac -ar -A -b -binding -c -ckpt -clear -cwd -C -dc -dl -e -h -hard -he -help -hold_jid -hold_jid_ad -i -j -js -jsv " +
		"-l -m -M -masterq -notify -now -N -o -p -P -pe -pty -q -r -R -sc -shell -soft -sync -S -t -tc -terse -v -V -verify -w -wd") {
		if _, ok := Lookup(Qsub, name); !ok {
			t.Errorf("qsub has no option %s", name)
		}
	}
}

func TestLine(t *testing.T) {
	include := func(name string, _ Place) ([]Word, error) {
		if name != "f" {
			return nil, errors.New("no such file")
		}
		return []Word{{"-N", Place{"f", 1}}, {"in file", Place{"f", 1}}}, nil
	}
	for _, test := range []struct {
		c    Command
		args []string
		want []string // options with their values
		rest []string
		err  string
	}{
		{Qsub, []string{"-cwd", "-N", "x", "job.sh", "-N", "y"}, []string{"-cwd", "-N x"}, []string{"job.sh", "-N", "y"}, ""},
		{Qsub, []string{"--cwd", "--", "-x"}, []string{"-cwd"}, []string{"-x"}, ""},
		{Qsub, []string{"-", "a"}, nil, []string{"-", "a"}, ""},
		{Qsub, []string{"", "a"}, nil, []string{"", "a"}, ""},
		{Qsub, []string{"-N", "-cwd", "-t", "-5"}, []string{"-N -cwd", "-t -5"}, nil, ""},
		{Qsub, []string{"-@", "f", "-cwd"}, []string{"-N in file", "-cwd"}, nil, ""},
		{Qsub, []string{"-@", "g"}, nil, nil, "no such file"},
		{Qsub, []string{"-pe", "smp", "4", "x"}, []string{"-pe smp 4"}, []string{"x"}, ""},
		{Qsub, []string{"-pe", "smp"}, nil, nil, "-pe option must have range as 2nd argument"},
		{Qsub, []string{"-pe"}, nil, nil, "-pe option must have argument"},
		{Qsub, []string{"-binding", "linear:1", "x"}, []string{"-binding linear:1"}, []string{"x"}, ""},
		{Qsub, []string{"-binding", "env", "linear:1", "x"}, []string{"-binding env linear:1"}, []string{"x"}, ""},
		{Qsub, []string{"-js", "1", "x"}, nil, nil, "option -js is not supported: there is no share tree; see -p"},
		{Qsub, []string{"-terse", "-sync"}, []string{}, nil, "-sync option must have argument"},
		{Qsub, []string{"-nostdin"}, nil, nil, `invalid option argument "-nostdin"`},
		{Qsub, []string{"---"}, nil, nil, `invalid option argument "---"`},
		{Qsub, []string{"-j", "Y", "-j", "no"}, []string{"-j Y", "-j no"}, nil, ""},
		{Qsub, []string{"-j", "job.sh"}, nil, nil, `invalid option argument "-j job.sh"`},
		{Qacct, []string{"-j", "-t", "3"}, []string{"-j", "-t 3"}, nil, ""},
		{Qacct, []string{"-j", "7"}, []string{"-j 7"}, nil, ""},
	} {
		settings, rest, err := Line(test.c, test.args, include)
		var got []string
		for _, s := range settings {
			got = append(got, strings.Join(append([]string{s.Name}, s.Values...), " "))
		}
		if test.err != "" {
			if err == nil || err.Error() != test.err {
				t.Errorf("Line(%q): error %v; want %s", test.args, err, test.err)
			}
			continue
		}
		if err != nil || !slices.Equal(got, test.want) || !slices.Equal(rest, test.rest) {
			t.Errorf("Line(%q) = %q, %q, %v; want %q, %q", test.args, got, rest, err, test.want, test.rest)
		}
	}
}

func TestSuggest(t *testing.T) {
	for word, want := range map[string]string{
		"-cdw": "-cwd", "-teres": "-terse", "-snyc": "-sync", "-help_me": "", "-synch": "-sync", "-badopt": "", "-x": "", "--trese": "-terse", "-": "",
		strings.Repeat("x", 100): "",
	} {
		if got := Suggest(Qsub, word); got != want {
			t.Errorf("Suggest(%q) = %q; want %q", word, got, want)
		}
	}
}

// help returns what a command's -help prints.
func help(t *testing.T, c Command) string {
	t.Helper()
	var out bytes.Buffer
	app := App(c, "1", &out, func(ctx *cli.Context) error { return cli.ShowAppHelp(ctx) })
	if err := app.RunContext(context.Background(), []string{c.String(), "-b", "help"}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestHelp(t *testing.T) {
	for _, c := range Commands() {
		text := help(t, c)
		for line := range strings.Lines(text) {
			if len(line) > 81 { // with its end
				t.Errorf("help of %s has a line that is wider than a terminal:\n%s", c, line)
			}
		}
		supported, refused, _ := strings.Cut(text, "not supported:")
		for _, o := range Of(c) {
			switch usage := "   [" + o.Usage() + "] "; {
			case o.Refused && !slices.Contains(strings.Fields(refused), o.Name):
				t.Errorf("help of %s does not tell that %s is refused", c, o.Name)
			case !o.Refused && !strings.Contains(supported, usage):
				t.Errorf("help of %s has no %s:\n%s", c, usage, text)
			}
		}
	}
}

// likeAnother is a page that has the options of another.
var likeAnother = regexp.MustCompile(`(?s)\nIts options are those of\n\.Xr (\S+) 1 ,\nbut for\n(.*?)\n\.Pp\n`)

// TestManPages holds the pages and the table together: each option that is
// supported has its item in the list of options, each that is refused stands
// under COMPATIBILITY, and the pages tell of no other.
func TestManPages(t *testing.T) {
	for _, c := range Commands() {
		page, err := os.ReadFile(filepath.Join(root, "man", "man1", c.String()+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		before, rest, ok := strings.Cut(string(page), "\n.Sh COMPATIBILITY\n")
		if !ok {
			t.Errorf("%s.1 has no section COMPATIBILITY", c)
		}
		section, _, _ := strings.Cut(rest, "\n.Sh ")
		items := itemsOf(t, before)
		// The list is the paragraph that has nothing else.
		var notYet []string
		for paragraph := range strings.SplitSeq(section, "\n.Pp\n") {
			if regexp.MustCompile(`^(\.Fl \S+ [,.]\n?)+$`).MatchString(paragraph) {
				notYet = append(notYet, options(`(?m)^\.Fl (\S+) `, paragraph)...)
			}
		}
		var wantItems, wantNotYet []string
		for _, o := range Of(c) {
			if o.Refused {
				wantNotYet = append(wantNotYet, o.Name)
			} else {
				wantItems = append(wantItems, o.Name)
			}
		}
		slices.Sort(wantItems)
		slices.Sort(wantNotYet)
		if diff := cmp.Diff(wantItems, items); diff != "" {
			t.Errorf("items of %s.1 (-table +page):\n%s", c, diff)
		}
		if diff := cmp.Diff(wantNotYet, notYet); diff != "" {
			t.Errorf("COMPATIBILITY of %s.1 (-table +page):\n%s", c, diff)
		}
	}
}

// itemsOf returns the options that a page has items for, or that it has from another.
func itemsOf(t *testing.T, page string) []string {
	items := options(`(?m)^\.It Fl (\S+)`, page)
	if m := likeAnother.FindStringSubmatch(page); m != nil {
		other, err := os.ReadFile(filepath.Join(root, "man", "man1", m[1]+".1"))
		if err != nil {
			t.Error(err)
		}
		but := options(`(?m)^\.Fl (\S+)`, m[2])
		for _, o := range itemsOf(t, string(other)) {
			if !slices.Contains(but, o) {
				items = append(items, o)
			}
		}
	}
	slices.Sort(items)
	return slices.Compact(items)
}

// options returns the options that a pattern finds in a page, where a name that mdoc would
// take for a macro begins with \&.
func options(pattern, text string) []string {
	var list []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		list = append(list, "-"+strings.TrimPrefix(m[1], `\&`))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func TestCompletions(t *testing.T) {
	dir := filepath.Join(root, "packaging", "completions")
	for name, want := range Completions() {
		file := filepath.Join(dir, name)
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is not what the table gives; run go generate ./qsub/... (-want +got):\n%s", file, diff)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries { // paddock-pg is completed by what it says itself
		if _, ok := Completions()[e.Name()]; !ok && !strings.Contains(e.Name(), "paddock-pg") {
			t.Errorf("%s has %s, which is not written from the table", dir, e.Name())
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("-cwd\x00-N\x00x\x00job.sh")
	f.Add("-pe\x00smp\x004")
	f.Add("-b\x00maybe")
	f.Add("--\x00-x")
	f.Add("-@\x00f")
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\x00")
		include := func(string, Place) ([]Word, error) { return Words(args), nil }
		for _, c := range Commands() {
			settings, rest, err := Line(c, args, include)
			if err != nil {
				if e, ok := errors.AsType[*Error](err); !ok || e.Exit == 0 || e.Text == "" {
					t.Fatalf("Line(%q): %#v; want an *Error with exit status and text", args, err)
				}
				continue
			}
			if len(rest) > len(args) {
				t.Fatalf("Line(%q) leaves %q", args, rest)
			}
			for _, s := range settings {
				if s.Commands&c == 0 || s.Refused || s.Kind != List && s.Before == nil && len(s.Values) != len(s.Args) {
					t.Fatalf("Line(%q): setting %+v", args, s)
				}
			}
			if _, err := Mixed(Qdel, args); err != nil {
				if _, ok := errors.AsType[*Error](err); !ok {
					t.Fatalf("Mixed(%q): %v", args, err)
				}
			}
		}
	})
}
