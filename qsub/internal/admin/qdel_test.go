package admin

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/qsub/internal/qtest"
)

func TestQdel(t *testing.T) {
	e := qtest.NewExecd(t)
	ok := api.Line{Text: "geuser has deleted job 32"}
	e.Replies(api.VerbDelete, api.DeleteReply{Lines: []api.Line{ok}})
	for _, test := range []struct {
		args []string
		want api.DeleteRequest
	}{
		{[]string{"32"}, api.DeleteRequest{Jobs: []string{"32"}}},
		{[]string{"1,2", "3.4-9:2", "name*", "n.1"}, api.DeleteRequest{Jobs: []string{"1", "2", "3.4-9:2", "name*", "n.1"}}},
		{[]string{"two", "-t", "1-3", "5"}, api.DeleteRequest{Jobs: []string{"two.1-3", "5"}}},
		{[]string{"1,2", "-t", "4"}, api.DeleteRequest{Jobs: []string{"1.4", "2.4"}}},
		{[]string{"-u", "a,b", "-f"}, api.DeleteRequest{Users: []string{"a", "b"}, Force: true}},
		{[]string{"-u", "*", "x"}, api.DeleteRequest{Users: []string{"*"}, Jobs: []string{"x"}}},
		{[]string{"--", "-x", "-y"}, api.DeleteRequest{Jobs: []string{"-x", "-y"}}},
	} {
		qtest.Want(t, qtest.Result{Out: ok.Text + "\n"}, call(t, "", append([]string{"qdel"}, test.args...)...))
		if diff := cmp.Diff(test.want, qtest.Last[api.DeleteRequest](t, e, api.VerbDelete)); diff != "" {
			t.Errorf("qdel %q asked (-want +got):\n%s", test.args, diff)
		}
	}
	e.Replies(api.VerbDelete, api.DeleteReply{Lines: []api.Line{ok, {Text: `denied: job "33" does not exist`, Failed: true}}})
	qtest.Want(t, qtest.Result{Exit: 1, Out: ok.Text + "\ndenied: job \"33\" does not exist\n"}, call(t, "", "qdel", "32,33"))

	// As many requests as it takes.
	var asked []int
	e.On(api.VerbDelete, func(body []byte) (int, any) {
		var request api.DeleteRequest
		if err := json.Unmarshal(body, &request); err != nil {
			t.Error(err)
		}
		asked = append(asked, len(request.Jobs))
		return 200, api.DeleteReply{Lines: []api.Line{{Text: request.Jobs[0], Failed: len(asked) == 1}}}
	})
	words := make([]string, 2*api.MaxWords+1)
	for i := range words {
		words[i] = strconv.Itoa(i + 1)
	}
	qtest.Want(t, qtest.Result{Exit: 1, Out: "1\n1001\n2001\n"}, call(t, "", append([]string{"qdel"}, words...)...))
	if !cmp.Equal(asked, []int{api.MaxWords, api.MaxWords, 1}) {
		t.Errorf("requests of %v words", asked)
	}

	e.On(api.VerbDelete, func([]byte) (int, any) {
		t.Error("a request was sent")
		return 200, api.DeleteReply{}
	})
	const hint = "Type \"qdel -help\" for the options.\n"
	for _, test := range []struct {
		args []string
		err  string
	}{
		{nil, "ERROR! no option argument\n" + hint},
		{[]string{""}, "ERROR! no option argument\n" + hint},
		{[]string{"-badopt"}, "error: invalid option argument \"-badopt\"\n" + hint},
		{[]string{"-t", "1"}, "error: found lonely '-t 1' option (The -t option needs a leading job name).\n"},
		{[]string{"1", "-t", "x"}, "error: Numerical value invalid!\nThe initial portion of string \"x\" contains no decimal number\n"},
		{[]string{"1-3"}, "error: ERROR! \"1-3\" is an invalid job-task identifier\n"},
		{[]string{"../../etc"}, "error: ERROR! \"../../etc\" is an invalid job-task identifier\n"},
		{[]string{"1.x"}, "error: ERROR! \"1.x\" is an invalid job-task identifier\n"},
	} {
		qtest.Want(t, qtest.Result{Exit: 1, Err: test.err}, call(t, "", append([]string{"qdel"}, test.args...)...))
	}
}
