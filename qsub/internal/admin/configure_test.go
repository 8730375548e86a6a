package admin

import (
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

// TestQconfOptions holds what qconf does against the table of options.
func TestQconfOptions(t *testing.T) {
	done := []string{"-help", "-version", "-json", "-dry", "-reload", "-sobjl", "-sh", "-ss", "-sss", "-ah", "-as"}
	for name := range shows {
		done = append(done, name)
	}
	for name := range absent {
		done = append(done, name)
	}
	for name := range changesOf() {
		done = append(done, name)
	}
	var known []string
	for _, o := range option.Of(option.Qconf) {
		if !o.Refused {
			known = append(known, o.Name)
		} else if o.Why == "" {
			t.Errorf("%s is refused without a reason", o.Name)
		}
	}
	slices.Sort(done)
	slices.Sort(known)
	if diff := cmp.Diff(known, done); diff != "" {
		t.Errorf("(-table +qconf):\n%s", diff)
	}
	// What Grid Engine 8.1.9 lists, but for what its help has of other commands.
	for name := range strings.FieldsSeq(`-aattr -Aattr -acal -Acal -ackpt -Ackpt -aconf -Aconf -ae -Ae -ah -ahgrp -Ahgrp -arqs -Arqs -am -ao -ap
		-Ap -aprj -Aprj -aq -Aq -as -astnode -astree -Astree -at -au -Au -auser -Auser -bonsai -clearusage -cq -dattr -Dattr -dcal -dckpt
		-dconf -de -dh -dhgrp -drqs -dm -do -dp -dprj -dq -ds -dstnode -dstree -du -dul -duser -help -ke -kej -km -ks -kec -kt -mattr
		-Mattr -mc -Mc -mcal -Mcal -mckpt -Mckpt -mconf -Mconf -me -Me -mhgrp -Mhgrp -mrqs -Mrqs -mp -Mp -mprj -Mprj -mq -Mq -msconf
		-Msconf -mstnode -mstree -Mstree -mu -Mu -muser -Muser -purge -rattr -Rattr -rsstnode -sc -scal -scall -sckpt -sckptl -sconf
		-sconfl -sds -se -secl -sel -sep -sh -shgrp -shgrp_tree -shgrp_resolved -shgrpl -sm -so -sobjl -sp -spl -sprj -sprjl -sq -sql
		-srqs -srqsl -ss -ssconf -sss -sstnode -sst -sstree -su -sul -suser -suserl -tsm`) {
		if _, ok := option.Lookup(option.Qconf, name); !ok {
			t.Errorf("qconf has no option %s", name)
		}
	}
}

func TestQconfChanges(t *testing.T) {
	e := qtest.NewExecd(t)
	qtest.Write(t, "f", "pe_name x\n")
	qtest.Write(t, "global", "min_uid 1\n")
	requests := qtest.Asked[api.ConfigureRequest](t, e, api.VerbConfigure, api.ConfigureReply{Lines: []api.Line{{Text: "done\x1b"}}})
	type list = []api.ConfigureRequest
	for _, test := range []struct {
		args   string
		stdout bool // that is where it is told
		want   list
	}{
		{"-Ap f", false, list{{Action: "add", Kind: "pe", Text: "pe_name x\n"}}},
		{"-Mp f -dry", false, list{{Action: "modify", Kind: "pe", Text: "pe_name x\n", Dry: true}}},
		{"-Aq -", false, list{{Action: "add", Kind: "queue", Text: "from input"}}},
		{"-dq a,b c", false, list{{Action: "remove", Kind: "queue", Name: "a"}, {Action: "remove", Kind: "queue", Name: "b"}, {Action: "remove", Kind: "queue", Name: "c"}}},
		{"-Mconf global", false, list{{Action: "modify", Kind: "conf", Name: "global", Text: "min_uid 1\n"}}},
		{"-au u,v l,m", false, list{{Action: "admit", Kind: "userlist", Name: "l", Text: "u\nv"}, {Action: "admit", Kind: "userlist", Name: "m", Text: "u\nv"}}},
		{"-am u -do v", false, list{{Action: "add", Kind: "manager", Name: "u"}, {Action: "remove", Kind: "operator", Name: "v"}}},
		{"-mattr queue slots 3 a b@h", true, list{{Action: "change", Kind: "queue", Name: "a", Text: "slots 3\n"}, {Action: "change", Kind: "queue", Name: "b@h", Text: "slots 3\n"}}},
		{"-Aattr exechost f h", true, list{{Action: "insert", Kind: "host", Name: "h", Text: "pe_name x\n"}}},
		{"-purge queue slots,seq_no a@h", true, list{{Action: "purge", Kind: "queue", Name: "a@h", Text: "slots\nseq_no"}}},
		{"-dce x -clearusage", false, list{{Action: "remove", Kind: "attribute", Name: "x"}, {Action: "clear", Kind: "user"}}},
		{"-clearusage u", false, list{{Action: "clear", Kind: "user", Text: "u"}}},
	} {
		wanted := qtest.Result{Err: strings.Repeat("done\\x1b\n", len(test.want))}
		if test.stdout {
			wanted.Out, wanted.Err = wanted.Err, ""
		}
		qtest.Want(t, wanted, call(t, "from input", append([]string{"qconf"}, strings.Fields(test.args)...)...))
		if diff := cmp.Diff(test.want, requests()); diff != "" {
			t.Errorf("qconf %s asked (-want +got):\n%s", test.args, diff)
		}
	}
	qtest.Want(t, qtest.Result{Out: "{\n  \"lines\": [\n    {\n      \"text\": \"done\\u001b\"\n    }\n  ]\n}\n"}, call(t, "", "qconf", "-json", "-dm", "x"))

	// What execd refuses, and what it finds wrong.
	e.Replies(api.VerbConfigure, api.Errorf(api.CodeRejected, "no\x1b"), api.ConfigureReply{Lines: []api.Line{{Text: "yes"}, {Text: "no", Failed: true}}})
	qtest.Want(t, qtest.Result{Exit: 1, Err: "no\\x1b\nyes\nno\n"}, call(t, "", "qconf", "-dp", "a,b"))
	for _, test := range []struct {
		args string
		p    api.Problem
		err  string
	}{
		{"-Aq f", api.Problem{Line: 3, Text: "slots: no"}, "error: f:3: slots: no\nCluster queue file \"f\" is not correct\n"},
		{"-Ap f", api.Problem{Text: "required"}, "error: required\nerror reading in file\n"},
		{"-Ap f", api.Problem{Line: 3, Text: "unknown attribute name \"x\""}, "error: unknown attribute name \"x\"\nerror: error reading file: \"f\": line 3\nerror reading in file\n"},
		{"-Ap f", api.Problem{Line: 3, Text: "words", Words: true}, "words\n"},
		{"-Ap f", api.Problem{File: "/etc/x", Line: 3, Text: "y"}, "error: /etc/x:3: y\n"},
		{"-dp f", api.Problem{File: "/etc/x", Text: "y"}, "error: /etc/x: y\n"},
		{"-mattr pe slots 3 f", api.Problem{Line: 3, Text: "slots: no"}, "slots: no\n"},
	} {
		e.Replies(api.VerbConfigure, api.ConfigureReply{Problems: []api.Problem{test.p}})
		qtest.Want(t, qtest.Result{Exit: 1, Err: test.err}, call(t, "", append([]string{"qconf"}, strings.Fields(test.args)...)...))
	}

	qtest.Write(t, "latin", "# \xe4\n")
	qtest.Write(t, "large", strings.Repeat("#\n", api.MaxConfiguration))
	for args, err := range map[string]string{
		"-Ap nofile":           "error: error opening file \"nofile\" for reading: No such file or directory\nerror reading in file\n",
		"-Ap .":                "error: cannot read \".\": Is a directory\nerror reading in file\n",
		"-Ap latin":            "error: \"latin\" is not a text in UTF-8\nerror reading in file\n",
		"-Ap large":            "error: \"large\" has more than 1048576 bytes\nerror reading in file\n",
		"-mattr queue slots 3": "qconf: missing object list\n",
		"-mattr x slots 3 y":   "Modification of object \"x\" not supported\n",
		"-mattr queue # 3 y":   "The attribute name (\"#\") and/or value (\"3\") is invalid\n",
		"-purge pe slots x":    "error: Modification of object \"pe\" not supported\n",
		"-am":                  "error: no option argument provided to \"-am\"\n",
		"-au u":                "error: no option argument provided to \"-au\"\n",
		"-dry -sql":            "error: -dry goes with an option that changes something\n",
		"-scal x":              "x is not a calendar\n",
		"-scall":               "no calendar defined\n",
		"-drqs a,b":            "denied: resource quota set \"a\" does not exist\ndenied: resource quota set \"b\" does not exist\n",
		"-acal x":              "error: option -acal is not supported: there are no calendars\n",
	} {
		qtest.Want(t, qtest.Result{Exit: 1, Err: err}, call(t, "", append([]string{"qconf"}, strings.Fields(args)...)...))
	}

	e.Replies(api.VerbStatus, api.StatusReply{Host: "here"})
	qtest.Want(t, qtest.Result{Out: "here\nhere\nhere\n"}, call(t, "", "qconf", "-sh", "-ss", "-sss"))
	qtest.Want(t, qtest.Result{Out: "{\n  \"text\": \"here\\n\"\n}\n"}, call(t, "", "qconf", "-sh", "-json"))
	qtest.Want(t, qtest.Result{Err: "submithost \"here\" already exists\n"}, call(t, "", "qconf", "-as", "here"))
	qtest.Want(t, qtest.Result{Exit: 1, Err: "adminhost \"here\" already exists\nadminhost \"there\" cannot be added: commands are answered on here alone\n"},
		call(t, "", "qconf", "-ah", "here,there"))
}

// editor makes $EDITOR of a shell script, whose $1 is the file.
func editor(t *testing.T, script string) {
	t.Helper()
	t.Setenv("EDITOR", "sh -c '"+script+"' sh")
}

func TestQconfEdit(t *testing.T) {
	e := qtest.NewExecd(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("VISUAL", "")
	kept := func() []string {
		found, err := filepath.Glob(filepath.Join(tmp, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
			if info, err := os.Stat(filepath.Dir(name)); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%s: %v, %v", filepath.Dir(name), info.Mode(), err)
			}
			if err := os.RemoveAll(filepath.Dir(name)); err != nil {
				t.Error(err)
			}
		}
		return found
	}
	const text = "pe_name x\nslots 3\n"
	e.Replies(api.VerbShow, api.ShowReply{Text: text})
	requests := qtest.Asked[api.ConfigureRequest](t, e, api.VerbConfigure, api.ConfigureReply{Lines: []api.Line{{Text: "done"}}})

	editor(t, "true")
	qtest.Want(t, qtest.Result{Exit: 1, Err: "file unchanged\n"}, call(t, "", "qconf", "-mp", "x"))
	qtest.Want(t, qtest.Result{Out: "file unchanged\n"}, call(t, "", "qconf", "-mu", "x"))
	qtest.Want(t, qtest.Result{Err: "Complex attribute configuration has not been changed\n"}, call(t, "", "qconf", "-mc"))
	for _, r := range requests() {
		if !r.Dry {
			t.Errorf("qconf asked for %+v", r)
		}
	}
	editor(t, "echo slots 4 > \"$1\"")
	qtest.Want(t, qtest.Result{Err: "done\n"}, call(t, "", "qconf", "-mp", "x"))
	asked := requests()
	if diff := cmp.Diff(api.ConfigureRequest{Action: "modify", Kind: "pe", Name: "x", Text: "slots 4\n", Was: text}, asked[len(asked)-1]); diff != "" {
		t.Errorf("qconf -mp x asked (-want +got):\n%s", diff)
	}
	if show := qtest.Last[api.ShowRequest](t, e, api.VerbShow); show != (api.ShowRequest{Kind: "pe", Name: "x", Saved: true}) {
		t.Errorf("qconf -mp x asked for %+v", show)
	}
	if left := kept(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	// A queue is added as it is offered.
	editor(t, "true")
	qtest.Want(t, qtest.Result{Err: "done\n"}, call(t, "", "qconf", "-aq", "x"))
	// What is measured is not edited.
	e.Replies(api.VerbShow, api.ShowReply{Text: "hostname h\nload_values a=1, \\\n   b=2\nprocessors 4\nuser_lists NONE\n"})
	editor(t, "echo x >> \"$1\"")
	qtest.Want(t, qtest.Result{Err: "done\n"}, call(t, "", "qconf", "-me", "h"))
	asked = requests()
	if got := asked[len(asked)-1].Text; got != "hostname h\nuser_lists NONE\nx\n" {
		t.Errorf("qconf -me edits %q", got)
	}

	// What execd does not take is kept, whatever becomes of the editor.
	e.Replies(api.VerbShow, api.ShowReply{Text: text})
	e.Replies(api.VerbConfigure, api.ConfigureReply{}, api.ConfigureReply{Problems: []api.Problem{{Line: 1, Text: "slots: no"}}})
	for script, wanted := range map[string]string{
		"echo x > \"$1\"":                  `^error: (\S+/pe-a_b):1: slots: no\nerror reading in file\nwhat you have written is kept in (\S+/pe-a_b)\n$`,
		"echo x > \"$1\"; exit 3":          `^what you have written is kept in (\S+/pe-a_b)\nerror: editor exited with error 3\nedit failed\n$`,
		"printf \"\\\\344\\\\n\" > \"$1\"": `^what you have written is kept in (\S+/pe-a_b)\nerror: "\S+/pe-a_b" is not a text in UTF-8\nerror reading in file\n$`,
	} {
		e.Replies(api.VerbConfigure, api.ConfigureReply{}, api.ConfigureReply{Problems: []api.Problem{{Line: 1, Text: "slots: no"}}})
		editor(t, script)
		got := call(t, "e\n", "qconf", "-mp", "a/b")
		if got.Exit != 1 || got.Out != "" || !regexp.MustCompile(wanted).MatchString(got.Err) {
			t.Errorf("%s: %+v; want %s", script, got, wanted)
		}
		if left := kept(); len(left) != 1 {
			t.Errorf("%s: kept %q", script, left)
		}
	}
	// Of a file that the editor has removed nothing is.
	e.Replies(api.VerbConfigure, api.ConfigureReply{})
	editor(t, "rm \"$1\"")
	if got := call(t, "", "qconf", "-mp", "a/b"); got.Exit != 1 ||
		!regexp.MustCompile(`^error: error opening file "\S+/pe-a_b" for reading: No such file or directory\nerror reading in file\n$`).MatchString(got.Err) {
		t.Errorf("rm: %+v", got)
	}
	editor(t, "exit 3")
	qtest.Want(t, qtest.Result{Exit: 1, Err: "error: editor exited with error 3\nedit failed\n"}, call(t, "", "qconf", "-mp", "x"))
	e.Replies(api.VerbConfigure, api.Errorf(api.CodeDenied, "denied: you must be manager"))
	editor(t, "echo the editor was started >&2")
	qtest.Want(t, qtest.Result{Exit: 1, Err: "denied: you must be manager\n"}, call(t, "", "qconf", "-mp", "x"))
	qtest.Want(t, qtest.Result{Exit: 1, Err: "denied: you must be manager\n"}, call(t, "", "qconf", "-aq"))
	e.Replies(api.VerbShow, api.Errorf(api.CodeNotFound, "No cluster queue or queue instance matches the phrase"))
	qtest.Want(t, qtest.Result{Exit: 1, Err: "Cluster queue entry \"x\" does not exist\n"}, call(t, "", "qconf", "-mq", "x"))
	qtest.Want(t, qtest.Result{Exit: 1, Err: "Cluster queue entry \"x@h\" does not exist\n"}, call(t, "", "qconf", "-mq", "x@h"))
	if left := kept(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}
