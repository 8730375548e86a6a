package knob

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// load reads files that are there in a map, by path.
func load(files map[string]string, environ ...string) (*Set, []Problem) {
	return Load(Source{
		File: "/etc/hooks.conf",
		Read: func(path string) ([]byte, error) {
			text, ok := files[path]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
			}
			return []byte(text), nil
		},
		Names: func(dir string) (names []string, err error) {
			for file := range maps.Keys(files) {
				if path.Dir(file) == dir {
					names = append(names, path.Base(file))
				}
			}
			if names == nil {
				return nil, &fs.PathError{Op: "open", Path: dir, Err: fs.ErrNotExist}
			}
			return names, nil
		},
		Environ: environ,
		Host:    "node7.example.org",
	})
}

// texts are problems as they are told.
func texts(problems []Problem) []string {
	var all []string
	for _, p := range problems {
		all = append(all, p.String())
	}
	return all
}

// TestLanguage reads small files.
// REQ-HOOK-66: macros are part of values, also one of the site's own.
func TestLanguage(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       map[string]string // "-": not set
	}{
		{"plain", "A = 1\n b=two words \n\tC = $x(y)\n", map[string]string{"a": "1", "B": "two words", "C": "$x(y)", "D": "-"}},
		{"case and order", "Abc = 1\nABC = 2\n", map[string]string{"abc": "2"}},
		{"comments", "# A = 1\n  # B = 1\nC = 1 # not one\n", map[string]string{"A": "-", "B": "-", "C": "1 # not one"}},
		{"windows", "A = 1\r\nB = 2 \\\r\n  3\r\n", map[string]string{"A": "1", "B": "2 3"}},
		{"continuation", "A = 1 + \\\n# A = 9 \\\n   2 \\\n  # no\n + 3\nB = 4\n", map[string]string{"A": "1 + 2 + 3", "B": "4"}},
		{"continuation at the end", "A = 1 \\", map[string]string{"A": "1"}},
		{"several lines", "A @=end\n one\n# two\n  three \\\n@END\nB = 1", map[string]string{"A": "one\n# two\n  three \\", "B": "1"}},
		{"lazy", "A = $(B)x\nB = 1\nB = 2\n", map[string]string{"A": "2x"}},
		{"nothing", "A = [$(B)]\nC =\nD = [$(C)]\n", map[string]string{"A": "[]", "C": "-", "D": "[]"}},
		{"default", "A = $(B:one $(C)) $(C:two)\nC = three\nD = $(E:)\nF=$(E:(x))", map[string]string{"A": "one three three", "D": "-", "F": "(x)"}},
		{"nested defaults", "A = $(B:$(C:$(D:x)))", map[string]string{"A": "x"}},
		{"itself", "A = 1\nA = $(A) 2\nA = 0 $(a)\n", map[string]string{"A": "0 1 2"}},
		{"itself at once", "B = 1\nA = $(B)\nA = $(A)$(B)\nB = 2\n", map[string]string{"A": "22"}},
		{"itself without one", "A = [$(A)] [$(A:x)]\n", map[string]string{"A": "[] [x]"}},
		{"itself is a default", "MATCH_TIMEOUT = 2 * $(MATCH_TIMEOUT)", map[string]string{"MATCH_TIMEOUT": "2 * 120"}},
		{"jobs'", "A = $$(OpSys) $$([ x ]) $$(X:$(B))\nB = y\n", map[string]string{"A": "$$(OpSys) $$([ x ]) $$(X:y)"}},
		{"dollars", `A = ^a$ b$(c|d) $( x ) $(DOLLAR)(B)`, map[string]string{"A": "^a$ b$(c|d) $( x ) $(B)"}},
		{"known defaults", "A = $(POLLING_INTERVAL) $(HOSTNAME) $(FULL_HOSTNAME) $(MINUTE)", map[string]string{"A": "5 node7 node7.example.org 60"}},
		{"prefix", "A = 1\nSTARTD.A = 2\nEXECD.A = 3\nSTARTD.B = 4\nC = $(B) $(A)\nSCHEDD.C = 9", map[string]string{"A": "3", "B": "4", "C": "4 3", "SCHEDD.C": "9"}},
		{"prefix of nothing", "A = 1\nSTARTD.A =\n", map[string]string{"A": "1"}},
		{"prefix of itself", "A = 1\nSTARTD.A = $(A) 2\nSTARTD.A = $(A) 3\n", map[string]string{"A": "1 2 3"}},
		{"if", "if true\nA = 1\nelse\nA = 2\nendif\nIF no\nB = 1\nELIF $(A) == 1\nB = 2\nelse\nB = 3\nEndIf", map[string]string{"A": "1", "B": "2"}},
		{"nested if", "if 0\nif 1\nA = 1\nelse\nA = 2\nendif\nelse\nif ! false\nB = 1\nendif\nendif\n", map[string]string{"A": "-", "B": "1"}},
		{
			"defined", "X = 1\nN = X\nif defined X\nA = 1\nendif\nif !defined Y\nB = 1\nendif\nif defined $(N)\nC = 1\nendif\nif defined $(NO)\nD = 1\nendif\nif defined START\nE = 1\nendif",
			map[string]string{"A": "1", "B": "1", "C": "1", "D": "-", "E": "1"},
		},
		{"not taken", "if false\nwhat is this\nuse ROLE : x\ninclude : /none\nA @=x\nendif\n@x\nendif\nB = 1", map[string]string{"A": "-", "B": "1"}},
		{"names like words", "if = 1\nINCLUDE = 2\nuse=3\n", map[string]string{"if": "1", "include": "2", "use": "3"}},
	} {
		s, problems := load(map[string]string{"/etc/hooks.conf": c.text})
		if len(problems) > 0 {
			t.Errorf("%s: %v", c.name, texts(problems))
		}
		for name, want := range c.want {
			got, ok := s.Lookup(name)
			if !ok {
				got = "-"
			}
			if got != want {
				t.Errorf("%s: %s = %q, want %q", c.name, name, got, want)
			}
		}
	}
}

// TestPlaces reads several files and the environment: each knob is told with
// where it comes from.
func TestPlaces(t *testing.T) {
	s, problems := load(map[string]string{
		"/etc/hooks.conf":     "A = 1\nDIR = sub\ninclude : $(DIR)/inc\ninclude ifexist : /none\nD = 1\nLOCAL_CONFIG_DIR = frag, /more\n",
		"/etc/sub/inc":        "# one\nB = 2 + \\\n  3\ninclude : deep\n",
		"/etc/sub/deep":       "B1 = deep",
		"/etc/frag/10":        "C = 10\nD = 10\n",
		"/etc/frag/20":        "D = $(D) 20\nSTART = $(C) > 3",
		"/more/05":            "E @=x\n1\n2\n@x\nF = file\n",
		"/etc/elsewhere/nope": "A = 9",
	}, "_CONDOR_F=$(F) env", "_condor_G=1", "PATH=/bin", "_CONDOR_=x", "_CONDOR_START=")
	if len(problems) > 0 {
		t.Error(texts(problems))
	}
	var all []string
	for _, k := range s.All() {
		if !k.Default {
			all = append(all, fmt.Sprintf("%s|%s|%s|%s", k.Name, k.Value, k.Raw, k.Where()))
		}
	}
	want := []string{
		"A|1|1|/etc/hooks.conf:1",
		"B|2 + 3|2 + 3|/etc/sub/inc:2",
		"B1|deep|deep|/etc/sub/deep:1",
		"C|10|10|/etc/frag/10:1",
		"D|10 20|10 20|/etc/frag/20:1",
		"DIR|sub|sub|/etc/hooks.conf:2",
		"E|1\n2|1\n2|/more/05:1",
		"F|file env|file env|environment _CONDOR_F",
		"G|1|1|environment _condor_G",
		"LOCAL_CONFIG_DIR|frag, /more|frag, /more|/etc/hooks.conf:6",
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("knobs (-want +got):\n%s", diff)
	}
	if k := s.Get("start"); !k.Default || k.Name != "START" || k.Value != "true" || k.Where() != "default" {
		t.Errorf("what the environment empties: %+v", k)
	}
	if diff := cmp.Diff([]string{"/etc/frag", "/more"}, s.Dirs()); diff != "" {
		t.Errorf("directories (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/etc/frag/10", "/etc/frag/20", "/etc/hooks.conf", "/etc/sub/deep", "/etc/sub/inc", "/more/05", "/none"}, s.Files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if s, _ = load(map[string]string{"/etc/hooks.conf": "LOCAL_CONFIG_DIR = /none\nEXECD.LOCAL_CONFIG_DIR = /more", "/more/05": "E = 1"}); s.Get("E").Default {
		t.Error("execd's own directory was not read")
	}
	// The directory of the environment is another's.
	s, problems = load(map[string]string{"/etc/hooks.conf": "LOCAL_CONFIG_DIR = /none", "/more/05": "E = 1"}, "_CONDOR_LOCAL_CONFIG_DIR=/more")
	if _, ok := s.Lookup("E"); !ok || len(problems) > 0 {
		t.Errorf("directory of the environment: %v", texts(problems))
	}
}

// TestProblems reads what is wrong, and is told so with file and line.
func TestProblems(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"A\n", []string{`/etc/hooks.conf:1: cannot read "A": want NAME = value`}},
		{"\nA-B = 1\n", []string{`/etc/hooks.conf:2: "A-B" is no name of a knob: letters, digits, underscores and dots`}},
		{"= 1", []string{`/etc/hooks.conf:1: "" is no name of a knob: letters, digits, underscores and dots`}},
		{"A = 1\x00", []string{`/etc/hooks.conf:1: not a text file: NUL byte`}},
		{"A = $(B)\nB = $(C)\nC = $(A)\nD = $(A)\n", []string{`/etc/hooks.conf:3: C: refers to itself: A -> B -> C -> A`}},
		{"A @=x\nB = 1\n", []string{`/etc/hooks.conf:1: no line @x ends the value`}},
		{"A @=\nB = 1\n", []string{`/etc/hooks.conf:1: @= wants a word that ends the value`}},
		{"if true\n", []string{`/etc/hooks.conf:1: if without its endif`}},
		{"else\nelif 1\nendif\n", []string{`/etc/hooks.conf:1: else without an if`, `/etc/hooks.conf:2: elif without an if`, `/etc/hooks.conf:3: endif without an if`}},
		{"if 1\nelse\nelif 1\nA = 1\nendif", []string{`/etc/hooks.conf:3: elif behind the else of the if in line 1`}},
		{"if 1\nelse x\nendif", []string{`/etc/hooks.conf:2: else has nothing behind it, not "x"`}},
		{"if maybe\nendif", []string{`/etc/hooks.conf:1: cannot tell whether "maybe" holds: want true or false, not maybe`}},
		{"if\nendif", []string{`/etc/hooks.conf:1: cannot tell whether "" holds: there is no condition`}},
		{"if version ~ 9\nendif", []string{`/etc/hooks.conf:1: cannot tell whether "version ~ 9" holds: want version OPERATOR NUMBER.NUMBER.NUMBER`}},
		{"if version 9\nendif", []string{`/etc/hooks.conf:1: cannot tell whether "version 9" holds: versions are compared by <, <=, ==, !=, >= or >`}},
		{"if version >= 9.1.1.1\nendif", []string{`/etc/hooks.conf:1: cannot tell whether "version >= 9.1.1.1" holds: want version OPERATOR NUMBER.NUMBER.NUMBER`}},
		{"include : /none", []string{`/etc/hooks.conf:1: cannot open /none: file does not exist`}},
		{"include /none", []string{`/etc/hooks.conf:1: include: want include : FILE`}},
		{"include command : /bin/x", []string{`/etc/hooks.conf:1: include command: only files are included here`}},
		{"include : hooks.conf", []string{`/etc/hooks.conf: includes itself: /etc/hooks.conf -> /etc/hooks.conf`}},
		{"\nuse ROLE", []string{`/etc/hooks.conf:2: use: want use CATEGORY : NAME`}},
		{"use ROLE :", []string{`/etc/hooks.conf:1: use: want use CATEGORY : NAME`}},
		{"use POLICY : Nothing Always_Run_Jobs", []string{`/etc/hooks.conf:1: cannot use POLICY : Nothing: there is no such template here`}},
		{"use POLICY : PREEMPT_IF(A", []string{`/etc/hooks.conf:1: use: the arguments of PREEMPT_IF(A have no end`}},
		{"use POLICY : PREEMPT_IF()", []string{`/etc/hooks.conf:1: cannot use POLICY : PREEMPT_IF: it needs more arguments`}},
		{"use POLICY : ALWAYS_RUN_JOBS(1)", []string{`/etc/hooks.conf:1: cannot use POLICY : ALWAYS_RUN_JOBS: it has too many arguments`}},
		{"\nuse POLICY : PREEMPT_IF(NOT_THERE)", []string{
			`/etc/hooks.conf:2: MaxJobRetirementTime: not an expression: column 2: unexpected ")"`, `/etc/hooks.conf:2: PREEMPT: not an expression: column 2: unexpected ")"`,
			`/etc/hooks.conf:2: WANT_SUSPEND: not an expression: column 2: unexpected ")"`,
		}},
		{"use POLICY : HOLD_IF_CPUS_EXCEEDED", []string{`/etc/hooks.conf:1: cannot use POLICY : HOLD_IF_CPUS_EXCEEDED: nobody counts the cores that a job uses, qsub -binding holds it to those that it has`}},
		{"use FEATURE : GPUs", []string{`/etc/hooks.conf:1: cannot use FEATURE : GPUs: GPUs are complex_values of the host`}},
		{"use FEATURE : PartitionableSlot(2, 50%)", []string{`/etc/hooks.conf:1: cannot use FEATURE : PartitionableSlot: slots are those of the queues`}},
		{"use FEATURE : StaticSlots(1, 4)", []string{`/etc/hooks.conf:1: cannot use FEATURE : StaticSlots: slots are those of the queues`}},
		{"use ROLE : CentralManager", []string{`/etc/hooks.conf:1: use ROLE : CentralManager has no effect here: every execd is a host of its own`}},
		{"SLOT1_USER = ann\nslot1_2_user = bob\nNOBODY_SLOT_USER = $(SLOT1_USER)", []string{
			`/etc/hooks.conf:3: NOBODY_SLOT_USER: cannot be had here: jobs run as their owners`, `/etc/hooks.conf:2: slot1_2_user: cannot be had here: jobs run as their owners`,
			`/etc/hooks.conf:1: SLOT1_USER: cannot be had here: jobs run as their owners`,
		}},
		{"STARTER_ALLOW_RUNAS_OWNER = True", nil},
		{"STARTER_ALLOW_RUNAS_OWNER = False", []string{`/etc/hooks.conf:1: STARTER_ALLOW_RUNAS_OWNER: cannot be had here: jobs run as their owners`}},
		{"STARTD.DEDICATED_EXECUTE_ACCOUNT_REGEXP = slot[0-9]+", []string{`/etc/hooks.conf:1: STARTD.DEDICATED_EXECUTE_ACCOUNT_REGEXP: cannot be had here: no account is for jobs alone, and what a job leaves is found by its control group`}},
		{"ASSIGN_CPU_AFFINITY = false\nSLOT2_CPU_AFFINITY = 0,1", []string{`/etc/hooks.conf:2: SLOT2_CPU_AFFINITY: cannot be had here: qsub -binding is for that`}},
		{"ENFORCE_CPU_AFFINITY = 0\nSLOT1_CPU_AFFINITY = 0", []string{`/etc/hooks.conf:2: SLOT1_CPU_AFFINITY: cannot be had here: qsub -binding is for that`}},
		{"SLOT_TYPE_1_PARTITIONABLE = TRUE", []string{`/etc/hooks.conf:1: SLOT_TYPE_1_PARTITIONABLE: has no effect here: PARTITIONABLE_QUEUES is for that`}},
		{"MACHINE_RESOURCE_GPUS = 2", []string{`/etc/hooks.conf:1: MACHINE_RESOURCE_GPUS: has no effect here: complex_values of the host say what there is`}},
		{"LOCAL_CONFIG_DIR = /none", []string{`/etc/hooks.conf:1: cannot open /none: file does not exist`}},
		{"\nSTART = 1 +", []string{`/etc/hooks.conf:2: START: not an expression: column 4: unexpected end`}},
		{"STARTD.KILL = (1", []string{`/etc/hooks.conf:1: STARTD.KILL: not an expression: column 3: unexpected end`}},
		{"CLAIM_WORKLIFE = -2", []string{`/etc/hooks.conf:1: CLAIM_WORKLIFE: want at least -1, not -2`}},
		{"POLLING_INTERVAL = 5 # seconds", []string{`/etc/hooks.conf:1: POLLING_INTERVAL: want a whole number: not an expression: column 3: unexpected '#' (a comment needs a line of its own)`}},
		{"POLLING_INTERVAL = 1.5", []string{`/etc/hooks.conf:1: POLLING_INTERVAL: want a whole number, not 1.5`}},
		{"POLLING_INTERVAL = 0", []string{`/etc/hooks.conf:1: POLLING_INTERVAL: want at least 1, not 0`}},
		{"KILLING_TIMEOUT = 40000000", []string{`/etc/hooks.conf:1: KILLING_TIMEOUT: 40000000 seconds are more than a year`}},
		{"fetch_send_claim_id = maybe", []string{`/etc/hooks.conf:1: FETCH_SEND_CLAIM_ID: want true or false, not maybe`}},
		{"SLOT1_JOB_HOOK_KEYWORD = a-b", []string{`/etc/hooks.conf:1: SLOT1_JOB_HOOK_KEYWORD: "a-b" is no keyword: letters, digits and underscores`}},
		{"A = 1\nDEFAULT_USERLOG_FORMAT_OPTIONS = utc, yaml", []string{`/etc/hooks.conf:2: DEFAULT_USERLOG_FORMAT_OPTIONS: "yaml" is none of XML, JSON, ISO_DATE, SUB_SECOND, UTC, LEGACY`}},
		{"X_HOOK_JOB_EXIT_TIMEOUT = 0", []string{`/etc/hooks.conf:1: X_HOOK_JOB_EXIT_TIMEOUT: want at least 1, not 0`}},
		{`X_HOOK_PREPARE_JOB_ARGS = "a`, []string{`/etc/hooks.conf:1: X_HOOK_PREPARE_JOB_ARGS: arguments have a double quote without its end`}},
		{"STARTD_ATTRS = A, B\nA = 1 +\n", []string{`/etc/hooks.conf:2: A: not an expression: column 4: unexpected end`, `/etc/hooks.conf:1: STARTD_ATTRS: nothing says what B is`}},
		{"FETCH_OWNER = ann\nSTARTD.ALIVE_INTERVALS = 3\nMATCH_TIMEOUTS = 3\nX = $(MATCH_TIMEOUTS)\nSTARTD = x\nPREEMPTS = 1\nSTARTD_ATTRS = UPDATE_INTERVALX\nUPDATE_INTERVALX = 3", []string{
			"/etc/hooks.conf:1: FETCH_OWNER: not read by anything, did you mean FETCH_OWNERS?", "/etc/hooks.conf:6: PREEMPTS: not read by anything, did you mean PREEMPT?",
			"/etc/hooks.conf:2: STARTD.ALIVE_INTERVALS: not read by anything, did you mean ALIVE_INTERVAL?",
		}},
		{"FETCH_OWNERS = ann, lab*, [bob\nSTARTD.CLAIM_USERS = [a,b]\n", []string{
			`/etc/hooks.conf:1: FETCH_OWNERS: "[bob" is no pattern`, `/etc/hooks.conf:2: STARTD.CLAIM_USERS: "[a" is no pattern`,
		}},
		{"KLIL = false\nSTATE = x\nBANK = 1\nSTARTD.RNAK = 2", []string{
			"/etc/hooks.conf:1: KLIL: not read by anything, did you mean KILL?", "/etc/hooks.conf:4: STARTD.RNAK: not read by anything, did you mean RANK?",
		}},
		{"NUM_SLOTS = 3", []string{`/etc/hooks.conf:1: NUM_SLOTS: has no effect here: slots are those of the queues`}},
	} {
		_, problems := load(map[string]string{"/etc/hooks.conf": c.text})
		if diff := cmp.Diff(c.want, texts(problems)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, diff)
		}
	}
	s, problems := load(nil, "_CONDOR_SLOT=slot1_2", "_CONDOR_JOB_AD=/spool/job.ad", "_CONDOR_RANK=7")
	var defined []string
	for _, k := range s.All() {
		if !k.Default {
			defined = append(defined, k.Name)
		}
	}
	if len(problems) > 0 || !slices.Equal(defined, []string{"RANK"}) {
		t.Errorf("of an environment of a job: %v, %q; want RANK alone", texts(problems), defined)
	}
	_, problems = load(nil, "_CONDOR_START=1 +", "_CONDOR_a-b=1")
	if diff := cmp.Diff([]string{
		`environment: "a-b" is no name of a knob: letters, digits, underscores and dots`, "environment: _CONDOR_START: not an expression: column 4: unexpected end",
	}, texts(problems)); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

// TestGrowing reads a file that makes a value longer with every line, by hand and by a
// template: what that takes is bounded.
func TestGrowing(t *testing.T) {
	for _, line := range []string{"A = $(A) 0123456789\n", "use POLICY : PREEMPT_IF(LATE)\n"} {
		_, problems := load(map[string]string{"/etc/hooks.conf": "LATE = MY.Late\n" + strings.Repeat(line, 4000)})
		if !slices.ContainsFunc(problems, func(p Problem) bool { return strings.Contains(p.Text, "the values of all knobs together are too long") }) {
			t.Errorf("%q: %d problems, and none of it", line, len(problems))
		}
	}
}

// TestVersion compares with the version of HTCondor whose language this is.
func TestVersion(t *testing.T) {
	for condition, want := range map[string]bool{
		"version >= 8.1.6": true, "version>=8": true, "VERSION < 25.14.1": true, "version == 25": true, "version = 25.14": true, "version != 25.14.0": false,
		"version > 25.14": false, "version <= 25": true, "! version < 9": true, "version > 25.9": true, "version <= 25.2.9": false,
	} {
		s, problems := load(map[string]string{"/etc/hooks.conf": "if " + condition + "\nA = true\nelse\nA = false\nendif"})
		if got := s.Bool("A", !want); got != want || len(problems) > 0 {
			t.Errorf("%s: %t; want %t (%v)", condition, got, want, texts(problems))
		}
	}
}

// TestEnvironment: the environment of execd is read by name.
func TestEnvironment(t *testing.T) {
	s, problems := load(map[string]string{"/etc/hooks.conf": `
A = $ENV(SITE)/x
B = $ENV(NoSite)
C = $ENV(NoSite:of $(HOSTNAME))
D = $ENV(site)
E = $(NONE:$ENV(SITE))
F = $$ENV(SITE)
`}, "SITE=/opt=1", "OTHER=2")
	var got []string
	for _, name := range []string{"A", "B", "C", "D", "E", "F"} {
		v, _ := s.Lookup(name)
		got = append(got, v)
	}
	if diff := cmp.Diff([]string{"/opt=1/x", "UNDEFINED", "of node7", "UNDEFINED", "/opt=1", "$$ENV(SITE)"}, got); diff != "" || len(problems) > 0 {
		t.Errorf("(-want +got):\n%s%v", diff, texts(problems))
	}
}

// TestTemplates reads every template, and has a look at what some of them say.
func TestTemplates(t *testing.T) {
	for category, named := range templates {
		for name, template := range named {
			args := ""
			switch {
			case template.least == 1:
				args = "(SITE)"
			case template.least > 1:
				args = "(SITE, 7, late, as usual)"
			}
			_, problems := load(map[string]string{"/etc/hooks.conf": "SITE = MY.Late\nuse " + category + " : " + name + args})
			if mistake := slices.ContainsFunc(problems, func(p Problem) bool { return !p.Warning }); mistake != (template.refused != "") || (len(problems) > 0) != (template.refused+template.warning != "") {
				t.Errorf("use %s : %s: %v", category, name, texts(problems))
			}
		}
	}
	for _, c := range []struct{ text, name, want string }{
		{"use policy:always_run_jobs", "WANT_VACATE", "true"},
		{"@use POLICY : Always_Run_Jobs, Limit_Job_Runtimes(60)", "PREEMPT", `Activity == "Busy" && time() - EnteredCurrentActivity > 60`},
		{"use POLICY : Limit_Job_Runtimes", "MaxJobRetirementTime", "24 * 3600 + 120"},
		{"LATE = A || B\nuse POLICY : PREEMPT_IF(LATE)", "PREEMPT", "(A || B) || (false)"},
		{"LATE = A || B\nPREEMPT = C\nuse POLICY : PREEMPT_IF(LATE)", "PREEMPT", "(A || B) || (C)"},
		{"LATE = A || B\nuse POLICY : PREEMPT_IF(LATE)", "WANT_SUSPEND", "(A || B) =!= true && (false)"},
		{"LATE = A\nuse POLICY : PREEMPT_IF( LATE )", "MaxJobRetirementTime", "(A) =?= true ? -1 : (0)"},
		{"LATE = A\nuse POLICY : WANT_HOLD_IF(LATE, 102, too late, and (large))", "WANT_HOLD_REASON", `(A) =?= true ? "too late, and (large)" : (undefined)`},
		{"LATE = A\nuse POLICY : WANT_HOLD_IF(LATE, 102, x)", "WANT_HOLD_SUBCODE", "(A) =?= true ? (102) : (undefined)"},
		{"HOLD_SUBCODE_RUNTIME_EXCEEDS = 9\nuse POLICY : Hold_if_Runtime_Exceeds(7)", "WANT_HOLD_SUBCODE", "(JobStart =!= undefined && time() - JobStart > 7) =?= true ? (9) : (undefined)"},
		{"use POLICY : Hold_if_Runtime_Exceeds(7)", "WANT_HOLD_REASON", `(JobStart =!= undefined && time() - JobStart > 7) =?= true ? "the job ran longer than 7 seconds" : (undefined)`},
		{"use FEATURE : PartitionableSlot(1,100%)", "PARTITIONABLE_QUEUES", "*"},
		{"if false\nuse POLICY : ALWAYS_RUN_JOBS\nendif\nKILL = A", "KILL", "A"},
		{"StartIdleTime = 5\nuse POLICY : DESKTOP", "START", "KeyboardIdle > 5"},
	} {
		s, problems := load(map[string]string{"/etc/hooks.conf": c.text})
		if got, _ := s.Lookup(c.name); got != c.want || len(problems) > 0 {
			t.Errorf("%q: %s is %q; want %q (%v)", c.text, c.name, got, c.want, texts(problems))
		}
		if k := s.Get(c.name); c.name != "KILL" && k.Line != strings.Count(c.text, "\n")+1 {
			t.Errorf("%q: %s is of line %d", c.text, c.name, k.Line)
		}
	}
}

// TestOdd reads expressions of whose value nothing can be made: that is a warning, as
// HTCondor takes them.
func TestOdd(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`KILL = "true"`, `KILL: want a boolean or a number, not the string "true": it counts as false`},
		{`STARTD.KILL_VANILLA = "true"`, `STARTD.KILL_VANILLA: want a boolean or a number, not the string "true": it counts as false`},
		{`WANT_VACATE_VM = {}`, `WANT_VACATE_VM: want a boolean or a number, not the list {  }: it counts as true`},
		{`RANK = "high"`, `RANK: want a number, not the string "high": it counts as 0`},
		{`START = strcat("tr", "ue")`, `START: want a boolean or a number, not the string "true": no job is taken`},
		{`IS_OWNER = "no"`, `IS_OWNER: want a boolean or a number, not the string "no": it counts as true`},
		{`PREEMPT = 1 + "1"`, `PREEMPT: want a boolean or a number, not an error (cannot apply + to integer and string): it counts as false`},
		{`SUSPEND = "` + strings.Repeat("x", 100) + `"`, `SUSPEND: want a boolean or a number, not the string "` + strings.Repeat("x", 63) + `...: it counts as false`},
		{"CONTINUE @=end\n\"a\\nb\"\n@end", `CONTINUE: want a boolean or a number, not the string "a\\nb": it counts as false`},
		{`MaxJobRetirementTime = "1 hour"`, `MaxJobRetirementTime: want a number, not the string "1 hour": it counts as 0`},
		{`FetchWorkDelay = 2.5`, `FetchWorkDelay: want a whole number, not the real 2.5: 300 is taken`},
		{`FetchWorkDelay = "60"`, `FetchWorkDelay: want a whole number, not the string "60": 300 is taken`},
		{`WANT_HOLD_REASON = 7`, `WANT_HOLD_REASON: want a string, not the integer 7: the reason is that of a policy that gives none`},
		{`WANT_HOLD_SUBCODE = true`, `WANT_HOLD_SUBCODE: want a whole number, not the boolean true: it counts as 0`},
		{`MODIFY_REQUEST_EXPR_REQUESTCPUS = "4"`, `MODIFY_REQUEST_EXPR_REQUESTCPUS: want a number, not the string "4": no request is met`},
		{`STARTD_ATTRS = SITE` + "\n" + `SITE = "here"`, ""},
		// Nor does it matter on what a call depends that is always an error.
		{`START = NoSuch("x") > KeyboardIdle`, `START: no function NoSuch, which is an error when it is looked at: no job is taken`},
		{`KILL_VANILLA = member(TARGET.Owner)`, `KILL_VANILLA: wrong number of arguments to member, which is an error when it is looked at: it counts as false`},
		{`START = regexp("(?!b)", TARGET.Owner) && F() && F(TARGET.X)`, "START: error parsing regexp: invalid or unsupported Perl syntax: `(?!`; no function F, which is an error when it is looked at: no job is taken"},
		{`WANT_SUSPEND = eval("F(1)")`, `WANT_SUSPEND: no function F, which is an error when it is looked at: it counts as false`},
		{"SITE = 1 + F(X)\nSTARTD_ATTRS = SITE, START\nSTART = true || MY.Site", `SITE: no function F, which is an error when it is looked at`},
		// What depends on ads or the time is nobody's to say before they are there.
		{`KILL = strcat("tr", MY.ue)`, ""},
		{`RANK = TARGET.Owner`, ""},
		{`START = undefined`, ""},
		{`START = 1`, ""},
		{`RANK = 1.5`, ""},
		{`WANT_HOLD_REASON = "late"`, ""},
		{`FetchWorkDelay = 5 * 60`, ""},
		{`KILL = yes`, ""}, // an attribute
	} {
		s, problems := load(map[string]string{"/etc/hooks.conf": c.text})
		want := []string(nil)
		if c.want != "" {
			want = []string{"/etc/hooks.conf:1: " + c.want}
		}
		if diff := cmp.Diff(want, texts(problems)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.text, diff)
		}
		if slices.ContainsFunc(problems, func(p Problem) bool { return !p.Warning }) {
			t.Errorf("%s: taken for a mistake", c.text)
		}
		if len(s.Names()) == 0 {
			t.Errorf("%s: not read", c.text)
		}
	}
}

// TestWarningsHideNothing reads more warnings than are told, and a mistake.
func TestWarningsHideNothing(t *testing.T) {
	var text strings.Builder
	for i := range 2 * maxWrong {
		fmt.Fprintf(&text, "NUM_SLOTS_TYPE_%d = 1\n", i)
	}
	text.WriteString("STARTER_UPDATE_INTERVAL = 0\n")
	_, problems := load(map[string]string{"/etc/hooks.conf": text.String()})
	if len(problems) != maxWrong+1 || problems[maxWrong].Warning {
		t.Errorf("%d problems, the last: %v; want the mistake behind the warnings", len(problems), problems[len(problems)-1])
	}
}

// TestBudgets reads files that would take all memory, or all time.
func TestBudgets(t *testing.T) {
	var doubling, chain, many, wide, ifs strings.Builder
	doubling.WriteString("A0 = xxxxxxxxxxxxxxxx\n")
	for i := range 64 {
		fmt.Fprintf(&doubling, "A%d = $(A%d)$(A%d)\n", i+1, i, i)
	}
	for i := range 5000 {
		fmt.Fprintf(&chain, "A%d = $(A%d)\n", i, i+1)
	}
	for i := range maxKnobs + 5 {
		fmt.Fprintf(&many, "A%d = 1\n", i)
	}
	wide.WriteString("A = " + strings.Repeat("x", maxValue-10) + "\n")
	for i := range 1000 {
		fmt.Fprintf(&wide, "B%d = $(A)\n", i)
	}
	ifs.WriteString(strings.Repeat("if 1\n", 1000))
	for name, c := range map[string]struct{ text, want string }{
		"doubling":     {doubling.String(), "a value of more than 65536 bytes"},
		"own doubling": {"A = xxxxxxxxxxxxxxxx\n" + strings.Repeat("A = $(A)$(A)\n", 64), "a value of more than 65536 bytes"},
		"chain":        {chain.String(), "more than 100 knobs refer to each other"},
		"many":         {many.String(), "more than 10000 knobs"},
		"wide":         {wide.String(), "the values of all knobs together are too long"},
		"ifs":          {ifs.String(), "more than 64 ifs within each other"},
		"long":         {"A = " + strings.Repeat("x", maxValue+1), "a value of more than 65536 bytes"},
		"defaults":     {"A = " + strings.Repeat("$(B:", 200) + strings.Repeat(")", 200), "more than 100 references in a default"},
		"dollars":      {"A = " + strings.Repeat("$(B:", maxValue/4), ""},
		"text":         {strings.Repeat("#\n", maxText/2+1), "more than 4194304 bytes in all files"},
		"wrong":        {strings.Repeat("x\n", 500_000), "want NAME = value"},
	} {
		start := time.Now()
		_, problems := load(map[string]string{"/etc/hooks.conf": c.text})
		found := c.want == "" && len(problems) == 0
		for _, p := range problems {
			found = found || strings.Contains(p.Text, c.want)
		}
		if !found || len(problems) > maxWrong {
			t.Errorf("%s: no problem %q among %d: %.200q", name, c.want, len(problems), texts(problems))
		}
		t.Logf("%s: %v", name, time.Since(start))
	}
	files := map[string]string{"/etc/hooks.conf": "LOCAL_CONFIG_DIR = /d\ninclude : 0"}
	for i := range 20 {
		files[fmt.Sprintf("/etc/%d", i)] = fmt.Sprintf("include : %d", i+1)
	}
	for i := range 300 {
		files[fmt.Sprintf("/d/%d", i)] = ""
	}
	_, problems := load(files)
	if all := strings.Join(texts(problems), "\n"); !strings.Contains(all, "more than 10 files include each other") || !strings.Contains(all, "more than 256 files") {
		t.Errorf("many files: %.400s", all)
	}
}

// TestTypes looks knobs up as what they are.
func TestTypes(t *testing.T) {
	s, problems := Parse("f", "POLLING_INTERVAL = 2 * $(MINUTE)\nFETCH_SEND_CLAIM_ID = Yes\nSTART = TARGET.x > 1\nFETCH_OWNERS = a, b c\nCLAIM_WORKLIFE = -1\nHOOK_UPDATE_ON_SUSPEND = 1 > 2")
	if len(problems) > 0 {
		t.Fatal(texts(problems))
	}
	e, ok := s.Expr("start")
	if !ok || e.String() != "TARGET.x > 1" {
		t.Errorf("START is %v, %v", e, ok)
	}
	if _, ok := s.Expr("RANK"); ok {
		t.Error("a default is no expression that is set")
	}
	for _, c := range []struct{ got, want any }{
		{s.Duration("POLLING_INTERVAL", 0), 2 * time.Minute},
		{s.Duration("MATCH_TIMEOUT", time.Hour), time.Hour},
		{s.Int("POLLING_INTERVAL", 0), 120},
		{s.Int("MAX_CLAIM_ALIVES_MISSED", 6), 6},
		{s.Duration("CLAIM_WORKLIFE", 0), -time.Second},
		{s.Bool("FETCH_SEND_CLAIM_ID", false), true},
		{s.Bool("HOOK_UPDATE_ON_SUSPEND", true), false},
		{s.Bool("NONE", true), true},
		{strings.Join(s.Words("FETCH_OWNERS"), "|"), "a|b|c"},
	} {
		if c.got != c.want {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
}

// TestEmpty asks a Set that is none.
func TestEmpty(t *testing.T) {
	var s *Set
	if _, ok := s.Lookup("START"); ok || s.Int("X", 3) != 3 || s.Names() != nil || len(s.Files())+len(s.Dirs()) > 0 || s.Refers("X") || s.Get("X").Value != "" || s.Get("START").Value != "true" {
		t.Error("an empty Set has something")
	}
	missing, problems := load(nil)
	if len(problems) > 0 {
		t.Error(texts(problems))
	}
	if diff := cmp.Diff(s.All(), missing.All()); diff != "" || len(s.All()) == 0 {
		t.Errorf("no file is not as nothing (-nil +missing):\n%s", diff)
	}
}

// TestKnown holds the table against itself: what execd has by default is what it
// would take from a file.
func TestKnown(t *testing.T) {
	for _, k := range Table() {
		if k.Default != "" {
			if err := k.check(k.Default); err != nil {
				t.Errorf("%s: %v", k.Name, err)
			}
			if odd := k.odd(k.Name, k.Default); odd != "" {
				t.Errorf("%s: %s", k.Name, odd)
			}
		}
		if typed := k.Wants != "" && k.Else != ""; typed != (k.Kind == Expression && !k.pattern()) {
			t.Errorf("%s is of kind %s, wants %q and has else %q", k.Name, k.Kind, k.Wants, k.Else)
		}
		if k.Meaning == "" || strings.HasSuffix(k.Meaning, ".") {
			t.Errorf("%s: meaning %q", k.Name, k.Meaning)
		}
	}
	for name, want := range map[string]string{
		"start": "START", "STARTD.Rank": "RANK", "kill_vanilla": "NAME_VANILLA", "slot1_2_job_hook_keyword": "SLOTN_JOB_HOOK_KEYWORD",
		"A_HOOK_FETCH_WORK": "KEYWORD_HOOK_NAME", "A_HOOK_FETCH_WORK_TIMEOUT": "KEYWORD_HOOK_NAME_TIMEOUT", "A_HOOK_PREPARE_JOB_ARGS": "KEYWORD_HOOK_PREPARE_JOB_ARGS",
		"A_HOOK_JOB_EXIT_ARGS": "", "A_HOOK_DIR": "", "A_HOOK_PREPARE_JOB_SLOT_AD": "KEYWORD_HOOK_PREPARE_JOB_SLOT_AD",
	} {
		got := ""
		if k := Find(name); k != nil {
			got = k.Name
		}
		if got != want {
			t.Errorf("%s is known as %q, want %q", name, got, want)
		}
	}
}

// TestArguments takes arguments apart in both forms.
// REQ-HOOK-112: a prepare hook may have arguments.
func TestArguments(t *testing.T) {
	for _, c := range []struct {
		text, want string // arguments in brackets, or what is wrong
	}{
		{"", ""},
		{"  a  b\tc ", "[a][b][c]"},
		{`a \"b\" it's`, `[a]["b"][it's]`},
		{`a "b"`, `a double quote among plain arguments is written \"`},
		{`"a 'b c' d"`, "[a][b c][d]"},
		{`"it''s '' 'it''s' x''"`, "[its][][it's][x]"},
		{`"say ""x"""`, `[say]["x"]`},
		{`"a`, "arguments have a double quote without its end"},
		{`"a 'b"`, "arguments have a single quote without its end"},
		{`"a" b`, `something stands behind the double quote that ends the arguments: " b"`},
	} {
		args, err := Arguments(c.text)
		got := ""
		for _, a := range args {
			got += "[" + a + "]"
		}
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
}

// FuzzParse reads anything. What comes of it is within bounds, the same each
// time, and what is set can be looked up.
func FuzzParse(f *testing.F) {
	f.Add("A = $(B:x)\nif defined A\nB @=x\n1\n@x\nendif\n")
	f.Add("A = $(A)$(A)\nSTARTD.A = $$(x) $(A)\\\n#\n x\ninclude : f\nelse\n")
	f.Add("A_HOOK_PREPARE_JOB_ARGS = \"a 'b'\"\nSTART = 1 > 2\nif 1 +\nelif !0\n")
	f.Add("if version >= 9.0\nuse POLICY : WANT_HOLD_IF(A, 7, x (y), $(B:z)) Always_Run_Jobs\nendif\n@use FEATURE:PartitionableSlot(,100%)\nA = $ENV(B:c)\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, problems := Parse("f", text)
		again, _ := Parse("f", text)
		if diff := cmp.Diff(s.All(), again.All()); diff != "" {
			t.Errorf("not the same twice:\n%s", diff)
		}
		for _, p := range problems {
			if p.Text == "" || strings.Contains(p.File, "\n") {
				t.Errorf("problem %+v", p)
			}
		}
		for _, name := range s.Names() {
			if !validName(name) || len(s.Get(name).Value) > maxValue {
				t.Errorf("knob %+v", s.Get(name))
			}
			if v, ok := s.Lookup(name); ok == s.Get(name).Default || ok && v != s.Get(name).Value {
				t.Errorf("%s: found %v, and %+v", name, ok, s.Get(name))
			}
		}
		if !slices.IsSortedFunc(s.All(), func(a, b Knob) int { return strings.Compare(key(a.Name), key(b.Name)) }) {
			t.Error("not in order")
		}
	})
}
