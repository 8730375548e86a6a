package submit

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
	"paddock/qsub/internal/qtest"
)

// TestNeeds compares requests with what Grid Engine 8.1.9 made of the same
// words (qsub -verify, qstat -j).
func TestNeeds(t *testing.T) {
	qtest.UTC(t)
	e := qtest.NewExecd(t)
	e.Replies(api.VerbSubmit, submitted)
	qtest.Write(t, "job.sh", "#$ -l b=2,c -soft -q s.q\n#$ -l w=1\n")
	slots := func(pairs ...int) (list []api.Slots) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, api.Slots{Min: pairs[i], Max: pairs[i+1], Step: 1})
		}
		return list
	}
	res := func(pairs ...string) (list []api.Resource) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, api.Resource{Name: pairs[i], Value: pairs[i+1]})
		}
		return list
	}
	plain := func(r api.SubmitRequest) api.SubmitRequest {
		r.Name, r.Command, r.Binary = "x", "x", true
		return r
	}
	for _, test := range []struct {
		args []string
		want api.SubmitRequest
	}{
		{[]string{"-l", "h_rt=10,mem_free=1G", "-l", "h_rt=20"}, plain(api.SubmitRequest{Hard: res("mem_free", "1G", "h_rt", "20")})},
		{[]string{"-l", "h_rt=1 s_rt=2,a=b=c,, mem_free", "-l", ""}, plain(api.SubmitRequest{Hard: res("h_rt", "1", "s_rt", "2", "a", "b=c", "mem_free", "TRUE")})},
		{[]string{"-l", "h=1", "-soft", "-l", "h=5", "-q", "b.q", "-hard", "-l", "s=3", "-q", "a.q@h,c.q", "-q", "a.q@h,*@@g"}, plain(api.SubmitRequest{
			Hard: res("h", "1", "s", "3"), Soft: res("h", "5"), Queues: []string{"a.q@h", "c.q", "*@@g"}, SoftQueues: []string{"b.q"},
		})},
		{[]string{"-pe", "make", "4-2"}, plain(api.SubmitRequest{PE: "make", Slots: slots(2, 4)})},
		{[]string{"-pe", "m*", "1,3-5,2,16-"}, plain(api.SubmitRequest{PE: "m*", Slots: slots(1, 5, 16, api.MaxSlots)})},
		{[]string{"-pe", "m", "2-4,3-8", "-masterq", "a.q", "-R", "y"}, plain(api.SubmitRequest{PE: "m", Slots: slots(2, 8), MasterQueues: []string{"a.q"}, Reserve: true})},
		{[]string{"-pe", "m", "-4", "-R", "y", "-R", "n"}, plain(api.SubmitRequest{PE: "m", Slots: slots(1, 4)})},
		{[]string{"-pe", "m", "8,,2,"}, plain(api.SubmitRequest{PE: "m", Slots: slots(2, 2, 8, 8)})},
		{[]string{"-pe", "m", "-"}, plain(api.SubmitRequest{PE: "m", Slots: slots(1, api.MaxSlots)})},
		{[]string{"-p", "-1023", "-h", "-hold_jid", "5,foo", "-hold_jid", "6,5", "-w", "e", "-pty", "y"}, plain(api.SubmitRequest{
			Priority: -1023, Hold: "u", HoldJobs: []string{"5", "foo", "6"}, Verify: "e",
		})},
		{[]string{"-p", "+1024", "-t", "1-3", "-hold_jid_ad", "a*"}, plain(api.SubmitRequest{
			Priority: 1024, Tasks: api.Tasks{First: 1, Last: 3, Step: 1}, HoldArray: []string{"a*"},
		})},
		{[]string{"-a", "202612010101.05"}, plain(api.SubmitRequest{After: time.Date(2026, 12, 1, 1, 1, 5, 0, time.UTC)})},
		{[]string{"-ckpt", "x", "-c", "xsx", "-m", "bea", "-M", "a@b,c", "-M", "c,d"}, plain(api.SubmitRequest{
			Checkpoint: "x", CheckpointWhen: "sx", Mail: "abe", MailTo: []string{"a@b", "c", "d"},
		})},
		{[]string{"-c", "0:05:00", "-m", "b", "-m", "e"}, plain(api.SubmitRequest{CheckpointWhen: "0:05:00", Mail: "be"})},
		{[]string{"-m", "bn"}, plain(api.SubmitRequest{})},
		{[]string{"-binding", "linear:2"}, plain(api.SubmitRequest{Binding: "linear:2"})},
		{[]string{"-binding", "env", "striding:2:2:0,1"}, plain(api.SubmitRequest{Binding: "env striding:2:2:0,1"})},
		{[]string{"-binding", "linear"}, plain(api.SubmitRequest{Binding: "linear"})},
		{[]string{"-binding", "linear:slots:0,0"}, plain(api.SubmitRequest{Binding: "linear:slots:0,0"})},
		{[]string{"-binding", "pe", "explicit:0,0:0,1"}, plain(api.SubmitRequest{Binding: "pe explicit:0,0:0,1"})},
		{[]string{"-now", "y", "-now", "n"}, plain(api.SubmitRequest{})},
	} {
		got := submit(t, e, "", append(test.args, "-b", "y", "x")...)
		if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(api.SubmitRequest{}, "Origin")); diff != "" {
			t.Errorf("qsub %q (-want +got):\n%s", test.args, diff)
		}
	}
	// Each source begins with hard requests, and adds to the ones before it.
	home := e.Dir + "/home/.sge_request"
	qtest.Write(t, home, "-l a=1,b=1 -soft -l v=1\n")
	qtest.Write(t, ".sge_request", "-l a=3\n")
	want := api.SubmitRequest{Hard: res("a", "3", "b", "2", "c", "TRUE", "d", "4"), Soft: res("v", "1", "w", "1"), SoftQueues: []string{"s.q"}}
	if diff := cmp.Diff(want, submit(t, e, "", "-l", "d=4", "job.sh"), cmpopts.IgnoreFields(api.SubmitRequest{}, "Origin", "Name", "Command", "Script")); diff != "" {
		t.Errorf("from files (-want +got):\n%s", diff)
	}
}

// TestNeedsRefused has Grid Engine's texts and exit codes.
func TestNeedsRefused(t *testing.T) {
	e := qtest.NewExecd(t)
	e.On(api.VerbSubmit, func([]byte) (int, any) {
		t.Error("a request was sent")
		return 200, submitted
	})
	const numeric = "qsub: Numerical value invalid!\nThe initial portion of string \"%\" contains no decimal number\n"
	const date = "qsub: Wrong date/time format \"%\" specified to -a option\n"
	const bound = "qsub: -binding option contains errors: %\n"
	unable := func(text string) string { return "Unable to run job: " + text + "\nExiting.\n" }
	fill := func(form, text string) string { return strings.Replace(form, "%", text, 1) }
	for _, test := range []struct {
		args []string
		exit int
		err  string
	}{
		{[]string{"-l", "=3"}, 7, "qsub: Wrong resource list format \"=3\" specified to -l option\n"},
		{[]string{"-l", "h_rt="}, 1, unable("denied: missing value for resource \"h_rt\"")},
		{[]string{"-q", ""}, 7, "qsub: Wrong queue list format \"\" specified to -q option\n"},
		{[]string{"-masterq", ""}, 7, "qsub: Wrong queue list format \"\" specified to -masterq option\n"},
		{[]string{"-pe", "make", "x"}, 7, fill(numeric, "x")},
		{[]string{"-pe", "make", "5-x"}, 7, fill(numeric, "x")},
		{[]string{"-pe", "make", "2-8:2"}, 7, "qsub: Range specifier \"8:2\" has unknown trailer \":2\"\n"},
		{[]string{"-pe", "make", "2-4-6"}, 7, "qsub: Range specifier \"4-6\" has unknown trailer \"-6\"\n"},
		{[]string{"-pe", "make", "5x"}, 7, "qsub: Range specifier \"5x\" has unknown trailer \"x\"\n"},
		{[]string{"-pe", "make", "0-4"}, 1, unable("\"job\" rejected: pe range must be greater than zero")},
		{[]string{"-pe", "make", "10000000"}, 1, unable("job rejected: 10000000 is more than the largest number of slots, 9999999")},
		{[]string{"-pe", "make", "99999999999999999999"}, 1, unable("The input value for an argument is invalid.")},
		{[]string{"-pe", "make", ""}, 2, "qsub: -pe option must have range as 2nd argument\n"},
		{[]string{"-R", "maybe"}, 7, "qsub: invalid option argument \"-R maybe\"\n"},
		{[]string{"-p", "1025"}, 7, "qsub: invalid priority \"1025\".  Must be an integer from -1023 to 1024\n"},
		{[]string{"-p", "3x"}, 7, "qsub: invalid priority \"3x\".  Must be an integer from -1023 to 1024\n"},
		{[]string{"-a", ""}, 7, "\nno date specified\n" + fill(date, "")},
		{[]string{"-a", "1201"}, 7, "\nInvalid format of date/hour-minute field.\n" + fill(date, "1201")},
		{[]string{"-hold_jid", ""}, 7, "qsub: Wrong jid_hold list format \"\" specified to -hold_jid option\n"},
		{[]string{"-hold_jid_ad", ","}, 7, "qsub: Wrong jid_hold_ad list format \",\" specified to -hold_jid_ad option\n"},
		{[]string{"-c", "q"}, 2, "qsub: -c specifier invalid\n"},
		{[]string{"-c", "s:m"}, 2, "qsub: -c specifier invalid\n"},
		{[]string{"-c", ""}, 2, "qsub: -c argument invalid\n"},
		{[]string{"-c", "1:2:3:4"}, 2, "qsub: -c argument invalid\n"},
		{[]string{"-m", "b,e"}, 7, "qsub: Wrong mail options list format \"b,e\" specified to -m option\n"},
		{[]string{"-m", ""}, 7, "qsub: Wrong mail options list format \"\" specified to -m option\n"},
		{[]string{"-M", ""}, 7, "qsub: Wrong mail list format \"\" specified to -M option\n"},
		{[]string{"-w", "x"}, 7, "qsub: invalid option argument \"-w x\"\n"},
		{[]string{"-w", "ev"}, 7, "qsub: invalid option argument \"-w ev\"\n"},
		{[]string{"-now", "maybe"}, 7, "qsub: invalid option argument \"-now maybe\"\n"},
		{[]string{"-binding", "foo"}, 2, fill(bound, "couldn't parse binding parameter (no strategy found)")},
		{[]string{"-binding", "linear:x"}, 2, fill(bound, "couldn't parse amount (linear)")},
		{[]string{"-binding", "linear:0"}, 2, fill(bound, "couldn't parse amount (linear)")},
		{[]string{"-binding", "linear:1:0"}, 2, fill(bound, "couldn't parse core number (linear)")},
		{[]string{"-binding", "linear:1:0,0,0"}, 2, fill(bound, "couldn't parse core number (linear)")},
		{[]string{"-binding", "striding:2"}, 2, fill(bound, "couldn't parse amount (striding)")},
		{[]string{"-binding", "striding:2:2:a,0"}, 2, fill(bound, "couldn't parse socket number (striding)")},
		{[]string{"-binding", "explicit"}, 2, fill(bound, "'explicit:' not found in string!")},
		{[]string{"-binding", "explicit:"}, 2, fill(bound, "No <socket,core> pair given!")},
		{[]string{"-binding", "explicit:0"}, 2, fill(bound, "Missing first core number!")},
		{[]string{"-binding", "explicit:a,b"}, 2, fill(bound, "First socket is not a number!")},
		{[]string{"-binding", "explicit:0,a"}, 2, fill(bound, "First core is not a number!")},
		{[]string{"-binding", "explicit:0,0:1"}, 2, fill(bound, "No core for a given socket!")},
		{[]string{"-binding", "explicit:0,0:a,1"}, 2, fill(bound, "Socket is not a number!")},
		{[]string{"-binding", "explicit:0,0:1,a"}, 2, fill(bound, "Core is not a number!")},
		{[]string{"-binding", "explicit:0,0:0,0"}, 2, fill(bound, "<socket,core> pairs are not unique!")},
		{[]string{"-dl", "12010101"}, 2, "qsub: option -dl is not supported: jobs are not ordered by a deadline; -a delays a job\n"},
		{[]string{"-U", "joe"}, 2, "qsub: invalid option argument \"-U\"\nType \"qsub -help\" for the options.\n"},
	} {
		got := call(t, "", append(append([]string{"qsub"}, test.args...), "-b", "y", "x")...)
		if diff := cmp.Diff(qtest.Result{Exit: test.exit, Err: test.err}, got); diff != "" {
			t.Errorf("qsub %q (-want +got):\n%s", test.args, diff)
		}
	}
}

func TestVerification(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbSubmit, api.SubmitReply{Lines: []string{"verification: found suitable queue(s)"}})
	qtest.Want(t, qtest.Result{Out: "verification: found suitable queue(s)\n"}, call(t, "true", "qsub", "-w", "v"))
	e.Replies(api.VerbSubmit, api.SubmitReply{Job: 9, Name: "STDIN", Lines: []string{"warning: no suitable queues"}})
	qtest.Want(t, qtest.Result{Out: "warning: no suitable queues\nYour job 9 (\"STDIN\") has been submitted\n"}, call(t, "true", "qsub", "-w", "w"))
	e.Replies(api.VerbSubmit, api.Errorf(api.CodeRejected, "Job 9 (-l a=1) cannot run\x1b\nverification: no suitable queues"))
	qtest.Want(t, qtest.Result{Exit: 1, Err: "Unable to run job: Job 9 (-l a=1) cannot run\\x1b\nverification: no suitable queues\nExiting.\n"}, call(t, "true", "qsub", "-w", "p"))
}

func TestNow(t *testing.T) {
	e := qtest.NewExecd(t)
	const waiting = "Waiting for immediate job to be scheduled.\n\n"
	e.Replies(api.VerbSubmit, api.SubmitReply{Job: 9, Name: "a", Tasks: api.Tasks{First: 1, Last: 2, Step: 1}})
	qtest.Want(t, qtest.Result{Out: "Your job-array 9.1-2:1 (\"a\") has been submitted\n", Err: waiting + "Your immediate job 9.1-2:1 has been successfully scheduled.\n"},
		call(t, "true", "qsub", "-now", "y"))
	if !qtest.Last[api.SubmitRequest](t, e, api.VerbSubmit).Now {
		t.Error("the request does not say so")
	}
	e.Replies(api.VerbSubmit, api.Errorf(api.CodeBusy, "nothing is free"))
	qtest.Want(t, qtest.Result{Exit: 1, Err: waiting + "Your qsub request could not be scheduled; try again later.\n"}, call(t, "true", "qsub", "-now", "y"))
}

// TestVerify has the lines of Grid Engine's qsub -verify of the same options,
// without those of what is not there.
func TestVerify(t *testing.T) {
	qtest.UTC(t)
	e := qtest.NewExecd(t)
	e.On(api.VerbSubmit, func([]byte) (int, any) {
		t.Error("a request was sent")
		return 200, submitted
	})
	got := call(t, "", "qsub", "-verify", "-b", "y", "-N", "pcx", "-h", "-l", "h_rt=10,mem_free=1G", "-l", "h_rt=20", "-masterq", "all.q@gehost",
		"-pe", "make", "2-4,8,16-", "-R", "y", "-p", "-3", "-a", "202612010101.05", "-hold_jid", "5,foo", "-ckpt", "x", "-c", "sx", "-m", "bea", "-M", "a@b,c",
		"-binding", "linear:1", "-soft", "-l", "arch=x", "-q", "all.q", "-t", "1-5:2", "-tc", "2", "-notify", "-j", "y", "-r", "y", "-v", "A=1,B", "sleep", "1")
	var lines []string
	for line := range strings.Lines(got.Out) {
		if !strings.HasPrefix(line, "sge_o_") {
			lines = append(lines, line)
		}
	}
	got.Out = strings.Join(lines, "")
	qtest.Want(t, qtest.Result{Out: `job_number:                 unassigned
owner:                      ` + `
uid:                        0
group:                      ` + `
gid:                        0
execution_time:             Tue Dec  1 01:01:05 2026
checkpoint_object:          x
checkpoint_attr:            sx    ` + `
reserve:                    y
merge:                      y
hard resource_list:         mem_free=1G,h_rt=20
soft resource_list:         arch=x
mail_options:               abe
mail_list:                  a@b,c@NONE
notify:                     TRUE
job_name:                   pcx
priority:                   -3
jobshare:                   0
soft_queue_list:            all.q
restart:                    y
verify:                     -verify
env_list:                   TERM,A=1,B
job_args:                   1
master hard queue_list:     all.q@gehost
script_file:                sleep
parallel environment:  make range: 2-4,8,16-9999999
jid_predecessor_list (req): 5,foo
job-array tasks:            1-5:2
maximum concurrency:        2
job_type:                   binary
`}, got)
}

// FuzzApply gives every option any value: it ends in a request that can be
// sent, or in words and an exit status.
func FuzzApply(f *testing.F) {
	for _, seed := range []string{"1-5,8,16-", "h_rt=1,,x", "202612010101.05", "explicit:0,0:0,1", "striding:2:2:0,1", "linear:slots", "0:5:0", "1-5:2", "a@b,c", "-"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, o := range option.Of(option.Qsub) {
			if apply[o.Name] == nil {
				continue
			}
			s := option.Setting{Option: o}
			for range o.Args {
				s.Values = append(s.Values, value)
			}
			j, err := newJob([]option.Setting{s})
			if err != nil {
				e, isOption := errors.AsType[*option.Error](err)
				fail, isFailure := errors.AsType[*command.Failure](err)
				if (!isOption || e.Exit == 0) && (!isFailure || fail.Exit == 0) || err.Error() == "" {
					t.Errorf("%s %q: %#v; want words and an exit status", o.Name, value, err)
				}
				continue
			}
			if _, err := json.Marshal(&j.req); err != nil {
				t.Errorf("%s %q: %v", o.Name, value, err)
			}
			last := 0
			for _, r := range j.req.Slots {
				if r.Min <= last || r.Max < r.Min || r.Max > api.MaxSlots || r.Step != 1 {
					t.Errorf("%s %q: slots %v", o.Name, value, j.req.Slots)
				}
				last = r.Max
			}
		}
	})
}
