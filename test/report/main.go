// Report runs go test with the given arguments and prints of it what somebody
// looks for: each package and each slow test when it is done, failed tests with
// what they said (with -v the others, too), and the failed ones once more,
// shortened, in the last lines: where a log is cut off, its end remains.
//
// With TEST_RETRIES=N in its environment, up to N tests that have failed are run once more, each
// by itself. If they pass it exits with 0, and its last lines name them as flaky.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	slow   = 10  // seconds from which a test is told when it passes
	most   = 400 // lines of a failed test
	digest = 50  // lines of the shortened end
	width  = 240 // of its lines
)

func main() {
	args := os.Args[1:]
	r, err := run(args)
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		if most, convErr := strconv.Atoi(os.Getenv("TEST_RETRIES")); convErr == nil && r.retry(args, most) {
			err = nil
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "report: go test %s: failed: %v\n", strings.Join(args, " "), err)
		os.Exit(1)
	}
}

// run runs go test, and prints of it what somebody looks for. Its error is an
// *exec.ExitError if it could be run and read.
func run(args []string) (*report, error) {
	r := newReport(os.Stdout)
	r.all = slices.Contains(args, "-v")
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return r, fmt.Errorf("cannot run go test: %w", err)
	}
	readErr := r.read(out)
	err = cmd.Wait()
	r.end()
	switch {
	case readErr != nil:
		return r, readErr
	case err == nil && r.failed():
		return r, errors.New("it exited with 0")
	}
	return r, err
}

// retry runs each test that has failed once more, by itself, and reports whether all
// passed. It does nothing if none or more than so many have failed, or if something else
// has: a build, or a package that was ended.
func (r *report) retry(args []string, most int) bool {
	if !r.failed() || len(r.bad) > most || slices.ContainsFunc(r.bad, func(f failure) bool { return !strings.Contains(f.name, " ") }) {
		return false
	}
	for _, f := range r.bad {
		fmt.Fprintf(r.to, "again %s\n", f.name)
		again, err := run(alone(args, f.name))
		if err != nil || !again.passed[f.name] { // it has not run if its name is another one each time
			return false
		}
	}
	for _, f := range r.bad {
		fmt.Fprintf(r.to, "FLAKY %s: it failed, and passed by itself\n", f.name)
	}
	return true
}

// alone returns the arguments of go test with one test in place of all.
func alone(args []string, name string) (to []string) {
	pkg, test, _ := strings.Cut(name, " ")
	levels := strings.Split(test, "/")
	for i, l := range levels {
		levels[i] = "^" + regexp.QuoteMeta(l) + "$"
	}
	one := []string{"-run", strings.Join(levels, "/"), pkg}
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-run" || args[i] == "-skip":
			i++
		case strings.HasPrefix(args[i], "./") || strings.HasPrefix(args[i], "paddock/"):
			to, one = append(to, one...), nil
		default:
			to = append(to, args[i])
		}
	}
	return append(to, one...)
}

// event is what go test -json prints; see go doc test2json.
type event struct {
	Time                    time.Time
	Action, Package, Test   string
	ImportPath, FailedBuild string
	Output                  string
	Elapsed                 float64
}

// name is what is tested: of a package, or of its build, without a test.
func (e *event) name() string {
	if e.Test != "" {
		return e.Package + " " + e.Test
	}
	return cmp.Or(e.Package, e.ImportPath)
}

type report struct {
	to             io.Writer
	all            bool                // tell also what tests said that passed
	said           map[string][]string // what runs or was built has printed
	begun          map[string]bool     // tests that have not ended
	bad            []failure
	passed         map[string]bool
	fails, skipped int
}

// failure is a test, or a package, and what it said.
type failure struct {
	name  string
	lines []string
}

func newReport(to io.Writer) *report {
	return &report{to: to, said: map[string][]string{}, begun: map[string]bool{}, passed: map[string]bool{}}
}

func (r *report) failed() bool { return len(r.bad) > 0 }

func (r *report) read(from io.Reader) error {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			r.line(line)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("cannot read what go test prints: %w", err)
		}
	}
}

func (r *report) line(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		fmt.Fprint(r.to, line) // not of go test
		return
	}
	name := e.name()
	switch e.Action {
	case "run":
		r.begun[name] = true
	case "output", "build-output":
		r.keep(name, e.Output)
	case "pass", "skip":
		r.good(&e)
		r.forget(name)
	case "fail":
		r.wrong(&e)
		r.forget(name)
	}
}

func (r *report) forget(name string) {
	delete(r.said, name)
	delete(r.begun, name)
}

// unfinished returns the tests of a package that was ended while they ran, with what
// they said: where they were is in that of one of them.
func (r *report) unfinished(pkg string) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(r.begun)) {
		if strings.HasPrefix(name, pkg+" ") {
			lines = append(append(lines, "not ended: "+name), r.said[name]...)
			r.forget(name)
		}
	}
	return lines
}

// keep remembers what was printed, of much the first and the last lines.
func (r *report) keep(name, text string) {
	for _, frame := range []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME ", "--- PASS", "--- FAIL", "--- SKIP", "PASS\n", "FAIL\n"} {
		if strings.HasPrefix(strings.TrimLeft(text, " "), frame) {
			return
		}
	}
	said := append(r.said[name], strings.TrimSuffix(text, "\n"))
	if len(said) > most {
		said = slices.Delete(said, most/2, most/2+1)
		said[most/2] = "..."
	}
	r.said[name] = said
}

func (r *report) good(e *event) {
	switch {
	case e.Test == "" && e.Action == "skip": // it has no tests
	case e.Test == "":
		fmt.Fprintf(r.to, "ok    %s %.1f s\n", e.Package, e.Elapsed)
	case e.Action == "skip":
		r.skipped++
		fmt.Fprintf(r.to, "skip  %s\n", e.name())
		r.tell(r.said[e.name()])
	default:
		r.passed[e.name()] = true
		said := r.said[e.name()]
		if e.Elapsed >= slow || r.all && len(said) > 0 {
			fmt.Fprintf(r.to, "pass  %s %.1f s\n", e.name(), e.Elapsed)
		}
		if r.all {
			r.tell(said)
		}
	}
}

func (r *report) tell(lines []string) {
	for _, l := range lines {
		fmt.Fprintln(r.to, "      "+l)
	}
}

func (r *report) wrong(e *event) {
	name := e.name()
	lines := r.said[name]
	if e.FailedBuild != "" {
		lines = append(r.said[e.FailedBuild], lines...)
	}
	if e.Test != "" {
		r.fails++
	} else {
		lines = append(r.unfinished(e.Package), lines...)
	}
	fmt.Fprintf(r.to, "FAIL  %s %.1f s\n", name, e.Elapsed)
	r.tell(lines)
	// Who fails only by what is below it, or in it, says nothing of its own.
	lines = slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
		return strings.TrimSpace(l) == "" || strings.HasPrefix(l, "FAIL\t") || strings.HasPrefix(l, "exit status ")
	})
	if len(lines) > 0 || !r.below(name) {
		r.bad = append(r.bad, failure{name, lines})
	}
}

// below reports whether something in a test or a package has failed.
func (r *report) below(name string) bool {
	return slices.ContainsFunc(r.bad, func(f failure) bool {
		return strings.HasPrefix(f.name, name+"/") || strings.HasPrefix(f.name, name+" ")
	})
}

// end prints the sum, and the failures again.
func (r *report) end() {
	fmt.Fprintf(r.to, "%d tests passed, %d skipped, %d failed\n", len(r.passed), r.skipped, r.fails)
	for name, lines := range r.said { // it did not come to an end
		if len(r.bad) == 0 && len(lines) > 0 {
			fmt.Fprintf(r.to, "%s said last:\n%s\n", name, strings.Join(lines, "\n"))
		}
	}
	each := max(3, digest/max(1, len(r.bad))-1)
	for i, f := range r.bad {
		if i*(each+1) > digest {
			fmt.Fprintf(r.to, "and %d more\n", len(r.bad)-i)
			break
		}
		fmt.Fprintf(r.to, "FAIL  %s\n", f.name)
		lines := shorten(f.lines, each)
		for k, l := range lines {
			if len(l) > width {
				lines[k] = l[:width] + "..."
			}
		}
		r.tell(lines)
	}
}

// shorten keeps of many lines those around the word of testscript that something
// is wrong, or else the first and the last.
func shorten(lines []string, n int) []string {
	if len(lines) <= n {
		return slices.Clone(lines)
	}
	if k := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), "FAIL: ") }); k >= 0 {
		from := max(0, min(k-n/2, len(lines)-n))
		return slices.Clone(lines[from : from+n])
	}
	return slices.Concat(lines[:n-n/2-1], []string{"..."}, lines[len(lines)-n/2:])
}
