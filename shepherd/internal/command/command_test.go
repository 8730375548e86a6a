package command

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/spool"
)

// config returns a config of lines, each key=value.
func config(t testing.TB, lines ...string) *spool.Config {
	t.Helper()
	c, err := spool.ParseConfig([]byte(strings.Join(append(lines, ""), "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// job is a config with every variable.
var job = []string{
	"sge_root=/opt/sge", "sge_cell=default",
	"host=node7", "ja_task_id=0", "job_owner=alice", "job_id=42", "job_name=pack", "queue=all.q",
	"processors=", "stdin_path=/dev/null", "stdout_path=/home/alice", "stderr_path=/home/alice/my err",
	"merge_stderr=1", `fs_stdin_host=""`, "fs_stdin_path=", "fs_stdin_tmp_path=/tmp/i", "fs_stdin_file_staging=0",
	`fs_stdout_host=""`, "fs_stdout_path=", "fs_stdout_tmp_path=/tmp/o", "fs_stdout_file_staging=0",
	`fs_stderr_host=""`, "fs_stderr_path=", "fs_stderr_tmp_path=/tmp/e", "fs_stderr_file_staging=0",
	"pe=smp", "pe_hostfile=/spool/pe_hostfile", "pe_slots=4", "ckpt_dir=/ckpt", "ckpt_signal=USR1",
}

const jobPID = "4711"

func TestScopes(t *testing.T) {
	const procedure, pe, control, checkpoint = 1 << ForProcedure, 1 << ForPE, 1 << ForControl, 1 << ForCheckpoint
	c := config(t, append(slices.Clone(job), "account=sge")...)
	for name, scopes := range map[string]int{
		"host": 15, "ja_task_id": 15, "job_owner": 15, "job_id": 15, "job_name": 15, "queue": 15,
		"sge_root": 15, "sge_cell": 15,
		"processors": procedure | pe, "stdin_path": procedure | pe, "stdout_path": procedure | pe,
		"stderr_path": procedure | pe, "merge_stderr": procedure | pe,
		"fs_stdin_host": procedure | pe, "fs_stdin_path": procedure | pe,
		"fs_stdin_tmp_path": procedure | pe, "fs_stdin_file_staging": procedure | pe,
		"fs_stdout_host": procedure | pe, "fs_stdout_path": procedure | pe,
		"fs_stdout_tmp_path": procedure | pe, "fs_stdout_file_staging": procedure | pe,
		"fs_stderr_host": procedure | pe, "fs_stderr_path": procedure | pe,
		"fs_stderr_tmp_path": procedure | pe, "fs_stderr_file_staging": procedure | pe,
		"pe": pe, "pe_hostfile": pe, "pe_slots": pe,
		"job_pid":  control | checkpoint,
		"ckpt_dir": checkpoint, "ckpt_signal": checkpoint,
		"account": 0, "job": 0, "JOB_ID": 0, "1": 0,
	} {
		for _, scope := range []Scope{ForProcedure, ForPE, ForControl, ForCheckpoint} {
			_, err := Expand("/x $"+name, scope, c, jobPID)
			if (err == nil) != (scopes&(1<<scope) != 0) {
				t.Errorf("$%s in scope %d: %v", name, scope, err)
			}
			if err != nil && !strings.Contains(err.Error(), `"`+name+`"`) {
				t.Errorf("$%s in scope %d: %v; want its name", name, scope, err)
			}
		}
	}
}

func TestExpand(t *testing.T) {
	c := config(t, job...)
	for _, test := range []struct {
		text  string
		scope Scope
		want  string
		err   string
	}{
		{"", ForProcedure, "", ""},
		{"/x a  b\t", ForProcedure, "/x a  b\t", ""},
		{"/x $job_id$queue.$host-$job_name", ForProcedure, "/x 42all.q.node7-pack", ""},
		{"$sge_root/$sge_cell/x", ForProcedure, "/opt/sge/default/x", ""},
		{"/x <$processors> $job_id", ForProcedure, "/x <> 42", ""},
		{"/x $stderr_path", ForProcedure, "/x /home/alice/my err", ""},
		{"/x $pe_slots $pe_hostfile $pe", ForPE, "/x 4 /spool/pe_hostfile smp", ""},
		{"/x $job_pid", ForControl, "/x 4711", ""},
		{"/x $ckpt_dir/$job_pid $ckpt_signal", ForCheckpoint, "/x /ckpt/4711 USR1", ""},
		{"/x $", ForProcedure, "", `a "$" without the name of a variable behind it, but ""`},
		{"/x $$", ForControl, "", `a "$" without the name of a variable behind it, but "$"`},
		{"/x ${host}", ForControl, "", `a "$" without the name of a variable behind it, but "{host}"`},
		{"/x $(id)", ForControl, "", `a "$" without the name of a variable behind it, but "(id)"`},
		{"/x $hosts", ForProcedure, "", `unknown variable "hosts"`},
		{"/x $job_pid", ForPE, "", `unknown variable "job_pid"`},
		{"/x\n$host", ForControl, "", "it has a newline or NUL byte"},
		{"/x\x00", ForProcedure, "", "it has a newline or NUL byte"},
	} {
		got, err := Expand(test.text, test.scope, c, jobPID)
		if got != test.want || text(err) != test.err {
			t.Errorf("Expand(%q, %d) = %q, %v; want %q, %s", test.text, test.scope, got, err, test.want, test.err)
		}
	}
}

// text returns the text of an error, "" for none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestExpandMissing(t *testing.T) {
	c := config(t, "job_id=42", "job_pid=1") // such a line is nobody's
	for name, want := range map[string]string{
		"job_name": `can't get configuration value for "job_name"`,
		"job_pid":  "cannot replace $job_pid: it has no value",
		"sge_root": "cannot replace $sge_root: it has no value",
		"sge_cell": "cannot replace $sge_cell: it has no value",
	} {
		if got, err := Expand("/x $"+name, ForControl, c, ""); text(err) != want {
			t.Errorf("Expand($%s) = %q, %v; want %s", name, got, err, want)
		}
	}
	_, err := Expand("/x $job_name", ForControl, c, "")
	if _, ok := errors.AsType[*spool.MissingError](err); !ok {
		t.Errorf("Expand($job_name) = %v; want a *spool.MissingError", err)
	}
}

func TestExpandLimit(t *testing.T) {
	name := strings.Repeat("n", 1000)
	c := config(t, "job_name="+name, "job_owner="+strings.Repeat("'", 4000))
	fill := strings.Repeat(" ", MaxLength-9000)
	if got, err := Expand(strings.Repeat("$job_name", 9)+fill, ForControl, c, ""); err != nil || len(got) != MaxLength {
		t.Errorf("Expand = %d bytes, %v; want %d", len(got), err, MaxLength)
	}
	for _, text := range []string{
		strings.Repeat("$job_name", 9) + fill + ".",
		strings.Repeat("$job_name", 11),
		strings.Repeat("x", MaxLength+1),
		"$job_owner", // 16,002 bytes quoted
	} {
		if got, err := Expand(text, ForControl, c, ""); err == nil || got != "" {
			t.Errorf("Expand(%.20q...) = %d bytes, %v; want an error", text, len(got), err)
		}
	}
}

// TestTrusted sees that a job cannot move what runs as root: it can write lines
// into the config of Grid Engine 8.1.9, but not the first ones.
func TestTrusted(t *testing.T) {
	for _, test := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"first lines", []string{"sge_root=/ocs", "sge_cell=c", "job_id=1"}, "/ocs/c/x"},
		{"other order", []string{"sge_cell=c", "sge_root=/ocs", "job_id=1"}, "/ocs/c/x"},
		{"forged", []string{"job_id=1", "job_arg1=x", "sge_root=/home/eve", "sge_cell=e"}, ""},
		{"forged one", []string{"sge_root=/ocs", "job_arg1=x", "sge_cell=../e"}, ""},
		{"forged, nothing else", []string{"job_arg1=x", "sge_root=/home/eve", "sge_cell=e"}, ""},
		{"of our execd", []string{"paddock_format=1", "job_id=1", "sge_root=/ours", "sge_cell=c"}, "/ours/c/x"},
	} {
		if got, err := Expand("$sge_root/$sge_cell/x", ForProcedure, config(t, test.lines...), ""); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q, %v; want %q", test.name, got, err, test.want)
		}
	}
}

// nasty are values that a shell would not take as they are.
var nasty = []string{
	"pack", "a b", " ", "  a\t b ", "'", "''", `"`, `\`, `\\`, `'\''`, `"'"`, "$", "$HOME", "${HOME}", "$(echo x)", "`echo x`",
	"; echo x", "& echo x", "| cat", "> /dev/null", "#", "a#b", "*", "?", "[a]", "~", "~root", "!", "!!", "{a,b}", "(", ")", "\r", "\x1b[0m",
	`'; echo x; '`, `"; echo x; "`, `\'; echo x; \'`, `$'a'`, `a\`, "-n", "a=b", "%s", "^", "\x80\x81\x82\x88\xff", "\u00e4\u4e2d",
	"",
}

// shells are /bin/sh and what it is elsewhere.
func shells(t *testing.T) [][]string {
	t.Helper()
	list := [][]string{{"/bin/sh"}}
	if bash, err := exec.LookPath("bash"); err == nil {
		list = append(list, []string{bash, "--posix"})
	}
	return list
}

// TestShell gives commands with such values to real shells, which must print
// them back.
func TestShell(t *testing.T) {
	values := slices.Clone(nasty)
	var all strings.Builder
	for b := 1; b < 256; b++ {
		if b != '\n' {
			all.WriteByte(byte(b))
		}
	}
	values = append(values, all.String())
	for _, test := range []struct {
		text   string
		prefix string // of the one word that must be printed, V for the value
	}{
		{"$job_name", "V"},
		{"'$job_name'", "V"},
		{`"$job_name"`, "V"},
		{"a$job_name.b", "aV.b"},
		{"'a'$job_name'b'", "aVb"},
		{`"a'$job_name'b"`, "a'V'b"},
		{`'a"$job_name"b'`, `a"V"b`},
		{`\$job_name`, "V"},
		{`\\$job_name`, `\V`},
		{`\\\$job_name`, `\V`},
		{`"\$job_name"`, `\V`},
		{`"\\$job_name"`, `\V`},
		{`'\$job_name'`, `\V`},
		{`\'$job_name\'`, `'V'`},
		{`\"$job_name\"`, `"V"`},
		{`"\"$job_name\""`, `"V"`},
		{`"'"$job_name"'"`, `'V'`},
		{`$job_name'$job_name'"$job_name"`, `VVV`},
		{"`echo x`$job_name", "xV"},
		{"\"`echo x`$job_name\"", "xV"},
		{"`echo x`'$job_name'", "xV"},
		{"\"'\"$job_name # it's $job_name", "'V"},
	} {
		var script strings.Builder
		var want []string
		for _, value := range values {
			c, cmd := config(t, "job_name="+value), "printf '<%s>\\n' "+test.text
			got, err := Expand(cmd, ForControl, c, "")
			if err != nil {
				t.Errorf("Expand(%q) with %q: %v", cmd, value, err)
				continue
			}
			script.WriteString(got + "\n")
			want = append(want, "<"+strings.ReplaceAll(test.prefix, "V", value)+">")
		}
		for _, shell := range shells(t) {
			cmd := exec.CommandContext(t.Context(), shell[0], append(shell[1:], "-c", script.String())...)
			cmd.Env = []string{"LC_ALL=C", "HOME=/home/wrong"}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s with %s: %v\n%s", shell[0], test.text, err, out)
			}
			if diff := cmp.Diff(want, strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")); diff != "" {
				t.Errorf("%s with %s (-want +got):\n%s", shell[0], test.text, diff)
			}
		}
	}
}

// TestShellBackquotes sees that within backquotes, and behind those that shells
// end in different places, only harmless values are taken.
func TestShellBackquotes(t *testing.T) {
	for _, text := range []string{
		"/x `cat $job_name`", "/x \"`cat $job_name`\"", "/x `cat '$job_name'`", "/x `cat \\$job_name`",
		"/x `echo '`' $job_name`", "/x `echo \\`` $job_name", "/x `echo # ` '$job_name'",
	} {
		for _, value := range nasty {
			got, err := Expand(text, ForCheckpoint, config(t, "job_name="+value), "")
			if harmless(value) != (err == nil) {
				t.Errorf("Expand(%q) with %q = %q, %v", text, value, got, err)
			}
		}
	}
	got, err := Expand("/x `cat $ckpt_dir/pid` '$job_name'", ForCheckpoint, config(t, "ckpt_dir=/ckpt", "job_name=a b"), "")
	if want := "/x `cat /ckpt/pid` 'a b'"; got != want || err != nil {
		t.Errorf("Expand = %q, %v; want %q", got, err, want)
	}
}

// TestStaged sees what the variables of streams are, as Grid Engine's shepherd
// has them: those of config count only for the host.
func TestStaged(t *testing.T) {
	const text = "/x $fs_stdin_path $fs_stdin_tmp_path $stdin_path $fs_stdout_host $fs_stdout_path $fs_stdout_tmp_path $stdout_path " +
		"$fs_stderr_path $fs_stderr_tmp_path $stderr_path $fs_stderr_file_staging"
	for _, tt := range []struct {
		set  []string
		want string
	}{
		{nil, `/x "" "" /in "" "" "" /o/out "" "" /o/err 0`},
		{
			[]string{"fs_stdin_file_staging=1", "fs_stdout_file_staging=1", "fs_stderr_file_staging=1"},
			"/x /in /tmp/j/in /in far /o/out /tmp/j/out /tmp/j/out /o/err /tmp/j/err /tmp/j/err 1",
		},
		{
			[]string{"fs_stdout_file_staging=1", "fs_stderr_file_staging=1", "merge_stderr=1"},
			`/x "" "" /in far /o/out /tmp/j/out /tmp/j/out "" "" /o/err 1`,
		},
	} {
		c := config(t, "tmpdir=/tmp/j", "merge_stderr=0", "stdin_path=/in", "stdout_path=/o/out", "stderr_path=/o/err",
			"fs_stdout_host=far", "fs_stdin_file_staging=0", "fs_stdout_file_staging=0", "fs_stderr_file_staging=0")
		for _, kv := range tt.set {
			k, v, _ := strings.Cut(kv, "=")
			if err := c.Set(k, v); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := Expand(text, ForProcedure, c, ""); err != nil || got != tt.want {
			t.Errorf("%q: %s, %v; want %s", tt.set, got, err, tt.want)
		}
	}
}
