package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/test/harness"
)

// qconfFiles are the files that the command lines below name, each with a part
// of another replaced.
var qconfFiles = []struct{ name, of, old, new string }{
	{name: "pe", new: "pe_name iopqpe\nslots 5\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args NONE\nstop_proc_args NONE\n" +
		"allocation_rule $pe_slots\ncontrol_slaves FALSE\njob_is_first_task TRUE\nurgency_slots min\naccounting_summary FALSE\nqsort_args NONE\n"},
	{"pe-slots", "pe", "slots 5", "slots 7"},
	{"pe-missing", "pe", "slots 5\n", ""},
	{"pe-unknown", "pe", "slots 5\n", "slots 5\nbogus 1\n"},
	{"pe-other", "pe", "iopqpe", "iopqno"},
	{"pe-users", "pe", "user_lists NONE", "user_lists iopqno"},
	{name: "ckpt", new: "ckpt_name iopqck\ninterface userdefined\nckpt_command none\nmigr_command none\nrestart_command none\n" +
		"clean_command none\nckpt_dir /tmp\nsignal none\nwhen sx\n"},
	{"ckpt-when", "ckpt", "when sx", "when m"},
	{"ckpt-bad", "ckpt", "when sx", "when zz"},
	{name: "group", new: "group_name @iopq\nhostlist NONE\n"},
	{"group-host", "group", "NONE", "thishost"},
	{"group-cycle", "group", "NONE", "@iopq"},
	{"group-no", "group", "NONE", "@iopqno"},
	{"group-other", "group", "@iopq", "@iopqno"},
	{"group-name", "group", "@iopq", "iopqno"},
	{name: "project", new: "name iopqprj\noticket 0\nfshare 0\nacl NONE\nxacl NONE\n"},
	{"project-missing", "project", "oticket 0\n", ""},
	{"project-unknown", "project", "xacl", "bogus"},
	{"project-no", "project", "iopqprj", "template"},
	{"project-share", "project", "fshare 0", "fshare 5"},
	{"project-other", "project", "iopqprj", "iopqno"},
	{"project-users", "project", "acl NONE", "acl iopqno"},
	{name: "users", new: "name iopqu\ntype ACL\nfshare 0\noticket 0\nentries a,b\n"},
	{"users-other", "users", "iopqu", "iopqno"},
	{"queue-seq", "queue", "seq_no 0", "seq_no 7"},
	{"queue-bad", "queue", "seq_no 0", "seq_no x"},
	{"queue-missing", "queue", "seq_no 0\n", ""},
	{"queue-unknown", "queue", "seq_no 0\n", "seq_no 0\nbogus 3\n"},
	{"queue-other", "queue", "iopq.q", "iopqno.q"},
	{"queue-name", "queue", "iopq.q", "iop:q"},
	{"queue-users", "queue", "\nuser_lists NONE", "\nuser_lists iopqno"},
	{"queue-pe", "queue", "pe_list make", "pe_list iopqno"},
	{"queue-ckpt", "queue", "ckpt_list NONE", "ckpt_list iopqno"},
	{name: "attributes", new: "seq_no 4\npriority 3\n"},
	{name: "attributes-bad", new: "bogus 3\n"},
	{"complex-new", "complex", "# >#<", "iopqr iopqr INT <= YES YES 0 0\n# >#<"},
	{"complex-changed", "complex-new", "YES YES 0 0\n# >#<", "YES NO 0 0\n# >#<"},
	{"complex-bad", "complex-new", "iopqr INT", "iopqr STRING"},
	{"complex-taken", "complex-new", "iopqr INT", "slots INT"},
	{"sched-bad", "sched", "schedule_interval ", "schedule_interval x"},
	{"sched-missing", "sched", "maxujobs ", "# "},
}

// qconfLines are command lines that both must answer the same: what they print,
// where, and the exit status. With an edit $EDITOR is a sed script. What is
// meant to differ says why; it must differ.
var qconfLines = []struct{ args, edit, differs string }{
	{args: "-Ap F/pe"},
	{args: "-Ap F/pe"},
	{args: "-Ap F/nofile"},
	{args: "-Mp F/pe"},
	{args: "-Mp F/pe-slots"},
	{args: "-Mp F/pe-missing"},
	{args: "-Mp F/pe-unknown"},
	{args: "-Mp F/pe-other"},
	{args: "-Mp F/pe-users"},
	{args: "-sp iopqpe"},
	{args: "-mp iopqpe"},
	{args: "-mp iopqpe", edit: "s/^slots.*/slots 3/"},
	{args: "-mp iopqno"},
	{args: "-mp iopqpe", edit: "$ a bogus 1", differs: "what was written is kept, and the file's name is its own"},
	{args: "-ap iopqpe2", edit: "s/^slots.*/slots 3/"},
	{args: "-dp iopqpe2"},
	{args: "-dp iopqpe2"},
	{args: "-mattr pe slots 9 iopqpe"},
	{args: "-mattr pe slots 9 iopqno"},
	{args: "-mattr pe slots x iopqpe", differs: "Grid Engine names a temporary file of its own, ours the attribute"},
	{args: "-mattr pe bogus 9 iopqpe", differs: "Grid Engine names a temporary file of its own"},
	{args: "-mattr bogus slots 9 iopqpe"},
	{args: "-mattr pe pe_name x iopqpe"},
	{args: "-mattr pe slots 9"},
	{args: "-rattr pe slots 10 iopqpe"},
	{args: "-rattr pe user_lists iopqno iopqpe"},
	{args: "-rattr pe user_lists NONE iopqpe"},
	{args: "-dattr pe slots 10 iopqpe", differs: "Grid Engine says that it did something, and did not"},

	{args: "-Aq F/queue"},
	{args: "-Aq F/queue"},
	{args: "-Mq F/queue"},
	{args: "-Mq F/queue-seq"},
	{args: "-Mq F/queue-bad", differs: "ours says the line"},
	{args: "-Mq F/queue-missing"},
	{args: "-Mq F/queue-unknown"},
	{args: "-Mq F/queue-other"},
	{args: "-Mq F/queue-users"},
	{args: "-Mq F/queue-pe"},
	{args: "-Mq F/queue-ckpt"},
	{args: "-Aq F/queue-name"},
	{args: "-aq iopq.q"},
	{args: "-aq", differs: "the queue that a new one begins with has no parallel environments that are not there"},
	{args: "-mq iopq.q"},
	{args: "-mq iopq.q", edit: "s/^seq_no.*/seq_no 3/"},
	{args: "-mq iopqno.q"},
	{args: "-mq iopq.q@thishost"},
	{args: "-aattr queue pe_list iopqpe iopq.q"},
	{args: "-dp iopqpe"},
	{args: "-aattr queue pe_list iopqno iopq.q"},
	{args: "-dattr queue pe_list iopqpe iopq.q"},
	{args: "-dattr queue pe_list iopqpe iopq.q"},
	{args: "-aattr queue pe_list iopqpe iopqno.q"},
	{args: "-mattr queue seq_no 3 iopq.q iopqno.q"},
	{args: "-mattr queue slots 3 iopq.q"},
	{args: "-mattr queue slots 4 iopq.q@thishost"},
	{args: "-rattr queue slots 5,[thishost=6] iopq.q"},
	{args: "-mattr queue slots 7 iopq.q@@iopqno"},
	{args: "-sq iopq.q"},
	{args: "-purge queue slots iopq.q@thishost"},
	{args: "-purge queue slots iopq.q@thishost"},
	{args: "-purge queue slots iopq.q"},
	{args: "-purge queue slots iopqno.q@thishost"},
	{args: "-purge exechost slots thishost"},
	{args: "-aattr queue complex_values mem_free=3G,num_proc=4 iopq.q"},
	{args: "-aattr queue complex_values mem_free=4G iopq.q"},
	{args: "-mattr queue complex_values swap_free=4G iopq.q"},
	{args: "-dattr queue complex_values swap_free=4G iopq.q"},
	{args: "-rattr queue complex_values mem_free=1G iopq.q"},
	{args: "-mattr queue complex_values NONE iopq.q"},
	{args: "-aattr queue complex_values iopqno=4 iopq.q"},
	{args: "-mattr queue qname x iopq.q"},
	{args: "-Mattr queue F/attributes iopq.q"},
	{args: "-Mattr queue F/attributes-bad iopq.q", differs: "Grid Engine takes the file's name for an option"},
	{args: "-sq iopq*"},
	{args: "-sq iopq*@thishost"},
	{args: "-aattr queue hostlist thishost iopq.q"},
	{args: "-sq iopq*@thishost"},
	{args: "-sq iopq*@*"},
	{args: "-sq iopq.q@thishost"},
	{args: "-sq iopq.q,iopq.q@thishost"},
	{args: "-sq iopq.q iopq.q@thishost"},
	{args: "-sq iopqno.q,iopq.q", differs: "a name that is not there is a failure, also beside others"},
	{args: "-sq @thishost"},
	{args: "-sq iopq.q@@iopqno"},
	{args: "-sq iopq.q@iopqnohost"},
	{args: "-dattr queue hostlist thishost iopq.q"},
	{args: "-sq *@iopqnohost"},
	{args: "-sobjl queue seq_no 4"},
	{args: "-sobjl queue seq_no 99"},
	{args: "-sobjl iopqno seq_no 99", differs: "Grid Engine does not tell that it knows no such objects"},

	{args: "-Ackpt F/ckpt"},
	{args: "-Ackpt F/ckpt"},
	{args: "-Mckpt F/ckpt-when"},
	{args: "-Mckpt F/ckpt-bad", differs: "ours says the line"},
	{args: "-mckpt iopqck"},
	{args: "-mckpt iopqno"},
	{args: "-mattr ckpt ckpt_dir /var iopqck"},
	{args: "-aattr queue ckpt_list iopqck iopq.q"},
	{args: "-dckpt iopqck"},
	{args: "-dattr queue ckpt_list iopqck iopq.q"},
	{args: "-dckpt iopqck"},
	{args: "-dckpt iopqck"},

	{args: "-Ahgrp F/group"},
	{args: "-Ahgrp F/group"},
	{args: "-Mhgrp F/group"},
	{args: "-Mhgrp F/group-host"},
	{args: "-Mhgrp F/group-cycle"},
	{args: "-Mhgrp F/group-no"},
	{args: "-Mhgrp F/group-other"},
	{args: "-Ahgrp F/group-name"},
	{args: "-mhgrp @iopq"},
	{args: "-mhgrp @iopqno"},
	{args: "-ahgrp @iopq"},
	{args: "-ahgrp @iopq2"},
	{args: "-aattr hostgroup hostlist thishost @iopq"},
	{args: "-aattr hostgroup hostlist @iopq @iopq2"},
	{args: "-shgrp_tree @iopq2"},
	{args: "-shgrp_resolved @iopq2"},
	{args: "-shgrp_tree @iopqno"},
	{args: "-dhgrp @iopq"},
	{args: "-dhgrp @iopq2"},
	{args: "-aattr queue hostlist @iopq iopq.q"},
	{args: "-dhgrp @iopq"},
	{args: "-dattr queue hostlist @iopq iopq.q"},
	{args: "-dhgrp @iopq"},
	{args: "-dhgrp @iopq"},

	{args: "-Au F/users"},
	{args: "-Au F/users"},
	{args: "-Mu F/users"},
	{args: "-au a iopqu"},
	{args: "-au c,d iopqu,iopqu2"},
	{args: "-du a iopqu"},
	{args: "-du a iopqu"},
	{args: "-du a iopqno"},
	{args: "-su iopqu"},
	{args: "-mu iopqu"},
	{args: "-mu iopqu", edit: "s/^entries.*/entries z/"},
	{args: "-mattr queue user_lists iopqu iopq.q"},
	{args: "-dul iopqu,iopqu2"},
	{args: "-rattr queue user_lists NONE iopq.q"},
	{args: "-rattr exechost user_lists iopqu thishost"},
	{args: "-dul iopqu"},
	{args: "-rattr exechost user_lists NONE thishost"},
	{args: "-dul iopqu,iopqno"},

	{args: "-am iopqman"},
	{args: "-am iopqman"},
	{args: "-am iopqman,iopqman2"},
	{args: "-dm iopqman,iopqman2"},
	{args: "-dm iopqman"},
	{args: "-dm root"},
	{args: "-ao iopqop"},
	{args: "-ao iopqop"},
	{args: "-do iopqop"},
	{args: "-do iopqop"},
	{args: "-do root"},

	{args: "-mc"},
	{args: "-Mc F/complex"},
	{args: "-Mc F/complex-new"},
	{args: "-Mc F/complex-changed"},
	{args: "-Mc F/complex-bad", differs: "Grid Engine tells two things of one line"},
	{args: "-Mc F/complex-taken"},
	{args: "-mattr exechost complex_values iopqr=3 thishost"},
	{args: "-Mc F/complex"},
	{args: "-dattr exechost complex_values iopqr thishost"},
	{args: "-aattr exechost complex_values iopqno=3 thishost", differs: "ours says what it says of queues"},
	{args: "-mattr exechost slots 3 thishost", differs: "Grid Engine names a temporary file of its own"},
	{args: "-Mc F/complex"},

	{args: "-me thishost"},
	{args: "-me iopqnohost"},
	{args: "-msconf"},
	{args: "-Msconf F/sched-bad", differs: "ours says the line"},
	{args: "-Msconf F/sched-missing"},
	{args: "-mconf"},
	{args: "-mconf global"},
	{args: "-mconf iopqnohost", differs: "there are no configurations of hosts, and no names to resolve"},
	{args: "-de global"},
	{args: "-sconf global", differs: "each has a configuration of its own"},
	{args: "-sconf thishost"},
	{args: "-sconf iopqnohost"},
	{args: "-sconf glob*"},
	{args: "-se thishost", differs: "what is measured changes"},
	{args: "-se global"},
	{args: "-se iopqnohost"},
	{args: "-sm", differs: "the installation of Grid Engine has made sgeadmin one"},
	{args: "-so"},
	{args: "-ah thishost"},
	{args: "-as thishost"},
	{args: "-ah iopqnohost", differs: "no host can be added, known or not"},
	{args: "-sh"},
	{args: "-ss"},
	{args: "-sss"},
	{args: "-sconfl"},
	{args: "-scall"},
	{args: "-scal iopqno"},
	{args: "-dcal iopqno"},
	{args: "-sprjl"},
	{args: "-dprj iopqno"},
	{args: "-sprj iopqno"},
	{args: "-Aprj F/project-users"},
	{args: "-Aprj F/project"},
	{args: "-Aprj F/project"},
	{args: "-Aprj F/project-missing", differs: "a new object may leave parameters out, and this one is there"},
	{args: "-Aprj F/project-unknown"},
	{args: "-Aprj F/project-no"},
	{args: "-Aprj F/nofile"},
	{args: "-sprjl"},
	{args: "-sprj iopqprj"},
	{args: "-mprj iopqprj"},
	{args: "-Mprj F/project-share"},
	{args: "-Mprj F/project-other"},
	{args: "-aprj iopqprj2", edit: "s/^name.*/name iopqprj2/"},
	{args: "-mattr project fshare 3 iopqprj"},
	{args: "-Au F/users"},
	{args: "-aattr project acl iopqu iopqprj"},
	{args: "-dul iopqu"},
	{args: "-rattr project acl NONE iopqprj"},
	{args: "-dul iopqu"},
	{args: "-mattr queue projects iopqno iopq.q"},
	{args: "-mattr queue projects iopqprj iopq.q"},
	{args: "-dprj iopqprj"},
	{args: "-rattr queue projects NONE iopq.q"},
	{args: "-mattr queue xprojects iopqprj iopq.q"},
	{args: "-dprj iopqprj"},
	{args: "-rattr queue xprojects NONE iopq.q"},
	{args: "-rattr exechost projects iopqprj thishost"},
	{args: "-dprj iopqprj"},
	{args: "-rattr exechost projects NONE thishost"},
	{args: "-dprj iopqprj,iopqprj2"},
	{args: "-sprjl"},
	{args: "-srqsl"},
	{args: "-srqs"},
	{args: "-drqs iopqno"},
	{args: "-sst"},
	{args: "-sstree"},
	{args: "-dstree"},
	{args: "-suser iopqno"},
	{args: "-duser iopqno"},
	{args: "-kec 99", differs: "nobody subscribes to events"},
	{args: "-ke iopqnohost", differs: "execd is stopped by what started it"},
	{args: "-ap", differs: "the options are not all printed when one is wrong"},

	{args: "-dq iopq.q,iopqno.q", differs: "Grid Engine takes the list for a name, against its manual"},
	{args: "-dq iopq.q", differs: "ours removed it in the line before"},
	{args: "-dq iopqno.q"},
	{args: "-dp iopqpe"},
}

// testQconf runs the same command lines with the qconf of a real Grid Engine and
// with ours.
func testQconf(t *testing.T) {
	dir, err := os.MkdirTemp(base, "qconf") //nolint:usetesting // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	// As in Grid Engine there is a queue of the administrator's, which does not
	// name parallel environments of itself.
	queues := filepath.Join(api.DevPlaces(filepath.Join(dir, "pd")).Config, "queues")
	if err := os.MkdirAll(queues, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(queues, "all.q"), []byte("qname all.q\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := harness.Start(harness.Options{Bin: bin, Dir: filepath.Join(dir, "pd")})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Kill()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	theirs := &qconfSide{dir: filepath.Join(dir, "theirs"), host: "gehost", run: func(args ...string) *exec.Cmd {
		return ge.Command(append([]string{"run", "env"}, args...)...)
	}}
	ours := &qconfSide{dir: filepath.Join(dir, "ours"), host: host, run: func(args ...string) *exec.Cmd {
		return exec.Command("env", append([]string{"PADDOCK_DIR=" + filepath.Join(dir, "pd"), "PATH=" + bin + ":" + os.Getenv("PATH")}, args...)...)
	}}
	for _, side := range []*qconfSide{theirs, ours} {
		side.files(t)
	}
	clean := func() {
		for _, args := range []string{
			"-dq iopq.q", "-rattr exechost projects NONE gehost", "-dprj iopqprj", "-dprj iopqprj2", "-dp iopqpe", "-dp iopqpe2", "-dckpt iopqck", "-dhgrp @iopq2", "-dhgrp @iopq", "-rattr exechost user_lists NONE gehost",
			"-dattr exechost complex_values iopqr gehost", "-dul iopqu", "-dul iopqu2", "-dm iopqman,iopqman2", "-do iopqop", "-Mc F/complex",
		} {
			theirs.qconf(t, args, "")
		}
	}
	clean() // what a run that was killed has left
	defer clean()
	for _, line := range qconfLines {
		want, got := theirs.qconf(t, line.args, line.edit), ours.qconf(t, line.args, line.edit)
		switch diff := gocmp.Diff(want, got); {
		case line.differs == "" && diff != "":
			t.Errorf("qconf %s (-Grid Engine +ours):\n%s", line.args, diff)
		case line.differs != "" && diff == "":
			t.Errorf("qconf %s does not differ, although %s", line.args, line.differs)
		}
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}

// qconfSide is one of the two.
type qconfSide struct {
	dir, host string
	run       func(args ...string) *exec.Cmd
}

// files writes the files of the command lines, some made of what qconf shows.
func (s *qconfSide) files(t *testing.T) {
	t.Helper()
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	shown := func(args string) string {
		out := s.qconf(t, args, "")
		if !strings.HasSuffix(out, "\nexit status 0") {
			t.Fatalf("qconf %s: %s", args, out)
		}
		return strings.TrimSuffix(strings.ReplaceAll(out, "thishost", s.host), "exit status 0")
	}
	// Without what a run that was killed has left.
	texts["complex"] = regexp.MustCompile(`(?m)^iopq.*\n`).ReplaceAllString(shown("-sc"), "")
	texts["sched"] = regexp.MustCompile(`(?m)^(\S+) +`).ReplaceAllString(shown("-ssconf"), "$1 ")
	queue := regexp.MustCompile(`(?m)^(\S+) +`).ReplaceAllString(shown("-sq all.q"), "$1 ")
	for name, value := range map[string]string{
		"qname": "iopq.q", "hostlist": "NONE", "seq_no": "0", "pe_list": "make", "ckpt_list": "NONE", "slots": "2", "user_lists": "NONE",
		"complex_values": "NONE", "shell_start_mode": "posix_compliant", "tmpdir": "/tmp", "load_thresholds": "NONE", "rerun": "FALSE",
		"processors": "UNDEFINED", "notify": "00:00:60", "priority": "0",
	} {
		queue = regexp.MustCompile(`(?m)^`+name+` .*$`).ReplaceAllString(queue, name+" "+value)
	}
	texts["queue"] = queue
	for _, f := range qconfFiles {
		texts[f.name] = f.new
		if f.of != "" {
			texts[f.name] = strings.Replace(texts[f.of], f.old, strings.ReplaceAll(f.new, "thishost", s.host), 1)
			if texts[f.name] == texts[f.of] {
				t.Fatalf("file %s is as %s", f.name, f.of)
			}
		}
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// whereWritten are parts of messages that are another in each run.
var whereWritten = regexp.MustCompile(`": line \d+`)

// qconf runs a command line and returns what came of it, with one name for the
// host and for the directory of the files.
func (s *qconfSide) qconf(t *testing.T, args, edit string) string {
	t.Helper()
	editor := "true"
	if edit != "" {
		editor = filepath.Join(s.dir, "editor")
		if err := harness.WriteExecutable(editor, "#!/bin/sh\nexec sed -i '"+edit+"' \"$1\"\n"); err != nil {
			t.Fatal(err)
		}
	}
	words := strings.Fields(strings.ReplaceAll(args, "thishost", s.host))
	for i := range words {
		if name, ok := strings.CutPrefix(words[i], "F/"); ok {
			words[i] = filepath.Join(s.dir, name)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	cmd := s.run(slices.Concat([]string{"EDITOR=" + editor, "TMPDIR=" + s.dir, "SGE_SINGLE_LINE=1", "qconf"}, words)...)
	var out, errout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errout
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	status := 0
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		status = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if errout.Len() > 0 {
		text += "standard error:\n" + errout.String()
	}
	text = strings.ReplaceAll(text, s.dir, "F")
	text = regexp.MustCompile(`\b`+regexp.QuoteMeta(s.host)+`\b`).ReplaceAllString(text, "thishost")
	text = whereWritten.ReplaceAllString(text, `"`)
	// How wide the columns are is compared elsewhere; Grid Engine has blanks behind some.
	text = regexp.MustCompile(` +`).ReplaceAllString(text, " ")
	text = strings.ReplaceAll(text, " \n", "\n")
	return fmt.Sprintf("%sexit status %d", strings.TrimRight(text, "\n")+"\n", status)
}
