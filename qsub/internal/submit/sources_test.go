package submit

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/qsub/internal/option"
	"paddock/qsub/internal/qtest"
)

var seed = flag.Uint64("seed", 0, "of TestSources: the one case to run")

// TestSources spreads lists of options over defaults files, a script and the
// command line. The request is the same as when all of them stand on the
// command line, in this order.
func TestSources(t *testing.T) {
	e := qtest.NewExecd(t)
	seeds := make([]uint64, 400) // fuzzing tries more of them
	for i := range seeds {
		seeds[i] = uint64(i + 1)
	}
	if *seed != 0 {
		seeds = []uint64{*seed}
	}
	for _, s := range seeds {
		c := newSources(rand.New(rand.NewPCG(s, 0)))
		if diff := c.compare(t, e); diff != "" {
			t.Fatalf("-seed %d: %v\n(-command line +sources):\n%s", s, c, diff)
		}
	}
}

// FuzzSources does so with lists that the bytes decide.
func FuzzSources(f *testing.F) {
	e := qtest.NewExecd(f)
	for s := range uint64(8) {
		r := rand.New(rand.NewPCG(s, 1))
		tape := make([]byte, 64)
		for i := range tape {
			tape[i] = byte(r.Uint64())
		}
		f.Add(tape)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := newSources(rand.New(&tape{data}))
		if diff := c.compare(t, e); diff != "" {
			t.Fatalf("%v\n(-command line +sources):\n%s", c, diff)
		}
	})
}

// tape is a source of decisions that were made before, each of two bytes, and
// of the same one from its end on.
type tape struct{ left []byte }

func (t *tape) Uint64() uint64 {
	if len(t.left) < 2 {
		return math.MaxUint64 // a number that math/rand does not throw away
	}
	n := binary.BigEndian.Uint16(t.left)
	t.left = t.left[2:]
	return uint64(n) << 48
}

// sources are a list of options, in words, and where they stand.
type sources struct {
	*rand.Rand
	prefix   string
	defaults [3][][]string // in the files of host, home and directory
	script   [][]string
	line     [][]string
	files    map[string][][]string // of -@
}

func (c *sources) String() string {
	return fmt.Sprintf("defaults %q, script %q (%q), command line %q, files %q", c.defaults, c.script, c.prefix, c.line, c.files)
}

func newSources(r *rand.Rand) *sources {
	c := &sources{Rand: r, prefix: "#$", files: map[string][][]string{}}
	if c.IntN(4) == 0 {
		c.prefix = c.pick("#PBS", "##", "# ", "%", "true;")
	}
	known := option.Of(option.Qsub)
	known = slices.DeleteFunc(known, func(o *option.Option) bool {
		return o.Refused || o.Name == "-help" || o.Name == "-version"
	})
	some := func() (list [][]string) {
		for range c.IntN(6) {
			o := known[c.IntN(len(known))]
			list = append(list, append([]string{o.Name}, c.arguments(o)...))
		}
		return list
	}
	for i := range c.defaults {
		c.defaults[i] = inFile(some())
	}
	c.script, c.line = inFile(some()), some()
	for i := range c.files {
		c.files[i] = inFile(c.files[i])
	}
	// Last, so that nothing undoes it: it tells where the script's options are.
	c.line = append(c.line, []string{"-C", c.prefix})
	if c.isBinary() {
		c.script = nil // nobody looks into it
	}
	return c
}

// inFile leaves out what no line of a file can hold.
func inFile(list [][]string) [][]string {
	return slices.DeleteFunc(list, func(words []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "\n") })
	})
}

func (c *sources) pick(list ...string) string { return list[c.IntN(len(list))] }

// awkward is any text.
func (c *sources) awkward() string {
	parts := []string{
		"a", "Z", "1", "x y", " ", "  ", "'", "\"", "'\"'", ",", ",,", "=", "a=b", "#", "#$", "-", "--", "-N", "$HOME", "~", "\\", "\\\"",
		"\t", "\r", "\n", "\v", "\xff", "ü", "%", "*", "?", "@", ":", ";", "&", "|", "(", "none", "y",
	}
	var b strings.Builder
	for range 1 + c.IntN(4) {
		b.WriteString(c.pick(parts...))
	}
	return b.String()
}

// arguments returns arguments of an option, which mostly make sense.
func (c *sources) arguments(o *option.Option) []string {
	if len(o.Args) == 0 {
		return nil
	}
	if o.Kind == option.YesNo {
		return []string{c.pick("y", "n", "yes", "no", "Y", "NO")}
	}
	switch o.Name {
	case "-@":
		return []string{c.optionFile()}
	case "-C":
		return []string{c.pick(c.prefix, "#other", "")}
	case "-pe":
		return []string{c.pick("make", "smp", "m*", c.awkward()), c.pick("1", "2-4", "4-", "-3", "1,3-5,9-", "7-2", "0", "x")}
	case "-binding":
		words := []string{c.pick("linear:1", "linear:2:0,1", "striding:2:1", "explicit:0,0:1,1", "linear:slots", "linear")}
		if c.IntN(2) == 0 {
			words = append([]string{c.pick(o.Before...)}, words...)
		}
		return words
	case "-v":
		return []string{c.pick("A=1", "A=2,B", "B=,C='x,y'", "A,B,A", "FROM_CALLER", "FROM_CALLER=z", "E=\"a,b\",F=c=d", "X=a b", "X="+c.awkward())}
	case "-l":
		return []string{c.pick("h_rt=10", "h_rt=20,mem_free=1G", "arch", "a=1,b=2,a=3", "h_rt=1:0:0 arch=x", "x="+c.awkward())}
	case "-q", "-masterq", "-hold_jid", "-hold_jid_ad", "-M":
		return []string{c.pick("a", "b,c", "a,b,a", "all.q@host,*", "1,2", c.awkward())}
	case "-m":
		return []string{c.pick("b", "ea", "n", "abes", "nb")}
	case "-a":
		return []string{c.pick("203001010000", "2612312359", "3001010000.30", "01320000")}
	case "-c":
		return []string{c.pick("n", "s", "mx", "1:0:0", "300")}
	case "-p":
		return []string{c.pick("-5", "0", "1024", "-1023", "1025")}
	case "-t":
		return []string{c.pick("1", "1-5", "2-10:3", "7-2", "0")}
	case "-tc":
		return []string{c.pick("0", "3", "-1")}
	case "-w":
		return []string{c.pick("e", "w", "n", "p", "v")}
	}
	return []string{c.awkward()}
}

// optionFile returns the name of a new file of options.
func (c *sources) optionFile() string {
	name := fmt.Sprintf("options %d", len(c.files))
	var list [][]string
	for range c.IntN(4) {
		list = append(list, [][]string{
			{"-soft"}, {"-hard"}, {"-l", "in=file"}, {"-q", "file"}, {"-N", "it's"}, {"-v", "FILE=\"1\""}, {"-V"}, {"-clear"}, {"-p", "-7"}, {"-A", ""},
		}[c.IntN(10)])
	}
	c.files[name] = list
	return name
}

// isBinary reports whether -b y holds where it is decided whether there is a
// script.
func (c *sources) isBinary() bool {
	is := false
	for _, words := range slices.Concat(slices.Concat(c.defaults[:]...), c.line) {
		switch words[0] {
		case "-b":
			is = strings.HasPrefix(strings.ToLower(words[1]), "y")
		case "-clear":
			is = false
		case "-@":
			if slices.ContainsFunc(c.files[words[1]], func(w []string) bool { return w[0] == "-clear" }) {
				is = false
			}
		}
	}
	return is
}

// merged returns the options as words of one command line. Each source begins
// with hard requests.
func (c *sources) merged() []string {
	var words []string
	for _, list := range [][][]string{c.defaults[0], c.defaults[1], c.defaults[2], c.script, c.line} {
		words = append(words, "-hard")
		for _, o := range list {
			if o[0] == "-@" {
				words = append(words, slices.Concat(c.files[o[1]]...)...)
				continue
			}
			words = append(words, o...)
		}
	}
	return words
}

// lines writes options as lines of a file: some of them in each, quoted in some
// way where they must or may be, with comments and options of other commands.
func (c *sources) lines(list [][]string, prefix string) string {
	var b strings.Builder
	begin := true
	for _, words := range list {
		if begin {
			b.WriteString(prefix)
		}
		if c.IntN(8) == 0 {
			b.WriteString(" -inherit")
		}
		for _, w := range words {
			b.WriteString(c.pick(" ", "  ", "\t") + c.quoted(w))
		}
		if begin = c.IntN(2) == 0; begin {
			b.WriteString(c.pick("\n", "\r\n", " # -N comment '\n", "\t\n"))
		}
	}
	return b.String() + "\n"
}

// quoted writes a word so that it is read again.
func (c *sources) quoted(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\r\v\f'\"#") && c.IntN(3) > 0 {
		return word
	}
	var b strings.Builder
	for len(word) > 0 {
		quote := c.pick("'", "\"")
		n := strings.Index(word, quote)
		if n == 0 {
			quote = map[string]string{"'": "\"", "\"": "'"}[quote]
			n = strings.Index(word, quote)
		}
		if n < 0 {
			n = len(word)
		}
		b.WriteString(quote + word[:n] + quote)
		word = word[n:]
	}
	if b.Len() == 0 {
		return "''"
	}
	return b.String()
}

// submission is what came of a command line.
type submission struct {
	Result  qtest.Result
	Request *api.SubmitRequest
}

// scriptShown is the script itself as -verify shows it.
var scriptShown = regexp.MustCompile(`(?s)script_size: .*?\n|script_ptr: .*?\ntrue\n\n`)

// compare returns in which way the two differ.
func (c *sources) compare(t *testing.T, e *qtest.Execd) string {
	t.Helper()
	t.Setenv("FROM_CALLER", "it's \"so\", = #")
	e.Replies(api.VerbWait, &api.WaitReply{Done: true})
	var request *api.SubmitRequest
	e.On(api.VerbSubmit, func(body []byte) (int, any) {
		request = &api.SubmitRequest{}
		if err := request.UnmarshalJSON(body); err != nil {
			t.Error(err)
		}
		return 200, &api.SubmitReply{Job: 7, Name: request.Name, Tasks: request.Tasks}
	})
	submit := func(script string, words []string) submission {
		request = nil
		if err := os.WriteFile("job.sh", []byte("#!/bin/sh\n"+script), 0o644); err != nil {
			t.Fatal(err)
		}
		s := submission{Result: call(t, "", append(append([]string{"qsub"}, words...), "job.sh", "an argument")...), Request: request}
		if request != nil && request.Script != nil {
			request.Script = []byte("the script")
		}
		s.Result.Out = scriptShown.ReplaceAllString(s.Result.Out, "")
		return s
	}
	for name, list := range c.files {
		if err := os.WriteFile(name, []byte(c.lines(list, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files := []string{filepath.Join(os.Getenv("PADDOCK_DIR"), "etc", "sge_request"), filepath.Join(os.Getenv("HOME"), ".sge_request"), ".sge_request"}
	for _, name := range files {
		_ = os.Remove(name)
	}
	together := submit("true\n", c.merged())
	for i, name := range files {
		if err := os.WriteFile(name, []byte("# comment\n"+c.lines(c.defaults[i], "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	apart := submit(c.lines(c.script, c.prefix)+"true\n", slices.Concat(c.line...))
	failed := func(s submission) bool { return s.Request == nil && s.Result.Exit != 0 }
	if failed(together) && failed(apart) {
		return "" // the words have the place before them, and another error may come first
	}
	return cmp.Diff(together, apart)
}
