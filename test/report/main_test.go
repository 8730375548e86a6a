package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The test is report itself with REPORT in its environment.
func TestMain(m *testing.M) {
	if os.Getenv("REPORT") != "" {
		os.Unsetenv("REPORT")
		main()
		return
	}
	os.Exit(m.Run())
}

// said returns events of what a test prints.
func said(test string, lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, `{"Action":"output","Package":"p","Test":%q,"Output":%q}`+"\n", test, l+"\n")
	}
	return b.String()
}

func ends(test, action string) string {
	return fmt.Sprintf(`{"Action":%q,"Package":"p","Test":%q,"Elapsed":0.5}`+"\n", action, test)
}

func TestReport(t *testing.T) {
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("    x_test.go:1: line %d", i))
	}
	script := append(append(many[:500:500], "        FAIL: script/x.txtar:7: no match"), many[500:550]...)
	for _, c := range []struct {
		name, in string
		all      bool
		want     []string // in this order
		not      string
		failed   bool
	}{
		{
			name: "passes",
			in:   said("TestA", "=== RUN   TestA", "    x_test.go:1: word", "--- PASS: TestA (0.50s)") + ends("TestA", "pass") + ends("", "pass"),
			want: []string{"ok    p 0.5 s", "1 tests passed, 0 skipped, 0 failed"}, not: "word",
		},
		{
			name: "passes, and all is told", all: true,
			in:   said("TestA", "    x_test.go:1: word") + ends("TestA", "pass"),
			want: []string{"pass  p TestA", "word"},
		},
		{
			name: "is skipped", in: said("TestA", "    x_test.go:1: needs root") + ends("TestA", "skip"),
			want: []string{"skip  p TestA", "needs root", "1 skipped"},
		},
		{
			name: "a part fails", failed: true,
			in:   said("TestA/b", "    x_test.go:1: got 1") + ends("TestA/b", "fail") + ends("TestA", "fail") + said("", "FAIL\tp\t0.5s") + ends("", "fail"),
			want: []string{"FAIL  p TestA/b 0.5 s", "got 1", "FAIL  p TestA 0.5 s", "2 failed\nFAIL  p TestA/b\n          x_test.go:1: got 1\n\x00"},
		},
		{
			name: "the package fails behind its tests", failed: true,
			in:   ends("TestA", "pass") + said("", "p: left behind: a process") + ends("", "fail"),
			want: []string{"0 failed\nFAIL  p\n      p: left behind"},
		},
		{
			name: "it is ended while tests run", failed: true,
			in: ends("TestA", "run") + ends("TestB", "run") + ends("TestB", "pass") + ends("TestC", "run") +
				said("TestC", "SIGQUIT: quit", "x_test.go:7") + said("", "FAIL\tp\t0.5s") + ends("", "fail"),
			want: []string{"FAIL  p 0.5 s\n      not ended: p TestA\n      not ended: p TestC\n      SIGQUIT: quit", "0 failed\nFAIL  p\n      not ended: p TestA", "x_test.go:7"},
			not:  "p TestB",
		},
		{
			name: "it cannot be built", failed: true,
			in: `{"ImportPath":"p [p.test]","Action":"build-output","Output":"x.go:1: undefined\n"}` + "\n" +
				`{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}` + "\n",
			want: []string{"0 failed\nFAIL  p\n      x.go:1: undefined\n"},
		},
		{
			name: "says much", failed: true, in: said("TestA", many...) + ends("TestA", "fail"),
			want: []string{"line 0", "1 failed\n", "line 0", "...", "line 999\n\x00"}, not: "line 500\n",
		},
		{
			name: "a script fails", failed: true, in: said("TestA", script...) + ends("TestA", "fail"),
			want: []string{"1 failed\n", "line 499", "FAIL: script/x.txtar:7: no match", "line 500"},
		},
		{name: "another's words", in: "go: downloading\n", want: []string{"go: downloading"}},
		{name: "no end", in: said("TestA", "    x_test.go:1: word"), want: []string{"p TestA said last:", "word"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			r.all = c.all
			if err := r.read(strings.NewReader(c.in)); err != nil {
				t.Fatal(err)
			}
			r.end()
			rest := out.String() + "\x00"
			for _, want := range c.want {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("no %q in\n%s", want, rest)
				}
				rest = after
			}
			if c.not != "" && strings.Contains(out.String(), c.not) {
				t.Errorf("there is %q in\n%s", c.not, &out)
			}
			if r.failed() != c.failed {
				t.Errorf("failed is %v", r.failed())
			}
			_, end, _ := strings.Cut(out.String(), " failed\n")
			if n := strings.Count(end, "\n"); n > digest+5 {
				t.Errorf("the end has %d lines", n)
			}
		})
	}
}

func TestAlone(t *testing.T) {
	for _, c := range []struct{ args, name, want string }{
		{"-count=1 -p 4 -skip ^TestFault ./a ./b paddock/c", "paddock/b TestX", "-count=1 -p 4 -run ^TestX$ paddock/b"},
		{"-v -run ^TestA ./a -scale 0.1", "paddock/a TestA/one+two", `-v -run ^TestA$/^one\+two$ paddock/a -scale 0.1`},
	} {
		if got := strings.Join(alone(strings.Fields(c.args), c.name), " "); got != c.want {
			t.Errorf("%s, of %s: %s, want %s", c.args, c.name, got, c.want)
		}
	}
}

// A test that failed by chance does not fail the run, and is named; one that always fails
// does.
func TestRetry(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module x\n",
		"x_test.go": `package x
import ("fmt"; "os"; "testing")
func TestOnce(t *testing.T) {
	if os.Mkdir("failed", 0o755) == nil { t.Error("by chance") }
}
func TestAlways(t *testing.T) {
	if os.Getenv("ALWAYS") != "" { t.Error("always") }
}
func TestNames(t *testing.T) {
	if os.Getenv("NAMES") != "" { t.Run(fmt.Sprint(os.Getpid()), func(t *testing.T) {
		if os.Mkdir("other", 0o755) == nil { t.Error("by chance") }
	}) }
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		env, want string
		fails     bool
	}{
		{"TEST_RETRIES=1", "FLAKY x TestOnce: it failed, and passed by itself\n", false},
		{"TEST_RETRIES=2 ALWAYS=1", "again x TestAlways\nFAIL  x TestAlways", true},
		{"TEST_RETRIES=2 NAMES=1", "again x TestNames/", true}, // there is none of that name again
	} {
		if err := os.RemoveAll(filepath.Join(dir, "failed")); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/exe", "./...")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), strings.Fields("REPORT=1 "+c.env)...)
		out, err := cmd.CombinedOutput()
		if (err != nil) != c.fails || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, want %q in\n%s", c.env, err, c.want, out)
		}
	}
}
