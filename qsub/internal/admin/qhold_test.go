package admin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/qsub/internal/qtest"
)

func TestModify(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbHost, api.HostReply{Host: "h", Queues: []api.QueueStatus{{Name: "all.q"}, {Name: "long.q"}}})
	requests := qtest.Asked[api.ModifyRequest](t, e, api.VerbModify, api.ModifyReply{Lines: []api.Line{{Text: "modified hold of job 132"}}})
	const done = "modified hold of job 132\n"
	jobs := func(action api.Action, words ...string) api.ModifyRequest {
		return api.ModifyRequest{Action: action, Jobs: words}
	}
	queues := func(action api.Action, words ...string) api.ModifyRequest {
		return api.ModifyRequest{Action: action, Queues: words}
	}
	hold := func(r api.ModifyRequest, letters string) api.ModifyRequest { r.Hold = letters; return r }
	for _, test := range []struct {
		args string
		want []api.ModifyRequest
	}{
		{"qhold 42", []api.ModifyRequest{hold(jobs(api.ActionHold, "42"), "u")}},
		{"qhold -h os 42,na* 42.3-7:2", []api.ModifyRequest{hold(jobs(api.ActionHold, "42", "na*", "42.3-7:2"), "os")}},
		{"qhold two -t 1-3 5", []api.ModifyRequest{hold(jobs(api.ActionHold, "two.1-3", "5"), "u")}},
		{"qhold -u a,b", []api.ModifyRequest{{Action: api.ActionHold, Hold: "u", Users: []string{"a", "b"}}}},
		{"qrls -h u -h sou 42", []api.ModifyRequest{hold(jobs(api.ActionRelease, "42"), "uos")}},
		{"qmod -sj 1 x,y 2 -t 3", []api.ModifyRequest{jobs(api.ActionSuspend, "1", "x", "y", "2.3")}},
		{"qmod -usj 1 -rj 2 -cj 3 -f", []api.ModifyRequest{
			{Action: api.ActionResume, Jobs: []string{"1"}, Force: true},
			{Action: api.ActionReschedule, Jobs: []string{"2"}, Force: true},
			{Action: api.ActionClear, Jobs: []string{"3"}, Force: true},
		}},
		{"qmod -d all.q,* -e a@h", []api.ModifyRequest{queues(api.ActionDisable, "all.q", "*"), queues(api.ActionEnable, "a@h")}},
		{"qmod -sq 1 -usq 1 -rq 1 -cq 1", []api.ModifyRequest{
			queues(api.ActionSuspend, "1"), queues(api.ActionResume, "1"), queues(api.ActionReschedule, "1"), queues(api.ActionClear, "1"),
		}},
		{"qmod -s 1 l* name x@@g -us all.q@h -c 7 -r 8", []api.ModifyRequest{
			{Action: api.ActionSuspend, Jobs: []string{"1", "name"}, Queues: []string{"l*", "x@@g"}},
			queues(api.ActionResume, "all.q@h"), jobs(api.ActionClear, "7"), jobs(api.ActionReschedule, "8"),
		}},
	} {
		got := call(t, "", strings.Fields(test.args)...)
		qtest.Want(t, qtest.Result{Out: strings.Repeat(done, len(test.want))}, got)
		if diff := cmp.Diff(test.want, requests()); diff != "" {
			t.Errorf("%s asked (-want +got):\n%s", test.args, diff)
		}
	}
	// The first failure decides on the exit status.
	missing := api.Line{Text: `denied: job "9" does not exist`, Failed: true, Code: api.CodeNotFound}
	denied := api.Line{Text: `denied: "u" must be operator to set operator hold`, Failed: true, Code: api.CodeDenied}
	for _, test := range []struct {
		command string
		lines   []api.Line
		exit    int
	}{
		{"qhold", []api.Line{{Text: "x"}, missing, denied}, 3},
		{"qrls", []api.Line{denied, missing}, 10},
		{"qhold", []api.Line{{Text: "x", Failed: true}}, 1},
		{"qmod -sj", []api.Line{missing}, 1},
	} {
		e.Replies(api.VerbModify, api.ModifyReply{Lines: test.lines})
		var out strings.Builder
		for _, line := range test.lines {
			out.WriteString(line.Text + "\n")
		}
		qtest.Want(t, qtest.Result{Exit: test.exit, Out: out.String()}, call(t, "", append(strings.Fields(test.command), "9")...))
	}
	e.Replies(api.VerbModify, api.Errorf(api.CodeInternal, "broken"))
	qtest.Want(t, qtest.Result{Exit: 1, Err: "qmod: broken\n"}, call(t, "", "qmod", "-d", "x"))
}

func TestModifyRefuses(t *testing.T) {
	e := qtest.NewExecd(t)
	e.On(api.VerbModify, func([]byte) (int, any) {
		t.Error("a request was sent")
		return 200, api.ModifyReply{}
	})
	const hint = "Type \"% -help\" for the options.\n"
	for _, test := range []struct {
		args string
		exit int
		err  string
	}{
		{"qhold", 1, "ERROR! no option argument\n" + hint},
		{"qhold -h u", 1, "ERROR! no option argument\n" + hint},
		{"qrls", 1, "ERROR! no option argument\n" + hint},
		{"qhold -h", 2, "qhold: -h option must have argument\n"},
		{"qhold -badopt", 2, "qhold: invalid option argument \"-badopt\"\n" + hint},
		{"qhold -h n 1", 7, "qhold: Unknown hold list \"n\" specified to -h option\n"},
		{"qrls -h U 1", 7, "qrls: Unknown hold list \"U\" specified to -h option\n"},
		{"qhold 831.x", 2, "ERROR! \"831.x\" is an invalid job-task identifier\n"},
		{"qhold 1-3", 2, "ERROR! \"1-3\" is an invalid job-task identifier\n"},
		{"qhold -t 1", 2, "error: found lonely '-t 1' option (The -t option needs a leading job name).\n"},
		{"qmod", 1, "ERROR! no option argument\n" + hint},
		{"qmod -f", 1, "ERROR! no option argument\n" + hint},
		{"qmod 5", 1, "invalid option argument \"5\"\n" + hint},
		{"qmod -t 5", 1, "invalid option argument \"5\"\n" + hint},
		{"qmod -d", 1, "-d option must have argument\n"},
		{"qmod -sj 1-3", 1, "ERROR! \"1-3\" is an invalid job-task identifier\n"},
		{"qmod -d q -t 1", 1, "error: found lonely '-t 1' option (The -t option needs a leading job name).\n"},
	} {
		args := strings.Fields(test.args)
		qtest.Want(t, qtest.Result{Exit: test.exit, Err: strings.Replace(test.err, "%", args[0], 1)}, call(t, "", args...))
	}
	qtest.Want(t, qtest.Result{Exit: 7, Err: "qhold: Unknown hold list \"\" specified to -h option\n"}, call(t, "", "qhold", "-h", "", "1"))
	qtest.Want(t, qtest.Result{Exit: 1, Err: "-d option must have argument\n"}, call(t, "", "qmod", "-d", ""))
	qtest.Want(t, qtest.Result{Exit: 1, Err: "-sj option must have argument\n"}, call(t, "", "qmod", "-sj", ","))
}

func TestQconf(t *testing.T) {
	e := qtest.NewExecd(t)
	requests := qtest.Asked[api.ShowRequest](t, e, api.VerbShow, api.ShowReply{Text: "a\nb\n"})
	for _, test := range []struct {
		args string
		want []api.ShowRequest
	}{
		{"-sql", []api.ShowRequest{{Kind: "queue", List: true}}},
		{"-sq a,b c", []api.ShowRequest{{Kind: "queue", Name: "a"}, {Kind: "queue", Name: "b"}, {Kind: "queue", Name: "c"}}},
		{"-sp x -spl", []api.ShowRequest{{Kind: "pe", Name: "x"}, {Kind: "pe", List: true}}},
		{"-sckpt x -sckptl -sc", []api.ShowRequest{{Kind: "ckpt", Name: "x"}, {Kind: "ckpt", List: true}, {Kind: "complex"}}},
		{"-sconf -sconf h -ssconf", []api.ShowRequest{{Kind: "conf"}, {Kind: "conf", Name: "h"}, {Kind: "sched"}}},
		{"-sul -su l -shgrpl -shgrp @g", []api.ShowRequest{{Kind: "userlist", List: true}, {Kind: "userlist", Name: "l"}, {Kind: "hostgroup", List: true}, {Kind: "hostgroup", Name: "@g"}}},
		{"-sknobs -sknobs START,*_HOOK_*", []api.ShowRequest{{Kind: "knob"}, {Kind: "knob", Name: "START"}, {Kind: "knob", Name: "*_HOOK_*"}}},
		{"-sel -se h -sm -so", []api.ShowRequest{{Kind: "host", List: true}, {Kind: "host", Name: "h"}, {Kind: "manager", List: true}, {Kind: "operator", List: true}}},
	} {
		qtest.Want(t, qtest.Result{Out: strings.Repeat("a\nb\n", len(test.want))}, call(t, "", append([]string{"qconf"}, strings.Fields(test.args)...)...))
		if diff := cmp.Diff(test.want, requests()); diff != "" {
			t.Errorf("qconf %s asked (-want +got):\n%s", test.args, diff)
		}
	}
	qtest.Want(t, qtest.Result{Out: "{\n  \"text\": \"a\\nb\\n\"\n}\n"}, call(t, "", "qconf", "-json", "-sql"))
	e.Replies(api.VerbShow, api.ShowReply{Text: "x\n"}, api.Errorf(api.CodeNotFound, "nosuch is not a parallel environment"))
	qtest.Want(t, qtest.Result{Exit: 1, Out: "x\n", Err: "nosuch is not a parallel environment\n"}, call(t, "", "qconf", "-spl", "-sp", "nosuch"))

	e.Replies(api.VerbShow, api.ShowReply{})
	qtest.Want(t, qtest.Result{Exit: 1, Err: "no operator defined\n"}, call(t, "", "qconf", "-so", "-sm"))
	qtest.Want(t, qtest.Result{Out: "{\n  \"text\": \"\"\n}\n"}, call(t, "", "qconf", "-so", "-json"))

	e.Replies(api.VerbReload, api.ReloadReply{Changed: []string{"queue all.q: slots 4"}})
	qtest.Want(t, qtest.Result{Out: "queue all.q: slots 4\n"}, call(t, "", "qconf", "-reload"))
	qtest.Want(t, qtest.Result{Out: "{\n  \"changed\": [\n    \"queue all.q: slots 4\"\n  ]\n}\n"}, call(t, "", "qconf", "-reload", "-json"))
	e.Replies(api.VerbReload, api.ReloadReply{})
	qtest.Want(t, qtest.Result{Out: "the configuration has not changed\n"}, call(t, "", "qconf", "-reload"))
	e.Replies(api.VerbReload, api.ReloadReply{BrokenHooks: []string{"hooks.conf:3: no such\x1b"}})
	qtest.Want(t, qtest.Result{Out: "the configuration has not changed\n", Err: "qconf: broken hook: hooks.conf:3: no such\\x1b\n"}, call(t, "", "qconf", "-reload"))
	e.Replies(api.VerbReload, api.ReloadReply{Problems: []string{"sge_conf:3: no such parameter\x1b"}})
	qtest.Want(t, qtest.Result{Exit: 1, Err: "sge_conf:3: no such parameter\\x1b\nqconf: the configuration was not changed\n"}, call(t, "", "qconf", "-reload"))
	e.Replies(api.VerbReload, api.Errorf(api.CodeDenied, "only managers may do that"))
	qtest.Want(t, qtest.Result{Exit: 1, Err: "qconf: only managers may do that\n"}, call(t, "", "qconf", "-reload"))

	const hint = "Type \"qconf -help\" for the options.\n"
	for args, err := range map[string]string{
		"":         "ERROR! no option argument\n" + hint,
		"-json":    "ERROR! no option argument\n" + hint,
		"foo":      "error: invalid option argument \"foo\"\n" + hint,
		"-sul foo": "error: invalid option argument \"foo\"\n" + hint,
		"-sc foo":  "error: invalid option argument \"foo\"\n" + hint,
		"-badopt":  "error: invalid option argument \"-badopt\"\n" + hint,
		"-sp":      "error: no option argument provided to \"-sp\"\n",
		"-ks":      "error: option -ks is not supported: the scheduler is a part of execd\n",
	} {
		qtest.Want(t, qtest.Result{Exit: 1, Err: err}, call(t, "", append([]string{"qconf"}, strings.Fields(args)...)...))
	}
}
