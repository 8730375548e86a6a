package ad

import (
	"strings"
	"testing"

	"paddock/classad"
)

// REQ-HOOK-123: a script is taken out of the text of an ad, which keeps its lines, and has any
// bytes.
func TestCutScript(t *testing.T) {
	text := "#!/bin/sh\r\n\techo \"a\\\"\x00\xff\\\n" + strings.Repeat("#", 1<<20) + "\\"
	for _, tt := range []struct{ text, rest, script, err string }{
		{"A = 1\n", "A = 1\n", "", ""},
		{"A = 1\n sCRIPT\t= \"echo \\\"x\\\"\" \r\nB = 2", "A = 1\n\nB = 2", `echo "x"`, ""},
		{"Script = " + classad.String(text).Expr().OldString() + "\n", "\n", text, ""},
		{"Script = \"a\"\nScript = \"b\"\n", "\n\n", "b", ""},
		{"Scripts = 1\nMyScript = 2\n# Script = 3\nScript == 4\nScript\n", "Scripts = 1\nMyScript = 2\n# Script = 3\nScript == 4\nScript\n", "", ""},
		{"A = 1\nScript = \"\"\n", "", "", "line 2: Script is empty"},
		{"Script =\n", "", "", "line 1: Script is neither a string nor eval of one"},
		{"Script = strcat(\"a\", \"b\")\n", "", "", "line 1: Script is neither a string nor eval of one"},
		{"Script = \"a\n", "", "", "line 1: Script is neither a string nor eval of one"},
	} {
		rest, script, err := CutScript([]byte(tt.text))
		told := ""
		if err != nil {
			told = err.Error()
		}
		if rest != tt.rest || string(script) != tt.script || told != tt.err {
			t.Errorf("%.100q: %.100q, %.100q, %v; want %.100q, %.100q, %q", tt.text, rest, script, err, tt.rest, tt.script, tt.err)
		}
	}
}

// Work with a script is run as if that had been submitted, and its ad need not name it.
func TestScriptOfWork(t *testing.T) {
	for _, tt := range []struct{ ad, command, name, shell, err string }{
		{``, "STDIN", "work", "", ""},
		{"Cmd = \"dir/job.sh\"\nShell = \"/bin/ksh\"", "dir/job.sh", "job.sh", "/bin/ksh", ""},
		{"Cmd = \"a\\nb\"\nShell = 5", "", "", "", "cannot use ad of work: Shell: want a string, not the integer 5"},
		{"JobUniverse = 10\nArgs = \"Main\"", "", "", "", "cannot use ad of work: Script: work with it is of universe 5"},
		{`ArrayTasks = "1-9:2"`, "", "", "", "cannot use ad of work: ArrayTask: 0 is none of the tasks 1-9:2"},
		{"ArrayTasks = \"1-9:2\"\nArrayTask = 2", "", "", "", "cannot use ad of work: ArrayTask: 2 is none of the tasks 1-9:2"},
		{"ArrayTasks = \"x\"\nArrayTask = 1", "", "", "", `cannot use ad of work: ArrayTasks: "x" is not FIRST-LAST:STEP`},
		{"ArrayTasks = \"9-1:1\"\nArrayTask = 1", "", "", "", `cannot use ad of work: ArrayTasks: "9-1:1" is not FIRST-LAST:STEP`},
		{"ArrayTasks = \"1-99999999999:1\"\nArrayTask = 1", "", "", "", `cannot use ad of work: ArrayTasks: "1-99999999999:1" is not FIRST-LAST:STEP`},
		{"ArrayTask = 1", "", "", "", `cannot use ad of work: ArrayTasks: "" is not FIRST-LAST:STEP`},
	} {
		r, err := Request(parse(t, tt.ad), RequestOptions{Script: []byte("exit\n")})
		if err != nil {
			if err.Error() != tt.err {
				t.Errorf("%s: %v; want %q", tt.ad, err, tt.err)
			}
			continue
		}
		if tt.err != "" || r.Binary || r.NoShell || string(r.Script) != "exit\n" || r.Command != tt.command || r.Name != tt.name || r.Shell != tt.shell {
			t.Errorf("%s: %+v; want %+v", tt.ad, r, tt)
		}
	}
	if _, err := Request(parse(t, "Cmd = \"a\"\nScript = \"exit\""), RequestOptions{}); err == nil || !strings.Contains(err.Error(), "only work that is fetched can bring its script") {
		t.Errorf("a script in the ad: %v", err)
	}
}
